//! The connections that one runtime serves: each in a task, and all of them looked at from time to time, so that none takes longer than it may.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Body;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

use super::metrics::ListenMetrics;
use super::places::{Place, Places};
use super::stream::WatchedStream;
use super::watch::{Common, Order, Phase, QUIET, Watch};
use super::{ListenConfig, Served, connection};

/// How long the other side may take to hear our last word while it says nothing, and how long in all.
const LINGER: Duration = Duration::from_secs(5);
const LONGEST_LINGER: Duration = Duration::from_secs(30);

/// The same for connections that are closed because the program stops and that were quiet before: there is no last word. Many
/// clients notice only at their next request that a connection they keep was closed.
const IDLE_LINGER: Duration = Duration::from_millis(250);

/// The connections of a runtime.
#[derive(Debug)]
pub(crate) struct Crowd {
    config: Arc<ListenConfig>,
    metrics: ListenMetrics,
    common: Arc<Common>,
    watches: Mutex<Vec<Arc<Watch>>>,
    tasks: TaskTracker,
}

impl Crowd {
    pub(crate) fn new(config: Arc<ListenConfig>) -> Arc<Self> {
        let crowd = Arc::new(Self {
            metrics: config.metrics.clone(),
            config,
            common: Arc::default(),
            watches: Mutex::default(),
            tasks: TaskTracker::new(),
        });
        tokio::spawn(keep_watch(Arc::downgrade(&crowd)));
        crowd
    }

    /// Serves this connection, in a task of its own.
    pub(crate) fn serve<S, B>(&self, socket: TcpStream, peer: SocketAddr, place: Place, service: S)
    where
        S: Served<B>,
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
            + Send
            + 'static,
    {
        let watch = Arc::new(Watch::new(
            Arc::clone(&self.common),
            self.config.longest_age,
        ));
        self.watches.lock().push(Arc::clone(&watch));
        // Answers are small and whole; who waits for more of them waits in vain.
        let _ = socket.set_nodelay(true);
        let stream = WatchedStream::new(socket, Arc::clone(&watch), place);
        let (config, metrics) = (Arc::clone(&self.config), self.metrics.clone());
        self.tasks.spawn(async move {
            let served = connection::serve(stream, peer, &watch, &config, &metrics, service);
            until_cut(&watch, served).await;
            watch.has_ended();
        });
    }

    /// Looks at all connections, as often as the times they have need it.
    fn tick(&self) -> Duration {
        let shortest = (self.config.head_timeout)
            .min(self.config.idle_timeout)
            .min(self.config.send_timeout)
            .min(self.config.longest_age)
            .min(QUIET);
        (shortest / 8).clamp(Duration::from_millis(5), Duration::from_millis(250))
    }

    fn look(&self, now: Duration) {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.common.now.store(now, Relaxed);
        self.watches.lock().retain(|watch| {
            if let Some((order, why)) = self.judge(watch) {
                if let Some(why) = why {
                    why.inc();
                }
                watch.tell(order);
            }
            watch.phase() != Phase::Ended
        });
    }

    /// What to tell a connection, and what that counts for.
    fn judge(&self, watch: &Watch) -> Option<(Order, Option<&Counter>)> {
        let (config, metrics) = (&self.config, &self.metrics);
        let is_over = |ms: u64, bound: Duration| u128::from(ms) > bound.as_millis();
        let told = watch.order();
        if told == Order::Cut {
            return None;
        }
        let nothing_taken_for_ms = watch.stalled_for_ms().max(watch.withheld_for_ms());
        if is_over(nothing_taken_for_ms, config.send_timeout) {
            return Some((Order::Cut, Some(&metrics.send_timeout)));
        }
        let for_ms = watch.for_ms();
        let stopping = self.common.stopping.load(Relaxed);
        match watch.phase() {
            Phase::Opening | Phase::Head if is_over(for_ms, config.head_timeout) => {
                Some((Order::Cut, Some(&metrics.head_timeout)))
            }
            Phase::Closing => {
                let linger = match stopping && watch.finishes_idle() {
                    true => IDLE_LINGER,
                    false => LINGER,
                };
                let is_late =
                    is_over(for_ms, linger) || is_over(watch.closing_for_ms(), LONGEST_LINGER);
                is_late.then_some((Order::Cut, None))
            }
            // It was asked to go, and is still there. A client of HTTP/2 has to say that it heard it.
            Phase::Opening | Phase::Idle if told == Order::Finish => {
                let linger = match stopping && watch.finishes_idle() {
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
            // The same as below, so that callers spread anew over those who serve.
            _ if watch.is_two() && watch.is_too_old() && told == Order::GoOn => {
                Some((Order::Finish, Some(&metrics.age)))
            }
            // What is under way there goes on, and nothing is lost that came after.
            _ if stopping && watch.is_two() && told == Order::GoOn => Some((Order::Finish, None)),
            _ => None,
        }
    }

    /// Ends so many connections without a request, to make room: those first that have had our last word, then those that never asked for
    /// anything, then those that asked the longest time ago.
    pub(crate) fn shed(&self, count: usize) {
        let watches = self.watches.lock();
        let is_going =
            |watch: &&Arc<Watch>| watch.order() == Order::Cut && watch.phase() != Phase::Ended;
        let going_already = watches.iter().filter(is_going).count();
        let count = count.saturating_sub(going_already);
        let mut going: Vec<(u8, u64, &Arc<Watch>)> = (watches.iter())
            .filter(|watch| watch.order() != Order::Cut)
            .filter_map(|watch| {
                let worth = match watch.phase() {
                    Phase::Closing => 0,
                    Phase::Opening | Phase::Head if !watch.has_asked() => 1,
                    Phase::Head | Phase::Idle => 2,
                    _ => return None,
                };
                Some((worth, u64::MAX - watch.for_ms(), watch))
            })
            .collect();
        // They are in the order in which they came, and of those that are alike the first goes first.
        going.sort_by_key(|(worth, newness, _)| (*worth, *newness));
        for (_, _, watch) in going.into_iter().take(count) {
            self.metrics.shed.inc();
            watch.tell(Order::Cut);
        }
    }

    /// How many it serves.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Lets what is under way end, and cuts what takes longer than there is time. `places` are those of all whom it serves, upgraded connections included.
    pub(crate) async fn end(&self, places: &Places) {
        self.common.stopping.store(true, Relaxed);
        self.tasks.close();
        let all_gone = async {
            self.tasks.wait().await;
            while places.taken() > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(self.config.drain, all_gone)
            .await
            .is_ok()
        {
            return;
        }
        let watches = self.watches.lock().clone();
        let connections = watches.iter().filter(|watch| watch.has_requests()).count();
        if connections > 0 {
            tracing::warn!(
                connections,
                "connections are cut: their requests took longer than there is time at the end"
            );
        }
        for watch in &watches {
            if watch.phase() != Phase::Ended {
                self.metrics.drain.inc();
                watch.tell(Order::Cut);
            }
        }
        self.tasks.wait().await;
    }
}

async fn keep_watch(crowd: std::sync::Weak<Crowd>) {
    let (mut now, mut looked_at) = (Duration::ZERO, Instant::now());
    while let Some(tick) = crowd.upgrade().map(|crowd| {
        let tick = crowd.tick();
        // Time in which this process stood still does not count against clients: what they sent meanwhile has yet to be read.
        let since = std::mem::replace(&mut looked_at, Instant::now());
        now += (looked_at - since).min(tick * 2);
        crowd.look(now);
        tick
    }) {
        tokio::time::sleep(tick).await;
    }
}

/// Runs until its end, or until the connection is to be cut. To drop it closes the socket.
async fn until_cut(watch: &Watch, served: impl Future<Output = ()>) {
    let mut served = pin!(served);
    std::future::poll_fn(|context| {
        watch.served_by(context.waker());
        match served.as_mut().poll(context) {
            Poll::Pending if watch.order() != Order::Cut => Poll::Pending,
            _ => Poll::Ready(()),
        }
    })
    .await;
}
