//! Rules, clients and identity, compiled from the file or from the documents of a database.

use std::cell::RefCell;

use tollgate::{Cost, PathRules, Pattern, RuleSet};
use tollgate_tower::identity::{Clients, Identity, IdentityConfig};
use tollgate_tower::policy::Policy;

use super::answers::AnswersConfig;
use super::identity::{self, ClientEntry};
use super::rules::{self, RuleEntry};
use crate::document::reading::{Input, map_with_hints, shortened};
use crate::document::{Node, Problems, Value};

/// Who is calling, and what is allowed. Immutable: a reload makes another one.
#[derive(Clone, Debug)]
pub struct PolicyConfig {
    /// Finds out who is calling.
    pub identity: Identity,
    /// The known clients.
    pub clients: Clients,
    /// The rules, with the costs of requests.
    pub rules: RuleSet,
    pub(super) settings: Settings,
}

/// The part of a policy that is in the file, even if the rules are in a database.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// `None` for the default.
    pub(super) answers: Option<AnswersConfig>,
    pub(super) identity: IdentityConfig,
    pub(super) costs: Vec<Cost>,
    pub(super) paths: PathRules,
    /// Endpoints without a rule of their own.
    pub(super) routes: Vec<Pattern>,
    /// Paths at which the upstream changes.
    pub(super) boundaries: Vec<Pattern>,
}

impl Settings {
    pub(super) fn compile(
        self,
        clients: &[ClientEntry],
        rules: &[RuleEntry<'_>],
        problems: &RefCell<Problems>,
    ) -> Option<PolicyConfig> {
        let rules = rules::compile(rules, problems);
        let known = identity::clients(clients, problems)?;
        let identity = identity::compile(&self.identity, clients, &known, problems)?;
        let rules = rules?
            .with_paths(self.paths)
            .with_routes(self.routes.iter().cloned())
            .with_boundaries(self.boundaries.iter().cloned())
            .with_costs(self.costs.iter().cloned());
        Some(PolicyConfig {
            identity,
            clients: known,
            rules,
            settings: self,
        })
    }
}

impl PolicyConfig {
    /// The same policy with the rules and clients of a database. Identity, paths and costs stay those of the file.
    ///
    /// # Errors
    /// All problems; they name the rule or client by its id, and the field.
    pub fn with_documents<'n>(
        &self,
        rules: impl IntoIterator<Item = &'n Node>,
        clients: impl IntoIterator<Item = &'n Node>,
    ) -> Result<Self, Problems> {
        let problems = RefCell::default();
        let rules = read_rules(rules, &problems);
        let clients: Vec<ClientEntry> = (clients.into_iter().enumerate())
            .filter_map(|(nth, node)| {
                let input = document("client", nth, node, &problems);
                map_with_hints(identity::CLIENT_HINTS, identity::client)(&input)
            })
            .collect();
        let policy = self.settings.clone().compile(&clients, &rules, &problems);
        let problems = problems.into_inner();
        policy.filter(|_| !problems.has_errors()).ok_or(problems)
    }

    /// The policy in the form that makes decisions.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let policy = Policy::new(
            self.rules.clone(),
            self.identity.clone(),
            self.clients.clone(),
        );
        match &self.settings.answers {
            Some(answers) => policy.with_answers(answers.answers()),
            None => policy,
        }
    }

    /// The current content of the file with the body of denials, or why it cannot be read; `None` if there is no such file.
    pub fn denied_file(&self) -> Option<Result<String, String>> {
        self.settings.answers.as_ref()?.file_contents()
    }

    /// Reads that file. Until then, denials have the default body.
    pub(super) fn read_denied_file(&mut self, problems: &mut Problems) {
        if let Some(answers) = &mut self.settings.answers {
            answers.read_file(problems);
        }
    }

    /// The normal form of paths.
    pub fn paths(&self) -> PathRules {
        self.settings.paths
    }

    /// The costs of requests.
    #[must_use]
    pub fn costs(&self) -> &[Cost] {
        &self.settings.costs
    }
}

/// Reads the rules of a database. Those with an error are left out.
pub(super) fn read_rules<'p, 'n: 'p>(
    nodes: impl IntoIterator<Item = &'n Node>,
    problems: &'p RefCell<Problems>,
) -> Vec<RuleEntry<'p>> {
    let rule = map_with_hints(rules::HINTS, rules::rule);
    (nodes.into_iter().enumerate())
        .filter_map(|(nth, node)| rule(&document("rule", nth, node, problems)))
        .collect()
}

/// A document of a database, named by its id, or by its number if it has none.
fn document<'p>(
    kind: &str,
    nth: usize,
    node: &'p Node,
    problems: &'p RefCell<Problems>,
) -> Input<'p> {
    let path = match node.get("id").map(|node| &node.value) {
        Some(Value::Scalar(id)) => format!("{kind} {}", shortened(&id.text)),
        _ => format!("{kind} number {}", nth + 1),
    };
    Input::root(node, path, problems)
}
