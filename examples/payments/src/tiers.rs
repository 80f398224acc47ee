//! The tiers: what the gateways are told and what the referee is, from one table; and what it finds.
//!
//! While Redis is away, four gateways together admit 0.8 of the limit, and a Redis that comes back with nothing adds one burst
//! (docs/guarantees.md). So an interval may have `0.8 × (burst + rate × length) + burst` more than the limit alone would allow.

use std::fmt::Write as _;

use tollgate_referee::{Bound, Excess, Log};

use crate::merchants::{Endpoint, MERCHANTS, Merchant};
use crate::processor::Admission;

const SECOND_US: u64 = 1_000_000;

/// A token bucket: so many at once, so many a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// At once.
    pub burst: u64,
    /// A second.
    pub rate: u64,
}

/// A rule of the configuration.
struct Tier {
    id: &'static str,
    /// Which requests it is for, as the configuration says it.
    matches: Option<&'static str>,
    endpoint: Option<Endpoint>,
    per: &'static str,
    ordinary: Limit,
    /// Other figures for a plan.
    plans: &'static [(&'static str, Limit)],
}

const fn limit(rate: u64, burst: u64) -> Limit {
    Limit { burst, rate }
}

const TIERS: [Tier; 4] = [
    Tier {
        id: "merchant",
        matches: None,
        endpoint: None,
        per: "client",
        ordinary: limit(50, 100),
        plans: &[("enterprise", limit(200, 400)), ("sandbox", limit(10, 20))],
    },
    Tier {
        id: "charges",
        matches: Some("methods: [POST], path: /v1/charges"),
        endpoint: Some(Endpoint::Charge),
        per: "client",
        ordinary: limit(30, 60),
        plans: &[("enterprise", limit(160, 320)), ("sandbox", limit(8, 16))],
    },
    Tier {
        id: "refunds",
        matches: Some("methods: [POST], path: /v1/refunds"),
        endpoint: Some(Endpoint::Refund),
        per: "client",
        ordinary: limit(5, 10),
        plans: &[("enterprise", limit(20, 40))],
    },
    Tier {
        id: "everyone",
        matches: None,
        endpoint: None,
        per: "",
        ordinary: limit(400, 400),
        plans: &[],
    },
];

impl Tier {
    fn limit_of(&self, merchant: &Merchant) -> Limit {
        let of_plan = |(plan, _): &&(&str, Limit)| merchant.plan == Some(*plan);
        (self.plans.iter().find(of_plan)).map_or(self.ordinary, |(_, limit)| *limit)
    }
}

/// The rules, as the configuration has them.
#[must_use]
pub fn rules() -> String {
    let mut yaml = "rules:\n".to_owned();
    for tier in TIERS {
        let plans = tier.plans.iter().map(|(plan, limit)| (Some(*plan), *limit));
        for (plan, Limit { burst, rate }) in plans.chain([(None, tier.ordinary)]) {
            let plan = plan.map_or(String::new(), |plan| format!(", plan: {plan}"));
            let matches = tier
                .matches
                .map_or(String::new(), |text| format!(", match: {{ {text} }}"));
            let (id, per) = (tier.id, tier.per);
            // Writing to a string cannot fail.
            let _ = writeln!(
                yaml,
                "  - {{ id: {id}{plan}{matches}, per: [{per}], limit: \"{rate}/s burst {burst}\" }}"
            );
        }
    }
    yaml
}

/// What the referee found of one tier and whoever it counts.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The tier's id.
    pub tier: &'static str,
    /// The merchant; nobody where all count together.
    pub merchant: Option<&'static str>,
    /// Its figures.
    pub limit: Limit,
    /// All that was admitted.
    pub admitted: u64,
    /// The interval that went furthest beyond the limit alone.
    pub excess: Excess,
    /// How far beyond the limit that interval may go, by docs/guarantees.md.
    pub bound: u64,
    /// How far the worst interval went beyond what docs/guarantees.md allows: this must be nothing.
    pub beyond_bound: Excess,
}

impl Finding {
    /// How much of what is allowed was used; more than 1 is too much.
    #[must_use]
    pub fn use_of_bound(&self) -> f64 {
        let float = |n: u64| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        float(self.excess.tokens) / float(self.bound.max(1)) + float(self.beyond_bound.tokens)
    }
}

/// Asks the referee about every tier of every merchant that was admitted at all.
#[must_use]
pub fn judge(admissions: &[Admission]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for tier in TIERS {
        if tier.per.is_empty() {
            findings.extend(finding(&tier, None, admissions));
            continue;
        }
        for merchant in &MERCHANTS {
            findings.extend(finding(&tier, Some(merchant), admissions));
        }
    }
    findings
}

fn finding(
    tier: &Tier,
    merchant: Option<&'static Merchant>,
    admissions: &[Admission],
) -> Option<Finding> {
    let counts = |admission: &&Admission| {
        merchant.is_none_or(|merchant| merchant.id == admission.merchant)
            && tier
                .endpoint
                .is_none_or(|endpoint| endpoint == admission.endpoint)
    };
    let log = Log::new(
        admissions
            .iter()
            .filter(counts)
            .map(|admission| (admission.at_us, 1)),
    );
    if log.admitted() == 0 {
        return None;
    }
    let limit = merchant.map_or(tier.ordinary, |merchant| tier.limit_of(merchant));
    let excess = log.excess(Bound::Bucket {
        burst: limit.burst,
        count: limit.rate,
        period_us: SECOND_US,
    });
    // In tenths, as 1.8 is no whole number: 1.8 × burst + burst, and 1.8 × rate.
    let beyond_bound = log.excess(Bound::Bucket {
        burst: (limit.burst * 28).div_ceil(10),
        count: limit.rate * 18,
        period_us: SECOND_US * 10,
    });
    let length_us = excess.to_us - excess.from_us;
    let of_limit = limit.burst + (limit.rate * length_us) / SECOND_US;
    Some(Finding {
        tier: tier.id,
        merchant: merchant.map(|merchant| merchant.id),
        limit,
        admitted: log.admitted(),
        excess,
        bound: of_limit * 8 / 10 + limit.burst,
        beyond_bound,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merchants::SANDBOX;

    fn charges_of_the_sandbox(count: u64) -> Vec<Finding> {
        let admission = |_| Admission {
            merchant: SANDBOX,
            endpoint: Endpoint::Charge,
            at_us: 5,
        };
        judge(&(0..count).map(admission).collect::<Vec<_>>())
    }

    #[test]
    fn what_an_outage_may_add_is_no_fault_and_one_more_is() {
        // Charges of a sandbox: 16 at once; 12 of the gateways' own and 16 of a Redis that forgot are allowed on top, rounded up.
        let of_charges = |count| {
            let findings = charges_of_the_sandbox(count);
            findings
                .into_iter()
                .find(|finding| finding.tier == "charges")
                .unwrap()
        };
        assert_eq!(of_charges(16).excess.tokens, 0);
        assert_eq!(
            (
                of_charges(45).excess.tokens,
                of_charges(45).beyond_bound.tokens
            ),
            (29, 0)
        );
        assert_eq!(of_charges(46).beyond_bound.tokens, 1);
        assert!(of_charges(46).use_of_bound() > 1.0);
    }
}
