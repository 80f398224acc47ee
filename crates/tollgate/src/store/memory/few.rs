//! The usual walk of a request with several tiers: a few token buckets, all of them known, each by itself, nobody in the way.
//!
//! It says what the walk in [`visit`](super::visit) would say, in half of the time. Whatever is not usual it leaves to that
//! one. It waits for nothing while it holds something, but for everybody's bucket, which is held last here as there: so
//! nothing has to be put in order.

use std::array;

use super::MemoryStore;
use super::held::Held;
use super::slot::Claim;
use super::visit::ask;
use crate::algorithm::Look;
use crate::store::{Charge, Outcome};

impl MemoryStore {
    /// Takes from all these buckets or from none, and says whether the request passes, and when.
    #[inline(always)]
    pub(crate) fn take_few<const N: usize>(
        &self,
        charges: &[Charge<'_>; N],
        outcomes: &mut [Outcome; N],
    ) -> (bool, u64) {
        self.take_usual(charges, outcomes)
            .unwrap_or_else(|| self.visit_all(charges, outcomes, true))
    }

    /// `None` if this is not the usual case; then nothing has happened.
    #[inline(always)]
    fn take_usual<const N: usize>(
        &self,
        charges: &[Charge<'_>; N],
        outcomes: &mut [Outcome; N],
    ) -> Option<(bool, u64)> {
        let mut subject = None;
        let fingerprints: [u64; N] =
            array::from_fn(|i| self.fingerprint_of_next(&charges[i].bucket, &mut subject));
        // Nothing depends on what is read here, so the waits for memory overlap. To look for one bucket after the other
        // would be to wait for each.
        let homes: [_; N] = array::from_fn(|i| match charges[i].bucket.is_everybodys() {
            true => None,
            false => self.own.at_home(fingerprints[i]),
        });
        let mut now_us = self.clock.now_us();
        let mut admitted = true;
        let mut everybodys = None;
        let mut all_held = [const { None }; N];
        for i in 0..N {
            if charges[i].bucket.is_everybodys() {
                if everybodys.replace(i).is_some() {
                    return None;
                }
                continue;
            }
            let slot = match homes[i] {
                Some(slot) => slot,
                None => self.own.slot_at(self.own.find(fingerprints[i])?),
            };
            let claim = Claim::try_for(slot, fingerprints[i])?;
            let (held, look) = self.look_at_one(claim, &charges[i], &mut now_us)?;
            admitted &= charges[i].shadow | look.fit.admits();
            outcomes[i] = Outcome::of(&look, false, now_us);
            all_held[i] = Some(held);
        }
        if let Some(i) = everybodys {
            let claim = self.common.hold_contended(fingerprints[i])?;
            let (mut held, mut look) = self.look_at_one(claim, &charges[i], &mut now_us)?;
            admitted &= charges[i].shadow | look.fit.admits();
            if !admitted {
                look = held
                    .look_without_charge(&charges[i], now_us)
                    .unwrap_or(look);
            }
            held.keep();
            // Held for the shortest time.
            drop(held);
            outcomes[i] = Outcome::of(&look, false, now_us);
        }
        for i in 0..N {
            let Some(held) = &mut all_held[i] else {
                continue;
            };
            if !admitted {
                let at_us = outcomes[i].at_us;
                if let Some(look) = held.look_without_charge(&charges[i], at_us) {
                    outcomes[i] = Outcome::of(&look, false, at_us);
                }
            }
            held.keep();
        }
        // Nothing may be held while the table is cleaned.
        drop(all_held);
        self.clean_now_and_then(fingerprints[0], now_us);
        Some((admitted, now_us))
    }

    /// Looks at a bucket, and charges it as if the request passed, as most do. That counts once it is kept.
    #[inline(always)]
    fn look_at_one<'a>(
        &'a self,
        claim: Claim<'a>,
        charge: &Charge<'_>,
        now_us: &mut u64,
    ) -> Option<(Held<'a>, Look)> {
        let mut held = Held::new(claim, &self.logs);
        if held.record().is_unused() {
            return None;
        }
        *now_us = self.not_before(held.record(), *now_us);
        held.forget_past(*now_us);
        let look = held.take_token_bucket(&ask(charge, *now_us, true))?;
        Some((held, look))
    }
}

impl Held<'_> {
    /// Undoes the charge, and says how the bucket stands without.
    #[inline(never)]
    fn look_without_charge(&mut self, charge: &Charge<'_>, now_us: u64) -> Option<Look> {
        self.undo(now_us);
        self.take_token_bucket(&ask(charge, now_us, false))
    }
}

#[cfg(test)]
#[cfg(not(tollgate_loom))]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::bucket::Bucket;
    use crate::clock::{Clock, ManualClock};
    use crate::dimension::Dimension;
    use crate::limit::Limit;
    use crate::name::Name;
    use crate::request::Request;
    use crate::store::MemoryConfig;

    fn store(hand: &ManualClock) -> MemoryStore {
        MemoryStore::with_config(MemoryConfig {
            clock: Clock::from(hand),
            ..MemoryConfig::default()
        })
    }

    fn take_few<const N: usize>(
        store: &MemoryStore,
        charges: &[Charge<'_>],
    ) -> ((bool, u64), Vec<Outcome>) {
        let mut outcomes = [Outcome::NONE; N];
        let passes = store.take_few(charges.first_chunk::<N>().unwrap(), &mut outcomes);
        (passes, outcomes.to_vec())
    }

    proptest! {
        /// The same requests by both walks: the same answers, one by one, and so the same usage.
        #[test]
        fn says_what_the_general_walk_says(
            limits in prop::collection::vec((1_u64..50, 1_u64..20, any::<bool>()), 2..5),
            requests in prop::collection::vec((0_u64..5, 0_u64..4, 0_u64..200_000), 1..60),
        ) {
            let hand = ManualClock::at(Duration::from_secs(1_000));
            let (usual, general) = (store(&hand), store(&hand));
            let limits: Vec<(Limit, bool)> = limits
                .iter()
                .map(|(rate, burst, shadow)| {
                    (format!("{rate}/s burst {burst}").parse().unwrap(), *shadow)
                })
                .collect();
            let pers: [&[Dimension]; 4] = [
                &[],
                &[Dimension::Client],
                &[Dimension::Client, Dimension::Route],
                &[Dimension::Route],
            ];
            for (cost, who, later_us) in requests {
                hand.advance(Duration::from_micros(later_us));
                let client = format!("client-{}", who / 2);
                let route = format!("/{}", who % 2);
                let request = Request::new().client(&client).route(&route);
                let charges: Vec<Charge<'_>> = (limits.iter().zip(pers).enumerate())
                    .map(|(nth, ((limit, shadow), per))| Charge {
                        bucket: Bucket::new(Name::new(&format!("rule-{nth}")).unwrap(), per, &request),
                        limit,
                        cost,
                        shadow: *shadow,
                    })
                    .collect();
                let mut outcomes = vec![Outcome::NONE; charges.len()];
                let passes = general.visit_all(&charges, &mut outcomes, true);
                let (by_few, few_outcomes) = match charges.len() {
                    2 => take_few::<2>(&usual, &charges),
                    3 => take_few::<3>(&usual, &charges),
                    _ => take_few::<4>(&usual, &charges),
                };
                prop_assert_eq!(by_few, passes);
                prop_assert_eq!(few_outcomes, outcomes);
            }
        }
    }

    /// What is not usual is left alone.
    #[test]
    fn leaves_to_the_general_walk_what_is_not_usual() {
        let hand = ManualClock::at(Duration::from_secs(1_000));
        let store = store(&hand);
        let tokens: Limit = "1/h burst 9".parse().unwrap();
        let window: Limit = "9 per 1h fixed_window".parse().unwrap();
        let charge = |key: &'static str, limit, cost| Charge {
            bucket: Bucket::of_key(key.as_bytes()),
            limit,
            cost,
            shadow: false,
        };
        let few = |charges: [Charge<'_>; 2]| {
            store
                .take_usual(&charges, &mut [Outcome::NONE; 2])
                .map(|(admitted, _)| admitted)
        };
        let [a, b] = ["a", "b"].map(|key| charge(key, &tokens, 1));
        assert_eq!(few([a, b]), None, "keys that are not there yet");
        assert!(store.visit(&[a, b], true).admitted);
        assert_eq!(few([a, b]), Some(true));
        assert_eq!(few([a, a]), None, "one bucket twice");
        assert_eq!(few([a, charge("b", &window, 1)]), None, "another algorithm");
        assert_eq!(few([a, charge("b", &tokens, 10)]), None, "what never fits");
        assert_eq!(few([a, charge("b", &tokens, 8)]), Some(false));
        let held = store.own.hold(store.fingerprint(&b.bucket)).unwrap();
        assert_eq!(few([a, b]), None, "somebody in the way");
        drop(held);
        let left = store.visit(&[a, b], false).outcomes;
        assert_eq!(
            [left[0].remaining, left[1].remaining],
            [7, 7],
            "only what passed was charged"
        );
    }
}

#[cfg(all(test, tollgate_loom))]
mod loom_tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use loom::sync::Arc;

    use super::*;
    use crate::bucket::Bucket;
    use crate::clock::{Clock, ManualClock};
    use crate::limit::Limit;
    use crate::name::Name;
    use crate::request::Request;
    use crate::store::memory::Seed;
    use crate::store::memory::logs::LogShards;
    use crate::store::memory::table::loom_tests::{model, small_table};

    /// Whose bucket, and how many it holds.
    type Tier = (Option<&'static str>, u64);

    /// The same in every run, as an interleaving is found again only if nothing else changes.
    fn store() -> MemoryStore {
        MemoryStore {
            own: small_table(1),
            common: small_table(1),
            max_keys: 4,
            stripes: 1,
            logs: LogShards::new(4),
            seed: Seed::made_of([0x9E37_79B9_7F4A_7C15, 3, 0xD1B5_4A32_D192_ED03, 7]),
            clock: Clock::from(&ManualClock::at(Duration::from_secs(1_000))),
            shared: AtomicU64::new(0),
        }
    }

    fn with_charges<const N: usize, T>(
        tiers: [Tier; N],
        cost: u64,
        then: impl FnOnce(&[Charge<'_>; N]) -> T,
    ) -> T {
        let limits: [Limit; N] =
            tiers.map(|(_, burst)| format!("1/h burst {burst}").parse().unwrap());
        let request = Request::new();
        let everybodys = Bucket::new(Name::new("everybody").unwrap(), &[], &request);
        then(&array::from_fn(|i| Charge {
            bucket: match tiers[i].0 {
                Some(key) => Bucket::of_key(key.as_bytes()),
                None => everybodys,
            },
            limit: &limits[i],
            cost,
            shadow: false,
        }))
    }

    fn take<const N: usize>(store: &MemoryStore, tiers: [Tier; N]) -> bool {
        with_charges(tiers, 1, |charges| {
            store.take_few(charges, &mut [Outcome::NONE; N]).0
        })
    }

    fn left<const N: usize>(store: &MemoryStore, tiers: [Tier; N]) -> [u64; N] {
        with_charges(tiers, 0, |charges| {
            let seen = store.visit(charges, false);
            array::from_fn(|i| seen.outcomes[i].remaining)
        })
    }

    /// Two requests for the same two buckets, one the other way round: neither waits for the other in a circle, and of what is
    /// left for one alone, one takes both.
    #[test]
    fn two_requests_for_two_buckets_the_other_way_round() {
        const A: Tier = (Some("a"), 2);
        const B: Tier = (Some("b"), 2);
        model(2, || {
            let store = Arc::new(store());
            assert!(take(&store, [A, B]));
            let other = {
                let store = Arc::clone(&store);
                loom::thread::spawn(move || take(&store, [B, A]))
            };
            let admitted = [take(&store, [A, B]), other.join().unwrap()];
            assert_eq!(admitted.iter().filter(|admitted| **admitted).count(), 1);
            assert_eq!(left(&store, [A, B]), [0, 0]);
        });
    }

    /// Two requests of different callers meet in everybody's bucket, which has room for one: the other's own is not charged.
    #[test]
    fn two_requests_that_meet_in_everybodys_bucket() {
        const A: Tier = (Some("a"), 9);
        const B: Tier = (Some("b"), 9);
        const ALL: Tier = (None, 3);
        model(2, || {
            let store = Arc::new(store());
            assert!(take(&store, [A, ALL]) && take(&store, [B, ALL]));
            let other = {
                let store = Arc::clone(&store);
                loom::thread::spawn(move || take(&store, [B, ALL]))
            };
            let admitted = [take(&store, [A, ALL]), other.join().unwrap()];
            assert_eq!(admitted.iter().filter(|admitted| **admitted).count(), 1);
            let own = admitted.map(|admitted| 8 - u64::from(admitted));
            assert_eq!(left(&store, [A, B, ALL]), [own[0], own[1], 0]);
        });
    }
}
