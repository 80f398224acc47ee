//! The program as it runs: its doors, from the first socket to the last request.
//!
//! All sockets are there before anything runs, so that an address in use fails the start. Then the policy comes in force and the doors
//! open; signals reload, restart or stop it all. [`doors`] is the one place that lists the doors.

mod doors;
mod examination;
mod handover;
mod notify;
mod signals;
mod sockets;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::{Admin, Health, Inside, Stage};
use crate::audit::{Trail, TrailConfig};
use crate::failure::Failure;
use crate::commands::serve::wrong;
use tollgate_config::{AuditConfig, Config, StoreConfig};
use crate::database::Database;
use crate::serve::Demo;
use crate::serve::connection_budget::{self, Connections};
use crate::decider::{self, Decider};
use crate::gateway::LogFile;
use crate::listen::{self, ListenConfig};
use crate::live::{Live, LiveConfig, StartError};
use crate::metrics;
use crate::traces::{TraceMetrics, Tracer};
use handover::Handover;
use signals::{Signal, Signals};
pub(crate) use sockets::Inherited;
use sockets::Sockets;

/// How long what was noted may take to be written at the end.
const CLOSE_TRAIL_WITHIN: Duration = Duration::from_secs(10);

/// How long the last traces may take to be sent at the end.
const CLOSE_TRACES_WITHIN: Duration = Duration::from_secs(5);

/// What to serve by.
#[derive(Debug)]
pub(crate) enum Source {
    /// A file, with the configuration that it had when it was looked at first, and what is surely not meant in it.
    File {
        file: PathBuf,
        config: Box<Config>,
        warnings: String,
    },
    /// What is built in.
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

/// Everything that a start needs.
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

/// Serves until a signal ends it.
pub(crate) async fn run(start: Start) -> Result<(), Failure> {
    let Start {
        source,
        mut inherited,
        handover,
    } = start;
    // First, so that nobody who signals early ends the program.
    let mut signals = Signals::hear()
        .map_err(|error| Failure::Unavailable(format!("cannot hear signals: {error}")))?;
    let connections = connections_within_limit(source.config());
    let sockets = Sockets::open(source.config(), &mut inherited)?;
    inherited.close_rest();
    let running = Running::start(&source, &sockets, connections, inherited.is_handover()).await?;
    if let Source::Demo(demo) = &source {
        demo.say_what_to_try(&sockets.addresses());
    }
    inherited.say_ready();
    notify::tell("READY=1");
    loop {
        match signals.next().await {
            Signal::Reload => {
                tracing::info!("looking at the configuration and the database again, as told");
                running.door.live().look_again();
            }
            Signal::ReopenLog => {
                if let Some(access_log) = &running.access_log {
                    access_log.reopen();
                }
            }
            Signal::Restart => {
                let restarted = tokio::select! {
                    restarted = handover.start_anew(&sockets) => restarted,
                    () = signals.stop() => break,
                };
                match restarted {
                    Ok(pid) => {
                        tracing::info!(
                            pid,
                            "the new program is ready: it has the sockets, and this one ends"
                        );
                        notify::tell(&format!("MAINPID={pid}"));
                        drop(sockets);
                        return running.hand_over(&mut signals).await;
                    }
                    Err(why) => {
                        tracing::error!("the restart failed, and this program goes on: {why}");
                    }
                }
            }
            Signal::Stop => break,
        }
    }
    tracing::info!("stopping, as told");
    notify::tell("STOPPING=1");
    running.stop(&mut signals, sockets).await
}

/// What runs.
struct Running {
    door: Decider,
    health: Arc<Health>,
    doors: TaskTracker,
    stop_doors: CancellationToken,
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
        connections: Connections,
        is_handed_over: bool,
    ) -> Result<Self, Failure> {
        let health = Arc::new(Health::default());
        health.stalls.watch();
        let (admin_tasks, stop_admin) = (TaskTracker::new(), CancellationToken::new());
        let token = source
            .config()
            .admin
            .as_ref()
            .and_then(|admin| admin.token.as_ref());
        let admin = Admin::new(token, Arc::clone(&health));
        let listening = admin_listener(source.config(), connections, &admin);
        let open_admin = || -> Result<(), Failure> {
            if let Some(socket) = sockets.take("admin")? {
                let (router, stop) = (admin.router(), stop_admin.clone());
                admin_tasks.spawn(listen::serve(socket, listening.clone(), stop, router));
            }
            Ok(())
        };
        // At once, so that whoever asks hears that it is not ready yet; unless somebody else still answers that it is.
        if !is_handed_over {
            open_admin()?;
        }
        let (door, config) = open_door(source).await?;
        say_start(source, &door, sockets);
        let mut registry = metrics::registry(&door);
        let own = registry.sub_registry_with_prefix("tollgate");
        (listening.metrics).register(own.sub_registry_with_prefix("admin"));
        health.stalls.register(own);
        let door = match &config.traces {
            Some(traces) => {
                let own = registry.sub_registry_with_prefix("tollgate");
                let tracer = Tracer::start(traces, TraceMetrics::new(own)).map_err(|error| {
                    Failure::Unavailable(format!("traces cannot be sent: {error}"))
                })?;
                door.with_tracer(tracer)
            }
            None => door,
        };
        let (doors, stop_doors) = (TaskTracker::new(), CancellationToken::new());
        let opening = doors::Opening {
            door: &door,
            config: &config,
            sockets,
            connections,
            registry: &mut registry,
            tasks: &doors,
            stop: &stop_doors,
        };
        let access_log = opening.open_all(source)?;
        admin.show(Inside {
            door: door.clone(),
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
            watch: tokio::spawn(watch::run(door.clone(), Arc::clone(&health))),
            door,
            health,
            doors,
            stop_doors,
            access_log,
            admin: admin_tasks,
            stop_admin,
            shutdown_delay: config.shutdown_delay,
        })
    }

    /// The end: first nobody is sent here any more, then nobody is let in, then everybody has gone.
    async fn stop(self, signals: &mut Signals, sockets: Sockets) -> Result<(), Failure> {
        self.health.set(Stage::Stopping);
        let ending = async {
            tokio::time::sleep(self.shutdown_delay).await;
            drop(sockets);
            self.stop_doors.cancel();
            self.doors.close();
            self.doors.wait().await;
            // Last: whoever asks hears that it is stopping.
            self.end_admin().await;
            self.close().await;
        };
        at_once_if_told_again(signals, ending).await
    }

    /// The end of one whose sockets another has: whoever asks is to be answered by that one from now on.
    async fn hand_over(self, signals: &mut Signals) -> Result<(), Failure> {
        let ending = async {
            self.stop_doors.cancel();
            self.stop_admin.cancel();
            self.doors.close();
            self.doors.wait().await;
            self.end_admin().await;
            self.close().await;
        };
        at_once_if_told_again(signals, ending).await
    }

    async fn end_admin(&self) {
        self.stop_admin.cancel();
        self.admin.close();
        self.admin.wait().await;
    }

    async fn close(&self) {
        self.watch.abort();
        if let Some(tracer) = self.door.tracer() {
            tracer.close(CLOSE_TRACES_WITHIN).await;
        }
        if let Some(trail) = self.door.trail() {
            let stats = trail.close(CLOSE_TRAIL_WITHIN).await;
            let (written, lost) = (stats.written, stats.lost);
            tracing::info!(written, lost, "the audit trail is closed");
        }
        tracing::info!("stopped");
    }
}

async fn at_once_if_told_again(
    signals: &mut Signals,
    ending: impl Future<Output = ()>,
) -> Result<(), Failure> {
    tokio::select! {
        () = ending => Ok(()),
        () = signals.stop() => {
            let why = "ended at once, as told a second time: requests under way were cut";
            Err(Failure::Unavailable(why.to_owned()))
        }
    }
}

/// How many connections each listener may have: as configured, or fewer if the system allows too few file descriptors.
fn connections_within_limit(config: &Config) -> Connections {
    let gateway = config.gateway.as_ref();
    let of_upstream =
        |upstream: &Upstream| upstream.max_connections.saturating_mul(upstream.to.len());
    let configured = Connections {
        gateway: gateway.map_or(0, |gateway| gateway.front.connections.max_connections),
        upstreams: gateway.map_or(0, |gateway| {
            (gateway.upstreams.iter().map(of_upstream)).fold(0, usize::saturating_add)
        }),
        service: (config.service.as_ref()).map_or(0, |service| service.connections.max_connections),
        admin: (config.admin.as_ref()).map_or(0, |admin| admin.connections.max_connections),
    };
    let Some(limit) = descriptors::raise_limit() else {
        return configured;
    };
    let fitted = configured.fitted_to(limit);
    if fitted != configured {
        tracing::warn!(
            limit,
            needed = configured.descriptors(),
            gateway_connections = fitted.gateway,
            service_connections = fitted.service,
            "the limit on file descriptors is too low for the configuration, so fewer connections are accepted; raise it \
             (LimitNOFILE= in systemd, ulimit -n in a shell) or lower max_connections"
        );
    }
    fitted
}

/// How the admin interface listens, if there is one.
fn admin_listener(config: &Config, connections: Connections, admin: &Admin) -> ListenConfig {
    let default = ListenConfig::default();
    let limits = (config.admin.as_ref()).map(|config| config.connections.within(connections.admin));
    ListenConfig {
        most_connections: limits.map_or(default.most_connections, |limits| limits.max_connections),
        most_per_address: limits.map_or(default.most_per_address, |limits| limits.per_address),
        uncounted: admin.uncounted(),
        drain: Duration::from_secs(5),
        ..default
    }
}

/// The policy, the store and the audit trail together.
async fn open_door(source: &Source) -> Result<(Decider, Arc<Config>), Failure> {
    let (live, config) = match source {
        Source::File { file, .. } => {
            Live::start(LiveConfig::of(file))
                .await
                .map_err(|error| match error {
                    StartError::Wrong(problems) => wrong(file, &problems),
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
    let limiter = door::limiter(&config.store)
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

/// A database that is away keeps nobody from starting: limits are what the program is for.
async fn start_trail(url: &str, audit: TrailConfig) -> Result<Trail, Failure> {
    match Database::open(url).await {
        Ok(database) => Ok(Trail::start(database, audit)),
        Err(error) if error.is_bad_input() => Err(error.into()),
        Err(_) => Ok(Trail::start_at(url.to_owned(), audit)),
    }
}

/// What whoever starts it wants to know.
fn say_start(source: &Source, door: &Decider, sockets: &Sockets) {
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
    let policy = door.policy();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        store,
        audit = door.trail().is_some(),
        generation = policy.generation(),
        rules = policy.rules().rules().count(),
        "starting"
    );
    for (name, address) in sockets.addresses() {
        tracing::info!(door = name, %address, "listening");
    }
    if sockets.addresses().is_empty() {
        tracing::warn!("nothing listens: the configuration has neither gateway, service nor admin");
    }
}
