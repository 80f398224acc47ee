//! Decides about HTTP requests: what [`TollgateLayer`](crate::TollgateLayer) does for a tower service, for servers that are none.
//!
//! A [`Gate`] is configured as a layer and made by [`TollgateLayer::gate`](crate::TollgateLayer::gate). For each request it takes a
//! [`RequestContext`], which holds what is known of the request on its way.

mod context;
mod deadline;
mod decided;
mod observer;
mod queue;
mod source;
mod waiting;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Extensions, HeaderMap, Method, Response, StatusCode, Uri};
use tollgate::{Decision, ForwardedPath, Limiter, PathError, RuleSet};

use crate::answer::{Answers, Denial, Dialect, failure};
use crate::policy::{Head, Policy, Refusal, RequestAttributes, View};
use queue::Place;

pub use context::RequestContext;
pub use deadline::Deadline;
pub use decided::Decided;
pub use observer::Observer;
pub(crate) use queue::at_once;
pub use source::PolicySource;
pub(crate) use source::{Fixed, HeldRules};
pub use waiting::WaitLimits;

/// How long a denied request waits for its refund, to report the figures after it. It has no turn to wait for, so its response should
/// not be late.
const MAX_REFUND_WAIT: Duration = Duration::from_secs(1);

pub(crate) type PeerFrom = Arc<dyn Fn(&Extensions) -> Option<SocketAddr> + Send + Sync>;
pub(crate) type Describe = Arc<dyn Fn(&Parts) -> RequestAttributes<'static> + Send + Sync>;
pub(crate) type CostBy = Arc<dyn Fn(&Parts) -> Option<u64> + Send + Sync>;

/// Decides about HTTP requests. See the [module](self).
#[derive(Clone)]
pub struct Gate {
    pub(crate) limiter: Arc<Limiter>,
    /// Whether the limiter answers without waiting.
    pub(crate) answers_at_once: bool,
    pub(crate) policies: Arc<dyn PolicySource>,
    pub(crate) peer: Option<PeerFrom>,
    pub(crate) describe: Option<Describe>,
    pub(crate) cost: Option<CostBy>,
    pub(crate) answers: Answers,
    pub(crate) max_delay: Duration,
    pub(crate) wait_limits: Option<WaitLimits>,
    pub(crate) charges_preflights: bool,
    /// In which form paths are forwarded, if not as the policy says.
    pub(crate) forward: Option<ForwardedPath>,
    pub(crate) keeps_decisions: bool,
    pub(crate) hands_on_decisions: bool,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// The dialect of all responses, if it is not the client's own.
    pub(crate) dialect: Option<Dialect>,
}

/// What becomes of a request after its decision.
pub(crate) enum Settled {
    Go,
    Stop(Response<Bytes>),
    /// It has to wait for its turn.
    Queued,
}

impl Gate {
    pub(crate) fn new(limiter: Arc<Limiter>, policies: Arc<dyn PolicySource>) -> Self {
        Self {
            // Only memory knows what it holds.
            answers_at_once: limiter.memory_stats().is_some(),
            limiter,
            policies,
            peer: None,
            describe: None,
            cost: None,
            answers: Answers::default(),
            max_delay: Duration::from_secs(30),
            wait_limits: None,
            charges_preflights: false,
            forward: None,
            keeps_decisions: false,
            hands_on_decisions: true,
            observer: None,
            dialect: None,
        }
    }

    /// Decides about a request, and waits for its turn in a queue. If it is admitted, its target has the form in which it is to be
    /// forwarded.
    ///
    /// If the future is dropped, what the request took in a queue is given back. A decision that a shared store has taken
    /// meanwhile stays charged.
    ///
    /// # Errors
    /// The response to a request that is denied, or that can be read in more than one way.
    pub async fn admit(
        self: &Arc<Self>,
        request: &mut Parts,
        context: &mut RequestContext,
    ) -> Result<(), Response<Bytes>> {
        if self.passes_uncharged(&request.method, &request.headers) {
            return match self.pass_uncharged(request, context) {
                Some(refused) => Err(refused),
                None => Ok(()),
            };
        }
        let decided = self.decide(request, context).await;
        match self.settle(request, context, decided) {
            Settled::Go => Ok(()),
            Settled::Stop(response) => Err(response),
            Settled::Queued => self.queue(request, context).await,
        }
    }

    /// Adds the headers that tell a client its limits to the response of an admitted request.
    pub fn add_headers(&self, context: &RequestContext, headers: &mut HeaderMap) {
        if let Some(decision) = context.decision() {
            self.answers_by(context.policy()).add(decision, headers);
        }
    }

    /// Puts the decision among the response's extensions, if that is wanted.
    pub(crate) fn keep_decision<B>(&self, context: &RequestContext, response: &mut Response<B>) {
        if self.keeps_decisions
            && let Some(decided) = context.decided()
        {
            response.extensions_mut().insert(decided.clone());
        }
    }

    fn refused(&self, refusal: &Refusal, context: &RequestContext) -> Response<Bytes> {
        self.answers.refused(&refusal.detail(), context.dialect())
    }

    /// In which form the path of a request is forwarded.
    fn forward(&self, rules: &RuleSet) -> ForwardedPath {
        self.forward.unwrap_or(rules.paths().forward)
    }

    /// Whether a request is a CORS preflight that is not charged.
    pub(crate) fn passes_uncharged(&self, method: &Method, headers: &HeaderMap) -> bool {
        !self.charges_preflights
            && *method == Method::OPTIONS
            && headers.contains_key(ORIGIN)
            && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
    }

    /// Lets a request pass uncharged; or returns the response that refuses it, because servers may not disagree about its path either.
    pub(crate) fn pass_uncharged(
        &self,
        request: &mut Parts,
        context: &mut RequestContext,
    ) -> Option<Response<Bytes>> {
        context.dialect = self.dialect_of(request);
        context.identify(&request.headers);
        let policy = Arc::clone(context.policy());
        let form = self.forward(policy.rules());
        let path = policy
            .rules()
            .read_path_forwarded(request.uri.path(), form)
            .map_err(Refusal::from);
        let target = path.and_then(|path| {
            context.note_path(&request.uri, path.as_str());
            target_of(form, &request.uri, path.as_str())
        });
        match target {
            Ok(target) => {
                set_target(request, target);
                None
            }
            Err(refusal) => Some(self.refused(&refusal, context)),
        }
    }

    /// Decides about a request. Returns the target to forward, if it is not the one that came.
    pub(crate) async fn decide(
        &self,
        request: &Parts,
        context: &mut RequestContext,
    ) -> Result<Option<PathAndQuery>, Refusal> {
        context.dialect = self.dialect_of(request);
        let policy = Arc::clone(context.policy());
        let form = self.forward(policy.rules());
        let head = Head::from(request);
        let view = match &self.describe {
            None => policy.view_forwarded(&head, context.peer(), form)?,
            Some(describe) => {
                let described = Box::new(describe(request));
                View::described(&policy, &head, context.peer(), form, described)?
            }
        };
        let decision = {
            let seen = match self.cost.as_ref().and_then(|cost| cost(request)) {
                Some(cost) => view.request().cost(cost),
                None => view.request(),
            };
            let matched = policy.rules().matching(&seen);
            let check = self.limiter.matched(&matched);
            let decision = check.decide().await;
            if !decision.delay().is_zero() {
                context.queued = Some(Arc::new(check.into_owned()));
            }
            if let Some(observer) = &self.observer {
                observer.decided(&matched, &decision);
            }
            if context.keeps_route {
                context.route = matched.route().map(Into::into);
            }
            decision
        };
        context.note_path(&request.uri, view.path().as_str());
        let target = target_of(form, &request.uri, view.path().as_str());
        context.caller = Some(view.into_caller());
        context.decision = Some(Decided::new(decision));
        target
    }

    /// What becomes of a request after its decision.
    pub(crate) fn settle(
        &self,
        request: &mut Parts,
        context: &mut RequestContext,
        decided: Result<Option<PathAndQuery>, Refusal>,
    ) -> Settled {
        let target = match decided {
            Ok(target) => target,
            Err(refusal) => {
                match &refusal {
                    Refusal::Identity(error) => context.address = error.address(),
                    _ => context.identify(&request.headers),
                }
                return Settled::Stop(self.refused(&refusal, context));
            }
        };
        let Some(decision) = context.decision() else {
            return Settled::Go;
        };
        if let Some(denial) = Denial::of(decision) {
            return Settled::Stop(self.denied(&denial, request, context));
        }
        let waits = !decision.delay().is_zero();
        set_target(request, target);
        match waits {
            true => Settled::Queued,
            false => Settled::Go,
        }
    }

    /// Waits for a request's turn, or rejects it at once if that would be too late.
    pub(crate) async fn queue(
        self: &Arc<Self>,
        request: &Parts,
        context: &mut RequestContext,
    ) -> Result<(), Response<Bytes>> {
        let delay = context.decision().map(Decision::delay).unwrap_or_default();
        let told = deadline::patience(&request.extensions, &request.headers);
        let patience = told.map_or(self.max_delay, |told| told.min(self.max_delay));
        let waiting = match &self.wait_limits {
            Some(limits) if delay <= patience => Some(limits.enter(Some(context.address()))),
            _ => None,
        };
        let patience = match waiting {
            Some(None) => Duration::ZERO,
            _ => patience,
        };
        let Some((check, decision)) = context.queued.take().zip(context.decision()) else {
            return Ok(());
        };
        // What was charged is refunded if this future is dropped.
        let place = Place::take(Arc::clone(self), check, decision.clone());
        if delay > patience {
            let within = told.map_or(MAX_REFUND_WAIT, |told| told.min(MAX_REFUND_WAIT));
            if let Some(refunded) = place.turn_away(within).await {
                context.decision = Some(Decided::new(refunded));
            }
            return Err(self.too_late(request, context, patience));
        }
        tokio::time::sleep(delay).await;
        drop(waiting);
        place.leave();
        Ok(())
    }

    /// The response to a request that cannot wait for its turn. What it was charged is refunded.
    fn too_late(
        &self,
        request: &Parts,
        context: &RequestContext,
        patience: Duration,
    ) -> Response<Bytes> {
        let denial = context.decision().and_then(|decision| {
            if let Some(observer) = &self.observer {
                observer.too_late(decision);
            }
            Denial::of_delay(decision, patience)
        });
        match denial {
            Some(denial) => self.denied(&denial, request, context),
            // Never: its delay is longer than its patience.
            None => failure(StatusCode::TOO_MANY_REQUESTS, "", context.dialect()),
        }
    }

    fn denied(
        &self,
        denial: &Denial<'_>,
        request: &Parts,
        context: &RequestContext,
    ) -> Response<Bytes> {
        let denial = denial.with_request_headers(&request.headers);
        self.answers_by(context.policy())
            .denied(&denial, context.dialect())
    }

    /// The answers of the policy, or else the layer's.
    fn answers_by<'a>(&'a self, policy: &'a Policy) -> &'a Answers {
        policy.answers().map_or(&self.answers, |answers| answers)
    }

    fn dialect_of(&self, request: &Parts) -> Dialect {
        (self.dialect).unwrap_or_else(|| Dialect::of(&request.method, &request.headers))
    }
}

fn set_target(request: &mut Parts, target: Option<PathAndQuery>) {
    if let Some(target) = target {
        let mut uri = std::mem::take(&mut request.uri).into_parts();
        uri.path_and_query = Some(target);
        // The parts of a URI with another path are a URI.
        request.uri = Uri::from_parts(uri).unwrap_or_default();
    }
}

/// The target to forward, if it is not the one that came.
fn target_of(form: ForwardedPath, uri: &Uri, path: &str) -> Result<Option<PathAndQuery>, Refusal> {
    if form == ForwardedPath::Original || path == uri.path() || uri.path_and_query().is_none() {
        return Ok(None);
    }
    let target = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let bytes = target.len();
    // A normal form is a valid path, so only its length can be wrong.
    let target = PathAndQuery::try_from(target).map_err(|_| PathError::TooLong { bytes })?;
    Ok(Some(target))
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("answers", &self.answers)
            .field("max_delay", &self.max_delay)
            .field("charges_preflights", &self.charges_preflights)
            .finish_non_exhaustive()
    }
}
