//! The queue of a leaky bucket in front of a server: what is promised of it, judged by when requests reached the server; and those who leave it.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tollgate::{Request, Usage};
use tollgate_referee::{Bound, Log};

use crate::gateway::{Front, PATIENCE, hear_one, start};
use crate::gateway_denials::{ask, reset};
use crate::gateway_two;

/// So late may a busy machine be with one that has its turn. Whoever is late comes closer to the next.
const LATE: Duration = Duration::from_millis(500);

/// The clocks of the limiter and the test are looked at one after the other.
const TICK: Duration = Duration::from_millis(2);

/// Callers who came all together to a queue that was empty, and what became of them.
pub(crate) struct Rush {
    pub(crate) per_second: u32,
    pub(crate) queue: usize,
    /// Before the first came.
    pub(crate) began: Instant,
    /// When all were decided on.
    pub(crate) decided: Instant,
    pub(crate) statuses: Vec<u16>,
    /// When requests reached the server.
    pub(crate) came: Vec<Instant>,
}

impl Rush {
    /// R03: what comes out has a constant rate, never more than the queue waits, and who finds it full is rejected.
    pub(crate) fn check(mut self) {
        self.came.sort();
        let count = |wanted| self.statuses.iter().filter(|is| **is == wanted).count();
        let (passed, rejected) = (count(200), count(429));
        assert_eq!(passed + rejected, self.statuses.len());
        assert_eq!(passed, self.came.len(), "each reached the server once");
        self.check_the_room(passed);
        assert!(rejected > 0, "nobody found the queue full");
        self.check_the_rate();
    }

    /// The queue, and those whose turn came while the others arrived.
    fn check_the_room(&self, passed: usize) {
        let arriving = (self.decided - self.began).as_micros();
        let turns = arriving * u128::from(self.per_second) / 1_000_000 + 1;
        let most = self.queue + usize::try_from(turns).unwrap();
        assert!(
            (self.queue..=most).contains(&passed),
            "{passed} passed, with a queue of {} and {turns} turns while they came",
            self.queue
        );
        let by_then = self.came.partition_point(|at| *at <= self.decided + LATE);
        let waiting = passed - by_then;
        assert!(waiting <= self.queue, "{waiting} wait");
    }

    /// Nobody comes before its turn, or long after; and nowhere on the way there are more than the rate and those who were late.
    fn check_the_rate(&self) {
        let turn = Duration::from_secs(1) / self.per_second;
        for (nth, at) in (0..).zip(&self.came) {
            let (earliest, latest) = (self.began + turn * nth, self.decided + turn * nth + LATE);
            assert!(
                (earliest..=latest).contains(&(*at + TICK)),
                "the one at place {nth} came after {:?}, its turn was between {:?} and {:?}",
                *at - self.began,
                earliest - self.began,
                latest - self.began
            );
        }
        let late = LATE.as_millis() * u128::from(self.per_second) / 1_000;
        let since = |at: &Instant| u64::try_from((*at - self.began).as_micros()).unwrap();
        let log = Log::new(self.came.iter().map(|at| (since(at), 1)));
        let excess = log.excess(Bound::Bucket {
            burst: 1 + u64::try_from(late).unwrap(),
            count: self.per_second.into(),
            period_us: 1_000_000,
        });
        assert_eq!(excess.tokens, 0, "{excess}");
    }
}

const EVEN: &str = "{ id: even, match: { host: a }, per: [ip], limit: { algorithm: leaky_bucket, rate: 4/s, queue: 24 } }";
const PER_SECOND: u128 = 4;

async fn start_even() -> Front {
    start("", &format!("rules: [{EVEN}]")).await
}

/// They have their turns within three seconds, and those who leave would have theirs after them.
const STAY: usize = 12;
const LEAVE: usize = 12;
const COME: usize = 24;

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// Each says this on a connection of its own. All have been decided on then.
async fn come(front: &Front, said: &[String]) -> Vec<TcpStream> {
    let wanted = front.decisions() + said.len() as u64;
    let mut callers = Vec::new();
    for said in said {
        let mut caller = TcpStream::connect(front.address).await.unwrap();
        caller.write_all(said.as_bytes()).await.unwrap();
        callers.push(caller);
    }
    front.until_decisions(wanted).await;
    callers
}

/// How many places are taken, as the limiter sees it.
async fn taken(front: &Front) -> u64 {
    let policy = front.door.policy();
    let request = Request::new().ip([127, 0, 0, 1].into()).host("a");
    let inspected = (front.door.limiter()).inspect_by(policy.rules(), &request);
    let inspected = inspected.await.unwrap();
    let of_it = |usage: &&Usage| usage.rule().is_some_and(|rule| rule.as_str() == "even");
    let even = inspected.iter().find(of_it).unwrap();
    even.used().unwrap_or_default()
}

/// A queue that was full, from which so many have gone as are to leave.
struct Left {
    front: Front,
    began: Instant,
    stay: Vec<TcpStream>,
}

impl Left {
    /// Their places are free, others take them, and nothing of those who left reaches the service behind.
    async fn check(self) -> Front {
        let Self { front, began, stay } = self;
        let patience = Instant::now() + PATIENCE;
        while taken(&front).await > STAY as u64 {
            assert!(Instant::now() < patience, "{}", taken(&front).await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let new = come(&front, &vec![get("/comes"); COME]).await;
        let turns = began.elapsed().as_millis() * PER_SECOND / 1_000 + 1;
        let turns = usize::try_from(turns).unwrap();
        for mut caller in stay {
            assert_eq!(hear_one(&mut caller).await.unwrap().status, 200);
        }
        let mut let_in = 0;
        for mut caller in new {
            match hear_one(&mut caller).await.unwrap().status {
                200 => let_in += 1,
                status => assert_eq!(status, 429),
            }
        }
        // Had they kept their places, only those would have come in whose turn it was.
        assert!(
            (turns + 1..=LEAVE + turns).contains(&let_in),
            "{let_in} were let in, at most {turns} for other reasons than that {LEAVE} have left"
        );
        // The last who came in had their turn after all who left.
        let came = front.behind.requests.lock().clone();
        let count = |path| came.iter().filter(|(_, uri, _)| uri.path() == path).count();
        assert_eq!(
            (count("/stays"), count("/leaves"), count("/comes")),
            (STAY, 0, let_in)
        );
        front
    }
}

#[tokio::test]
async fn who_hangs_up_frees_its_place_and_nothing_of_it_goes_on() {
    let front = start_even().await;
    let began = Instant::now();
    let stay = come(&front, &vec![get("/stays"); STAY]).await;
    let close = "GET /leaves HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_owned();
    let leave: Vec<String> = [get("/leaves"), close]
        .into_iter()
        .cycle()
        .take(LEAVE)
        .collect();
    let leave = come(&front, &leave).await;
    assert!(taken(&front).await > STAY as u64);
    drop(leave);
    let front = Left { front, began, stay }.check().await;
    front.end().await;
}

#[tokio::test]
async fn who_hangs_up_with_its_body_unread_frees_its_place_and_nothing_of_it_goes_on() {
    let front = start_even().await;
    let began = Instant::now();
    let stay = come(&front, &vec![get("/stays"); STAY]).await;
    let post = "POST /leaves HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nworld".to_owned();
    let leave = come(&front, &vec![post; LEAVE]).await;
    assert!(taken(&front).await > STAY as u64);
    drop(leave);
    let front = Left { front, began, stay }.check().await;
    front.end().await;
}

#[tokio::test]
async fn who_takes_back_a_request_of_http_2_frees_its_place_and_keeps_its_connection() {
    let front = start_even().await;
    let began = Instant::now();
    let stay = come(&front, &vec![get("/stays"); STAY]).await;
    let mut sender = gateway_two::connect(&front).await;
    let wanted = front.decisions() + LEAVE as u64;
    let leave: Vec<_> = (0..LEAVE)
        .map(|_| sender.send_request(gateway_two::ask("/leaves")))
        .collect();
    front.until_decisions(wanted).await;
    assert!(taken(&front).await > STAY as u64);
    drop(leave);
    let front = Left { front, began, stay }.check().await;
    let heard = sender.send_request(gateway_two::ask("/")).await.unwrap();
    assert_eq!(heard.status(), 200);
    drop((sender, heard));
    front.end().await;
}

/// Who is let in when it comes again in the same words is not read again, and leaves like anybody.
#[tokio::test]
async fn who_was_denied_before_on_its_connection_and_hangs_up_frees_its_place() {
    let other = "{ id: other, per: [ip], limit: \"1/h burst 100\" }";
    let front = start("", &format!("rules: [{EVEN}, {other}]")).await;
    // Nothing is left by the other rule, so they are denied; and nobody is in the queue.
    while front.decide().await.allowed() {}
    let said = get("/leaves");
    let mut leave = Vec::new();
    for _ in 0..LEAVE {
        let mut caller = TcpStream::connect(front.address).await.unwrap();
        for _ in 0..4 {
            assert_eq!(ask(&mut caller, &said).await.status, 429);
        }
        leave.push(caller);
    }
    reset(&front).await;
    let began = Instant::now();
    let stay = come(&front, &vec![get("/stays"); STAY]).await;
    let wanted = front.decisions() + LEAVE as u64;
    for caller in &mut leave {
        caller.write_all(said.as_bytes()).await.unwrap();
    }
    front.until_decisions(wanted).await;
    assert!(taken(&front).await > STAY as u64);
    drop(leave);
    let front = Left { front, began, stay }.check().await;
    front.end().await;
}

#[tokio::test]
async fn who_would_wait_longer_than_is_allowed_is_denied_at_once() {
    let queue = "rules: [{ id: queue, per: [], limit: \"1/min queue 5\" }]";
    let front = start("max_delay: 50ms", queue).await;
    let said = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert_eq!(front.exchange(said).await[0].status, 200);
    let denied = tokio::time::timeout(Duration::from_secs(30), front.exchange(said)).await;
    let denied = denied.expect("it waits for its turn").remove(0);
    assert_eq!(denied.status, 429);
    assert_eq!(denied.field("x-ratelimit-remaining"), Some("4"));
    let policy = denied.field("ratelimit").unwrap();
    assert!(policy.starts_with(r#""queue";r=4;"#), "{policy}");
    assert_eq!(front.behind.count(), 1);
}
