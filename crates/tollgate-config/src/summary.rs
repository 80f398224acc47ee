//! A configuration in a few lines, for whoever has just checked it.

use std::fmt;

use serde::Serialize;

use super::config::Config;
use super::storage::RulesFrom;
use super::store::StoreConfig;
use tollgate::words::grouped;

/// What a configuration amounts to.
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
        let doors = [
            ("gateway", config.gateway.as_ref().map(|door| door.listen)),
            ("service", config.service.as_ref().map(|door| door.listen)),
            ("admin", config.admin.as_ref().map(|door| door.listen)),
        ];
        let listens = doors.into_iter();
        let listens = listens.filter_map(|(name, at)| Some(format!("{name} at {}", at?)));
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
    match count {
        1 => format!("1 {one}"),
        _ => format!("{} {one}s", grouped(count as u64)),
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rules_from {
            "database" => writeln!(
                f,
                "  rules:   from the database, {} here",
                counted(self.costs, "cost")
            )?,
            _ => writeln!(
                f,
                "  rules:   {}, {}, {}",
                counted(self.rules, "rule"),
                counted(self.clients, "client"),
                counted(self.costs, "cost"),
            )?,
        }
        writeln!(f, "  state:   {}", self.state)?;
        let listens = match self.listens.is_empty() {
            true => "nowhere".to_owned(),
            false => self.listens.join(", "),
        };
        writeln!(f, "  listens: {listens}")?;
        let audit = if self.audit {
            "kept in the database"
        } else {
            "not kept"
        };
        write!(f, "  audit:   {audit}")
    }
}
