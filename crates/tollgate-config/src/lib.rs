//! The configuration of Tollgate: from text to a form that cannot be wrong. It opens no connection.
//!
//! [`parse`] reports all errors at once, and warns of what is valid but probably a mistake. Each section has a module with a
//! function that reads its fields; a test compares these fields with `docs/configuration.md`. [`parse`] opens no file.
//! [`ConfigFile`] reads the text files that a configuration names, and can check its certificates.

mod answers;
mod conditions;
mod config;
pub mod document;
pub mod encryption;
mod file;
mod gateway;
mod identity;
mod listeners;
mod policy;
mod rules;
mod secret;
mod sections;
mod storage;
mod template;
pub mod text;
mod traces;
mod values;
mod warnings;

pub use config::{Config, Summary};
pub use file::ConfigFile;
pub use gateway::{AccessLogFormat, Front, Gateway, Preflights};
pub use listeners::{Admin, ConnectionLimits, Rls, Service, WaitingLimits};
pub use policy::PolicyConfig;
pub use secret::{Secret, Url};
pub use sections::parse;
pub use storage::{
    AuditConfig, DEFAULT_SCOPE, DatabaseSettings, LogConfig, LogFormat, LogLevel, RedisSettings,
    RulesFrom, StoreConfig, WatchConfig,
};
pub use traces::{TracesConfig, TracesProtocol};
pub use warnings::rule_warnings;

#[cfg(test)]
mod tests;
