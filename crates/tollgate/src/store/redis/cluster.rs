//! A cluster: which node has a slot, and the walk to it while slots move.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::FromRedisValue;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::connection::{Connection, Login, SlotRange, parse_cluster};
use super::deadline::Times;
use super::error::RedisError;
use super::script::Script;
use super::tls::Transport;

pub(super) const SLOTS: u16 = 16_384;

/// How often a call is sent on at once.
const FEW_WALKS: u32 = 4;
/// How long to wait before asking again for a slot that is on the move.
const MOVING: Duration = Duration::from_millis(2);

/// How long one node may think about who has what before the next is asked as well.
const TURN: Duration = Duration::from_millis(2);

pub(super) struct Cluster {
    seeds: Vec<Arc<str>>,
    transport: Transport,
    login: Login,
    connect_timeout: Duration,
    map: Mutex<Map>,
}

/// What is known of it. Wrong now and then: nodes say so.
#[derive(Default)]
struct Map {
    nodes: HashMap<Arc<str>, Arc<Connection>>,
    slots: HashMap<u16, Arc<str>>,
}

impl Cluster {
    /// The cluster of these nodes, `[user:password@]host[:port][,host[:port]…]`.
    pub(super) fn new(
        nodes: &str,
        transport: Transport,
        connect_timeout: Duration,
    ) -> Result<Self, RedisError> {
        let (seeds, login) = parse_cluster(nodes, &transport)?;
        Ok(Self {
            seeds,
            transport,
            login,
            connect_timeout,
            map: Mutex::default(),
        })
    }

    /// Calls a script at the node that has the slot. A node that does not have it (any more) has not run it, so it is asked again
    /// elsewhere; what may have run is not. `patient` is who waits while some of the keys are here and some there.
    pub(super) async fn call<T: FromRedisValue>(
        &self,
        slot: u16,
        script: &Script,
        keys: &[impl AsRef<str>],
        args: &[&[u8]],
        patient: bool,
        times: Times,
    ) -> Result<T, RedisError> {
        let until = times.send_by;
        let (mut node, mut asking) = (self.owner(slot, until).await?, false);
        let mut walks = 0;
        loop {
            walks += 1;
            if walks > FEW_WALKS {
                // Two that send us to each other will not agree any sooner if they are asked all the time.
                tokio::time::sleep(MOVING).await;
            }
            let connection = self.connection(&node)?;
            let error = match connection.call(script, keys, args, asking, times).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let RedisError::Refused { code, text } = &error else {
                self.doubt(&node);
                return Err(error);
            };
            let has_no_owner = matches!(
                &**code,
                "CLUSTERDOWN" | "READONLY" | "LOADING" | "MASTERDOWN"
            );
            let is_redirect = matches!(&**code, "MOVED" | "ASK");
            // First of all: what a late reply says is still true, and the next call needs it.
            match (&**code, text.rsplit(' ').next()) {
                ("MOVED", Some(to)) => {
                    (node, asking) = (place_of(to, &node), false);
                    self.map.lock().slots.insert(slot, Arc::clone(&node));
                }
                ("ASK", Some(to)) => (node, asking) = (place_of(to, &node), true),
                ("TRYAGAIN", _) if patient => {}
                _ if has_no_owner => self.map.lock().slots.clear(),
                _ => return Err(error),
            }
            if Instant::now() >= until {
                return Err(error);
            }
            if !is_redirect {
                tokio::time::sleep(MOVING).await;
            }
            if has_no_owner {
                (node, asking) = (self.owner(slot, until).await?, false);
            }
        }
    }

    /// Waits for a connection to the node that has the slot, until there is one, it is known why there is none, or the time is over.
    /// Returns whether there is one.
    pub(super) async fn ready(&self, slot: u16, until: Instant) -> bool {
        let Ok(owner) = self.owner(slot, until).await else {
            return false;
        };
        let Ok(connection) = self.connection(&owner) else {
            return false;
        };
        let is_ready = connection.ready(until).await;
        if !is_ready {
            self.doubt(&owner);
        }
        is_ready
    }

    /// Another one may be in a node's place: who has its slots is asked next time. The others' are where they were.
    fn doubt(&self, node: &Arc<str>) {
        (self.map.lock().slots).retain(|_, owner| owner != node);
    }

    /// What each node that has slots says of itself, or why it does not.
    pub(super) async fn infos(
        &self,
        until: Instant,
    ) -> Result<Vec<Result<String, RedisError>>, RedisError> {
        self.owner(0, until).await?;
        let owners: HashSet<Arc<str>> = self.map.lock().slots.values().cloned().collect();
        let mut infos = Vec::with_capacity(owners.len());
        for owner in owners {
            infos.push(self.connection(&owner)?.info(until).await);
        }
        Ok(infos)
    }

    /// Of these, each with its slot, the first for each node that has slots, as far as it is known who has what.
    pub(super) fn first_of_each_node<T>(&self, all: impl Iterator<Item = (u16, T)>) -> Vec<T> {
        // A copy: a node with few slots may take long to find, and checks need the map.
        let slots = self.map.lock().slots.clone();
        let mut left: HashSet<&Arc<str>> = slots.values().collect();
        let mut found = Vec::with_capacity(left.len());
        for (slot, one) in all {
            if slots.get(&slot).is_some_and(|owner| left.remove(owner)) {
                found.push(one);
            }
            if left.is_empty() {
                break;
            }
        }
        found
    }

    async fn owner(&self, slot: u16, until: Instant) -> Result<Arc<str>, RedisError> {
        let known = self.map.lock().slots.get(&slot).cloned();
        match known {
            Some(node) => Ok(node),
            None => self.look_up(slot, until).await,
        }
    }

    /// Asks the nodes that are known, and those we began with, until one says who has what. One that does not answer must not use up
    /// the time of those that would, so nobody is waited for alone.
    async fn look_up(&self, slot: u16, until: Instant) -> Result<Arc<str>, RedisError> {
        let mut candidates: HashSet<Arc<str>> = self.map.lock().nodes.keys().cloned().collect();
        candidates.extend(self.seeds.iter().cloned());
        let mut candidates = candidates.into_iter();
        let mut last = RedisError::Unreachable("no node of the cluster answers".into());
        let mut asked = JoinSet::new();
        loop {
            let answer = match candidates.next() {
                Some(node) => {
                    let connection = self.connection(&node)?;
                    asked.spawn(async move { (connection.cluster_slots(until).await, node) });
                    match timeout(TURN, asked.join_next()).await {
                        Ok(answer) => answer,
                        Err(_) => continue,
                    }
                }
                None => asked.join_next().await,
            };
            match answer {
                Some(Ok((Ok(ranges), node))) => match self.learn(ranges, &node, slot) {
                    Some(owner) => return Ok(owner),
                    None => last = RedisError::Unreachable("nobody has the slot".into()),
                },
                Some(Ok((Err(error), _))) => last = error,
                Some(Err(_)) => {}
                None => return Err(last),
            }
        }
    }

    /// Who has what, as this node says, and who has this slot. Nodes that have nothing any more are forgotten.
    fn learn(&self, ranges: Vec<SlotRange>, by: &str, slot: u16) -> Option<Arc<str>> {
        let mut map = self.map.lock();
        let mut owners: HashSet<Arc<str>> = self.seeds.iter().cloned().collect();
        for SlotRange { from, to, owner } in ranges {
            let owner = place_of(&owner, by);
            for slot in from..=to {
                map.slots.insert(slot, Arc::clone(&owner));
            }
            owners.insert(owner);
        }
        map.nodes.retain(|node, _| owners.contains(node));
        map.slots.get(&slot).cloned()
    }

    fn connection(&self, node: &Arc<str>) -> Result<Arc<Connection>, RedisError> {
        let mut map = self.map.lock();
        if let Some(known) = map.nodes.get(node) {
            return Ok(Arc::clone(known));
        }
        let (transport, login) = (&self.transport, &self.login);
        let connection = Connection::to_node(node, transport, login, self.connect_timeout)?;
        let connection = Arc::new(connection);
        map.nodes.insert(Arc::clone(node), Arc::clone(&connection));
        Ok(connection)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

/// Where a node is that another one names, `host:port`: an address of version 6 comes without its brackets, and no host at all is the
/// one of whoever says so.
fn place_of(said: &str, by: &str) -> Arc<str> {
    let Some((host, port)) = said.rsplit_once(':') else {
        return said.into();
    };
    match host {
        "" => {
            let own = by.rsplit_once(':').map_or(by, |(own, _)| own);
            format!("{own}:{port}").into()
        }
        _ if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}").into(),
        _ => said.into(),
    }
}

/// The slot of a key: of what stands in its braces.
pub(super) fn slot_of(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map_or(key, |(tag, _)| if tag.is_empty() { key } else { tag });
    crc16(tag.as_bytes()) % SLOTS
}

/// CRC-16/XMODEM, as the cluster specification says.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| match crc >> 15 {
            0 => crc << 1,
            _ => crc << 1 ^ 0x1021,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_where_others_say() {
        let said = |said| place_of(said, "[::1]:7000").to_string();
        assert_eq!(said("10.0.0.1:6379"), "10.0.0.1:6379");
        assert_eq!(said("fd00::2:6379"), "[fd00::2]:6379");
        assert_eq!(said("[fd00::2]:6379"), "[fd00::2]:6379");
        assert_eq!(said(":6379"), "[::1]:6379");
        assert_eq!(place_of(":1", "node:2").as_ref(), "node:1");
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        // As `CLUSTER KEYSLOT` says.
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of("tollgate:{foo}:log:1"), slot_of("foo"));
        assert_eq!(slot_of("{}foo"), crc16(b"{}foo") % SLOTS);
    }
}
