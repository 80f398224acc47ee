//! Usage in Redis or Valkey, shared by any number of processes.
//!
//! One string per subject (a client, an address, everybody) holds the records of all its buckets. A script reads what a
//! request needs, decides, and writes, in one atomic step: `single.lua` for one token bucket, `tokens.lua` for a few, `take.lua` for all
//! else, each with its contract at its head. Requests that arrive while others are on their way gather and share a call ([`batch`]).

mod batch;
mod cluster;
mod config;
mod connection;
mod deadline;
mod endpoint;
mod error;
mod health;
mod key;
mod monitor;
mod parcel;
mod script;
mod tls;
mod tokens;

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout_at};

pub use config::{RedisClock, RedisConfig};
pub use error::RedisError;
pub use health::ServerWarning;
pub use monitor::{Spread, StoreCalls};
pub use tls::{RedisIdentity, RedisTls};

use super::{Charge, Outcome, Refund, StoreOperations, Taken};
use crate::bucket::Bucket;
use crate::dimension::Part;
use crate::limit::Limit;
pub(crate) use batch::LateReply;
use batch::{Batcher, Missed};
use cluster::{Cluster, SLOTS};
use connection::Connection;
use deadline::LATE_REPLY;
pub(crate) use endpoint::ProbeReply;
use endpoint::{Destination, Endpoint};
pub(crate) use key::Address;
use key::Namespace;
use monitor::Monitor;
pub(crate) use monitor::{CallFailure, CallObserver};
use parcel::Parcel;
use script::Scripts;
use tls::Transport;

/// Longer waits are no waits any more, and times that far ahead need not fit into a clock.
const LONGEST: Duration = Duration::from_secs(3_600);

/// So many keys are tried at the most to find one on each node of a cluster: enough, but by a rare chance, for a node with a single slot.
const MOST_LOOKED_FOR: usize = 10 * SLOTS as usize;

/// So many buckets are forgotten in one call at the most, as others wait for it.
const MOST_AT_ONCE: usize = 1_000;

/// Keeps usage in Redis or Valkey.
///
/// Needs a tokio runtime. Clones share their connections.
///
/// In a cluster, the tiers of a request that lie in different slots are taken side by side, and what was taken is given back if one
/// of them denies. In that moment another request may be denied that would have passed; none passes that should not.
#[derive(Clone, Debug)]
pub struct RedisStore {
    namespace: Arc<Namespace>,
    lines: Lines,
    deadline: Duration,
    connect_timeout: Duration,
    monitor: Arc<Monitor>,
    /// What was probed last.
    probe_key: Arc<Mutex<Option<ProbeKey>>>,
}

/// A key that no caller uses, and the slot it is in.
type ProbeKey = (Option<u16>, String);

/// A bucket that was found in the store.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) address: Address,
    /// From when on it says nothing, by the limit it was last looked at with.
    pub(crate) until_us: u64,
}

/// Where requests go.
#[derive(Clone, Debug)]
enum Lines {
    /// All to one server.
    One(Arc<Batcher>),
    /// Each to its slot.
    Cluster(Arc<Slots>),
}

/// A batcher for each slot, made when it is first needed.
#[derive(Debug)]
struct Slots {
    batchers: Box<[OnceLock<Arc<Batcher>>]>,
    cluster: Arc<Cluster>,
    scripts: Arc<Scripts>,
    clock: RedisClock,
    deadline: Duration,
    connect_timeout: Duration,
    monitor: Arc<Monitor>,
}

/// Replies that had not arrived when a request's deadline passed: for each, which of the request's charges it is for.
pub(crate) type LateReplies = SmallVec<[(SmallVec<[usize; 4]>, LateReply); 1]>;

/// Why a request was not decided by the store.
#[derive(Debug)]
pub(crate) struct Undecided {
    pub(crate) error: RedisError,
    /// Empty if no reply is outstanding.
    pub(crate) late: LateReplies,
}

impl Undecided {
    /// Whether the deadline passed first.
    pub(crate) fn is_too_late(&self) -> bool {
        let is_late = matches!(self.error, RedisError::TooLate | RedisError::NotSent);
        is_late || !self.late.is_empty()
    }
}

impl From<RedisError> for Undecided {
    fn from(error: RedisError) -> Self {
        let late = LateReplies::new();
        Self { error, late }
    }
}

impl RedisStore {
    /// A store at this address. Connects at the first request.
    ///
    /// - `redis://[user:password@]host[:port][/db]`, or `unix:///path?db=n`;
    /// - `redis+sentinel://[user:password@]host[:port],host[:port]/service[/db]`: the primary that sentinels name, whichever it is;
    /// - `redis+cluster://[user:password@]host[:port],host[:port]`: a cluster, from these nodes on;
    /// - `rediss://`, `rediss+sentinel://`, `rediss+cluster://`: the same over TLS (feature `tls`), with sentinels and with every node. Their
    ///   certificates must be for the names or addresses by which sentinels and nodes name each other.
    ///
    /// # Errors
    /// When the address, the prefix or the certificates cannot be right.
    pub fn open(url: &str, config: RedisConfig) -> Result<Self, RedisError> {
        Self::with_scripts(url, config, Scripts::new())
    }

    /// A store with a bug: what the scripts say in one place, replaced. For tests that want to see it found.
    #[doc(hidden)]
    pub fn open_with_bug(
        url: &str,
        config: RedisConfig,
        (from, to): (&str, &str),
    ) -> Result<Self, RedisError> {
        let is_said = |code: &&str| code.contains(from);
        if !Scripts::new().codes().iter().any(is_said) {
            return Err(RedisError::Config(format!("no script says {from:?}")));
        }
        Self::with_scripts(url, config, Scripts::with_bug(from, to))
    }

    fn with_scripts(url: &str, config: RedisConfig, scripts: Scripts) -> Result<Self, RedisError> {
        let [deadline, timeout] =
            [config.deadline, config.connect_timeout].map(|time| time.min(LONGEST));
        let clock = config.clock;
        let scripts = Arc::new(scripts);
        let monitor = Arc::new(Monitor::default());
        let lines = match url.split_once("+cluster://") {
            Some(("redis" | "rediss", nodes)) => {
                let transport = Transport::of(url, &config.tls)?;
                Lines::Cluster(Arc::new(Slots {
                    batchers: (0..SLOTS).map(|_| OnceLock::new()).collect(),
                    cluster: Arc::new(Cluster::new(nodes, transport, timeout)?),
                    scripts,
                    clock,
                    deadline,
                    connect_timeout: timeout,
                    monitor: Arc::clone(&monitor),
                }))
            }
            _ => {
                let connection = Connection::new(url, &config.tls, timeout)?;
                Lines::One(Arc::new(Batcher::new(Endpoint {
                    destination: Destination::Server(Arc::new(connection)),
                    scripts,
                    clock,
                    deadline,
                    connect_timeout: timeout,
                    monitor: Arc::clone(&monitor),
                })))
            }
        };
        Ok(Self {
            namespace: Arc::new(Namespace::new(&config.prefix)?),
            lines,
            deadline,
            connect_timeout: timeout,
            monitor,
            probe_key: Arc::default(),
        })
    }

    /// How long a check waits unless it has a deadline of its own.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Notifies the observer of every call from now on, for as long as it exists.
    pub(crate) fn observe(&self, observer: Weak<dyn CallObserver>) {
        self.monitor.add(observer);
    }

    /// How long connecting may take.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// How often this process was stalled while a check waited, and for how long at most.
    pub(crate) fn stalls(&self) -> (u64, Duration) {
        let stalls = &self.monitor.stalls;
        (stalls.count(), stalls.longest())
    }

    /// Tries what a check does, where a call failed: on the server, or in this slot of a cluster. A connection that turns out to be
    /// broken is replaced once.
    ///
    /// # Errors
    /// When the server does not answer as it should.
    pub(crate) async fn probe(&self, slot: Option<u16>) -> Result<ProbeReply, RedisError> {
        let limit = "1000/s burst 1000".parse();
        let limit: Limit = limit.map_err(|_| RedisError::Garbage)?;
        let key = self.unused_key(slot).ok_or(RedisError::NotSent)?;
        let bucket = Bucket::of_key(key.as_bytes());
        let charge = Charge {
            bucket,
            limit: &limit,
            cost: 1,
            shadow: false,
        };
        let address = self.namespace.address(&bucket);
        let batcher = self.batcher_for(&address.key);
        let parcel = Parcel::new(std::iter::once((&charge, address)), true)?;
        match batcher.endpoint().probe(&parcel).await {
            Err(RedisError::Unreachable(_)) => batcher.endpoint().probe(&parcel).await,
            done => done,
        }
    }

    /// A key that no caller uses, in this slot if there is one. To find one takes some milliseconds.
    fn unused_key(&self, slot: Option<u16>) -> Option<String> {
        let mut last = self.probe_key.lock();
        if let Some((known, key)) = &*last
            && *known == slot
        {
            return Some(key.clone());
        }
        let slot_of = |key: &String| {
            let address = self.namespace.address(&Bucket::of_key(key.as_bytes()));
            cluster::slot_of(&address.key)
        };
        let mut keys = (0..MOST_LOOKED_FOR).map(|n| format!("tollgate probes this {n}"));
        let found = keys.find(|key| slot.is_none_or(|slot| slot_of(key) == slot));
        *last = found.clone().map(|key| (slot, key));
        found
    }

    /// The key under which a bucket lies: for people who look into Redis by hand.
    ///
    /// What a caller chose is escaped in it, and beyond 80 bytes hashed.
    #[must_use]
    pub fn key(&self, bucket: &Bucket<'_>) -> String {
        self.namespace.address(bucket).key
    }

    /// What calls to the server cost so far.
    #[must_use]
    pub fn calls(&self) -> StoreCalls {
        self.monitor.meter.calls()
    }

    /// Looks at the server (in a cluster: at each node that has slots) for what would break promises. For the start: log what comes
    /// back.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn examine(&self) -> Result<Vec<ServerWarning>, RedisError> {
        let batcher = match &self.lines {
            Lines::One(batcher) => Arc::clone(batcher),
            Lines::Cluster(slots) => slots.batcher(0),
        };
        let mut warnings = Vec::new();
        let infos = match batcher.endpoint().infos().await {
            Ok(infos) => infos,
            Err(error) => vec![Err(error)],
        };
        let is_read = infos.iter().any(Result::is_ok);
        for info in infos {
            match info {
                Ok(info) => warnings.extend(health::examine(&info)),
                Err(error) => warnings.push(forbidden(error)?),
            }
        }
        if is_read && !warnings.contains(&ServerWarning::IsReplica) {
            for key in self.key_on_each_node() {
                let bucket = Bucket::of_key(key.as_bytes());
                let address = self.namespace.address(&bucket);
                // What else stands in the way of it says nothing of what is allowed.
                let tried = self.try_to_take(bucket).await;
                warnings.extend(tried.err().and_then(|error| forbidden(error).ok()));
                let batcher = self.batcher_for(&address.key);
                if let Err(error) = batcher.endpoint().reset(&[address]).await {
                    warnings.push(forbidden(error)?);
                }
            }
        }
        let mut said = Vec::with_capacity(warnings.len());
        for warning in warnings {
            if !said.contains(&warning) {
                said.push(warning);
            }
        }
        Ok(said)
    }

    /// As a check does it.
    async fn try_to_take(&self, bucket: Bucket<'_>) -> Result<(), RedisError> {
        let Ok(limit) = "1/s".parse() else {
            return Ok(());
        };
        let charge = Charge {
            bucket,
            limit: &limit,
            cost: 1,
            shadow: false,
        };
        let taken = self.take_within(&[charge], true, self.deadline).await;
        taken.map(drop).map_err(|undecided| undecided.error)
    }

    /// A key that nobody has, on the server, or one on each node of a cluster that has slots: to see whether scripts may run there, and do what they
    /// do.
    fn key_on_each_node(&self) -> Vec<String> {
        let nobodys = |n: usize| format!("tollgate examines this {n}");
        match &self.lines {
            Lines::One(_) => vec![nobodys(0)],
            Lines::Cluster(slots) => {
                let slot = |key: &str| {
                    let address = self.namespace.address(&Bucket::of_key(key.as_bytes()));
                    cluster::slot_of(&address.key)
                };
                let all = (0..MOST_LOOKED_FOR).map(nobodys);
                let all = all.map(|key| (slot(&key), key));
                slots.cluster.first_of_each_node(all)
            }
        }
    }

    /// Takes from all buckets or from none, or looks at them, and waits for the reply for this long.
    pub(crate) async fn take_within(
        &self,
        charges: &[Charge<'_>],
        charging: bool,
        budget: Duration,
    ) -> Result<Taken, Undecided> {
        let addresses = charges.iter().map(|c| self.namespace.address(&c.bucket));
        (self.take_at(charges, addresses.collect(), charging, budget)).await
    }

    async fn take_at(
        &self,
        charges: &[Charge<'_>],
        addresses: Vec<Address>,
        charging: bool,
        budget: Duration,
    ) -> Result<Taken, Undecided> {
        match &self.lines {
            Lines::One(batcher) => {
                let parcel = Parcel::new(charges.iter().zip(addresses), charging)?;
                let taken = Arc::clone(batcher).send(parcel, budget).await;
                taken.map_err(|missed| match missed {
                    Missed::Failed(error) => error.into(),
                    Missed::Late(reply, error) => Undecided {
                        error,
                        late: smallvec::smallvec![((0..charges.len()).collect(), reply)],
                    },
                })
            }
            Lines::Cluster(slots) => {
                (self.take_in_slots(slots, charges, addresses, charging, budget)).await
            }
        }
    }

    /// Looks at what lies at these addresses, whatever the charges' own buckets are.
    pub(crate) async fn look(
        &self,
        charges: &[Charge<'_>],
        addresses: Vec<Address>,
    ) -> Result<Taken, RedisError> {
        let budget = self.deadline.max(LATE_REPLY);
        let taken = self.take_at(charges, addresses, false, budget).await;
        taken.map_err(|undecided| undecided.error)
    }

    /// Whether what denies a request may be given back in the next moment: another request took it that another slot denied.
    pub(crate) fn denies_in_passing(&self) -> bool {
        matches!(self.lines, Lines::Cluster(_))
    }

    /// Where a bucket lies.
    pub(crate) fn address(&self, bucket: &Bucket<'_>) -> Address {
        self.namespace.address(bucket)
    }

    /// What lies together under a subject; everybody's, if it is nobody.
    pub(crate) async fn records(
        &self,
        subject: Option<Part<'_>>,
    ) -> Result<Vec<Record>, RedisError> {
        let key = self.namespace.subject(subject.as_ref());
        let batcher = self.batcher_for(&key);
        let records = batcher.endpoint().records(key.clone()).await?;
        let record = |(id, until_us)| Record {
            address: Address {
                key: key.clone(),
                id,
            },
            until_us,
        };
        Ok(records.into_iter().map(record).collect())
    }

    /// Forgets what lies at these addresses: what is under one key at once, as far as it fits into a call.
    pub(crate) async fn forget(&self, mut addresses: Vec<Address>) -> Result<(), RedisError> {
        addresses.sort_by(|one, other| one.key.cmp(&other.key));
        for under_one_key in addresses.chunk_by(|one, other| one.key == other.key) {
            let batcher = self.batcher_for(&under_one_key[0].key);
            for some in under_one_key.chunks(MOST_AT_ONCE) {
                batcher.endpoint().reset(some).await?;
            }
        }
        Ok(())
    }

    /// Each slot by itself, all at once; if one denies or fails, the others give back what they took.
    async fn take_in_slots(
        &self,
        slots: &Slots,
        charges: &[Charge<'_>],
        addresses: Vec<Address>,
        charging: bool,
        budget: Duration,
    ) -> Result<Taken, Undecided> {
        // What can never pass need not be taken and given back: others would be denied meanwhile.
        let could_fit =
            |charge: &Charge<'_>| charge.shadow || charge.cost <= charge.limit.capacity();
        let charging = charging && charges.iter().all(could_fit);
        // Which charges go to which slot.
        let mut groups: Vec<(u16, SmallVec<[usize; 4]>)> = Vec::new();
        for (i, address) in addresses.iter().enumerate() {
            let slot = cluster::slot_of(&address.key);
            match groups.iter_mut().find(|(known, _)| *known == slot) {
                Some((_, members)) => members.push(i),
                None => groups.push((slot, smallvec::smallvec![i])),
            }
        }
        if groups.is_empty() {
            groups.push((0, SmallVec::new()));
        }
        let mut addresses: Vec<Option<Address>> = addresses.into_iter().map(Some).collect();
        let deadline = Instant::now() + budget;
        let mut calls = JoinSet::new();
        for (nth, (slot, members)) in groups.iter().enumerate() {
            let addressed: Vec<_> = (members.iter())
                .filter_map(|i| Some((&charges[*i], addresses[*i].take()?)))
                .collect();
            let parcel = Parcel::new(addressed.into_iter(), charging)?;
            let call = slots.batcher(*slot).send(parcel, budget);
            calls.spawn(async move { (nth, call.await) });
        }
        let mut all = Taken {
            admitted: true,
            at_us: 0,
            outcomes: smallvec::smallvec![Outcome::NONE; charges.len()],
        };
        let (mut failure, mut late) = (None, LateReplies::new());
        while let Some(done) = calls.join_next().await {
            let lost = |_| RedisError::Unreachable("the call was lost".into());
            let (nth, answer) = done.map_err(lost)?;
            match answer {
                Ok(taken) => {
                    all.admitted &= taken.admitted;
                    all.at_us = all.at_us.max(taken.at_us);
                    for (i, outcome) in groups[nth].1.iter().zip(taken.outcomes) {
                        all.outcomes[*i] = outcome;
                    }
                }
                Err(Missed::Failed(error)) => failure = Some(error),
                Err(Missed::Late(reply, error)) => {
                    late.push((groups[nth].1.clone(), reply));
                    failure = Some(error);
                }
            }
        }
        if groups.len() > 1 && (failure.is_some() || !all.admitted) {
            let given_back = self.give_back(charges, &mut all);
            // Nobody waits for that longer than for an answer; it goes on without.
            let _ = timeout_at(deadline, given_back).await;
        }
        match failure {
            None => Ok(all),
            Some(error) => Err(Undecided { error, late }),
        }
    }

    /// What some slots took of a request that does not pass, all at once, and also if whoever asked has gone.
    fn give_back(&self, charges: &[Charge<'_>], taken: &mut Taken) -> JoinHandle<()> {
        let mut refunds = JoinSet::new();
        for (charge, outcome) in charges.iter().zip(&mut taken.outcomes) {
            if outcome.charged {
                let address = self.namespace.address(&charge.bucket);
                let (limit, cost, at_us) = (*charge.limit, charge.cost, outcome.at_us);
                let store = self.clone();
                // If this fails too, the request was charged and denied: never the other way round.
                refunds.spawn(async move { store.refund_at(address, &limit, cost, at_us).await });
                outcome.charged = false;
                outcome.remaining += charge.cost;
            }
        }
        tokio::spawn(async move { while refunds.join_next().await.is_some() {} })
    }

    /// Gives back what was taken from the bucket at this address.
    pub(crate) async fn refund_at(
        &self,
        address: Address,
        limit: &Limit,
        cost: u64,
        charged_at_us: u64,
    ) -> Result<(), RedisError> {
        let batcher = self.batcher_for(&address.key);
        (batcher
            .endpoint()
            .refund(address, limit, cost, charged_at_us))
        .await
    }

    /// Says that an instance lives for so long from now on, or has gone if that is nothing. Answers how many live.
    pub(crate) async fn heartbeat(&self, id: u64, life: Duration) -> Result<u32, RedisError> {
        let key = self.namespace.instances();
        let batcher = self.batcher_for(&key);
        batcher.endpoint().heartbeat(key, id, life).await
    }

    fn batcher_for(&self, key: &str) -> Arc<Batcher> {
        match &self.lines {
            Lines::One(batcher) => Arc::clone(batcher),
            Lines::Cluster(slots) => slots.batcher(cluster::slot_of(key)),
        }
    }
}

/// What a refusal says about our rights, if it does.
fn forbidden(error: RedisError) -> Result<ServerWarning, RedisError> {
    match error {
        // From within a script it says so in other words.
        RedisError::Refused { code, text }
            if matches!(&*code, "NOPERM" | "NOAUTH" | "WRONGPASS")
                || [
                    "NOPERM",
                    "ACL failure",
                    "The user executing the script can't",
                ]
                .iter()
                .any(|words| text.contains(words)) =>
        {
            Ok(ServerWarning::Forbids {
                text: format!("{code} {text}"),
            })
        }
        other => Err(other),
    }
}

impl Slots {
    fn batcher(&self, slot: u16) -> Arc<Batcher> {
        let make = || {
            Arc::new(Batcher::new(Endpoint {
                destination: Destination::Slot(Arc::clone(&self.cluster), slot),
                scripts: Arc::clone(&self.scripts),
                clock: self.clock.clone(),
                deadline: self.deadline,
                connect_timeout: self.connect_timeout,
                monitor: Arc::clone(&self.monitor),
            }))
        };
        Arc::clone(self.batchers[usize::from(slot)].get_or_init(make))
    }
}

impl StoreOperations for RedisStore {
    type Error = RedisError;

    async fn take(&self, charges: &[Charge<'_>]) -> Result<Taken, RedisError> {
        let taken = self.take_within(charges, true, self.deadline).await;
        taken.map_err(|undecided| undecided.error)
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Taken, RedisError> {
        let taken = self.take_within(charges, false, self.deadline).await;
        taken.map_err(|undecided| undecided.error)
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<(), RedisError> {
        for refund in refunds {
            let address = self.namespace.address(&refund.bucket);
            let Refund {
                limit,
                cost,
                charged_at_us,
                ..
            } = *refund;
            self.refund_at(address, limit, cost, charged_at_us).await?;
        }
        Ok(())
    }

    async fn reset(&self, buckets: &[Bucket<'_>]) -> Result<(), RedisError> {
        let addresses = buckets.iter().map(|bucket| self.namespace.address(bucket));
        self.forget(addresses.collect()).await
    }
}
