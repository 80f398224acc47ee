//! A leaky bucket makes requests wait: each goes at its time, who cannot wait is told so, and who goes away leaves its place.
//!
//! Tokio's time is paused, so the times are exact and nobody waits for them; the limiter's clock is turned by hand.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use tokio::time::Instant;
use tollgate::{Limiter, ManualClock, RuleSet};
use tollgate_tower::TollgateLayer;
use tollgate_tower::identity::{Clients, Identity};
use tollgate_tower::layer::{Deadline, PeerAddr, WaitLimits};
use tollgate_tower::policy::Policy;
use tower::util::BoxCloneSyncService;
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

use crate::served::{hand, limiter, rule};

type Bodiless = Empty<Bytes>;
type Limited = BoxCloneSyncService<
    Request<Bodiless>,
    Response<tollgate_tower::layer::TollgateBody<Bodiless>>,
    Infallible,
>;

/// When requests reached the handler, since the start.
type Seen = Arc<Mutex<Vec<Duration>>>;

fn behind(layer: &TollgateLayer) -> (Limited, Seen) {
    let (seen, start) = (Seen::default(), Instant::now());
    let noted = Arc::clone(&seen);
    let handler = service_fn(move |_: Request<Bodiless>| {
        noted.lock().unwrap().push(start.elapsed());
        async { Ok::<_, Infallible>(Response::new(Empty::new())) }
    });
    (BoxCloneSyncService::new(layer.layer(handler)), seen)
}

/// One in 100 ms, five in the queue.
fn ten_a_second(hand: &ManualClock) -> Arc<Limiter> {
    Arc::new(limiter(hand, [rule("queue", "10/s queue 5")]))
}

fn request() -> Request<Bodiless> {
    Request::new(Empty::new())
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn status(service: &Limited, request: Request<Bodiless>) -> u16 {
    let response = service.clone().oneshot(request).await.unwrap();
    response.status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_reach_the_handler_one_by_one_at_their_times() {
    let (service, seen) = behind(&TollgateLayer::new(ten_a_second(&hand())));
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move { status(&service, request()).await })
        })
        .collect();
    let mut statuses = Vec::new();
    for call in calls {
        statuses.push(call.await.unwrap());
    }
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429, 429]);
    assert_eq!(
        *seen.lock().unwrap(),
        [ms(0), ms(100), ms(200), ms(300), ms(400)]
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_the_longest_delay_and_what_was_taken_is_given_back() {
    let (limiter, start) = (ten_a_second(&hand()), Instant::now());
    let layer = TollgateLayer::new(Arc::clone(&limiter)).max_delay(ms(150));
    let (service, seen) = behind(&layer);
    let go = |service: &Limited| tokio::spawn(service.clone().oneshot(request()));
    let (first, second) = (go(&service), go(&service));
    tokio::task::yield_now().await;
    // Its turn would be in 200 ms. Tried again and again, it never takes up room.
    for _ in 0..20 {
        let response = service.clone().oneshot(request()).await.unwrap();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "1");
        // As it is without this request, which takes no place.
        assert_eq!(response.headers()["x-ratelimit-remaining"], "3");
        assert_eq!(response.headers()["ratelimit"], r#""queue";r=3;t=1"#);
    }
    assert_eq!(start.elapsed(), ms(0));
    let left = limiter
        .request(&tollgate::Request::new())
        .peek()
        .await
        .remaining();
    assert_eq!(left, Some(3));
    assert_eq!(first.await.unwrap().unwrap().status(), 200);
    assert_eq!(second.await.unwrap().unwrap().status(), 200);
    assert_eq!(*seen.lock().unwrap(), [ms(0), ms(100)]);
}

#[tokio::test(start_paused = true)]
async fn who_has_a_deadline_before_its_turn_is_rejected_at_once() {
    let limiter = ten_a_second(&hand());
    let (service, seen) = behind(&TollgateLayer::new(Arc::clone(&limiter)));
    assert_eq!(status(&service, request()).await, 200);
    let until = |time| {
        let mut request = request();
        let deadline = Deadline::after(time).unwrap();
        request.extensions_mut().insert(deadline);
        request
    };
    let grpc = |timeout: &'static str| {
        let mut request = request();
        let timeout = http::HeaderValue::from_static(timeout);
        request.headers_mut().insert("grpc-timeout", timeout);
        request
    };
    // Its turn is in 100 ms.
    assert_eq!(status(&service, until(ms(99))).await, 429);
    assert_eq!(status(&service, grpc("99m")).await, 429);
    assert_eq!(status(&service, grpc("0n")).await, 429);
    let left = limiter
        .request(&tollgate::Request::new())
        .peek()
        .await
        .remaining();
    assert_eq!(left, Some(4));
    assert_eq!(status(&service, until(ms(100))).await, 200);
    assert_eq!(seen.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_goes_away_leaves_its_place_to_another() {
    let limiter = ten_a_second(&hand());
    let (service, seen) = behind(&TollgateLayer::new(Arc::clone(&limiter)));
    let left = async || {
        limiter
            .request(&tollgate::Request::new())
            .peek()
            .await
            .remaining()
    };
    let calls: Vec<_> = (0..5)
        .map(|_| tokio::spawn(service.clone().oneshot(request())))
        .collect();
    tokio::task::yield_now().await;
    assert_eq!(left().await, Some(0));
    assert_eq!(status(&service, request()).await, 429);
    // The last two go away.
    for call in &calls[3..] {
        call.abort();
    }
    tokio::task::yield_now().await;
    assert_eq!(left().await, Some(2));
    let instead: Vec<_> = (0..3)
        .map(|_| tokio::spawn(service.clone().oneshot(request())))
        .collect();
    let mut statuses = Vec::new();
    for call in calls.into_iter().take(3).chain(instead) {
        statuses.push(call.await.unwrap().unwrap().status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    // Of all who were there, five went through, and never two at one time.
    let seen = seen.lock().unwrap();
    assert_eq!(*seen, [ms(0), ms(100), ms(200), ms(300), ms(400)]);
}

fn request_from(address: [u8; 4]) -> Request<Bodiless> {
    let mut request = request();
    let peer = PeerAddr((address, 40_000).into());
    request.extensions_mut().insert(peer);
    request
}

#[tokio::test(start_paused = true)]
async fn a_client_with_too_many_waiting_requests_leaves_room_for_others() {
    let rules = [rule("queue", "10/s queue 50")];
    let limiter = Arc::new(limiter(&hand(), rules));
    let layer = TollgateLayer::new(Arc::clone(&limiter)).wait_limits(WaitLimits::new(6, 4));
    let (service, seen) = behind(&layer);
    let ask = |address| {
        let service = service.clone();
        tokio::spawn(async move { status(&service, request_from(address)).await })
    };
    // The first goes at once, four wait, and the others take nothing.
    let greedy: Vec<_> = (0..20).map(|_| ask([192, 0, 2, 1])).collect();
    tokio::task::yield_now().await;
    let left = limiter
        .request(&tollgate::Request::new())
        .peek()
        .await
        .remaining();
    assert_eq!(left, Some(45));
    let one_more = service.clone().oneshot(request_from([192, 0, 2, 1]));
    let one_more = one_more.await.unwrap();
    assert_eq!(one_more.status(), 429);
    assert_eq!(one_more.headers()["x-ratelimit-remaining"], "45");
    let other: Vec<_> = (0..3).map(|_| ask([192, 0, 2, 2])).collect();
    let mut statuses = Vec::new();
    for call in greedy.into_iter().chain(other) {
        statuses.push(call.await.unwrap());
    }
    let mut expected = vec![200; 5];
    expected.extend([429; 15]);
    // Six wait in all.
    expected.extend([200, 200, 429]);
    assert_eq!(statuses, expected);
    assert_eq!(seen.lock().unwrap().len(), 7);
    // Those who waited have left.
    assert_eq!(status(&service, request_from([192, 0, 2, 1])).await, 200);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_never_polled_takes_nothing() {
    let limiter = ten_a_second(&hand());
    let (mut service, seen) = behind(&TollgateLayer::new(Arc::clone(&limiter)));
    for _ in 0..20 {
        drop(service.ready().await.unwrap().call(request()));
    }
    let left = limiter
        .request(&tollgate::Request::new())
        .peek()
        .await
        .remaining();
    assert_eq!(left, Some(5));
    assert!(seen.lock().unwrap().is_empty());
}

/// What is left after one request went and another went away while it waited.
async fn left_after_one_went_away(
    layer: &TollgateLayer,
    rules: &RuleSet,
    limiter: &Limiter,
) -> u64 {
    let (service, _) = behind(layer);
    assert_eq!(status(&service, request()).await, 200);
    let waiting = tokio::spawn(service.oneshot(request()));
    tokio::task::yield_now().await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    let asks = tollgate::Request::new();
    limiter
        .matched(&rules.matching(&asks))
        .peek()
        .await
        .remaining()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn places_are_given_back_by_the_policy_whatever_rules_the_limiter_has() {
    let rules = RuleSet::new([rule("queue", "10/s queue 5")]).unwrap();
    let policy = || Policy::new(rules.clone(), Identity::default(), Clients::default());
    let bare = Arc::new(limiter(&hand(), []));
    let layer = TollgateLayer::new(Arc::clone(&bare)).policy(policy());
    assert_eq!(left_after_one_went_away(&layer, &rules, &bare).await, 4);
    // These have the same name and the same limit, and count by something else.
    let others = rule("queue", "10/s queue 5").per([tollgate::Dimension::Client]);
    let other = Arc::new(limiter(&hand(), [others]));
    let client = tollgate::Request::new().client("ip:0.0.0.0");
    assert_eq!(other.decide(&client).await.remaining(), Some(4));
    let layer = TollgateLayer::new(Arc::clone(&other)).policy(policy());
    assert_eq!(left_after_one_went_away(&layer, &rules, &other).await, 4);
    // The bucket of the same caller by the other rules is as it was.
    assert_eq!(other.request(&client).peek().await.remaining(), Some(4));
}

/// May be called once for each time it was ready.
struct Strict {
    is_ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { is_ready: false }
    }
}

impl Service<Request<Bodiless>> for Strict {
    type Response = Response<Bodiless>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Bodiless>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Bodiless>) -> Self::Future {
        assert!(self.is_ready, "called before it was ready");
        self.is_ready = false;
        ready(Ok(Response::new(Empty::new())))
    }
}

#[tokio::test(start_paused = true)]
async fn the_service_that_was_made_ready_is_the_one_that_is_called() {
    let layer = TollgateLayer::new(ten_a_second(&hand()));
    let mut service = layer.layer(Strict { is_ready: false });
    // All at once: the first goes, and the others wait.
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(service.ready().await.unwrap().call(request()));
    }
    for call in calls {
        assert_eq!(call.await.unwrap().status(), 200);
    }
}
