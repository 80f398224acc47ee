//! Limitador as a library: one limit for each tier, all asked in one call; in memory, in Redis, or in Redis behind its cache.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use limitador::limit::{Context, Limit, Namespace};
use limitador::storage::AsyncCounterStorage;
use limitador::storage::redis::{AsyncRedisStorage, CachedRedisStorage};
use limitador::{AsyncRateLimiter, RateLimiter};

use crate::tier::Tier;

/// As many as Tollgate keeps by default.
const KEYS: u64 = 1_000_000;

pub(crate) fn in_memory(app: Router, tiers: &[Tier]) -> Result<Router, Box<dyn Error>> {
    let limiter = RateLimiter::new(KEYS);
    for tier in tiers {
        limiter.add_limit(limit(tier)?);
    }
    let limiter = Arc::new(limiter);
    Ok(app.layer(from_fn(move |request: Request, next: Next| {
        let checked = limiter.check_rate_limited_and_update(&namespace(), &context(&request), 1);
        crate::answer(checked.map(|is| !is.limited).map_err(drop), request, next)
    })))
}

pub(crate) async fn over_redis(
    app: Router,
    tiers: &[Tier],
    url: &str,
    cached: bool,
) -> Result<Router, Box<dyn Error>> {
    let storage: Box<dyn AsyncCounterStorage> = if cached {
        Box::new(CachedRedisStorage::new(url).await?)
    } else {
        Box::new(AsyncRedisStorage::new(url).await?)
    };
    let limiter = AsyncRateLimiter::new_with_storage(storage);
    for tier in tiers {
        limiter.add_limit(limit(tier)?);
    }
    let limiter = Arc::new(limiter);
    Ok(app.layer(from_fn(move |request: Request, next: Next| {
        let limiter = Arc::clone(&limiter);
        async move {
            let context = context(&request);
            let checked = limiter
                .check_rate_limited_and_update(&namespace(), &context, 1)
                .await;
            crate::answer(checked.map(|is| !is.limited).map_err(drop), request, next).await
        }
    })))
}

fn namespace() -> Namespace {
    "peers".into()
}

fn limit(tier: &Tier) -> Result<Limit, Box<dyn Error>> {
    let conditions = match &tier.path {
        Some(path) => vec![format!("path == '{path}'").try_into()?],
        None => Vec::new(),
    };
    let (limit, seconds) = (tier.limit.into(), tier.seconds.into());
    let mut limit = Limit::new(
        "peers",
        limit,
        seconds,
        conditions,
        vec!["client".try_into()?],
    );
    limit.set_name(tier.name.clone());
    Ok(limit)
}

fn context<'a>(request: &Request) -> Context<'a> {
    let client = crate::client(request.headers()).to_owned();
    let path = request.uri().path().to_owned();
    HashMap::from([("client".to_owned(), client), ("path".to_owned(), path)]).into()
}
