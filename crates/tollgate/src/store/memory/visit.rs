//! The walk of a request through the memory store: hold, look, charge all or none.

use std::sync::atomic::Ordering;

use smallvec::smallvec;

use super::held::{Ask, Held};
use super::record::Record;
use super::table::{SlotIndex, Table};
use super::{MOST_SHARED, MemoryStore};
use crate::algorithm::Look;
use crate::store::{Charge, Outcome, Taken};

/// One of 2^9 takes sweeps 64 slots, so that a store without new keys is cleaned as well.
const SWEEP_BITS: u32 = 9;

/// Requests with more tiers than this need memory of their own for the visit.
const FEW: usize = 4;

/// Where a charge finds its bucket.
#[derive(Clone, Copy)]
struct Stop {
    /// Which of the charges.
    nth: usize,
    fingerprint: u64,
    /// Where it lies; none for a key that is only looked at and not there.
    slot: Option<SlotIndex>,
    /// Whether it is in the table of the buckets that many keys meet in.
    common: bool,
    /// Whether the bucket stands for many keys, as the store is full.
    shared: bool,
}

/// A request on its way from stop to stop.
struct Visit<'v, 'c, O> {
    charges: &'v [Charge<'c>],
    outcomes: &'v mut [O],
    charging: bool,
    now_us: u64,
}

impl MemoryStore {
    /// Looks at the buckets of a request, and charges them if `charging` and all that decide have room.
    pub(super) fn visit(&self, charges: &[Charge<'_>], charging: bool) -> Taken {
        let mut outcomes = smallvec![Outcome::NONE; charges.len()];
        let (admitted, at_us) = self.visit_all(charges, &mut outcomes, charging);
        Taken {
            admitted,
            at_us,
            outcomes,
        }
    }

    /// [`take`](crate::store::StoreOperations::take) from one bucket: most of all checks. The answer is made at the end of each way, so
    /// that on the usual one the outcome never leaves the registers.
    #[inline(always)]
    pub(crate) fn take_one<A>(&self, charge: &Charge<'_>, answer: impl Fn(Outcome) -> A) -> A {
        let fingerprint = self.fingerprint(&charge.bucket);
        let now_us = self.clock.now_us();
        let claim = match charge.bucket.is_everybodys() {
            true => self.common.hold_contended(fingerprint),
            false => self.own.hold(fingerprint),
        };
        let Some(claim) = claim else {
            return self.take_new(charge, fingerprint, answer);
        };
        let mut held = Held::new(claim, &self.logs);
        let now_us = self.not_before(held.record(), now_us);
        held.forget_past(now_us);
        let ask = ask(charge, now_us, true);
        let Some(look) = held.take_token_bucket(&ask) else {
            return self.take_other(held, &ask, answer);
        };
        held.keep();
        drop(held);
        self.clean_now_and_then(fingerprint, now_us);
        answer(Outcome::of(&look, false, now_us))
    }

    /// From a bucket of another algorithm.
    #[inline(never)]
    fn take_other<A>(&self, mut held: Held<'_>, ask: &Ask<'_>, answer: impl Fn(Outcome) -> A) -> A {
        let look = held.take(ask);
        held.keep();
        let fingerprint = held.fingerprint();
        drop(held);
        self.clean_now_and_then(fingerprint, ask.now_us);
        answer(Outcome::of(&look, false, ask.now_us))
    }

    /// From a bucket of a key that is not here.
    #[cold]
    fn take_new<A>(&self, charge: &Charge<'_>, own: u64, answer: impl Fn(Outcome) -> A) -> A {
        loop {
            let mut stop = Stop::new(0, charge, own);
            self.settle(&mut stop, charge, true);
            let Some(slot) = stop.slot else {
                let ask = ask(charge, self.clock.now_us(), true);
                return answer(Outcome::of(&ask.of_nothing(), stop.shared, ask.now_us));
            };
            if let Some(claim) = self.table(stop.common).hold_at(slot, stop.fingerprint) {
                let mut held = Held::new(claim, &self.logs);
                let ask = ask(charge, self.clock.now_us(), true);
                held.forget_past(ask.now_us);
                let look = held.take(&ask);
                if !look.charged {
                    held.forget_reservation();
                }
                held.keep();
                return answer(Outcome::of(&look, stop.shared, ask.now_us));
            }
        }
    }

    /// Any number of buckets: hold all, look at each, then charge all or none. Says whether the request passes, and
    /// when it was looked at; what each bucket said goes to `outcomes`.
    pub(crate) fn visit_all<O: AsMut<Outcome>>(
        &self,
        charges: &[Charge<'_>],
        outcomes: &mut [O],
        charging: bool,
    ) -> (bool, u64) {
        match charges.len() {
            n @ ..=FEW => {
                let mut stops = [Stop::NOWHERE; FEW];
                self.visit_stops(charges, &mut stops[..n], outcomes, charging)
            }
            n => self.visit_stops(charges, &mut vec![Stop::NOWHERE; n], outcomes, charging),
        }
    }

    fn visit_stops<O: AsMut<Outcome>>(
        &self,
        charges: &[Charge<'_>],
        stops: &mut [Stop],
        outcomes: &mut [O],
        charging: bool,
    ) -> (bool, u64) {
        for (nth, (stop, charge)) in stops.iter_mut().zip(charges).enumerate() {
            *stop = Stop::new(nth, charge, self.fingerprint(&charge.bucket));
        }
        let some_key = stops.first().map_or(0, |stop| stop.fingerprint);
        loop {
            for stop in &mut *stops {
                stop.slot = self.table(stop.common).find(stop.fingerprint);
            }
            for stop in &mut *stops {
                if stop.slot.is_none() {
                    self.settle(stop, &charges[stop.nth], charging);
                }
            }
            sort(stops);
            let mut visit = Visit {
                charges,
                outcomes,
                charging,
                now_us: self.clock.now_us(),
            };
            let passes = self.go_on(stops, &mut visit, true);
            let now_us = visit.now_us;
            // If the table changed meanwhile, another look.
            if let Some(admitted) = passes {
                if charging {
                    self.clean_now_and_then(some_key, now_us);
                }
                return (admitted, now_us);
            }
        }
    }

    /// Goes to the next stop, holds its bucket, and goes on to the others; then, as it is known whether the request
    /// passes, charges it or leaves it alone, and lets it go. So the last one, which is everybody's if there is
    /// one, is held for the shortest time.
    ///
    /// `None` if a bucket is not any more where it was; then nothing has happened.
    fn go_on<O: AsMut<Outcome>>(
        &self,
        stops: &[Stop],
        visit: &mut Visit<'_, '_, O>,
        admitted: bool,
    ) -> Option<bool> {
        let [stop, rest @ ..] = stops else {
            return Some(admitted);
        };
        if rest.first().is_some_and(|next| next.meets(stop)) {
            return self.go_on_from_many(stops, visit, admitted);
        }
        let charge = &visit.charges[stop.nth];
        let mut ask = ask(charge, visit.now_us, visit.charging && admitted);
        let claim = match stop.slot {
            Some(slot) => self.table(stop.common).hold_at(slot, stop.fingerprint)?,
            None => {
                let look = ask.of_nothing();
                *visit.outcome(stop) = Outcome::of(&look, stop.shared, ask.now_us);
                return self.go_on(
                    rest,
                    visit,
                    admitted && (charge.shadow || look.fit.admits()),
                );
            }
        };
        let mut held = Held::new(claim, &self.logs);
        visit.now_us = self.not_before(held.record(), visit.now_us);
        held.forget_past(visit.now_us);
        ask.now_us = visit.now_us;
        let outcome = visit.outcome(stop);
        held.look(&ask, stop.shared, outcome);
        let (fits, charged) = (outcome.fit.admits(), outcome.charged);
        let admitted = self.go_on(rest, visit, admitted && (charge.shadow || fits))?;
        if visit.charging && (!admitted || !charged) {
            settle_up(&mut held, &mut ask, admitted && fits, visit.outcome(stop));
        }
        if visit.charging {
            held.forget_reservation();
            held.keep();
        }
        Some(admitted)
    }

    /// The same from stops that are at one bucket: those before must fit as well.
    #[cold]
    fn go_on_from_many<O: AsMut<Outcome>>(
        &self,
        stops: &[Stop],
        visit: &mut Visit<'_, '_, O>,
        mut admitted: bool,
    ) -> Option<bool> {
        let charges = visit.charges;
        let here = stops
            .iter()
            .take_while(|stop| stop.meets(&stops[0]))
            .count();
        let (here, rest) = stops.split_at(here);
        let mut held = match here[0].slot {
            None => None,
            Some(slot) => {
                let claim = self
                    .table(here[0].common)
                    .hold_at(slot, here[0].fingerprint)?;
                Some(Held::new(claim, &self.logs))
            }
        };
        if let Some(held) = &mut held {
            visit.now_us = self.not_before(held.record(), visit.now_us);
            held.forget_past(visit.now_us);
        }
        let now_us = visit.now_us;
        for (i, stop) in here.iter().enumerate() {
            let charge = &visit.charges[stop.nth];
            let mut ask = ask(charge, now_us, false);
            ask.cost = (ask.cost).saturating_add(cost_before(visit.charges, &here[..i], charge));
            let look = match &mut held {
                None => ask.of_nothing(),
                Some(held) => held.take(&ask),
            };
            admitted &= charge.shadow || look.fit.admits();
            *visit.outcome(stop) = Outcome::of(&look, stop.shared, now_us);
        }
        let admitted = self.go_on(rest, visit, admitted)?;
        if let Some(held) = &mut held {
            let charging_at_all = visit.charging;
            // A shadow never stands in the way of what decides: it comes after.
            let is_shadow = |stop: &&Stop| charges[stop.nth].shadow;
            let deciding = here.iter().filter(|stop| !is_shadow(stop));
            let in_turn = deciding.chain(here.iter().filter(is_shadow));
            for stop in in_turn.filter(|_| charging_at_all) {
                let mut ask = ask(&visit.charges[stop.nth], now_us, true);
                let outcome = visit.outcome(stop);
                let charging = admitted && outcome.fit.admits();
                settle_up(held, &mut ask, charging, outcome);
            }
            if charging_at_all {
                // Only now: it leaves a mark, which those in between would take for something.
                held.forget_reservation();
                held.keep();
            }
        }
        Some(admitted)
    }

    /// The time, read again if somebody was here later: so the times on a bucket come in order.
    #[inline(always)]
    pub(super) fn not_before(&self, record: &Record, now_us: u64) -> u64 {
        match record.at_us() > now_us {
            true => self.clock.now_us(),
            false => now_us,
        }
    }

    #[inline]
    fn table(&self, common: bool) -> &Table {
        match common {
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
        let forgetting = self.forgetting();
        let find_or_insert = |table: &Table, fingerprint: u64, most: usize| match charging {
            true => table.insert(fingerprint, most, &self.clock, &forgetting),
            false => table.find_surely(fingerprint),
        };
        let most = if stop.common {
            usize::MAX
        } else {
            self.max_keys
        };
        stop.slot = find_or_insert(self.table(stop.common), stop.fingerprint, most);
        let is_full = charging || self.own.keys() >= self.max_keys;
        if stop.slot.is_some() || stop.common || !is_full {
            return;
        }
        if charging {
            self.shared.fetch_add(1, Ordering::Relaxed);
        }
        (stop.common, stop.shared) = (true, true);
        let (rule, limit) = (charge.bucket.rule(), charge.limit);
        let stripes = self.shared_by_stripe(stop.fingerprint, rule, limit);
        let all = self.shared_by_all(limit);
        for (shared, most) in [(stripes, MOST_SHARED), (all, usize::MAX)] {
            stop.fingerprint = shared;
            stop.slot = find_or_insert(&self.common, shared, most);
            if stop.slot.is_some() {
                return;
            }
        }
    }

    /// Sweeps a little, at about one take of many: by time and key, as a counter would be one more thing to pass between
    /// cores. Not while anything is held.
    #[inline]
    pub(super) fn clean_now_and_then(&self, fingerprint: u64, now_us: u64) {
        let mixed = (now_us ^ fingerprint).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        if mixed >> (64 - SWEEP_BITS) == 0 {
            self.own.try_sweep(now_us, &self.forgetting());
        }
    }
}

/// Into the order in which they lie, what is common last; those that are at one bucket stay in their order. By insertion, as
/// they are few and mostly in order.
fn sort(stops: &mut [Stop]) {
    for sorted in 1..stops.len() {
        let mut at = sorted;
        while at > 0 && stops[at].position() < stops[at - 1].position() {
            stops.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// At the end, for a bucket that was only looked at and is to be charged, or the other way round.
fn settle_up(held: &mut Held<'_>, ask: &mut Ask<'_>, charging: bool, outcome: &mut Outcome) {
    if charging {
        ask.charging = true;
        let look = held.take(ask);
        (outcome.remaining, outcome.charged) = (look.remaining, look.charged);
        outcome.full_at_us = look.empty_at_us.max(outcome.at_us);
        return;
    }
    if outcome.charged {
        ask.charging = false;
        held.undo(ask.now_us);
        *outcome = Outcome::of(&held.take(ask), outcome.shared, outcome.at_us);
    }
}

impl<O: AsMut<Outcome>> Visit<'_, '_, O> {
    #[inline]
    fn outcome(&mut self, stop: &Stop) -> &mut Outcome {
        self.outcomes[stop.nth].as_mut()
    }
}

impl Stop {
    const NOWHERE: Self = Self {
        nth: 0,
        fingerprint: 0,
        slot: None,
        common: false,
        shared: false,
    };

    #[inline]
    fn new(nth: usize, charge: &Charge<'_>, fingerprint: u64) -> Self {
        Self {
            nth,
            fingerprint,
            common: charge.bucket.is_everybodys(),
            ..Self::NOWHERE
        }
    }

    #[inline]
    fn position(&self) -> (bool, Option<SlotIndex>) {
        (self.common, self.slot)
    }

    #[inline]
    fn meets(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint && self.common == other.common
    }
}

impl Held<'_> {
    /// Looks, and charges if that is asked, fits, and can still be undone: logs are charged where they lie.
    #[inline(always)]
    fn look(&mut self, ask: &Ask<'_>, shared: bool, outcome: &mut Outcome) {
        if let Some(look) = self.take_token_bucket(ask) {
            *outcome = Outcome::of(&look, shared, ask.now_us);
            return;
        }
        self.look_at_other(ask, shared, outcome);
    }

    #[inline(never)]
    fn look_at_other(&mut self, ask: &Ask<'_>, shared: bool, outcome: &mut Outcome) {
        let ask = Ask {
            charging: ask.charging && self.can_undo(ask.limit),
            ..*ask
        };
        *outcome = Outcome::of(&self.take(&ask), shared, ask.now_us);
    }
}

#[inline(always)]
pub(super) fn ask<'a>(charge: &Charge<'a>, now_us: u64, charging: bool) -> Ask<'a> {
    Ask {
        limit: charge.limit,
        now_us,
        cost: charge.cost,
        charging,
    }
}

impl Outcome {
    #[inline(always)]
    pub(super) fn of(look: &Look, shared: bool, now_us: u64) -> Self {
        Self {
            fit: look.fit,
            remaining: look.remaining,
            full_at_us: look.empty_at_us.max(now_us),
            at_us: now_us,
            charged: look.charged,
            shared,
        }
    }
}

/// What the stops before want of a charge's bucket; nothing matters to a charge that costs nothing.
fn cost_before(charges: &[Charge<'_>], before: &[Stop], charge: &Charge<'_>) -> u64 {
    if charge.cost == 0 {
        return 0;
    }
    (before.iter())
        .map(|stop| &charges[stop.nth])
        // A shadow never stands in the way of what decides.
        .filter(|before| charge.shadow || !before.shadow)
        .fold(0, |sum, before| sum.saturating_add(before.cost))
}

#[cfg(test)]
#[cfg(not(tollgate_loom))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bucket::Bucket;
    use crate::clock::{Clock, ManualClock};
    use crate::limit::Limit;
    use crate::name::Name;
    use crate::request::Request;
    use crate::store::MemoryConfig;

    fn charge<'a>(bucket: Bucket<'a>, limit: &'a Limit, cost: u64) -> Charge<'a> {
        Charge {
            bucket,
            limit,
            cost,
            shadow: false,
        }
    }

    /// A bucket that was reset, a clock that goes back, and two charges on it of which the first does not fit: the second finds it as
    /// empty as the first did.
    #[test]
    fn a_denial_leaves_nothing_for_the_next_of_its_request() {
        let hand = ManualClock::at(Duration::from_secs(1_000));
        let store = MemoryStore::with_config(MemoryConfig {
            clock: Clock::from(&hand),
            ..MemoryConfig::default()
        });
        let limit: Limit = "1/d burst 16".parse().unwrap();
        let own = |cost| Charge {
            shadow: true,
            ..charge(Bucket::of_key(b"own"), &limit, cost)
        };
        assert!(store.visit(&[own(1)], true).admitted);
        store.reset_one(&Bucket::of_key(b"own"));
        hand.set(Duration::from_secs(999));
        let taken = store.visit(&[own(24), own(0)], true);
        assert_eq!(taken.outcomes[1].full_at_us, taken.at_us);
    }

    /// One reads the time, and has to wait for its first bucket. Meanwhile the second is charged, drains, is swept, made
    /// anew and denied. The one who waited must not charge it at the time it read: that would be before the others.
    #[test]
    fn a_denial_does_not_let_time_go_back() {
        let hand = ManualClock::at(Duration::from_secs(1_000));
        let store = MemoryStore::with_config(MemoryConfig {
            clock: Clock::from(&hand),
            ..MemoryConfig::default()
        });
        let (wide, narrow): (Limit, Limit) =
            ("100/h".parse().unwrap(), "1000/s burst 1".parse().unwrap());
        let (rule, request) = (Name::new("all").unwrap(), Request::new());
        let all = charge(Bucket::new(rule, &[], &request), &narrow, 1);
        let own = charge(Bucket::of_key(b"own"), &wide, 1);
        let never = charge(Bucket::of_key(b"other"), &wide, 1_000);
        assert!(store.visit(&[own], true).admitted);
        let claim = store.own.hold(store.fingerprint(&own.bucket)).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| store.visit(&[own, all], true));
            std::thread::sleep(Duration::from_millis(100));
            hand.advance(Duration::from_micros(500));
            assert!(store.visit(&[all], true).admitted);
            hand.advance(Duration::from_micros(1_500));
            store.sweep();
            assert!(!store.visit(&[all, never], true).admitted);
            drop(claim);
            let late = waiting.join().unwrap();
            assert!(late.admitted);
            assert!(!store.visit(&[all], true).admitted, "late was {late:?}");
        });
    }
}
