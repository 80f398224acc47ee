//! The walk of a request through the memory store: hold, look, charge all or none.

use smallvec::{SmallVec, smallvec};
use std::sync::atomic::Ordering;

use super::held::{Ask, Held};
use super::table::{Place, Table};
use super::{MOST_SHARED, MemoryStore};
use crate::algorithm::{Fit, Look};
use crate::limit::Algorithm;
use crate::store::{Charge, Outcome, Taken};

/// About every so many takes, 64 slots are swept, so that a store without new keys is cleaned as well.
const TAKES_PER_SWEEP: u64 = 512;

/// A charge at its bucket. A request with several stops at one after the other, in the order in which they lie.
struct Stop {
    /// Which of the charges.
    charge: usize,
    /// Whether it is in the table of the buckets that many keys meet in.
    common: bool,
    /// Where it lies; none for a key that is only looked at and not there.
    place: Option<Place>,
    fingerprint: u64,
    /// Whether the bucket stands for many keys, as the store is full.
    shared: bool,
    /// Which of the buckets that are held.
    held: usize,
    charged: bool,
}

impl MemoryStore {
    /// Looks at the buckets of a request, and charges them if `charging` and all that decide have room.
    pub(super) fn visit(&self, charges: &[Charge<'_>], charging: bool) -> Taken {
        match charges {
            [charge] => {
                let (outcome, at_us) = self.visit_one(charge, charging);
                Taken {
                    admitted: charge.shadow || outcome.fit.admits(),
                    at_us,
                    outcomes: smallvec![outcome],
                }
            }
            _ => self.visit_all(charges, charging),
        }
    }

    /// [`take`](crate::store::Store::take) from one bucket, for those who need no future to wait on. Also says when.
    pub(crate) fn take_one(&self, charge: &Charge<'_>) -> (Outcome, u64) {
        self.visit_one(charge, true)
    }

    /// One bucket: most of all checks.
    fn visit_one(&self, charge: &Charge<'_>, charging: bool) -> (Outcome, u64) {
        let fingerprint = self.fingerprint(&charge.bucket);
        let Some(claim) = self.table_of(&charge.bucket).hold(fingerprint) else {
            return self.visit_new(charge, fingerprint, charging);
        };
        let mut held = Held::new(claim, self.logs_of(fingerprint));
        // Read while it is held, so that the times on a bucket come in order.
        let now_us = self.clock.now_us();
        let look = held.take(&ask(charge, now_us, charging));
        held.keep();
        drop(held);
        self.clean_now_and_then(fingerprint, now_us);
        (outcome(&look, false, now_us), now_us)
    }

    /// One bucket of a key that is not here.
    #[cold]
    fn visit_new(&self, charge: &Charge<'_>, own: u64, charging: bool) -> (Outcome, u64) {
        loop {
            let mut stop = Stop::new(0, charge, own);
            self.settle(&mut stop, charge, charging);
            let Some(place) = stop.place else {
                let now_us = self.clock.now_us();
                let look = ask(charge, now_us, false).of_nothing();
                return (outcome(&look, stop.shared, now_us), now_us);
            };
            if let Some(claim) = self.table(&stop).hold_at(place, stop.fingerprint) {
                let mut held = Held::new(claim, self.logs_of(stop.fingerprint));
                let now_us = self.clock.now_us();
                let look = held.take(&ask(charge, now_us, charging));
                if !look.charged {
                    held.forget_reservation();
                }
                held.keep();
                return (outcome(&look, stop.shared, now_us), now_us);
            }
        }
    }

    /// Several buckets: hold all, look at each, then charge all or none.
    fn visit_all(&self, charges: &[Charge<'_>], charging: bool) -> Taken {
        // All fingerprints first and then all places: the waits for memory overlap.
        let mut stops: SmallVec<[Stop; 4]> = (charges.iter().enumerate())
            .map(|(i, charge)| Stop::new(i, charge, self.fingerprint(&charge.bucket)))
            .collect();
        let cleaning = stops.first().map_or(0, |stop| stop.fingerprint);
        let taken = loop {
            for stop in &mut stops {
                stop.place = self.table(stop).find(stop.fingerprint);
            }
            for stop in &mut stops {
                if stop.place.is_none() {
                    self.settle(stop, &charges[stop.charge], charging);
                }
            }
            stops.sort_unstable_by_key(|stop| (stop.common, stop.place, stop.charge));
            // If the table changed meanwhile, another look.
            if let Some(taken) = self.try_all(charges, &mut stops, charging) {
                break taken;
            }
        };
        self.clean_now_and_then(cleaning, taken.at_us);
        taken
    }

    /// `None` if a bucket is not any more where it was.
    fn try_all(&self, charges: &[Charge<'_>], stops: &mut [Stop], charging: bool) -> Option<Taken> {
        let mut held: SmallVec<[Held<'_>; 4]> = SmallVec::new();
        let mut outcomes: SmallVec<[Outcome; 4]> = smallvec![NO_OUTCOME; charges.len()];
        let mut admitted = true;
        let mut now_us = 0;
        // What is common comes last, is looked at last, and let go first.
        let first_common = stops.partition_point(|stop| !stop.common);
        let (own, common) = stops.split_at_mut(first_common);
        for stops in [own, common] {
            if stops.is_empty() {
                continue;
            }
            self.hold_all(stops, &mut held)?;
            // Read while they are held, so that the times on a bucket come in order.
            now_us = self.clock.now_us();
            for i in 0..stops.len() {
                let charge = &charges[stops[i].charge];
                let mut ask = ask(charge, now_us, false);
                let look = match held.get_mut(stops[i].held) {
                    None => ask.of_nothing(),
                    Some(held) => {
                        // Those before it on the same bucket must fit as well.
                        let before = cost_before(charges, &stops[..=i]);
                        ask.cost = ask.cost.saturating_add(before);
                        let alone = before == 0 && !is_met_again(stops, i);
                        ask.charging = charging && admitted && alone && held.can_undo(charge);
                        held.take(&ask)
                    }
                };
                admitted &= charge.shadow || look.fit.admits();
                outcomes[stops[i].charge] = outcome(&look, stops[i].shared, now_us);
                stops[i].charged = look.charged;
            }
        }
        let at_us = match stops.is_empty() {
            true => self.clock.now_us(),
            false => now_us,
        };
        match charging && admitted {
            true => charge_the_rest(charges, stops, &mut held, &mut outcomes),
            false => undo_all(charges, stops, &mut held, &mut outcomes),
        }
        while let Some(mut held) = held.pop() {
            if !(charging && admitted) {
                held.forget_reservation();
            }
            held.keep();
        }
        Some(Taken {
            admitted,
            at_us,
            outcomes,
        })
    }

    /// Takes hold of all buckets of these stops, each once. `None` if one is not any more where it was.
    fn hold_all<'a>(
        &'a self,
        stops: &mut [Stop],
        held: &mut SmallVec<[Held<'a>; 4]>,
    ) -> Option<()> {
        let mut last = None;
        for stop in stops {
            if let Some(place) = stop.place {
                if last != Some(place) {
                    let claim = self.table(stop).hold_at(place, stop.fingerprint)?;
                    held.push(Held::new(claim, self.logs_of(stop.fingerprint)));
                    last = Some(place);
                }
                stop.held = held.len() - 1;
            } else {
                stop.held = usize::MAX;
            }
        }
        Some(())
    }

    fn table(&self, stop: &Stop) -> &Table {
        match stop.common {
            true => &self.common,
            false => &self.own,
        }
    }

    /// Finds a place for a key that has none: a slot of its own, or one that is shared where there is no room. What is
    /// everybody's always has its own: there is one per rule. Without charging, nothing is added.
    ///
    /// Not while anything is held.
    #[cold]
    fn settle(&self, stop: &mut Stop, charge: &Charge<'_>, charging: bool) {
        let now_us = self.clock.now_us();
        let forgetting = self.forgetting();
        if charging {
            let most = if stop.common { usize::MAX } else { self.max_keys };
            if (self.table(stop)).insert(stop.fingerprint, most, now_us, &forgetting) {
                stop.place = self.table(stop).find_surely(stop.fingerprint);
                return;
            }
            self.shared.fetch_add(1, Ordering::Relaxed);
        } else {
            stop.place = self.table(stop).find_surely(stop.fingerprint);
            if stop.place.is_some() || stop.common || self.own.keys() < self.max_keys {
                return;
            }
        }
        (stop.common, stop.shared) = (true, true);
        let (rule, limit) = (charge.bucket.rule(), charge.limit);
        let stripes = self.shared_by_stripe(stop.fingerprint, rule, limit);
        let all = self.shared_by_all(limit);
        for (shared, most) in [(stripes, MOST_SHARED), (all, usize::MAX)] {
            let is_there =
                !charging || (self.common).insert(shared, most, now_us, &forgetting);
            if is_there {
                stop.fingerprint = shared;
                stop.place = self.common.find_surely(shared);
                return;
            }
        }
    }

    /// Sweeps a little, at about one take of many: by time and key, as a counter would be one more thing to pass between
    /// cores. Not while anything is held.
    #[inline]
    fn clean_now_and_then(&self, fingerprint: u64, now_us: u64) {
        if now_us.wrapping_add(fingerprint >> 1).is_multiple_of(TAKES_PER_SWEEP) {
            self.own.try_sweep(now_us, &self.forgetting());
        }
    }
}

/// Charges those that were only looked at. A shadow that has no room is left alone.
fn charge_the_rest(
    charges: &[Charge<'_>],
    stops: &[Stop],
    held: &mut [Held<'_>],
    outcomes: &mut [Outcome],
) {
    for stop in stops.iter().filter(|stop| !stop.charged) {
        let outcome = &mut outcomes[stop.charge];
        if let (true, Some(held)) = (outcome.fit.admits(), held.get_mut(stop.held)) {
            let look = held.take(&ask(&charges[stop.charge], outcome.at_us, true));
            (outcome.remaining, outcome.charged) = (look.remaining, look.charged);
            outcome.full_at_us = look.empty_at_us.max(outcome.at_us);
        }
    }
}

/// As the request does not pass, nothing is charged: says what was there before.
fn undo_all(
    charges: &[Charge<'_>],
    stops: &[Stop],
    held: &mut [Held<'_>],
    outcomes: &mut [Outcome],
) {
    for stop in stops.iter().filter(|stop| stop.charged) {
        let before = &mut outcomes[stop.charge];
        if let Some(held) = held.get_mut(stop.held) {
            held.undo();
            let look = held.take(&ask(&charges[stop.charge], before.at_us, false));
            *before = outcome(&look, stop.shared, before.at_us);
        }
    }
}

impl Stop {
    fn new(charge: usize, of: &Charge<'_>, fingerprint: u64) -> Self {
        Self {
            charge,
            common: of.bucket.is_everybodys(),
            place: None,
            fingerprint,
            shared: false,
            held: usize::MAX,
            charged: false,
        }
    }

    fn meets(&self, other: &Self) -> bool {
        (self.common, self.fingerprint) == (other.common, other.fingerprint)
    }
}

impl Held<'_> {
    /// Whether a charge can still be taken back: logs are charged where they lie.
    fn can_undo(&self, charge: &Charge<'_>) -> bool {
        charge.limit.algorithm() != Algorithm::SlidingLog && !self.is_log()
    }
}

fn ask<'a>(charge: &Charge<'a>, now_us: u64, charging: bool) -> Ask<'a> {
    Ask {
        limit: charge.limit,
        now_us,
        cost: charge.cost,
        charging,
    }
}

const NO_OUTCOME: Outcome = Outcome {
    fit: Fit::Now,
    remaining: 0,
    full_at_us: 0,
    at_us: 0,
    charged: false,
    shared: false,
};

#[inline]
fn outcome(look: &Look, shared: bool, now_us: u64) -> Outcome {
    Outcome {
        fit: look.fit,
        remaining: look.remaining,
        full_at_us: look.empty_at_us.max(now_us),
        at_us: now_us,
        charged: look.charged,
        shared,
    }
}

/// Whether a later stop is at the same bucket. Stops lie in order.
fn is_met_again(stops: &[Stop], i: usize) -> bool {
    stops.get(i + 1).is_some_and(|next| next.meets(&stops[i]))
}

/// What the stops before the last one want of the same bucket; nothing matters to a charge that costs nothing.
fn cost_before(charges: &[Charge<'_>], stops: &[Stop]) -> u64 {
    match stops {
        [before @ .., last] if charges[last.charge].cost > 0 => before
            .iter()
            .rev()
            .take_while(|stop| stop.meets(last))
            // A shadow never stands in the way of what decides.
            .filter(|stop| charges[last.charge].shadow || !charges[stop.charge].shadow)
            .fold(0, |sum, stop| sum.saturating_add(charges[stop.charge].cost)),
        _ => 0,
    }
}
