//! Who may look: the token, and how often somebody may be wrong about it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use http::HeaderMap;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tollgate::{Limit, LocalLimiter};

use crate::bearer::{Bearer, may_be_sent_by_a_page};
use crate::config::Secret;

/// So many wrong tokens from one address, and then one a second.
const WRONG_TOKENS: &str = "1/s burst 20";
/// Not more often than this is it logged that tokens are wrong.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Lets in who has the token; if there is none, everybody but pages in browsers.
///
/// Of an address that was wrong too often nothing is looked at for a while, the right token included: otherwise it could go on guessing.
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
    /// There was no token, or a wrong one.
    Token,
    /// There is none to have, and a page in a browser may ask.
    SentByAPage,
    /// There were too many wrong ones.
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
        let address = peer.map_or_else(String::new, network);
        self.check(&address, 0)?;
        if token.opens(headers) {
            return Ok(());
        }
        self.refused.inc();
        self.log(&address);
        self.check(&address, 1)?;
        Err(Refusal::Token)
    }

    /// How many were not let in, to be shown among what is counted.
    pub(super) fn count_in(&self, registry: &mut Registry) {
        let about = "Requests to the admin interface without the right token";
        registry.register("tollgate_admin_refused", about, self.refused.clone());
    }

    /// Whether this address may be wrong once more; takes that if there is a cost.
    fn check(&self, address: &str, cost: u64) -> Result<(), Refusal> {
        let Some(limit) = &self.limit else {
            return Ok(());
        };
        let decision = self.wrong.check(address, limit, cost);
        let is_over = !decision.allowed() || cost == 0 && decision.remaining() == Some(0);
        if !is_over {
            return Ok(());
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
            tracing::warn!(
                address,
                refused,
                "the admin interface was asked without the right token"
            );
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
        Guard::new(Some(&Secret::new("correct-horse-battery".to_owned(), true)))
    }

    #[test]
    fn guesses_are_bounded_by_address_and_nobody_else_is_kept_out() {
        let (guard, peer) = (guard(), Some("2001:db8::1".parse().unwrap()));
        let wrong = headers("Bearer wrong-horse-battery");
        let tries: Vec<_> = (0..50).map(|_| guard.admit(peer, &wrong)).collect();
        let looked_at = tries
            .iter()
            .filter(|refusal| **refusal == Err(Refusal::Token))
            .count();
        // Some more if this test takes seconds.
        assert!((20..30).contains(&looked_at), "{looked_at}");
        let right = headers("Bearer correct-horse-battery");
        let neighbour = Some("2001:db8::ffff:1".parse().unwrap());
        assert!(matches!(
            guard.admit(neighbour, &right),
            Err(Refusal::TooMany { .. })
        ));
        assert_eq!(guard.admit(Some([203, 0, 113, 7].into()), &right), Ok(()));
    }

    #[test]
    fn without_a_token_everybody_on_this_machine_may_look() {
        assert_eq!(Guard::new(None).admit(None, &HeaderMap::new()), Ok(()));
    }
}
