//! Several servers behind one path: which of them gets a request, and which gets none for a while.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tollgate_http::proxy::{HealthCheck, UpstreamConfig};
use tollgate_testing::Upstream;
use tollgate_testing::ports::closed_address;
use tollgate_testing::upstream::{RawUpstream, read_head, reply};
use tollgate_testing::wait::eventually;

use crate::proxy::{GET, RunningProxy, upstream_at};

const HEALTHY: &str = "tollgate_upstream_servers_healthy{upstream=\"/\"}";

fn upstream(servers: &[&Upstream]) -> UpstreamConfig {
    let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
    upstream_at("/", &addresses)
}

#[tokio::test]
async fn requests_are_spread_and_slow_servers_get_fewer() {
    let servers = ["one", "two", "three"].map(Upstream::named);
    let proxy = RunningProxy::of(&[upstream(&servers.each_ref())]).await;
    for _ in 0..300 {
        assert_eq!(proxy.get("/").await.status, 200);
    }
    for server in &servers {
        let count = server.hits();
        assert!((50..=150).contains(&count), "{count}");
    }

    let quick = Upstream::named("quick");
    let slow = Upstream::answering(|_| std::future::pending());
    let proxy = RunningProxy::of(&[upstream(&[&quick, &slow])]).await;
    // Those that find both idle go to either. The first that the slow server gets stays there.
    let mut held = proxy.connect().await;
    while slow.hits() == 0 {
        held.send(GET).await;
        tokio::select! {
            response = held.response() => assert_eq!(response.unwrap().text(), "quick"),
            () = slow.until_hits(1) => {}
        }
    }
    let before = quick.hits();
    for _ in 0..20 {
        assert_eq!(proxy.get("/").await.text(), "quick");
    }
    assert_eq!((quick.hits(), slow.hits()), (before + 20, 1));
}

#[tokio::test]
async fn unreachable_server_is_set_aside_and_returns() {
    let address = closed_address();
    let one = Upstream::named("one");
    let mut upstream = upstream(&[&one]);
    upstream.to.push(format!("http://{address}"));
    upstream.set_aside = Duration::from_millis(100);
    let proxy = RunningProxy::of(&[upstream]).await;
    for _ in 0..50 {
        assert_eq!(proxy.get("/").await.status, 200);
    }
    assert_eq!(proxy.metric(HEALTHY), Some(1.0));
    let other = Upstream::at(address, |_| async { reply(200, "other") });
    eventually("both to be healthy", async || {
        assert_eq!(proxy.get("/").await.status, 200);
        proxy.metric(HEALTHY) == Some(2.0)
    })
    .await;
    let before = other.hits();
    for _ in 0..50 {
        proxy.get("/").await;
    }
    assert!(other.hits() > before + 10);
}

#[tokio::test]
async fn server_that_responds_503_is_set_aside() {
    let ill = Upstream::answering(|_| async { reply(503, "ill") });
    let well = Upstream::named("well");
    let mut upstream = upstream(&[&ill, &well]);
    upstream.set_aside = Duration::from_secs(30);
    let proxy = RunningProxy::of(&[upstream]).await;
    let mut statuses = Vec::new();
    for _ in 0..100 {
        statuses.push(proxy.get("/").await.status);
    }
    // Its responses are passed on, and the requests not sent again.
    let unavailable = statuses.iter().filter(|status| **status == 503);
    assert_eq!(unavailable.count(), 3);
    assert_eq!(ill.hits(), 3);
    assert_eq!(proxy.metric(HEALTHY), Some(1.0));
}

/// One of two servers closes the connections of all requests in flight, as one does that is restarted.
#[tokio::test]
async fn requests_that_fail_together_set_no_server_aside() {
    let closes = Arc::new(Notify::new());
    let arrived = Arc::new(AtomicUsize::new(0));
    let ill = {
        let (closes, arrived) = (Arc::clone(&closes), Arc::clone(&arrived));
        RawUpstream::start(move |mut stream, _| {
            let (closes, arrived) = (Arc::clone(&closes), Arc::clone(&arrived));
            async move {
                let closed = closes.notified();
                read_head(&mut stream).await;
                arrived.fetch_add(1, Ordering::SeqCst);
                closed.await;
            }
        })
    };
    let well = Upstream::answering(|_| std::future::pending());
    let mut upstream = upstream_at("/", &[ill.address, well.address]);
    upstream.set_aside = Duration::from_secs(30);
    let proxy = RunningProxy::of(&[upstream]).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = proxy.connect().await;
        client
            .send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n")
            .await;
        clients.push(client);
    }
    let failing = || arrived.load(Ordering::SeqCst);
    eventually("all requests", async || failing() + well.in_flight() == 20).await;
    assert!(failing() >= 5, "{}", failing());
    closes.notify_waiters();
    let failed = "tollgate_upstream_failures_total{upstream=\"/\",reason=\"closed\"}";
    #[expect(clippy::cast_precision_loss, reason = "they are few")]
    let all = failing() as f64;
    eventually("the failures", async || proxy.metric(failed) == Some(all)).await;
    assert_eq!(proxy.metric(HEALTHY), Some(2.0));
}

#[tokio::test]
async fn servers_get_requests_if_all_are_set_aside() {
    let is_ill = Arc::new(AtomicBool::new(true));
    let answer = {
        let is_ill = Arc::clone(&is_ill);
        move |_| {
            let status = match is_ill.load(Ordering::SeqCst) {
                true => 503,
                false => 200,
            };
            async move { reply(status, "") }
        }
    };
    let (one, two) = (
        Upstream::answering(answer.clone()),
        Upstream::answering(answer),
    );
    let mut upstream = upstream(&[&one, &two]);
    upstream.set_aside = Duration::from_secs(30);
    let proxy = RunningProxy::of(&[upstream]).await;
    for _ in 0..10 {
        assert_eq!(proxy.get("/").await.status, 503);
    }
    assert_eq!(proxy.metric(HEALTHY), Some(0.0));
    is_ill.store(false, Ordering::SeqCst);
    assert_eq!(proxy.get("/").await.status, 200);
    assert_eq!(proxy.metric(HEALTHY), Some(1.0));
}

#[tokio::test]
async fn the_only_server_is_never_set_aside() {
    let ill = Upstream::answering(|_| async { reply(503, "") });
    let proxy = RunningProxy::of(&[upstream(&[&ill])]).await;
    for _ in 0..20 {
        proxy.get("/").await;
    }
    assert_eq!(ill.hits(), 20);
    assert_eq!(proxy.metric(HEALTHY), Some(1.0));
}

#[tokio::test]
async fn server_gets_no_requests_until_it_passes_a_check() {
    let is_ill = Arc::new(AtomicBool::new(true));
    let requests = Arc::new(AtomicUsize::new(0));
    let (counted, fails) = (Arc::clone(&requests), Arc::clone(&is_ill));
    let server = Upstream::answering(move |request| {
        let is_check = request.uri().path() == "/healthz";
        let status = match is_check && fails.load(Ordering::SeqCst) {
            true => 500,
            false => 200,
        };
        counted.fetch_add(usize::from(!is_check), Ordering::SeqCst);
        async move { reply(status, "") }
    });
    let mut upstream = upstream(&[&server]);
    upstream.failures = 2;
    upstream.health = Some(HealthCheck {
        path: "/healthz".to_owned(),
        every: Duration::from_millis(50),
        timeout: Duration::from_secs(5),
    });
    let proxy = RunningProxy::of(&[upstream]).await;
    proxy.proxy.watch(&proxy.stop);
    proxy.until_metric(HEALTHY, 0.0).await;
    let response = proxy.get("/").await;
    assert_eq!(response.status, 503);
    let text = response.text();
    assert!(
        text.contains("no server for this path is healthy"),
        "{text}"
    );
    assert_eq!(requests.load(Ordering::SeqCst), 0);
    is_ill.store(false, Ordering::SeqCst);
    proxy.until_metric(HEALTHY, 1.0).await;
    assert_eq!(proxy.get("/").await.status, 200);
}
