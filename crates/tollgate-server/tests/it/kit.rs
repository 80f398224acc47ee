//! The test kit, bound to the program of this package, and what only these tests share.

pub(crate) mod database;
pub(crate) mod open_metrics;

use tollgate::Decision;
use tollgate_server::decider::Decider;
use tollgate_testing::{Gateway, Program, Running, Upstream};
use tollgate_tower::policy::Head;

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

/// The program as a gateway before this upstream: see [`Gateway::before`].
pub(crate) fn gateway_before(upstream: Upstream, fields: &str, rest: &str) -> Gateway {
    Gateway::before(upstream, TOLLGATE, fields, rest)
}

/// The program as a decision service, with the admin listener. `fields` are those of the section `service` in flow style
/// (`token: …`), `rest` is the rest of the configuration.
pub(crate) fn service(fields: &str, rest: &str) -> Running {
    serve(&format!(
        "service: {{ listen: 127.0.0.1:0, {fields} }}\nadmin: {{ listen: 127.0.0.1:0 }}\nlog: {{ format: json }}\n{rest}\n"
    ))
}

/// The decision about a request from 203.0.113.7.
pub(crate) async fn decide(decider: &Decider, head: &Head<'_>) -> Decision {
    let policy = decider.policy();
    let view = policy.view(head, [203, 0, 113, 7].into()).unwrap();
    decider
        .decide_on(&policy.rules().matching(&view.request()))
        .await
}
