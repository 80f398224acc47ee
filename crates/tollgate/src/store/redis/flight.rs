//! Requests on their way to Redis, many in one call.
//!
//! A request that finds fewer than three calls under way goes at once, with all that come in the same moment; the others gather and
//! go when one comes back. So nobody waits while there is nothing to wait for, and the busier it is, the more share a call.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::FromRedisValue;
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::RedisClock;
use super::cluster::Cluster;
use super::connection::Connection;
use super::error::RedisError;
use super::key::Address;
use super::meter::Meter;
use super::parcel::{self, Parcel, Reader, Way};
use super::script::{Script, Scripts};
use super::{single, tokens};
use crate::limit::{Algorithm, Limit};
use crate::store::Taken;

/// Calls under way at the same time: so that few wait where little is asked, and that calls are full where much is.
const MOST_FLIGHTS: usize = 3;
/// Requests in one call.
const MOST_PARCELS: usize = 64;
/// How many that go another way are passed over when a flight is filled.
const MOST_PASSED_OVER: usize = 4 * MOST_PARCELS;
/// Of its time, a request must have so much left when it goes: one part in ten.
const LEAST_TIME: u32 = 10;

/// All requests to one server, or to one slot of a cluster, as a script cannot reach beyond that.
#[derive(Debug)]
pub(super) struct Flights {
    destination: Destination,
    scripts: Arc<Scripts>,
    clock: RedisClock,
    deadline: Duration,
    queue: Mutex<Queue>,
    meter: Arc<Meter>,
}

#[derive(Debug)]
pub(super) enum Destination {
    Server(Arc<Connection>),
    Slot(Arc<Cluster>, u16),
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    in_the_air: usize,
}

/// A request that waits for its flight.
#[derive(Debug)]
struct Waiting {
    parcel: Parcel,
    deadline: Instant,
    answer: oneshot::Sender<Result<Taken, RedisError>>,
    /// Whether it goes without others.
    alone: bool,
}

impl Flights {
    pub(super) fn new(
        destination: Destination,
        scripts: Arc<Scripts>,
        clock: RedisClock,
        deadline: Duration,
        meter: Arc<Meter>,
    ) -> Self {
        Self {
            destination,
            scripts,
            clock,
            deadline,
            queue: Mutex::default(),
            meter,
        }
    }

    /// Sends a request with the next flight.
    pub(super) async fn send(this: Arc<Self>, parcel: Parcel) -> Result<Taken, RedisError> {
        let deadline = Instant::now() + this.deadline;
        let (answer, answered) = oneshot::channel();
        let leads = {
            let mut queue = this.queue.lock();
            queue.waiting.push_back(Waiting {
                parcel,
                deadline,
                answer,
                alone: false,
            });
            let leads = queue.in_the_air < MOST_FLIGHTS;
            queue.in_the_air += usize::from(leads);
            leads
        };
        if leads {
            // A task of its own: whoever asked may stop waiting, and the others go on.
            let flight = Flight {
                flights: Arc::clone(&this),
                has_landed: false,
            };
            tokio::spawn(flight.fly());
        }
        match tokio::time::timeout_at(deadline, answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(RedisError::Unreachable("the flight was lost".into())),
            // Rather why there is no connection than that there is none yet.
            Err(_) => Err(this.destination.failure().unwrap_or(RedisError::TooLate)),
        }
    }

    /// Waits until there is a connection, as long as anybody waits for one. Before it is known who goes: who gives up meanwhile is not
    /// sent any more.
    async fn ready(&self) {
        loop {
            let until = self.queue.lock().waiting.back().map(|last| last.deadline);
            let Some(until) = until.filter(|until| *until > Instant::now()) else {
                return;
            };
            self.destination.ready(until).await;
            if Instant::now() < until {
                return;
            }
        }
    }

    /// Those who go with the next flight: the first who waits, and others who go the same way. Who could not be back in time does not
    /// go: a call that misses its deadline costs the connection, and those on it their answers.
    fn board(&self) -> Option<Vec<Waiting>> {
        let mut queue = self.queue.lock();
        let in_time = Instant::now() + self.deadline / LEAST_TIME;
        let mut crew: Vec<Waiting> = Vec::with_capacity(MOST_PARCELS.min(queue.waiting.len()));
        let mut left = Vec::new();
        while crew.len() < MOST_PARCELS
            && left.len() < MOST_PASSED_OVER
            && let Some(next) = queue.waiting.pop_front()
        {
            if next.deadline <= in_time || next.answer.is_closed() {
                let _ = next.answer.send(Err(RedisError::TooLate));
                continue;
            }
            let goes = crew.first().is_none_or(|first| first.goes_with(&next));
            if goes {
                crew.push(next);
            } else {
                left.push(next);
            }
        }
        for next in left.into_iter().rev() {
            queue.waiting.push_front(next);
        }
        if crew.is_empty() {
            // In the same moment: who comes now starts another.
            queue.in_the_air -= 1;
            return None;
        }
        Some(crew)
    }

    async fn carry(&self, crew: Vec<Waiting>) {
        // The last one's: the others stop waiting by themselves.
        let until = crew.iter().map(|one| one.deadline).max();
        let begun = Instant::now();
        let answer = self.fly_once(&crew, until.unwrap_or(begun)).await;
        if crew.len() > 1 && answer.as_ref().is_err_and(RedisError::is_of_several_keys) {
            self.part(crew);
            return;
        }
        (self.meter).called(crew.len(), begun.elapsed(), answer.is_ok());
        match answer {
            Ok(taken) => {
                for (one, taken) in crew.into_iter().zip(taken) {
                    // Whoever has gone does not hear it.
                    let _ = one.answer.send(taken.ok_or(RedisError::Garbage));
                }
            }
            Err(error) => {
                for one in crew {
                    let _ = one.answer.send(Err(error.clone()));
                }
            }
        }
    }

    /// Each is to go by itself. While their slot moves, a call for keys of which some are here and some there is refused until all are there; each
    /// alone is served.
    fn part(&self, crew: Vec<Waiting>) {
        let mut queue = self.queue.lock();
        for one in crew.into_iter().rev() {
            queue.waiting.push_front(Waiting { alone: true, ..one });
        }
    }

    /// What each was told; nothing, if that makes no sense.
    async fn fly_once(
        &self,
        crew: &[Waiting],
        until: Instant,
    ) -> Result<Vec<Option<Taken>>, RedisError> {
        let parcels = || crew.iter().map(|one| &one.parcel);
        let way = crew.first().map_or(Way::Take, |first| first.parcel.way);
        let patient = crew.len() == 1;
        let time = self.time();
        if way == Way::Tokens {
            let reply: Vec<u8> = if let Some((keys, blob)) = single::manifest(parcels()) {
                let args = with_time(&[&blob], &time);
                (self.call(&self.scripts.single, &keys, &args, patient, until)).await?
            } else {
                let (keys, blob) = tokens::manifest(parcels());
                let args = with_time(&[&blob], &time);
                (self.call(&self.scripts.tokens, &keys, &args, patient, until)).await?
            };
            let taken = parcel::read_replies(&reply, parcels(), tokens::read_reply);
            return taken.ok_or(RedisError::Garbage);
        }
        let (keys, blob) = parcel::manifest(parcels());
        let (script, charging): (_, &[u8]) = match way {
            Way::Look => (&self.scripts.peek, b"0"),
            _ => (&self.scripts.take, b"1"),
        };
        let args = with_time(&[charging, &blob], &time);
        let reply: Vec<u8> = (self.call(script, &keys, &args, patient, until)).await?;
        parcel::read_replies(&reply, parcels(), parcel::read_reply).ok_or(RedisError::Garbage)
    }

    async fn call<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[impl AsRef<str>],
        args: &[&[u8]],
        patient: bool,
        until: Instant,
    ) -> Result<T, RedisError> {
        match &self.destination {
            Destination::Server(connection) => {
                connection.call(script, keys, args, false, until).await
            }
            Destination::Slot(cluster, slot) => {
                cluster
                    .call(*slot, script, keys, args, patient, until)
                    .await
            }
        }
    }

    /// What the server says of itself, or why it does not; in a cluster, each node.
    pub(super) async fn infos(&self) -> Result<Vec<Result<String, RedisError>>, RedisError> {
        let until = Instant::now() + self.deadline.max(Duration::from_secs(1));
        match &self.destination {
            Destination::Server(connection) => Ok(vec![connection.info(until).await]),
            Destination::Slot(cluster, _) => cluster.infos(until).await,
        }
    }

    /// Gives back what was taken under this limit at this time.
    pub(super) async fn refund(
        &self,
        address: Address,
        limit: &Limit,
        cost: u64,
        charged_at_us: u64,
    ) -> Result<(), RedisError> {
        let blob = parcel::refund(limit, address.id, cost, charged_at_us);
        let log_key = (limit.algorithm() == Algorithm::SlidingLog).then(|| address.log_key());
        // A key that is not needed would not be there, and while slots move that is refused.
        let keys: SmallVec<[String; 2]> = std::iter::once(address.key).chain(log_key).collect();
        let time = self.time();
        let until = Instant::now() + self.deadline;
        let args = with_time(&[&blob], &time);
        let done: Result<i64, RedisError> =
            (self.call(&self.scripts.refund, &keys, &args, true, until)).await;
        done.map(drop)
    }

    /// Forgets what lies at these addresses, which are all under one key.
    pub(super) async fn reset(&self, addresses: &[Address]) -> Result<(), RedisError> {
        let Some(first) = addresses.first() else {
            return Ok(());
        };
        let logs = addresses.iter().map(Address::log_key);
        let keys: Vec<String> = std::iter::once(first.key.clone()).chain(logs).collect();
        let ids: Vec<&[u8]> = addresses.iter().map(|address| &address.id[..]).collect();
        let until = Instant::now() + self.deadline;
        let done: Result<i64, RedisError> =
            (self.call(&self.scripts.reset, &keys, &ids, true, until)).await;
        done.map(drop)
    }

    /// The records under a subject's key: each one's id, and from when on it says nothing.
    pub(super) async fn records(&self, key: String) -> Result<Vec<([u8; 8], u64)>, RedisError> {
        let until = Instant::now() + self.deadline;
        let said: Vec<u8> = (self.call(&self.scripts.records, &[key], &[], true, until)).await?;
        let mut reader = Reader(&said);
        let mut records = Vec::new();
        while !reader.is_empty() {
            let record = reader.bytes().zip(reader.number());
            records.push(record.ok_or(RedisError::Garbage)?);
        }
        Ok(records)
    }

    /// Says that an instance lives for so long from now on, or has gone if that is nothing. Answers how many live.
    pub(super) async fn heartbeat(
        &self,
        key: String,
        id: u64,
        life: Duration,
    ) -> Result<u32, RedisError> {
        let (id, life) = (format!("{id:016x}"), life.as_millis().to_string());
        // Nobody waits for it, so it gives up the connection only if that is surely of no use.
        let until = Instant::now() + self.deadline.max(Duration::from_secs(1));
        let args = [id.as_bytes(), life.as_bytes()];
        let living: i64 = (self.call(&self.scripts.heartbeat, &[key], &args, true, until)).await?;
        u32::try_from(living).map_err(|_| RedisError::Garbage)
    }

    /// The time and how far it may be off, as the scripts take them; none if it is the server's.
    fn time(&self) -> Option<[String; 2]> {
        match &self.clock {
            RedisClock::Server => None,
            RedisClock::Caller { clock, tolerance } => Some([
                clock.now_us().to_string(),
                tolerance.as_micros().to_string(),
            ]),
            RedisClock::Simulated(clock) => Some([clock.now_us().to_string(), "-1".to_owned()]),
        }
    }
}

/// A script's arguments, with the time behind them.
fn with_time<'a>(args: &[&'a [u8]], time: &'a Option<[String; 2]>) -> SmallVec<[&'a [u8]; 4]> {
    let time = time.iter().flatten().map(String::as_bytes);
    args.iter().copied().chain(time).collect()
}

impl Destination {
    async fn ready(&self, until: Instant) {
        match self {
            Self::Server(connection) => {
                connection.ready(until).await;
            }
            Self::Slot(cluster, slot) => cluster.ready(*slot, until).await,
        }
    }

    /// Why nobody gets there, if that is known.
    fn failure(&self) -> Option<RedisError> {
        match self {
            Self::Server(connection) => connection.failure(),
            // Which of its nodes was meant, and why it was, is said by the call.
            Self::Slot(..) => None,
        }
    }
}

impl Waiting {
    /// Whether another can come along.
    fn goes_with(&self, other: &Self) -> bool {
        !self.alone && !other.alone && self.parcel.way == other.parcel.way
    }
}

/// A flight. Counts itself out, also one that ends in a panic, or never began because its runtime had ended.
struct Flight {
    flights: Arc<Flights>,
    has_landed: bool,
}

impl Flight {
    /// Carries what waits, again and again until nothing does.
    async fn fly(mut self) {
        // Who is about to ask does so first, and comes along. Nobody waits for the clock here: until this thread has nothing else to do, or
        // has done 61 things (tokio's `event_interval`).
        tokio::task::yield_now().await;
        loop {
            self.flights.ready().await;
            let Some(crew) = self.flights.board() else {
                break;
            };
            self.flights.carry(crew).await;
        }
        self.has_landed = true;
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.has_landed {
            // Who waits goes with whoever comes next.
            self.flights.queue.lock().in_the_air -= 1;
        }
    }
}
