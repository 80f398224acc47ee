//! Reads documents as the running program will, and says everything that is wrong with them.

use serde_json::Value;

use crate::commands::database::Meant;
use crate::failure::Failure;
use tollgate_config::PolicyConfig;
use tollgate_config::document::{Location, Node, Problems};

/// Whether these rules and clients can be used together, by the identity, paths and costs of the configuration that was
/// named, or the usual ones.
pub(super) fn validate(meant: &Meant, rules: &[Value], clients: &[Value]) -> Result<(), Failure> {
    let rules: Vec<Node> = rules.iter().map(Node::from_json).collect();
    let clients: Vec<Node> = clients.iter().map(Node::from_json).collect();
    validate_nodes(meant, &rules, &clients).map_err(|problems| {
        Failure::BadInput(format!(
            "the rules would not be usable any more, so nothing was changed:\n{problems}"
        ))
    })
}

/// The same for what stands in a file, with its places.
pub(super) fn validate_nodes(
    meant: &Meant,
    rules: &[Node],
    clients: &[Node],
) -> Result<(), Problems> {
    let usual;
    let policy: &PolicyConfig = match &meant.config {
        Some(config) => &config.policy,
        None => {
            usual = tollgate_config::parse("rules: [{ id: any, per: [], limit: 1/s }]", &|_| None)?;
            &usual.policy
        }
    };
    let mut problems = Problems::default();
    if rules
        .iter()
        .chain(clients)
        .any(|node| node.get("id").is_none())
    {
        problems.error(
            Location::default(),
            "every rule and every client needs an id",
        );
        return Err(problems);
    }
    policy.with_documents(rules, clients).map(drop)
}
