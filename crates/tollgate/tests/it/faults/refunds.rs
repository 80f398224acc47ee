//! Refunds over a wire that swallows replies: they reach the server, and their callers wait.

use std::pin::pin;
use std::time::Duration;

use tollgate::store::{RedisConfig, RedisStore};
use tollgate::{Limiter, Request, Rule, Source};

use super::scene::runtime;
use crate::proxy::{Proxy, Wire};
use crate::server::Server;
use crate::support::{limit, one_instance};

/// Long enough that no refund could wait for the one before it.
const DEADLINE: Duration = Duration::from_secs(60);

fn tiers() -> [Rule; 3] {
    ["one", "two", "three"].map(|id| Rule::new(id, limit("6/h burst 10")).unwrap())
}

fn limiter(url: &str) -> Limiter {
    let store = RedisStore::open(url, RedisConfig::default().deadline(DEADLINE)).unwrap();
    let limiter = Limiter::builder(store).shared(one_instance()).build();
    limiter.with_rules(tiers()).unwrap()
}

/// Polled once and dropped, as by a caller that does not wait at all.
#[test]
fn refund_of_all_tiers_goes_on_without_its_caller() {
    let server = Server::start();
    runtime().block_on(async {
        let wire = Proxy::before(server.socket()).await;
        let (stuck, other) = (limiter(&wire.url()), limiter(&server.url()));
        let request = Request::new();
        // The server knows the scripts from now on.
        let first = stuck.request(&request).decide().await;
        stuck.request(&request).refund(first).await;
        let decision = stuck.request(&request).decide().await;
        assert_eq!(
            (decision.source(), decision.remaining()),
            (Source::Store, Some(9))
        );
        wire.becomes(Wire::SwallowsReplies);
        {
            let mut refund = pin!(stuck.request(&request).refund(decision));
            let is_done = std::future::poll_fn(|context| {
                std::task::Poll::Ready(refund.as_mut().poll(context).is_ready())
            });
            assert!(!is_done.await, "there was no reply");
        }
        let left = async || {
            let seen = other.request(&request).peek().await;
            let left: Vec<u64> = seen.tiers().iter().map(tollgate::Tier::remaining).collect();
            left
        };
        let all_refunded = async {
            while left().await != [10; 3] {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // A refund that waits for the reply to another would be made after the deadline.
        let refunded = tokio::time::timeout(DEADLINE / 3, all_refunded).await;
        assert!(refunded.is_ok(), "left {:?}", left().await);
    });
}
