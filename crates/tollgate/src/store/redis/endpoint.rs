//! One server, or one slot of a cluster, and everything that is asked of it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redis::FromRedisValue;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::RedisClock;
use super::cluster::Cluster;
use super::connection::Connection;
use super::deadline::{Deadline, LATE_REPLY, Times, in_time};
use super::error::RedisError;
use super::key::Address;
use super::monitor::Monitor;
use super::parcel::{self, Parcel, Reader, Way};
use super::script::{Script, Scripts};
use super::tokens;
use crate::limit::{Algorithm, Limit};
use crate::store::Taken;

/// Minimum timeout of calls that no request waits for.
const BACKGROUND: Duration = Duration::from_secs(1);

/// A server, or a slot of a cluster: a script cannot reach beyond that.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) destination: Destination,
    pub(super) scripts: Arc<Scripts>,
    pub(super) clock: RedisClock,
    /// How long a check may wait unless it has a deadline of its own.
    pub(super) deadline: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) monitor: Arc<Monitor>,
}

#[derive(Debug)]
pub(super) enum Destination {
    Server(Arc<Connection>),
    Slot(Arc<Cluster>, u16),
}

/// When a probe was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeReply {
    InTime,
    Late,
}

impl Destination {
    /// Waits for a connection, at most until then. Returns whether there is one.
    pub(super) async fn ready(&self, until: Instant) -> bool {
        match self {
            Self::Server(connection) => connection.ready(until).await,
            Self::Slot(cluster, slot) => cluster.ready(*slot, until).await,
        }
    }

    /// Why there is no connection, if that is known.
    pub(super) fn failure(&self) -> Option<RedisError> {
        match self {
            Self::Server(connection) => connection.failure(),
            // A call names the node and the reason.
            Self::Slot(..) => None,
        }
    }

    pub(super) fn slot(&self) -> Option<u16> {
        match self {
            Self::Server(_) => None,
            Self::Slot(_, slot) => Some(*slot),
        }
    }
}

impl Endpoint {
    /// Sends these requests in one call. Returns the reply to each; `None` where it makes no sense.
    pub(super) async fn exchange(
        &self,
        parcels: &[&Parcel],
        times: Times,
    ) -> Result<Vec<Option<Taken>>, RedisError> {
        let all = || parcels.iter().copied();
        let way = parcels.first().map_or(Way::Take, |first| first.way);
        let patient = parcels.len() == 1;
        let time = self.time();
        if way == Way::Tokens {
            let reply: Vec<u8> = if let Some((keys, blob)) = tokens::single_manifest(all()) {
                let args = with_time(&[&blob], &time);
                (self.call(&self.scripts.single, &keys, &args, patient, times)).await?
            } else {
                let (keys, blob) = tokens::manifest(all());
                let args = with_time(&[&blob], &time);
                (self.call(&self.scripts.tokens, &keys, &args, patient, times)).await?
            };
            let taken = parcel::read_replies(&reply, all(), tokens::read_reply);
            return taken.ok_or(RedisError::Garbage);
        }
        let (keys, blob) = parcel::manifest(all());
        let (script, charging): (_, &[u8]) = match way {
            Way::Look => (&self.scripts.peek, b"0"),
            _ => (&self.scripts.take, b"1"),
        };
        let args = with_time(&[charging, &blob], &time);
        let reply: Vec<u8> = (self.call(script, &keys, &args, patient, times)).await?;
        parcel::read_replies(&reply, all(), parcel::read_reply).ok_or(RedisError::Garbage)
    }

    async fn call<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[impl AsRef<str>],
        args: &[&[u8]],
        patient: bool,
        times: Times,
    ) -> Result<T, RedisError> {
        match &self.destination {
            Destination::Server(connection) => {
                connection.call(script, keys, args, false, times).await
            }
            Destination::Slot(cluster, slot) => {
                cluster
                    .call(*slot, script, keys, args, patient, times)
                    .await
            }
        }
    }

    /// Tries what a check does, including the write. Connecting may take its usual time; the reply is late after the deadline.
    pub(super) async fn probe(&self, parcel: &Parcel) -> Result<ProbeReply, RedisError> {
        let connected = Instant::now() + self.connect_timeout;
        if !self.destination.ready(connected).await {
            return Err(self.destination.failure().unwrap_or(RedisError::TooLate));
        }
        let deadline = Deadline::after(self.deadline);
        let parcels = [parcel];
        let mut call = pin!(self.exchange(&parcels, Times::of_checks(&deadline)));
        match in_time(call.as_mut(), &deadline, &self.monitor.stalls).await {
            Some(reply) => reply.map(|_| ProbeReply::InTime),
            // A connection that stays silent is given up at the end of the call.
            None => call.await.map(|_| ProbeReply::Late),
        }
    }

    /// `INFO` of the server, or why it is not known; in a cluster, of each node.
    pub(super) async fn infos(&self) -> Result<Vec<Result<String, RedisError>>, RedisError> {
        let until = Instant::now() + self.deadline.max(BACKGROUND);
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
        let (since, deadline) = (Instant::now(), Deadline::after(self.deadline));
        let args = with_time(&[&blob], &time);
        let times = Times::of_checks(&deadline);
        let call = self.call::<i64>(&self.scripts.refund, &keys, &args, true, times);
        // Once sent, it is carried out whether or not its reply is waited for.
        let done = in_time(pin!(call), &deadline, &self.monitor.stalls).await;
        let done = done.unwrap_or(Err(RedisError::TooLate));
        self.monitor.ended(&done, since, self.destination.slot());
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
        let times = self.operators_times();
        let done: Result<i64, RedisError> =
            (self.call(&self.scripts.reset, &keys, &ids, true, times)).await;
        done.map(drop)
    }

    /// The records under a subject's key: the id of each, and when it expires.
    pub(super) async fn records(&self, key: String) -> Result<Vec<([u8; 8], u64)>, RedisError> {
        let times = self.operators_times();
        let reply: Vec<u8> = (self.call(&self.scripts.records, &[key], &[], true, times)).await?;
        let mut reader = Reader(&reply);
        let mut records = Vec::new();
        while !reader.is_empty() {
            let record = reader.bytes().zip(reader.number());
            records.push(record.ok_or(RedisError::Garbage)?);
        }
        Ok(records)
    }

    /// Registers an instance for this long, or removes it if that is zero. Returns how many are registered.
    pub(super) async fn heartbeat(
        &self,
        key: String,
        id: u64,
        life: Duration,
    ) -> Result<u32, RedisError> {
        let (id, life) = (format!("{id:016x}"), life.as_millis().to_string());
        let times = Times::until(Instant::now() + self.deadline.max(BACKGROUND));
        let args = [id.as_bytes(), life.as_bytes()];
        let living: i64 = (self.call(&self.scripts.heartbeat, &[key], &args, true, times)).await?;
        u32::try_from(living).map_err(|_| RedisError::Garbage)
    }

    /// For what an operator asks: a stall of the server that checks survive is no reason to fail.
    fn operators_times(&self) -> Times {
        Times::until(Instant::now() + self.deadline.max(LATE_REPLY))
    }

    /// The time and its tolerance as the scripts take them; none if the server's clock counts.
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
