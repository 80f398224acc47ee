//! The state of a connection: what it does, since when, and what it has to do next.
//!
//! A request costs a few plain stores and no timer. Time is a number that [`Connections`](super::connections::Connections)
//! sets from time to time; it also checks all connections then, and ends those that take too long.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

/// At shutdown, a connection that was idle for this long has no request on its way.
pub(super) const QUIET: Duration = Duration::from_secs(1);

/// What all connections of a crowd have in shared.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Milliseconds since the beginning.
    pub(super) now: AtomicU64,
    /// Whether the program is stopping, so that responses say `Connection: close`.
    pub(super) stopping: AtomicBool,
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// It was accepted, and no request has come yet.
    Opening,
    /// The head of a further request has begun to arrive.
    Head,
    /// All requests were answered.
    Idle,
    /// Requests are in flight. Never stored: it follows from their number.
    Busy,
    /// The last response is sent; the client has yet to receive it.
    Closing,
    /// It is closed.
    Ended,
}

/// What a connection has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Order {
    /// Go on.
    Continue,
    /// End when the requests in flight have ended.
    Finish,
    /// End now.
    Cut,
}

/// One connection.
#[derive(Debug)]
pub(super) struct ConnectionState {
    shared: Arc<Shared>,
    phase: AtomicU8,
    since: AtomicU64,
    /// When it reaches its maximum age.
    old_at: u64,
    /// In HTTP/2: how many responses wait for the client to read on, and when any of them last moved.
    withheld: AtomicU32,
    moved: AtomicU64,
    /// When a write began to wait for the client; 0 if none does.
    stalled: AtomicU64,
    closing_since: AtomicU64,
    in_flight: AtomicU32,
    order: AtomicU8,
    /// Whether it had been idle for [`QUIET`] when it was asked to finish.
    finishes_idle: AtomicBool,
    is_two: AtomicBool,
    has_asked: AtomicBool,
    waker: OnceLock<Waker>,
}

impl ConnectionState {
    pub(super) fn new(shared: Arc<Shared>, max_age: Duration) -> Self {
        let now = shared.now.load(Relaxed);
        let age = u64::try_from(max_age.as_millis()).unwrap_or(u64::MAX);
        let earlier = RandomState::new().hash_one(now) % (age / 8).max(1);
        Self {
            shared,
            phase: AtomicU8::new(Phase::Opening as u8),
            since: AtomicU64::new(now),
            old_at: now.saturating_add(age - earlier),
            withheld: AtomicU32::new(0),
            moved: AtomicU64::new(now),
            stalled: AtomicU64::new(0),
            closing_since: AtomicU64::new(0),
            in_flight: AtomicU32::new(0),
            order: AtomicU8::new(Order::Continue as u8),
            finishes_idle: AtomicBool::new(false),
            is_two: AtomicBool::new(false),
            has_asked: AtomicBool::new(false),
            waker: OnceLock::new(),
        }
    }

    fn now(&self) -> u64 {
        self.shared.now.load(Relaxed)
    }

    fn set(&self, phase: Phase) {
        self.since.store(self.now(), Relaxed);
        self.phase.store(phase as u8, Relaxed);
    }

    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            4 => Phase::Closing,
            5 => Phase::Ended,
            _ if self.has_requests() => Phase::Busy,
            0 => Phase::Opening,
            1 => Phase::Head,
            _ => Phase::Idle,
        }
    }

    pub(super) fn order(&self) -> Order {
        match self.order.load(Relaxed) {
            0 => Order::Continue,
            1 => Order::Finish,
            _ => Order::Cut,
        }
    }

    /// For how many milliseconds it has been in its phase.
    pub(super) fn for_ms(&self) -> u64 {
        self.now().saturating_sub(self.since.load(Relaxed))
    }

    pub(super) fn stalled_for_ms(&self) -> u64 {
        match self.stalled.load(Relaxed) {
            0 => 0,
            stalled => self.now().saturating_sub(stalled),
        }
    }

    /// In HTTP/2: for how long no response has moved, while the client could read some.
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

    /// Notes that it speaks HTTP/2.
    pub(super) fn speaks_two(&self) {
        self.is_two.store(true, Relaxed);
    }

    pub(super) fn is_two(&self) -> bool {
        self.is_two.load(Relaxed)
    }

    /// Whether any request is in flight.
    pub(super) fn has_requests(&self) -> bool {
        self.in_flight.load(Relaxed) > 0
    }

    /// Whether the client had its last response, and time to send another request, before the connection was asked to
    /// finish. No request has come since.
    pub(super) fn finishes_idle(&self) -> bool {
        self.finishes_idle.load(Relaxed)
    }

    /// Whether it has ever sent a complete head.
    pub(super) fn has_asked(&self) -> bool {
        self.has_asked.load(Relaxed)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.shared.stopping.load(Relaxed)
    }

    /// Something was read. In HTTP/2 that may be any frame, so the phase stays.
    pub(super) fn has_read(&self) {
        match self.phase() {
            Phase::Idle if !self.is_two() => self.set(Phase::Head),
            // The client still sends, so it may not have received the last response yet.
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

    /// A request is in flight until the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Relaxed);
        self.has_asked.store(true, Relaxed);
        // The client has yet to receive the response to this one.
        self.finishes_idle.store(false, Relaxed);
        self.set(Phase::Idle);
        InFlight(Arc::clone(self))
    }

    /// The task that serves it, which is woken by orders.
    pub(super) fn set_waker(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    pub(super) fn order_to(&self, order: Order) {
        if order == Order::Finish {
            let is_idle = matches!(self.phase(), Phase::Opening | Phase::Idle);
            let is_quiet = u128::from(self.for_ms()) >= QUIET.as_millis();
            self.finishes_idle.store(is_idle && is_quiet, Relaxed);
            // From here on it has a short time to finish.
            self.since.store(self.now(), Relaxed);
        }
        self.order.store(order as u8, Relaxed);
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }
}

/// A response in HTTP/2. It is withheld from when a part of it was handed on until the next is polled for, which is when
/// the client has read enough.
#[derive(Debug)]
pub(super) struct Flow {
    state: Arc<ConnectionState>,
    is_withheld: bool,
}

impl Flow {
    pub(super) fn new(state: Arc<ConnectionState>) -> Self {
        Self {
            state,
            is_withheld: false,
        }
    }

    /// Notes whether a part was handed on, or there is nothing to send now.
    pub(super) fn moves(&mut self, is_withheld: bool) {
        self.state.moved.store(self.state.now(), Relaxed);
        match (self.is_withheld, is_withheld) {
            (false, true) => _ = self.state.withheld.fetch_add(1, Relaxed),
            (true, false) => _ = self.state.withheld.fetch_sub(1, Relaxed),
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
pub(super) struct InFlight(Arc<ConnectionState>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.since.store(self.0.now(), Relaxed);
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> Arc<ConnectionState> {
        let shared = Arc::<Shared>::default();
        Arc::new(ConnectionState::new(shared, Duration::from_secs(3_600)))
    }

    #[test]
    fn connection_with_requests_in_flight_is_never_idle() {
        let state = state();
        assert_eq!(state.phase(), Phase::Opening);
        let (one, other) = (state.begin(), state.begin());
        assert_eq!(state.phase(), Phase::Busy);
        drop(one);
        assert_eq!(state.phase(), Phase::Busy);
        drop(other);
        assert_eq!(state.phase(), Phase::Idle);
        // Bytes that arrive while a request is in flight begin no head of another.
        let one = state.begin();
        state.has_read();
        drop(one);
        assert_eq!(state.phase(), Phase::Idle);
    }

    #[test]
    fn request_after_the_order_to_finish_gives_the_client_more_time() {
        let state = state();
        state.shared.now.store(2_000, Relaxed);
        state.order_to(Order::Finish);
        assert!(state.finishes_idle());
        drop(state.begin());
        assert!(!state.finishes_idle());
    }
}
