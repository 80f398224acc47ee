//! governor: one keyed limiter for each tier, asked one after the other.

use std::error::Error;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use crate::tier::Tier;

pub(crate) fn limit(app: Router, tiers: &[Tier]) -> Result<Router, Box<dyn Error>> {
    let limiters = tiers
        .iter()
        .map(|tier| Ok((tier.clone(), RateLimiter::keyed(quota(tier)?))))
        .collect::<Result<Vec<(Tier, DefaultKeyedRateLimiter<String>)>, Box<dyn Error>>>()?;
    let limiters = Arc::new(limiters);
    Ok(app.layer(from_fn(move |request: Request, next: Next| {
        let client = crate::client(request.headers()).to_owned();
        let path = request.uri().path();
        let passes = (limiters.iter())
            .filter(|(tier, _)| tier.is_for(path))
            .all(|(_, limiter)| limiter.check_key(&client).is_ok());
        crate::answer(Ok(passes), request, next)
    })))
}

fn quota(tier: &Tier) -> Result<Quota, Box<dyn Error>> {
    let burst = NonZeroU32::new(tier.limit).ok_or("a limit of 0")?;
    let each = Duration::from_secs(tier.seconds.into()) / tier.limit;
    Ok(Quota::with_period(each)
        .ok_or("a period of 0")?
        .allow_burst(burst))
}
