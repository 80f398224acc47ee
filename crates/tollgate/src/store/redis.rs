//! Usage in Redis or Valkey, shared by any number of processes.
//!
//! One string per subject (a client, an address, everybody) holds the records of all its buckets. A script reads what a
//! request needs, decides, and writes, in one atomic step: `single.lua` for one token bucket, `tokens.lua` for a few, `take.lua` for all
//! else, each with its contract at its head. Requests that arrive while others are on their way gather and go together ([`flight`]).

mod cluster;
mod connection;
mod error;
mod flight;
mod health;
mod key;
mod meter;
mod parcel;
mod script;
mod single;
mod tls;
mod tokens;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout_at};

pub use error::RedisError;
pub use health::ServerWarning;
pub use meter::{Spread, StoreCalls};
pub use tls::{RedisIdentity, RedisTls};

use super::{Charge, Outcome, Refund, Store, Taken};
use crate::bucket::{Bucket, Part};
use crate::clock::Clock;
use cluster::{Cluster, SLOTS};
use connection::Connection;
use flight::{Destination, Flights};
pub(crate) use key::Address;
use key::Namespace;
use meter::Meter;
use parcel::Parcel;
use script::Scripts;
use tls::Transport;

/// Longer waits are no waits any more, and times that far ahead need not fit into a clock.
const LONGEST: Duration = Duration::from_secs(3_600);

/// So many keys are tried at the most to find one on each node of a cluster: enough, but by a rare chance, for a node with a single slot.
const MOST_LOOKED_FOR: usize = 10 * SLOTS as usize;

/// So many buckets are forgotten in one call at the most, as others wait for it.
const MOST_AT_ONCE: usize = 1_000;

/// How a [`RedisStore`] is set up.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    /// What every key begins with; `tollgate` by default. Letters, digits, `-`, `_`, `.` and `:`.
    pub prefix: String,
    /// Whose time counts.
    pub clock: RedisClock,
    /// How long a check may take, 10 ms by default, an hour at the most. One that is still unsent then is never sent; one that was sent may
    /// still be charged.
    pub deadline: Duration,
    /// How long connecting may take, 1 s by default, an hour at the most. Goes on while checks that are over their deadline stop waiting for it.
    pub connect_timeout: Duration,
    /// Whose certificates to believe, and which to show, at an address that asks for TLS (feature `tls`).
    pub tls: RedisTls,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            prefix: "tollgate".to_owned(),
            clock: RedisClock::Server,
            deadline: Duration::from_millis(10),
            connect_timeout: Duration::from_secs(1),
            tls: RedisTls::default(),
        }
    }
}

/// Whose time counts. Whatever it is, time never goes back on a bucket.
#[derive(Clone, Debug, Default)]
pub enum RedisClock {
    /// The server's.
    #[default]
    Server,
    /// This process's, as long as it is not ahead of the server's, and behind it by no more than `tolerance`; else the
    /// server's. What is charged by a clock that is behind drains as much earlier: over any time, as much may pass as the limit
    /// allows in that time and `tolerance` together, and no more.
    Caller {
        /// Where this process's time comes from.
        clock: Clock,
        /// How far it may be behind; [`RedisClock::TOLERANCE`] where [`RedisClock::caller`] chose it.
        tolerance: Duration,
    },
    /// This one, whatever the server's says: for tests and simulations.
    Simulated(Clock),
}

impl RedisClock {
    /// How far a caller's clock may be behind the server's, unless told otherwise: 100 ms.
    pub const TOLERANCE: Duration = Duration::from_millis(100);

    /// A caller's clock, usually [`Clock::system`], that may be behind the server's by [`RedisClock::TOLERANCE`].
    #[must_use]
    pub const fn caller(clock: Clock) -> Self {
        Self::Caller {
            clock,
            tolerance: Self::TOLERANCE,
        }
    }
}

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
    meter: Arc<Meter>,
}

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
    One(Arc<Flights>),
    /// Each to its slot.
    Cluster(Arc<Slots>),
}

/// The flights to each slot, made as they are needed.
#[derive(Debug)]
struct Slots {
    flights: Box<[OnceLock<Arc<Flights>>]>,
    cluster: Arc<Cluster>,
    scripts: Arc<Scripts>,
    clock: RedisClock,
    deadline: Duration,
    meter: Arc<Meter>,
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
        let meter = Arc::new(Meter::default());
        let lines = match url.split_once("+cluster://") {
            Some(("redis" | "rediss", nodes)) => {
                let transport = Transport::of(url, &config.tls)?;
                Lines::Cluster(Arc::new(Slots {
                    flights: (0..SLOTS).map(|_| OnceLock::new()).collect(),
                    cluster: Arc::new(Cluster::new(nodes, transport, timeout)?),
                    scripts,
                    clock,
                    deadline,
                    meter: Arc::clone(&meter),
                }))
            }
            _ => {
                let connection = Connection::new(url, &config.tls, timeout)?;
                let server = Destination::Server(Arc::new(connection));
                let counted = Arc::clone(&meter);
                let flights = Flights::new(server, scripts, clock, deadline, counted);
                Lines::One(Arc::new(flights))
            }
        };
        Ok(Self {
            namespace: Arc::new(Namespace::new(&config.prefix)?),
            lines,
            meter,
        })
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
        self.meter.calls()
    }

    /// Looks at the server (in a cluster: at each node that has slots) for what would break promises. For the start: log what comes
    /// back.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn examine(&self) -> Result<Vec<ServerWarning>, RedisError> {
        let flights = match &self.lines {
            Lines::One(flights) => Arc::clone(flights),
            Lines::Cluster(slots) => slots.flights(0),
        };
        let mut warnings = Vec::new();
        let infos = match flights.infos().await {
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
                if let Err(error) = self.flights_to(&address.key).reset(&[address]).await {
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
        self.visit(&[charge], true).await.map(drop)
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

    async fn visit(&self, charges: &[Charge<'_>], charging: bool) -> Result<Taken, RedisError> {
        let addresses = charges.iter().map(|c| self.namespace.address(&c.bucket));
        (self.visit_at(charges, addresses.collect(), charging)).await
    }

    async fn visit_at(
        &self,
        charges: &[Charge<'_>],
        addresses: Vec<Address>,
        charging: bool,
    ) -> Result<Taken, RedisError> {
        match &self.lines {
            Lines::One(flights) => {
                let parcel = Parcel::new(charges.iter().zip(addresses), charging)?;
                Flights::send(Arc::clone(flights), parcel).await
            }
            Lines::Cluster(slots) => self.visit_slots(slots, charges, addresses, charging).await,
        }
    }

    /// Looks at what lies at these addresses, whatever the charges' own buckets are.
    pub(crate) async fn look(
        &self,
        charges: &[Charge<'_>],
        addresses: Vec<Address>,
    ) -> Result<Taken, RedisError> {
        self.visit_at(charges, addresses, false).await
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
        let records = self.flights_to(&key).records(key.clone()).await?;
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
            let flights = self.flights_to(&under_one_key[0].key);
            for some in under_one_key.chunks(MOST_AT_ONCE) {
                flights.reset(some).await?;
            }
        }
        Ok(())
    }

    /// Each slot by itself, all at once; if one denies or fails, the others give back what they took.
    async fn visit_slots(
        &self,
        slots: &Slots,
        charges: &[Charge<'_>],
        addresses: Vec<Address>,
        charging: bool,
    ) -> Result<Taken, RedisError> {
        // What can never pass need not be taken and given back: others would be denied meanwhile.
        let could_fit =
            |charge: &Charge<'_>| charge.shadow || charge.cost <= charge.limit.capacity();
        let charging = charging && charges.iter().all(could_fit);
        // Which charges go to which slot.
        let mut groups: Vec<(u16, Vec<usize>)> = Vec::new();
        for (i, address) in addresses.iter().enumerate() {
            let slot = cluster::slot_of(&address.key);
            match groups.iter_mut().find(|(known, _)| *known == slot) {
                Some((_, members)) => members.push(i),
                None => groups.push((slot, vec![i])),
            }
        }
        if groups.is_empty() {
            groups.push((0, Vec::new()));
        }
        let mut addresses: Vec<Option<Address>> = addresses.into_iter().map(Some).collect();
        let deadline = Instant::now() + slots.deadline;
        let mut calls = JoinSet::new();
        for (nth, (slot, members)) in groups.iter().enumerate() {
            let addressed: Vec<_> = (members.iter())
                .filter_map(|i| Some((&charges[*i], addresses[*i].take()?)))
                .collect();
            let parcel = Parcel::new(addressed.into_iter(), charging)?;
            let call = Flights::send(slots.flights(*slot), parcel);
            calls.spawn(async move { (nth, call.await) });
        }
        let mut all = Taken {
            admitted: true,
            at_us: 0,
            outcomes: smallvec::smallvec![Outcome::NONE; charges.len()],
        };
        let mut failure = None;
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
                Err(error) => failure = Some(error),
            }
        }
        if groups.len() > 1 && (failure.is_some() || !all.admitted) {
            let given_back = self.give_back(charges, &mut all);
            // Nobody waits for that longer than for an answer; it goes on without.
            let _ = timeout_at(deadline, given_back).await;
        }
        failure.map_or(Ok(all), Err)
    }

    /// What some slots took of a request that does not pass, all at once, and also if whoever asked has gone.
    fn give_back(&self, charges: &[Charge<'_>], taken: &mut Taken) -> JoinHandle<()> {
        let mut refunds = JoinSet::new();
        for (charge, outcome) in charges.iter().zip(&mut taken.outcomes) {
            if outcome.charged {
                let address = self.namespace.address(&charge.bucket);
                let flights = self.flights_to(&address.key);
                let (limit, cost, at_us) = (*charge.limit, charge.cost, outcome.at_us);
                // If this fails too, the request was charged and denied: never the other way round.
                refunds.spawn(async move { flights.refund(address, &limit, cost, at_us).await });
                outcome.charged = false;
                outcome.remaining += charge.cost;
            }
        }
        tokio::spawn(async move { while refunds.join_next().await.is_some() {} })
    }

    async fn refund_one(&self, refund: &Refund<'_>) -> Result<(), RedisError> {
        let address = self.namespace.address(&refund.bucket);
        let flights = self.flights_to(&address.key);
        (flights.refund(address, refund.limit, refund.cost, refund.charged_at_us)).await
    }

    /// Says that an instance lives for so long from now on, or has gone if that is nothing. Answers how many live.
    pub(crate) async fn heartbeat(&self, id: u64, life: Duration) -> Result<u32, RedisError> {
        let key = self.namespace.instances();
        self.flights_to(&key).heartbeat(key, id, life).await
    }

    fn flights_to(&self, key: &str) -> Arc<Flights> {
        match &self.lines {
            Lines::One(flights) => Arc::clone(flights),
            Lines::Cluster(slots) => slots.flights(cluster::slot_of(key)),
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
    fn flights(&self, slot: u16) -> Arc<Flights> {
        let make = || {
            Arc::new(Flights::new(
                Destination::Slot(Arc::clone(&self.cluster), slot),
                Arc::clone(&self.scripts),
                self.clock.clone(),
                self.deadline,
                Arc::clone(&self.meter),
            ))
        };
        Arc::clone(self.flights[usize::from(slot)].get_or_init(make))
    }
}

impl Store for RedisStore {
    type Error = RedisError;

    async fn take(&self, charges: &[Charge<'_>]) -> Result<Taken, RedisError> {
        self.visit(charges, true).await
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Taken, RedisError> {
        self.visit(charges, false).await
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<(), RedisError> {
        for refund in refunds {
            self.refund_one(refund).await?;
        }
        Ok(())
    }

    async fn reset(&self, buckets: &[Bucket<'_>]) -> Result<(), RedisError> {
        let addresses = buckets.iter().map(|bucket| self.namespace.address(bucket));
        self.forget(addresses.collect()).await
    }
}
