//! The usual walk of a request with several tiers: a few token buckets, all of them known, each by itself, nobody in the way.
//!
//! It says what the walk in [`visit`](super::visit) would say, in half of the time. Whatever is not usual it leaves to that
//! one. It waits for nothing while it holds something, but for everybody's bucket, which is held last here as there: so
//! nothing has to be put in order.

use std::array;

use super::MemoryStore;
use super::record::Record;
use super::slot::Claim;
use crate::algorithm::{Glance, Level, TokenBucket};
use crate::store::{Charge, Outcome};

/// A bucket that was looked at, and waits to hear whether the request passes.
struct Looked<'a> {
    bucket: &'a TokenBucket,
    claim: Claim<'a>,
    record: Record,
    glance: Glance,
    now_us: u64,
}

impl MemoryStore {
    /// Takes from all these buckets or from none, and says whether the request passes, and when. `None` if this is not the
    /// usual case; then nothing has happened.
    #[inline(always)]
    pub(super) fn take_few<const N: usize, O: AsMut<Outcome>>(
        &self,
        charges: &[Charge<'_>; N],
        outcomes: &mut [O],
    ) -> Option<(bool, u64)> {
        let mut subject = None;
        let fingerprints: [u64; N] =
            array::from_fn(|i| self.fingerprint_of_next(&charges[i].bucket, &mut subject));
        let homes: [_; N] = array::from_fn(|i| self.own.home(fingerprints[i]));
        // Nothing depends on what is read here, so the waits for memory overlap. To look for one bucket after the other
        // would be to wait for each.
        let are_at_home: [bool; N] =
            array::from_fn(|i| self.own.lies_at(homes[i], fingerprints[i]));
        let mut now_us = self.clock.now_us();
        let mut admitted = true;
        let mut everybodys = None;
        let mut all_looked = [const { None }; N];
        for i in 0..N {
            let charge = &charges[i];
            if charge.bucket.is_everybodys() {
                if everybodys.replace(i).is_some() {
                    return None;
                }
                continue;
            }
            let place = match are_at_home[i] {
                true => homes[i],
                false => self.own.find(fingerprints[i])?,
            };
            let claim = self.own.try_hold_at(place, fingerprints[i])?;
            let looked = self.look(claim, charge, now_us)?;
            now_us = looked.now_us;
            admitted &= charge.shadow | looked.glance.has_room_for(charge.cost);
            all_looked[i] = Some(looked);
        }
        if let Some(i) = everybodys {
            let charge = &charges[i];
            let claim = self.common.hold_contended(fingerprints[i])?;
            let mut looked = self.look(claim, charge, now_us)?;
            now_us = looked.now_us;
            admitted &= charge.shadow | looked.glance.has_room_for(charge.cost);
            // Held for the shortest time.
            *outcomes[i].as_mut() = looked.settle(charge.cost, admitted);
        }
        for (i, looked) in all_looked.iter_mut().enumerate() {
            if let Some(looked) = looked {
                *outcomes[i].as_mut() = looked.settle(charges[i].cost, admitted);
            }
        }
        // Nothing may be held while the table is cleaned.
        drop(all_looked);
        self.clean_now_and_then(fingerprints[0], now_us);
        Some((admitted, now_us))
    }

    #[inline(always)]
    fn look<'a>(&self, claim: Claim<'a>, charge: &Charge<'a>, now_us: u64) -> Option<Looked<'a>> {
        let bucket = charge.limit.as_token_bucket()?;
        let mut record = claim.read();
        let mut level = record.level()?;
        if charge.cost > bucket.capacity() || record.is_unused() {
            return None;
        }
        let now_us = self.not_before(&record, now_us);
        if record.expires_at_us() <= now_us {
            (record, level) = (Record::default(), Level::default());
        }
        Some(Looked {
            bucket,
            claim,
            record,
            glance: bucket.glance(&level, now_us),
            now_us,
        })
    }
}

impl Looked<'_> {
    /// Charges the bucket if that is wanted and it has room.
    #[inline(always)]
    fn settle(&mut self, cost: u64, charging: bool) -> Outcome {
        let mut level = self.record.level().unwrap_or_default();
        let look = (self.bucket).settle(&mut level, &self.glance, cost, charging);
        if look.charged {
            self.record.write_level(level, look.empty_at_us);
            self.claim.write(self.record);
        } else if self.record.keep_until(look.empty_at_us) {
            self.claim.write(self.record);
        }
        Outcome::of(&look, false, self.now_us)
    }
}

#[cfg(test)]
#[cfg(not(tollgate_loom))]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::bucket::{Bucket, Dimension};
    use crate::clock::{Clock, ManualClock};
    use crate::limit::Limit;
    use crate::name::Name;
    use crate::request::Request;
    use crate::store::MemoryConfig;

    fn store(hand: &ManualClock) -> MemoryStore {
        MemoryStore::with(MemoryConfig {
            clock: Clock::from(hand),
            ..MemoryConfig::default()
        })
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
                let passes = general.visit_in_general(&charges, &mut outcomes, true);
                let taken = usual.visit(&charges, true);
                prop_assert_eq!((taken.admitted, taken.at_us), passes);
                prop_assert_eq!(taken.outcomes.to_vec(), outcomes);
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
                .take_few(&charges, &mut [Outcome::NONE; 2])
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
