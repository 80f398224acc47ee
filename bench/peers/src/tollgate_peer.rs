//! Tollgate as a library, by its middleware: one rule for each tier; in memory or in Redis.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use tollgate::store::{RedisConfig, RedisStore};
use tollgate::{Dimension, Limiter, Match, Rule};
use tollgate_tower::TollgateLayer;
use tollgate_tower::policy::RequestAttributes;

use crate::tier::Tier;

pub(crate) fn in_memory(app: Router, tiers: &[Tier]) -> Result<Router, Box<dyn Error>> {
    limit(app, Limiter::in_memory(), tiers)
}

pub(crate) fn over_redis(
    app: Router,
    tiers: &[Tier],
    url: &str,
    deadline: Duration,
) -> Result<Router, Box<dyn Error>> {
    let config = RedisConfig::default().deadline(deadline);
    let store = RedisStore::open(url, config)?;
    limit(app, Limiter::new(store), tiers)
}

fn limit(app: Router, limiter: Limiter, tiers: &[Tier]) -> Result<Router, Box<dyn Error>> {
    let rules = tiers.iter().map(rule).collect::<Result<Vec<Rule>, _>>()?;
    let layer = TollgateLayer::new(limiter.with_rules(rules)?)
        .request(|parts| RequestAttributes::new().client(crate::client(&parts.headers)));
    Ok(app.layer(layer))
}

fn rule(tier: &Tier) -> Result<Rule, Box<dyn Error>> {
    let limit = match tier.seconds {
        3600 => format!("{}/h burst {}", tier.limit, tier.limit),
        seconds => format!(
            "{}/s burst {}",
            f64::from(tier.limit) / f64::from(seconds),
            tier.limit
        ),
    };
    let rule = Rule::new(&tier.name, limit.parse()?)?.per([Dimension::Client]);
    Ok(match &tier.path {
        Some(path) => rule.when(Match::new().path(path.parse()?)),
        None => rule,
    })
}
