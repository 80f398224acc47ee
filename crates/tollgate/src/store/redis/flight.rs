//! Requests on their way to Redis, many in one call.
//!
//! A request that finds fewer than two calls under way goes at once, with all that wait; the others gather and go when one
//! comes back. So nobody waits while there is nothing to wait for, and the busier it is, the more share a call.

use std::collections::{HashMap, VecDeque};
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
use super::script::{Script, Scripts};
use crate::algorithm::Fit;
use crate::limit::{Algorithm, Kind, Limit};
use crate::store::{Charge, Outcome, Refund, Taken};

/// Calls under way at the same time.
const MOST_FLIGHTS: usize = 2;
/// Requests in one call.
const MOST_PARCELS: usize = 64;

/// All requests to one server, or to one slot of a cluster, as a script cannot reach beyond that.
#[derive(Debug)]
pub(super) struct Flights {
    destination: Destination,
    scripts: Arc<Scripts>,
    clock: RedisClock,
    deadline: Duration,
    queue: Mutex<Queue>,
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
    charging: bool,
    deadline: Instant,
    answer: oneshot::Sender<Result<Taken, RedisError>>,
}

/// A request as it is sent.
#[derive(Debug)]
pub(super) struct Parcel {
    charges: SmallVec<[Packed; 3]>,
}

#[derive(Debug)]
struct Packed {
    key: String,
    log_key: Option<String>,
    kind: u8,
    shadow: bool,
    id: [u8; 8],
    numbers: [u64; 4],
}

impl Parcel {
    /// These charges, each with its address.
    pub(super) fn new<'a>(
        charges: impl ExactSizeIterator<Item = (&'a Charge<'a>, Address)>,
    ) -> Result<Self, RedisError> {
        if charges.len() > usize::from(u8::MAX) {
            return Err(RedisError::TooMany);
        }
        let pack = |(charge, address): (&Charge<'_>, Address)| {
            let (kind, x, y, z) = figures(charge.limit);
            let is_log = charge.limit.algorithm() == Algorithm::SlidingLog;
            Packed {
                log_key: is_log.then(|| address.log_key()),
                key: address.key,
                kind,
                shadow: charge.shadow,
                id: address.id,
                numbers: [charge.cost.min(MOST_COST), x, y, z],
            }
        };
        Ok(Self {
            charges: charges.map(pack).collect(),
        })
    }
}

/// More than any limit holds, and few enough for doubles: sums of 255 of them are still exact.
const MOST_COST: u64 = 1 << 40;

/// A limit as the scripts take it.
fn figures(limit: &Limit) -> (u8, u64, u64, u64) {
    match limit.kind() {
        Kind::TokenBucket(bucket) => {
            let rate = bucket.rate();
            (0, rate.drain_utok(), rate.drain_us(), bucket.capacity())
        }
        Kind::LeakyBucket(bucket) => {
            let rate = bucket.rate();
            (1, rate.drain_utok(), rate.drain_us(), bucket.capacity())
        }
        Kind::FixedWindow(window) => (2, window.limit(), window.window_us(), 0),
        Kind::SlidingLog(log) => (3, log.limit(), log.window_us(), 0),
        Kind::SlidingCounter(counter) => (4, counter.limit(), counter.window_us(), 0),
    }
}

impl Flights {
    pub(super) fn new(
        destination: Destination,
        scripts: Arc<Scripts>,
        clock: RedisClock,
        deadline: Duration,
    ) -> Self {
        Self {
            destination,
            scripts,
            clock,
            deadline,
            queue: Mutex::default(),
        }
    }

    /// Sends a request with the next flight.
    pub(super) async fn send(
        this: Arc<Self>,
        parcel: Parcel,
        charging: bool,
    ) -> Result<Taken, RedisError> {
        let deadline = Instant::now() + this.deadline;
        let (answer, answered) = oneshot::channel();
        let leads = {
            let mut queue = this.queue.lock();
            queue.waiting.push_back(Waiting {
                parcel,
                charging,
                deadline,
                answer,
            });
            let leads = queue.in_the_air < MOST_FLIGHTS;
            queue.in_the_air += usize::from(leads);
            leads
        };
        if leads {
            // A task of its own: whoever asked may stop waiting, and the others go on.
            tokio::spawn(Arc::clone(&this).fly());
        }
        match tokio::time::timeout_at(deadline, answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(RedisError::Unreachable("the flight was lost".into())),
            Err(_) => Err(RedisError::TooLate),
        }
    }

    /// Carries what waits, again and again until nothing does.
    async fn fly(self: Arc<Self>) {
        let _landing = Landing(&self);
        while let Some(crew) = self.board() {
            self.carry(crew).await;
        }
    }

    /// Those who go with the next flight: all look, or all take. Whose deadline is past does not go.
    fn board(&self) -> Option<Vec<Waiting>> {
        let mut queue = self.queue.lock();
        let now = Instant::now();
        let mut crew = Vec::new();
        while crew.len() < MOST_PARCELS
            && let Some(next) = queue.waiting.pop_front()
        {
            if next.deadline <= now || next.answer.is_closed() {
                continue;
            }
            let first = crew.first();
            if first.is_some_and(|first: &Waiting| first.charging != next.charging) {
                queue.waiting.push_front(next);
                break;
            }
            crew.push(next);
        }
        (!crew.is_empty()).then_some(crew)
    }

    async fn carry(&self, crew: Vec<Waiting>) {
        let charging = crew[0].charging;
        // The last one's: the others stop waiting by themselves.
        let until = crew.iter().map(|one| one.deadline).max();
        let mut manifest = Manifest::default();
        crew.iter().for_each(|one| manifest.add(&one.parcel));
        let (now, tolerance) = self.time();
        let flag: &[u8] = if charging { b"1" } else { b"0" };
        let args = [now.as_bytes(), tolerance.as_bytes(), flag, &manifest.blob];
        let until = until.unwrap_or_else(Instant::now);
        let script = match charging {
            true => &self.scripts.take,
            false => &self.scripts.peek,
        };
        let answer: Result<Vec<u8>, RedisError> =
            (self.call(script, &manifest.keys, &args, until)).await;
        let taken = answer.and_then(|reply| {
            let sizes = crew.iter().map(|one| one.parcel.charges.len());
            read_reply(&reply, sizes).ok_or(RedisError::Garbage)
        });
        match taken {
            Ok(taken) => {
                for (one, taken) in crew.into_iter().zip(taken) {
                    // Whoever has gone does not hear it.
                    let _ = one.answer.send(Ok(taken));
                }
            }
            Err(error) => {
                for one in crew {
                    let _ = one.answer.send(Err(error.clone()));
                }
            }
        }
    }

    async fn call<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[String],
        args: &[&[u8]],
        until: Instant,
    ) -> Result<T, RedisError> {
        match &self.destination {
            Destination::Server(connection) => {
                connection.call(script, keys, args, false, until).await
            }
            Destination::Slot(cluster, slot) => {
                cluster.call(*slot, script, keys, args, until).await
            }
        }
    }

    /// What the server says of itself.
    pub(super) async fn info(&self) -> Result<String, RedisError> {
        let until = Instant::now() + self.deadline.max(Duration::from_secs(1));
        match &self.destination {
            Destination::Server(connection) => connection.info(until).await,
            Destination::Slot(cluster, slot) => cluster.info(*slot, until).await,
        }
    }

    pub(super) async fn refund(
        &self,
        refund: &Refund<'_>,
        address: Address,
    ) -> Result<(), RedisError> {
        let (kind, x, y, z) = figures(refund.limit);
        let mut blob = vec![kind, 0];
        blob.extend(address.id);
        for number in [refund.cost.min(MOST_COST), x, y, z, refund.charged_at_us] {
            blob.extend(double(number));
        }
        let log_key = address.log_key();
        let keys = [address.key, log_key];
        let (now, _) = self.time();
        let until = Instant::now() + self.deadline;
        let args = [now.as_bytes(), &blob];
        let done: Result<i64, RedisError> =
            (self.call(&self.scripts.refund, &keys, &args, until)).await;
        done.map(drop)
    }

    pub(super) async fn reset(&self, address: Address) -> Result<(), RedisError> {
        let log_key = address.log_key();
        let keys = [address.key, log_key];
        let until = Instant::now() + self.deadline;
        let done: Result<i64, RedisError> =
            (self.call(&self.scripts.reset, &keys, &[&address.id], until)).await;
        done.map(drop)
    }

    /// The time and how far it may be off, as the scripts take them.
    fn time(&self) -> (String, String) {
        match &self.clock {
            RedisClock::Server => ("0".to_owned(), "0".to_owned()),
            RedisClock::Caller { clock, tolerance } => (
                clock.now_us().to_string(),
                tolerance.as_micros().to_string(),
            ),
            RedisClock::Simulated(clock) => (clock.now_us().to_string(), "-1".to_owned()),
        }
    }
}

/// Counts a flight out, also one that ends in a panic.
struct Landing<'a>(&'a Arc<Flights>);

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.in_the_air -= 1;
        // Somebody may have queued after we looked for the last time.
        if !queue.waiting.is_empty() && queue.in_the_air < MOST_FLIGHTS {
            queue.in_the_air += 1;
            drop(queue);
            tokio::spawn(Arc::clone(self.0).fly());
        }
    }
}

/// What one call carries: every key once, and the charges by the numbers of their keys.
#[derive(Default)]
struct Manifest {
    keys: Vec<String>,
    numbers: HashMap<String, u16>,
    blob: Vec<u8>,
}

impl Manifest {
    fn add(&mut self, parcel: &Parcel) {
        self.blob
            .push(u8::try_from(parcel.charges.len()).unwrap_or(u8::MAX));
        for charge in &parcel.charges {
            let key = self.number(&charge.key);
            let log_key = charge.log_key.as_ref().map_or(0, |key| self.number(key));
            self.blob.extend(key.to_le_bytes());
            self.blob.extend(log_key.to_le_bytes());
            self.blob.extend([charge.kind, u8::from(charge.shadow)]);
            self.blob.extend(charge.id);
            for number in charge.numbers {
                self.blob.extend(double(number));
            }
        }
    }

    /// A key's number, from 1 on. 64 requests of 255 buckets and logs are fewer than 65,536.
    fn number(&mut self, key: &str) -> u16 {
        if let Some(number) = self.numbers.get(key) {
            return *number;
        }
        self.keys.push(key.to_owned());
        let number = u16::try_from(self.keys.len()).unwrap_or(u16::MAX);
        self.numbers.insert(key.to_owned(), number);
        number
    }
}

/// A whole number below 2^53 as the scripts read it.
#[expect(clippy::cast_precision_loss, reason = "all of them are below 2^53")]
fn double(number: u64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}

/// What the script answered, for requests with so many charges each. `None` if it is no such answer.
fn read_reply(reply: &[u8], sizes: impl Iterator<Item = usize>) -> Option<Vec<Taken>> {
    let mut reader = Reader(reply);
    let at_us = reader.number()?;
    let taken: Option<Vec<Taken>> = sizes
        .map(|charges| {
            let admitted = reader.byte()? == 1;
            let outcomes: Option<_> = (0..charges).map(|_| reader.outcome(at_us)).collect();
            Some(Taken {
                admitted,
                at_us,
                outcomes: outcomes?,
            })
        })
        .collect();
    taken.filter(|_| reader.0.is_empty())
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        self.0.split_off_first().copied()
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be whole and in range"
    )]
    fn number(&mut self) -> Option<u64> {
        let bytes = self.0.split_off(..8)?;
        let number = f64::from_le_bytes(bytes.try_into().ok()?);
        let is_whole = (0.0..9_007_199_254_740_992.0).contains(&number) && number.fract() == 0.0;
        is_whole.then_some(number as u64)
    }

    fn outcome(&mut self, at_us: u64) -> Option<Outcome> {
        let (fit, charged) = (self.byte()?, self.byte()? == 1);
        let time_us = self.number()?;
        Some(Outcome {
            fit: match fit {
                0 => Fit::Now,
                1 => Fit::Queued { go_at_us: time_us },
                2 => Fit::Later {
                    ready_at_us: time_us,
                },
                3 => Fit::Never,
                _ => return None,
            },
            remaining: self.number()?,
            full_at_us: self.number()?,
            at_us,
            charged,
            shared: false,
        })
    }
}
