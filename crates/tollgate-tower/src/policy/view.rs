//! A request as a policy sees it.

use std::net::IpAddr;

use http::Method;
use tollgate::{ForwardedPath, Path, Request};

use super::target::Target;
use super::{Head, Policy, Refusal};
use crate::identity::Caller;

/// A request, seen once: who calls, its path in its normal form, and those of its headers that rules look at.
#[derive(Clone, Debug)]
pub struct View<'a> {
    caller: Caller,
    target: Target<'a>,
}

impl<'a> View<'a> {
    pub(super) fn new(
        policy: &Policy,
        head: &Head<'a>,
        peer: IpAddr,
        forward: ForwardedPath,
    ) -> Result<Self, Refusal> {
        // First, as a path that is refused needs no caller.
        let target = Target::of(policy.rules(), head, forward)?;
        let caller = policy
            .identity()
            .caller(peer, head.headers, policy.clients())?;
        Ok(Self { caller, target })
    }

    /// Who calls.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The path in its normal form, as it is matched.
    #[must_use]
    pub fn path(&self) -> &Path<'a> {
        &self.target.path
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &Method {
        self.target.method
    }

    /// The host, as rules compare it: in small letters and without a port.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.target.host.as_deref()
    }

    /// The same request if this client had made it, by this plan, from the same address: for who explains what would become of it.
    #[must_use]
    pub fn request_by<'r>(&'r self, client: &'r str, plan: Option<&'r str>) -> Request<'r> {
        let caller = Request::new().ip(self.caller.ip()).client(client);
        self.target.asked_by(match plan {
            Some(plan) => caller.plan(plan),
            None => caller,
        })
    }

    /// The request, ready for the engine.
    #[must_use]
    pub fn request(&self) -> Request<'_> {
        self.target.asked_by(self.caller.request())
    }
}
