//! Everything that is explained, as one document.

use serde::Serialize;
use tollgate::{Applicability, Decision, Explanation, MatchedRules, Mode, Rule, Verdict};
use tollgate_tower::identity;
use tollgate_tower::policy::{Head, Refusal, View};

use crate::decider::bucket_values;
use tollgate_config::text::escaped;

/// Longer text of callers is cut.
const MOST: usize = 200;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) generation: u64,
    pub(crate) request: RequestReport,
    pub(crate) caller: CallerReport,
    pub(crate) rules: Vec<RuleReport>,
    pub(crate) decision: Option<DecisionReport>,
    /// Why there are no figures of what is used, if there are none.
    pub(crate) usage_unknown: Option<&'static str>,
}

#[derive(Debug, Serialize)]
pub(crate) struct RequestReport {
    pub(crate) method: String,
    /// As it was written.
    pub(crate) asked: String,
    /// In its normal form, as it is matched.
    pub(crate) path: Option<String>,
    /// Why the request is refused, if it is.
    pub(crate) refused: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) endpoint: Option<String>,
    pub(crate) cost: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CallerReport {
    pub(crate) client: Option<String>,
    pub(crate) how: String,
    pub(crate) plan: Option<String>,
    pub(crate) ip: String,
    /// Whether nobody said where the request comes from.
    pub(crate) ip_is_assumed: bool,
    pub(crate) address: String,
    pub(crate) client_sources: Vec<SourceReport>,
    pub(crate) plan_sources: Vec<SourceReport>,
}

#[derive(Debug, Serialize)]
pub(crate) struct SourceReport {
    pub(crate) source: String,
    pub(crate) outcome: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct RuleReport {
    pub(crate) id: String,
    pub(crate) applies: bool,
    /// Why it does not apply.
    pub(crate) why_not: Option<String>,
    pub(crate) plan: Option<String>,
    pub(crate) limit: Option<String>,
    pub(crate) mode: Option<String>,
    pub(crate) on_store_failure: Option<String>,
    /// What tells its bucket apart.
    pub(crate) bucket: Vec<(String, String)>,
    pub(crate) used: Option<u64>,
    pub(crate) remaining: Option<u64>,
    pub(crate) reset_after_ms: Option<u64>,
    /// What it says about this request by itself.
    pub(crate) verdict: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct DecisionReport {
    pub(crate) allowed: bool,
    pub(crate) verdict: String,
    pub(crate) rule: Option<String>,
    pub(crate) retry_after_ms: Option<u64>,
}

/// What is known of what is used.
pub(crate) enum Usage {
    Known(Box<Decision>),
    Unreachable,
    InAnotherProcess,
}

impl Report {
    pub(crate) fn new(
        head: &Head<'_>,
        generation: u64,
        who: &identity::Explanation,
        ip_is_assumed: bool,
    ) -> Self {
        let caller = &who.caller;
        Self {
            generation,
            request: RequestReport {
                method: head.method.to_string(),
                asked: escaped(&head.uri.to_string(), MOST),
                path: None,
                refused: None,
                host: None,
                endpoint: None,
                cost: None,
            },
            caller: CallerReport {
                client: caller.client().map(|client| escaped(client, MOST)),
                how: caller.identified_by().to_string(),
                plan: caller.plan().map(|plan| escaped(plan, MOST)),
                ip: caller.ip().to_string(),
                ip_is_assumed,
                address: who.address.to_string(),
                client_sources: who.client.iter().map(SourceReport::of).collect(),
                plan_sources: who.plan.iter().map(SourceReport::of).collect(),
            },
            rules: Vec::new(),
            decision: None,
            usage_unknown: None,
        }
    }

    /// Whoever asks for the report says who the client is.
    pub(crate) fn name_client(&mut self, name: &str, plan: Option<&str>) {
        self.caller.client = Some(escaped(name, MOST));
        self.caller.how = "as you say".to_owned();
        self.caller.plan = plan.map(|plan| escaped(plan, MOST));
        self.caller.client_sources.clear();
        self.caller.plan_sources.clear();
    }

    pub(crate) fn refuse(&mut self, refusal: &Refusal) {
        self.request.refused = Some(refusal.to_string());
    }

    pub(crate) fn fill(
        &mut self,
        view: &View<'_>,
        met: &MatchedRules<'_>,
        explanation: &Explanation<'_>,
        usage: &Usage,
    ) {
        self.request.path = Some(view.path().as_str().to_owned());
        self.request.host = view.host().map(|host| escaped(host, MOST));
        self.request.endpoint = explanation.route.map(|route| escaped(route, MOST));
        self.request.cost = Some(explanation.cost);
        let decision = match usage {
            Usage::Known(decision) => Some(&**decision),
            Usage::Unreachable | Usage::InAnotherProcess => None,
        };
        self.usage_unknown = match usage {
            Usage::Known(_) => None,
            Usage::Unreachable => Some("the store cannot be asked"),
            Usage::InAnotherProcess => Some(
                "it is kept in the memory of the running program, which cannot be asked from here",
            ),
        };
        self.rules = (explanation.rules.iter())
            .map(|(id, standing)| match standing {
                Applicability::Applies(rule) => RuleReport::applying(met, rule, decision),
                other => RuleReport::other(id.as_str(), other.to_string()),
            })
            .collect();
        self.decision = decision.map(DecisionReport::of);
    }
}

impl SourceReport {
    fn of<S: std::fmt::Display>(step: &identity::Step<S>) -> Self {
        Self {
            source: step.source.to_string(),
            outcome: step.outcome.to_string(),
        }
    }
}

impl RuleReport {
    fn other(id: &str, why_not: String) -> Self {
        Self {
            id: id.to_owned(),
            applies: false,
            why_not: Some(why_not),
            plan: None,
            limit: None,
            mode: None,
            on_store_failure: None,
            bucket: Vec::new(),
            used: None,
            remaining: None,
            reset_after_ms: None,
            verdict: None,
        }
    }

    fn applying(met: &MatchedRules<'_>, rule: &Rule, decision: Option<&Decision>) -> Self {
        let mut tiers = decision.iter().flat_map(|decision| decision.tiers());
        let tier = tiers.find(|tier| tier.rule() == rule.id());
        let mode = match rule.is_shadow() {
            true => Mode::Shadow,
            false => Mode::Enforce,
        };
        let bucket = bucket_values(met, rule).into_iter();
        Self {
            id: rule.id().to_string(),
            applies: true,
            why_not: None,
            plan: rule.plan_name().map(|plan| escaped(plan, MOST)),
            limit: Some(rule.limit().to_string()),
            mode: Some(mode.to_string()),
            on_store_failure: Some(rule.failure_policy().to_string()),
            bucket: bucket
                .map(|(name, value)| (name.into_owned(), escaped(&value, MOST)))
                .collect(),
            used: tier.map(|tier| tier.limit().capacity().saturating_sub(tier.remaining())),
            remaining: tier.map(tollgate::Tier::remaining),
            reset_after_ms: tier.map(|tier| millis(tier.reset_after())),
            verdict: tier.map(|tier| verdict(tier.verdict())),
        }
    }
}

impl DecisionReport {
    fn of(decision: &Decision) -> Self {
        Self {
            allowed: decision.allowed(),
            verdict: verdict(decision.verdict()),
            rule: decision.tier().map(|tier| tier.rule().to_string()),
            retry_after_ms: decision.retry_after().map(millis),
        }
    }
}

fn verdict(verdict: Verdict) -> String {
    match verdict {
        Verdict::Allow => "allowed".to_owned(),
        Verdict::AllowAfter(delay) => format!("allowed after {delay:?}"),
        Verdict::Deny { retry_after } => format!("denied for another {retry_after:?}"),
        Verdict::NeverFits => "denied: it costs more than the limit holds".to_owned(),
    }
}

/// Rounded up: who waits so long has waited long enough.
fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}
