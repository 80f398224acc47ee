//! Slots for concurrent requests at one server, shared fairly between clients.
//!
//! Whoever comes first gets the first half of the slots, without any bookkeeping. Of the second half a client gets one only while more
//! slots are free than it holds there. So a single client never takes more than three quarters, and however many take their
//! share, some slots stay free for the next.
//!
//! WebSockets and event streams, which may stay for hours, get at most three quarters of the slots, and clients share these by the same
//! rule: the first half goes to whoever comes first, and of the second a client gets no more than it leaves free.
//!
//! Requests that have to wait are served client by client, so a long queue of one client delays nobody else.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::patience::timeout;

/// Requests of one client that may wait for a slot of a server.
const MAX_WAITING: usize = 4_096;

/// What a slot is wanted for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Whose request it is; `None` for clients that are not told apart.
    pub(super) client: Option<IpAddr>,
    /// Whether it may stay for hours: a WebSocket or an event stream.
    pub(super) is_long_lived: bool,
}

/// The slots of a server.
#[derive(Debug)]
pub(super) struct Slots {
    max: usize,
    in_use: AtomicUsize,
    /// Requests in queues. Raised before a request looks for a slot for the last time, so whoever frees one after that sees it.
    waiting: AtomicUsize,
    shares: Mutex<Shares>,
}

#[derive(Debug, Default)]
struct Shares {
    /// Slots of the second half.
    held: Held,
    long_lived: usize,
    /// Long-lived ones of the second half of those. All clients that are not told apart are one here, as a request that turns out to be
    /// long-lived may have come while nobody had to say whose it was.
    long_lived_held: Held,
    /// The client whose turn is next is in front.
    queues: VecDeque<Queue>,
    next_id: u64,
}

/// How many slots each client holds.
#[derive(Debug, Default)]
struct Held(HashMap<Option<IpAddr>, usize>);

/// Requests of one client that wait, in the order of arrival. Never empty.
#[derive(Debug)]
struct Queue {
    client: Option<IpAddr>,
    requests: VecDeque<Queued>,
}

#[derive(Debug)]
struct Queued {
    id: u64,
    claim: Claim,
    granted: oneshot::Sender<Grant>,
}

/// How a slot in use is counted.
#[derive(Clone, Copy, Debug)]
struct Grant {
    client: Option<IpAddr>,
    half: Half,
    /// Its half of the long-lived slots, if it is one of them.
    long_lived: Option<Half>,
}

/// A part of the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    /// For whoever comes first.
    First,
    /// Shared between clients.
    Second,
}

impl Half {
    /// Where the next slot of `max` is, if a client that holds `held` of the second half may have it.
    fn of_next(in_use: usize, max: usize, held: usize) -> Option<Self> {
        let free = max.saturating_sub(in_use);
        match in_use < max / 2 {
            true => Some(Self::First),
            false => (held < free).then_some(Self::Second),
        }
    }
}

/// A slot in use, free again when it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    grant: Grant,
}

impl Slots {
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

    /// Whether slots, or those for long-lived requests, may be shared out by client now, so that a request should say whose it is.
    pub(super) fn are_scarce(&self) -> bool {
        self.in_use() >= self.max_long_lived() / 2
    }

    fn first_half(&self) -> usize {
        self.max / 2
    }

    fn max_long_lived(&self) -> usize {
        self.max - self.max / 4
    }

    /// A slot, if there is one for this claim now.
    pub(super) fn take_now(self: &Arc<Self>, claim: Claim) -> Option<Slot> {
        let of_first_half = |in_use| (in_use < self.first_half()).then_some(in_use + 1);
        if !claim.is_long_lived
            && (self.in_use)
                .fetch_update(SeqCst, SeqCst, of_first_half)
                .is_ok()
        {
            let grant = Grant {
                client: claim.client,
                half: Half::First,
                long_lived: None,
            };
            return Some(self.slot(grant));
        }
        let grant = self.grant(&mut self.shares.lock(), claim)?;
        Some(self.slot(grant))
    }

    /// A slot as soon as there is one for this claim; `None` if that takes too long, or too many requests of the client wait already.
    pub(super) async fn take(self: &Arc<Self>, claim: Claim, within: Duration) -> Option<Slot> {
        self.waiting.fetch_add(1, SeqCst);
        let waiting = {
            let mut shares = self.shares.lock();
            if let Some(grant) = self.grant(&mut shares, claim) {
                self.waiting.fetch_sub(1, SeqCst);
                return Some(self.slot(grant));
            }
            let Some((id, granted)) = shares.enqueue(claim) else {
                self.waiting.fetch_sub(1, SeqCst);
                return None;
            };
            Waiting {
                slots: self,
                client: claim.client,
                id,
                granted: Some(granted),
            }
        };
        timeout(within, waiting.granted()).await?
    }

    fn slot(self: &Arc<Self>, grant: Grant) -> Slot {
        Slot {
            slots: Arc::clone(self),
            grant,
        }
    }

    fn grant(&self, shares: &mut Shares, claim: Claim) -> Option<Grant> {
        let client = claim.client;
        let long_lived = match claim.is_long_lived {
            true => Some(self.half_of_long_lived(shares, client)?),
            false => None,
        };
        // Clients that are not told apart may be many.
        let held = client.map_or(0, |_| shares.held.by(client));
        let one_more = |in_use: usize| Half::of_next(in_use, self.max, held).map(|_| in_use + 1);
        let before = self.in_use.fetch_update(SeqCst, SeqCst, one_more).ok()?;
        let half = Half::of_next(before, self.max, held)?;
        if half == Half::Second {
            shares.held.add(client);
        }
        if let Some(half) = long_lived {
            shares.add_long_lived(client, half);
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
        if grant.half == Half::Second {
            shares.held.remove(grant.client);
        }
        if let Some(half) = grant.long_lived {
            shares.remove_long_lived(grant.client, half);
        }
        self.in_use.fetch_sub(1, SeqCst);
        self.serve_queues(&mut shares);
    }

    /// Grants what is free to those who wait, one to each client in turn.
    fn serve_queues(&self, shares: &mut Shares) {
        let mut passed_over = 0;
        while passed_over < shares.queues.len() && self.in_use() < self.max {
            let Some(mut queue) = shares.queues.pop_front() else {
                return;
            };
            passed_over = match self.serve(shares, &mut queue) {
                true => 0,
                false => passed_over + 1,
            };
            if !queue.requests.is_empty() {
                shares.queues.push_back(queue);
            }
        }
    }

    /// Grants a slot to the first request of a queue that may have one. Returns whether there was one.
    fn serve(&self, shares: &mut Shares, queue: &mut Queue) -> bool {
        for is_long_lived in [false, true] {
            let is_such = |queued: &Queued| queued.claim.is_long_lived == is_long_lived;
            let Some(nth) = queue.requests.iter().position(is_such) else {
                continue;
            };
            let Some(claim) = queue.requests.get(nth).map(|queued| queued.claim) else {
                continue;
            };
            let Some(grant) = self.grant(shares, claim) else {
                continue;
            };
            if let Some(queued) = queue.requests.remove(nth) {
                self.waiting.fetch_sub(1, SeqCst);
                // The other end leaves the queue before it goes, so it is there.
                let _ = queued.granted.send(grant);
            }
            return true;
        }
        false
    }
}

impl Held {
    fn by(&self, client: Option<IpAddr>) -> usize {
        self.0.get(&client).copied().unwrap_or(0)
    }

    fn add(&mut self, client: Option<IpAddr>) {
        *self.0.entry(client).or_default() += 1;
    }

    fn remove(&mut self, client: Option<IpAddr>) {
        if let Some(held) = self.0.get_mut(&client) {
            *held -= 1;
            if *held == 0 {
                self.0.remove(&client);
            }
        }
    }
}

impl Shares {
    fn add_long_lived(&mut self, client: Option<IpAddr>, half: Half) {
        self.long_lived += 1;
        if half == Half::Second {
            self.long_lived_held.add(client);
        }
    }

    fn remove_long_lived(&mut self, client: Option<IpAddr>, half: Half) {
        self.long_lived -= 1;
        if half == Half::Second {
            self.long_lived_held.remove(client);
        }
    }

    /// `None` if too many of this client wait already.
    fn enqueue(&mut self, claim: Claim) -> Option<(u64, oneshot::Receiver<Grant>)> {
        let (granted, waits) = oneshot::channel();
        let id = self.next_id;
        self.next_id += 1;
        let queued = Queued { id, claim, granted };
        let mut queues = self.queues.iter_mut();
        match queues.find(|queue| queue.client == claim.client) {
            Some(queue) if queue.requests.len() >= MAX_WAITING => return None,
            Some(queue) => queue.requests.push_back(queued),
            None => self.queues.push_back(Queue {
                client: claim.client,
                requests: VecDeque::from([queued]),
            }),
        }
        Some((id, waits))
    }

    /// Returns whether it was there.
    fn dequeue(&mut self, client: Option<IpAddr>, id: u64) -> bool {
        let Some(nth) = (self.queues.iter()).position(|queue| queue.client == client) else {
            return false;
        };
        let Some(queue) = self.queues.get_mut(nth) else {
            return false;
        };
        let before = queue.requests.len();
        queue.requests.retain(|queued| queued.id != id);
        let was_there = queue.requests.len() < before;
        if queue.requests.is_empty() {
            self.queues.remove(nth);
        }
        was_there
    }
}

/// A request in a queue.
struct Waiting<'a> {
    slots: &'a Arc<Slots>,
    client: Option<IpAddr>,
    id: u64,
    /// Until it got its slot.
    granted: Option<oneshot::Receiver<Grant>>,
}

impl Waiting<'_> {
    async fn granted(mut self) -> Option<Slot> {
        let grant = self.granted.as_mut()?.await.ok()?;
        self.granted = None;
        Some(self.slots.slot(grant))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(mut granted) = self.granted.take() else {
            return;
        };
        if self.slots.shares.lock().dequeue(self.client, self.id) {
            self.slots.waiting.fetch_sub(1, SeqCst);
        } else if let Ok(grant) = granted.try_recv() {
            // It came too late.
            self.slots.release(grant);
        }
    }
}

impl Slot {
    /// From now on it counts as long-lived. Returns whether its client may have one more of those.
    #[must_use]
    pub(super) fn become_long_lived(&mut self) -> bool {
        if self.grant.long_lived.is_some() {
            return true;
        }
        let client = self.grant.client;
        let mut shares = self.slots.shares.lock();
        let half = self.slots.half_of_long_lived(&shares, client);
        if let Some(half) = half {
            shares.add_long_lived(client, half);
        }
        self.grant.long_lived = half;
        half.is_some()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.release(self.grant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn short(client: u8) -> Claim {
        Claim {
            client: Some([192, 0, 2, client].into()),
            is_long_lived: false,
        }
    }

    fn long(client: u8) -> Claim {
        Claim {
            is_long_lived: true,
            ..short(client)
        }
    }

    fn as_many_as_possible(slots: &Arc<Slots>, claim: Claim) -> Vec<Slot> {
        std::iter::from_fn(|| slots.take_now(claim)).collect()
    }

    #[test]
    fn a_client_alone_gets_three_quarters_and_others_their_share() {
        let slots = Slots::new(64);
        let first = as_many_as_possible(&slots, short(1));
        let second = as_many_as_possible(&slots, short(2));
        let third = as_many_as_possible(&slots, short(3));
        assert_eq!((first.len(), second.len(), third.len()), (48, 8, 4));
        // There is always one more client that gets some.
        assert!(slots.take_now(short(4)).is_some());
        drop(first);
        // Clients that are not told apart take what is left.
        let unknown = Claim {
            client: None,
            is_long_lived: false,
        };
        assert_eq!(as_many_as_possible(&slots, unknown).len(), 64 - 12);
    }

    #[test]
    fn slots_that_are_freed_leave_no_trace() {
        let slots = Slots::new(8);
        for claim in [short(1), long(1)] {
            drop(as_many_as_possible(&slots, claim));
        }
        let mut slot = slots.take_now(short(1)).unwrap();
        assert!(slot.become_long_lived() && slot.become_long_lived());
        drop(slot);
        let shares = slots.shares.lock();
        assert_eq!((slots.in_use(), slots.waiting.load(SeqCst)), (0, 0));
        assert!(shares.held.0.is_empty() && shares.queues.is_empty());
        assert_eq!(shares.long_lived, 0);
        assert!(shares.long_lived_held.0.is_empty());
    }

    #[test]
    fn few_slots_can_all_be_used() {
        for max in 1..=2 {
            let slots = Slots::new(max);
            assert_eq!(as_many_as_possible(&slots, short(1)).len(), max);
            assert_eq!(as_many_as_possible(&slots, long(1)).len(), max);
        }
    }

    #[test]
    fn long_lived_requests_leave_a_quarter_to_others() {
        let slots = Slots::new(64);
        let mut streams: Vec<Slot> = (1..=100).filter_map(|n| slots.take_now(long(n))).collect();
        assert_eq!(streams.len(), 48);
        assert!(slots.take_now(short(200)).is_some());
        // One that turns out to be long-lived counts as well.
        let mut slot = slots.take_now(short(201)).unwrap();
        assert!(!slot.become_long_lived());
        streams.pop();
        assert!(slot.become_long_lived());
        assert!(slots.take_now(long(202)).is_none());
    }

    #[test]
    fn a_client_leaves_long_lived_slots_to_others() {
        let slots = Slots::new(64);
        let first = as_many_as_possible(&slots, long(1));
        let second = as_many_as_possible(&slots, long(2));
        let third = as_many_as_possible(&slots, long(3));
        assert_eq!((first.len(), second.len(), third.len()), (36, 6, 3));
        assert!(slots.take_now(long(4)).is_some());
    }

    #[test]
    fn requests_that_become_long_lived_leave_slots_to_others() {
        let slots = Slots::new(64);
        let mut all = as_many_as_possible(&slots, short(1));
        // Some came before anybody had to say whose they were.
        for slot in all.iter_mut().take(24) {
            slot.grant.client = None;
        }
        let long_lived = |slots: &mut [Slot]| {
            let became = slots
                .iter_mut()
                .filter_map(|slot| slot.become_long_lived().then_some(()));
            became.count()
        };
        // Those with a name first, which get the first half without being counted.
        all.reverse();
        assert_eq!((all.len(), long_lived(&mut all)), (48, 24 + 12));
        assert!(slots.take_now(long(2)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_are_served_client_by_client() {
        let slots = Slots::new(1);
        let first = slots.take_now(short(1)).unwrap();
        let (tell, mut served) = tokio::sync::mpsc::unbounded_channel();
        for client in [1, 1, 1, 2, 3, 1, 2] {
            let (slots, tell) = (Arc::clone(&slots), tell.clone());
            tokio::spawn(async move {
                let slot = slots.take(short(client), LONG).await;
                tell.send((client, slot.is_some())).unwrap();
            });
            tokio::task::yield_now().await;
        }
        drop((first, tell));
        let mut order = Vec::new();
        while let Some((client, got_slot)) = served.recv().await {
            assert!(got_slot);
            order.push(client);
        }
        assert_eq!(order, [1, 2, 3, 1, 2, 1, 1]);
        assert_eq!(slots.in_use(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_stops_waiting_leaves_no_trace() {
        let slots = Slots::new(1);
        let first = slots.take_now(short(1)).unwrap();
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
        // It is granted a slot, and goes before it hears of it.
        drop(first);
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        assert_eq!((slots.in_use(), slots.waiting.load(SeqCst)), (0, 0));
        assert!(slots.shares.lock().queues.is_empty());
        assert!(slots.take(short(3), LONG).await.is_some());
    }

    /// However many threads take and release, no slot is lost or given twice, and nobody waits in vain.
    #[test]
    fn no_slot_is_lost_under_concurrency() {
        let slots = Slots::new(4);
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
