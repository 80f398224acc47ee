//! A descriptor as a request that rules can be matched against.

use std::time::Duration;

use tollgate::{Limit, MatchedRules, Rate, Request, Rule};
use tollgate_tower::identity::parse_address;
use tollgate_tower::policy::{Policy, RequestAttributes};

use super::generated::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::generated::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use super::generated::envoy::r#type::v3::RateLimitUnit;
use super::refusal::CallRefusal;

pub(super) struct Descriptor<'a> {
    pub(super) attributes: RequestAttributes<'a>,
    /// Replaces the limits of the rules.
    limit: Option<Limit>,
}

impl<'a> Descriptor<'a> {
    /// Reads the entries: those with a meaning of their own, and attributes.
    pub(super) fn read(
        descriptor: &'a RateLimitDescriptor,
        hits: u32,
        policy: &'a Policy,
    ) -> Result<Self, CallRefusal> {
        let mut attributes = RequestAttributes::new();
        // 0 means that the call names no hits.
        let hits = (hits > 0).then_some(u64::from(hits));
        attributes.cost = descriptor.hits_addend.or(hits);
        if descriptor.entries.is_empty() {
            return Err(CallRefusal::NoEntries);
        }
        for entry in &descriptor.entries {
            add(&mut attributes, &entry.key, &entry.value, policy)?;
        }
        attributes.complete(policy);
        let limit = None;
        Ok(Self { attributes, limit })
    }

    /// Takes over the limit of a descriptor. Returns why, if it cannot be used; then the limits of the rules stay.
    pub(super) fn override_by(
        &mut self,
        limit: &RateLimitOverride,
    ) -> Result<Option<String>, CallRefusal> {
        if limit.requests_per_unit == 0 && limit.unit() != RateLimitUnit::Unknown {
            return Err(CallRefusal::Blocked);
        }
        let limit = read_limit(limit);
        self.limit = limit.as_ref().ok().copied();
        Ok(limit.err())
    }

    /// The rules that count by attributes of this descriptor. Others are for other descriptors: a missing attribute is not a value, as in
    /// a request, because all descriptors without a client would share a bucket.
    pub(super) fn meet<'m>(
        &'m self,
        policy: &'m Policy,
        request: &'m Request<'_>,
    ) -> MatchedRules<'m> {
        let counts = |rule: &Rule| {
            let mut dimensions = rule.dimensions().iter();
            dimensions.all(|dimension| self.attributes.says(*dimension))
        };
        let met = policy.rules().matching(request).only(counts);
        match self.limit {
            Some(limit) => met.with_limit(limit),
            None => met,
        }
    }
}

/// Adds an entry. Of several with the same key, the first counts.
fn add<'a>(
    attributes: &mut RequestAttributes<'a>,
    key: &[u8],
    value: &'a [u8],
    policy: &'a Policy,
) -> Result<(), CallRefusal> {
    match key {
        b"" => return Err(CallRefusal::NoKey),
        b"client" if attributes.client.is_none() => {
            let set = attributes.set_client(text("client", value)?);
            set.map_err(|outcome| CallRefusal::Identity("client", outcome))?;
        }
        b"plan" if attributes.plan.is_none() => {
            let set = attributes.set_plan(text("plan", value)?);
            set.map_err(|outcome| CallRefusal::Identity("plan", outcome))?;
        }
        b"method" => {
            let method = text("method", value)?;
            http::Method::from_bytes(method.as_bytes()).map_err(|_| CallRefusal::Method)?;
            attributes.method.get_or_insert(method);
        }
        b"host" | b"authority" => {
            let host = text("host", value)?;
            if attributes.host.is_none() {
                attributes.set_host(host).map_err(CallRefusal::Host)?;
            }
        }
        b"route" => {
            let route = text("route", value)?;
            attributes.route.get_or_insert(route.into());
        }
        b"ip" => add_address(attributes, "ip", value)?,
        b"remote_address" => add_address(attributes, "remote_address", value)?,
        b"path" if attributes.path.is_none() => {
            let path = text("path", value)?;
            attributes
                .set_path(policy, path)
                .map_err(CallRefusal::Path)?;
        }
        b"client" | b"plan" | b"path" => {}
        // Rules name attributes in UTF-8, so no rule looks at other keys.
        other => {
            if let Ok(name) = std::str::from_utf8(other) {
                // Invalid UTF-8 is replaced, as in a header at the gateway.
                let value = String::from_utf8_lossy(value);
                (attributes.add_attribute(policy, name, value)).map_err(CallRefusal::Header)?;
            }
        }
    }
    Ok(())
}

fn add_address(
    attributes: &mut RequestAttributes<'_>,
    key: &'static str,
    value: &[u8],
) -> Result<(), CallRefusal> {
    let ip = parse_address(text(key, value)?).map_err(|_| CallRefusal::Address(key))?;
    attributes.ip.get_or_insert(ip);
    Ok(())
}

/// The value of an entry with a meaning of its own. Replacing invalid UTF-8 would make another client, host or path of it, so such a request is
/// refused, as at the gateway. Spaces and tabs around it, which HTTP/2 carries, are removed.
fn text<'a>(key: &'static str, value: &'a [u8]) -> Result<&'a str, CallRefusal> {
    let text = std::str::from_utf8(value).map_err(|_| CallRefusal::NotText(key))?;
    Ok(text.trim_matches([' ', '\t']))
}

/// A limit of this many requests in a unit of time, all at once or spread over it.
fn read_limit(limit: &RateLimitOverride) -> Result<Limit, String> {
    const DAY: u64 = 24 * 3_600;
    let seconds = match limit.unit() {
        RateLimitUnit::Second => 1,
        RateLimitUnit::Minute => 60,
        RateLimitUnit::Hour => 3_600,
        RateLimitUnit::Day => DAY,
        RateLimitUnit::Month => 30 * DAY,
        RateLimitUnit::Year => 365 * DAY,
        RateLimitUnit::Unknown => return Err("the limit has no unit".to_owned()),
    };
    let count = u64::from(limit.requests_per_unit);
    let rate = Rate::new(count, Duration::from_secs(seconds));
    let limit = rate.and_then(|rate| Limit::token_bucket(rate, count));
    limit.map_err(|error| error.to_string())
}
