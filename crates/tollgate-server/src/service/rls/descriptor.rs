//! A descriptor as a request that rules can be matched against.

use std::fmt;
use std::time::Duration;

use tollgate::{Limit, LimitError, MatchedRules, Rate, Request, Rule};
use tollgate_tower::identity::parse_address;
use tollgate_tower::policy::Policy;

use super::generated::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::generated::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use super::generated::envoy::r#type::v3::RateLimitUnit;
use super::refusal::Refusal;
use tollgate_tower::policy::RequestAttributes;

/// What one descriptor says.
pub(super) struct Descriptor<'a> {
    pub(super) facts: RequestAttributes<'a>,
    /// What it wants in place of the rules' limits.
    limit: Option<Limit>,
}

impl<'a> Descriptor<'a> {
    /// Reads the entries: those that have a meaning of their own, and attributes.
    pub(super) fn read(
        said: &'a RateLimitDescriptor,
        hits: u32,
        policy: &'a Policy,
    ) -> Result<Self, Refusal> {
        let mut facts = RequestAttributes::new();
        // A call without hits has 0, which is no wish to look.
        facts.cost = said.hits_addend.or((hits > 0).then_some(u64::from(hits)));
        if said.entries.is_empty() {
            return Err(Refusal::NoEntries);
        }
        for entry in &said.entries {
            add(&mut facts, &entry.key, &entry.value, policy)?;
        }
        facts.complete(policy);
        Ok(Self { facts, limit: None })
    }

    /// Takes the limit that it brings. One that cannot be is left out, and the rules' own counts: why.
    pub(super) fn override_by(
        &mut self,
        said: &RateLimitOverride,
    ) -> Result<Option<Unusable>, Refusal> {
        if said.requests_per_unit == 0 && said.unit() != RateLimitUnit::Unknown {
            return Err(Refusal::Blocked);
        }
        match limit(said) {
            Ok(limit) => {
                self.limit = Some(limit);
                Ok(None)
            }
            Err(unusable) => Ok(Some(unusable)),
        }
    }

    /// The rules that count by what it says. Others are for other descriptors: what it does not say is not a value of its own, as it
    /// would be for a whole request, or all descriptors without a client would share a bucket.
    pub(super) fn meet<'m>(
        &'m self,
        policy: &'m Policy,
        request: &'m Request<'_>,
    ) -> MatchedRules<'m> {
        let counts = |rule: &Rule| {
            let mut dimensions = rule.dimensions().iter();
            dimensions.all(|dimension| self.facts.says(*dimension))
        };
        let met = policy.rules().matching(request).only(counts);
        match self.limit {
            Some(limit) => met.with_limit(limit),
            None => met,
        }
    }
}

/// Of a key that is there twice, the first counts.
fn add<'a>(
    facts: &mut RequestAttributes<'a>,
    key: &[u8],
    value: &'a [u8],
    policy: &'a Policy,
) -> Result<(), Refusal> {
    match key {
        b"" => return Err(Refusal::NoKey),
        b"client" => {
            let client = text("client", value)?;
            facts.client.get_or_insert(client.into());
        }
        b"plan" => {
            let plan = text("plan", value)?;
            facts.plan.get_or_insert(plan.into());
        }
        b"method" => {
            let method = text("method", value)?;
            http::Method::from_bytes(value).map_err(|_| Refusal::Method)?;
            facts.method.get_or_insert(method);
        }
        b"host" | b"authority" => {
            let host = text("host", value)?;
            if facts.host.is_none() {
                facts.set_host(host).map_err(Refusal::Host)?;
            }
        }
        b"route" => {
            let route = text("route", value)?;
            facts.route.get_or_insert(route.into());
        }
        b"ip" => add_address(facts, "ip", value)?,
        b"remote_address" => add_address(facts, "remote_address", value)?,
        b"path" if facts.path.is_none() => {
            let path = text("path", value)?;
            facts.set_path(policy, path).map_err(Refusal::Path)?;
        }
        b"path" => {}
        // Rules name attributes in UTF-8, so no other key is one of theirs.
        other => {
            if let Ok(name) = std::str::from_utf8(other) {
                // What is no text becomes text, as for a header at the gateway.
                let value = String::from_utf8_lossy(value);
                (facts.add_attribute(policy, name, value)).map_err(Refusal::Header)?;
            }
        }
    }
    Ok(())
}

fn add_address(
    facts: &mut RequestAttributes<'_>,
    key: &'static str,
    value: &[u8],
) -> Result<(), Refusal> {
    let ip = parse_address(text(key, value)?).map_err(|_| Refusal::Address(key))?;
    facts.ip.get_or_insert(ip);
    Ok(())
}

/// The value of an entry that rules mean by its key. What is no text would be another client, or no host and path that a rule names, so
/// such a request is refused, as the gateway refuses it.
fn text<'a>(key: &'static str, value: &'a [u8]) -> Result<&'a str, Refusal> {
    std::str::from_utf8(value).map_err(|_| Refusal::NotText(key))
}

/// Why a limit cannot take the place of the rules'.
pub(super) enum Unusable {
    NoUnit,
    Limit(LimitError),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoUnit => f.write_str("the limit has no unit"),
            Self::Limit(error) => error.fmt(f),
        }
    }
}

/// So many in a unit of time, all at once or spread over it.
fn limit(said: &RateLimitOverride) -> Result<Limit, Unusable> {
    const DAY: u64 = 24 * 3_600;
    let seconds = match said.unit() {
        RateLimitUnit::Second => 1,
        RateLimitUnit::Minute => 60,
        RateLimitUnit::Hour => 3_600,
        RateLimitUnit::Day => DAY,
        RateLimitUnit::Month => 30 * DAY,
        RateLimitUnit::Year => 365 * DAY,
        RateLimitUnit::Unknown => return Err(Unusable::NoUnit),
    };
    let count = u64::from(said.requests_per_unit);
    let rate = Rate::new(count, Duration::from_secs(seconds));
    let limit = rate.and_then(|rate| Limit::token_bucket(rate, count));
    limit.map_err(Unusable::Limit)
}
