//! Bodies of requests: as they arrive, within limits, and read to their end when nobody else does.

mod drain;
mod incoming;
mod limited;

pub use drain::{Drain, DrainedBody, drained};
pub use incoming::IncomingBody;
pub use limited::{BodyError, BodyLimits, LimitedBody, Outcome};
