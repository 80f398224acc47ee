//! The state of a connection: what it does, since when, and what it has to do next.
//!
//! A request costs a few plain stores and no timer. Time is a number that [`Connections`](super::connections::Connections)
//! sets a few times a second; it also checks all connections then, and ends those that take too long.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

/// At shutdown, a connection that was idle for this long has no request on its way.
pub(super) const QUIET: Duration = Duration::from_secs(1);

/// What all connections of a runtime have in common.
#[derive(Debug, Default)]
pub(super) struct CommonState {
    /// Milliseconds since the beginning.
    pub(super) now: AtomicU64,
    /// Whether the server shuts down, so that responses carry `Connection: close`.
    pub(super) is_stopping: AtomicBool,
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ConnectionPhase {
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
    Ended,
}

/// What a connection has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Order {
    Continue,
    /// End when the requests in flight have ended.
    Finish,
    /// End now.
    Cut,
}

/// The state of one connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionState {
    common: Arc<CommonState>,
    phase: AtomicU8,
    phase_since: AtomicU64,
    closing_since: AtomicU64,
    /// When it reaches its maximum age.
    old_at: u64,
    /// HTTP/2: how many responses wait for the client to read, and when any of them last moved.
    withheld: AtomicU32,
    moved_at: AtomicU64,
    /// When a write began to wait for the client; 0 if none does.
    stalled_since: AtomicU64,
    in_flight: AtomicU32,
    order: AtomicU8,
    /// Whether it had been idle for [`QUIET`] when it was ordered to finish, and no request has come since.
    finishes_idle: AtomicBool,
    is_http2: AtomicBool,
    had_request: AtomicBool,
    waker: OnceLock<Waker>,
}

impl ConnectionState {
    pub(super) fn new(common: &Arc<CommonState>, max_age: Duration) -> Self {
        let now = common.now.load(Relaxed);
        let age = u64::try_from(max_age.as_millis()).unwrap_or(u64::MAX);
        let earlier = fastrand::u64(..(age / 8).max(1));
        Self {
            common: Arc::clone(common),
            phase_since: now.into(),
            closing_since: now.into(),
            moved_at: now.into(),
            old_at: now.saturating_add(age - earlier),
            ..Self::default()
        }
    }

    fn now(&self) -> u64 {
        self.common.now.load(Relaxed)
    }

    fn elapsed(&self, since: &AtomicU64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(since.load(Relaxed)))
    }

    pub(super) fn enter(&self, phase: ConnectionPhase) {
        self.phase_since.store(self.now(), Relaxed);
        self.phase.store(phase as u8, Relaxed);
    }

    pub(super) fn phase(&self) -> ConnectionPhase {
        match self.phase.load(Relaxed) {
            4 => ConnectionPhase::Closing,
            5 => ConnectionPhase::Ended,
            _ if self.has_requests() => ConnectionPhase::Busy,
            0 => ConnectionPhase::Opening,
            1 => ConnectionPhase::Head,
            _ => ConnectionPhase::Idle,
        }
    }

    pub(super) fn order(&self) -> Order {
        match self.order.load(Relaxed) {
            0 => Order::Continue,
            1 => Order::Finish,
            _ => Order::Cut,
        }
    }

    pub(super) fn in_phase_for(&self) -> Duration {
        self.elapsed(&self.phase_since)
    }

    pub(super) fn closing_for(&self) -> Duration {
        self.elapsed(&self.closing_since)
    }

    /// For how long the client could read something, and has not.
    pub(super) fn not_read_for(&self) -> Duration {
        let mut longest = Duration::ZERO;
        if self.stalled_since.load(Relaxed) != 0 {
            longest = self.elapsed(&self.stalled_since);
        }
        if self.withheld.load(Relaxed) != 0 {
            longest = longest.max(self.elapsed(&self.moved_at));
        }
        longest
    }

    pub(super) fn is_too_old(&self) -> bool {
        self.now() >= self.old_at
    }

    pub(super) fn set_http2(&self) {
        self.is_http2.store(true, Relaxed);
    }

    pub(super) fn is_http2(&self) -> bool {
        self.is_http2.load(Relaxed)
    }

    pub(super) fn has_requests(&self) -> bool {
        self.in_flight.load(Relaxed) > 0
    }

    /// Whether no response can be lost when it closes at shutdown: the client had time to read the last one.
    pub(super) fn finishes_idle(&self) -> bool {
        self.is_stopping() && self.finishes_idle.load(Relaxed)
    }

    /// Whether the client has ever sent a complete head.
    pub(super) fn had_request(&self) -> bool {
        self.had_request.load(Relaxed)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.common.is_stopping.load(Relaxed)
    }

    /// Notes that something was read. In HTTP/2 that may be any frame, so the phase stays.
    pub(super) fn note_read(&self) {
        match self.phase() {
            ConnectionPhase::Idle if !self.is_http2() => self.enter(ConnectionPhase::Head),
            // The client still sends, so it may not have received the last response yet.
            ConnectionPhase::Closing => self.phase_since.store(self.now(), Relaxed),
            _ => {}
        }
    }

    pub(super) fn note_write(&self, is_waiting: bool) {
        let was_waiting = self.stalled_since.load(Relaxed) != 0;
        match (was_waiting, is_waiting) {
            (false, true) => self.stalled_since.store(self.now().max(1), Relaxed),
            (true, false) => self.stalled_since.store(0, Relaxed),
            _ => {}
        }
    }

    /// Notes that the last response is sent.
    pub(super) fn note_closing(&self) {
        self.closing_since.store(self.now(), Relaxed);
        self.enter(ConnectionPhase::Closing);
    }

    /// Counts a request as in flight until the result is dropped.
    pub(super) fn begin_request(self: &Arc<Self>) -> RequestInFlight {
        self.in_flight.fetch_add(1, Relaxed);
        self.had_request.store(true, Relaxed);
        // The client has yet to receive the response to this one.
        self.finishes_idle.store(false, Relaxed);
        self.enter(ConnectionPhase::Idle);
        RequestInFlight(Arc::clone(self))
    }

    /// Sets the task that orders wake.
    pub(super) fn set_waker(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    pub(super) fn give(&self, order: Order) {
        if order == Order::Finish {
            let phase = self.phase();
            let is_idle = matches!(phase, ConnectionPhase::Opening | ConnectionPhase::Idle);
            let is_quiet = is_idle && self.in_phase_for() >= QUIET;
            self.finishes_idle.store(is_quiet, Relaxed);
            // From here on it has a short time to finish.
            self.phase_since.store(self.now(), Relaxed);
        }
        self.order.store(order as u8, Relaxed);
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }
}

/// A request in flight on a connection.
pub(super) struct RequestInFlight(Arc<ConnectionState>);

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        self.0.phase_since.store(self.0.now(), Relaxed);
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// A response over HTTP/2. It is withheld from when a part of it was passed on until the next is polled for, which is when the
/// client has read enough.
pub(super) struct ResponseFlow {
    state: Arc<ConnectionState>,
    is_withheld: bool,
}

impl ResponseFlow {
    pub(super) fn new(state: Arc<ConnectionState>) -> Self {
        Self {
            state,
            is_withheld: false,
        }
    }

    /// Notes whether a part was passed on, or there is nothing to send now.
    pub(super) fn note(&mut self, is_withheld: bool) {
        self.state.moved_at.store(self.state.now(), Relaxed);
        match (self.is_withheld, is_withheld) {
            (false, true) => _ = self.state.withheld.fetch_add(1, Relaxed),
            (true, false) => _ = self.state.withheld.fetch_sub(1, Relaxed),
            _ => {}
        }
        self.is_withheld = is_withheld;
    }
}

impl Drop for ResponseFlow {
    fn drop(&mut self) {
        self.note(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> Arc<ConnectionState> {
        let common = Arc::<CommonState>::default();
        common.is_stopping.store(true, Relaxed);
        Arc::new(ConnectionState::new(&common, Duration::from_secs(3_600)))
    }

    #[test]
    fn connection_with_requests_in_flight_is_never_idle() {
        let state = state();
        assert_eq!(state.phase(), ConnectionPhase::Opening);
        let (one, other) = (state.begin_request(), state.begin_request());
        assert_eq!(state.phase(), ConnectionPhase::Busy);
        drop(one);
        assert_eq!(state.phase(), ConnectionPhase::Busy);
        drop(other);
        assert_eq!(state.phase(), ConnectionPhase::Idle);
        // Bytes that arrive while a request is in flight begin no head of another.
        let one = state.begin_request();
        state.note_read();
        drop(one);
        assert_eq!(state.phase(), ConnectionPhase::Idle);
    }

    #[test]
    fn request_after_the_order_to_finish_gives_the_client_more_time() {
        let state = state();
        state.common.now.store(2_000, Relaxed);
        state.give(Order::Finish);
        assert!(state.finishes_idle());
        drop(state.begin_request());
        assert!(!state.finishes_idle());
    }
}
