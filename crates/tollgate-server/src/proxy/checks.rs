//! Asking servers how they are, if that is configured: each on its own connection, as a stranger would.

use std::sync::Arc;

use http::{Request, StatusCode, Uri};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connect::{Connected, connect};
use super::forward::send_http2;
use super::group::Group;
use super::head;
use super::outgoing::Outgoing;
use super::server::Server;
use super::upload::Upload;
use crate::config::HealthCheck;
use crate::patience::timeout;

/// Asks every server of the group again and again, until the end.
pub(super) fn start(group: &Arc<Group>, stop: &CancellationToken) {
    let Some(check) = &group.upstream.health else {
        return;
    };
    for server in &group.servers {
        let (group, server) = (Arc::clone(group), Arc::clone(server));
        let (check, stop) = (check.clone(), stop.clone());
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            loop {
                let answer = timeout(check.timeout, ask(&group, &server, &check)).await;
                let answer = answer.unwrap_or_else(|| Err("no answer in time".to_owned()));
                note(&group, &server, answer);
                tokio::time::sleep(check.every).await;
            }
        }));
    }
}

fn note(group: &Group, server: &Server, answer: Result<(), String>) {
    let (upstream, name) = (&*group.upstream.path, &*server.name);
    let most = group.upstream.failures;
    match answer {
        Ok(()) => {
            if server.health.passed_check(most) {
                tracing::info!(upstream, server = name, "a server passes its checks again");
                group.count_unwell();
            }
        }
        Err(error) => {
            if server.health.failed_check(most) {
                tracing::warn!(upstream, server = name, error, "a server fails its checks");
                group.count_unwell();
            }
        }
    }
}

async fn ask(group: &Group, server: &Server, check: &HealthCheck) -> Result<(), String> {
    let mut request = Request::new(Upload::Nothing);
    *request.uri_mut() = Uri::try_from(&*check.path).map_err(|error| error.to_string())?;
    head::set_host(&mut request, &server.authority);
    let within = Some(check.timeout);
    let connected = connect(server, &group.metrics.connections).await;
    let response = match connected.map_err(|error| error.to_string())? {
        Connected::One(mut link) => {
            link.send(Box::new(Outgoing::new(request)), within, Instant::now())
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
