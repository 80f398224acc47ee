//! What is promised about who is calling, one file each. A new test goes where its promise is:
//!
//! - `addresses`: every spelling of an address ends in one bucket or is refused.
//! - `forged`: whatever a caller writes into headers, it stays who it is.
//! - `views`: a whole request as a policy sees it.
//! - `walk`: how the caller is found behind trusted proxies.
//! - `who`: sources in order, known clients, ids, plans, and the sources that cannot be meant.
//! - `explained`: the reasons, and that they are those of the decision.
//! - `secrets`: an API key is never shown.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod addresses;
mod explained;
mod forged;
mod secrets;
mod support;
mod views;
mod walk;
mod who;
