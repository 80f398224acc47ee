//! A payment API behind four gateways that share one Redis: merchants with plans, a flood from a sandbox, a batch job at every boundary of
//! the minute, and a Redis that is killed and comes back with nothing.
//!
//! [`run`] plays it and says what happened; `report` writes it down. The gateways are the program itself, four processes of it; what was admitted is what
//! reached the [`processor`] behind them, and the referee judges that.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a rehearsal without its servers is to stop at once"
)]

pub mod gateways;
pub mod merchants;
pub mod processor;
pub mod report;
pub mod tiers;
pub mod traffic;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tollgate_testing::servers::RedisServer;

use gateways::{Deciders, Gateways};
use processor::Processor;
use tiers::Finding;
use traffic::{Caller, Sent};

/// How long everything takes.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The program `tollgate`.
    pub tollgate: PathBuf,
    /// How long each phase is.
    pub phase: Duration,
    /// The batch job runs around every multiple of this.
    pub batch_every: Duration,
    /// Settings of the store beside its address, such as `deadline: 1s`. Empty for the defaults.
    pub store: &'static str,
}

/// What is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Without the sandbox's flood.
    Quiet,
    /// With it, and Redis is there.
    Before,
    /// Redis was killed.
    Away,
    /// It is back, with nothing in it.
    After,
}

impl Phase {
    /// In order of time.
    pub const ALL: [Self; 4] = [Self::Quiet, Self::Before, Self::Away, Self::After];

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Quiet => "no flood",
            Self::Before => "flood",
            Self::Away => "flood, Redis away",
            Self::After => "flood, Redis back",
        }
    }
}

/// What happened.
#[derive(Debug)]
pub struct Outcome {
    /// Every request, as its merchant saw it.
    pub sent: Vec<Sent>,
    /// What the referee found, for each tier of each merchant.
    pub findings: Vec<Finding>,
    /// Who decided, in each phase.
    pub deciders: Vec<(Phase, Deciders)>,
    /// When Redis was killed and when it was back, since the start.
    pub away: (Duration, Duration),
}

/// Plays it, and calls `progress` at the beginning of each phase.
///
/// # Panics
/// If something cannot be started, or ends too early.
#[must_use]
pub fn run(setting: &Setting, mut progress: impl FnMut(Phase)) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let start = Instant::now();
    let processor = runtime.block_on(Processor::start(start));
    let mut redis = RedisServer::start();
    let gateways = Gateways::start(setting, &redis.url(), processor.address());

    let mut sent = Vec::new();
    let mut deciders = Vec::new();
    let mut away = (Duration::ZERO, Duration::ZERO);
    for phase in Phase::ALL {
        progress(phase);
        match phase {
            Phase::Away => {
                redis.kill();
                away.0 = start.elapsed();
            }
            Phase::After => {
                redis.restart();
                away.1 = start.elapsed();
            }
            Phase::Quiet | Phase::Before => {}
        }
        let caller = Caller {
            start,
            phase,
            until: Instant::now() + setting.phase,
            batch_every: setting.batch_every,
        };
        let earlier = gateways.deciders();
        sent.extend(runtime.block_on(traffic::go_on(caller, gateways.addresses())));
        deciders.push((phase, gateways.deciders().since(earlier)));
    }
    drop(gateways);
    Outcome {
        sent,
        findings: tiers::judge(&processor.admissions()),
        deciders,
        away,
    }
}

impl Outcome {
    /// The share of a merchant's requests that were admitted, in these phases.
    #[must_use]
    pub fn admitted_share(&self, merchant: &str, phases: &[Phase]) -> f64 {
        let of_it = (self.sent.iter())
            .filter(|sent| sent.merchant == merchant && phases.contains(&sent.phase));
        let (mut all, mut admitted) = (0, 0);
        for sent in of_it {
            all += 1;
            admitted += u32::from(sent.is_admitted());
        }
        f64::from(admitted) / f64::from(all.max(1))
    }

    /// The finding that came closest to its bound, or went beyond.
    ///
    /// # Panics
    /// If nothing was admitted at all.
    #[must_use]
    pub fn worst(&self) -> &Finding {
        let by_use =
            |one: &&Finding, other: &&Finding| one.use_of_bound().total_cmp(&other.use_of_bound());
        self.findings
            .iter()
            .max_by(by_use)
            .expect("nothing was admitted")
    }
}
