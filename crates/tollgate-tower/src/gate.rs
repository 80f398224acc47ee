//! Everything a layer was told, and the decision itself. Knows no service and no response's body.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Extensions, Method, Response, Uri};
use tollgate::{Decision, ForwardedPath, Limiter, PathError, Request, RuleSet};

use super::ask::Ask;
use super::deadline;
use super::decided::{Decided, KeepDecision};
use super::observer::Observer;
use super::peer::{NOWHERE, PeerAddr};
use super::place::Place;
use super::source::PolicySource;
use super::waiting::WaitLimits;
use crate::answer::{Answers, Denial, Dialect};
use crate::identity::Caller;
use crate::policy::{Head, Policy, Refusal, Target};

type PeerFrom = Arc<dyn Fn(&Extensions) -> Option<SocketAddr> + Send + Sync>;
type AskBy = Arc<dyn Fn(&Parts) -> Ask + Send + Sync>;
type CostBy = Arc<dyn Fn(&Parts) -> Option<u64> + Send + Sync>;

#[derive(Clone)]
pub(super) struct Gate {
    pub(super) limiter: Arc<Limiter>,
    /// Whether the limiter never makes anybody wait for its answers.
    pub(super) answers_at_once: bool,
    pub(super) policies: Arc<dyn PolicySource>,
    pub(super) peer: Option<PeerFrom>,
    pub(super) ask: Option<AskBy>,
    pub(super) cost: Option<CostBy>,
    pub(super) answers: Answers,
    pub(super) max_delay: Duration,
    pub(super) wait_limits: Option<WaitLimits>,
    pub(super) charges_preflights: bool,
    /// In which form paths go on, if that is not for the policy to say.
    pub(super) forward: Option<ForwardedPath>,
    pub(super) keeps_decisions: bool,
    pub(super) hands_on_decisions: bool,
    pub(super) observer: Option<Arc<dyn Observer>>,
    /// In which everybody is answered, if it is not their own.
    pub(super) dialect: Option<Dialect>,
}

/// What came of a request.
pub(super) enum Admission {
    /// With the answers of the policy that decided, if it has its own.
    Go(Parts, Decided, Option<Arc<Answers>>),
    Stop(Response<Bytes>),
}

/// What is known of a request once it is decided.
pub(super) enum Settled {
    Go(Decided, Option<Arc<Answers>>),
    Stop(Response<Bytes>),
    /// It has to wait for its turn.
    Queued(Box<Charged>),
}

/// What was taken, and all that is needed to give it back.
pub(super) struct Charged {
    policy: Arc<Policy>,
    who: Who,
    cost: Option<u64>,
    /// The path and query to forward, if they are not those that came.
    forward: Option<PathAndQuery>,
    pub(super) decision: Decision,
}

pub(super) enum Who {
    Found(Caller),
    Told(Ask),
}

impl Gate {
    pub(super) fn new(limiter: Arc<Limiter>, policies: Arc<dyn PolicySource>) -> Self {
        Self {
            // Only memory knows what it holds.
            answers_at_once: limiter.stats().is_some(),
            limiter,
            policies,
            peer: None,
            ask: None,
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

    /// In which form the path of a request goes on.
    fn forward(&self, rules: &RuleSet) -> ForwardedPath {
        self.forward.unwrap_or(rules.paths().forward)
    }

    pub(super) fn passes_unasked(&self, method: &Method, headers: &http::HeaderMap) -> bool {
        !self.charges_preflights
            && *method == Method::OPTIONS
            && headers.contains_key(ORIGIN)
            && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
    }

    /// Gives a path that passes unasked the form in which others go on; or the answer that refuses it, as servers may not disagree about it either.
    pub(super) fn pass_unasked(&self, parts: &mut Parts) -> Option<Response<Bytes>> {
        let policy = self.policies.policy();
        let forward = self.forward(policy.rules());
        let forward = Target::of(policy.rules(), &head(parts), forward)
            .and_then(|target| forwarded(forward, &parts.uri, &target));
        match forward {
            Ok(forward) => {
                set_target(parts, forward);
                None
            }
            Err(refusal) => {
                let dialect = self.dialect_of(parts);
                Some(self.answers.refused(&refusal.detail(), dialect))
            }
        }
    }

    pub(super) async fn decide(&self, parts: &Parts) -> Result<Charged, Refusal> {
        let policy = self.policies.policy();
        // First, as a path that is refused needs no caller.
        let forward = self.forward(policy.rules());
        let target = Target::of(policy.rules(), &head(parts), forward)?;
        let who = self.who(&policy, parts)?;
        let cost = self.cost.as_ref().and_then(|cost| cost(parts));
        let decision = {
            let request = who.asks_for(&target, cost);
            let met = policy.rules().meet(&request);
            let decision = self.limiter.decide_on(&met).await;
            if let Some(observer) = &self.observer {
                observer.decided(&met, &decision);
            }
            decision
        };
        let forward = forwarded(forward, &parts.uri, &target)?;
        drop(target);
        Ok(Charged {
            policy,
            who,
            cost,
            forward,
            decision,
        })
    }

    /// The whole way, up to the service.
    pub(super) async fn admit(self: Arc<Self>, mut parts: Parts) -> Option<Admission> {
        let charged = self.decide(&parts).await;
        match self.settle(&mut parts, charged) {
            Settled::Go(decided, answers) => Some(Admission::Go(parts, decided, answers)),
            Settled::Stop(response) => Some(Admission::Stop(response)),
            Settled::Queued(charged) => self.queue(parts, charged).await,
        }
    }

    /// What comes of a decision, unless the request has to wait for its turn. If it goes, it has the form in which it is to go on.
    pub(super) fn settle(
        self: &Arc<Self>,
        parts: &mut Parts,
        charged: Result<Charged, Refusal>,
    ) -> Settled {
        let dialect = || self.dialect_of(parts);
        let charged = match charged {
            Ok(charged) => charged,
            Err(refusal) => {
                let response = self.answers.refused(&refusal.detail(), dialect());
                return Settled::Stop(response);
            }
        };
        if let Some(denial) = Denial::of(&charged.decision) {
            let denial = denial.asked_with(&parts.headers);
            let dialect = dialect();
            let mut response = self.denied(&charged, &denial, dialect);
            if self.keeps_decision_of(parts) {
                let decided = Decided::new(charged.decision);
                response.extensions_mut().insert(decided);
            }
            return Settled::Stop(response);
        }
        if !charged.decision.delay().is_zero() {
            return Settled::Queued(Box::new(charged));
        }
        let (decided, answers) = charged.go(parts);
        Settled::Go(decided, answers)
    }

    /// Waits for its turn, or says at once that it would be too late. Something comes of everybody who waits.
    pub(super) async fn queue(
        self: Arc<Self>,
        parts: Parts,
        charged: Box<Charged>,
    ) -> Option<Admission> {
        let patience = deadline::patience(&parts.extensions, &parts.headers);
        let patience = patience.map_or(self.max_delay, |told| told.min(self.max_delay));
        let delay = charged.decision.delay();
        let entered = match &self.wait_limits {
            Some(limits) if delay <= patience => Some(limits.enter(charged.who.address())),
            _ => None,
        };
        let is_crowded = matches!(entered, Some(None));
        let patience = if is_crowded { Duration::ZERO } else { patience };
        // Given back if it is dropped.
        let place = Place::take(Arc::clone(&self), parts, charged);
        if delay > patience {
            let (parts, charged) = place.turn_away().await?;
            return self
                .too_late(&parts, *charged, patience)
                .map(Admission::Stop);
        }
        tokio::time::sleep(delay).await;
        drop(entered);
        let (mut parts, charged) = place.leave()?;
        let (decided, answers) = charged.go(&mut parts);
        Some(Admission::Go(parts, decided, answers))
    }

    /// The answer to a request that cannot wait for its turn. What it took was given back.
    fn too_late(
        &self,
        parts: &Parts,
        charged: Charged,
        patience: Duration,
    ) -> Option<Response<Bytes>> {
        if let Some(observer) = &self.observer {
            observer.too_late(&charged.decision);
        }
        let denial = Denial::of_impatient(&charged.decision, patience)?;
        let denial = denial.asked_with(&parts.headers);
        let mut response = self.denied(&charged, &denial, self.dialect_of(parts));
        if self.keeps_decision_of(parts) {
            let decided = Decided::new(charged.decision);
            response.extensions_mut().insert(decided);
        }
        Some(response)
    }

    /// Gives back what was taken, and puts the figures after that into the decision.
    pub(super) async fn turn_away(&self, parts: &Parts, charged: &mut Charged) {
        let rules = charged.policy.rules();
        let Ok(target) = Target::of(rules, &head(parts), self.forward(rules)) else {
            return;
        };
        let request = charged.who.asks_for(&target, charged.cost);
        let met = rules.meet(&request);
        let decision = charged.decision.clone();
        self.limiter.refund_on(&met, decision.clone()).await;
        let found = self.limiter.peek_on(&met).await;
        charged.decision = decision.given_back(&found);
    }

    /// Gives back what was taken, by the rules that took it.
    pub(super) async fn refund(&self, parts: &Parts, charged: Box<Charged>) {
        let rules = charged.policy.rules();
        let Ok(target) = Target::of(rules, &head(parts), self.forward(rules)) else {
            return;
        };
        let request = charged.who.asks_for(&target, charged.cost);
        let met = rules.meet(&request);
        self.limiter.refund_on(&met, charged.decision).await;
    }

    /// Whether the response is to carry the decision.
    pub(super) fn keeps_decision_of(&self, parts: &Parts) -> bool {
        self.keeps_decisions || parts.extensions.get::<KeepDecision>().is_some()
    }

    fn denied(&self, charged: &Charged, denial: &Denial<'_>, dialect: Dialect) -> Response<Bytes> {
        self.answers_by(&charged.policy).denied(denial, dialect)
    }

    /// Those of the policy that decides, or else the layer's.
    pub(super) fn answers_by<'a>(&'a self, policy: &'a Policy) -> &'a Answers {
        policy.answers().map_or(&self.answers, |answers| answers)
    }

    fn dialect_of(&self, parts: &Parts) -> Dialect {
        (self.dialect).unwrap_or_else(|| Dialect::of(&parts.method, &parts.headers))
    }

    fn who(&self, policy: &Policy, parts: &Parts) -> Result<Who, Refusal> {
        let told = self.peer.as_ref().and_then(|peer| peer(&parts.extensions));
        let put = || parts.extensions.get::<PeerAddr>().map(|peer| peer.0);
        let peer = told.or_else(put).map_or(NOWHERE, |peer| peer.ip());
        if let Some(ask) = &self.ask {
            let filled = ask(parts).filled(policy, peer, &parts.headers)?;
            return Ok(Who::Told(filled));
        }
        let caller = (policy.identity()).caller(peer, &parts.headers, policy.clients())?;
        Ok(Who::Found(caller))
    }
}

impl Charged {
    /// What goes along with a request that goes, which gets the form in which it is to go on.
    fn go(self, parts: &mut Parts) -> (Decided, Option<Arc<Answers>>) {
        set_target(parts, self.forward);
        let answers = self.policy.answers().cloned();
        (Decided::new(self.decision), answers)
    }
}

fn set_target(parts: &mut Parts, forward: Option<PathAndQuery>) {
    if let Some(forward) = forward {
        let mut uri = std::mem::take(&mut parts.uri).into_parts();
        uri.path_and_query = Some(forward);
        // The parts of an address that was one, and a path in its place, are one.
        parts.uri = Uri::from_parts(uri).unwrap_or_default();
    }
}

/// The path and query to forward, if they are not those that came.
fn forwarded(
    forward: ForwardedPath,
    uri: &Uri,
    target: &Target<'_>,
) -> Result<Option<PathAndQuery>, Refusal> {
    match forward {
        ForwardedPath::Original => Ok(None),
        ForwardedPath::Normalised => Ok(normal_form(uri, target.path.as_str())?),
    }
}

/// The path in its normal form with the query as it came; `None` if that is what came, or nothing did.
fn normal_form(uri: &Uri, path: &str) -> Result<Option<PathAndQuery>, PathError> {
    if path == uri.path() || uri.path_and_query().is_none() {
        return Ok(None);
    }
    let whole = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let bytes = whole.len();
    // It is made of what may stand in a path, so only its length can be wrong.
    let normal = PathAndQuery::try_from(whole).map_err(|_| PathError::TooLong { bytes })?;
    Ok(Some(normal))
}

impl Who {
    fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Found(caller) => Some(caller.ip()),
            Self::Told(ask) => ask.address(),
        }
    }

    fn asks_for<'r>(&'r self, target: &'r Target<'_>, cost: Option<u64>) -> Request<'r> {
        let caller = match self {
            Self::Found(caller) => caller.request(),
            Self::Told(ask) => ask.request(),
        };
        let request = target.asked_by(caller);
        match cost {
            Some(cost) => request.cost(cost),
            None => request,
        }
    }
}

fn head(parts: &Parts) -> Head<'_> {
    Head {
        method: &parts.method,
        uri: &parts.uri,
        headers: &parts.headers,
    }
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
