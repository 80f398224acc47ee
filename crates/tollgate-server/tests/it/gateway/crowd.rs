//! Very many clients: connections that come at once, wait, are not read, or send slowly. The slow ones are closed, and good clients
//! are served meanwhile as well as without them.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tollgate_testing::client::{connect_from, request};
use tollgate_testing::upstream::{RawUpstream, read_head};
use tollgate_testing::wait::until;
use tollgate_testing::{Response, Running, TIMEOUT, Upstream};

use crate::kit;

const SLOW: u64 = 10_000;
const THREADS: u64 = 8;

/// How many good requests are timed with the slow clients connected, and how many without.
const GOOD: usize = 400;

/// How many times longer a good request may take than without slow clients. It is large because the machine may be busy with other
/// tests; a client that had to wait for slow ones would wait thousands of times as long.
const MAX_SLOWDOWN: u32 = 10;

/// Maximum duration of a good request. It is a tenth of the timeout of slow clients: a request that had to wait for one of them would
/// wait for all of that.
const MAX_DURATION: Duration = Duration::from_millis(2_500);

/// Minimum number of good requests that are timed while slow clients are closed.
const MIN_SAMPLES: usize = 20;

/// How long the machine itself may stand still. One such moment outweighs many requests of a fraction of a millisecond.
const HICCUP: Duration = Duration::from_millis(250);

const OPEN: &str = "tollgate_gateway_connections_open";
const REAPED: &str = "tollgate_gateway_connections_closed_early_total{reason=\"head_timeout\"}";

/// Clients that have begun to send a head, and continue with a byte now and then.
struct SlowClients {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<TcpStream>>>,
}

impl SlowClients {
    /// Connects from several threads, so that all are there before the first are closed, also on a busy machine.
    fn connect(address: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let threads = (0..THREADS)
            .map(|_| {
                let is_over = Arc::clone(&is_over);
                std::thread::spawn(move || {
                    let clients = (0..SLOW / THREADS).map(|_| slow_client(address)).collect();
                    continue_slowly(clients, &is_over)
                })
            })
            .collect();
        Self { is_over, threads }
    }

    /// Stops them, and counts those that the gateway closed.
    fn closed(self) -> u64 {
        self.is_over.store(true, Relaxed);
        let clients = (self.threads.into_iter()).flat_map(|thread| thread.join().unwrap());
        let closed = clients.filter(|mut stream| {
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            // There is no response, only an end or a reset.
            match stream.read(&mut [0]) {
                Ok(read) => read == 0,
                Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        });
        closed.count() as u64
    }
}

fn slow_client(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let beginning = b"GET / HTTP/1.1\r\nHost: a\r\nX-";
    stream.write_all(beginning).unwrap();
    stream
}

/// Sends about a byte a second on each connection, as attackers do that want to hold it for long.
fn continue_slowly(mut clients: Vec<TcpStream>, is_over: &AtomicBool) -> Vec<TcpStream> {
    while !is_over.load(Relaxed) {
        for client in &mut clients {
            // The gateway may have closed it.
            let _ = client.write_all(b"x");
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    clients
}

/// Good clients: one that keeps its connection, and others that connect for each request.
struct GoodClients {
    gateway: SocketAddr,
    kept: TcpStream,
    served: usize,
}

impl GoodClients {
    fn new(gateway: SocketAddr) -> Self {
        let kept = connect_from(Ipv4Addr::LOCALHOST.into(), gateway).unwrap();
        kept.set_nodelay(true).unwrap();
        Self {
            gateway,
            kept,
            served: 0,
        }
    }

    /// Sends a request in both ways, which must succeed, and returns how long that took.
    fn request(&mut self) -> Duration {
        let began = Instant::now();
        let response = request(self.gateway, "GET", "/", &[], "").unwrap();
        assert_eq!(response.status, 200);
        self.request_on_kept();
        self.served += 2;
        began.elapsed()
    }

    fn request_on_kept(&mut self) {
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        self.kept.write_all(request).unwrap();
        let mut received = Vec::new();
        let response = loop {
            let mut part = [0; 1_024];
            let read = self.kept.read(&mut part).unwrap();
            assert!(read > 0, "the connection of a good client was closed");
            received.extend(&part[..read]);
            if let Some((response, _)) = Response::parse(&received, false) {
                break response;
            }
        };
        assert_eq!((response.status, &*response.text()), (200, "hello"));
    }

    /// Sends many requests, each after a look at the metrics, as while slow clients are closed.
    fn request_often(&mut self, running: &Running) -> Vec<Duration> {
        let request = |_| {
            let _ = running.count(REAPED);
            self.request()
        };
        (0..GOOD / 2).map(request).collect()
    }
}

/// The duration within which this share of requests was served.
fn percentile(mut times: Vec<Duration>, percent: usize) -> Duration {
    times.sort();
    times[times.len() * percent / 100]
}

/// The duration at which half of all the time was spent: what a client meets that comes at any moment. A long wait is only one of
/// many requests, but the larger part of the time.
fn at_any_moment(mut times: Vec<Duration>) -> Duration {
    times.sort();
    let half = times.iter().sum::<Duration>() / 2;
    let mut spent = Duration::ZERO;
    let reaches_half = |time: &Duration| {
        spent += *time;
        spent >= half
    };
    times.into_iter().find(reaches_half).unwrap_or_default()
}

/// More at once than a worker accepts at once. A program that does not run at all for a moment is the worst case.
#[test]
fn a_thousand_connections_at_once_are_all_accepted() {
    const CROWD: usize = 1_000;
    let upstream = Upstream::start();
    let running = kit::serve(&format!(
        "
gateway:
  listen: 127.0.0.1:0
  upstreams: [{{ to: \"{}\" }}]
  connections_per_address: 0
rules: [{{ id: everyone, per: [], limit: \"1000000/s\" }}]
",
        upstream.url()
    ));
    let gateway = running.address("gateway");
    running.signal("STOP");
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| {
            // A refused client retries after a second, then two, then four, and cannot succeed before this is over.
            let client = TcpStream::connect_timeout(&gateway, Duration::from_secs(10));
            let mut client = client.unwrap_or_else(|error| {
                running.signal("CONT");
                panic!("refused: {error}")
            });
            let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            client.write_all(request).unwrap();
            client
        })
        .collect();
    running.signal("CONT");
    for mut client in crowd {
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut response = String::new();
        client.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    }
    assert_eq!(upstream.hits(), CROWD);
}

/// Resident memory of a process in bytes.
fn resident(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kilobytes.unwrap().parse::<usize>().unwrap() * 1_024
}

#[test]
fn an_idle_connection_takes_little_memory() {
    const IDLE: usize = 2_000;
    /// It is about 5,000. With room for all that HTTP/2 and TLS need, it was 20,000.
    const MAX_BYTES: usize = 10_000;
    let upstream = Upstream::start();
    let running = kit::serve(&format!(
        "
gateway:
  listen: 127.0.0.1:0
  workers: 1
  upstreams: [{{ to: \"{}\" }}]
  connections_per_address: 0
  idle_timeout: 10m
rules: [{{ id: everyone, per: [], limit: \"1000000/s\" }}]
",
        upstream.url()
    ));
    let gateway = running.address("gateway");
    let connect = |_| {
        let mut client = GoodClients::new(gateway);
        client.request_on_kept();
        client
    };
    // Memory that is taken once, by whatever connection comes first.
    let _first: Vec<_> = (0..IDLE / 10).map(connect).collect();
    let before = resident(running.pid());
    let mut idle: Vec<_> = (0..IDLE).map(connect).collect();
    let each = resident(running.pid()).saturating_sub(before) / IDLE;
    // All of them are still open.
    idle.iter_mut().for_each(GoodClients::request_on_kept);
    assert!(each < MAX_BYTES, "{each} bytes for each connection");
}

/// An upstream whose responses never end. It reports once for each response that is no longer read.
fn endless(stuck: mpsc::Sender<()>) -> RawUpstream {
    const PART: &[u8] = &[7; 65_536];
    RawUpstream::start(move |mut stream, _| {
        let stuck = stuck.clone();
        async move {
            let _ = read_head(&mut stream).await;
            let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n";
            stream.write_all(head).await.unwrap();
            let mut write = async || {
                let written = tokio::time::timeout(Duration::from_secs(1), stream.write(PART));
                matches!(written.await, Ok(Ok(_)))
            };
            while write().await {}
            let _ = stuck.send(());
            // It stays open until the gateway closes it.
            let _ = stream.read(&mut [0]).await;
        }
    })
}

#[test]
fn a_response_that_nobody_reads_takes_little_memory() {
    const READERS: usize = 100;
    /// It is about 150,000. With the buffers that hyper has by default, it was 620,000.
    const MAX_BYTES: usize = 300_000;
    let (sender, stuck) = mpsc::channel();
    let upstream = endless(sender);
    let running = kit::serve(&format!(
        "
gateway:
  listen: 127.0.0.1:0
  workers: 1
  upstreams: [{{ to: \"http://{}\" }}]
rules: [{{ id: everyone, per: [], limit: \"1000000/s\" }}]
",
        upstream.address
    ));
    let gateway = running.address("gateway");
    let before = resident(running.pid());
    let readers: Vec<TcpStream> = (0..READERS)
        .map(|_| {
            let mut reader = TcpStream::connect(gateway).unwrap();
            let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
            reader.write_all(request).unwrap();
            reader.read_exact(&mut [0; 1_024]).unwrap();
            reader
        })
        .collect();
    for _ in 0..READERS {
        stuck.recv_timeout(TIMEOUT).unwrap();
    }
    let each = resident(running.pid()).saturating_sub(before) / READERS;
    drop(readers);
    assert!(each < MAX_BYTES, "{each} bytes for each response");
}

/// The gateway is a process of its own, so that each side has the file descriptors of its end of the connections.
#[test]
fn ten_thousand_slow_callers_are_reaped_without_delaying_others() {
    let upstream = Upstream::start();
    let running = kit::serve(&format!(
        "
gateway:
  listen: 127.0.0.1:0
  upstreams: [{{ to: \"{}\" }}]
  max_connections: 20000
  connections_per_address: 0
  head_timeout: 25s
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json }}
rules: [{{ id: everyone, per: [], limit: \"1000000/s\" }}]
",
        upstream.url()
    ));
    let gateway = running.address("gateway");
    let mut good = GoodClients::new(gateway);
    good.request_often(&running);
    let mut without = good.request_often(&running);

    let slow = SlowClients::connect(gateway);
    until("all slow clients", || running.count(OPEN) > SLOW);
    let with = good.request_often(&running);
    assert_eq!(
        running.count(REAPED),
        0,
        "all stayed connected meanwhile; if not, head_timeout is too short for this machine"
    );

    // Good clients are served while slow ones are closed, and send as often as they can from the first of them to the last.
    let (mut between, mut meanwhile) = (Vec::new(), Vec::new());
    loop {
        match running.count(REAPED) {
            0 => {
                between.push(good.request());
                // Leaves the machine to the gateway and the slow clients.
                std::thread::sleep(Duration::from_millis(20));
            }
            SLOW.. => break,
            _ => meanwhile.push(good.request()),
        }
    }
    assert_eq!(slow.closed(), SLOW, "all were closed by the gateway");
    assert_eq!(running.count(REAPED), SLOW, "and no others");
    // Before and after, because other programs may use the machine in between.
    without.extend(good.request_often(&running));
    assert_eq!(upstream.hits(), good.served, "every good request, once");

    let all = [&with[..], &between, &meanwhile].concat();
    let longest = all.into_iter().max();
    assert!(
        longest < Some(MAX_DURATION),
        "a good client waited for {longest:?}"
    );
    compare("connected", &with, &without);
    compare("being closed", &meanwhile, &without);
    let (alone, closing) = (at_any_moment(without), at_any_moment(meanwhile));
    assert!(
        closing < (alone * MAX_SLOWDOWN).max(HICCUP),
        "a client that comes while slow ones are closed waits for {closing:?}, without them for {alone:?}"
    );
}

/// Checks that good clients were served about as well as without slow ones.
fn compare(slow_clients: &str, times: &[Duration], without: &[Duration]) {
    assert!(
        times.len() >= MIN_SAMPLES,
        "{} with slow clients {slow_clients}",
        times.len()
    );
    for percent in [50, 90] {
        let (without, with) = (
            percentile(without.to_vec(), percent),
            percentile(times.to_vec(), percent),
        );
        let _ = writeln!(
            std::io::stderr(),
            "{percent} % of good requests: {without:?} without slow clients, {with:?} with {SLOW} {slow_clients}"
        );
        assert!(
            with < without * MAX_SLOWDOWN,
            "{percent} % of good requests took {with:?} with slow clients {slow_clients}, {without:?} without"
        );
    }
}
