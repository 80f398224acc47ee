//! The program, run as people run it: the real binary in a folder of its own.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "all of this is test code, helpers included"
)]

mod chart;
mod config;
mod config_check;
mod config_mistakes;
mod config_random;
mod csv;
mod figures;
mod program;
mod refusals;
