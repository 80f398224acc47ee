//! Several servers behind one path: who gets what, and who gets nothing for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tollgate_server::config::{HealthCheck, Upstream};

use crate::proxy_setting::{Front, Server, nobody, reply, status, until};

const HEALTHY: &str = "tollgate_upstream_servers_healthy{upstream=\"/\"}";

fn upstream(servers: &[&Server]) -> Upstream {
    let address = |server: &&Server| format!("http://{}", server.address);
    Upstream::new("/", servers.iter().map(address))
}

#[tokio::test]
async fn requests_are_spread_and_whoever_is_slow_gets_fewer() {
    let (one, two, three) = (
        Server::named("one").await,
        Server::named("two").await,
        Server::named("three").await,
    );
    let front = Front::of(&[upstream(&[&one, &two, &three])]).await;
    for _ in 0..300 {
        assert_eq!(status(&front.get("/").await), 200);
    }
    for server in [&one, &two, &three] {
        let count = server.requests();
        assert!((50..=150).contains(&count), "{count}");
    }

    let quick = Server::named("quick").await;
    let slow = Server::answering(|_| async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        reply(200, "slow")
    })
    .await;
    let front = Front::of(&[upstream(&[&quick, &slow])]).await;
    for batch in 0..10 {
        let paths = ["/"; 4];
        if batch == 0 {
            front.get_all(&paths).await;
        }
        let _ = front.get_all(&paths).await;
    }
    assert!(
        quick.requests() > 2 * slow.requests(),
        "{} {}",
        quick.requests(),
        slow.requests()
    );
}

#[tokio::test]
async fn a_server_that_is_gone_is_set_aside_and_comes_back() {
    let address = nobody().await;
    let one = Server::named("one").await;
    let mut to = upstream(&[&one]);
    to.to.push(format!("http://{address}"));
    to.set_aside = Duration::from_millis(100);
    let front = Front::of(&[to]).await;
    for _ in 0..50 {
        assert_eq!(status(&front.get("/").await), 200);
    }
    assert_eq!(front.metric(HEALTHY), Some(1.0));
    let back = Server::at(address, |_| async { reply(200, "back") }).await;
    until("it is back", async || {
        assert_eq!(status(&front.get("/").await), 200);
        front.metric(HEALTHY) == Some(2.0)
    })
    .await;
    let before = back.requests();
    for _ in 0..50 {
        front.get("/").await;
    }
    assert!(back.requests() > before + 10);
}

#[tokio::test]
async fn a_server_that_says_it_cannot_is_set_aside_and_tried_with_one_request_at_a_time() {
    let ill = Server::answering(|_| async { reply(503, "ill") }).await;
    let well = Server::named("well").await;
    let mut to = upstream(&[&ill, &well]);
    to.set_aside = Duration::from_secs(30);
    let front = Front::of(&[to]).await;
    let mut seen = Vec::new();
    for _ in 0..100 {
        seen.push(status(&front.get("/").await));
    }
    // What the server says is passed on and not sent again.
    assert_eq!(seen.iter().filter(|status| **status == 503).count(), 3);
    assert_eq!(ill.requests(), 3);
    assert_eq!(front.metric(HEALTHY), Some(1.0));
}

#[tokio::test]
async fn if_all_are_set_aside_they_are_asked_all_the_same() {
    let is_ill = Arc::new(AtomicBool::new(true));
    let seen_by = Arc::clone(&is_ill);
    let answer = move |_| {
        let status = if seen_by.load(Ordering::SeqCst) {
            503
        } else {
            200
        };
        async move { reply(status, "") }
    };
    let (one, two) = (
        Server::answering(answer.clone()).await,
        Server::answering(answer).await,
    );
    let mut to = upstream(&[&one, &two]);
    to.set_aside = Duration::from_secs(30);
    let front = Front::of(&[to]).await;
    for _ in 0..10 {
        assert_eq!(status(&front.get("/").await), 503);
    }
    assert_eq!(front.metric(HEALTHY), Some(0.0));
    is_ill.store(false, Ordering::SeqCst);
    assert_eq!(status(&front.get("/").await), 200);
    assert_eq!(front.metric(HEALTHY), Some(1.0));
}

#[tokio::test]
async fn the_only_server_is_never_set_aside() {
    let ill = Server::answering(|_| async { reply(503, "") }).await;
    let front = Front::of(&[upstream(&[&ill])]).await;
    for _ in 0..20 {
        front.get("/").await;
    }
    assert_eq!(ill.requests(), 20);
    assert_eq!(front.metric(HEALTHY), Some(1.0));
}

#[tokio::test]
async fn a_server_that_fails_its_checks_gets_no_requests_until_it_passes_one() {
    let is_ill = Arc::new(AtomicBool::new(true));
    let (asked, seen_by) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&is_ill));
    let counted = Arc::clone(&asked);
    let one = Server::answering(move |request| {
        let is_check = request.uri().path() == "/healthz";
        let status = match is_check && seen_by.load(Ordering::SeqCst) {
            true => 500,
            false => 200,
        };
        counted.fetch_add(usize::from(!is_check), Ordering::SeqCst);
        async move { reply(status, "") }
    })
    .await;
    let mut to = upstream(&[&one]);
    to.failures = 2;
    to.health = Some(HealthCheck {
        path: "/healthz".to_owned(),
        every: Duration::from_millis(50),
        timeout: Duration::from_secs(5),
    });
    let front = Front::of(&[to]).await;
    front.proxy.watch(front.stop());
    until("it is given up", async || {
        front.metric(HEALTHY) == Some(0.0)
    })
    .await;
    let response = front.get("/").await;
    assert_eq!(status(&response), 503);
    assert!(
        response.contains("no server for this path is well"),
        "{response}"
    );
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    is_ill.store(false, Ordering::SeqCst);
    until("it is back", async || front.metric(HEALTHY) == Some(1.0)).await;
    assert_eq!(status(&front.get("/").await), 200);
}
