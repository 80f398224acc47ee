//! The running program: its listeners, from the first socket to the last request.
//!
//! All sockets are opened before anything runs, so an address in use fails the start. Then the policy takes effect and the
//! listeners open; signals reload, restart or stop the program. [`listeners`] is the one place that lists the listeners.

mod connection_budget;
mod demo;
mod examination;
mod handover;
mod listeners;
mod notify;
mod signals;
mod sockets;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tollgate_config::{AuditConfig, Config, StoreConfig};
use tollgate_http::server::{self, ServerConfig};

use crate::admin::{Admin, Health, Inside, Stage};
use crate::audit::Trail;
use crate::database::Database;
use crate::decider::{self, Decider};
use crate::failure::Failure;
use crate::gateway::LogFile;
use crate::live::{Live, LiveConfig, StartError};
use crate::metrics;
use crate::router::RouterHandler;
use crate::traces::{TraceMetrics, Tracer};
use connection_budget::ConnectionBudget;
pub(crate) use demo::Demo;
use handover::Handover;
use signals::{Signal, Signals};
pub(crate) use sockets::Inherited;
use sockets::Sockets;

/// How long the last audit records may take to be written at shutdown.
const CLOSE_TRAIL_WITHIN: Duration = Duration::from_secs(10);

/// How long the last traces may take to be sent at shutdown.
const CLOSE_TRACES_WITHIN: Duration = Duration::from_secs(5);

/// How long requests of operators may take to end at shutdown.
const DRAIN_ADMIN: Duration = Duration::from_secs(5);

/// Where the configuration comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A file, with the configuration that it had when it was first read, and the warnings about it.
    File {
        file: PathBuf,
        config: Box<Config>,
        warnings: String,
    },
    /// The built-in demo.
    Demo(Demo),
}

impl Source {
    pub(crate) fn config(&self) -> &Config {
        match self {
            Self::File { config, .. } => config,
            Self::Demo(demo) => demo.config(),
        }
    }
}

/// What the program needs to start.
#[derive(Debug)]
pub(crate) struct Start {
    source: Source,
    inherited: Inherited,
    handover: Handover,
}

impl Start {
    pub(crate) fn new(source: Source, inherited: Inherited) -> Self {
        Self {
            source,
            inherited,
            handover: Handover::of_this_program(),
        }
    }
}

/// Serves until a signal stops the program.
pub(crate) async fn run(start: Start) -> Result<(), Failure> {
    let Start {
        source,
        mut inherited,
        handover,
    } = start;
    // First, so that an early signal does not kill the program.
    let mut signals = Signals::listen()
        .map_err(|error| Failure::Unavailable(format!("cannot handle signals: {error}")))?;
    let budget = ConnectionBudget::within_limit(source.config());
    let sockets = Sockets::open(source.config(), &mut inherited)?;
    inherited.close_rest();
    let running = Running::start(&source, &sockets, budget, inherited.is_handover()).await?;
    if let Source::Demo(demo) = &source {
        demo.print_what_to_try(&sockets.addresses());
    }
    inherited.report_ready();
    notify::send("READY=1");
    loop {
        match signals.next().await {
            Signal::Reload => {
                tracing::info!("received SIGHUP, reloading the configuration and the rules");
                running.decider.live().reload();
            }
            Signal::ReopenLog => {
                if let Some(access_log) = &running.access_log {
                    access_log.reopen();
                }
            }
            Signal::Restart => {
                let restarted = tokio::select! {
                    restarted = handover.start_successor(&sockets) => restarted,
                    () = signals.stop() => break,
                };
                match restarted {
                    Ok(pid) => {
                        tracing::info!(
                            pid,
                            "restarted: the new process has the sockets, shutting down this one"
                        );
                        notify::send(&format!("MAINPID={pid}"));
                        drop(sockets);
                        return running.hand_over(&mut signals).await;
                    }
                    Err(why) => {
                        tracing::error!("restart failed, this process keeps serving: {why}");
                    }
                }
            }
            Signal::Stop => break,
        }
    }
    tracing::info!("received SIGTERM or SIGINT, shutting down");
    notify::send("STOPPING=1");
    running.stop(&mut signals, sockets).await
}

/// All that runs.
struct Running {
    decider: Decider,
    health: Arc<Health>,
    listeners: TaskTracker,
    stop_listeners: CancellationToken,
    access_log: Option<LogFile>,
    admin: TaskTracker,
    stop_admin: CancellationToken,
    watch: tokio::task::JoinHandle<()>,
    shutdown_delay: Duration,
}

impl Running {
    async fn start(
        source: &Source,
        sockets: &Sockets,
        budget: ConnectionBudget,
        is_handed_over: bool,
    ) -> Result<Self, Failure> {
        let health = Arc::new(Health::default());
        health.stalls.watch();
        let (admin_tasks, stop_admin) = (TaskTracker::new(), CancellationToken::new());
        let token = (source.config().admin.as_ref()).and_then(|admin| admin.token.as_ref());
        let admin = Admin::new(token, Arc::clone(&health));
        let admin_server = admin_server(source.config(), budget, &admin);
        let open_admin = || -> Result<(), Failure> {
            if let Some(socket) = sockets.take("admin")? {
                let (handler, stop) = (RouterHandler(admin.router()), stop_admin.clone());
                admin_tasks.spawn(server::serve(socket, admin_server.clone(), stop, handler));
            }
            Ok(())
        };
        // At once, so that health checks learn that it is not ready yet; but not while the old process still reports ready.
        if !is_handed_over {
            open_admin()?;
        }
        let (decider, config) = open_decider(source).await?;
        log_start(source, &decider, sockets);
        let mut registry = metrics::registry(&decider);
        let own = registry.sub_registry_with_prefix("tollgate");
        (admin_server.metrics).register(own.sub_registry_with_prefix("admin"));
        health.stalls.register(own);
        let decider = match &config.traces {
            Some(traces) => {
                let own = registry.sub_registry_with_prefix("tollgate");
                let tracer = Tracer::start(traces, TraceMetrics::new(own)).map_err(|error| {
                    Failure::Unavailable(format!("traces cannot be sent: {error}"))
                })?;
                decider.with_tracer(tracer)
            }
            None => decider,
        };
        let (listeners, stop_listeners) = (TaskTracker::new(), CancellationToken::new());
        let opening = listeners::Opening {
            decider: &decider,
            config: &config,
            sockets,
            budget,
            registry: &mut registry,
            tasks: &listeners,
            stop: &stop_listeners,
        };
        let access_log = opening.open_all(source)?;
        admin.show(Inside {
            decider: decider.clone(),
            registry,
            listens: sockets.addresses(),
            config: Arc::clone(&config),
        });
        health.set(Stage::Ready);
        if is_handed_over {
            open_admin()?;
        }
        tracing::info!("ready");
        Ok(Self {
            watch: tokio::spawn(watch::run(decider.clone(), Arc::clone(&health))),
            decider,
            health,
            listeners,
            stop_listeners,
            access_log,
            admin: admin_tasks,
            stop_admin,
            shutdown_delay: config.shutdown_delay,
        })
    }

    /// Shuts down: first load balancers learn of it, then no connection is accepted, then requests in flight end.
    async fn stop(self, signals: &mut Signals, sockets: Sockets) -> Result<(), Failure> {
        self.health.set(Stage::Stopping);
        let ending = async {
            tokio::time::sleep(self.shutdown_delay).await;
            drop(sockets);
            self.stop_listeners.cancel();
            self.listeners.close();
            self.listeners.wait().await;
            // Last, because health checks must still learn that it is stopping.
            self.stop_admin().await;
            self.close().await;
        };
        unless_stopped_again(signals, ending).await
    }

    /// Shuts down while another process has the sockets and answers health checks.
    async fn hand_over(self, signals: &mut Signals) -> Result<(), Failure> {
        let ending = async {
            self.stop_listeners.cancel();
            self.stop_admin.cancel();
            self.listeners.close();
            self.listeners.wait().await;
            self.stop_admin().await;
            self.close().await;
        };
        unless_stopped_again(signals, ending).await
    }

    async fn stop_admin(&self) {
        self.stop_admin.cancel();
        self.admin.close();
        self.admin.wait().await;
    }

    async fn close(&self) {
        self.watch.abort();
        if let Some(tracer) = self.decider.tracer() {
            tracer.close(CLOSE_TRACES_WITHIN).await;
        }
        if let Some(trail) = self.decider.trail() {
            let stats = trail.close(CLOSE_TRAIL_WITHIN).await;
            let (written, lost) = (stats.written, stats.lost);
            tracing::info!(written, lost, "closed the audit trail");
        }
        tracing::info!("shut down");
    }
}

async fn unless_stopped_again(
    signals: &mut Signals,
    ending: impl Future<Output = ()>,
) -> Result<(), Failure> {
    tokio::select! {
        () = ending => Ok(()),
        () = signals.stop() => {
            let why = "received a second signal: stopped at once, requests in flight were cut";
            Err(Failure::Unavailable(why.to_owned()))
        }
    }
}

/// How the admin listener serves, if there is one.
fn admin_server(config: &Config, budget: ConnectionBudget, admin: &Admin) -> ServerConfig {
    let default = ServerConfig::default();
    let limits = (config.admin.as_ref()).map(|config| config.connections.within(budget.admin));
    ServerConfig {
        max_connections: limits.map_or(default.max_connections, |limits| limits.max_connections),
        per_address: limits.map_or(default.per_address, |limits| limits.per_address),
        exempt: admin.exempt_addresses(),
        drain: DRAIN_ADMIN,
        ..default
    }
}

/// The policy, the store and the audit trail together.
async fn open_decider(source: &Source) -> Result<(Decider, Arc<Config>), Failure> {
    let (live, config) = match source {
        Source::File { file, .. } => {
            Live::start(LiveConfig::of(file))
                .await
                .map_err(|error| match error {
                    StartError::Wrong(problems) => invalid(file, &problems),
                    other => Failure::Unavailable(other.to_string()),
                })?
        }
        Source::Demo(demo) => {
            let config = demo.config();
            (
                Live::fixed(config.policy.policy()),
                Arc::new(config.clone()),
            )
        }
    };
    let limiter = decider::limiter(&config.store)
        .map_err(|error| Failure::BadInput(format!("the store cannot be used: {error}")))?;
    examination::begin(&config.store);
    let trail = match (&config.audit, &config.database) {
        (Some(audit), Some(settings)) => {
            Some(start_trail(settings.url.expose(), audit.clone()).await?)
        }
        _ => None,
    };
    Ok((Decider::new(live, limiter, trail), config))
}

/// The failure of a configuration with these problems.
pub(crate) fn invalid(file: &Path, problems: &str) -> Failure {
    let (file, problems) = (file.display(), problems.trim_end());
    Failure::BadInput(format!("{file} is not valid:\n{problems}"))
}

/// An unreachable database prevents no start, because limits are what the program is for.
async fn start_trail(url: &str, audit: AuditConfig) -> Result<Trail, Failure> {
    match Database::open(url).await {
        Ok(database) => Ok(Trail::start(database, audit)),
        Err(error) if error.is_bad_input() => Err(error.into()),
        Err(_) => Ok(Trail::start_at(url.to_owned(), audit)),
    }
}

fn log_start(source: &Source, decider: &Decider, sockets: &Sockets) {
    let config = source.config();
    if let Source::File { warnings, .. } = source
        && !warnings.is_empty()
    {
        tracing::warn!("in the configuration:\n{}", warnings.trim_end());
    }
    let store = match &config.store {
        StoreConfig::Memory(_) => "memory, for this process alone".to_owned(),
        StoreConfig::Redis(redis) => redis.url.to_string(),
    };
    let policy = decider.policy();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        store,
        audit = decider.trail().is_some(),
        generation = policy.generation(),
        rules = policy.rules().rules().count(),
        "starting"
    );
    for (listener, address) in sockets.addresses() {
        tracing::info!(listener, %address, "listening");
    }
    if sockets.addresses().is_empty() {
        tracing::warn!(
            "nothing to serve: the configuration has no gateway, service or admin section"
        );
    }
}
