//! What is promised about who is calling, what they hear and when they pass, one file each. A new test goes where its promise is:
//!
//! - `addresses`: every spelling of an address ends in one bucket or is refused.
//! - `forged`: whatever a caller writes into headers, it stays who it is.
//! - `views`: a whole request as a policy sees it.
//! - `walk`: how the caller is found behind trusted proxies.
//! - `who`: sources in order, known clients, ids, plans, and the sources that cannot be meant.
//! - `explained`: the reasons, and that they are those of the decision.
//! - `secrets`: an API key is never shown.
//! - `answers`: fields, bodies and statuses made of a decision, and fields that are there already.
//! - `middleware`: the layer in a real axum server.
//! - `bare`: the layer in a real hyper server.
//! - `grpc`: the layer in a real tonic server.
//! - `examples`: the examples, run.
//! - `queue`: who waits for a turn, who cannot, and who goes away.
//! - `shared_store`: the layer over a store that is shared, there or not.
//! - `swapped`: rules and policies that change while requests come.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod addresses;
mod answers;
mod bare;
mod examples;
mod explained;
mod forged;
mod grpc;
mod middleware;
mod queue;
mod secrets;
mod served;
mod shared_store;
mod support;
mod swapped;
mod views;
mod walk;
mod who;
