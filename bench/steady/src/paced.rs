//! Paced load: a fixed number of requests per second, sent when they are due.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Result;
use crate::load::{LIMITED_EVERY, Load, percentile};
use crate::upstream::SENT_HEADER;

const CONNECTIONS: u32 = 32;
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longest response. Those of gateway and upstream are far shorter.
const MAX_RESPONSE: usize = 16 * 1024;

/// A load that runs until it is stopped, on a thread of its own.
#[derive(Debug)]
pub(crate) struct PacedLoad {
    is_stopped: Arc<AtomicBool>,
    started: Instant,
    thread: JoinHandle<Result<Vec<Sent>>>,
}

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// From when it was due, so that a late request counts as a slow one.
    latency: Duration,
    /// `None` without a response.
    status: Option<u16>,
}

impl PacedLoad {
    pub(crate) fn start(address: SocketAddr, per_second: u32) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_stopped);
        Self {
            is_stopped,
            started: Instant::now(),
            thread: std::thread::spawn(move || run(address, per_second, &stop)),
        }
    }

    /// Ends the load and waits for the last responses.
    pub(crate) fn stop(self) -> Result<Load> {
        self.is_stopped.store(true, Ordering::Relaxed);
        let length = self.started.elapsed();
        let sent = self.thread.join();
        let sent = sent.map_err(|_| "the load generator panicked")??;
        let mut latencies: Vec<_> = sent.iter().map(|sent| sent.latency).collect();
        latencies.sort_unstable();
        let count = |is_counted: fn(&&Sent) -> bool| sent.iter().filter(is_counted).count();
        let not_ok = count(|sent| sent.status.is_some_and(|status| status != 200));
        let failed = count(|sent| sent.status.is_none());
        Ok(Load {
            requests: u64::try_from(sent.len())?,
            not_ok: u64::try_from(not_ok)?,
            failed: u64::try_from(failed)?,
            length,
            p50: percentile(&latencies, 50),
            p99: percentile(&latencies, 99),
            max: latencies.last().copied(),
        })
    }
}

/// Runs all connections on one thread, to take little of the machine.
fn run(address: SocketAddr, per_second: u32, is_stopped: &Arc<AtomicBool>) -> Result<Vec<Sent>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let start = Instant::now();
        let lanes: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                let lane = Lane {
                    address,
                    first: start + Duration::from_secs(1) * number / per_second,
                    every: Duration::from_secs(1) * CONNECTIONS / per_second,
                    number: u64::from(number),
                    is_stopped: Arc::clone(is_stopped),
                };
                tokio::spawn(lane.run())
            })
            .collect();
        let mut sent = Vec::new();
        for lane in lanes {
            sent.extend(lane.await?);
        }
        Ok(sent)
    })
}

/// One connection and its share of the requests.
struct Lane {
    address: SocketAddr,
    first: Instant,
    every: Duration,
    /// Number of the next request among those of all lanes.
    number: u64,
    is_stopped: Arc<AtomicBool>,
}

impl Lane {
    async fn run(mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        let mut connection = None;
        let mut due = self.first;
        while !self.is_stopped.load(Ordering::Relaxed) {
            tokio::time::sleep_until(due.into()).await;
            let exchange = exchange(self.address, &mut connection, self.number);
            let status = tokio::time::timeout(TIMEOUT, exchange).await;
            let status = status.ok().and_then(Result::ok);
            if status.is_none() {
                connection = None;
            }
            sent.push(Sent {
                latency: due.elapsed(),
                status,
            });
            due += self.every;
            self.number += u64::from(CONNECTIONS);
        }
        sent
    }
}

/// Sends a request and reads its response, on the connection or on a new one. Returns the status.
async fn exchange(
    address: SocketAddr,
    connection: &mut Option<TcpStream>,
    number: u64,
) -> Result<u16> {
    let stream = match connection {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            connection.insert(stream)
        }
    };
    stream.write_all(request(number).as_bytes()).await?;
    let mut response = Vec::with_capacity(1024);
    loop {
        if let Some(status) = complete_response(&response)? {
            return Ok(status);
        }
        let is_closed = stream.read_buf(&mut response).await? == 0;
        if is_closed || response.len() > MAX_RESPONSE {
            return Err("no complete response".into());
        }
    }
}

fn request(number: u64) -> String {
    if !number.is_multiple_of(LIMITED_EVERY) {
        return format!(
            "GET /open/{} HTTP/1.1\r\nHost: steady.example\r\n\r\n",
            number % 8
        );
    }
    let sent_us = now_us();
    format!("GET /limited HTTP/1.1\r\nHost: steady.example\r\n{SENT_HEADER}: {sent_us}\r\n\r\n")
}

/// Microseconds since 1970, of the clock that the upstream's log uses.
pub(crate) fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}

/// The status, once head and body are there.
fn complete_response(bytes: &[u8]) -> Result<Option<u16>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) = response.parse(bytes)? else {
        return Ok(None);
    };
    let length = (response.headers.iter())
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .ok_or("a response without a length")?;
    let length: usize = std::str::from_utf8(length.value)?.parse()?;
    match bytes.len() >= head + length {
        true => Ok(response.code),
        false => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_is_complete_with_its_body() {
        let response = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 3\r\n\r\nno\n";
        assert_eq!(complete_response(response).unwrap(), Some(429));
        for cut in [0, 10, response.len() - 1] {
            assert_eq!(complete_response(&response[..cut]).unwrap(), None);
        }
        assert!(complete_response(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }

    #[test]
    fn one_request_in_five_is_limited() {
        let limited = (0..1_000).filter(|number| request(*number).contains("/limited"));
        assert_eq!(limited.count(), 200);
        assert!(request(5).contains("X-Sent: "));
        assert!(request(9).starts_with("GET /open/1 "));
    }
}
