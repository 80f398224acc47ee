//! The larger examples and benchmarks in short, so that they keep working.

mod attack;
mod payments;
