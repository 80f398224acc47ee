//! `POST /v1/inspect` and `POST /v1/reset`: what callers used, and forgetting it, in the program that runs.
//!
//! What is forgotten cannot be brought back, so a reset always needs a token: where the service has none, whoever can reach its port could
//! free itself, a page in a browser of this machine included.

use axum::body::Body;
use axum::extract::{Request, State};
use http::{Response, StatusCode};
use serde_json::Value;
use tollgate::StoreError;
use tollgate_tower::policy::{Policy, Refusal};

use super::check::{WHO, told, with_body};
use super::metrics::Endpoint;
use super::problem::Problem;
use super::reading::{self, Fields};
use super::{Service, Shared};
use crate::usage::{Forgotten, Report};
use tollgate_config::document::shortened;
use tollgate_config::text::escaped;
use tollgate_tower::policy::RequestAttributes;

pub(super) async fn inspect(State(shared): Service, request: Request) -> Response<Body> {
    (shared.answered(Endpoint::Inspect, answer_inspect(&shared, request))).await
}

pub(super) async fn reset(State(shared): Service, request: Request) -> Response<Body> {
    (shared.answered(Endpoint::Reset, answer_reset(&shared, request))).await
}

async fn answer_inspect(shared: &Shared, request: Request) -> Result<Response<Body>, Problem> {
    shared.admit(request.headers())?;
    let body = reading::json(&reading::whole(request.into_body()).await?)?;
    let policy = shared.decider.policy();
    let facts = read(&Fields::of(&body, "", WHO)?, &policy)?;
    let request = facts.request();
    let matched = policy.rules().matching(&request);
    let used = (shared.decider.limiter()).matched(&matched).inspect().await;
    let used = used.map_err(|error| out_of_reach(&error, "nothing is known of what is used"))?;
    let report = Report::of(&used, &policy, &facts);
    Ok(with_body(StatusCode::OK, &report))
}

async fn answer_reset(shared: &Shared, request: Request) -> Result<Response<Body>, Problem> {
    if shared.token.is_none() {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "a reset needs a token, and this service has none: set service.token in its configuration",
        ));
    }
    shared.admit(request.headers())?;
    let body = reading::json(&reading::whole(request.into_body()).await?)?;
    let policy = shared.decider.policy();
    let known = [WHO, &["everybody"]].concat();
    let fields = Fields::of(&body, "", &known)?;
    let everybody = everybody(&fields)?;
    let facts = read(&fields, &policy)?;
    let request = facts.request();
    match (request.identifies_caller(), everybody) {
        (false, false) => {
            return Err(Problem::bad(
                "this names no caller, so it would reset what all share; say client, ip or attributes, or \"everybody\": true if that is what you mean",
            ));
        }
        (true, true) => {
            return Err(fields.wrong(
                "everybody",
                "a caller is named; leave out the one or the other",
            ));
        }
        _ => {}
    }
    let matched = policy.rules().matching(&request);
    let forgotten = (shared.decider.limiter()).matched(&matched).reset();
    let so = "only a part may have been forgotten, or nothing; ask again";
    let forgotten = forgotten.await;
    let short = |said: Option<&str>| said.map(|said| escaped(said, 80));
    let (client, plan) = (short(facts.client.as_deref()), short(facts.plan.as_deref()));
    let (route, method) = (short(facts.route.as_deref()), short(facts.method));
    let ip = facts.ip.map(tracing::field::display);
    let forgotten = forgotten.map_err(|error| {
        tracing::warn!(
            client,
            ip,
            plan,
            route,
            method,
            everybody,
            "a reset failed: {so}"
        );
        out_of_reach(&error, so)
    })?;
    let report = Forgotten::of(&forgotten, &policy, &facts);
    let said = report.summary();
    tracing::info!(client, ip, plan, route, method, everybody, "reset: {said}");
    Ok(with_body(StatusCode::OK, &report))
}

fn everybody(fields: &Fields<'_>) -> Result<bool, Problem> {
    match fields.get("everybody") {
        None => Ok(false),
        Some(Value::Bool(said)) => Ok(*said),
        Some(other) => {
            let got = reading::kind(other);
            Err(fields.wrong("everybody", format!("expected true or false, got {got}")))
        }
    }
}

/// Who is meant. An attribute that no rule looks at names no caller, and a path that is refused has no bucket: both are errors rather than
/// left out, which would mean somebody else.
fn read<'a>(fields: &Fields<'a>, policy: &'a Policy) -> Result<RequestAttributes<'a>, Problem> {
    let unknown = |name: &str| {
        let what = format!("no rule looks at {}", shortened(name));
        Err(fields.wrong("attributes", what).not_found())
    };
    let refused = |refusal: Refusal| {
        let field = match refusal {
            Refusal::Host(_) => "host",
            Refusal::HeaderList(_) => "attributes",
            _ => "path",
        };
        (fields.wrong(field, format!("this is refused: {refusal}"))).not_found()
    };
    told(fields, policy, unknown)?.map_err(refused)
}

fn out_of_reach(error: &StoreError, so: &str) -> Problem {
    let error = escaped(&error.to_string(), 400);
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("{error}; {so}"))
}
