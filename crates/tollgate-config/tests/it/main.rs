//! Configurations as users write them, and what they are told.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "all of this is test code, helpers included"
)]

mod documents;
mod mistakes;
mod random;
