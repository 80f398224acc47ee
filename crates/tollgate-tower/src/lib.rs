//! # Tollgate for HTTP: who is calling
//!
//! The engine ([`tollgate`]) counts by client, address and plan, and believes what it is told. This crate finds those
//! out from an HTTP request, so that nobody gets more by what they write into a header: see [`identity`].
//!
//! The middleware itself, a layer for axum, tonic and hyper, is to come; today the crate holds what it will ask.

pub mod identity;
