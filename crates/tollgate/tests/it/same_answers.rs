//! Memory and Redis, asked the same things one by one: their answers must not differ in anything.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};
use tollgate::store::contract::{Charge, Refund, StoreOperations as Store, Taken};
use tollgate::{Algorithm, Bucket, Dimension, Limit, ManualClock, Name, Request};

use crate::server::OwnRedis;
use crate::support::{NOON_US, clock, memory, redis, run, us};

/// `make soak` asks for more.
fn operations() -> usize {
    std::env::var("TOLLGATE_SAME_ANSWERS").map_or(20_000, |n| n.parse().unwrap())
}

/// A charge: bucket, limit, cost, and whether it is a shadow.
type Draw = (u8, Limit, u64, bool);

/// Keys, each with a bucket of its own, and one client with several.
struct Buckets {
    names: [[u8; 1]; 6],
    client: Request<'static>,
    rules: [Name; 6],
}

impl Buckets {
    fn new() -> Self {
        Self {
            names: std::array::from_fn(|i| [u8::try_from(i).unwrap()]),
            client: Request::new().client("client"),
            rules: std::array::from_fn(|i| Name::new(&format!("rule-{i}")).unwrap()),
        }
    }

    fn get(&self, key: u8) -> Bucket<'_> {
        let i = usize::from(key);
        match key % 2 {
            0 => Bucket::of_key(&self.names[i]),
            _ => Bucket::new(self.rules[i], &[Dimension::Client], &self.client),
        }
    }

    fn charges<'a>(&'a self, draws: &'a [Draw]) -> Vec<Charge<'a>> {
        (draws.iter())
            .map(|(key, limit, cost, shadow)| Charge {
                bucket: self.get(*key),
                limit,
                cost: *cost,
                shadow: *shadow,
            })
            .collect()
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Take(Vec<Draw>),
    Peek(u8, Limit, u64),
    /// Of the last take, one of its charges.
    Refund(u8),
    Reset(u8),
    /// Forward, or a little back.
    Advance(u64),
    Back(u64),
}

fn algorithm_limits(algorithm: Algorithm) -> BoxedStrategy<Limit> {
    let amounts = prop_oneof![4 => 1_u64..20, 2 => 1_u64..1_000, 1 => 1_u64..4_000_000_000];
    let periods = prop_oneof![
        Just("10ms"),
        Just("1s"),
        Just("7s"),
        Just("1m"),
        Just("1h"),
        Just("1d"),
        Just("400d")
    ];
    (amounts.clone(), periods, amounts)
        .prop_filter_map("allowed", move |(n, period, burst)| {
            let text = match algorithm {
                Algorithm::TokenBucket => format!("{n}/{period} burst {burst}"),
                Algorithm::LeakyBucket => format!("{n}/{period} queue {burst}"),
                Algorithm::FixedWindow => format!("{n} per {period} fixed_window"),
                Algorithm::SlidingLog => format!("{} per {period} sliding_log", n.min(1_000)),
                _ => format!("{n} per {period} sliding_counter"),
            };
            text.parse().ok()
        })
        .boxed()
}

/// Mostly the algorithm in question, sometimes another, so that it takes over what that one counted.
fn limits(algorithm: Algorithm) -> BoxedStrategy<Limit> {
    let all = [
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::FixedWindow,
        Algorithm::SlidingLog,
        Algorithm::SlidingCounter,
    ];
    let any = proptest::sample::select(all.to_vec()).prop_flat_map(algorithm_limits);
    prop_oneof![9 => algorithm_limits(algorithm), 1 => any].boxed()
}

fn operation(algorithm: Algorithm) -> impl Strategy<Value = Operation> {
    let key = 0_u8..6;
    let cost = prop_oneof![6 => 1_u64..4, 2 => 0_u64..30, 1 => 0_u64..5_000_000_000];
    let charge = (key.clone(), limits(algorithm), cost.clone());
    let charges = prop_oneof![
        4 => prop::collection::vec(charge.clone(), 1..2),
        2 => prop::collection::vec(charge, 1..6),
    ];
    // All charges on one bucket are shadows, or none is: every third key is one. And they have the same limit.
    let take = charges.prop_map(|charges| {
        let first = |key| charges.iter().find(|(other, ..)| *other == key);
        let limit = |key, limit| first(key).map_or(limit, |(_, first, _)| *first);
        let complete = |(key, own, cost)| (key, limit(key, own), cost, key % 3 == 2);
        Operation::Take(charges.iter().copied().map(complete).collect())
    });
    let advance = prop_oneof![
        0_u64..2_000,
        0_u64..2_000_000,
        0_u64..100_000_000,
        0_u64..100_000_000_000
    ];
    prop_oneof![
        12 => take,
        3 => (key.clone(), limits(algorithm), cost).prop_map(|(k, l, c)| Operation::Peek(k, l, c)),
        2 => any::<u8>().prop_map(Operation::Refund),
        1 => key.prop_map(Operation::Reset),
        4 => advance.prop_map(Operation::Advance),
        1 => (0_u64..2_000_000).prop_map(Operation::Back),
    ]
}

/// What is asked at once goes to Redis together, and is answered as if it had come one after the other.
#[test]
fn many_at_once() {
    let clock = clock();
    compare_at_once(&redis(&clock), &clock, operations());
}

fn compare_at_once(redis: &OwnRedis, clock: &ManualClock, operations: usize) {
    const AT_ONCE: usize = 50;
    let memory = memory(clock);
    let buckets = Buckets::new();
    let mut runner = TestRunner::new(Config {
        max_local_rejects: u32::MAX,
        ..Config::default()
    });
    // Mostly the same limits, as then the script keeps at hand what it found.
    let mut usual: Vec<Limit> = Vec::new();
    let limits = algorithm_limits(Algorithm::TokenBucket);
    let tiers = prop::collection::btree_set(0_u8..6, 1..5);
    let request = (tiers, prop_oneof![8 => 1_u64..3, 1 => 0_u64..20], 0_u8..20);
    let requests = prop::collection::vec(request, AT_ONCE);
    for n in 0..operations / AT_ONCE {
        if n % 40 == 0 {
            usual = (0..6)
                .map(|_| limits.new_tree(&mut runner).unwrap().current())
                .collect();
        }
        clock.advance(us((n as u64 * 7_919) % 3_000_000));
        let mut draws: Vec<Vec<Draw>> = (requests.new_tree(&mut runner).unwrap().current().iter())
            .map(|(tiers, cost, odd)| {
                let limit = |key: u8| match odd {
                    0 => usual[(usize::from(key) + 1) % 6],
                    _ => usual[usize::from(key)],
                };
                let draw = |key: &u8| (*key, limit(*key), *cost, *key == 5);
                tiers.iter().map(draw).collect()
            })
            .collect();
        if n % 2 == 1 {
            // One tier each, and mostly for different ones: they have a script of their own.
            draws.iter_mut().for_each(|draws| draws.truncate(1));
        }
        let at_once = async {
            let tasks: Vec<_> = (draws.iter().cloned())
                .map(|draws| {
                    let store = redis.store();
                    tokio::spawn(async move {
                        let buckets = Buckets::new();
                        store.take(&buckets.charges(&draws)).await.unwrap()
                    })
                })
                .collect();
            let mut taken = Vec::new();
            for task in tasks {
                taken.push(task.await.unwrap());
            }
            taken
        };
        let in_redis = run(at_once);
        for (i, (draws, in_redis)) in draws.iter().zip(in_redis).enumerate() {
            let in_memory = run(memory.take(&buckets.charges(draws))).unwrap();
            assert_eq!(in_memory, in_redis, "request {i} of {n}: {draws:?}");
        }
    }
}

fn compare(algorithm: Algorithm) {
    let clock = clock();
    let redis = redis(&clock);
    compare_with(&redis, clock, algorithm, operations());
}

/// Memory with any other store.
pub(crate) fn compare_with(
    redis: &impl Store,
    clock: ManualClock,
    algorithm: Algorithm,
    operations: usize,
) {
    let memory = memory(&clock);
    // Of a million limits many are refused, and drawn again.
    let mut runner = TestRunner::new(Config {
        max_local_rejects: u32::MAX,
        ..Config::default()
    });
    let operation = operation(algorithm);
    let mut world = World::new(clock);
    for n in 0..operations {
        let operation = operation.new_tree(&mut runner).unwrap().current();
        world.apply(n, &operation, &memory, redis);
    }
}

struct World {
    buckets: Buckets,
    clock: ManualClock,
    now_us: u64,
    last: Option<(Vec<Draw>, Taken)>,
    history: Vec<(u64, Operation)>,
}

impl World {
    fn new(clock: ManualClock) -> Self {
        Self {
            buckets: Buckets::new(),
            clock,
            now_us: NOON_US,
            last: None,
            history: Vec::new(),
        }
    }

    fn apply(&mut self, n: usize, operation: &Operation, memory: &impl Store, redis: &impl Store) {
        self.history.push((self.now_us, operation.clone()));
        match operation {
            Operation::Take(charges) => {
                let taken = self.both(n, charges, memory, redis, true);
                self.last = Some((charges.clone(), taken));
            }
            Operation::Peek(key, limit, cost) => {
                self.both(n, &[(*key, *limit, *cost, false)], memory, redis, false);
            }
            Operation::Refund(which) => {
                let Some((charges, taken)) = &self.last else {
                    return;
                };
                let i = usize::from(*which) % charges.len();
                let (key, limit, cost, _) = &charges[i];
                // Once, and only what was taken.
                if taken.outcomes[i].charged {
                    let refund = [Refund {
                        bucket: self.buckets.get(*key),
                        limit,
                        cost: *cost,
                        charged_at_us: taken.outcomes[i].at_us,
                    }];
                    run(memory.refund(&refund)).unwrap();
                    run(redis.refund(&refund)).unwrap();
                    self.last = None;
                }
            }
            Operation::Reset(key) => {
                run(memory.reset(&[self.buckets.get(*key)])).unwrap();
                run(redis.reset(&[self.buckets.get(*key)])).unwrap();
                self.last = None;
            }
            Operation::Advance(by_us) if self.now_us + by_us > NOON_US * 2 => {
                // Long before the arithmetic ends. What is past comes back with a clock that goes back so far, unless it was
                // cleaned away, which is not the same everywhere.
                for key in 0..6 {
                    run(memory.reset(&[self.buckets.get(key)])).unwrap();
                    run(redis.reset(&[self.buckets.get(key)])).unwrap();
                }
                self.last = None;
                self.turn_to(NOON_US);
            }
            Operation::Advance(by_us) => self.turn_to(self.now_us + by_us),
            Operation::Back(by_us) => self.turn_to(self.now_us.saturating_sub(*by_us)),
        }
    }

    fn turn_to(&mut self, now_us: u64) {
        self.now_us = now_us;
        self.clock.set(us(now_us));
    }

    /// What happened to these keys lately.
    fn story(&self, names: &[[u8; 1]]) -> String {
        let since = self.history.len().saturating_sub(80);
        let is_about = |key: u8| names.contains(&[key]);
        let told = self.history[since..]
            .iter()
            .filter_map(|(at_us, operation)| {
                let what = match operation {
                    Operation::Take(charges) => {
                        let told = charges.iter().filter(|(key, ..)| is_about(*key));
                        let told: Vec<String> = told
                            .map(|(key, limit, cost, shadow)| {
                                format!("{cost} from {key} ({limit}, {shadow})")
                            })
                            .collect();
                        (!told.is_empty()).then(|| format!("take {}", told.join(", ")))?
                    }
                    Operation::Peek(key, limit, cost) if is_about(*key) => {
                        format!("peek {cost} from {key} ({limit})")
                    }
                    Operation::Refund(_) => "refund".to_owned(),
                    Operation::Reset(key) if is_about(*key) => format!("reset {key}"),
                    _ => return None,
                };
                Some(format!("{at_us}: {what}"))
            });
        told.collect::<Vec<_>>().join("\n")
    }

    fn both(
        &self,
        n: usize,
        charges: &[Draw],
        memory: &impl Store,
        redis: &impl Store,
        charging: bool,
    ) -> Taken {
        let names: Vec<[u8; 1]> = charges.iter().map(|(key, ..)| [*key]).collect();
        let charges = self.buckets.charges(charges);
        let (in_memory, in_redis) = match charging {
            true => (
                run(memory.take(&charges)).unwrap(),
                run(redis.take(&charges))
                    .unwrap_or_else(|e| panic!("{e:?}\n{}", self.story(&names))),
            ),
            false => (
                run(memory.peek(&charges)).unwrap(),
                run(redis.peek(&charges)).unwrap(),
            ),
        };
        for (i, pair) in in_memory
            .outcomes
            .iter()
            .zip(&in_redis.outcomes)
            .enumerate()
        {
            assert_eq!(
                pair.0,
                pair.1,
                "operation {n} on {}: memory is left, redis right; before it:\n{}",
                names[i][0],
                self.story(&names[i..=i])
            );
        }
        assert_eq!(in_memory, in_redis);
        in_memory
    }
}

#[test]
fn token_bucket() {
    compare(Algorithm::TokenBucket);
}

#[test]
fn leaky_bucket() {
    compare(Algorithm::LeakyBucket);
}

#[test]
fn fixed_window() {
    compare(Algorithm::FixedWindow);
}

#[test]
fn sliding_log() {
    compare(Algorithm::SlidingLog);
}

#[test]
fn sliding_counter() {
    compare(Algorithm::SlidingCounter);
}
