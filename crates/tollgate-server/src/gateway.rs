//! The gateway's front: connections, and the walk of a request up to the service behind it, which in the program is the proxy.
//!
//! 1. the head is read, or refused (`listen`);
//! 2. what servers may read in different ways is refused (`refusal`) or left out (`header_names`);
//! 3. the request gets its name (`request_id`);
//! 4. the limiter decides ([`Door::layer`]); a denial is answered here, and nobody behind hears of it;
//! 5. the body is bounded (`bounded`, `body`), so a body that is too long was decided on, too;
//! 6. the service behind answers; what it has not read of the body is read or given up (`rest`);
//! 7. when all of the answer has gone out, it is counted (`metrics`) and logged (`access_log`); an upgraded connection (`tunnel`) is logged when it has ended.
//!
//! A connection stays with one worker, a thread with a runtime of its own, so a request never changes threads.

mod access_log;
mod account;
mod body;
mod bounded;
mod connection_field;
mod front;
mod header_names;
mod metrics;
mod problem;
mod refusal;
mod request_id;
mod rest;
mod tunnel;
mod worker;

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use tokio_util::sync::CancellationToken;
use tollgate_tower::layer::WaitLimits;
use tower_layer::Layer as _;

pub use access_log::LogFile;
pub use body::{BodyError, RequestBody};
pub(crate) use header_names::OVERRIDES;
pub use metrics::GatewayMetrics;
pub use request_id::X_REQUEST_ID;
pub(crate) use request_id::plain_request_id;
pub use rest::LentBody;
pub use tunnel::{Tunnel, TunnelEnd};
pub use worker::Behind;

use crate::config;
use crate::door::Door;
use crate::listen::tls::{Certificate, TlsError};
use crate::listen::{Arrivals, ListenConfig, OnRefusedHead, Places, Uncounted};
use access_log::AccessLog;
use body::BodyLimits;
use bounded::Bounded;
use front::{Desk, Front};
use header_names::HeaderNames;
use request_id::RequestIds;

/// How long the service behind took for its answer: it may put this among the response's extensions, for the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamTime(pub Duration);

/// A gateway that runs.
#[derive(Debug)]
pub struct Gateway {
    threads: Vec<JoinHandle<()>>,
    log_file: Option<LogFile>,
}

impl Gateway {
    /// Serves whoever connects to `listener` until `stop` is cancelled. `behind` makes the service that requests are for, once on each worker's
    /// thread and within its runtime.
    ///
    /// # Errors
    /// When the certificate or the file of the access log cannot be used, or the system gives no threads.
    pub fn start<S, B>(
        config: &config::Front,
        listener: TcpListener,
        door: &Door,
        metrics: &GatewayMetrics,
        behind: impl Fn() -> S + Send + Sync + 'static,
        stop: CancellationToken,
    ) -> Result<Self, GatewayError>
    where
        S: Behind<B>,
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
            + Send
            + 'static,
    {
        let certificate = config.tls.clone().map(Certificate::read).transpose()?;
        let (log, writer) = access_log(config, metrics)?.unzip();
        let listen = ListenConfig {
            on_refused_head: on_refused_head(metrics, log.as_ref()),
            metrics: metrics.listen.clone(),
            ..listen_config(config, door, certificate.as_ref())?
        };
        let listen = Arc::new(listen);
        let log_file = log.as_ref().map(AccessLog::file);
        let places = Places::of(&listen);
        let limits = BodyLimits {
            most: match config.max_body {
                0 => u64::MAX,
                most => most,
            },
            timeout: config.body_timeout,
        };
        let header_names = HeaderNames {
            underscores: config.underscores,
            overrides: config.override_headers,
        };
        let (max_delay, preflights) = (config.max_delay, config.preflights);
        let wait_limits = WaitLimits::new(
            config
                .waiting
                .max_waiting_with(config.connections.max_connections),
            config.waiting.per_address,
        );
        let behind = Arc::new(behind);
        let (mut workers, mut threads) = (Vec::new(), Vec::new());
        for nth in 0..worker_count(config) {
            let desk = Desk {
                door: door.clone(),
                ids: RequestIds::new(),
                metrics: metrics.clone(),
                log: log.clone(),
                header_names,
            };
            let behind = Arc::clone(&behind);
            let wait_limits = wait_limits.clone();
            let make = move || {
                let layer = (desk.door.layer())
                    .max_delay(max_delay)
                    .wait_limits(wait_limits)
                    .charge_preflights(preflights == config::Preflights::Charge)
                    .hand_on_decisions(false)
                    .keep_decisions(desk.log.is_some());
                Front::new(desk, layer.layer(Bounded::new(behind(), limits)))
            };
            let (worker, thread) =
                worker::start(nth, Arc::clone(&listen), Arc::clone(&places), make)?;
            workers.push(worker);
            threads.push(thread);
        }
        let arrivals = move |listener| Arrivals::new(listener, &listen, places);
        threads.push(worker::accept(
            listener,
            arrivals,
            workers,
            certificate,
            stop,
        )?);
        threads.extend(writer);
        Ok(Self { threads, log_file })
    }

    /// The access log as whoever rotates it sees it, if there is one.
    #[must_use]
    pub fn log_file(&self) -> Option<LogFile> {
        self.log_file.clone()
    }

    /// Waits until it has stopped, all that was under way has ended, and the last line is logged.
    pub async fn ended(self) {
        let ended = tokio::task::spawn_blocking(move || {
            for thread in self.threads {
                // Who panicked has said so.
                let _ = thread.join();
            }
        });
        let _ = ended.await;
    }
}

fn worker_count(config: &config::Front) -> usize {
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    config.workers.map_or_else(processors, usize::from)
}

fn listen_config(
    config: &config::Front,
    door: &Door,
    certificate: Option<&Arc<Certificate>>,
) -> Result<ListenConfig, TlsError> {
    let door = door.clone();
    Ok(ListenConfig {
        most_connections: config.connections.max_connections,
        most_per_address: config.connections.per_address,
        uncounted: Uncounted::those(move |ip| door.policy().identity().trusts(ip)),
        head_timeout: config.head_timeout,
        idle_timeout: config.idle_timeout,
        send_timeout: config.send_timeout,
        most_head_bytes: config.max_head,
        most_streams: config.max_streams,
        longest_age: config.max_age,
        drain: config.drain,
        tls: certificate.map(Certificate::server_config).transpose()?,
        ..ListenConfig::default()
    })
}

/// Counts and logs what hyper refuses, as no service of ours ever sees it.
fn on_refused_head(metrics: &GatewayMetrics, log: Option<&AccessLog>) -> OnRefusedHead {
    let (metrics, log) = (metrics.clone(), log.cloned());
    OnRefusedHead::tell(move |peer, head| {
        metrics.refused_head(head);
        if let Some(log) = &log {
            log.note_refused(peer.ip(), head);
        }
    })
}

fn access_log(
    config: &config::Front,
    metrics: &GatewayMetrics,
) -> Result<Option<(AccessLog, JoinHandle<()>)>, GatewayError> {
    let file = config.access_log_file.clone();
    AccessLog::start(
        config.access_log,
        file.as_deref(),
        metrics.lines_lost.clone(),
    )
    .map_err(|error| match file {
        Some(file) => GatewayError::AccessLog(file, error),
        None => GatewayError::System(error),
    })
}

/// Why a gateway cannot start.
#[derive(Debug)]
#[non_exhaustive]
pub enum GatewayError {
    /// The certificate or its key cannot be used.
    Tls(TlsError),
    /// The file of the access log cannot be written.
    AccessLog(PathBuf, io::Error),
    /// The system does not give what is needed.
    System(io::Error),
}

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(error) => write!(f, "gateway.tls: {error}"),
            Self::AccessLog(file, error) => {
                write!(
                    f,
                    "gateway.access_log_file: {file:?} cannot be opened: {error}"
                )
            }
            Self::System(error) => write!(f, "the gateway cannot start: {error}"),
        }
    }
}

impl std::error::Error for GatewayError {}

impl From<TlsError> for GatewayError {
    fn from(error: TlsError) -> Self {
        Self::Tls(error)
    }
}

impl From<io::Error> for GatewayError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}
