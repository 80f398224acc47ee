//! `POST /v1/explain`: what `tollgate explain --json` says, of the program that runs. Charges nothing.

use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use tollgate::Source;

use super::check::Described;
use super::metrics::{Endpoint, Outcome};
use super::problem::Problem;
use super::{Service, Shared, reading};
use crate::explanation::{Asked, Usage};

pub(super) async fn explain(State(shared): Service, request: Request) -> Response<Body> {
    let started = Instant::now();
    let (response, outcome) = match answer(&shared, request).await {
        Ok(response) => (response, Outcome::Allowed),
        Err(problem) => {
            let response = problem.response();
            let outcome = Outcome::of_status(response.status().as_u16());
            (response, outcome)
        }
    };
    shared.metrics.count(Endpoint::Explain, outcome);
    shared.metrics.took(Endpoint::Explain, started.elapsed());
    response
}

async fn answer(shared: &Shared, request: Request) -> Result<Response<Body>, Problem> {
    shared.admit(request.headers())?;
    let body = reading::json(&reading::whole(request.into_body()).await?)?;
    let described = Described::read(&body, "")?;
    let asked = Asked {
        head: described.head(),
        peer: described.ip,
        peer_is_assumed: false,
        cost: described.cost,
    };
    let report = asked
        .report(&shared.door.policy(), async |met| {
            let decision = shared.door.limiter().peek_on(met).await;
            match decision.source() {
                Source::Store => Usage::Known(Box::new(decision)),
                _ => Usage::Unreachable,
            }
        })
        .await;
    let body = serde_json::to_vec(&report).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}
