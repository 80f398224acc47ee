//! `POST /v1/explain`, `/v1/inspect` and `/v1/reset`: the reports of `tollgate explain`, `inspect` and `reset`, from the running program.
//!
//! What is forgotten cannot be restored, so a reset always needs a token: without one, any client that can reach the port could reset its
//! own usage, including web pages on this machine.

use axum::body::Body;
use axum::extract::{Request, State};
use http::{Response, StatusCode};
use serde_json::Value;
use tollgate::StoreError;
use tollgate_config::document::shortened;
use tollgate_config::text::escaped;
use tollgate_tower::policy::{Policy, Refusal, RequestAttributes};

use super::check::{DescribedRequest, SUBJECT_FIELDS, read_attributes};
use super::metrics::Endpoint;
use super::reading::{self, Fields};
use super::{ServiceState, State as Service, json_response};
use crate::explanation::{ExplainedRequest, usage_in};
use crate::problem::Problem;
use crate::usage::{ResetReport, UsageReport};

pub(super) async fn explain(State(state): Service, request: Request) -> Response<Body> {
    (state.counted(Endpoint::Explain, explained(&state, request))).await
}

pub(super) async fn inspect(State(state): Service, request: Request) -> Response<Body> {
    (state.counted(Endpoint::Inspect, inspected(&state, request))).await
}

pub(super) async fn reset(State(state): Service, request: Request) -> Response<Body> {
    (state.counted(Endpoint::Reset, forgotten(&state, request))).await
}

async fn read_json(state: &ServiceState, request: Request) -> Result<Value, Problem> {
    state.check_access(request.headers())?;
    reading::json(&reading::body(request.into_body()).await?)
}

async fn explained(state: &ServiceState, request: Request) -> Result<Response<Body>, Problem> {
    let body = read_json(state, request).await?;
    let described = DescribedRequest::read(&body, "")?;
    let request = ExplainedRequest {
        head: described.head(),
        peer: described.ip,
        peer_is_assumed: false,
        client: None,
        cost: described.cost,
    };
    let (policy, limiter) = (state.decider.policy(), state.decider.limiter());
    let report = request.explain(&policy, async |met| usage_in(limiter, met).await);
    Ok(json_response(&report.await))
}

async fn inspected(state: &ServiceState, request: Request) -> Result<Response<Body>, Problem> {
    let body = read_json(state, request).await?;
    let policy = state.decider.policy();
    let subject = read_subject(&Fields::of(&body, "", SUBJECT_FIELDS)?, &policy)?;
    let limiter = state.decider.limiter();
    let used = limiter
        .matched(&policy.rules().matching(&subject.request()))
        .inspect()
        .await;
    let used = used.map_err(|error| unavailable(&error, "usage is unknown"))?;
    Ok(json_response(&UsageReport::new(&used, &policy, &subject)))
}

async fn forgotten(state: &ServiceState, request: Request) -> Result<Response<Body>, Problem> {
    if !state.access.has_token() {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "a reset needs a token, and this service has none: set service.token in its configuration",
        ));
    }
    let body = read_json(state, request).await?;
    let policy = state.decider.policy();
    let known = [SUBJECT_FIELDS, &["everybody"]].concat();
    let fields = Fields::of(&body, "", &known)?;
    let everybody = fields.flag("everybody")?;
    let subject = read_subject(&fields, &policy)?;
    let request = subject.request();
    match (request.identifies_caller(), everybody) {
        (false, false) => {
            return Err(Problem::bad(
                "no client is named, so this would reset what all clients share; name one by client, ip or attributes, or set \"everybody\": true",
            ));
        }
        (true, true) => {
            let what = "a client is named as well; leave out one of them";
            return Err(fields.wrong("everybody", what));
        }
        _ => {}
    }
    let limiter = state.decider.limiter();
    let forgotten = limiter
        .matched(&policy.rules().matching(&request))
        .reset()
        .await;
    let short = |text: Option<&str>| text.map(|text| escaped(text, 80));
    let (client, plan) = (
        short(subject.client.as_deref()),
        short(subject.plan.as_deref()),
    );
    let (route, method) = (short(subject.route.as_deref()), short(subject.method));
    let ip = subject.ip.map(tracing::field::display);
    let forgotten = forgotten.map_err(|error| {
        let effect = "only a part may have been forgotten, or nothing; retry";
        tracing::warn!(
            client,
            ip,
            plan,
            route,
            method,
            everybody,
            "a reset failed: {effect}"
        );
        unavailable(&error, effect)
    })?;
    let report = ResetReport::new(&forgotten, &policy, &subject);
    let summary = report.summary();
    tracing::info!(
        client,
        ip,
        plan,
        route,
        method,
        everybody,
        "reset: {summary}"
    );
    Ok(json_response(&report))
}

/// Reads the subject. An attribute that no rule looks at names no client, and a refused path has no bucket: both are errors, because
/// leaving them out would name another subject.
fn read_subject<'a>(
    fields: &Fields<'a>,
    policy: &'a Policy,
) -> Result<RequestAttributes<'a>, Problem> {
    let not_found =
        |field, what: String| fields.wrong(field, what).with_status(StatusCode::NOT_FOUND);
    let unknown = |name: &str| {
        let what = format!("no rule looks at {}", shortened(name));
        Err(not_found("attributes", what))
    };
    let refused = |refusal: Refusal| {
        let field = match refusal {
            Refusal::Host(_) => "host",
            Refusal::HeaderList(_) => "attributes",
            _ => "path",
        };
        not_found(field, format!("this is refused: {refusal}"))
    };
    read_attributes(fields, policy, unknown)?.map_err(refused)
}

fn unavailable(error: &StoreError, effect: &str) -> Problem {
    let error = escaped(&error.to_string(), 400);
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        format!("{error}; {effect}"),
    )
}
