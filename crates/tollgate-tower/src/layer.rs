//! Middleware: a [`TollgateLayer`] for axum, tonic, hyper and whatever else is a tower service.
//!
//! ```
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::net::SocketAddr;
//! use axum::{Router, extract::ConnectInfo, routing::get};
//! use tollgate::{Dimension, Limiter, Rule};
//! use tollgate_tower::TollgateLayer;
//!
//! let rule = Rule::new("client", "10/s burst 50".parse()?)?.per([Dimension::Client]);
//! let limiter = Limiter::in_memory().with_rules([rule])?;
//! let layer = TollgateLayer::new(limiter)
//!     .peer_from(|extensions| extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0));
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
//! // axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())
//! # Ok(())
//! # }
//! # example().unwrap();
//! ```
//!
//! ## The walk of a request
//! 1. A CORS preflight passes uncharged: browsers send it by themselves and without credentials, so it would count for the wrong
//!    caller; and show its denial as a CORS error, which tells nobody anything ([`TollgateLayer::charge_preflights`]). Only its path is looked at, as below.
//! 2. The current [`Policy`] is taken, one snapshot for the whole request. A path that servers may read in ways that meet different
//!    rules ([`RuleSet::read_path`](tollgate::RuleSet::read_path)), or an identity header that can be read in more than one way, is answered
//!    with 400. The path goes on as it came, or in its normal form if [`PathRules::forward`](tollgate::PathRules::forward) says so.
//! 3. Who calls? The policy's [`identity`](crate::identity) says so by the peer's address and the headers; or a
//!    [closure](TollgateLayer::request) of yours does, as far as it likes.
//! 4. The limiter decides. A denial is answered at once; see [`answer`](crate::answer).
//! 5. What a leaky bucket let in waits for its turn, if it can: see below.
//! 6. The service runs. It finds the decision among the request's extensions, as [`Decided`].
//! 7. The decision's fields are added to the response.
//!
//! ## The peer's address
//! A layer sees requests and not connections, so somebody must tell: [`TollgateLayer::peer_from`] reads it from what your server puts
//! among the request's extensions (axum's `ConnectInfo<SocketAddr>`, tonic's `TcpConnectInfo`), or you put a [`PeerAddr`] there. Who
//! has no address is counted as `0.0.0.0`, all together: a mistake here makes limits too strict, and never lets anybody slip through.
//!
//! ## Waiting
//! A leaky bucket lets requests in and spaces them out. Their wait is bounded by [`TollgateLayer::max_delay`], and by the time the caller
//! has: a [`Deadline`] among the request's extensions, or `grpc-timeout`. One that cannot make it in time is rejected at once, and what it
//! took is given back; its response waits for that for at most a second, and never beyond the deadline. So is one that finds too many
//! waiting already ([`TollgateLayer::wait_limits`]). If a caller goes away while it waits, which drops the future, its place is given back too.
//!
//! Waiting needs a tokio runtime with its timer. Giving back to a store that is shared needs the runtime as well, as it happens in a
//! task of its own; in memory it is done on the spot. While a request waits, the service behind stays reserved for it: put limits on
//! concurrency in front of this layer, not behind it.
//!
//! ## Several layers
//! Layers may stand in front of each other, one for everything and others for single routes. Each charges by its own rules, the fields
//! are merged so that the strictest is seen, and a handler finds the [`Decided`] of the layer next to it.

mod body;
mod future;
mod peer_addr;
mod service;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Extensions, Response};
use tollgate::{ForwardedPath, Limiter};
use tower_layer::Layer;

pub use body::TollgateBody;
pub use future::ResponseFuture;
pub use peer_addr::PeerAddr;
pub use service::TollgateService;

pub use crate::gate::{Deadline, Decided, Observer, PolicySource, WaitLimits};

use crate::answer::{Answers, Denial, Dialect, HeaderFamilies};
use crate::gate::{Fixed, Gate, HeldRules};
use crate::identity::{Clients, Identity};
use crate::policy::{Policy, RequestAttributes};

/// Limits whatever service it is put in front of. See the [module](self).
#[derive(Clone)]
pub struct TollgateLayer {
    gate: Gate,
}

impl TollgateLayer {
    /// Decides with this limiter and by its rules, which may change at any time; callers are known by their addresses.
    #[must_use]
    pub fn new(limiter: impl Into<Arc<Limiter>>) -> Self {
        let limiter = limiter.into();
        let rules = HeldRules::new(
            Arc::clone(&limiter),
            Identity::default(),
            Clients::default(),
        );
        Self {
            gate: Gate::new(limiter, Arc::new(rules)),
        }
    }

    /// Finds callers like this, and goes on by the limiter's rules.
    #[must_use]
    pub fn identity(mut self, identity: Identity, clients: Clients) -> Self {
        let limiter = Arc::clone(&self.gate.limiter);
        self.gate.policies = Arc::new(HeldRules::new(limiter, identity, clients));
        self
    }

    /// Decides by this policy, whatever rules the limiter has.
    #[must_use]
    pub fn policy(mut self, policy: impl Into<Arc<Policy>>) -> Self {
        self.gate.policies = Arc::new(Fixed(policy.into()));
        self
    }

    /// Decides by the policy that this has at the time: for who swaps policies.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use arc_swap::ArcSwap;
    /// # use tollgate::Limiter;
    /// # use tollgate_tower::{TollgateLayer, policy::Policy};
    /// # fn example(policy: Policy) {
    /// let current = Arc::new(ArcSwap::from_pointee(policy));
    /// let swapped = Arc::clone(&current);
    /// let layer = TollgateLayer::new(Limiter::in_memory()).policy_source(move || swapped.load_full());
    /// # }
    /// ```
    #[must_use]
    pub fn policy_source(mut self, source: impl PolicySource + 'static) -> Self {
        self.gate.policies = Arc::new(source);
        self
    }

    /// Reads the peer's address from what the server puts among a request's extensions. If that yields none, a [`PeerAddr`] there
    /// counts.
    #[must_use]
    pub fn peer_from(
        mut self,
        peer: impl Fn(&Extensions) -> Option<SocketAddr> + Send + Sync + 'static,
    ) -> Self {
        self.gate.peer = Some(Arc::new(peer));
        self
    }

    /// Says who asks by a closure. What it leaves out of client, plan and address is found as without it, by the
    /// [peer](Self::peer_from) and the policy's identity, and the client has the [name](Policy::client_name) that the policy gives it. Method, host, path and headers are added by the layer.
    ///
    /// ```
    /// use tollgate::Limiter;
    /// use tollgate_tower::{TollgateLayer, policy::RequestAttributes};
    ///
    /// /// What a layer in front of this one has found out.
    /// #[derive(Clone)]
    /// struct User { id: String, plan: String }
    ///
    /// let layer = TollgateLayer::new(Limiter::in_memory()).request(|parts| {
    ///     match parts.extensions.get::<User>() {
    ///         Some(user) => RequestAttributes::new()
    ///             .client(user.id.clone())
    ///             .plan(user.plan.clone()),
    ///         // By its address.
    ///         None => RequestAttributes::new(),
    ///     }
    /// });
    /// ```
    #[must_use]
    pub fn request(
        mut self,
        describe: impl Fn(&Parts) -> RequestAttributes<'static> + Send + Sync + 'static,
    ) -> Self {
        self.gate.describe = Some(Arc::new(describe));
        self
    }

    /// What a request costs; on `None`, what the rules say. 0 looks without charging.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Parts) -> Option<u64> + Send + Sync + 'static) -> Self {
        self.gate.cost = Some(Arc::new(cost));
        self
    }

    /// Which fields tell callers about their limits. Both families by default.
    #[must_use]
    pub fn headers(mut self, families: HeaderFamilies) -> Self {
        self.gate.answers.families = families;
        self
    }

    /// Whether callers see what shadow rules say, in `X-RateLimit-Shadow`. Not by default; handlers always do, in [`Decided`].
    #[must_use]
    pub fn show_shadows(mut self, show: bool) -> Self {
        self.gate.answers.shadows = show;
        self
    }

    /// Answers denials with a response of one's own: see [`Answers::with`].
    ///
    /// ```
    /// use http::Response;
    /// use tollgate::Limiter;
    /// use tollgate_tower::TollgateLayer;
    ///
    /// let layer = TollgateLayer::new(Limiter::in_memory()).answer_with(|denial| {
    ///     let mut response = Response::new("slow down, please".into());
    ///     *response.status_mut() = denial.status();
    ///     response
    /// });
    /// ```
    #[must_use]
    pub fn answer_with(
        mut self,
        own: impl Fn(&Denial<'_>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.gate.answers = self.gate.answers.with(own);
        self
    }

    /// All about answers at once.
    #[must_use]
    pub fn answers(mut self, answers: Answers) -> Self {
        self.gate.answers = answers;
        self
    }

    /// How long a leaky bucket may make a request wait; 30 seconds by default, about what those in front of a server have patience for.
    /// What would wait longer is rejected at once.
    #[must_use]
    pub fn max_delay(mut self, max_delay: Duration) -> Self {
        self.gate.max_delay = max_delay;
        self
    }

    /// Bounds how many requests wait in queues at a time. Not by default. What comes beyond that is rejected at once, as if its
    /// turn were too late.
    #[must_use]
    pub fn wait_limits(mut self, limits: WaitLimits) -> Self {
        self.gate.wait_limits = Some(limits);
        self
    }

    /// Answers everybody in this dialect, whatever they asked in: for who asks about the requests of others. A denial in the words of gRPC
    /// is a 200, which such a one would take for a yes.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.gate.dialect = Some(dialect);
        self
    }

    /// In which form paths go on, whatever the policy says: for who asks about the requests of others, which forward what came.
    #[must_use]
    pub fn forwarded(mut self, forward: ForwardedPath) -> Self {
        self.gate.forward = Some(forward);
        self
    }

    /// Whether a response carries its decision among its extensions, as [`Decided`], denials included: for who logs in front of this
    /// layer. Not by default, as it costs a little.
    #[must_use]
    pub fn keep_decisions(mut self, keep: bool) -> Self {
        self.gate.keeps_decisions = keep;
        self
    }

    /// Whether the service finds the decision among the request's extensions, as [`Decided`]. It does by default; who forwards requests to others
    /// has no use for it.
    #[must_use]
    pub fn hand_on_decisions(mut self, hand_on: bool) -> Self {
        self.gate.hands_on_decisions = hand_on;
        self
    }

    /// Tells this of every decision.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.gate.observer = Some(Arc::new(observer));
        self
    }

    /// Whether CORS preflights (`OPTIONS` with `Origin` and `Access-Control-Request-Method`) are charged like all else. Not by default: then anybody
    /// may send any number of them, so whoever answers them behind this layer should do so cheaply.
    #[must_use]
    pub fn charge_preflights(mut self, charge: bool) -> Self {
        self.gate.charges_preflights = charge;
        self
    }
}

impl TollgateLayer {
    /// What decides, for servers that are no tower services.
    #[must_use]
    pub fn gate(&self) -> Arc<Gate> {
        Arc::new(self.gate.clone())
    }
}

impl<S> Layer<S> for TollgateLayer {
    type Service = TollgateService<S>;

    fn layer(&self, inner: S) -> TollgateService<S> {
        TollgateService::new(Arc::new(self.gate.clone()), inner)
    }
}

impl fmt::Debug for TollgateLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TollgateLayer")
            .field("gate", &self.gate)
            .finish()
    }
}
