//! The merchants' requests: sent when they are due, whatever became of others, and noted as their senders saw them.

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::Phase;
use crate::merchants::{BATCH_AROUND, Endpoint, Habit, MERCHANTS, Merchant};

/// A request, and what came of it.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Whose it was.
    pub merchant: &'static str,
    /// When it was sent.
    pub phase: Phase,
    /// From when it was due to its answer.
    pub took: Duration,
    /// The answer, if there was one.
    pub status: Option<StatusCode>,
}

impl Sent {
    /// It reached the processor.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        self.status == Some(StatusCode::OK)
    }

    /// The gateway said no.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.status == Some(StatusCode::TOO_MANY_REQUESTS)
    }
}

/// What all who call know.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// When everything began.
    pub start: Instant,
    /// What is going on.
    pub phase: Phase,
    /// When that ends.
    pub until: Instant,
    /// The batch job runs around every multiple of this.
    pub batch_every: Duration,
}

/// Lets all merchants call for one phase, each over several connections, spread evenly over the gateways.
pub async fn go_on(caller: Caller, gateways: &[SocketAddr]) -> Vec<Sent> {
    let mut lanes = JoinSet::new();
    for merchant in &MERCHANTS {
        if merchant.habit == Habit::Flood && caller.phase == Phase::Quiet {
            continue;
        }
        // Some 30 requests a second on each connection, and a connection to each gateway at least.
        let count = merchant.per_second.div_ceil(30).next_multiple_of(4);
        for (number, gateway) in (0..count).zip(gateways.iter().cycle()) {
            let lane = Lane {
                caller,
                merchant,
                gateway: *gateway,
                every: Duration::from_secs(u64::from(count)) / merchant.per_second,
                first: Duration::from_secs(u64::from(number)) / merchant.per_second,
            };
            lanes.spawn(lane.go_on());
        }
    }
    let mut sent = Vec::new();
    while let Some(lane) = lanes.join_next().await {
        sent.extend(lane.unwrap());
    }
    sent
}

/// One connection of a merchant.
struct Lane {
    caller: Caller,
    merchant: &'static Merchant,
    gateway: SocketAddr,
    every: Duration,
    first: Duration,
}

impl Lane {
    async fn go_on(self) -> Vec<Sent> {
        let mut sent = Vec::new();
        let mut connection = None;
        let mut due = Instant::now() + self.first;
        let mut number = 0;
        while due < self.caller.until {
            tokio::time::sleep_until(due.into()).await;
            if self.merchant.habit != Habit::Batch || self.is_batch_time() {
                let status = self
                    .ask(&mut connection, Endpoint::of_request(number))
                    .await;
                number += 1;
                sent.push(Sent {
                    merchant: self.merchant.id,
                    phase: self.caller.phase,
                    took: due.elapsed(),
                    status,
                });
            }
            due += self.every;
        }
        sent
    }

    /// Whether the boundary of the minute is near.
    fn is_batch_time(&self) -> bool {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let every_us = self.caller.batch_every.as_micros();
        let behind_us = since.as_micros() % every_us;
        let around_us = BATCH_AROUND.as_micros().min(every_us / 4);
        behind_us < around_us || behind_us >= every_us - around_us
    }

    async fn ask(
        &self,
        connection: &mut Option<SendRequest<Empty<Bytes>>>,
        endpoint: Endpoint,
    ) -> Option<StatusCode> {
        let mut open = match connection.take() {
            Some(open) => open,
            None => self.connect().await?,
        };
        let (method, path) = endpoint.request();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "payments.example")
            .header("x-api-key", self.merchant.key())
            .body(Empty::new())
            .ok()?;
        let answer = open.send_request(request).await.ok()?;
        let status = answer.status();
        answer.into_body().collect().await.ok()?;
        open.ready().await.ok()?;
        *connection = Some(open);
        Some(status)
    }

    async fn connect(&self) -> Option<SendRequest<Empty<Bytes>>> {
        let stream = TcpStream::connect(self.gateway).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let (open, driver) = handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(driver);
        Some(open)
    }
}
