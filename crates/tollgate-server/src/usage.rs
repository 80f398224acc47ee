//! What callers used of their limits, and what was forgotten of it, as one document: the same of the command line and of the service.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use tollgate::{BucketKind, Dimension, MatchedRules, Rule, RuleSet, Usage};
use tollgate_tower::policy::Policy;

use crate::decider::{bucket_values, name};
use tollgate_config::document::listed;
use tollgate_config::text::escaped;
use tollgate_tower::policy::RequestAttributes;

/// Longer text of callers is cut.
const MOST: usize = 200;

/// What is used of every bucket of those who were named.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) generation: u64,
    /// The client's name, as it is counted.
    pub(crate) client: Option<String>,
    pub(crate) buckets: Vec<BucketReport>,
    /// If nothing is used: what clients are called, if this one is not known.
    pub(crate) hint: Option<String>,
}

/// What was forgotten.
#[derive(Debug, Serialize)]
pub(crate) struct Forgotten {
    pub(crate) generation: u64,
    /// The client's name, as it is counted.
    pub(crate) client: Option<String>,
    pub(crate) forgotten: Vec<BucketReport>,
    /// If nothing was used: what clients are called, if this one is not known.
    pub(crate) hint: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct BucketReport {
    /// Nothing if it counts by a rule that is not there any more, or another program's.
    pub(crate) rule: Option<String>,
    /// What tells it apart; of another bucket than the one that was asked for, only whose it is. Nothing if it is everybody's. As it was
    /// told: to be escaped where it is shown.
    #[serde(serialize_with = "escaped_values")]
    pub(crate) bucket: Vec<(String, String)>,
    /// If it is another bucket of the same subject, such as another route: a hash of what is not known.
    pub(crate) other: Option<String>,
    pub(crate) limit: Option<String>,
    pub(crate) used: Option<u64>,
    pub(crate) remaining: Option<u64>,
    /// Until it is full again.
    pub(crate) reset_after_ms: u64,
    pub(crate) shadow: bool,
}

impl Report {
    pub(crate) fn of(usages: &[Usage], policy: &Policy, facts: &RequestAttributes<'_>) -> Self {
        let is_used = usages.iter().any(|usage| usage.used() != Some(0));
        Self {
            generation: policy.generation(),
            client: shown_client(facts),
            buckets: buckets(usages, policy.rules(), facts),
            hint: hint(policy, facts).filter(|_| !is_used),
        }
    }
}

impl Forgotten {
    pub(crate) fn of(usages: &[Usage], policy: &Policy, facts: &RequestAttributes<'_>) -> Self {
        Self {
            generation: policy.generation(),
            client: shown_client(facts),
            forgotten: buckets(usages, policy.rules(), facts),
            hint: hint(policy, facts).filter(|_| usages.is_empty()),
        }
    }

    /// How many buckets of which rules, in words.
    pub(crate) fn summary(&self) -> String {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for bucket in &self.forgotten {
            let rule = bucket.rule.as_deref();
            let rule = rule.unwrap_or("rules that are not there any more");
            match counts.iter_mut().find(|(known, _)| *known == rule) {
                Some((_, count)) => *count += 1,
                None => counts.push((rule, 1)),
            }
        }
        let each = (counts.iter()).map(|(rule, count)| format!("{count} of {rule}"));
        match self.forgotten.len() {
            0 => match &self.client {
                Some(client) => format!("nothing was used by {client}"),
                None => "nothing was used".to_owned(),
            },
            1 => format!("forgot 1 bucket: {}", each.collect::<Vec<_>>().join(", ")),
            all => format!(
                "forgot {all} buckets: {}",
                each.collect::<Vec<_>>().join(", ")
            ),
        }
    }
}

fn shown_client(facts: &RequestAttributes<'_>) -> Option<String> {
    let client = facts.client.as_deref();
    client.map(|client| escaped(client, MOST))
}

/// What clients are called, if the one that is meant is not known and has no name of an address.
fn hint(policy: &Policy, facts: &RequestAttributes<'_>) -> Option<String> {
    let client = facts.client.as_deref()?;
    if policy.clients().contains(client) || client.starts_with("ip:") {
        return None;
    }
    let sources = policy.identity().client_sources().iter();
    let names: Vec<String> = (sources.filter(|source| source.is_claimed()))
        .filter_map(|source| Some(format!("{}:ID", source.header_name()?)))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Some(match names.is_empty() {
        true => "no client of the configuration has this id, and no header names clients; `tollgate explain` shows the name of \
                 a request's client"
            .to_owned(),
        false => format!(
            "no client of the configuration has this id; those that a header names are called {}, as `tollgate explain` shows",
            listed(&names, "or")
        ),
    })
}

fn buckets(usages: &[Usage], rules: &RuleSet, facts: &RequestAttributes<'_>) -> Vec<BucketReport> {
    let request = facts.request();
    let met = rules.matching(&request);
    let report = |usage: &Usage| BucketReport {
        rule: usage.rule().map(|rule| rule.to_string()),
        bucket: whose(usage, rules, &met, facts),
        other: match usage.bucket() {
            BucketKind::Other(id) => Some(format!("{id:08x}")),
            _ => None,
        },
        limit: usage.limit().map(ToString::to_string),
        used: usage.used(),
        remaining: usage.remaining(),
        reset_after_ms: millis(usage.reset_after()),
        shadow: usage.is_shadow(),
    };
    usages.iter().map(report).collect()
}

/// What is known of what tells a bucket apart.
fn whose(
    usage: &Usage,
    rules: &RuleSet,
    met: &MatchedRules<'_>,
    facts: &RequestAttributes<'_>,
) -> Vec<(String, String)> {
    let is_its = |rule: &&Rule| Some(rule.id()) == usage.rule();
    let mut met_rules = met.rules().iter().copied();
    let rule = (met_rules.find(is_its)).or_else(|| rules.rules().find(is_its));
    let values = match (usage.bucket(), rule, usage.subject()) {
        (BucketKind::Matched, Some(rule), _) => bucket_values(met, rule),
        (_, _, Some(subject)) => vec![(name(subject), value(subject, met, facts))],
        (_, _, None) => Vec::new(),
    };
    let owned = |(name, value): (Cow<'_, str>, Cow<'_, str>)| (name.into(), value.into());
    values.into_iter().map(owned).collect()
}

fn escaped_values<S: Serializer>(
    bucket: &[(String, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq((bucket.iter()).map(|(name, value)| (name, escaped(value, MOST))))
}

/// Who a subject is, as it was told.
fn value<'a>(
    subject: Dimension,
    met: &'a MatchedRules<'_>,
    facts: &'a RequestAttributes<'_>,
) -> Cow<'a, str> {
    let text = match subject {
        Dimension::Client => facts.client.as_deref(),
        Dimension::Ip => {
            return facts
                .ip
                .map_or_else(Cow::default, |ip| ip.to_string().into());
        }
        Dimension::Route => met.route(),
        Dimension::Method => met.method(),
        Dimension::Plan => facts.plan.as_deref(),
        Dimension::Attribute(name) => {
            let mut said = facts.attributes.iter();
            said.find(|(said, _)| *said == name)
                .map(|(_, value)| &**value)
        }
        _ => None,
    };
    text.unwrap_or("-").into()
}

/// Rounded up: who waits so long has waited long enough.
fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}
