//! The kit, bound to the program of this package.

use tollgate_testing::{Gateway, Program, Running};

/// The program.
pub(crate) const TOLLGATE: &str = env!("CARGO_BIN_EXE_tollgate");

/// The program in a folder of its own.
pub(crate) fn program() -> Program {
    Program::new(TOLLGATE)
}

/// The program, serving by this configuration.
pub(crate) fn serve(config: &str) -> Running {
    program().serve(config)
}

/// The program as a gateway: see [`Gateway::start`].
pub(crate) fn gateway(fields: &str, rest: &str) -> Gateway {
    Gateway::start(TOLLGATE, fields, rest)
}
