//! Slots for concurrent requests at one server, shared fairly between clients.
//!
//! The first half of the slots is for whichever requests come first, without any bookkeeping. Of the second half, a client gets a
//! slot only while more slots are free than it holds there. So a single client never takes more than three quarters, and however
//! many take their share, some slots stay free for the next. WebSockets and event streams, which may stay for hours, get at most
//! three quarters of the slots, and clients share these by the same rule. Requests that have to wait are served client by client.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::timeout::timeout;

/// Maximum number of requests of one client that wait for a slot of a server.
const MAX_WAITING: usize = 4_096;

/// A request for a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotClaim {
    /// Whose request it is; `None` for clients that cannot be distinguished.
    pub(super) client: Option<IpAddr>,
    /// Whether it may stay for hours: a WebSocket or an event stream.
    pub(super) is_long_lived: bool,
}

pub(super) struct RequestSlots {
    max: usize,
    in_use: AtomicUsize,
    /// Requests in queues. Raised before a request tries for the last time, so that a slot that is freed after that is not missed.
    waiting: AtomicUsize,
    shares: Mutex<Shares>,
}

#[derive(Debug, Default)]
struct Shares {
    /// Slots of the second half.
    held: HeldByClient,
    long_lived: usize,
    /// Long-lived slots of the second half of those. Requests that came while clients were not distinguished count as one client.
    long_lived_held: HeldByClient,
    /// The client whose turn is next is in front.
    queues: VecDeque<ClientQueue>,
}

/// How many slots each client holds.
#[derive(Debug, Default)]
struct HeldByClient(HashMap<Option<IpAddr>, usize>);

/// Requests of one client that wait, in the order of arrival. Never empty.
#[derive(Debug)]
struct ClientQueue {
    client: Option<IpAddr>,
    requests: VecDeque<(SlotClaim, oneshot::Sender<Grant>)>,
}

/// How a slot in use is counted.
#[derive(Clone, Copy, Debug)]
struct Grant {
    client: Option<IpAddr>,
    half: Half,
    /// Its half of the long-lived slots, if it is one of them.
    long_lived: Option<Half>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    /// For whichever requests come first.
    First,
    /// Shared between clients.
    Second,
}

impl Half {
    /// Where the next slot of `max` is, if a client that holds `held` of the second half may have it.
    fn of_next(in_use: usize, max: usize, held: usize) -> Option<Self> {
        match in_use < max / 2 {
            true => Some(Self::First),
            false => (held < max.saturating_sub(in_use)).then_some(Self::Second),
        }
    }
}

/// A slot in use, free again when it is dropped.
pub(super) struct RequestSlot {
    slots: Arc<RequestSlots>,
    grant: Grant,
}

impl RequestSlots {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            in_use: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            shares: Mutex::default(),
        })
    }

    pub(super) fn in_use(&self) -> usize {
        self.in_use.load(SeqCst)
    }

    /// Whether slots may be shared by client now, so that requests should name their client.
    pub(super) fn are_scarce(&self) -> bool {
        self.in_use() >= self.max_long_lived() / 2
    }

    fn max_long_lived(&self) -> usize {
        self.max - self.max / 4
    }

    /// A slot, if there is one for this claim now.
    pub(super) fn try_take(self: &Arc<Self>, claim: SlotClaim) -> Option<RequestSlot> {
        let of_first_half = |in_use| (in_use < self.max / 2).then_some(in_use + 1);
        let takes_first = || self.in_use.fetch_update(SeqCst, SeqCst, of_first_half);
        if !claim.is_long_lived && takes_first().is_ok() {
            return Some(self.slot(Grant {
                client: claim.client,
                half: Half::First,
                long_lived: None,
            }));
        }
        let grant = self.grant(&mut self.shares.lock(), claim)?;
        Some(self.slot(grant))
    }

    /// A slot as soon as there is one; `None` if that takes too long, or too many requests of the client wait.
    pub(super) async fn take(
        self: &Arc<Self>,
        claim: SlotClaim,
        within: Duration,
    ) -> Option<RequestSlot> {
        self.waiting.fetch_add(1, SeqCst);
        let mut waiting = {
            let mut shares = self.shares.lock();
            let grant = self.grant(&mut shares, claim);
            let granted = match grant {
                Some(_) => None,
                None => shares.enqueue(claim),
            };
            let Some(granted) = granted else {
                self.waiting.fetch_sub(1, SeqCst);
                return grant.map(|grant| self.slot(grant));
            };
            WaitingRequest {
                slots: self,
                client: claim.client,
                granted,
            }
        };
        let grant = timeout(within, &mut waiting.granted).await?.ok()?;
        Some(self.slot(grant))
    }

    fn slot(self: &Arc<Self>, grant: Grant) -> RequestSlot {
        RequestSlot {
            slots: Arc::clone(self),
            grant,
        }
    }

    fn grant(&self, shares: &mut Shares, claim: SlotClaim) -> Option<Grant> {
        let client = claim.client;
        let long_lived = match claim.is_long_lived {
            true => Some(self.half_of_long_lived(shares, client)?),
            false => None,
        };
        // Clients that cannot be distinguished may be many.
        let held = client.map_or(0, |_| shares.held.by(client));
        let one_more = |in_use: usize| Half::of_next(in_use, self.max, held).map(|_| in_use + 1);
        let before = self.in_use.fetch_update(SeqCst, SeqCst, one_more).ok()?;
        let half = Half::of_next(before, self.max, held)?;
        shares.held.add(client, half);
        if let Some(half) = long_lived {
            shares.long_lived += 1;
            shares.long_lived_held.add(client, half);
        }
        Some(Grant {
            client,
            half,
            long_lived,
        })
    }

    fn half_of_long_lived(&self, shares: &Shares, client: Option<IpAddr>) -> Option<Half> {
        let held = shares.long_lived_held.by(client);
        Half::of_next(shares.long_lived, self.max_long_lived(), held)
    }

    fn release(&self, grant: Grant) {
        if grant.half == Half::First && grant.long_lived.is_none() {
            self.in_use.fetch_sub(1, SeqCst);
            if self.waiting.load(SeqCst) > 0 {
                self.serve_queues(&mut self.shares.lock());
            }
            return;
        }
        let mut shares = self.shares.lock();
        shares.held.remove(grant.client, grant.half);
        if let Some(half) = grant.long_lived {
            shares.long_lived -= 1;
            shares.long_lived_held.remove(grant.client, half);
        }
        self.in_use.fetch_sub(1, SeqCst);
        self.serve_queues(&mut shares);
    }

    /// Grants free slots to waiting requests, one to each client in turn.
    fn serve_queues(&self, shares: &mut Shares) {
        let mut passed_over = 0;
        while passed_over < shares.queues.len() && self.in_use() < self.max {
            let Some(mut queue) = shares.queues.pop_front() else {
                return;
            };
            passed_over = match self.serve(shares, &mut queue) {
                Some(()) => 0,
                None => passed_over + 1,
            };
            if !queue.requests.is_empty() {
                shares.queues.push_back(queue);
            }
        }
    }

    /// Grants a slot to the first request of a queue that may have one.
    fn serve(&self, shares: &mut Shares, queue: &mut ClientQueue) -> Option<()> {
        let (nth, grant) = [false, true].into_iter().find_map(|is_long_lived| {
            let mut claims = queue.requests.iter().map(|(claim, _)| *claim).enumerate();
            let (nth, claim) = claims.find(|(_, claim)| claim.is_long_lived == is_long_lived)?;
            Some((nth, self.grant(shares, claim)?))
        })?;
        let (_, granted) = queue.requests.remove(nth)?;
        self.waiting.fetch_sub(1, SeqCst);
        // A request leaves the queue before it stops waiting, so it is there.
        let _ = granted.send(grant);
        Some(())
    }
}

impl HeldByClient {
    fn by(&self, client: Option<IpAddr>) -> usize {
        self.0.get(&client).copied().unwrap_or(0)
    }

    /// Slots of the first half are not counted.
    fn add(&mut self, client: Option<IpAddr>, half: Half) {
        if half == Half::Second {
            *self.0.entry(client).or_default() += 1;
        }
    }

    fn remove(&mut self, client: Option<IpAddr>, half: Half) {
        if half == Half::Second
            && let Some(held) = self.0.get_mut(&client)
        {
            *held -= 1;
            if *held == 0 {
                self.0.remove(&client);
            }
        }
    }
}

impl Shares {
    /// `None` if too many requests of this client wait already.
    fn enqueue(&mut self, claim: SlotClaim) -> Option<oneshot::Receiver<Grant>> {
        let (sender, granted) = oneshot::channel();
        let mut queues = self.queues.iter_mut();
        match queues.find(|queue| queue.client == claim.client) {
            Some(queue) if queue.requests.len() >= MAX_WAITING => return None,
            Some(queue) => queue.requests.push_back((claim, sender)),
            None => self.queues.push_back(ClientQueue {
                client: claim.client,
                requests: VecDeque::from([(claim, sender)]),
            }),
        }
        Some(granted)
    }

    /// Removes the requests of a client that do not wait any more. Returns how many there were.
    fn dequeue_closed(&mut self, client: Option<IpAddr>) -> usize {
        let mut removed = 0;
        self.queues.retain_mut(|queue| {
            if queue.client == client {
                let before = queue.requests.len();
                queue.requests.retain(|(_, sender)| !sender.is_closed());
                removed += before - queue.requests.len();
            }
            !queue.requests.is_empty()
        });
        removed
    }
}

/// A request in a queue.
struct WaitingRequest<'a> {
    slots: &'a RequestSlots,
    client: Option<IpAddr>,
    granted: oneshot::Receiver<Grant>,
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        if self.granted.is_terminated() {
            return;
        }
        let mut shares = self.slots.shares.lock();
        self.granted.close();
        let removed = shares.dequeue_closed(self.client);
        drop(shares);
        self.slots.waiting.fetch_sub(removed, SeqCst);
        if let Ok(grant) = self.granted.try_recv() {
            // It came too late.
            self.slots.release(grant);
        }
    }
}

impl RequestSlot {
    /// From now on it counts as long-lived. Returns whether its client may have one more of those.
    #[must_use]
    pub(super) fn become_long_lived(&mut self) -> bool {
        if self.grant.long_lived.is_some() {
            return true;
        }
        let client = self.grant.client;
        let mut shares = self.slots.shares.lock();
        self.grant.long_lived = self.slots.half_of_long_lived(&shares, client);
        if let Some(half) = self.grant.long_lived {
            shares.long_lived += 1;
            shares.long_lived_held.add(client, half);
        }
        self.grant.long_lived.is_some()
    }
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.slots.release(self.grant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn short(client: u8) -> SlotClaim {
        SlotClaim {
            client: Some([192, 0, 2, client].into()),
            is_long_lived: false,
        }
    }

    fn long(client: u8) -> SlotClaim {
        SlotClaim {
            is_long_lived: true,
            ..short(client)
        }
    }

    fn as_many_as_possible(slots: &Arc<RequestSlots>, claim: SlotClaim) -> Vec<RequestSlot> {
        std::iter::from_fn(|| slots.try_take(claim)).collect()
    }

    #[test]
    fn a_client_alone_gets_three_quarters_and_others_their_share() {
        let slots = RequestSlots::new(64);
        let first = as_many_as_possible(&slots, short(1));
        let second = as_many_as_possible(&slots, short(2));
        let third = as_many_as_possible(&slots, short(3));
        assert_eq!((first.len(), second.len(), third.len()), (48, 8, 4));
        // There is always one more client that gets some.
        assert!(slots.try_take(short(4)).is_some());
        drop(first);
        // Clients that cannot be distinguished take what is left.
        let unknown = SlotClaim {
            client: None,
            is_long_lived: false,
        };
        assert_eq!(as_many_as_possible(&slots, unknown).len(), 64 - 12);
    }

    #[test]
    fn freed_slots_leave_no_trace() {
        let slots = RequestSlots::new(8);
        for claim in [short(1), long(1)] {
            drop(as_many_as_possible(&slots, claim));
        }
        let mut slot = slots.try_take(short(1)).unwrap();
        assert!(slot.become_long_lived() && slot.become_long_lived());
        drop(slot);
        let shares = slots.shares.lock();
        assert_eq!((slots.in_use(), slots.waiting.load(SeqCst)), (0, 0));
        assert!(shares.held.0.is_empty() && shares.queues.is_empty());
        assert_eq!(shares.long_lived, 0);
        assert!(shares.long_lived_held.0.is_empty());
    }

    #[test]
    fn one_or_two_slots_can_all_be_used() {
        for max in 1..=2 {
            let slots = RequestSlots::new(max);
            assert_eq!(as_many_as_possible(&slots, short(1)).len(), max);
            assert_eq!(as_many_as_possible(&slots, long(1)).len(), max);
        }
    }

    #[test]
    fn long_lived_requests_leave_a_quarter_to_others() {
        let slots = RequestSlots::new(64);
        let mut streams: Vec<RequestSlot> =
            (1..=100).filter_map(|n| slots.try_take(long(n))).collect();
        assert_eq!(streams.len(), 48);
        assert!(slots.try_take(short(200)).is_some());
        // One that turns out to be long-lived counts as well.
        let mut slot = slots.try_take(short(201)).unwrap();
        assert!(!slot.become_long_lived());
        streams.pop();
        assert!(slot.become_long_lived());
        assert!(slots.try_take(long(202)).is_none());
    }

    #[test]
    fn a_client_leaves_long_lived_slots_to_others() {
        let slots = RequestSlots::new(64);
        let first = as_many_as_possible(&slots, long(1));
        let second = as_many_as_possible(&slots, long(2));
        let third = as_many_as_possible(&slots, long(3));
        assert_eq!((first.len(), second.len(), third.len()), (36, 6, 3));
        assert!(slots.try_take(long(4)).is_some());
    }

    #[test]
    fn requests_that_become_long_lived_leave_slots_to_others() {
        let slots = RequestSlots::new(64);
        let mut all = as_many_as_possible(&slots, short(1));
        // Some came while clients were not distinguished.
        for slot in all.iter_mut().take(24) {
            slot.grant.client = None;
        }
        let long_lived = |slots: &mut [RequestSlot]| {
            let became = slots
                .iter_mut()
                .filter_map(|slot| slot.become_long_lived().then_some(()));
            became.count()
        };
        // Those of a known client first, which get the first half without being counted.
        all.reverse();
        assert_eq!((all.len(), long_lived(&mut all)), (48, 24 + 12));
        assert!(slots.try_take(long(2)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_requests_are_served_client_by_client() {
        let slots = RequestSlots::new(1);
        let first = slots.try_take(short(1)).unwrap();
        let (sender, mut served) = tokio::sync::mpsc::unbounded_channel();
        for client in [1, 1, 1, 2, 3, 1, 2] {
            let (slots, sender) = (Arc::clone(&slots), sender.clone());
            tokio::spawn(async move {
                let slot = slots.take(short(client), LONG).await;
                sender.send((client, slot.is_some())).unwrap();
            });
            tokio::task::yield_now().await;
        }
        drop((first, sender));
        let mut order = Vec::new();
        while let Some((client, got_slot)) = served.recv().await {
            assert!(got_slot);
            order.push(client);
        }
        assert_eq!(order, [1, 2, 3, 1, 2, 1, 1]);
        assert_eq!(slots.in_use(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn request_that_stops_waiting_leaves_no_trace() {
        let slots = RequestSlots::new(1);
        let first = slots.try_take(short(1)).unwrap();
        assert!(
            slots
                .take(short(2), Duration::from_millis(5))
                .await
                .is_none()
        );
        let waiting = {
            let slots = Arc::clone(&slots);
            tokio::spawn(async move { slots.take(short(2), LONG).await.is_some() })
        };
        tokio::task::yield_now().await;
        // It is granted a slot, and ends before it receives it.
        drop(first);
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        assert_eq!((slots.in_use(), slots.waiting.load(SeqCst)), (0, 0));
        assert!(slots.shares.lock().queues.is_empty());
        assert!(slots.take(short(3), LONG).await.is_some());
    }

    #[test]
    fn no_slot_is_lost_under_concurrency() {
        let slots = RequestSlots::new(4);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for client in 0..32 {
                let slots = Arc::clone(&slots);
                tasks.spawn(async move {
                    for _ in 0..200 {
                        let slot = slots.take(short(client), LONG).await;
                        assert!(slots.in_use() <= 4);
                        tokio::task::yield_now().await;
                        assert!(slot.is_some());
                    }
                });
            }
            tasks.join_all().await;
        });
        assert_eq!((slots.in_use(), slots.waiting.load(SeqCst)), (0, 0));
    }
}
