//! An HTTP request as rules see it.

use std::net::IpAddr;

use http::Method;
use tollgate::{ForwardedPath, Path, Request};

use super::normalized_head::NormalizedHead;
use super::{Head, Policy, Refusal, RequestAttributes};
use crate::identity::Caller;

/// An HTTP request as rules see it: its client, its path in its normal form, and those of its headers that rules look at.
#[derive(Clone, Debug)]
pub struct View<'a> {
    caller: Caller,
    /// What a closure said of it beside whose request it is.
    described: Option<Box<RequestAttributes<'static>>>,
    head: NormalizedHead<'a>,
}

impl<'a> View<'a> {
    pub(super) fn new(
        policy: &Policy,
        head: &Head<'a>,
        peer: IpAddr,
        forward: ForwardedPath,
    ) -> Result<Self, Refusal> {
        // First, because a path that is refused needs no caller.
        let normalized = NormalizedHead::of(policy.rules(), head, forward)?;
        let caller = policy
            .identity()
            .caller(peer, head.headers, policy.clients())?;
        Ok(Self {
            caller,
            described: None,
            head: normalized,
        })
    }

    /// A request that `described` says more about.
    pub(crate) fn described(
        policy: &Policy,
        head: &Head<'a>,
        peer: IpAddr,
        forward: ForwardedPath,
        mut described: Box<RequestAttributes<'static>>,
    ) -> Result<Self, Refusal> {
        let normalized = NormalizedHead::of(policy.rules(), head, forward)?;
        let caller = described.caller(policy, peer, head.headers)?;
        Ok(Self {
            caller,
            described: Some(described),
            head: normalized,
        })
    }

    /// Whose request it is.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) fn into_caller(self) -> Caller {
        self.caller
    }

    /// The path in its normal form, as it is matched.
    #[must_use]
    pub fn path(&self) -> &Path<'a> {
        &self.head.path
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &Method {
        self.head.method
    }

    /// The host, as rules compare it: in lower case and without a port.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.head.host.as_deref()
    }

    /// The same request if this client had made it, by this plan, from the same address.
    pub fn request_by<'r>(&'r self, client: &'r str, plan: Option<&'r str>) -> Request<'r> {
        let caller = Request::new().ip(self.caller.ip()).client(client);
        self.head.sent_by(match plan {
            Some(plan) => caller.plan(plan),
            None => caller,
        })
    }

    /// The request, ready for the engine.
    pub fn request(&self) -> Request<'_> {
        let mut request = self.caller.request();
        if let Some(described) = &self.described {
            if let Some(route) = &described.route {
                request = request.route(route);
            }
            for (name, value) in &described.attributes {
                request = request.attribute(*name, value);
            }
            if let Some(cost) = described.cost {
                request = request.cost(cost);
            }
        }
        self.head.sent_by(request)
    }
}
