//! What clients have used of their limits, and what a reset forgot: the reports of the command line and of the service.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use tollgate::{BucketKind, Dimension, MatchedRules, Rule, RuleSet, Usage};
use tollgate_config::document::listed;
use tollgate_config::text::escaped;
use tollgate_tower::identity::Identity;
use tollgate_tower::policy::{Policy, RequestAttributes};

use crate::decider::{bucket_values, dimension_name};
use crate::time::ceil_millis;

/// Longer text from clients is cut.
const MAX_CHARS: usize = 200;

/// What is used of the buckets of a client or another subject.
#[derive(Debug, Serialize)]
pub(crate) struct UsageReport {
    pub(crate) generation: u64,
    /// The name under which the client is counted.
    pub(crate) client: Option<String>,
    pub(crate) buckets: Vec<BucketReport>,
    /// If nothing is used: what clients are called, unless the client is known.
    pub(crate) hint: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ResetReport {
    pub(crate) generation: u64,
    /// The name under which the client is counted.
    pub(crate) client: Option<String>,
    pub(crate) forgotten: Vec<BucketReport>,
    /// If nothing was used: what clients are called, unless the client is known.
    pub(crate) hint: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct BucketReport {
    /// Absent if the rule does not exist any more, or belongs to another program.
    pub(crate) rule: Option<String>,
    /// The dimensions and values that identify it, not escaped; of another bucket than the requested one, only the subject. Empty if all share
    /// it.
    #[serde(serialize_with = "escaped_values")]
    pub(crate) bucket: Vec<(&'static str, String)>,
    /// If it is another bucket of the same subject, such as another route: a hash of the unknown values.
    pub(crate) other: Option<String>,
    pub(crate) limit: Option<String>,
    pub(crate) used: Option<u64>,
    pub(crate) remaining: Option<u64>,
    /// Until it is full again.
    pub(crate) reset_after_ms: u64,
    pub(crate) shadow: bool,
}

impl UsageReport {
    pub(crate) fn new(usages: &[Usage], policy: &Policy, subject: &RequestAttributes<'_>) -> Self {
        let is_used = usages.iter().any(|usage| usage.used() != Some(0));
        Self {
            generation: policy.generation(),
            client: client(subject),
            buckets: buckets(usages, policy.rules(), subject),
            hint: hint(policy, subject).filter(|_| !is_used),
        }
    }
}

impl ResetReport {
    pub(crate) fn new(usages: &[Usage], policy: &Policy, subject: &RequestAttributes<'_>) -> Self {
        Self {
            generation: policy.generation(),
            client: client(subject),
            forgotten: buckets(usages, policy.rules(), subject),
            hint: hint(policy, subject).filter(|_| usages.is_empty()),
        }
    }

    /// The number of buckets of each rule, in words.
    pub(crate) fn summary(&self) -> String {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for bucket in &self.forgotten {
            let rule = bucket.rule.as_deref().unwrap_or("removed rules");
            match counts.iter_mut().find(|(known, _)| *known == rule) {
                Some((_, count)) => *count += 1,
                None => counts.push((rule, 1)),
            }
        }
        let each = (counts.iter()).map(|(rule, count)| format!("{count} of {rule}"));
        let each = each.collect::<Vec<_>>().join(", ");
        match (self.forgotten.len(), &self.client) {
            (0, Some(client)) => format!("nothing was used by {client}"),
            (0, None) => "nothing was used".to_owned(),
            (1, _) => format!("forgot 1 bucket: {each}"),
            (all, _) => format!("forgot {all} buckets: {each}"),
        }
    }
}

fn client(subject: &RequestAttributes<'_>) -> Option<String> {
    let client = subject.client.as_deref();
    client.map(|client| escaped(client, MAX_CHARS))
}

/// What clients are called, unless this one is known or named by its address.
fn hint(policy: &Policy, subject: &RequestAttributes<'_>) -> Option<String> {
    let client = subject.client.as_deref()?;
    let is_named = policy.clients().contains(client) || client.starts_with("ip:");
    (!is_named).then(|| naming_hint(policy.identity()))
}

/// How unknown clients are named.
pub(crate) fn naming_hint(identity: &Identity) -> String {
    let sources = identity.client_sources().iter();
    let names: Vec<String> = (sources.filter(|source| source.is_claimed()))
        .filter_map(|source| Some(format!("{}:ID", source.header_name()?)))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match names.is_empty() {
        true => "no client of the configuration has this id, and no header names clients; `tollgate explain` shows the name of \
                 a request's client"
            .to_owned(),
        false => format!(
            "no client of the configuration has this id; clients that a header names are called {}, as `tollgate explain` shows",
            listed(&names, "or")
        ),
    }
}

fn buckets(
    usages: &[Usage],
    rules: &RuleSet,
    subject: &RequestAttributes<'_>,
) -> Vec<BucketReport> {
    let request = subject.request();
    let met = rules.matching(&request);
    let report = |usage: &Usage| BucketReport {
        rule: usage.rule().map(|rule| rule.to_string()),
        bucket: known_values(usage, rules, &met, subject),
        other: match usage.bucket() {
            BucketKind::Other(id) => Some(format!("{id:08x}")),
            _ => None,
        },
        limit: usage.limit().map(ToString::to_string),
        used: usage.used(),
        remaining: usage.remaining(),
        reset_after_ms: ceil_millis(usage.reset_after()),
        shadow: usage.is_shadow(),
    };
    usages.iter().map(report).collect()
}

/// What is known of the values that identify a bucket.
fn known_values(
    usage: &Usage,
    rules: &RuleSet,
    met: &MatchedRules<'_>,
    subject: &RequestAttributes<'_>,
) -> Vec<(&'static str, String)> {
    let is_its = |rule: &&Rule| Some(rule.id()) == usage.rule();
    let mut met_rules = met.rules().iter().copied();
    let rule = (met_rules.find(is_its)).or_else(|| rules.rules().find(is_its));
    let values = match (usage.bucket(), rule, usage.subject()) {
        (BucketKind::Matched, Some(rule), _) => bucket_values(met, rule),
        (_, _, Some(dimension)) => {
            let value = value(dimension, met, subject).unwrap_or("-".into());
            vec![(dimension_name(dimension), value)]
        }
        (_, _, None) => Vec::new(),
    };
    (values.into_iter())
        .map(|(name, value)| (name, value.into_owned()))
        .collect()
}

fn escaped_values<S: Serializer>(
    bucket: &[(&'static str, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq((bucket.iter()).map(|(name, value)| (name, escaped(value, MAX_CHARS))))
}

/// The value of a dimension, as it was given.
fn value<'a>(
    dimension: Dimension,
    met: &'a MatchedRules<'_>,
    subject: &'a RequestAttributes<'_>,
) -> Option<Cow<'a, str>> {
    match dimension {
        Dimension::Client => subject.client.as_deref().map(Cow::Borrowed),
        Dimension::Ip => subject.ip.map(|ip| ip.to_string().into()),
        Dimension::Route => met.route().map(Cow::Borrowed),
        Dimension::Method => met.method().map(Cow::Borrowed),
        Dimension::Plan => subject.plan.as_deref().map(Cow::Borrowed),
        Dimension::Attribute(name) => {
            let mut attributes = subject.attributes.iter();
            let found = attributes.find(|(known, _)| *known == name);
            found.map(|(_, value)| Cow::Borrowed(&**value))
        }
        _ => None,
    }
}
