//! Each algorithm against a slow model in exact fractions that shares no code and no idea with it.
//!
//! The models keep the whole history of what was admitted and answer from the definition: a bucket admits what
//! keeps *every* interval within burst + rate × length; a window counts what lies in it. The engine keeps two
//! numbers. Both must say the same, every time.

use std::hash::BuildHasher as _;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};
use proptest::prelude::*;
use tollgate::{Limit, LocalLimiter, ManualClock, Verdict};

use crate::support::{NOON_US, clock, limiter, memory, run, us};

/// A limit as plain figures, for engine and model alike.
#[derive(Clone, Copy, Debug)]
enum Figures {
    Bucket {
        leaky: bool,
        count: u64,
        period_us: u64,
        capacity: u64,
    },
    Fixed {
        limit: u64,
        window_us: u64,
    },
    Log {
        limit: u64,
        window_us: u64,
    },
    Counter {
        limit: u64,
        window_us: u64,
    },
}

impl Figures {
    fn limit(self) -> Option<Limit> {
        match self {
            Self::Bucket {
                leaky,
                count,
                period_us,
                capacity,
            } => {
                let rate = tollgate::Rate::new(count, us(period_us)).ok()?;
                match leaky {
                    true => Limit::leaky_bucket(rate, capacity).ok(),
                    false => Limit::token_bucket(rate, capacity).ok(),
                }
            }
            Self::Fixed { limit, window_us } => Limit::fixed_window(limit, us(window_us)).ok(),
            Self::Log { limit, window_us } => Limit::sliding_log(limit, us(window_us)).ok(),
            Self::Counter { limit, window_us } => Limit::sliding_counter(limit, us(window_us)).ok(),
        }
    }

    fn capacity(self) -> u64 {
        match self {
            Self::Bucket { capacity, .. } => capacity,
            Self::Fixed { limit, .. } | Self::Log { limit, .. } | Self::Counter { limit, .. } => {
                limit
            }
        }
    }

    /// The time in which about one token comes back: where the edges are.
    fn grain_us(self) -> u64 {
        match self {
            Self::Bucket {
                count, period_us, ..
            } => (period_us / count).max(1),
            Self::Fixed { window_us, .. }
            | Self::Log { window_us, .. }
            | Self::Counter { window_us, .. } => window_us,
        }
    }
}

/// The slow model.
struct Model {
    figures: Figures,
    /// Everything admitted: when, and at what cost.
    history: Vec<(u64, u64)>,
    /// Where the bucket's time stands still when the clock goes back.
    mark_us: u64,
}

impl Model {
    fn new(figures: Figures) -> Self {
        Self {
            figures,
            history: Vec::new(),
            mark_us: 0,
        }
    }

    fn admits(&self, now_us: u64, cost: u64) -> bool {
        let now_us = now_us.max(self.mark_us);
        let sum = |from_us: u64, to_us: u64| -> u64 {
            let inside = |(at, _): &&(u64, u64)| (from_us..to_us).contains(at);
            self.history
                .iter()
                .filter(inside)
                .map(|(_, cost)| cost)
                .sum()
        };
        match self.figures {
            Figures::Bucket { capacity, .. } => self.level(now_us) + whole(cost) <= whole(capacity),
            Figures::Fixed { limit, window_us } => {
                let start = now_us / window_us * window_us;
                sum(start, start + window_us) + cost <= limit
            }
            Figures::Log { limit, window_us } => {
                sum((now_us + 1).saturating_sub(window_us), u64::MAX) + cost <= limit
            }
            Figures::Counter { limit, window_us } => {
                let start = now_us / window_us * window_us;
                let covered = fraction(start + window_us - now_us, window_us);
                let previous = whole(sum(start - window_us, start)) * covered;
                whole(sum(start, start + window_us)) + previous + whole(cost) <= whole(limit)
            }
        }
    }

    /// The level of a bucket: the most that any interval up to now has let through beyond the rate.
    fn level(&self, now_us: u64) -> BigRational {
        let Figures::Bucket {
            count, period_us, ..
        } = self.figures
        else {
            return BigRational::zero();
        };
        let rate = fraction(count, period_us);
        let mut admitted = BigRational::zero();
        let mut worst = BigRational::zero();
        for (at_us, cost) in self.history.iter().rev() {
            admitted += whole(*cost);
            let length = BigInt::from(now_us) - BigInt::from(*at_us);
            let over = &admitted - &rate * BigRational::from(length);
            worst = worst.max(over);
        }
        worst
    }

    /// How long an admitted request of a leaky bucket waits: until the level before it has drained.
    fn delay_us(&self, now_us: u64) -> u64 {
        let Figures::Bucket {
            leaky: true,
            count,
            period_us,
            ..
        } = self.figures
        else {
            return 0;
        };
        let level = self.level(now_us.max(self.mark_us));
        let at_us = (level / fraction(count, period_us)).ceil().to_integer()
            + BigInt::from(now_us.max(self.mark_us));
        (at_us - BigInt::from(now_us)).to_u64().unwrap()
    }

    fn charge(&mut self, now_us: u64, cost: u64) {
        let now_us = now_us.max(self.mark_us);
        let empty = self.level(now_us).is_zero();
        self.history.push((now_us, cost));
        self.mark_us = match self.figures {
            // In whole steps of its reduced fraction, from when it was last empty: said in docs/guarantees.md.
            Figures::Bucket {
                count, period_us, ..
            } if !empty => {
                let step = (fraction(count, period_us) * whole(1_000_000))
                    .denom()
                    .to_u64()
                    .unwrap();
                self.mark_us + (now_us - self.mark_us) / step * step
            }
            _ => now_us,
        };
    }
}

fn whole(n: u64) -> BigRational {
    BigRational::from(BigInt::from(n))
}

fn fraction(n: u64, d: u64) -> BigRational {
    BigRational::new(BigInt::from(n), BigInt::from(d))
}

fn window_us() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(1_000),
        Just(1_000_000),
        Just(60_000_000),
        Just(86_400_000_000),
        Just(400 * 86_400_000_000),
        1_000_u64..10_000_000,
        (1_u64..34_560_000).prop_map(|s| s * 1_000_000),
    ]
}

fn capacity() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1_u64..20, 2 => 1_u64..100_000, 1 => 1_u64..4_000_000_000]
}

fn figures() -> impl Strategy<Value = Figures> {
    let bucket = |leaky| {
        (
            prop_oneof![1_u64..20, 1_u64..10_000_000],
            window_us(),
            capacity(),
        )
            .prop_map(move |(count, period_us, capacity)| Figures::Bucket {
                leaky,
                count,
                period_us,
                capacity,
            })
    };
    prop_oneof![
        2 => bucket(false),
        1 => bucket(true),
        1 => (capacity(), window_us()).prop_map(|(limit, window_us)| Figures::Fixed { limit, window_us }),
        1 => (1_u64..100, window_us()).prop_map(|(limit, window_us)| Figures::Log { limit, window_us }),
        1 => (capacity(), window_us()).prop_map(|(limit, window_us)| Figures::Counter { limit, window_us }),
    ]
    .prop_filter("allowed", |figures| figures.limit().is_some())
}

/// How far the clock moves before a check.
#[derive(Clone, Copy, Debug)]
enum Move {
    Stay,
    /// To the moment the last denial named, or this many microseconds beside it.
    ToRetryAfter(i64),
    /// This many hundredths of a grain.
    Grains(u64),
    Us(u64),
    Back(u64),
}

fn moves(backwards: bool) -> impl Strategy<Value = Move> {
    let back = if backwards { 2 } else { 0 };
    prop_oneof![
        3 => Just(Move::Stay),
        3 => (-1_i64..=1).prop_map(Move::ToRetryAfter),
        3 => (0_u64..400).prop_map(Move::Grains),
        2 => (0_u64..5_000).prop_map(Move::Us),
        back => (1_u64..5_000_000).prop_map(Move::Back),
    ]
}

fn checks(backwards: bool) -> impl Strategy<Value = Vec<(Move, u64)>> {
    prop::collection::vec((moves(backwards), 1_u64..=130), 1..60)
}

fn compare(figures: Figures, checks: Vec<(Move, u64)>) -> Result<(), TestCaseError> {
    let clock: ManualClock = clock();
    let limiter = limiter(&clock);
    let limit = figures.limit().unwrap();
    let mut model = Model::new(figures);
    let mut now_us = NOON_US;
    let mut wait_us = 0;
    for (step, share) in checks {
        now_us = match step {
            Move::Stay => now_us,
            Move::ToRetryAfter(beside) => now_us
                .saturating_add(wait_us)
                .saturating_add_signed(beside)
                .max(now_us),
            Move::Grains(hundredths) => now_us + figures.grain_us() / 100 * hundredths,
            Move::Us(us) => now_us + us,
            Move::Back(us) => now_us - us,
        }
        // Decades of waiting would leave the arithmetic's range of dates.
        .min(NOON_US + 2_000_000_000_000_000);
        // Mostly small costs, sometimes a good share of the capacity, sometimes more than there is.
        let cost = if share <= 100 {
            1 + share % 3
        } else {
            figures.capacity() * (share - 100) / 29 + 1
        };
        clock.set(us(now_us));
        let decision = run(limiter.check("key", &limit, cost));
        let expected = model.admits(now_us, cost);
        prop_assert_eq!(
            decision.allowed(),
            expected,
            "{:?} at {} cost {}",
            figures,
            now_us,
            cost
        );
        match decision.verdict() {
            Verdict::Deny { retry_after } => {
                wait_us = u64::try_from(retry_after.as_micros()).unwrap();
                prop_assert!(wait_us > 0);
                prop_assert!(
                    model.admits(now_us + wait_us, cost),
                    "denied after its own retry-after"
                );
                prop_assert!(
                    !model.admits(now_us + wait_us - 1, cost),
                    "admitted before its own retry-after"
                );
            }
            Verdict::NeverFits => prop_assert!(cost > figures.capacity()),
            allowed => {
                let delay_us = u64::try_from(decision.delay().as_micros()).unwrap();
                prop_assert_eq!(delay_us, model.delay_us(now_us), "{:?}", allowed);
                model.charge(now_us, cost);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn every_algorithm_says_what_exact_fractions_say(figures in figures(), checks in checks(false)) {
        compare(figures, checks)?;
    }

    #[test]
    fn also_when_the_clock_goes_backwards(figures in figures(), checks in checks(true)) {
        compare(figures, checks)?;
    }
}

/// A bucket, and what each request costs.
#[derive(Clone, Copy, Debug)]
struct Load {
    leaky: bool,
    count: u64,
    period_us: u64,
    capacity: u64,
    cost: u64,
}

/// The next of some numbers that look random.
fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

/// A number from 1 to `most`, of every order of magnitude alike.
fn of_any_size(random: &mut u64, most: u64) -> u64 {
    let bits = next(random) % u64::from(most.ilog2() + 1);
    ((1 << bits) + next(random) % (1 << bits)).min(most)
}

impl Load {
    fn limit(&self) -> Option<Limit> {
        let Self {
            leaky,
            count,
            period_us,
            capacity,
            ..
        } = *self;
        let bucket = Figures::Bucket {
            leaky,
            count,
            period_us,
            capacity,
        };
        bucket.limit()
    }

    /// Rates from 0.001/s to 10,000,000/s, of every order of magnitude alike, over units of time and other periods.
    fn any(random: &mut u64) -> Self {
        const UNITS_US: [u64; 4] = [1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000];
        loop {
            let in_1000_s = of_any_size(random, 10_000_000_000);
            let period_us = match next(random).is_multiple_of(2) {
                true => UNITS_US[usize::try_from(next(random) % 4).unwrap()],
                false => of_any_size(random, 400 * 86_400_000_000).max(1_000),
            };
            let count = u128::from(in_1000_s) * u128::from(period_us) / 1_000_000_000;
            let count = u64::try_from(count).unwrap();
            // Such that a microsecond does not bring two of them back, and a million do not take a century.
            let least = (2 * count).div_ceil(period_us);
            let most = u128::from(count) * 4_000_000_000 / u128::from(period_us);
            let Some(most) = u64::try_from(most).ok().filter(|most| *most >= 4) else {
                continue;
            };
            let cost = (least + next(random) % 20).min(most);
            let load = Self {
                leaky: next(random).is_multiple_of(2),
                count,
                period_us,
                capacity: cost + of_any_size(random, 10_000 * cost) - 1,
                cost,
            };
            if load.limit().is_some() {
                return load;
            }
        }
    }

    /// A million decisions about twice as fast as allowed, in bursts: each is what exact integers say, and so is their number.
    fn admits_what_fractions_admit(self, mut random: u64) {
        const DECISIONS: u64 = 1_000_000;
        let seed = random;
        let limit = self.limit().unwrap();
        let clock = clock();
        let limiter = LocalLimiter::with_store(memory(&clock));
        // The exact level, times the period: integers of any size.
        let (rate, period) = (i128::from(self.count), i128::from(self.period_us));
        let (room, cost) = (
            i128::from(self.capacity) * period,
            i128::from(self.cost) * period,
        );
        let (mut level, mut last_us, mut exact) = (0_i128, NOON_US, 0_u64);
        let (mut now_us, mut admitted) = (NOON_US, 0_u64);
        let mean_us = (self.cost * self.period_us / self.count / 2).max(1);
        for nth in 0..DECISIONS {
            let number = next(&mut random);
            if number.is_multiple_of(4) {
                now_us += number % (mean_us * 8);
            }
            clock.set(us(now_us));
            let decision = limiter.check("key", &limit, self.cost);
            admitted += u64::from(decision.allowed());
            level = (level - i128::from(now_us - last_us) * rate).max(0);
            last_us = now_us;
            let fits = level + cost <= room;
            assert_eq!(
                decision.allowed(),
                fits,
                "decision {nth} of {self:?}, seed {seed:#x}"
            );
            if fits {
                let waits_us = match self.leaky {
                    true => level / rate + i128::from(level % rate > 0),
                    false => 0,
                };
                assert_eq!(
                    decision.delay().as_micros().cast_signed(),
                    waits_us,
                    "decision {nth} of {self:?}, seed {seed:#x}"
                );
                level += cost;
                exact += 1;
            }
        }
        assert_eq!(admitted, exact, "{self:?}, seed {seed:#x}");
        assert!(
            exact > 1_000 && exact < DECISIONS,
            "{limit} was not put to the test: {exact}; {self:?}, seed {seed:#x}"
        );
    }
}

/// Over a million decisions the count is exactly the exact one, at every order of magnitude of rates.
#[test]
fn a_million_decisions_admit_exactly_what_fractions_admit() {
    for (count, period_us, capacity, cost) in [
        (1, 1_000_000_000, 1, 1),            // 0.001/s
        (89, 86_400_000_000, 3, 1),          // 89 a day
        (999_983, 86_400_000_000, 1_000, 1), // a prime number a day
        (1, 3_000_000, 10, 1),               // a third a second
        (3, 1_000_000, 1, 1),
        (1_009, 7_001_000, 50, 3), // two primes
        (100_003, 1_000_000, 100_003, 1),
        (9_999_991, 1_000_000, 200, 19),
        (10_000_000, 1_000_000, 1_000, 20), // 10,000,000/s
    ] {
        for leaky in [false, true] {
            let load = Load {
                leaky,
                count,
                period_us,
                capacity,
                cost,
            };
            load.admits_what_fractions_admit(0x2545_F491_4F6C_DD1D);
        }
    }
}

/// The same at rates that nobody chose: others in every run, and a failure says which.
#[test]
fn a_million_decisions_at_any_rate_admit_exactly_what_fractions_admit() {
    let mut random = std::hash::RandomState::new().hash_one("rates") | 1;
    for _ in 0..50 {
        let load = Load::any(&mut random);
        load.admits_what_fractions_admit(random);
    }
}
