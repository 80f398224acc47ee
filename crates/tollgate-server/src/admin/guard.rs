//! The guard of the admin interface: its token, and a limit on wrong ones.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::IntoResponse as _;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Response, StatusCode};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tollgate::{Limit, LocalLimiter};
use tollgate_config::Secret;

use crate::access::{Access, AccessError};
use crate::problem::Problem;

/// How many wrong tokens an address may send.
const WRONG_TOKENS: &str = "1/s burst 20";
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Admits requests with access.
///
/// The right token always passes, so operators cannot be locked out. Wrong ones are limited by address, which keeps the log
/// short and slows a misconfigured scraper down; guessing is futile because of the token's length. Requests without a token do not count.
#[derive(Debug)]
pub(super) struct Guard {
    access: Access,
    wrong: LocalLimiter,
    limit: Option<Limit>,
    refused: Counter,
    logged: Mutex<Option<Instant>>,
}

impl Guard {
    pub(super) fn new(token: Option<&Secret>) -> Self {
        Self {
            access: Access::new("admin.token", token),
            wrong: LocalLimiter::new(),
            limit: WRONG_TOKENS.parse().ok(),
            refused: Counter::default(),
            logged: Mutex::new(None),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Requests to the admin interface without the right token";
        registry.register("tollgate_admin_refused", help, self.refused.clone());
    }

    /// The response to a request without access.
    pub(super) fn refusal(
        &self,
        peer: Option<IpAddr>,
        headers: &HeaderMap,
    ) -> Option<Response<Body>> {
        let error = self.access.check(headers).err()?;
        if error != AccessError::WebPage {
            self.refused.inc();
        }
        if error == AccessError::WrongToken
            && let Some(seconds) = self.charge(&peer.map_or_else(String::new, network))
        {
            let problem = Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too many wrong tokens from this address",
            );
            return Some(([(RETRY_AFTER, seconds.to_string())], problem).into_response());
        }
        Some(self.access.problem(error).into_response())
    }

    /// Logs and charges a wrong token. Returns when to retry if there were too many.
    fn charge(&self, address: &str) -> Option<u64> {
        let mut logged = self.logged.lock();
        if logged.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            *logged = Some(Instant::now());
            let refused = self.refused.get();
            tracing::warn!(address, refused, "wrong token for the admin interface");
        }
        drop(logged);
        let decision = self.wrong.check(address, self.limit.as_ref()?, 1);
        let wait = decision.retry_after().unwrap_or(Duration::from_secs(1));
        (!decision.allowed()).then(|| wait.as_secs().max(1))
    }
}

/// The network of an address: a client has all addresses of an IPv6 /64.
fn network(ip: IpAddr) -> String {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::AUTHORIZATION;

    use super::*;

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    fn guard() -> Guard {
        Guard::new(Some(&Secret::new("correct-horse-battery")))
    }

    /// The status of the response to a request without access.
    fn status(guard: &Guard, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<u16> {
        let refused = guard.refusal(peer, headers);
        refused.map(|response| response.status().as_u16())
    }

    #[test]
    fn wrong_tokens_are_limited_by_address_and_the_right_one_passes() {
        let (guard, peer) = (guard(), Some("2001:db8::1".parse().unwrap()));
        let wrong = headers("Bearer wrong-horse-battery");
        let within_limit = (0..50)
            .filter(|_| status(&guard, peer, &wrong) == Some(401))
            .count();
        // Some more if this test takes seconds.
        assert!((20..30).contains(&within_limit), "{within_limit}");
        let neighbour = Some("2001:db8::ffff:1".parse().unwrap());
        assert_eq!(status(&guard, neighbour, &wrong), Some(429));
        let elsewhere = Some([203, 0, 113, 7].into());
        assert_eq!(status(&guard, elsewhere, &wrong), Some(401));
        let right = headers("Bearer correct-horse-battery");
        for address in [peer, neighbour, elsewhere] {
            assert_eq!(status(&guard, address, &right), None);
        }
    }

    #[test]
    fn requests_without_a_token_do_not_count() {
        let (guard, peer) = (guard(), Some([192, 0, 2, 1].into()));
        for none in [HeaderMap::new(), headers("Basic b3BzOm9wcw==")] {
            for _ in 0..100 {
                assert_eq!(status(&guard, peer, &none), Some(401));
            }
        }
        let wrong = headers("Bearer wrong-horse-battery");
        assert_eq!(status(&guard, peer, &wrong), Some(401));
    }

    #[test]
    fn without_a_token_local_requests_have_access() {
        assert_eq!(status(&Guard::new(None), None, &HeaderMap::new()), None);
    }
}
