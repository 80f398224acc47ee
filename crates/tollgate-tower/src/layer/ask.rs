//! Who asks, in a form that owns what it says: what a closure tells the layer.

use std::net::IpAddr;

use tollgate::{Name, Request};

/// Who asks, and what else rules may want to know. Everything is optional.
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
    /// Nobody in particular.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The caller: an account, a merchant, a user.
    #[must_use]
    pub fn client(mut self, client: impl Into<String>) -> Self {
        self.client = Some(client.into());
        self
    }

    /// The caller's plan.
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

    /// The caller's address.
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
