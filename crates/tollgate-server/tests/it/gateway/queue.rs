//! The queue of a leaky bucket before an upstream: the rate at which requests reach the upstream, and clients that leave the queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tollgate_referee::{Bound, Log};
use tollgate_testing::wait::eventually;
use tollgate_testing::{Connection, Gateway, http2};

use super::{AUTHORIZATION, SERVICE, reset};
use crate::kit;

/// How late a request may be on a busy machine. One that is late comes closer to the next.
const LATE: Duration = Duration::from_millis(500);

/// The clocks of the limiter and of the test are read one after the other.
const TICK: Duration = Duration::from_millis(2);

/// Requests that were sent all at once to an empty queue, and their results.
struct Surge {
    per_second: u32,
    queue: usize,
    /// Before the first was sent.
    began: Instant,
    /// When all were decided.
    decided: Instant,
    statuses: Vec<u16>,
    /// When requests reached the upstream.
    arrivals: Vec<Instant>,
}

impl Surge {
    /// R03: requests leave at a constant rate, the queue never exceeds its size, and requests that find it full are denied.
    fn check(mut self) {
        self.arrivals.sort();
        let count = |wanted| self.statuses.iter().filter(|is| **is == wanted).count();
        let (admitted, denied) = (count(200), count(429));
        assert_eq!(admitted + denied, self.statuses.len());
        assert_eq!(
            admitted,
            self.arrivals.len(),
            "each reached the upstream once"
        );
        self.check_queue(admitted);
        assert!(denied > 0, "no request found the queue full");
        self.check_rate();
    }

    /// Admits as many as fit into the queue, and those whose turn came while the others arrived.
    fn check_queue(&self, admitted: usize) {
        let duration = (self.decided - self.began).as_micros();
        let turns = duration * u128::from(self.per_second) / 1_000_000 + 1;
        let max = self.queue + usize::try_from(turns).unwrap();
        assert!(
            (self.queue..=max).contains(&admitted),
            "{admitted} admitted, with a queue of {} and {turns} turns meanwhile",
            self.queue
        );
        let arrived = (self.arrivals).partition_point(|at| *at <= self.decided + LATE);
        let waiting = admitted - arrived;
        assert!(waiting <= self.queue, "{waiting} wait");
    }

    /// No request arrives before its turn, or long after it. No interval has more arrivals than the rate and the late ones.
    fn check_rate(&self) {
        let turn = Duration::from_secs(1) / self.per_second;
        for (nth, at) in (0..).zip(&self.arrivals) {
            let (earliest, latest) = (self.began + turn * nth, self.decided + turn * nth + LATE);
            assert!(
                (earliest..=latest).contains(&(*at + TICK)),
                "number {nth} arrived after {:?}, its turn was between {:?} and {:?}",
                *at - self.began,
                earliest - self.began,
                latest - self.began
            );
        }
        let late = LATE.as_millis() * u128::from(self.per_second) / 1_000;
        let since = |at: &Instant| u64::try_from((*at - self.began).as_micros()).unwrap();
        let log = Log::new(self.arrivals.iter().map(|at| (since(at), 1)));
        let excess = log.excess(Bound::Bucket {
            burst: 1 + u64::try_from(late).unwrap(),
            count: self.per_second.into(),
            period_us: 1_000_000,
        });
        assert_eq!(excess.tokens, 0, "{excess}");
    }
}

#[tokio::test]
async fn a_leaky_bucket_forwards_at_a_constant_rate() {
    const CLIENTS: u64 = 150;
    const QUEUE: usize = 40;
    const PER_SECOND: u32 = 20;
    let rules = format!(
        "rules: [{{ id: drivers, per: [], limit: {{ algorithm: leaky_bucket, rate: {PER_SECOND}/s, queue: {QUEUE} }} }}]"
    );
    let gateway = Arc::new(kit::gateway("", &rules));
    let began = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let gateway = Arc::clone(&gateway);
            tokio::spawn(async move { gateway.get("/location").await.status })
        })
        .collect();
    gateway.until_decisions(CLIENTS).await;
    let decided = Instant::now();
    let mut statuses = Vec::new();
    for client in clients {
        statuses.push(client.await.unwrap());
    }
    let requests = gateway.upstream.requests();
    let surge = Surge {
        per_second: PER_SECOND,
        queue: QUEUE,
        began,
        decided,
        statuses,
        arrivals: requests.iter().map(|request| request.at).collect(),
    };
    surge.check();
    Arc::into_inner(gateway).unwrap().stop();
}

const EVEN: &str = "{ id: even, match: { host: a }, per: [ip], limit: { algorithm: leaky_bucket, rate: 4/s, queue: 24 } }";
const PER_SECOND: u128 = 4;

fn even_gateway() -> Gateway {
    kit::gateway("", &format!("rules: [{EVEN}]\n{SERVICE}"))
}

/// How many clients stay in the queue. Their turns come within three seconds, before those of the clients that leave.
const STAYING: usize = 12;
/// How many clients leave the queue.
const LEAVING: usize = 12;
/// How many clients come once the others have left.
const NEW: usize = 24;

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// Sends each of these requests on a connection of its own, and waits until all are decided.
async fn queue_up(gateway: &Gateway, requests: &[String]) -> Vec<Connection> {
    let decisions = gateway.decisions() + requests.len() as u64;
    let mut clients = Vec::new();
    for request in requests {
        let mut client = Connection::open(gateway.address).await;
        client.send(request).await;
        clients.push(client);
    }
    gateway.until_decisions(decisions).await;
    clients
}

/// How many places in the queue are taken, according to the limiter.
fn used(gateway: &Gateway) -> u64 {
    let request = json!({ "ip": "127.0.0.1", "host": "a" });
    let response = gateway.post("/v1/inspect", &[AUTHORIZATION], &request.to_string());
    let usage = response.json();
    let buckets = usage["buckets"].as_array().unwrap();
    let even = buckets.iter().find(|bucket| bucket["rule"] == "even");
    even.unwrap()["used"].as_u64().unwrap()
}

/// Checks a queue that clients are leaving: their places become free, others get them, and no request of a client that left reaches
/// the upstream.
async fn check_places(gateway: &Gateway, began: Instant, staying: Vec<Connection>) {
    eventually("free places", async || used(gateway) <= STAYING as u64).await;
    let new = queue_up(gateway, &vec![get("/new"); NEW]).await;
    let turns = began.elapsed().as_millis() * PER_SECOND / 1_000 + 1;
    let turns = usize::try_from(turns).unwrap();
    for mut client in staying {
        assert_eq!(client.response().await.unwrap().status, 200);
    }
    let mut admitted = 0;
    for mut client in new {
        match client.response().await.unwrap().status {
            200 => admitted += 1,
            status => assert_eq!(status, 429),
        }
    }
    // If no place had become free, only as many would have been admitted as turns were over.
    assert!(
        (turns + 1..=LEAVING + turns).contains(&admitted),
        "{admitted} were admitted, {turns} turns were over and {LEAVING} clients had left"
    );
    // The turn of the last new client came after those of all that left.
    let requests = gateway.upstream.requests();
    let count = |path| (requests.iter().filter(|request| request.uri.path() == path)).count();
    assert_eq!(
        (count("/staying"), count("/leaving"), count("/new")),
        (STAYING, 0, admitted)
    );
}

#[tokio::test]
async fn a_client_that_hangs_up_frees_its_place() {
    let gateway = even_gateway();
    let began = Instant::now();
    let staying = queue_up(&gateway, &vec![get("/staying"); STAYING]).await;
    let close = "GET /leaving HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_owned();
    let requests: Vec<String> = [get("/leaving"), close]
        .into_iter()
        .cycle()
        .take(LEAVING)
        .collect();
    let leaving = queue_up(&gateway, &requests).await;
    assert!(used(&gateway) > STAYING as u64);
    drop(leaving);
    check_places(&gateway, began, staying).await;
    gateway.stop();
}

#[tokio::test]
async fn a_client_that_hangs_up_with_an_unread_body_frees_its_place() {
    let gateway = even_gateway();
    let began = Instant::now();
    let staying = queue_up(&gateway, &vec![get("/staying"); STAYING]).await;
    let post = "POST /leaving HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nworld".to_owned();
    let leaving = queue_up(&gateway, &vec![post; LEAVING]).await;
    assert!(used(&gateway) > STAYING as u64);
    drop(leaving);
    check_places(&gateway, began, staying).await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_http2_request_frees_its_place() {
    let gateway = even_gateway();
    let began = Instant::now();
    let staying = queue_up(&gateway, &vec![get("/staying"); STAYING]).await;
    let mut sender = http2::connect(gateway.address).await;
    let decisions = gateway.decisions() + LEAVING as u64;
    let leaving: Vec<_> = (0..LEAVING)
        .map(|_| sender.send_request(http2::get("/leaving")))
        .collect();
    gateway.until_decisions(decisions).await;
    assert!(used(&gateway) > STAYING as u64);
    drop(leaving);
    check_places(&gateway, began, staying).await;
    // The connection still works.
    let response = sender.send_request(http2::get("/")).await.unwrap();
    assert_eq!(response.status(), 200);
    drop((sender, response));
    gateway.stop();
}

/// A client that was denied several times on its connection and is then admitted leaves the queue like others.
#[tokio::test]
async fn a_client_denied_before_that_hangs_up_frees_its_place() {
    let other = "{ id: other, per: [ip], limit: \"1/h burst 100\" }";
    let gateway = kit::gateway("", &format!("rules: [{EVEN}, {other}]\n{SERVICE}"));
    // Uses up the other rule, so that it denies while the queue is empty.
    let check = json!({ "ip": "127.0.0.1", "cost": 100 }).to_string();
    let check = gateway.post("/v1/check", &[AUTHORIZATION], &check);
    assert_eq!(check.json()["allowed"], true);
    let request = get("/leaving");
    let mut leaving = Vec::new();
    for _ in 0..LEAVING {
        let mut client = Connection::open(gateway.address).await;
        for _ in 0..4 {
            assert_eq!(client.request(&request).await.status, 429);
        }
        leaving.push(client);
    }
    reset(&gateway);
    let began = Instant::now();
    let staying = queue_up(&gateway, &vec![get("/staying"); STAYING]).await;
    let decisions = gateway.decisions() + LEAVING as u64;
    for client in &mut leaving {
        client.send(&request).await;
    }
    gateway.until_decisions(decisions).await;
    assert!(used(&gateway) > STAYING as u64);
    drop(leaving);
    check_places(&gateway, began, staying).await;
    gateway.stop();
}

#[tokio::test]
async fn a_client_whose_turn_would_come_too_late_is_denied_at_once() {
    let queue = "rules: [{ id: queue, per: [], limit: \"1/min queue 5\" }]";
    let gateway = kit::gateway("max_delay: 50ms", queue);
    assert_eq!(gateway.get("/").await.status, 200);
    let denied = tokio::time::timeout(Duration::from_secs(30), gateway.get("/")).await;
    let denied = denied.expect("a denial before its turn");
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("4"));
    let limit = denied.header("ratelimit").unwrap();
    assert!(limit.starts_with(r#""queue";r=4;"#), "{limit}");
    assert_eq!(gateway.upstream.hits(), 1);
}
