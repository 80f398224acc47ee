//! The service over HTTP: every endpoint holds a worker, and `/internal/journal` says what happened, without one.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full as Whole;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::journal::Journal;
use crate::pool::Pool;

type Answer = Response<Whole<Bytes>>;

/// Serves until it is dropped.
pub async fn serve(listener: TcpListener, pool: Pool, journal: Arc<Journal>) {
    loop {
        // What cannot be accepted now (no descriptors left, for one) can be in a moment.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (pool, journal) = (pool.clone(), Arc::clone(&journal));
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let (pool, journal) = (pool.clone(), Arc::clone(&journal));
                async move { Ok::<_, Infallible>(answer(&request, &pool, &journal).await) }
            });
            // Callers that give up break off in the middle; that is theirs to do.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(request: &Request<Incoming>, pool: &Pool, journal: &Journal) -> Answer {
    let path = request.uri().path();
    if path == "/internal/journal" {
        return said(StatusCode::OK, as_json(journal, pool));
    }
    let Some(body) = content(request.method(), path) else {
        return said(StatusCode::NOT_FOUND, r#"{"error":"no such endpoint"}"#);
    };
    match pool.serve().await {
        Ok(()) => said(StatusCode::OK, body),
        Err(_) => said(
            StatusCode::SERVICE_UNAVAILABLE,
            r#"{"error":"too many requests wait"}"#,
        ),
    }
}

/// What an endpoint answers; figures do not matter here, only what it takes to get them.
fn content(method: &Method, path: &str) -> Option<&'static str> {
    let mut segments = path.split('/').skip(1);
    let is_post = method == Method::POST;
    let is_get = method == Method::GET;
    match (segments.next()?, segments.next()?, segments.next()?) {
        ("v1", "rides", "request") if is_post => Some(r#"{"ride":"r-1","state":"searching"}"#),
        ("v1", "rides", "estimate") if is_get => Some(r#"{"fare":1240,"currency":"EUR"}"#),
        ("v1", "drivers", "nearby") if is_get => Some(r#"{"drivers":[{"id":"d-7","minutes":3}]}"#),
        ("v1", "drivers", _) if is_post && segments.next() == Some("location") => {
            Some(r#"{"taken":true}"#)
        }
        ("v1", "trips", "history") if is_get => Some(r#"{"trips":[]}"#),
        ("v1", "admin", "statistics") if is_get => Some(r#"{"rides_today":48210}"#),
        _ => None,
    }
}

fn as_json(journal: &Journal, pool: &Pool) -> String {
    let counts = journal.counts();
    format!(
        r#"{{"arrived":{},"served":{},"served_nobody":{},"refused":{},"peak":{},"queued":{}}}"#,
        counts.arrived,
        counts.served,
        counts.served_nobody,
        counts.refused,
        counts.peak,
        pool.queued(),
    )
}

fn said(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Whole::new(body.into()));
    *answer.status_mut() = status;
    let json = hyper::header::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}
