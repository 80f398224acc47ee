//! What operators meet: starting and stopping, health, metrics, traces, limits of the system, and the files in deploy/.

mod admin;
mod canary;
mod deployed;
mod descriptors;
mod listeners;
mod metrics;
mod serve;
mod stalls;
mod store_share;
mod traces;
