//! The answer: who calls. Holds no secret, so it may be shown.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use tollgate::Request;

/// Who calls, from where, and by which plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub(crate) client: Option<String>,
    pub(crate) ip: IpAddr,
    pub(crate) plan: Option<Arc<str>>,
    pub(crate) how: IdentifiedBy,
}

impl Caller {
    /// The client's name: the id of a known client, or a name that no known client can have.
    ///
    /// | name | who |
    /// |---|---|
    /// | `merchant_123` | a known client |
    /// | `x-user-id:42` | whom a header names, and nobody knows |
    /// | `ip:203.0.113.7`, `ip:2001:db8::/64` | whoever calls from there |
    ///
    /// `None` if no source yields one, which can be only where `ip` is not among them.
    #[must_use]
    pub fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    /// The address in the form in which it is counted: IPv6 without the bits behind the prefix.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// The plan of the known client, or else the one a trusted proxy names.
    #[must_use]
    pub fn plan(&self) -> Option<&str> {
        self.plan.as_deref()
    }

    /// By what the client is known.
    #[must_use]
    pub fn identified_by(&self) -> IdentifiedBy {
        self.how
    }

    /// A request of this caller: its client, address and plan. What it asks for is to be added.
    ///
    /// ```
    /// # use tollgate_tower::identity::{Clients, Identity, IdentityConfig};
    /// # let identity = Identity::new(IdentityConfig::default())?;
    /// # let headers = http::HeaderMap::new();
    /// let caller = identity.caller([203, 0, 113, 7].into(), &headers, &Clients::default())?;
    /// let request = caller.request().method("GET").route("/v1/charges/{id}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn request(&self) -> Request<'_> {
        let mut request = Request::new().ip(self.ip);
        if let Some(client) = self.client() {
            request = request.client(client);
        }
        if let Some(plan) = self.plan() {
            request = request.plan(plan);
        }
        request
    }
}

/// By what a client is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IdentifiedBy {
    /// Its API key.
    ApiKey,
    /// A header with the id of a known client.
    KnownId,
    /// A header with an id that is not known.
    UnknownId,
    /// Its address.
    Address,
    /// The program itself: a closure of the layer.
    Program,
    /// Nothing: it has no name.
    Nothing,
}

impl fmt::Display for IdentifiedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ApiKey => "by its API key",
            Self::KnownId => "by the id of a known client in a header",
            Self::UnknownId => "by an id in a header",
            Self::Address => "by its address",
            Self::Program => "by what the program says",
            Self::Nothing => "by nothing",
        })
    }
}
