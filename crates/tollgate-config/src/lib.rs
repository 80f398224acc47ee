//! The configuration of Tollgate: from a text to a form that cannot be wrong. It opens no connection.
//!
//! [`parse`] reports everything that is wrong at once, and warns of what is legal but probably a mistake. Each section has
//! a module of its own with the list of its fields; `docs/configuration.md` has the same lists, and a test compares them. It
//! opens no other file: [`ConfigFile`] reads the text files that a configuration names, and checks its certificates if asked to.

mod answers;
mod certificates;
mod conditions;
mod config;
mod connections;
pub mod document;
mod draft;
pub mod encryption;
mod file;
mod gateway;
mod identity;
mod limits;
mod listeners;
mod policy;
mod restart;
mod rules;
mod secret;
mod storage;
mod store;
mod summary;
mod template;
#[cfg(test)]
mod tests;
pub mod text;
mod traces;
mod upstreams;
mod values;
mod warnings;

pub use config::{Config, parse};
pub use connections::{ConnectionLimits, WaitingLimits};
pub use file::ConfigFile;
pub use gateway::{AccessLogFormat, Front, Preflights};
pub use listeners::{Admin, Gateway, Rls, Service};
pub use policy::{PolicyConfig, read_client, read_rule};
pub use secret::{Secret, Url};
pub use storage::{
    AuditConfig, DEFAULT_SCOPE, DatabaseSettings, LogConfig, LogFormat, LogLevel, RulesFrom,
    WatchConfig,
};
pub use store::{RedisSettings, StoreConfig};
pub use summary::Summary;
pub use traces::{TracesConfig, TracesProtocol};
pub use warnings::rule_warnings;
