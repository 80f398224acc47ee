//! A policy of what the file and the database say.

use std::sync::Arc;

use tollgate_tower::policy::Policy;

use crate::config::Config;
use crate::database::Loaded;
use crate::document::Node;

/// Where rules come from, in the log and in what is said of them.
pub(super) const FROM_DATABASE: &str = "the database";

/// Makes a policy of what the file and the database say, apart from those who decide meanwhile.
pub(super) async fn compile(
    config: &Arc<Config>,
    loaded: Option<&Loaded>,
) -> Result<Policy, String> {
    let (config, loaded) = (Arc::clone(config), loaded.cloned());
    let compiled = tokio::task::spawn_blocking(move || {
        let Some(loaded) = loaded else {
            return Ok(config.policy.policy());
        };
        let [rules, clients] = [&loaded.rules, &loaded.clients]
            .map(|documents| documents.iter().map(Node::from_json).collect::<Vec<_>>());
        match config.policy.with_documents(&rules, &clients) {
            Ok(policy) => Ok(policy.policy()),
            Err(problems) => Err(problems.render(FROM_DATABASE, "")),
        }
    });
    match compiled.await {
        Ok(compiled) => compiled,
        Err(error) => Err(format!("the rules could not be compiled: {error}")),
    }
}
