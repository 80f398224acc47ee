//! Runs the arithmetic of a limit's algorithm on a bucket's state.

use super::{Kind, Limit};
use crate::algorithm::{Arithmetic as _, Counter, Fit, Level, Log, Look, State, Window};

/// Runs one operation of the limit's algorithm on a state of its form; a state of another form is moved over
/// into it first. (A macro, as the five pairs have five different types.)
macro_rules! with_algorithm {
    ($limit:expr, $state:expr, |$algorithm:ident, $own:ident| $run:expr, else $other:expr) => {
        match ($limit.kind(), $state) {
            (Kind::TokenBucket($algorithm), State::Level($own)) => $run,
            (Kind::LeakyBucket($algorithm), State::Level($own)) => $run,
            (Kind::FixedWindow($algorithm), State::Window($own)) => $run,
            (Kind::SlidingLog($algorithm), State::Log($own)) => $run,
            (Kind::SlidingCounter($algorithm), State::Counter($own)) => $run,
            _ => $other,
        }
    };
}

impl Limit {
    /// The state of a key never seen.
    pub(crate) fn fresh(&self) -> State {
        match self.kind() {
            Kind::TokenBucket(_) | Kind::LeakyBucket(_) => State::Level(Level::default()),
            Kind::FixedWindow(_) => State::Window(Window::default()),
            Kind::SlidingLog(_) => State::Log(Box::default()),
            Kind::SlidingCounter(_) => State::Counter(Counter::default()),
        }
    }

    fn remaining(&self, state: &State, now_us: u64) -> u64 {
        with_algorithm!(self, state, |algorithm, own| algorithm.remaining(own, now_us),
            else self.remaining(&self.adopt(state), now_us))
    }

    /// Looks at a state, and charges it if the cost fits and `charging`.
    #[inline]
    pub(crate) fn take(&self, state: &mut State, now_us: u64, cost: u64, charging: bool) -> Look {
        if cost > self.capacity() {
            return Look {
                fit: Fit::Never,
                remaining: self.remaining(state, now_us),
                empty_at_us: self.empty_at_us(state),
                charged: false,
            };
        }
        with_algorithm!(self, &mut *state,
        |algorithm, own| algorithm.take(own, now_us, cost, charging),
        else {
            let mut own = self.adopt(state);
            let look = self.take(&mut own, now_us, cost, charging);
            if look.charged {
                *state = own;
            }
            look
        })
    }

    pub(crate) fn refund(&self, state: &mut State, now_us: u64, charged_at_us: u64, cost: u64) {
        with_algorithm!(self, &mut *state,
            |algorithm, own| algorithm.refund(own, now_us, charged_at_us, cost), else {
            *state = self.adopt(state);
            self.refund(state, now_us, charged_at_us, cost);
        });
    }

    #[inline]
    pub(crate) fn empty_at_us(&self, state: &State) -> u64 {
        with_algorithm!(self, state, |algorithm, own| algorithm.empty_at_us(own),
            else self.empty_at_us(&self.adopt(state)))
    }

    /// What another algorithm counted, in this one's form: used is used.
    fn adopt(&self, state: &State) -> State {
        let (at_us, used) = state.usage();
        self.adopted(at_us, used)
    }

    /// What a log counted, in this algorithm's form.
    pub(crate) fn adopt_log(&self, log: &Log) -> State {
        self.adopted(log.last_us(), log.used())
    }

    fn adopted(&self, at_us: u64, used: u64) -> State {
        let mut own = self.fresh();
        if used > 0 {
            own.hold(at_us, used);
        }
        own
    }
}
