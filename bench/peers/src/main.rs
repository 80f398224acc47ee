//! `peers-server PEER PORT REDIS-URL DEADLINE-MS TIER…`: one small axum app with the limiter of choice in front of it.
//!
//! A tier is `name:limit:seconds[:path]`. Callers are told apart by `x-client-id`; the app answers 200 "ok", 429, or 500 if the
//! limiter fails. All peers have the same app and the same runtime, one worker.

mod governor_peer;
mod limitador_peer;
mod tier;
mod tollgate_peer;

use std::error::Error;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;

use tier::Tier;

/// What there is to limit.
fn app() -> Router {
    Router::new().fallback(async || "ok")
}

/// Who is calling.
fn client(headers: &HeaderMap) -> &str {
    let id = headers.get("x-client-id").and_then(|id| id.to_str().ok());
    id.unwrap_or("nobody")
}

/// What a caller of a limiter without an answer of its own gets.
async fn answer(
    verdict: Result<bool, ()>,
    request: Request,
    next: axum::middleware::Next,
) -> Response {
    match verdict {
        Ok(true) => next.run(request).await,
        Ok(false) => StatusCode::TOO_MANY_REQUESTS.into_response(),
        Err(()) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).collect::<Vec<_>>().into_iter();
    let mut next = || {
        arguments
            .next()
            .ok_or("usage: peers-server PEER PORT REDIS-URL DEADLINE-MS TIER…")
    };
    let (peer, port, redis) = (next()?, next()?.parse::<u16>()?, next()?);
    let deadline = std::time::Duration::from_millis(next()?.parse()?);
    let tiers = arguments
        .map(|text| text.parse())
        .collect::<Result<Vec<Tier>, _>>()?;
    let app = match peer.as_str() {
        "governor" => governor_peer::limit(app(), &tiers)?,
        "limitador" => limitador_peer::in_memory(app(), &tiers)?,
        "limitador-redis" => limitador_peer::over_redis(app(), &tiers, &redis, false).await?,
        "limitador-cached" => limitador_peer::over_redis(app(), &tiers, &redis, true).await?,
        "tollgate" => tollgate_peer::in_memory(app(), &tiers)?,
        "tollgate-redis" => tollgate_peer::over_redis(app(), &tiers, &redis, deadline)?,
        other => return Err(format!("no such peer: {other}").into()),
    };
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    axum::serve(listener, app).await?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?
        .block_on(async {
            tokio::spawn(async { run().await.map_err(|e| e.to_string()) }).await
        })??;
    Ok(())
}
