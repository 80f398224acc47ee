//! The token of the admin interface, and how many wrong ones an address may send.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use http::HeaderMap;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tollgate::{Limit, LocalLimiter};

use crate::bearer::{Bearer, Presented, may_be_sent_by_a_page};
use tollgate_config::Secret;

/// So many wrong tokens from one address, and then one a second.
const WRONG_TOKENS: &str = "1/s burst 20";
/// Not more often than this is it logged that tokens are wrong.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Admits requests with the token; if none is configured, all but those that a page in a browser may have sent.
///
/// The right token always passes, so nobody can lock the operators out. Wrong ones are limited by address, which keeps the log
/// short and tells a misconfigured scraper to slow down; it is the token's length that makes guessing futile. Requests without a token say
/// nothing about it and do not count.
#[derive(Debug)]
pub(super) struct Guard {
    token: Option<Bearer>,
    wrong: LocalLimiter,
    limit: Option<Limit>,
    refused: Counter,
    logged: Mutex<Option<Instant>>,
}

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No token, or a wrong one.
    Token,
    /// There is none to have, and a page in a browser may ask.
    SentByAPage,
    /// A wrong token after too many wrong ones.
    TooMany {
        /// When to come back.
        seconds: u64,
    },
}

impl Guard {
    pub(super) fn new(token: Option<&Secret>) -> Self {
        Self {
            token: token.map(Bearer::of),
            wrong: LocalLimiter::new(),
            limit: WRONG_TOKENS.parse().ok(),
            refused: Counter::default(),
            logged: Mutex::new(None),
        }
    }

    pub(super) fn admit(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(token) = &self.token else {
            return match may_be_sent_by_a_page(headers) {
                true => Err(Refusal::SentByAPage),
                false => Ok(()),
            };
        };
        match token.compare(headers) {
            Presented::Right => Ok(()),
            Presented::None => {
                self.refused.inc();
                Err(Refusal::Token)
            }
            Presented::Wrong => {
                self.refused.inc();
                let address = peer.map_or_else(String::new, network);
                self.log(&address);
                self.charge(&address)
            }
        }
    }

    /// How many were not let in, to be shown among what is counted.
    pub(super) fn count_in(&self, registry: &mut Registry) {
        let about = "Requests to the admin interface without the right token";
        registry.register("tollgate_admin_refused", about, self.refused.clone());
    }

    /// Charges this address for a wrong token. Never `Ok`.
    fn charge(&self, address: &str) -> Result<(), Refusal> {
        let Some(limit) = &self.limit else {
            return Err(Refusal::Token);
        };
        let decision = self.wrong.check(address, limit, 1);
        if decision.allowed() {
            return Err(Refusal::Token);
        }
        let wait = decision.retry_after().unwrap_or(Duration::from_secs(1));
        Err(Refusal::TooMany {
            seconds: wait.as_secs().max(1),
        })
    }

    fn log(&self, address: &str) {
        let mut logged = self.logged.lock();
        if logged.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            *logged = Some(Instant::now());
            let refused = self.refused.get();
            tracing::warn!(address, refused, "wrong token for the admin interface");
        }
    }
}

/// Whoever has one address of a network in IPv6 has all of it.
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

    #[test]
    fn wrong_tokens_are_limited_by_address_and_the_right_one_passes() {
        let (guard, peer) = (guard(), Some("2001:db8::1".parse().unwrap()));
        let wrong = headers("Bearer wrong-horse-battery");
        let tries: Vec<_> = (0..50).map(|_| guard.admit(peer, &wrong)).collect();
        let within_limit = tries
            .iter()
            .filter(|refusal| **refusal == Err(Refusal::Token))
            .count();
        // Some more if this test takes seconds.
        assert!((20..30).contains(&within_limit), "{within_limit}");
        let neighbour = Some("2001:db8::ffff:1".parse().unwrap());
        assert!(matches!(
            guard.admit(neighbour, &wrong),
            Err(Refusal::TooMany { .. })
        ));
        let elsewhere = Some([203, 0, 113, 7].into());
        assert_eq!(guard.admit(elsewhere, &wrong), Err(Refusal::Token));
        let right = headers("Bearer correct-horse-battery");
        for address in [peer, neighbour, elsewhere] {
            assert_eq!(guard.admit(address, &right), Ok(()));
        }
    }

    #[test]
    fn requests_without_a_token_do_not_count() {
        let (guard, peer) = (guard(), Some([192, 0, 2, 1].into()));
        for none in [HeaderMap::new(), headers("Basic b3BzOm9wcw==")] {
            for _ in 0..100 {
                assert_eq!(guard.admit(peer, &none), Err(Refusal::Token));
            }
        }
        let wrong = headers("Bearer wrong-horse-battery");
        assert_eq!(guard.admit(peer, &wrong), Err(Refusal::Token));
    }

    #[test]
    fn without_a_token_everybody_on_this_machine_may_look() {
        assert_eq!(Guard::new(None).admit(None, &HeaderMap::new()), Ok(()));
    }
}
