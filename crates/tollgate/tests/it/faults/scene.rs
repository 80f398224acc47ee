//! Limiters on one store, callers who go on and on whatever becomes of it, and what the referee and a watch say about that.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use tokio::runtime::{Builder, Runtime};
use tollgate::store::{RedisConfig, RedisStore};
use tollgate::{Decision, Instances, Limit, Limiter, Rule, SharedConfig, SharedStats, Source};
use tollgate_referee::{Bound, Log};

use crate::panics::Witness;
use crate::server::Server;
use crate::support::limit;

const CALLERS: usize = 16;
pub(super) const BURST: u64 = 100;
const PER_SECOND: u64 = 200;
/// What the store lets through.
pub(super) const STORE: (u64, u64) = (BURST, PER_SECOND);
/// What the store and all instances without it let through together, whenever and however often it fails.
pub(super) const STORE_AND_LOCAL: (u64, u64) = (BURST * 18 / 10, PER_SECOND * 18 / 10);
/// The same, and a server that forgot what was used.
pub(super) const AND_ONE_FORGOTTEN: (u64, u64) = (STORE_AND_LOCAL.0 + BURST, STORE_AND_LOCAL.1);

/// So soon after a fault the store is not asked any more.
const BREAKER_OPENS_WITHIN: Duration = Duration::from_secs(1);
/// So much longer than the deadline may callers wait, all but one of a thousand.
const BEYOND_THE_DEADLINE: Duration = Duration::from_millis(5);
/// Set by `make faults`, which runs one test at a time: beside others, what callers wait says how busy the machine is.
const IS_ALONE: &str = "TOLLGATE_FAULTS_ALONE";

/// Limiters that share one store.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    /// How many there are, and each is told that.
    pub(super) instances: usize,
    pub(super) deadline: Duration,
}

/// One limiter, with a deadline long enough for a busy machine and short enough for many in a test.
pub(super) const ONE: Setup = Setup {
    instances: 1,
    deadline: Duration::from_millis(150),
};
/// Several, judged together.
pub(super) const SEVERAL: Setup = Setup {
    instances: 3,
    ..ONE
};
/// For tests in which the store never fails, however busy the machine is.
pub(super) const PATIENT: Setup = Setup {
    deadline: Duration::from_secs(10),
    ..ONE
};

/// One decision, as the caller saw it.
pub(super) struct Seen {
    /// Which of the limiters decided.
    pub(super) by: usize,
    pub(super) began: Instant,
    took: Duration,
    at_us: u64,
    allowed: bool,
    pub(super) source: Source,
    /// Whether it met the log that is judged by itself.
    pub(super) is_logged: bool,
}

impl Seen {
    fn new(by: usize, began: Instant, decision: &Decision) -> Self {
        let at = decision.at().duration_since(UNIX_EPOCH).unwrap();
        Self {
            by,
            began,
            took: began.elapsed(),
            at_us: u64::try_from(at.as_micros()).unwrap(),
            allowed: decision.allowed(),
            source: decision.source(),
            is_logged: false,
        }
    }

    pub(super) fn is_by_store(&self) -> bool {
        matches!(self.source, Source::Store | Source::Remembered)
    }
}

/// Where the limiters' tasks run. None of them may panic: callers would be decided without the store, and nobody would hear of it.
pub(super) struct Watched {
    runtime: Runtime,
    /// Behind the runtime, so that it speaks when all of them have ended.
    _witness: Witness,
}

impl Deref for Watched {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        &self.runtime
    }
}

pub(super) fn runtime() -> Watched {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let threads = format!("fault-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let mut builder = Builder::new_multi_thread();
    Watched {
        runtime: (builder.worker_threads(2).thread_name(&threads))
            .enable_all()
            .build()
            .unwrap(),
        _witness: Witness::of(&threads),
    }
}

/// What callers ask for.
#[derive(Clone, Copy)]
enum Load {
    /// All of one key.
    OneKey,
    /// Whatever this asks the limiter for; and whether that met the log that is judged by itself.
    Own(fn(&Limiter) -> Asked<'_>),
}

pub(super) type Asked<'a> = std::pin::Pin<Box<dyn Future<Output = (Decision, bool)> + Send + 'a>>;

pub(super) struct Scene {
    pub(super) runtime: Watched,
    limiters: Vec<Arc<Limiter>>,
    setup: Setup,
    load: Load,
    pub(super) seen: Vec<Seen>,
}

impl Scene {
    /// Limiters whose store is at this address.
    pub(super) fn at(runtime: Watched, url: &str, setup: Setup) -> Self {
        let limiters = (0..setup.instances).map(|_| {
            let config = RedisConfig::default().deadline(setup.deadline);
            let store = RedisStore::open(url, config).unwrap();
            let config = SharedConfig::default()
                .instances(Instances::Fixed(u32::try_from(setup.instances).unwrap()));
            Arc::new(Limiter::builder(store).shared(config).build())
        });
        Self {
            limiters: limiters.collect(),
            runtime,
            setup,
            load: Load::OneKey,
            seen: Vec::new(),
        }
    }

    pub(super) fn before(server: &Server, setup: Setup) -> Self {
        Self::at(runtime(), &server.url(), setup)
    }

    /// With these rules, and callers who ask by them.
    pub(super) fn with_load<const N: usize>(
        mut self,
        rules: impl Fn() -> [Rule; N],
        load: fn(&Limiter) -> Asked<'_>,
    ) -> Self {
        let with_rules = |limiter: Arc<Limiter>| {
            let limiter = Arc::into_inner(limiter).unwrap();
            Arc::new(limiter.with_rules(rules()).unwrap())
        };
        self.limiters = self.limiters.into_iter().map(with_rules).collect();
        self.load = Load::Own(load);
        self
    }

    /// Many callers go on and on for a while.
    pub(super) fn go_on_for(&mut self, time: Duration) -> &[Seen] {
        self.go_on_during(|| std::thread::sleep(time)).0
    }

    /// Many callers go on and on while this happens.
    pub(super) fn goes_on_during(&mut self, happens: impl FnOnce()) {
        self.go_on_during(happens);
    }

    /// Many callers go on and on while something happens.
    fn go_on_during<T>(&mut self, happens: impl FnOnce() -> T) -> (&[Seen], T) {
        let from = self.seen.len();
        let is_over = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let by = caller % self.limiters.len();
                let (limiter, is_over) = (Arc::clone(&self.limiters[by]), Arc::clone(&is_over));
                (self.runtime).spawn(call_until(by, limiter, self.load, is_over))
            })
            .collect();
        let happened = happens();
        is_over.store(true, Ordering::Relaxed);
        self.runtime.block_on(async {
            for caller in callers {
                // A panic in a caller is a panic here.
                self.seen.extend(caller.await.unwrap());
            }
        });
        (&self.seen[from..], happened)
    }

    /// Goes on while this comes over the store: within a second no limiter asks it any more.
    pub(super) fn goes_on_without_the_store(&mut self, trouble: impl FnOnce()) {
        let a_while = Duration::from_millis(500);
        let limiters = self.limiters.clone();
        let struck = self.strike(trouble, |struck| {
            let rest = (struck + BREAKER_OPENS_WITHIN).saturating_duration_since(Instant::now());
            std::thread::sleep(rest);
            let before = missed_deadlines(&limiters);
            std::thread::sleep(a_while);
            // On a busy machine, each caller may still wait for the decision it asked for before.
            let waited = missed_deadlines(&limiters) - before;
            assert!(waited <= CALLERS as u64, "{waited} requests waited");
        });
        // What was on its way when it began may still be the store's word; from a second on nothing is.
        let mut late = (self.seen.iter())
            .filter(|seen| seen.began > struck + BREAKER_OPENS_WITHIN)
            .peekable();
        assert!(late.peek().is_some());
        assert!(late.all(|seen| seen.source == Source::Local));
    }

    /// Goes on while this comes over the store, until no limiter asks it any more, which is within a second.
    pub(super) fn goes_on_until_the_breakers_open(&mut self, trouble: impl FnOnce()) {
        self.strike(trouble, |_| {});
    }

    /// Trouble in the midst of what callers do, and what comes after that and all breakers are open, which is soon. Says when it began.
    fn strike(&mut self, trouble: impl FnOnce(), then: impl FnOnce(Instant)) -> Instant {
        let limiters = self.limiters.clone();
        let before = opened(&limiters);
        let (_, struck) = self.go_on_during(|| {
            // So that there are calls on their way.
            std::thread::sleep(Duration::from_millis(50));
            let struck = Instant::now();
            std::thread::scope(|scope| {
                let watch = scope.spawn(|| wait_for_breakers(&limiters, &before, struck));
                trouble();
                watch.join().unwrap();
            });
            then(struck);
            struck
        });
        struck
    }

    /// Goes on until the store decides again, for every limiter.
    pub(super) fn go_on_until_the_store_is_back(&mut self) {
        let patience = Instant::now() + Duration::from_secs(20);
        let instances = self.limiters.len();
        loop {
            let seen = self.go_on_for(Duration::from_millis(200));
            let is_back = |by: usize| {
                let last = (seen.iter().filter(|seen| seen.by == by)).max_by_key(|seen| seen.began);
                last.is_some_and(Seen::is_by_store)
            };
            if (0..instances).all(is_back) {
                return;
            }
            assert!(Instant::now() < patience, "the store was never asked again");
        }
    }

    /// The referee's word on all limiters together: never more than this burst and the rate.
    pub(super) fn admitted_no_more_than(&self, (burst, count): (u64, u64)) {
        self.kept_within(Bound::Bucket {
            burst,
            count,
            period_us: 1_000_000,
        });
    }

    pub(super) fn kept_within(&self, bound: Bound) {
        let excess = self.log().excess(bound);
        assert_eq!(excess.tokens, 0, "{excess} beyond {bound:?}");
    }

    /// How much all limiters together admitted beyond this burst and rate, in the worst interval.
    pub(super) fn excess(&self, (burst, count): (u64, u64)) -> u64 {
        let bound = Bound::Bucket {
            burst,
            count,
            period_us: 1_000_000,
        };
        self.log().excess(bound).tokens
    }

    fn log(&self) -> Log {
        let admitted = self.seen.iter().filter(|seen| seen.allowed);
        Log::new(admitted.map(|seen| (seen.at_us, 1)))
    }

    /// How many were admitted without the store.
    pub(super) fn admitted_locally(&self) -> u64 {
        let locally = |seen: &&Seen| seen.allowed && !seen.is_by_store();
        self.seen.iter().filter(locally).count() as u64
    }

    /// How often the breakers of all limiters opened.
    pub(super) fn openings(&self) -> u64 {
        opened(&self.limiters).into_iter().sum()
    }

    /// Nobody waited much longer than the deadline.
    pub(super) fn nobody_waited(&self) {
        let mut took: Vec<Duration> = self.seen.iter().map(|seen| seen.took).collect();
        took.sort_unstable();
        // Also where they would have been waited for longer, so that nothing else is in the way of what is looked at.
        let deadline = ONE.deadline.min(self.setup.deadline);
        let (most, p999) = (took[took.len() - 1], took[took.len() * 999 / 1_000]);
        eprintln!(
            "{} decisions, p99.9 {p999:?}, longest {most:?}, deadline {deadline:?}",
            took.len(),
        );
        assert!(most < ONE.deadline + Duration::from_secs(2), "{most:?}");
        if is_alone() {
            assert!(
                p999 <= deadline + BEYOND_THE_DEADLINE,
                "p99.9 is {p999:?}, longer than promised"
            );
        }
    }

    /// What the first of the limiters says.
    pub(super) fn check(&self, key: &str, limit: &Limit, cost: u64) -> Decision {
        (self.runtime).block_on(self.limiters[0].check(key, limit, cost))
    }

    /// A check for the referee's eyes, and who decided it.
    pub(super) fn see(&mut self, key: &str, limit: &Limit) -> Source {
        let began = Instant::now();
        let seen = Seen::new(0, began, &self.check(key, limit, 1));
        let source = seen.source;
        self.seen.push(seen);
        source
    }

    /// Of the first of the limiters.
    pub(super) fn stats(&self) -> SharedStats {
        self.limiters[0].shared_stats().unwrap()
    }
}

/// Whether no other test runs beside this one.
pub(super) fn is_alone() -> bool {
    std::env::var_os(IS_ALONE).is_some()
}

/// How many requests waited in vain for the store, at all of them.
fn missed_deadlines(limiters: &[Arc<Limiter>]) -> u64 {
    let missed = |limiter: &Arc<Limiter>| limiter.shared_stats().unwrap().missed_deadlines;
    limiters.iter().map(missed).sum()
}

/// How often the breaker of each has opened.
fn opened(limiters: &[Arc<Limiter>]) -> Vec<u64> {
    let stats = |limiter: &Arc<Limiter>| limiter.shared_stats().unwrap();
    limiters
        .iter()
        .map(|one| stats(one).breaker_opened)
        .collect()
}

/// Until every breaker has opened, or is still open from before: within a second.
fn wait_for_breakers(limiters: &[Arc<Limiter>], before: &[u64], struck: Instant) {
    let mut waiting: Vec<_> = limiters.iter().zip(before).collect();
    while !waiting.is_empty() {
        assert!(
            struck.elapsed() < Duration::from_secs(20),
            "a breaker never opened"
        );
        waiting.retain(|(limiter, before)| {
            let stats = limiter.shared_stats().unwrap();
            let is_open = stats.breaker_is_open || stats.breaker_opened > **before;
            if is_open {
                let after = struck.elapsed();
                eprintln!("the breaker was open after {after:?}");
                assert!(after <= BREAKER_OPENS_WITHIN, "only after {after:?}");
            }
            !is_open
        });
        std::thread::sleep(Duration::from_millis(1));
    }
}

async fn call_until(
    by: usize,
    limiter: Arc<Limiter>,
    load: Load,
    is_over: Arc<AtomicBool>,
) -> Vec<Seen> {
    let limit = the_limit();
    let mut seen = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let (decision, is_logged) = match load {
            Load::OneKey => (limiter.check("key", &limit, 1).await, false),
            Load::Own(ask) => ask(&limiter).await,
        };
        seen.push(Seen {
            is_logged,
            ..Seen::new(by, began, &decision)
        });
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    seen
}

pub(super) fn the_limit() -> Limit {
    limit(&format!("{PER_SECOND}/s burst {BURST}"))
}
