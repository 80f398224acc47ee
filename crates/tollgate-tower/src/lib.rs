//! # Tollgate for HTTP
//!
//! The engine ([`tollgate`]) counts by client, address, plan and endpoint, and believes what it is told. This crate finds those
//! out from an HTTP request, so that nobody gets more by what they write into it: [`identity`] says who is calling, and
//! [`policy`] sees a whole request as rules do.
//!
//! The middleware itself, a layer for axum, tonic and hyper, is to come; today the crate holds what it will ask.

pub mod identity;
pub mod policy;
