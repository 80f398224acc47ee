//! The connections of one runtime, each in a task of its own. They are checked a few times a second, so that none takes too long.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

use super::connection_limiter::{ConnectionLimiter, ConnectionPermit};
use super::state::{CommonState, ConnectionPhase, ConnectionState, Order, QUIET};
use super::tracked::TrackedStream;
use super::{Handler, ServerConfig, connection};

/// How long a closed connection is read while the client sends nothing, and how long in all.
const LINGER: Duration = Duration::from_secs(5);
const MAX_LINGER: Duration = Duration::from_secs(30);

/// The same for connections that were idle when the server shut down: no response can be lost. Many clients notice only at their
/// next request that a connection they keep was closed.
const IDLE_LINGER: Duration = Duration::from_millis(250);

pub(super) struct Connections {
    config: Arc<ServerConfig>,
    common: Arc<CommonState>,
    states: Mutex<Vec<Arc<ConnectionState>>>,
    tasks: TaskTracker,
}

impl Connections {
    pub(super) fn new(config: Arc<ServerConfig>) -> Arc<Self> {
        let connections = Arc::new(Self {
            config,
            common: Arc::default(),
            states: Mutex::default(),
            tasks: TaskTracker::new(),
        });
        tokio::spawn(check_regularly(Arc::downgrade(&connections)));
        connections
    }

    /// Serves a connection in a task of its own.
    pub(super) fn serve<H: Handler>(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        permit: ConnectionPermit,
        handler: H,
    ) {
        let state = Arc::new(ConnectionState::new(&self.common, self.config.max_age));
        self.states.lock().push(Arc::clone(&state));
        // Responses are written whole, so there is nothing to wait for.
        let _ = socket.set_nodelay(true);
        let stream = TrackedStream::new(socket, Arc::clone(&state), permit);
        let config = Arc::clone(&self.config);
        self.tasks.spawn(async move {
            let served = connection::serve(stream, peer, &state, &config, handler);
            until_cut(&state, served).await;
            state.enter(ConnectionPhase::Ended);
        });
    }

    /// How often to check all connections, so that their times are kept.
    fn check_interval(&self) -> Duration {
        let config = &self.config;
        let shortest = config.head_timeout.min(config.idle_timeout).min(QUIET);
        let shortest = shortest.min(config.send_timeout).min(config.max_age);
        (shortest / 8).clamp(Duration::from_millis(5), Duration::from_millis(250))
    }

    fn check(&self, now: Duration) {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.common.now.store(now, Relaxed);
        self.states.lock().retain(|state| {
            if let Some((order, reason)) = self.judge(state) {
                if let Some(reason) = reason {
                    self.config.metrics.closed(reason);
                }
                state.give(order);
            }
            state.phase() != ConnectionPhase::Ended
        });
    }

    /// What a connection has to do, and the reason under which that is counted.
    fn judge(&self, state: &ConnectionState) -> Option<(Order, Option<&'static str>)> {
        use ConnectionPhase::{Closing, Head, Idle, Opening};
        let (config, order) = (&self.config, state.order());
        if order == Order::Cut {
            return None;
        }
        if state.not_read_for() > config.send_timeout {
            return Some((Order::Cut, Some("send_timeout")));
        }
        let (elapsed, is_stopping) = (state.in_phase_for(), state.is_stopping());
        let linger = |idle: Duration| if state.finishes_idle() { idle } else { LINGER };
        match state.phase() {
            Opening | Head if elapsed > config.head_timeout => {
                Some((Order::Cut, Some("head_timeout")))
            }
            Closing => {
                let is_over = elapsed > linger(IDLE_LINGER) || state.closing_for() > MAX_LINGER;
                is_over.then_some((Order::Cut, None))
            }
            // An HTTP/2 client has to acknowledge that the connection ends.
            Opening | Idle if order == Order::Finish => {
                (elapsed > linger(QUIET)).then_some((Order::Cut, None))
            }
            Idle if elapsed > config.idle_timeout => Some((Order::Finish, Some("idle_timeout"))),
            Opening | Idle if is_stopping && elapsed > QUIET => Some((Order::Finish, None)),
            _ if !state.is_http2() || order == Order::Finish => None,
            // So that clients spread over all instances again.
            _ if state.is_too_old() => Some((Order::Finish, Some("age"))),
            // Requests in flight go on, and no later one is lost.
            _ => is_stopping.then_some((Order::Finish, None)),
        }
    }

    /// Closes that many connections without a request, to make room: first those that are closing already, then those that
    /// never sent a request, then those whose last request is the longest ago.
    pub(super) fn shed(&self, count: usize) {
        use ConnectionPhase::{Closing, Ended, Head, Idle, Opening};
        let states = self.states.lock();
        let mut already_cut = 0;
        let mut candidates = Vec::new();
        for state in states.iter() {
            let rank = match state.phase() {
                Ended => continue,
                _ if state.order() == Order::Cut => {
                    already_cut += 1;
                    continue;
                }
                Closing => 0,
                Opening | Head if !state.had_request() => 1,
                Head | Idle => 2,
                _ => continue,
            };
            candidates.push((rank, Reverse(state.in_phase_for()), state));
        }
        // They are in the order in which they connected, and the sort is stable.
        candidates.sort_by_key(|(rank, idle, _)| (*rank, *idle));
        for (_, _, state) in candidates
            .into_iter()
            .take(count.saturating_sub(already_cut))
        {
            self.config.metrics.closed("shed");
            state.give(Order::Cut);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Waits for requests in flight to end, and cuts connections that take too long. `limiter` counts upgraded ones as well.
    pub(super) async fn end(&self, limiter: &ConnectionLimiter) {
        self.common.is_stopping.store(true, Relaxed);
        self.tasks.close();
        let all_ended = async {
            self.tasks.wait().await;
            while limiter.open() > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if (tokio::time::timeout(self.config.drain, all_ended).await).is_ok() {
            return;
        }
        let mut states = self.states.lock().clone();
        states.retain(|state| state.phase() != ConnectionPhase::Ended);
        let connections = states.iter().filter(|state| state.has_requests()).count();
        if connections > 0 {
            tracing::warn!(
                connections,
                "cutting connections whose requests did not end in time; raise gateway.drain if they need longer"
            );
        }
        for state in &states {
            self.config.metrics.closed("drain");
            state.give(Order::Cut);
        }
        self.tasks.wait().await;
    }
}

async fn check_regularly(connections: Weak<Connections>) {
    let (mut now, mut checked_at) = (Duration::ZERO, Instant::now());
    while let Some(connections) = connections.upgrade() {
        let interval = connections.check_interval();
        // Time for which this process stood still is not the clients': what they sent meanwhile has yet to be read.
        let since = std::mem::replace(&mut checked_at, Instant::now());
        now += (checked_at - since).min(interval * 2);
        connections.check(now);
        drop(connections);
        tokio::time::sleep(interval).await;
    }
}

/// Runs to the end, or until the connection is cut. After that it is not polled again: it might read a request, and could not
/// answer it any more.
async fn until_cut(state: &ConnectionState, served: impl Future<Output = ()>) {
    let mut served = pin!(served);
    std::future::poll_fn(|context| {
        state.set_waker(context.waker());
        match state.order() {
            Order::Cut => Poll::Ready(()),
            _ => served.as_mut().poll(context),
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn cut_connection_reads_no_further_request() {
        let state = ConnectionState::new(&Arc::default(), Duration::from_secs(3_600));
        let mut polls = 0;
        let served = std::future::poll_fn(|context| {
            polls += 1;
            // A request arrives, and the connection is cut.
            context.waker().wake_by_ref();
            state.give(Order::Cut);
            Poll::Pending
        });
        until_cut(&state, served).await;
        assert_eq!(polls, 1);
    }
}
