//! Who is calling and what is allowed, compiled: from the file, or from the documents of a database.

use tollgate::{Cost, PathRules, Pattern, Rule, RuleSet};
use tollgate_tower::identity::{Client, Clients, Identity};
use tollgate_tower::policy::Policy;

use super::answers::AnswersConfig;
use super::identity::{self, ClientEntry, IdentityDraft};
use super::rules::{self, RuleEntry};
use crate::document::reading::{Place, shortened};
use crate::document::{Node, Problems};

/// Who is calling, and what is allowed. One immutable whole: the next generation is another one.
#[derive(Clone, Debug)]
pub struct PolicyConfig {
    /// Tells who is calling.
    pub identity: Identity,
    /// Who is known before they call.
    pub clients: Clients,
    /// What is allowed, with what requests cost.
    pub rules: RuleSet,
    /// What is said in the file, whatever the rules come from.
    settings: Settings,
}

/// What a policy takes from the file even if its rules are in a database.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// `None`: the usual ones.
    pub(super) answers: Option<AnswersConfig>,
    pub(super) identity: IdentityDraft,
    pub(super) costs: Vec<Cost>,
    pub(super) paths: PathRules,
    /// Endpoints without a rule of their own.
    pub(super) routes: Vec<Pattern>,
    /// Paths at which the upstream changes.
    pub(super) boundaries: Vec<Pattern>,
}

impl PolicyConfig {
    pub(super) fn of(
        settings: Settings,
        clients: &[ClientEntry],
        rules: &[RuleEntry],
        problems: &mut Problems,
    ) -> Option<Self> {
        settings.compile(clients, rules, problems)
    }

    /// The same policy with the rules and clients of a database. Identity, paths and costs stay as the file says them.
    ///
    /// # Errors
    /// Everything that is wrong; problems name the rule or client by its id, and the field.
    pub fn with_documents<'n>(
        &self,
        rules: impl IntoIterator<Item = &'n Node>,
        clients: impl IntoIterator<Item = &'n Node>,
    ) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let rules: Vec<RuleEntry> = (rules.into_iter().enumerate())
            .filter_map(|(nth, node)| rules::rule(&named("rule", nth, node), &mut problems))
            .collect();
        let clients: Vec<ClientEntry> = (clients.into_iter().enumerate())
            .filter_map(|(nth, node)| identity::client(&named("client", nth, node), &mut problems))
            .collect();
        let compiled = self
            .settings
            .clone()
            .compile(&clients, &rules, &mut problems);
        match compiled {
            Some(policy) if !problems.has_errors() => Ok(policy),
            _ => Err(problems),
        }
    }

    /// All of it, as it decides.
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

    /// What the file with the body of denials holds now, or why it cannot be read; `None` if there is no such file.
    pub fn denied_file(&self) -> Option<Result<String, String>> {
        self.settings.answers.as_ref()?.file_contents()
    }

    /// Reads that file. Until then, denials are answered as is usual.
    pub(super) fn read_denied_file(&mut self, problems: &mut Problems) {
        if let Some(answers) = &mut self.settings.answers {
            answers.read_file(problems);
        }
    }

    /// How paths are read before they are matched.
    #[must_use]
    pub fn paths(&self) -> PathRules {
        self.settings.paths
    }

    /// What requests cost.
    #[must_use]
    pub fn costs(&self) -> &[Cost] {
        &self.settings.costs
    }
}

impl Settings {
    fn compile(
        self,
        clients: &[ClientEntry],
        rules: &[RuleEntry],
        problems: &mut Problems,
    ) -> Option<PolicyConfig> {
        let rules = rules::together(rules, problems);
        let known = identity::clients(clients, problems)?;
        let identity = identity::identified(&self.identity, clients, &known, problems)?;
        Some(PolicyConfig {
            identity,
            clients: known,
            rules: rules?
                .with_paths(self.paths)
                .with_routes(self.routes.iter().cloned())
                .with_boundaries(self.boundaries.iter().cloned())
                .with_costs(self.costs.iter().cloned()),
            settings: self,
        })
    }
}

/// A document of a database, called by its id, or by its place if it has none.
pub(super) fn named<'n>(what: &str, nth: usize, node: &'n Node) -> Place<'n> {
    let id = node.get("id").map(|node| Place::root(node, ""));
    let id = id.and_then(|place| place.peek());
    let path = match id {
        Some(id) => format!("{what} {}", shortened(&id.text)),
        None => format!("{what} number {}", nth + 1),
    };
    Place::root(node, path)
}

/// Reads a rule document. `None` if something is wrong with it, which is in `problems` then.
#[must_use]
pub fn read_rule(node: &Node, problems: &mut Problems) -> Option<Rule> {
    let entry = rules::rule(&named("rule", 0, node), problems)?;
    Some(entry.rule)
}

/// Reads a client document. `None` if something is wrong with it, which is in `problems` then.
#[must_use]
pub fn read_client(node: &Node, problems: &mut Problems) -> Option<Client> {
    let before = problems.errors();
    let entry = identity::client(&named("client", 0, node), problems)?;
    (problems.errors() == before).then_some(entry.client)
}
