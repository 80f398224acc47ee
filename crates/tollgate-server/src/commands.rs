//! The commands of the program, one file each, and how they fail.

pub(crate) mod check_config;
mod database;
pub(crate) mod explain;
pub(crate) mod init;
pub(crate) mod inspect;
pub(crate) mod reset;
pub(crate) mod rules;
pub(crate) mod serve;
mod setting;
pub(crate) mod simulate;
mod table;
pub(crate) mod violations;
