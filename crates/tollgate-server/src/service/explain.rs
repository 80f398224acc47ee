//! `POST /v1/explain`: what `tollgate explain --json` says, of the program that runs. Charges nothing.

use axum::body::Body;
use axum::extract::{Request, State};
use http::{Response, StatusCode};
use tollgate::Source;

use super::check::{Described, with_body};
use super::metrics::Endpoint;
use super::problem::Problem;
use super::{Service, Shared, reading};
use crate::explanation::{Asked, Usage};

pub(super) async fn explain(State(shared): Service, request: Request) -> Response<Body> {
    (shared.answered(Endpoint::Explain, answer(&shared, request))).await
}

async fn answer(shared: &Shared, request: Request) -> Result<Response<Body>, Problem> {
    shared.admit(request.headers())?;
    let body = reading::json(&reading::whole(request.into_body()).await?)?;
    let described = Described::read(&body, "")?;
    let asked = Asked {
        head: described.head(),
        peer: described.ip,
        peer_is_assumed: false,
        client: None,
        cost: described.cost,
    };
    let report = asked
        .report(&shared.decider.policy(), async |met| {
            let decision = shared.decider.limiter().matched(met).peek().await;
            match decision.source() {
                Source::Store => Usage::Known(Box::new(decision)),
                _ => Usage::Unreachable,
            }
        })
        .await;
    Ok(with_body(StatusCode::OK, &report))
}
