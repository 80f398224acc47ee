//! The engine's promises, one file each. A new test goes where its promise is:
//!
//! - `contract`: what every store must do; runs on each store.
//! - `reference`: the algorithms against slow models in exact fractions.
//! - `concurrency`: many threads, with the referee.
//! - `bounded`: floods of keys.
//! - `costs`: what each rule charges, and warnings about rule sets.
//! - `exceptions`: requests that a rule does not apply to.
//! - `generations`: rules that change under traffic.
//! - `inspect`: what was used by whom, and that looking changes nothing.
//! - `instances`: how many share the limits, counted over Redis.
//! - `limiter`: rules, tiers, plans, shadows, and what a decision says.
//! - `matching`: which rules a request meets, what it costs, and what its endpoint is called.
//! - `metrics`: what a limiter counts, in a registry of the program's own.
//! - `faults`: what limiters do while their Redis is in trouble, and how soon they are back (`recovery`).
//! - `planted`: the usual bugs, put into our own scripts or into how they are asked (`naive`), are found.
//! - `processes`: several processes on one Redis.
//! - `scripts`: how servers old and new learn our scripts, and what they refuse before one starts.
//! - `shared`: a limiter over Redis: remembered denials, and each rule's policy.
//! - `reset`: what is forgotten of whom, and what of others stays.
//! - `rights`: what a user of Redis needs for us, and no more.
//! - `same_answers`: memory and Redis asked the same, one by one.
//! - `tls`: servers spoken to over TLS, and those that are not to be believed.
//! - `waiting`: requests that wait until they are admitted, in which order, and those that give up.
//! - `regressions`: bugs seen elsewhere, by name.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::print_stderr
)]

mod bounded;
#[cfg(feature = "tls")]
mod certificates;
mod concurrency;
mod contract;
mod costs;
mod exceptions;
#[cfg(feature = "redis")]
mod faults;
mod generations;
mod inspect;
#[cfg(feature = "redis")]
mod instances;
mod limiter;
mod matching;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "redis")]
mod naive;
#[cfg(feature = "redis")]
mod panics;
#[cfg(feature = "redis")]
mod planted;
#[cfg(feature = "redis")]
mod processes;
#[cfg(feature = "redis")]
mod proxy;
#[cfg(feature = "redis")]
mod redis_store;
mod reference;
mod regressions;
mod reset;
#[cfg(feature = "redis")]
mod rights;
#[cfg(feature = "redis")]
mod same_answers;
#[cfg(feature = "redis")]
mod scripts;
#[cfg(feature = "redis")]
mod server;
#[cfg(feature = "redis")]
mod shared;
mod spellings;
mod support;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "redis")]
mod together;
#[cfg(feature = "tokio")]
mod waiting;
