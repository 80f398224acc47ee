//! Asking servers how they are, if that is configured: each on its own connection, as a stranger would.

use std::sync::Arc;

use http::{Request, StatusCode, Uri};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::config::HealthCheck;
use super::connect::{Connected, connect};
use super::forward::send_http2;
use super::outgoing::Outgoing;
use super::request_body::RequestBody;
use super::request_head;
use super::server::Server;
use super::upstream::Upstream;
use crate::patience::timeout;

/// Asks every server of the upstream again and again, until the end.
pub(super) fn start(upstream: &Arc<Upstream>, stop: &CancellationToken) {
    let Some(check) = &upstream.config.health else {
        return;
    };
    for server in &upstream.servers {
        let (upstream, server) = (Arc::clone(upstream), Arc::clone(server));
        let (check, stop) = (check.clone(), stop.clone());
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            loop {
                let answer = timeout(check.timeout, ask(&upstream, &server, &check)).await;
                let answer = answer.unwrap_or_else(|| Err("no answer in time".to_owned()));
                note(&upstream, &server, answer);
                tokio::time::sleep(check.every).await;
            }
        }));
    }
}

fn note(upstream: &Upstream, server: &Server, answer: Result<(), String>) {
    let most = upstream.config.failures;
    let (path, name) = (&*upstream.config.path, &*server.name);
    match answer {
        Ok(()) => {
            if server.health.passed_check(most) {
                tracing::info!(
                    upstream = path,
                    server = name,
                    "a server passes its checks again"
                );
                upstream.count_unwell();
            }
        }
        Err(error) => {
            if server.health.failed_check(most) {
                tracing::warn!(
                    upstream = path,
                    server = name,
                    error,
                    "a server fails its checks"
                );
                upstream.count_unwell();
            }
        }
    }
}

async fn ask(upstream: &Upstream, server: &Server, check: &HealthCheck) -> Result<(), String> {
    let mut request = Request::new(RequestBody::Nothing);
    *request.uri_mut() = Uri::try_from(&*check.path).map_err(|error| error.to_string())?;
    request_head::set_host(&mut request, &server.authority);
    let within = Some(check.timeout);
    let connected = connect(server, &upstream.metrics.connections).await;
    let response = match connected.map_err(|error| error.to_string())? {
        Connected::One(mut connection) => {
            connection
                .send(Box::new(Outgoing::new(request)), within, Instant::now())
                .await
        }
        Connected::Two(sender) => send_http2(sender, server, request, within).await,
    };
    let status = match response {
        Ok(response) => response.status(),
        Err(lost) => return Err(lost.failure.to_string()),
    };
    match (StatusCode::OK..StatusCode::BAD_REQUEST).contains(&status) {
        true => Ok(()),
        false => Err(format!("status {status}")),
    }
}
