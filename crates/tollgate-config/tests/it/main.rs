//! Configurations as users write them, and the messages about them.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "all of this is test code, helpers included"
)]

mod documents;
mod mistakes;
mod random;
