//! Envoy's rate limit service (`envoy.service.ratelimit.v3`), and gRPC health checks.
//!
//! A call is one request with several descriptions, its descriptors. Each matches the rules that count by its attributes; all
//! buckets are charged together or not at all, and a bucket that several descriptors match is charged once.
//!
//! Envoy admits a request for which it gets an error, so every call with access gets a decision: if a client or Envoy's configuration
//! makes it impossible to apply a limit, the call is denied ([`CallRefusal`]).
//!
//! Envoy cannot wait: a call that a leaky bucket would delay is refunded and denied, with the delay as the time to retry after.

mod answer;
mod call;
mod descriptor;
#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    missing_docs,
    unreachable_pub,
    rustdoc::all,
    reason = "generated code"
)]
pub mod generated;
mod refusal;

use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use futures_util::FutureExt as _;
use http::{HeaderMap, Response};
use tollgate::{JointDecision, MatchedRules};
use tollgate_config::text::escaped;
use tollgate_tower::answer::Answers;
use tollgate_tower::policy::Policy;
use tonic::Status;
use tonic_health::ServingStatus;

use super::metrics::{Endpoint, Outcome};
use super::{ServiceState, State as Service};
use crate::problem::Problem;
use descriptor::Descriptor;
use generated::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use generated::envoy::service::ratelimit::v3::rate_limit_response::Code;
use generated::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use refusal::{CallRefusal, RefusalLog};

const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
pub(super) const OTHER_PATHS: &str = "/envoy.service.ratelimit.v3.RateLimitService/{*method}";
pub(super) const HEALTH_PATH: &str = "/grpc.health.v1.Health/{*method}";

const MAX_DESCRIPTORS: usize = 64;

#[derive(Debug)]
pub(super) struct Rls {
    config: tollgate_config::Rls,
    log: RefusalLog,
}

impl Rls {
    pub(super) fn new(config: tollgate_config::Rls) -> Self {
        let log = RefusalLog::default();
        Self { config, log }
    }
}

/// Reports that the service is serving, whatever the state of the store: decisions go on without it.
pub(super) fn health()
-> tonic_health::pb::health_server::HealthServer<impl tonic_health::pb::health_server::Health> {
    let (reporter, server) = tonic_health::server::health_reporter();
    // It is not shared yet, so this does not wait.
    let _ = reporter
        .set_service_status(SERVICE, ServingStatus::Serving)
        .now_or_never();
    server
}

/// `ShouldRateLimit`.
pub(super) async fn should_rate_limit(State(state): Service, request: Request) -> Response<Body> {
    let started = Instant::now();
    let (response, outcome) = match answer(&state, request).await {
        Ok((response, outcome)) => (call::response(&response), outcome),
        Err(problem) => {
            state.rls.log.unauthorized();
            (problem.grpc().into_http(), Outcome::Unauthorized)
        }
    };
    state.metrics.count(Endpoint::Rls, outcome);
    state.metrics.took(Endpoint::Rls, started.elapsed());
    response
}

pub(super) async fn unknown_method() -> Response<Body> {
    Status::unimplemented("the only method is ShouldRateLimit").into_http()
}

/// Answers a call. Only one without access gets no decision.
async fn answer(
    state: &ServiceState,
    request: Request,
) -> Result<(RateLimitResponse, Outcome), Problem> {
    let (parts, body) = request.into_parts();
    state.check_access(&parts.headers)?;
    let (request, decided) = match call::read_message::<RateLimitRequest>(body).await {
        Ok(request) => {
            let decided = decide(state, &request, &parts.headers).await;
            (request, decided)
        }
        Err(refusal) => (RateLimitRequest::default(), Err(refusal)),
    };
    Ok(decided.unwrap_or_else(|refusal| {
        state.rls.log.refused(&refusal, || sender(&request));
        (answer::refused(&request, &refusal), refusal.outcome())
    }))
}

async fn decide(
    state: &ServiceState,
    request: &RateLimitRequest,
    headers: &HeaderMap,
) -> Result<(RateLimitResponse, Outcome), CallRefusal> {
    if !is_limited(state, request)? {
        return Ok((answer::for_all(request, Code::Ok), Outcome::Allowed));
    }
    check(request)?;
    let policy = state.decider.policy();
    let descriptors = read_descriptors(state, request, &policy)?;
    let span = state.span("ShouldRateLimit", headers);
    let joint = decide_together(state, &policy, &descriptors).await;
    let joint = joint.ok_or(CallRefusal::TooManyBuckets)?;
    if let Some(mut span) = span {
        span.add_decision(&joint.whole);
    }
    let default = Answers::default();
    let answers = policy.answers().map_or(&default, |answers| answers);
    Ok(answer::decided(&joint, answers))
}

/// Whether the domain of a call is limited.
fn is_limited(state: &ServiceState, request: &RateLimitRequest) -> Result<bool, CallRefusal> {
    let domains = &state.rls.config.domains;
    let mut known = domains.iter().map(String::as_bytes);
    if domains.is_empty() || known.any(|known| known == request.domain) {
        return Ok(true);
    }
    if request.domain.is_empty() {
        return Err(CallRefusal::NoDomain);
    }
    (state.rls.log).foreign_domain(|| shown(&request.domain));
    Ok(false)
}

fn check(request: &RateLimitRequest) -> Result<(), CallRefusal> {
    let descriptors = &request.descriptors;
    if descriptors.is_empty() {
        Err(CallRefusal::NoDescriptors)
    } else if descriptors.len() > MAX_DESCRIPTORS {
        Err(CallRefusal::TooManyDescriptors)
    } else if descriptors.iter().any(|it| it.is_negative_hits) {
        Err(CallRefusal::NegativeHits)
    } else {
        Ok(())
    }
}

fn read_descriptors<'a>(
    state: &ServiceState,
    request: &'a RateLimitRequest,
    policy: &'a Policy,
) -> Result<Vec<Descriptor<'a>>, CallRefusal> {
    let read = |message: &'a RateLimitDescriptor| {
        let mut descriptor = Descriptor::read(message, request.hits_addend, policy)?;
        let is_ignored = match &message.limit {
            Some(limit) if state.rls.config.overrides => {
                let unusable = descriptor.override_by(limit)?;
                if let Some(why) = &unusable {
                    state.rls.log.unusable_override(why);
                }
                unusable.is_some()
            }
            limit => limit.is_some(),
        };
        if is_ignored {
            state.metrics.ignored_overrides.inc();
        }
        Ok(descriptor)
    };
    request.descriptors.iter().map(read).collect()
}

/// Decides about all descriptors, or `None` if they match more buckets than can be charged at once.
async fn decide_together(
    state: &ServiceState,
    policy: &Policy,
    descriptors: &[Descriptor<'_>],
) -> Option<JointDecision> {
    let (started, deadline) = (Instant::now(), state.rls.config.deadline);
    let requests: Vec<tollgate::Request<'_>> = (descriptors.iter())
        .map(|descriptor| descriptor.attributes.request().deadline(deadline))
        .collect();
    let pairs = descriptors.iter().zip(&requests);
    let met: Vec<MatchedRules<'_>> = pairs
        .map(|(descriptor, request)| descriptor.meet(policy, request))
        .collect();
    let joint = state.decider.decide_together(&met).await?;
    if joint.whole.delay().is_zero() {
        return Some(joint);
    }
    let left = deadline.saturating_sub(started.elapsed());
    Some(state.decider.turn_away(&met, joint, left).await)
}

/// The client and address of a request, by its descriptors.
fn sender(request: &RateLimitRequest) -> String {
    let mut known = Vec::new();
    for key in ["client", "remote_address", "ip"] {
        let mut entries = request.descriptors.iter().flat_map(|it| &it.entries);
        if let Some(entry) = entries.find(|entry| entry.key == key.as_bytes()) {
            known.push(format!("{key} {}", shown(&entry.value)));
        }
    }
    if known.is_empty() {
        known.push("unknown".to_owned());
    }
    known.join(", ")
}

/// Bytes from clients, escaped for the log.
fn shown(bytes: &[u8]) -> String {
    let start = bytes.get(..400).unwrap_or(bytes);
    escaped(&String::from_utf8_lossy(start), 80)
}
