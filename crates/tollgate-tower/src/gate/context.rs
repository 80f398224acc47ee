//! What is known of a request on its way.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, Uri};
use tollgate::{Decision, OwnedCheck};

use super::decided::Decided;
use crate::answer::Dialect;
use crate::identity::Caller;
use crate::policy::Policy;

/// What is known of one request: created when it arrives, passed on, and filled on the way. So its client is found once, and its
/// rules are matched once.
#[derive(Clone, Debug)]
pub struct RequestContext {
    peer: IpAddr,
    pub(super) address: IpAddr,
    policy: Arc<Policy>,
    pub(super) dialect: Dialect,
    pub(super) caller: Option<Caller>,
    /// What was charged to a request that has to wait in a queue.
    pub(super) queued: Option<Arc<OwnedCheck>>,
    /// The normal form of the path, if the request has another.
    pub(super) path: Option<Box<str>>,
    pub(super) keeps_route: bool,
    pub(super) route: Option<Box<str>>,
    pub(super) decision: Option<Decided>,
}

impl RequestContext {
    /// The context of a request that came over a connection from `peer`. Everything about it is decided by this policy, whatever
    /// comes into force meanwhile.
    #[must_use]
    pub fn new(peer: IpAddr, policy: Arc<Policy>) -> Self {
        Self {
            peer,
            address: peer,
            policy,
            dialect: Dialect::Http,
            caller: None,
            queued: None,
            path: None,
            keeps_route: false,
            route: None,
            decision: None,
        }
    }

    /// The other end of the connection.
    #[must_use]
    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// The policy that decides about the request.
    #[must_use]
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The client's address: that of the peer until it is known better.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.caller.as_ref().map_or(self.address, Caller::ip)
    }

    /// Identifies the client of a request that no rule decides about: one that is rejected before, or passes uncharged. If the identity
    /// itself is refused, only the address is known.
    pub fn identify(&mut self, headers: &HeaderMap) {
        let (identity, clients) = (self.policy.identity(), self.policy.clients());
        match identity.caller(self.peer, headers, clients) {
            Ok(caller) => self.caller = Some(caller),
            Err(error) => self.address = error.address(),
        }
    }

    /// The client, once it is known. `None` as well if no source of the identity yields one.
    #[must_use]
    pub fn client(&self) -> Option<&str> {
        self.caller.as_ref()?.client()
    }

    /// What the client understands.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The normal form of the path, by which rules match it; `None` if the path is in its normal form.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Notes the normal form of the path, if the request has another.
    pub(super) fn note_path(&mut self, uri: &Uri, normal: &str) {
        if uri.path() != normal {
            self.path = Some(normal.into());
        }
    }

    /// Keeps the [route](Self::route), which costs an allocation.
    pub fn keep_route(&mut self) {
        self.keeps_route = true;
    }

    /// The pattern that the path matches, if it is [kept](Self::keep_route) and a rule, cost or route has one.
    #[must_use]
    pub fn route(&self) -> Option<&str> {
        self.route.as_deref()
    }

    pub(crate) fn decided(&self) -> Option<&Decided> {
        self.decision.as_ref()
    }

    /// The decision, once there is one. A request that passes uncharged has none.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        self.decision.as_deref()
    }
}
