//! The commands of the program, one file each, and how they fail.

pub(crate) mod check_config;
mod failure;
pub(crate) mod init;

pub(crate) use failure::Failure;
