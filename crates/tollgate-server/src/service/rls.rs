//! Envoy's rate limit service (`envoy.service.ratelimit.v3`), and the health that gRPC callers ask for.
//!
//! One call is one request of somebody, seen from several sides, its descriptors. Each meets the rules that count by what it says; all
//! buckets are taken from together or not at all, and a bucket that several descriptors meet is charged once.
//!
//! Envoy admits a request for which it gets an error, so every call gets a decision but for one without the token: what a client or
//! Envoy's configuration makes of it, it is denied if no limit can be asked ([`Refusal`]).
//!
//! Envoy cannot wait: what a leaky bucket would delay is denied, with its place given back and the delay as the wait.

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
    reason = "made by a tool"
)]
pub mod generated;
mod refusal;

use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use futures_util::FutureExt as _;
use http::{HeaderMap, Response};
use tollgate::{Joint, Met};
use tollgate_tower::answer::Answers;
use tollgate_tower::policy::Policy;
use tonic::Status;
use tonic_health::ServingStatus;

use super::metrics::{Endpoint, Outcome};
use super::problem::Problem;
use super::{Service, Shared};
use descriptor::Descriptor;
use generated::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use generated::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use refusal::{Refusal, RefusalLog};
use tollgate_config::text::escaped;

const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
pub(super) const OTHER_PATHS: &str = "/envoy.service.ratelimit.v3.RateLimitService/{*method}";
pub(super) const HEALTH_PATH: &str = "/grpc.health.v1.Health/{*method}";

/// Most descriptors of one call.
const MAX_DESCRIPTORS: usize = 64;

/// What answers Envoys.
#[derive(Debug)]
pub(super) struct Rls {
    config: tollgate_config::Rls,
    log: RefusalLog,
}

impl Rls {
    pub(super) fn new(config: tollgate_config::Rls) -> Self {
        Self {
            config,
            log: RefusalLog::default(),
        }
    }
}

/// Says that we serve, which we do whatever the store does: decisions go on without it.
pub(super) fn health()
-> tonic_health::pb::health_server::HealthServer<impl tonic_health::pb::health_server::Health> {
    let (reporter, server) = tonic_health::server::health_reporter();
    // Nobody else has it yet, so this is done at once.
    let _ = reporter
        .set_service_status(SERVICE, ServingStatus::Serving)
        .now_or_never();
    server
}

/// `ShouldRateLimit`.
pub(super) async fn should_rate_limit(State(shared): Service, request: Request) -> Response<Body> {
    let started = Instant::now();
    let (response, outcome) = match answer(&shared, request).await {
        Ok((response, outcome)) => (call::response(&response), outcome),
        Err(problem) => {
            shared.rls.log.unauthorised();
            (problem.grpc().into_http(), Outcome::Unauthorised)
        }
    };
    shared.metrics.count(Endpoint::Rls, outcome);
    shared.metrics.took(Endpoint::Rls, started.elapsed());
    response
}

/// Any other method.
pub(super) async fn unknown_method() -> Response<Body> {
    Status::unimplemented("the only method is ShouldRateLimit").into_http()
}

/// Only who lacks the token gets no decision.
async fn answer(
    shared: &Shared,
    request: Request,
) -> Result<(RateLimitResponse, Outcome), Problem> {
    let (parts, body) = request.into_parts();
    shared.admit(&parts.headers)?;
    let (asked, decided) = match call::message::<RateLimitRequest>(body).await {
        Ok(asked) => {
            let decided = decide(shared, &asked, &parts.headers).await;
            (asked, decided)
        }
        Err(why) => (RateLimitRequest::default(), Err(Refusal::Unreadable(why))),
    };
    Ok(decided.unwrap_or_else(|refusal| {
        shared.rls.log.refused(&refusal, || sender(&asked));
        (answer::refused(&asked, &refusal), refusal.outcome())
    }))
}

async fn decide(
    shared: &Shared,
    asked: &RateLimitRequest,
    headers: &HeaderMap,
) -> Result<(RateLimitResponse, Outcome), Refusal> {
    if !is_limited(shared, asked)? {
        return Ok((answer::unlimited(asked), Outcome::Allowed));
    }
    check(asked)?;
    let policy = shared.decider.policy();
    let descriptors = descriptors(shared, asked, &policy)?;
    let span = shared.span("ShouldRateLimit", headers);
    let joint = decide_together(shared, &policy, &descriptors).await;
    let joint = joint.ok_or(Refusal::TooManyBuckets)?;
    if let Some(mut span) = span {
        span.add_decision(&joint.whole);
    }
    let usual = Answers::default();
    let answers = policy.answers().map_or(&usual, |answers| answers);
    Ok(answer::of(&joint, answers))
}

/// Whether its domain is one of those that are limited.
fn is_limited(shared: &Shared, asked: &RateLimitRequest) -> Result<bool, Refusal> {
    let domains = &shared.rls.config.domains;
    if domains.is_empty() || domains.iter().any(|known| known.as_bytes() == asked.domain) {
        return Ok(true);
    }
    if asked.domain.is_empty() {
        return Err(Refusal::NoDomain);
    }
    (shared.rls.log).foreign_domain(|| shown(&asked.domain));
    Ok(false)
}

fn check(asked: &RateLimitRequest) -> Result<(), Refusal> {
    if asked.descriptors.is_empty() {
        Err(Refusal::NoDescriptors)
    } else if asked.descriptors.len() > MAX_DESCRIPTORS {
        Err(Refusal::TooManyDescriptors)
    } else if asked.descriptors.iter().any(|said| said.is_negative_hits) {
        // A refund has to say which charge it is for, and this protocol has no words for that.
        Err(Refusal::NegativeHits)
    } else {
        Ok(())
    }
}

fn descriptors<'a>(
    shared: &Shared,
    asked: &'a RateLimitRequest,
    policy: &'a Policy,
) -> Result<Vec<Descriptor<'a>>, Refusal> {
    let read = |said: &'a RateLimitDescriptor| {
        let mut descriptor = Descriptor::read(said, asked.hits_addend, policy)?;
        let unusable = match &said.limit {
            Some(limit) if shared.rls.config.overrides => {
                let unusable = descriptor.override_by(limit)?;
                if let Some(why) = &unusable {
                    shared.rls.log.unusable_override(&why.to_string());
                }
                unusable.is_some()
            }
            limit => limit.is_some(),
        };
        if unusable {
            shared.metrics.ignored_overrides.inc();
        }
        Ok(descriptor)
    };
    asked.descriptors.iter().map(read).collect()
}

/// `None` if more buckets are met than can be taken from at once.
async fn decide_together(
    shared: &Shared,
    policy: &Policy,
    descriptors: &[Descriptor<'_>],
) -> Option<Joint> {
    let (started, deadline) = (Instant::now(), shared.rls.config.deadline);
    let requests: Vec<tollgate::Request<'_>> = descriptors
        .iter()
        .map(|descriptor| descriptor.facts.request().deadline(deadline))
        .collect();
    let pairs = descriptors.iter().zip(&requests);
    let met: Vec<Met<'_>> = pairs
        .map(|(descriptor, request)| descriptor.meet(policy, request))
        .collect();
    let joint = shared.decider.decide_together(&met).await?;
    if joint.whole.delay().is_zero() {
        return Some(joint);
    }
    let look = deadline.saturating_sub(started.elapsed());
    Some(shared.decider.turn_away(&met, joint, look).await)
}

/// What is known of who sent a request: what its descriptors say of the client and of its address.
fn sender(asked: &RateLimitRequest) -> String {
    let mut known = Vec::new();
    for key in ["client", "remote_address", "ip"] {
        let mut entries = asked.descriptors.iter().flat_map(|said| &said.entries);
        if let Some(entry) = entries.find(|entry| entry.key == key.as_bytes()) {
            known.push(format!("{key} {}", shown(&entry.value)));
        }
    }
    match known.is_empty() {
        true => "unknown".to_owned(),
        false => known.join(", "),
    }
}

/// Bytes from outside as the log may show them.
fn shown(bytes: &[u8]) -> String {
    let start = bytes.get(..400).unwrap_or(bytes);
    escaped(&String::from_utf8_lossy(start), 80)
}
