//! # Tollgate for HTTP
//!
//! The engine ([`tollgate`]) counts by client, address, plan and endpoint, and believes what it is told. This crate finds those
//! out from an HTTP request, so that nobody gets more by what they write into it, and answers in HTTP's words:
//!
//! - [`layer`]: middleware for axum, tonic and hyper, in five lines. Start here.
//! - [`gate`]: what the layer does, for servers that are no tower services.
//! - [`identity`]: who is calling.
//! - [`policy`]: a whole request as rules see it.
//! - [`answer`]: from a decision to header fields, bodies and gRPC statuses.
//!
//! `layer` stands on `gate`, and `gate` on the other three; `answer` knows neither of the other two.

pub mod answer;
#[cfg(doctest)]
mod documentation;
pub mod gate;
pub mod identity;
pub mod layer;
pub mod policy;

pub use layer::TollgateLayer;
