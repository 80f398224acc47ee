//! Who asks, in a form that owns what it says: what a closure tells the layer, and what the layer fills in.

use std::borrow::Cow;
use std::net::IpAddr;

use http::HeaderMap;
use tollgate::{Name, Request};

use crate::identity::HeaderError;
use crate::policy::Policy;

/// Who asks, and what else rules may want to know. Everything is optional: client, plan and address that are left out are found by the
/// policy's [identity](crate::identity), by the peer's address and the headers, as without a closure.
///
/// ```
/// use tollgate_tower::layer::Ask;
///
/// let ask = Ask::new().client("merchant_123").plan("enterprise").cost(10);
/// # let _ = ask;
/// ```
#[derive(Clone, Debug, Default)]
pub struct Ask {
    client: Option<String>,
    plan: Option<String>,
    route: Option<String>,
    ip: Option<IpAddr>,
    attributes: Vec<(Name, String)>,
    cost: Option<u64>,
}

impl Ask {
    /// Nobody but whom the identity finds.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The client: an account, a merchant, a user. It is counted under the name that the policy [gives it](Policy::client_name), as at a
    /// gateway: if clients come from `X-User-Id`, then `42`, unless it is a known client, is `x-user-id:42`, and so is `x-user-id:42`.
    #[must_use]
    pub fn client(mut self, client: impl Into<String>) -> Self {
        self.client = Some(client.into());
        self
    }

    /// The caller's plan. If it is left out, it is that of the known client, or what a trusted proxy says.
    #[must_use]
    pub fn plan(mut self, plan: impl Into<String>) -> Self {
        self.plan = Some(plan.into());
        self
    }

    /// The endpoint, as a pattern (axum's `MatchedPath`). If it is not said, the rules find it by the path.
    #[must_use]
    pub fn route(mut self, route: impl Into<String>) -> Self {
        self.route = Some(route.into());
        self
    }

    /// The caller's address, in place of the one that the peer and trusted proxies say. It is counted as theirs is: IPv6 by network.
    #[must_use]
    pub fn ip(mut self, ip: IpAddr) -> Self {
        self.ip = Some(ip);
        self
    }

    /// Any other thing a rule may count by.
    #[must_use]
    pub fn attribute(mut self, name: Name, value: impl Into<String>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    /// What it costs, whatever the rules say. 0 looks without charging.
    #[must_use]
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }

    /// The same with the client by its name and with what was left out. The identity's headers are judged only if the client is left out, as nothing else depends on them.
    pub(super) fn filled(
        mut self,
        policy: &Policy,
        peer: IpAddr,
        headers: &HeaderMap,
    ) -> Result<Self, HeaderError> {
        let identity = policy.identity();
        if let Some(ip) = self.ip {
            self.ip = Some(identity.caller_by_address(ip, &HeaderMap::new()).ip());
        }
        let Some(client) = &mut self.client else {
            let caller = identity.caller(peer, headers, policy.clients())?;
            self.client = caller.client().map(str::to_owned);
            self.plan = self.plan.or_else(|| caller.plan().map(str::to_owned));
            self.ip = self.ip.or(Some(caller.ip()));
            return Ok(self);
        };
        if let Cow::Owned(name) = policy.client_name(client) {
            *client = name;
        }
        if self.plan.is_none() {
            self.plan = match policy.clients().plan_of(client) {
                Some(plan) => Some(plan.to_owned()),
                None => identity.claimed_plan(peer, headers)?,
            };
        }
        if self.ip.is_none() {
            self.ip = Some(identity.caller_by_address(peer, headers).ip());
        }
        Ok(self)
    }

    pub(super) fn address(&self) -> Option<IpAddr> {
        self.ip
    }

    pub(super) fn request(&self) -> Request<'_> {
        let mut request = Request::new();
        if let Some(client) = &self.client {
            request = request.client(client);
        }
        if let Some(plan) = &self.plan {
            request = request.plan(plan);
        }
        if let Some(route) = &self.route {
            request = request.route(route);
        }
        if let Some(ip) = self.ip {
            request = request.ip(ip);
        }
        for (name, value) in &self.attributes {
            request = request.attribute(*name, value);
        }
        if let Some(cost) = self.cost {
            request = request.cost(cost);
        }
        request
    }
}
