//! What is known of a connection while it lives: what it does, since when, and what it was told to do.
//!
//! A request costs a few plain stores and no timer. Time is a number that somebody sets from time to time (see [`Crowd`](super::crowd::Crowd)), who
//! also looks at all connections then and ends those that take too long.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

/// A connection that was quiet for so long at the end has no request on its way to us.
pub(super) const QUIET: Duration = Duration::from_secs(1);

/// What all connections of a crowd have in common.
#[derive(Debug, Default)]
pub(super) struct Common {
    /// Milliseconds since the beginning.
    pub(super) now: AtomicU64,
    /// Whether this is the end, so that answers say that there will be no more on this connection.
    pub(super) stopping: AtomicBool,
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// It was accepted, and no request has come yet.
    Opening,
    /// A further request has begun to come.
    Head,
    /// Requests are under way.
    Busy,
    /// All were answered.
    Idle,
    /// We have said our last word, and wait for the other side to have heard it.
    Closing,
    /// It is gone.
    Ended,
}

/// What a connection was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Order {
    /// Nothing.
    GoOn,
    /// To end when what is under way has ended.
    Finish,
    /// To end now.
    Cut,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Watch {
    common: Arc<Common>,
    phase: AtomicU8,
    since: AtomicU64,
    /// When it is too old.
    old_at: u64,
    /// In HTTP/2: how many answers wait for the other side to take more of them, and when any last moved.
    withheld: AtomicU32,
    moved: AtomicU64,
    /// When a write began to wait for the other side; 0 if none does.
    stalled: AtomicU64,
    closing_since: AtomicU64,
    underway: AtomicU32,
    order: AtomicU8,
    /// Whether it was told to finish when it had been idle for [`QUIET`].
    finishes_idle: AtomicBool,
    is_two: AtomicBool,
    has_asked: AtomicBool,
    waker: OnceLock<Waker>,
}

impl Watch {
    pub(super) fn new(common: Arc<Common>, longest_age: Duration) -> Self {
        let now = common.now.load(Relaxed);
        let age = u64::try_from(longest_age.as_millis()).unwrap_or(u64::MAX);
        let earlier = RandomState::new().hash_one(now) % (age / 8).max(1);
        Self {
            common,
            phase: AtomicU8::new(Phase::Opening as u8),
            since: AtomicU64::new(now),
            old_at: now.saturating_add(age - earlier),
            withheld: AtomicU32::new(0),
            moved: AtomicU64::new(now),
            stalled: AtomicU64::new(0),
            closing_since: AtomicU64::new(0),
            underway: AtomicU32::new(0),
            order: AtomicU8::new(Order::GoOn as u8),
            finishes_idle: AtomicBool::new(false),
            is_two: AtomicBool::new(false),
            has_asked: AtomicBool::new(false),
            waker: OnceLock::new(),
        }
    }

    fn now(&self) -> u64 {
        self.common.now.load(Relaxed)
    }

    fn set(&self, phase: Phase) {
        self.since.store(self.now(), Relaxed);
        self.phase.store(phase as u8, Relaxed);
    }

    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Opening,
            1 => Phase::Head,
            2 => Phase::Busy,
            3 => Phase::Idle,
            4 => Phase::Closing,
            _ => Phase::Ended,
        }
    }

    pub(super) fn order(&self) -> Order {
        match self.order.load(Relaxed) {
            0 => Order::GoOn,
            1 => Order::Finish,
            _ => Order::Cut,
        }
    }

    /// For how many milliseconds it has been at what it does.
    pub(super) fn for_ms(&self) -> u64 {
        self.now().saturating_sub(self.since.load(Relaxed))
    }

    pub(super) fn stalled_for_ms(&self) -> u64 {
        match self.stalled.load(Relaxed) {
            0 => 0,
            stalled => self.now().saturating_sub(stalled),
        }
    }

    /// In HTTP/2: for how long no answer has moved, while some could if the other side took them.
    pub(super) fn withheld_for_ms(&self) -> u64 {
        match self.withheld.load(Relaxed) {
            0 => 0,
            _ => self.now().saturating_sub(self.moved.load(Relaxed)),
        }
    }

    pub(super) fn is_too_old(&self) -> bool {
        self.now() >= self.old_at
    }

    pub(super) fn closing_for_ms(&self) -> u64 {
        self.now().saturating_sub(self.closing_since.load(Relaxed))
    }

    /// It speaks HTTP/2.
    pub(super) fn speaks_two(&self) {
        self.is_two.store(true, Relaxed);
    }

    pub(super) fn is_two(&self) -> bool {
        self.is_two.load(Relaxed)
    }

    /// Whether any request waits for its response.
    pub(super) fn has_requests(&self) -> bool {
        self.underway.load(Relaxed) > 0
    }

    /// Whether the other side had its last response, and time to send something else, before it was told to finish.
    pub(super) fn finishes_idle(&self) -> bool {
        self.finishes_idle.load(Relaxed) && !self.has_requests()
    }

    /// Whether it has ever sent a whole head.
    pub(super) fn has_asked(&self) -> bool {
        self.has_asked.load(Relaxed)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.common.stopping.load(Relaxed)
    }

    /// Something was read. In HTTP/2 that may be anything, and nothing is made of it.
    pub(super) fn has_read(&self) {
        match self.phase() {
            Phase::Idle if !self.is_two() => self.set(Phase::Head),
            // It still says something, so it may not have heard us yet.
            Phase::Closing => self.since.store(self.now(), Relaxed),
            _ => {}
        }
    }

    pub(super) fn write_waits(&self) {
        if self.stalled.load(Relaxed) == 0 {
            self.stalled.store(self.now().max(1), Relaxed);
        }
    }

    pub(super) fn has_written(&self) {
        if self.stalled.load(Relaxed) != 0 {
            self.stalled.store(0, Relaxed);
        }
    }

    pub(super) fn closes(&self) {
        self.closing_since.store(self.now(), Relaxed);
        self.set(Phase::Closing);
    }

    pub(super) fn has_ended(&self) {
        self.set(Phase::Ended);
    }

    /// A request is under way until this is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Underway {
        self.underway.fetch_add(1, Relaxed);
        self.has_asked.store(true, Relaxed);
        self.set(Phase::Busy);
        Underway(Arc::clone(self))
    }

    /// The task that serves it, which is woken to hear its orders.
    pub(super) fn served_by(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    pub(super) fn tell(&self, order: Order) {
        if order == Order::Finish {
            let is_idle = matches!(self.phase(), Phase::Opening | Phase::Idle);
            let is_quiet = u128::from(self.for_ms()) >= QUIET.as_millis();
            self.finishes_idle.store(is_idle && is_quiet, Relaxed);
            // From here on it has a short time to go.
            self.since.store(self.now(), Relaxed);
        }
        self.order.store(order as u8, Relaxed);
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }
}

/// An answer in HTTP/2. It is withheld from when a part of it was handed on until the next is asked for, which is when the other side has taken enough.
#[derive(Debug)]
pub(super) struct Flow {
    watch: Arc<Watch>,
    is_withheld: bool,
}

impl Flow {
    pub(super) fn new(watch: Arc<Watch>) -> Self {
        Self {
            watch,
            is_withheld: false,
        }
    }

    /// Whether a part was handed on, or else there is nothing to be taken now.
    pub(super) fn moves(&mut self, is_withheld: bool) {
        self.watch.moved.store(self.watch.now(), Relaxed);
        match (self.is_withheld, is_withheld) {
            (false, true) => _ = self.watch.withheld.fetch_add(1, Relaxed),
            (true, false) => _ = self.watch.withheld.fetch_sub(1, Relaxed),
            _ => {}
        }
        self.is_withheld = is_withheld;
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.moves(false);
    }
}

/// A request of a connection.
#[derive(Debug)]
pub(super) struct Underway(Arc<Watch>);

impl Underway {
    pub(super) fn watch(&self) -> &Arc<Watch> {
        &self.0
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        let last = self.0.underway.fetch_sub(1, Relaxed) == 1;
        if last && self.0.phase() == Phase::Busy {
            self.0.set(Phase::Idle);
        }
    }
}
