//! Envoy's rate limit service (`envoy.service.ratelimit.v3`), and the health that gRPC callers ask for.
//!
//! One call is one request of somebody, seen from several sides, its descriptors. Each meets the rules that count by what it says; all
//! buckets are taken from together or not at all, and a bucket that several descriptors meet is charged once.
//!
//! Envoy cannot wait: what a leaky bucket would delay is denied, with its place given back and the delay as the wait.

mod answer;
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

use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use tollgate::{Joint, Met, Request};
use tollgate_tower::answer::Answers;
use tollgate_tower::policy::Policy;
use tonic::{Code, Response, Status};

use super::Shared;
use super::metrics::{Endpoint, Outcome};
use crate::config::Rls;
use crate::traces::Parent;
use descriptor::{Descriptor, Odd};
use generated::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use generated::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use generated::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/{*method}";
pub(super) const HEALTH_PATH: &str = "/grpc.health.v1.Health/{*method}";

/// The most descriptors of one call.
const MOST_DESCRIPTORS: usize = 64;

/// Answers Envoys.
pub(super) struct Limits {
    shared: Arc<Shared>,
    config: Rls,
}

pub(super) fn service(shared: Arc<Shared>, config: Rls) -> RateLimitServiceServer<Limits> {
    RateLimitServiceServer::new(Limits { shared, config })
}

/// Says that we serve, which we do whatever the store does: decisions go on without it.
pub(super) fn health()
-> tonic_health::pb::health_server::HealthServer<impl tonic_health::pb::health_server::Health> {
    let (reporter, server) = tonic_health::server::health_reporter();
    // Nobody else has it yet, so this is done at once.
    let _ = reporter
        .set_serving::<RateLimitServiceServer<Limits>>()
        .now_or_never();
    server
}

#[tonic::async_trait]
impl RateLimitService for Limits {
    async fn should_rate_limit(
        &self,
        request: tonic::Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let started = Instant::now();
        let answered = self.answer(request).await;
        let outcome = match &answered {
            Ok((_, outcome)) => *outcome,
            Err(status) if status.code() == Code::Unauthenticated => Outcome::Unauthorised,
            Err(_) => Outcome::Invalid,
        };
        self.shared.metrics.count(Endpoint::Rls, outcome);
        self.shared.metrics.took(Endpoint::Rls, started.elapsed());
        answered.map(|(response, _)| Response::new(response))
    }
}

impl Limits {
    async fn answer(
        &self,
        request: tonic::Request<RateLimitRequest>,
    ) -> Result<(RateLimitResponse, Outcome), Status> {
        let admitted = self.shared.admit(request.metadata().as_ref());
        admitted.map_err(|problem| problem.grpc())?;
        let parent = Parent::of(request.metadata().as_ref());
        let asked = request.into_inner();
        check(&asked)?;
        let domains = &self.config.domains;
        if !domains.is_empty() && !domains.contains(&asked.domain) {
            return Ok((answer::unlimited(&asked), Outcome::Allowed));
        }
        let policy = self.shared.door.policy();
        let descriptors = match self.descriptors(&asked, &policy) {
            Ok(descriptors) => descriptors,
            Err(Odd::Setup(why)) => return Err(Status::invalid_argument(why)),
            Err(Odd::Call(why)) => return Ok((answer::refused(&asked, &why), Outcome::Invalid)),
        };
        let span = self.shared.span("ShouldRateLimit", parent);
        match self.decide(&policy, &descriptors).await {
            Some(joint) => {
                if let Some(mut span) = span {
                    span.decided(&joint.whole);
                }
                let usual = Answers::default();
                let answers = policy.answers().map_or(&usual, |answers| answers);
                Ok(answer::of(&joint, answers))
            }
            None => {
                let why = "the call meets more than 255 buckets";
                Ok((answer::refused(&asked, why), Outcome::Invalid))
            }
        }
    }

    fn descriptors<'a>(
        &self,
        asked: &'a RateLimitRequest,
        policy: &'a Policy,
    ) -> Result<Vec<Descriptor<'a>>, Odd> {
        let read = |said: &'a RateLimitDescriptor| {
            let mut descriptor = Descriptor::read(said, asked.hits_addend, policy)?;
            match &said.limit {
                Some(limit) if self.config.overrides => descriptor.override_by(limit)?,
                Some(_) => _ = self.shared.metrics.ignored_overrides.inc(),
                None => {}
            }
            Ok(descriptor)
        };
        asked.descriptors.iter().map(read).collect()
    }

    /// `None` if more buckets are met than can be taken from at once.
    async fn decide(&self, policy: &Policy, descriptors: &[Descriptor<'_>]) -> Option<Joint> {
        let requests: Vec<Request<'_>> = descriptors
            .iter()
            .map(|descriptor| descriptor.facts.request().deadline(self.config.deadline))
            .collect();
        let pairs = descriptors.iter().zip(&requests);
        let met: Vec<Met<'_>> = pairs
            .map(|(descriptor, request)| descriptor.meet(policy, request))
            .collect();
        let door = &self.shared.door;
        let joint = door.decide_together(&met).await?;
        if !joint.whole.delay().is_zero() {
            door.limiter().refund_together(&met, joint.clone()).await;
        }
        Some(joint)
    }
}

fn check(asked: &RateLimitRequest) -> Result<(), Status> {
    let wrong = if asked.domain.is_empty() {
        "the domain is empty"
    } else if asked.descriptors.is_empty() {
        "there are no descriptors"
    } else if asked.descriptors.len() > MOST_DESCRIPTORS {
        "there are more than 64 descriptors"
    } else if asked.descriptors.iter().any(|said| said.is_negative_hits) {
        // A refund has to say which charge it is for, and this protocol has no words for that.
        return Err(Status::unimplemented("hits are not given back"));
    } else {
        return Ok(());
    };
    Err(Status::invalid_argument(wrong))
}
