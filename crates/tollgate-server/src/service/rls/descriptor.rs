//! A descriptor as a request that rules can be matched against.

use std::time::Duration;

use tollgate::{Limit, Met, Rate, Request, Rule};
use tollgate_tower::identity::parse_address;
use tollgate_tower::policy::Policy;

use super::generated::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::generated::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use super::generated::envoy::r#type::v3::RateLimitUnit;
use crate::facts::Facts;

/// Why a descriptor cannot be counted.
pub(super) enum Odd {
    /// Envoy's configuration is at fault.
    Setup(String),
    /// The call itself is, and whoever made it must not pass by that.
    Call(String),
}

/// What one descriptor says.
pub(super) struct Descriptor<'a> {
    pub(super) facts: Facts<'a>,
    /// What it wants in place of the rules' limits.
    limit: Option<Limit>,
}

impl<'a> Descriptor<'a> {
    /// Reads the entries: those that have a meaning of their own, and attributes.
    pub(super) fn read(
        said: &'a RateLimitDescriptor,
        hits: u32,
        policy: &'a Policy,
    ) -> Result<Self, Odd> {
        let mut facts = Facts {
            // A request that says no hits says 0, which is no wish to look.
            cost: said.hits_addend.or((hits > 0).then_some(u64::from(hits))),
            ..Facts::default()
        };
        if said.entries.is_empty() {
            return Err(Odd::Setup("a descriptor has no entries".to_owned()));
        }
        for entry in &said.entries {
            add(&mut facts, &entry.key, &entry.value, policy)?;
        }
        facts.complete(policy);
        Ok(Self { facts, limit: None })
    }

    /// Takes the limit that it brings.
    pub(super) fn override_by(&mut self, said: &RateLimitOverride) -> Result<(), Odd> {
        self.limit = Some(limit(said)?);
        Ok(())
    }

    /// The rules that count by what it says. Others are for other descriptors: what it does not say is not a value of its own, as it
    /// would be for a whole request, or all descriptors without a client would share a bucket.
    pub(super) fn meet<'m>(&'m self, policy: &'m Policy, request: &'m Request<'_>) -> Met<'m> {
        let counts = |rule: &Rule| {
            let mut dimensions = rule.dimensions().iter();
            dimensions.all(|dimension| self.facts.says(*dimension))
        };
        let met = policy.rules().meet(request).only(counts);
        match self.limit {
            Some(limit) => met.with_limit(limit),
            None => met,
        }
    }
}

/// Of what is said twice, the first counts.
fn add<'a>(
    facts: &mut Facts<'a>,
    key: &str,
    value: &'a str,
    policy: &'a Policy,
) -> Result<(), Odd> {
    if key.is_empty() {
        return Err(Odd::Setup("an entry has no key".to_owned()));
    }
    match key {
        "client" => _ = facts.client.get_or_insert(value.into()),
        "plan" => _ = facts.plan.get_or_insert(value.into()),
        "method" => _ = facts.method.get_or_insert(value),
        "host" | "authority" => _ = facts.host.get_or_insert(value),
        "route" => _ = facts.route.get_or_insert(value),
        "ip" | "remote_address" => {
            let ip =
                parse_address(value).map_err(|_| Odd::Call(format!("{key} is not an address")))?;
            facts.ip.get_or_insert(ip);
        }
        "path" if facts.path.is_none() => {
            let refused = |error| Odd::Call(format!("path: {error}"));
            facts.set_path(policy, value).map_err(refused)?;
        }
        "path" => {}
        other => _ = facts.add_attribute(policy, other, value),
    }
    Ok(())
}

/// So many in a unit of time, all at once or spread over it.
fn limit(said: &RateLimitOverride) -> Result<Limit, Odd> {
    const DAY: u64 = 24 * 3_600;
    let seconds = match said.unit() {
        RateLimitUnit::Second => 1,
        RateLimitUnit::Minute => 60,
        RateLimitUnit::Hour => 3_600,
        RateLimitUnit::Day => DAY,
        RateLimitUnit::Month => 30 * DAY,
        RateLimitUnit::Year => 365 * DAY,
        RateLimitUnit::Unknown => return Err(Odd::Setup("a limit has no unit".to_owned())),
    };
    let count = u64::from(said.requests_per_unit);
    let rate = Rate::new(count, Duration::from_secs(seconds));
    let limit = rate.and_then(|rate| Limit::token_bucket(rate, count));
    limit.map_err(|error| Odd::Setup(format!("a limit cannot be: {error}")))
}
