//! Changes that take effect while the program runs: rules, clients and answers.

mod answers;
mod log;
mod policies;
