//! The running program: its listeners, from the first socket to the last request.
//!
//! All sockets are opened before anything runs, so an address in use fails the start. Then the policy takes effect and the
//! listeners open; signals reload, restart or stop the program. [`sockets`] is the one place that lists the listeners.

mod connection_budget;
mod demo;
mod handover;
mod monitor;
mod sockets;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tollgate::store::RedisStore;
use tollgate_config::{AuditConfig, Config, StoreConfig};
use tollgate_http::server::{self, ServerConfig};

use crate::admin::{Admin, Health, Program, Stage};
use crate::audit::Trail;
use crate::database::Database;
use crate::decider::{self, Decider};
use crate::failure::Failure;
use crate::gateway::LogFile;
use crate::live::{Live, LiveConfig};
use crate::metrics;
use crate::traces::{TraceMetrics, Tracer};
use connection_budget::ConnectionBudget;
pub(crate) use demo::Demo;
use handover::Handover;
pub(crate) use sockets::Inherited;
use sockets::RouterHandler;
use sockets::Sockets;

/// How long the last audit records may take to be written at shutdown.
const CLOSE_TRAIL_WITHIN: Duration = Duration::from_secs(10);

/// How long the last traces may take to be sent at shutdown.
const CLOSE_TRACES_WITHIN: Duration = Duration::from_secs(5);

/// How long admin requests may take to end at shutdown.
const DRAIN_ADMIN: Duration = Duration::from_secs(5);

/// Pause before an unreachable store is examined again.
const EXAMINE_AGAIN_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) enum ConfigSource {
    /// A file, with its configuration when it was first read, and the warnings about it.
    File {
        file: PathBuf,
        config: Box<Config>,
        warnings: String,
    },
    Demo(Demo),
}

impl ConfigSource {
    pub(crate) fn config(&self) -> &Config {
        match self {
            Self::File { config, .. } => config,
            Self::Demo(demo) => demo.config(),
        }
    }
}

/// Serves until a signal stops the program.
pub(crate) async fn run(source: ConfigSource, mut inherited: Inherited) -> Result<(), Failure> {
    let handover = Handover::of_this_program();
    // Before anything slow, so that an early signal does not kill the program.
    let mut signals = Signals::listen()
        .map_err(|error| Failure::Unavailable(format!("cannot handle signals: {error}")))?;
    let budget = ConnectionBudget::within_limit(source.config());
    let sockets = Sockets::open(source.config(), &mut inherited)?;
    inherited.close_rest();
    let running = Running::start(&source, &sockets, budget, inherited.is_handover()).await?;
    if let ConfigSource::Demo(demo) = &source {
        demo.print_what_to_try(&sockets.addresses());
    }
    inherited.report_ready();
    notify(NotifyState::Ready);
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
                        notify(NotifyState::MainPid(pid));
                        drop(sockets);
                        return running.shut_down(&mut signals, None).await;
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
    notify(NotifyState::Stopping);
    running.shut_down(&mut signals, Some(sockets)).await
}

/// Notifies systemd, if it started the program.
fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "failed to notify systemd");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    /// SIGHUP: reload the configuration.
    Reload,
    /// SIGUSR1: reopen the access log.
    ReopenLog,
    /// SIGUSR2: start a new process and hand the sockets over.
    Restart,
    /// SIGTERM, SIGINT: shut down.
    Stop,
}

#[derive(Debug)]
struct Signals(Vec<(SignalStream, Signal)>);

impl Signals {
    fn listen() -> io::Result<Self> {
        let signals = [
            (SignalKind::hangup(), Signal::Reload),
            (SignalKind::user_defined1(), Signal::ReopenLog),
            (SignalKind::user_defined2(), Signal::Restart),
            (SignalKind::terminate(), Signal::Stop),
            (SignalKind::interrupt(), Signal::Stop),
        ];
        let signals = signals.map(|(kind, what)| Ok((signal(kind)?, what)));
        Ok(Self(signals.into_iter().collect::<io::Result<_>>()?))
    }

    async fn next(&mut self) -> Signal {
        self.next_of(|_| true).await
    }

    /// Waits for a signal that stops the program. Others stay pending.
    async fn stop(&mut self) {
        self.next_of(|signal| signal == Signal::Stop).await;
    }

    async fn next_of(&mut self, is_wanted: impl Fn(Signal) -> bool) -> Signal {
        std::future::poll_fn(|context| {
            let mut wanted = self.0.iter_mut().filter(|(_, what)| is_wanted(*what));
            let arrived =
                wanted.find_map(|(it, what)| it.poll_recv(context).is_ready().then_some(*what));
            arrived.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Tasks that are stopped together.
#[derive(Debug, Default)]
struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    async fn end(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

struct Running {
    decider: Decider,
    health: Arc<Health>,
    listeners: Tasks,
    access_log: Option<LogFile>,
    admin: Tasks,
    monitor: tokio::task::JoinHandle<()>,
    shutdown_delay: Duration,
}

impl Running {
    async fn start(
        source: &ConfigSource,
        sockets: &Sockets,
        budget: ConnectionBudget,
        is_handed_over: bool,
    ) -> Result<Self, Failure> {
        let health = Arc::new(Health::default());
        health.stalls.watch();
        let admin_tasks = Tasks::default();
        let token = (source.config().admin.as_ref()).and_then(|admin| admin.token.as_ref());
        let admin = Admin::new(token, Arc::clone(&health));
        let admin_server = admin_server(source.config(), budget, &admin);
        let open_admin = || -> Result<(), Failure> {
            if let Some(socket) = sockets.take("admin")? {
                let (handler, stop) = (RouterHandler(admin.router()), admin_tasks.stop.clone());
                let serving = server::serve(socket, admin_server.clone(), stop, handler);
                admin_tasks.tracker.spawn(serving);
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
                let tracer = Tracer::start(traces, TraceMetrics::new(own));
                let cannot = |error| Failure::Unavailable(format!("cannot send traces: {error}"));
                decider.with_tracer(tracer.map_err(cannot)?)
            }
            None => decider,
        };
        let listeners = Tasks::default();
        let opening = sockets::Opening {
            decider: &decider,
            config: &config,
            sockets,
            budget,
            registry: &mut registry,
            tasks: &listeners,
        };
        let access_log = opening.open_all(source)?;
        admin.open(Program {
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
            monitor: tokio::spawn(monitor::run(decider.clone(), Arc::clone(&health))),
            decider,
            health,
            listeners,
            access_log,
            admin: admin_tasks,
            shutdown_delay: config.shutdown_delay,
        })
    }

    /// Shuts down, at once if another signal arrives. Load balancers learn of it first, unless another process has the sockets and answers
    /// health checks.
    async fn shut_down(
        self,
        signals: &mut Signals,
        sockets: Option<Sockets>,
    ) -> Result<(), Failure> {
        let shutting_down = async {
            match sockets {
                Some(sockets) => {
                    self.health.set(Stage::Stopping);
                    tokio::time::sleep(self.shutdown_delay).await;
                    drop(sockets);
                }
                None => self.admin.stop.cancel(),
            }
            self.listeners.end().await;
            // Last, because health checks must still learn that it is stopping.
            self.admin.end().await;
            self.close().await;
        };
        tokio::select! {
            () = shutting_down => Ok(()),
            () = signals.stop() => {
                let why = "received a second signal: stopped at once, requests in flight were cut";
                Err(Failure::Unavailable(why.to_owned()))
            }
        }
    }

    async fn close(&self) {
        self.monitor.abort();
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
async fn open_decider(source: &ConfigSource) -> Result<(Decider, Arc<Config>), Failure> {
    let (live, config) = match source {
        ConfigSource::File { file, .. } => {
            let started = Live::start(LiveConfig::of(file)).await;
            started.map_err(|error| error.into_failure(file))?
        }
        ConfigSource::Demo(demo) => {
            let config = Arc::new(demo.config().clone());
            (Live::fixed(config.policy.policy()), config)
        }
    };
    let limiter = decider::limiter(&config.store)
        .map_err(|error| Failure::BadInput(format!("the store cannot be used: {error}")))?;
    if let StoreConfig::Redis(redis) = &config.store
        // A connection of its own, which is closed afterwards.
        && let Ok(store) = RedisStore::open(redis.url.expose(), redis.config.clone())
    {
        tokio::spawn(examine(store));
    }
    let trail = match (&config.audit, &config.database) {
        (Some(audit), Some(settings)) => {
            Some(start_trail(settings.url.expose(), audit.clone()).await?)
        }
        _ => None,
    };
    Ok((Decider::new(live, limiter, trail), config))
}

/// Warns of settings of the store that would break guarantees.
async fn examine(store: RedisStore) {
    loop {
        // An unreachable store is reported by those who use it.
        if let Ok(warnings) = store.examine().await {
            for warning in warnings {
                tracing::warn!(%warning, "the store may break guarantees");
            }
            return;
        }
        tokio::time::sleep(EXAMINE_AGAIN_AFTER).await;
    }
}

/// Starts the audit trail. An unreachable database prevents no start, because limits are what the program is for.
async fn start_trail(url: &str, audit: AuditConfig) -> Result<Trail, Failure> {
    match Database::open(url).await {
        Ok(database) => Ok(Trail::start(database, audit)),
        Err(error) if error.is_bad_input() => Err(error.into()),
        Err(_) => Ok(Trail::start_at(url.to_owned(), audit)),
    }
}

fn log_start(source: &ConfigSource, decider: &Decider, sockets: &Sockets) {
    if let ConfigSource::File { warnings, .. } = source
        && !warnings.is_empty()
    {
        tracing::warn!("in the configuration:\n{}", warnings.trim_end());
    }
    let store = match &source.config().store {
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
