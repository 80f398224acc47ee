//! What would happen to a request, and why: one report for `tollgate explain` and `/v1/explain`. Charges nothing.

use std::fmt::Display;
use std::net::IpAddr;

use serde::Serialize;
use tollgate::{Applicability, Decision, Limiter, MatchedRules, Mode, Rule, Source, Tier, Verdict};
use tollgate_config::text::escaped;
use tollgate_tower::identity;
use tollgate_tower::policy::{Head, Policy};

use crate::decider::bucket_values;
use crate::time::ceil_millis;

/// Longer text from clients is cut.
const MAX_CHARS: usize = 200;

pub(crate) struct ExplainedRequest<'a> {
    pub(crate) head: Head<'a>,
    pub(crate) peer: IpAddr,
    /// Whether the peer was not named.
    pub(crate) peer_is_assumed: bool,
    /// The client, whatever the headers say.
    pub(crate) client: Option<&'a str>,
    pub(crate) cost: Option<u64>,
}

/// The decision as the store would make it now, or why it is unknown.
pub(crate) async fn usage_in(
    limiter: &Limiter,
    met: &MatchedRules<'_>,
) -> Result<Decision, &'static str> {
    let decision = limiter.matched(met).peek().await;
    match decision.source() {
        Source::Store => Ok(decision),
        _ => Err("the store cannot be asked"),
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Explanation {
    pub(crate) generation: u64,
    pub(crate) request: RequestReport,
    pub(crate) caller: CallerReport,
    pub(crate) rules: Vec<RuleReport>,
    pub(crate) decision: Option<DecisionReport>,
    pub(crate) usage_unknown: Option<&'static str>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct RequestReport {
    pub(crate) method: String,
    /// The target as it was sent.
    pub(crate) asked: String,
    /// The normal form, which rules match.
    pub(crate) path: Option<String>,
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
    /// Whether the peer was not named.
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

#[derive(Debug, Default, Serialize)]
pub(crate) struct RuleReport {
    pub(crate) id: String,
    pub(crate) applies: bool,
    pub(crate) why_not: Option<String>,
    pub(crate) plan: Option<String>,
    pub(crate) limit: Option<String>,
    pub(crate) mode: Option<String>,
    pub(crate) on_store_failure: Option<String>,
    /// The dimensions and values that identify the bucket.
    pub(crate) bucket: Vec<(&'static str, String)>,
    pub(crate) used: Option<u64>,
    pub(crate) remaining: Option<u64>,
    pub(crate) reset_after_ms: Option<u64>,
    /// The verdict of this rule alone.
    pub(crate) verdict: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct DecisionReport {
    pub(crate) allowed: bool,
    pub(crate) verdict: String,
    pub(crate) rule: Option<String>,
    pub(crate) retry_after_ms: Option<u64>,
}

impl ExplainedRequest<'_> {
    /// Explains the request. `usage` finds out what is used.
    pub(crate) async fn explain(
        &self,
        policy: &Policy,
        usage: impl AsyncFnOnce(&MatchedRules<'_>) -> Result<Decision, &'static str>,
    ) -> Explanation {
        let view = policy.view(&self.head, self.peer);
        let client = self.client.filter(|_| view.is_ok());
        let client = client.map(|client| policy.client_name(client));
        let mut report = Explanation {
            generation: policy.generation(),
            request: RequestReport {
                method: self.head.method.to_string(),
                asked: escaped(&self.head.uri.to_string(), MAX_CHARS),
                ..RequestReport::default()
            },
            caller: self.caller(policy, client.as_deref()),
            rules: Vec::new(),
            decision: None,
            usage_unknown: None,
        };
        let view = match view {
            Ok(view) => view,
            Err(refusal) => {
                report.request.refused = Some(refusal.to_string());
                return report;
            }
        };
        let mut request = match client.as_deref() {
            Some(name) => view.request_by(name, policy.clients().plan_of(name)),
            None => view.request(),
        };
        if let Some(cost) = self.cost {
            request = request.cost(cost);
        }
        let met = policy.rules().matching(&request);
        let explanation = policy.rules().explain(&request);
        let short = |text: &str| escaped(text, MAX_CHARS);
        report.request.path = Some(view.path().as_str().to_owned());
        report.request.host = view.host().map(short);
        report.request.endpoint = explanation.route.map(short);
        report.request.cost = Some(explanation.cost);
        let decision = match usage(&met).await {
            Ok(decision) => Some(decision),
            Err(why) => {
                report.usage_unknown = Some(why);
                None
            }
        };
        let rule_report =
            |(id, applicability): &(tollgate::Name, Applicability<'_>)| match applicability {
                Applicability::Applies(rule) => RuleReport::applying(&met, rule, decision.as_ref()),
                other => RuleReport::other(id, other),
            };
        report.rules = explanation.rules.iter().map(rule_report).collect();
        report.decision = decision.map(|decision| DecisionReport {
            allowed: decision.allowed(),
            verdict: verdict(decision.verdict()),
            rule: decision.tier().map(|tier| tier.rule().to_string()),
            retry_after_ms: decision.retry_after().map(ceil_millis),
        });
        report
    }

    /// The client that the request is charged to: the one that was named, or that the identity finds.
    fn caller(&self, policy: &Policy, named: Option<&str>) -> CallerReport {
        let headers = self.head.headers;
        let explained = (policy.identity()).explain(self.peer, headers, policy.clients());
        let caller = &explained.caller;
        let short = |text: &str| escaped(text, MAX_CHARS);
        let mut report = CallerReport {
            client: caller.client().map(short),
            how: caller.identified_by().to_string(),
            plan: caller.plan().map(short),
            ip: caller.ip().to_string(),
            ip_is_assumed: self.peer_is_assumed,
            address: explained.address.to_string(),
            client_sources: explained.client.iter().map(SourceReport::of).collect(),
            plan_sources: explained.plan.iter().map(SourceReport::of).collect(),
        };
        if let Some(client) = named {
            report.client = Some(short(client));
            report.how = "as you named it".to_owned();
            report.plan = policy.clients().plan_of(client).map(short);
            report.client_sources.clear();
            report.plan_sources.clear();
        }
        report
    }
}

impl SourceReport {
    fn of<S: Display>(step: &identity::Step<S>) -> Self {
        Self {
            source: step.source.to_string(),
            outcome: step.outcome.to_string(),
        }
    }
}

impl RuleReport {
    fn other(id: &impl Display, why_not: impl Display) -> Self {
        Self {
            id: id.to_string(),
            why_not: Some(why_not.to_string()),
            ..Self::default()
        }
    }

    fn applying(met: &MatchedRules<'_>, rule: &Rule, decision: Option<&Decision>) -> Self {
        let mut tiers = decision.iter().flat_map(|decision| decision.tiers());
        let tier = tiers.find(|tier| tier.rule() == rule.id());
        let is_shadow = rule.is_shadow();
        let mode = if is_shadow {
            Mode::Shadow
        } else {
            Mode::Enforce
        };
        let bucket = bucket_values(met, rule).into_iter();
        Self {
            id: rule.id().to_string(),
            applies: true,
            why_not: None,
            plan: rule.plan_name().map(|plan| escaped(plan, MAX_CHARS)),
            limit: Some(rule.limit().to_string()),
            mode: Some(mode.to_string()),
            on_store_failure: Some(rule.failure_policy().to_string()),
            bucket: bucket
                .map(|(name, value)| (name, escaped(&value, MAX_CHARS)))
                .collect(),
            used: tier.map(|tier| tier.limit().capacity().saturating_sub(tier.remaining())),
            remaining: tier.map(Tier::remaining),
            reset_after_ms: tier.map(|tier| ceil_millis(tier.reset_after())),
            verdict: tier.map(|tier| verdict(tier.verdict())),
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
