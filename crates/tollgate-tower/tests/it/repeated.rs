//! Requests that were denied and come again in the same words: decided anew, and not read anew.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use tollgate::{Decision, Dimension, Limiter, Met, RuleSet};
use tollgate_tower::TollgateLayer;
use tollgate_tower::identity::{Clients, Identity};
use tollgate_tower::layer::{
    Ask, Observer, PeerAddr, Repeat, Repeated, TollgateService, WantRepeat,
};
use tollgate_tower::policy::Policy;
use tower::util::ServiceFn;
use tower::{Layer as _, ServiceExt as _};

use crate::served::{fields, hand, limiter, rule};

const HOURLY: &str = "1/h burst 2";

fn ask(method: &str, path: &str) -> Request<()> {
    let mut request = Request::builder().method(method).uri(path);
    let extensions = request.extensions_mut().unwrap();
    extensions.insert(PeerAddr(([203, 0, 113, 7], 4711).into()));
    extensions.insert(WantRepeat);
    request.body(()).unwrap()
}

type Hello = fn(Request<()>) -> Ready<Result<Response<Full<Bytes>>, Infallible>>;
type Limited = TollgateService<ServiceFn<Hello>>;

fn limited(layer: &TollgateLayer) -> Limited {
    let hello: Hello = |_| ready(Ok(Response::new(Full::from("hello"))));
    layer.layer(tower::service_fn(hello))
}

async fn send(service: &Limited, request: Request<()>) -> Response<Bytes> {
    let response = service.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    Response::from_parts(parts, body.collect().await.unwrap().to_bytes())
}

/// Asks until it is denied; the denial.
async fn denied(service: &Limited, method: &str, path: &str) -> Response<Bytes> {
    for _ in 0..10 {
        let response = send(service, ask(method, path)).await;
        if response.status() != 200 {
            return response;
        }
    }
    panic!("it is never denied");
}

fn repeat_of(response: &Response<Bytes>) -> &Repeat {
    response.extensions().get::<Repeat>().unwrap()
}

/// What a repeat says, and what it answers.
fn asked(repeat: &Repeat) -> (Repeated, Option<(u16, String, Bytes)>) {
    let mut answer = None;
    let repeated = repeat.ask(|denied| {
        let lines = String::from_utf8(denied.lines().to_vec()).unwrap();
        let body = Bytes::copy_from_slice(denied.body());
        answer = Some((denied.status().as_u16(), lines, body));
    });
    (repeated, answer)
}

#[derive(Default)]
struct Heard(AtomicU32);

impl Observer for Heard {
    fn decided(&self, _: &Met<'_>, _: &Decision) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn it_is_denied_in_the_same_words_and_whoever_listens_hears_of_it() {
    let heard = Arc::new(Heard::default());
    let rules = [rule("client", HOURLY).per([Dimension::Client])];
    let layer = TollgateLayer::new(limiter(&hand(), rules)).observer(Arc::clone(&heard));
    let service = limited(&layer);
    let first = denied(&service, "GET", "/a").await;
    assert_eq!(heard.0.load(Ordering::Relaxed), 3);
    let (repeated, answer) = asked(repeat_of(&first));
    assert!(matches!(repeated, Repeated::Denied), "{repeated:?}");
    let (status, lines, body) = answer.unwrap();
    assert_eq!((status, &body), (429, first.body()));
    let mut told = 0;
    for line in lines.lines() {
        let (name, value) = line.split_once(": ").unwrap();
        assert_eq!(fields(first.headers(), name), [value], "{name}");
        told += 1;
    }
    // All but the media type of the body.
    assert_eq!(told + 1, first.headers().len(), "{lines}");
    assert_eq!(heard.0.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn when_there_is_room_again_it_goes_the_usual_way_and_is_charged_once() {
    let hand = hand();
    let rules = [rule("client", HOURLY).per([Dimension::Client])];
    let service = limited(&TollgateLayer::new(limiter(&hand, rules)));
    let first = denied(&service, "GET", "/a").await;
    hand.set(std::time::Duration::from_secs(crate::served::NOW + 7_200));
    let (Repeated::Admitted(admitted), None) = asked(repeat_of(&first)) else {
        panic!("there is room for two");
    };
    let mut request = ask("GET", "/a");
    request.extensions_mut().insert(admitted.clone());
    let passed = send(&service, request).await;
    assert_eq!(passed.status(), 200);
    assert_eq!(fields(passed.headers(), "x-ratelimit-remaining"), ["1"]);
    // Once.
    let mut request = ask("GET", "/a");
    request.extensions_mut().insert(admitted.clone());
    let second = send(&service, request).await;
    assert_eq!(fields(second.headers(), "x-ratelimit-remaining"), ["0"]);
    // What one layer let in, another one decides about.
    let other = limiter(&hand, [rule("other", "1/h burst 1")]);
    let other = limited(&TollgateLayer::new(other));
    for status in [200, 429] {
        let mut request = ask("GET", "/a");
        request.extensions_mut().insert(admitted.clone());
        assert_eq!(send(&other, request).await.status(), status);
    }
}

#[tokio::test]
async fn by_another_policy_it_is_another_question() {
    let policy = |burst: u32| {
        let rules = [rule("client", &format!("1/h burst {burst}")).per([Dimension::Client])];
        let rules = RuleSet::new(rules).unwrap();
        Arc::new(Policy::new(rules, Identity::default(), Clients::default()))
    };
    let current = Arc::new(ArcSwap::new(policy(2)));
    let read = Arc::clone(&current);
    let layer = TollgateLayer::new(Limiter::in_memory()).policy_source(move || read.load_full());
    let service = limited(&layer);
    let first = denied(&service, "GET", "/a").await;
    assert!(matches!(asked(repeat_of(&first)).0, Repeated::Denied));
    current.store(policy(9));
    let (repeated, answer) = asked(repeat_of(&first));
    assert!(matches!(repeated, Repeated::Unknown), "{repeated:?}");
    assert!(answer.is_none());
    assert_eq!(send(&service, ask("GET", "/a")).await.status(), 200);
}

#[tokio::test]
async fn an_answer_that_is_not_the_usual_one_is_not_repeated() {
    let rules = || [rule("client", HOURLY).per([Dimension::Client])];
    let service = limited(&TollgateLayer::new(limiter(&hand(), rules())));
    // No body; and a status of gRPC.
    let head = denied(&service, "HEAD", "/a").await;
    assert!(head.extensions().get::<Repeat>().is_none());
    let mut call = ask("POST", "/a");
    let grpc = HeaderValue::from_static("application/grpc");
    call.headers_mut().insert(CONTENT_TYPE, grpc);
    let call = send(&service, call).await;
    assert_eq!(call.headers()["grpc-status"], "8");
    assert!(call.extensions().get::<Repeat>().is_none());
    // Nobody asked for it.
    let mut unasked = ask("GET", "/a");
    unasked.extensions_mut().remove::<WantRepeat>();
    let unasked = send(&service, unasked).await;
    assert_eq!(unasked.status(), 429);
    assert!(unasked.extensions().get::<Repeat>().is_none());
    let own = TollgateLayer::new(limiter(&hand(), rules())).answer_with(|denial| {
        let mut response = Response::new("in words of our own".into());
        *response.status_mut() = denial.status();
        response
    });
    let own = denied(&limited(&own), "GET", "/a").await;
    assert!(own.extensions().get::<Repeat>().is_none());
    // Who asks may be somebody else the next time.
    let told = TollgateLayer::new(limiter(&hand(), rules())).request(|_| Ask::new().client("a"));
    let told = denied(&limited(&told), "GET", "/a").await;
    assert!(told.extensions().get::<Repeat>().is_none());
    let costly = TollgateLayer::new(limiter(&hand(), rules())).cost(|_| Some(1));
    let costly = denied(&limited(&costly), "GET", "/a").await;
    assert!(costly.extensions().get::<Repeat>().is_none());
}

#[tokio::test]
async fn a_layer_behind_another_one_gives_nothing_to_ask_again() {
    let hand = hand();
    let inner = TollgateLayer::new(limiter(&hand, [rule("inner", HOURLY)]));
    let outer = TollgateLayer::new(limiter(&hand, [rule("outer", "1/h burst 9")]));
    let service = outer.layer(limited(&inner));
    let mut heard = Vec::new();
    for _ in 0..4 {
        let response = service.clone().oneshot(ask("GET", "/a")).await.unwrap();
        assert!(response.extensions().get::<Repeat>().is_none());
        heard.push(response.status().as_u16());
    }
    assert_eq!(heard, [200, 200, 429, 429]);
}
