//! A configuration in a few lines, as `check-config` prints it.

use std::fmt;

use serde::Serialize;

use super::config::{Config, listeners};
use super::storage::RulesFrom;
use super::store::StoreConfig;
use crate::text::grouped;

/// The summary of a configuration.
#[derive(Debug, Serialize)]
pub struct Summary {
    rules: usize,
    clients: usize,
    costs: usize,
    rules_from: &'static str,
    state: String,
    listens: Vec<String>,
    audit: bool,
}

impl Summary {
    /// The summary of a configuration.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let listeners = listeners(&config.gateway, &config.service, &config.admin);
        let listens = listeners.into_iter();
        let listens = listens.map(|(name, address)| format!("{name} at {address}"));
        Self {
            rules: config.policy.rules.rules().count(),
            clients: config.policy.clients.len(),
            costs: config.policy.costs().len(),
            rules_from: match config.rules_from {
                RulesFrom::File => "file",
                RulesFrom::Database => "database",
            },
            state: match &config.store {
                StoreConfig::Memory(memory) => {
                    format!("in memory, up to {} keys", grouped(memory.max_keys as u64))
                }
                StoreConfig::Redis(redis) => format!("in Redis at {}", redis.url),
            },
            listens: listens.collect(),
            audit: config.audit.is_some(),
        }
    }
}

fn counted(count: usize, one: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {one}{plural}", grouped(count as u64))
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let costs = counted(self.costs, "cost");
        let rules = match self.rules_from {
            "database" => format!("from the database, {costs} here"),
            _ => {
                let (rules, clients) =
                    (counted(self.rules, "rule"), counted(self.clients, "client"));
                format!("{rules}, {clients}, {costs}")
            }
        };
        let listens = match self.listens.is_empty() {
            true => "nowhere".to_owned(),
            false => self.listens.join(", "),
        };
        let audit = match self.audit {
            true => "kept in the database",
            false => "not kept",
        };
        let state = &self.state;
        write!(
            f,
            "  rules:   {rules}\n  state:   {state}\n  listens: {listens}\n  audit:   {audit}"
        )
    }
}
