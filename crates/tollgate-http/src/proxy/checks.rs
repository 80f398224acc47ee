//! Active health checks: each on a connection of its own, as a new client would make.

use std::sync::Arc;

use http::header::HOST;
use http::{Request, Uri};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::forward::send_http2;
use super::pool::{Connected, connect};
use super::upstream::{HealthCheck, Server, Upstream};
use crate::body::LimitedBody;
use crate::timeout::timeout;

/// Checks every server of the upstream, if that is configured, until `stop` is cancelled.
pub(super) fn start(upstream: &Arc<Upstream>, stop: &CancellationToken) {
    let Some(check) = &upstream.config.health else {
        return;
    };
    for server in &upstream.servers {
        let (upstream, server) = (Arc::clone(upstream), Arc::clone(server));
        let (check, stop) = (check.clone(), stop.clone());
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            loop {
                let result = timeout(check.timeout, run(&upstream, &server, &check)).await;
                let result = result.unwrap_or_else(|| Err("no response in time".to_owned()));
                note(&upstream, &server, result);
                tokio::time::sleep(check.every).await;
            }
        }));
    }
}

fn note(upstream: &Upstream, server: &Server, result: Result<(), String>) {
    let has_changed = match &result {
        Ok(()) => server.health.note_passed_check(),
        Err(_) => server.health.note_failed_check(),
    };
    if has_changed {
        upstream.count_unhealthy();
        let (upstream, server) = (&*upstream.config.path, &*server.name);
        match result {
            Ok(()) => tracing::info!(upstream, server, "a server passes its checks again"),
            Err(error) => tracing::warn!(upstream, server, error, "a server fails its checks"),
        }
    }
}

async fn run(upstream: &Upstream, server: &Server, check: &HealthCheck) -> Result<(), String> {
    let mut request = Request::new(LimitedBody::default());
    *request.uri_mut() = Uri::try_from(&*check.path).map_err(|error| error.to_string())?;
    request.headers_mut().insert(HOST, server.authority.clone());
    let within = Some(check.timeout);
    let connected = connect(server, &upstream.metrics.connections).await;
    let response = match connected.map_err(|error| error.to_string())? {
        Connected::Http1(mut connection) => {
            connection
                .send(Box::new(request), within, Instant::now())
                .await
        }
        Connected::Http2(sender) => send_http2(sender, server, request, within).await,
    };
    match response.map(|response| response.status()) {
        Ok(status) if (200..400).contains(&status.as_u16()) => Ok(()),
        Ok(status) => Err(format!("status {status}")),
        Err(error) => Err(error.error.label().to_owned()),
    }
}
