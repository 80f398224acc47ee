//! The commands of the program, one file each, and how they fail.

mod failure;

pub(crate) use failure::Failure;
