//! The connections that one runtime serves: each in a task of its own. All of them are checked from time to time, so that
//! none takes longer than it may.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

use super::connection_limits::{ConnectionLimits, ConnectionPermit};
use super::metrics::ServerMetrics;
use super::state::{ConnectionState, Order, Phase, QUIET, Shared};
use super::tracked_stream::TrackedStream;
use super::{Handler, ServerConfig, connection};

/// How long a closed connection is read while the client sends nothing, and how long in all.
const LINGER: Duration = Duration::from_secs(5);
const LONGEST_LINGER: Duration = Duration::from_secs(30);

/// The same for connections that were idle when the program stopped: no response can be lost. Many clients notice only at
/// their next request that a connection they keep was closed.
const IDLE_LINGER: Duration = Duration::from_millis(250);

/// The connections of a runtime.
#[derive(Debug)]
pub(super) struct Connections {
    config: Arc<ServerConfig>,
    metrics: ServerMetrics,
    shared: Arc<Shared>,
    states: Mutex<Vec<Arc<ConnectionState>>>,
    tasks: TaskTracker,
}

impl Connections {
    pub(super) fn new(config: Arc<ServerConfig>) -> Arc<Self> {
        let connections = Arc::new(Self {
            metrics: config.metrics.clone(),
            config,
            shared: Arc::default(),
            states: Mutex::default(),
            tasks: TaskTracker::new(),
        });
        tokio::spawn(check_regularly(Arc::downgrade(&connections)));
        connections
    }

    /// Serves this connection, in a task of its own.
    pub(super) fn serve<H: Handler>(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        permit: ConnectionPermit,
        handler: H,
    ) {
        let state = Arc::new(ConnectionState::new(
            Arc::clone(&self.shared),
            self.config.max_age,
        ));
        self.states.lock().push(Arc::clone(&state));
        // Responses are written whole, so there is nothing to wait for.
        let _ = socket.set_nodelay(true);
        let stream = TrackedStream::new(socket, Arc::clone(&state), permit);
        let (config, metrics) = (Arc::clone(&self.config), self.metrics.clone());
        self.tasks.spawn(async move {
            let served = connection::serve(stream, peer, &state, &config, &metrics, handler);
            until_cut(&state, served).await;
            state.has_ended();
        });
    }

    /// How often to check all connections, so that their times are kept.
    fn tick(&self) -> Duration {
        let shortest = (self.config.head_timeout)
            .min(self.config.idle_timeout)
            .min(self.config.send_timeout)
            .min(self.config.max_age)
            .min(QUIET);
        (shortest / 8).clamp(Duration::from_millis(5), Duration::from_millis(250))
    }

    fn check(&self, now: Duration) {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.shared.now.store(now, Relaxed);
        self.states.lock().retain(|state| {
            if let Some((order, why)) = self.judge(state) {
                if let Some(why) = why {
                    why.inc();
                }
                state.order_to(order);
            }
            state.phase() != Phase::Ended
        });
    }

    /// What a connection has to do, and where that is counted.
    fn judge(&self, state: &ConnectionState) -> Option<(Order, Option<&Counter>)> {
        let (config, metrics) = (&self.config, &self.metrics);
        let is_over = |ms: u64, bound: Duration| u128::from(ms) > bound.as_millis();
        let order = state.order();
        if order == Order::Cut {
            return None;
        }
        let not_read_for_ms = state.stalled_for_ms().max(state.withheld_for_ms());
        if is_over(not_read_for_ms, config.send_timeout) {
            return Some((Order::Cut, Some(&metrics.send_timeout)));
        }
        let for_ms = state.for_ms();
        let stopping = self.shared.stopping.load(Relaxed);
        match state.phase() {
            Phase::Opening | Phase::Head if is_over(for_ms, config.head_timeout) => {
                Some((Order::Cut, Some(&metrics.head_timeout)))
            }
            Phase::Closing => {
                let linger = match stopping && state.finishes_idle() {
                    true => IDLE_LINGER,
                    false => LINGER,
                };
                let is_late =
                    is_over(for_ms, linger) || is_over(state.closing_for_ms(), LONGEST_LINGER);
                is_late.then_some((Order::Cut, None))
            }
            // It was asked to finish, and is still there. An HTTP/2 client has to acknowledge that.
            Phase::Opening | Phase::Idle if order == Order::Finish => {
                let linger = match stopping && state.finishes_idle() {
                    true => QUIET,
                    false => LINGER,
                };
                is_over(for_ms, linger).then_some((Order::Cut, None))
            }
            Phase::Idle if is_over(for_ms, config.idle_timeout) => {
                Some((Order::Finish, Some(&metrics.idle_timeout)))
            }
            Phase::Opening | Phase::Idle if stopping && is_over(for_ms, QUIET) => {
                Some((Order::Finish, None))
            }
            // As below, so that clients spread over all instances again.
            _ if state.is_two() && state.is_too_old() && order == Order::Continue => {
                Some((Order::Finish, Some(&metrics.age)))
            }
            // Requests in flight go on, and no later one is lost.
            _ if stopping && state.is_two() && order == Order::Continue => {
                Some((Order::Finish, None))
            }
            _ => None,
        }
    }

    /// Closes that many connections without a request, to make room: first those that are closing already, then those that
    /// never sent a request, then those whose last request is the longest ago.
    pub(super) fn shed(&self, count: usize) {
        let states = self.states.lock();
        let is_going = |state: &&Arc<ConnectionState>| {
            state.order() == Order::Cut && state.phase() != Phase::Ended
        };
        let going_already = states.iter().filter(is_going).count();
        let count = count.saturating_sub(going_already);
        let mut going: Vec<(u8, u64, &Arc<ConnectionState>)> = (states.iter())
            .filter(|state| state.order() != Order::Cut)
            .filter_map(|state| {
                let worth = match state.phase() {
                    Phase::Closing => 0,
                    Phase::Opening | Phase::Head if !state.has_asked() => 1,
                    Phase::Head | Phase::Idle => 2,
                    _ => return None,
                };
                Some((worth, u64::MAX - state.for_ms(), state))
            })
            .collect();
        // They are in the order in which they connected, and the sort is stable.
        going.sort_by_key(|(worth, newness, _)| (*worth, *newness));
        for (_, _, state) in going.into_iter().take(count) {
            self.metrics.shed.inc();
            state.order_to(Order::Cut);
        }
    }

    /// Number of connections.
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Waits for requests in flight to end, and cuts connections that take too long. `limits` counts all connections,
    /// upgraded ones included.
    pub(super) async fn end(&self, limits: &ConnectionLimits) {
        self.shared.stopping.store(true, Relaxed);
        self.tasks.close();
        let all_gone = async {
            self.tasks.wait().await;
            while limits.open() > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(self.config.drain, all_gone)
            .await
            .is_ok()
        {
            return;
        }
        let states = self.states.lock().clone();
        let connections = states.iter().filter(|state| state.has_requests()).count();
        if connections > 0 {
            tracing::warn!(
                connections,
                "cutting connections whose requests did not end in time; raise gateway.drain if they need longer"
            );
        }
        for state in &states {
            if state.phase() != Phase::Ended {
                self.metrics.drain.inc();
                state.order_to(Order::Cut);
            }
        }
        self.tasks.wait().await;
    }
}

async fn check_regularly(connections: std::sync::Weak<Connections>) {
    let (mut now, mut checked_at) = (Duration::ZERO, Instant::now());
    while let Some(tick) = connections.upgrade().map(|connections| {
        let tick = connections.tick();
        // Time for which this process stood still is not the clients': what they sent meanwhile has yet to be read.
        let since = std::mem::replace(&mut checked_at, Instant::now());
        now += (checked_at - since).min(tick * 2);
        connections.check(now);
        tick
    }) {
        tokio::time::sleep(tick).await;
    }
}

/// Runs to the end, or until the connection is cut: dropping it closes the socket. After that it is not polled again: it would
/// read and forward a request that it can no longer answer.
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
    async fn connection_that_is_cut_reads_no_further_request() {
        let state = ConnectionState::new(Arc::default(), Duration::from_secs(3_600));
        let mut polls = 0;
        let served = std::future::poll_fn(|context| {
            polls += 1;
            // A request arrives, and the connection is cut.
            context.waker().wake_by_ref();
            state.order_to(Order::Cut);
            Poll::Pending
        });
        until_cut(&state, served).await;
        assert_eq!(polls, 1);
    }
}
