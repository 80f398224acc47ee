//! Ten thousand callers who take their time, at the real program: all of them are ended by us, and good callers are served meanwhile as well as without them.
//!
//! The gateway is a process of its own, so that each side has its end of the connections as files of its own.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::served::Upstream;
use crate::serving::{PATIENCE, Serving, ask, until};

const SLOW: usize = 10_000;
const THREADS: usize = 8;

/// How many good requests are timed with the slow callers there, and how many without.
const GOOD: usize = 400;

/// How much longer a good request may take than without the slow callers. The machine may be busy with other tests, so it is much; who had to wait for
/// slow callers would wait thousands of times as long.
const MOST_TIMES_AS_LONG: u32 = 10;

/// So long may no good request take. It is a tenth of what slow callers have: who had to wait for one of them would wait for all of that.
const LONGEST: Duration = Duration::from_millis(2_500);

/// So many good requests are timed at least while slow callers are ended.
const FEWEST: usize = 20;

/// So long may the machine itself stand still: where all else takes a fraction of a millisecond, one such moment is the larger part of the time.
const HICCUP: Duration = Duration::from_millis(250);

const OPEN: &str = "tollgate_gateway_connections_open";
const REAPED: &str = "tollgate_gateway_connections_closed_early_total{reason=\"head_timeout\"}";

fn figure(serving: &Serving, name: &str) -> usize {
    let text = serving.get("admin", "/metrics", &[]).body;
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = value.unwrap_or_else(|| panic!("{name} is not among\n{text}"));
    value.parse().unwrap()
}

/// Callers who have begun to say a head, and go on with a byte now and then.
struct SlowCallers {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<TcpStream>>>,
}

impl SlowCallers {
    /// They come from several threads, so that all are there before the first have to go, also if the machine is busy.
    fn connect(address: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let threads = (0..THREADS)
            .map(|_| {
                let until = Arc::clone(&is_over);
                std::thread::spawn(move || {
                    let callers = (0..SLOW / THREADS).map(|_| slow_caller(address)).collect();
                    go_on_slowly(callers, &until)
                })
            })
            .collect();
        Self { is_over, threads }
    }

    /// Stops them, and counts those who were hung up on.
    fn hung_up_on(self) -> usize {
        self.is_over.store(true, Relaxed);
        let callers = (self.threads.into_iter()).flat_map(|thread| thread.join().unwrap());
        let ended = callers.filter(|mut stream| {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            // Cut off: there is no answer, only an end or a reset.
            match stream.read(&mut [0]) {
                Ok(read) => read == 0,
                Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        });
        ended.count()
    }
}

fn slow_caller(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let beginning = b"GET / HTTP/1.1\r\nHost: a\r\nX-";
    stream.write_all(beginning).unwrap();
    stream
}

/// About a byte a second each, as those do who want to hold a place for long.
fn go_on_slowly(mut callers: Vec<TcpStream>, until: &AtomicBool) -> Vec<TcpStream> {
    while !until.load(Relaxed) {
        for caller in &mut callers {
            // It may have been ended meanwhile.
            let _ = caller.write_all(b"x");
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    callers
}

/// Good callers: one who keeps its connection, and others who come anew for each request.
struct GoodCallers {
    gateway: SocketAddr,
    kept: TcpStream,
    served: usize,
}

impl GoodCallers {
    fn new(gateway: SocketAddr) -> Self {
        let kept = TcpStream::connect(gateway).unwrap();
        kept.set_read_timeout(Some(PATIENCE)).unwrap();
        kept.set_nodelay(true).unwrap();
        Self {
            gateway,
            kept,
            served: 0,
        }
    }

    /// Both ask once, and must be served; says how long that took.
    fn ask(&mut self) -> Duration {
        let began = Instant::now();
        assert_eq!(ask(self.gateway, "GET", "/", &[]).unwrap().status, 200);
        self.ask_on_kept();
        self.served += 2;
        began.elapsed()
    }

    fn ask_on_kept(&mut self) {
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        self.kept.write_all(request).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"reached") {
            let mut some = [0; 1_024];
            let read = self.kept.read(&mut some).unwrap();
            assert!(read > 0, "the connection of a good caller was ended");
            answer.extend(&some[..read]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 "));
    }

    /// Each time after a look at the figures, as while slow callers are ended.
    fn ask_often(&mut self, serving: &Serving) -> Vec<Duration> {
        let ask = |_| {
            figure(serving, REAPED);
            self.ask()
        };
        (0..GOOD / 2).map(ask).collect()
    }
}

/// The time within which so many of a hundred were served.
fn percentile(mut times: Vec<Duration>, percent: usize) -> Duration {
    times.sort();
    times[times.len() * percent / 100]
}

/// What somebody meets who comes at any moment: half of all the time went to requests that took no longer. A long wait is but one of many requests, and the
/// larger part of the time.
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

/// More at once than a worker lets in at once: a program that does not run at all for a moment is the worst of such moments.
#[test]
fn a_crowd_that_comes_at_once_waits_to_be_let_in_and_nobody_is_turned_away() {
    const CROWD: usize = 1_000;
    let upstream = Upstream::start();
    let serving = Serving::by(&format!(
        "
gateway:
  listen: 127.0.0.1:0
  upstreams: [{{ to: \"http://{}\" }}]
  connections_per_address: 0
rules: [{{ id: everyone, per: [], limit: \"1000000/s\" }}]
",
        upstream.address
    ));
    let gateway = serving.address("gateway");
    serving.signal("STOP");
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| {
            // Who is turned away tries again after a second, then two, then four, and has no success before this is over.
            let caller = TcpStream::connect_timeout(&gateway, Duration::from_secs(10));
            let mut caller = caller.unwrap_or_else(|error| {
                serving.signal("CONT");
                panic!("turned away: {error}")
            });
            let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            caller.write_all(request).unwrap();
            caller
        })
        .collect();
    serving.signal("CONT");
    for mut caller in crowd {
        caller.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = String::new();
        caller.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    assert_eq!(upstream.hits(), CROWD);
}

/// Memory that a process has, in bytes.
fn resident(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kilobytes.unwrap().parse::<usize>().unwrap() * 1_024
}

#[test]
fn a_connection_that_waits_for_its_next_request_takes_little_memory() {
    const WAITING: usize = 2_000;
    /// It is about 5,000. With room for all that HTTP/2 and TLS need, it was 20,000.
    const MOST_BYTES: usize = 10_000;
    let upstream = Upstream::start();
    let serving = Serving::by(&format!(
        "
gateway:
  listen: 127.0.0.1:0
  workers: 1
  upstreams: [{{ to: \"http://{}\" }}]
  connections_per_address: 0
  idle_timeout: 10m
rules: [{{ id: everyone, per: [], limit: \"1000000/s\" }}]
",
        upstream.address
    ));
    let gateway = serving.address("gateway");
    let connect = |_| {
        let mut caller = GoodCallers::new(gateway);
        caller.ask_on_kept();
        caller
    };
    // What is there once, whoever comes.
    let _first: Vec<_> = (0..WAITING / 10).map(connect).collect();
    let before = resident(serving.pid());
    let mut waiting: Vec<_> = (0..WAITING).map(connect).collect();
    let each = resident(serving.pid()).saturating_sub(before) / WAITING;
    // All of them were there.
    waiting.iter_mut().for_each(GoodCallers::ask_on_kept);
    assert!(each < MOST_BYTES, "{each} bytes for each connection");
}

/// A server whose responses never end. It says so once when one is not read any more.
fn endless(is_stuck: std::sync::mpsc::Sender<()>) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, is_stuck) = (stream.unwrap(), is_stuck.clone());
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4_096]);
                let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n";
                stream.write_all(head).unwrap();
                stream
                    .set_write_timeout(Some(Duration::from_secs(1)))
                    .unwrap();
                while stream.write(&[7; 65_536]).is_ok() {}
                let _ = is_stuck.send(());
                // It stays open until the other side has gone.
                let _ = stream.read(&mut [0]);
            });
        }
    });
    address
}

#[test]
fn a_response_that_nobody_reads_takes_little_memory() {
    const READERS: usize = 100;
    /// It is about 150,000. With the buffers that hyper has by default, it was 620,000.
    const MOST_BYTES: usize = 300_000;
    let (tell, stuck) = std::sync::mpsc::channel();
    let upstream = endless(tell);
    let serving = Serving::by(&format!(
        "
gateway:
  listen: 127.0.0.1:0
  workers: 1
  upstreams: [{{ to: \"http://{upstream}\" }}]
rules: [{{ id: everyone, per: [], limit: \"1000000/s\" }}]
"
    ));
    let gateway = serving.address("gateway");
    let before = resident(serving.pid());
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
        stuck.recv_timeout(PATIENCE).unwrap();
    }
    let each = resident(serving.pid()).saturating_sub(before) / READERS;
    drop(readers);
    assert!(each < MOST_BYTES, "{each} bytes for each response");
}

#[test]
fn ten_thousand_slow_callers_are_reaped_and_good_ones_wait_no_longer_for_it() {
    let upstream = Upstream::start();
    let serving = Serving::by(&format!(
        "
gateway:
  listen: 127.0.0.1:0
  upstreams: [{{ to: \"http://{}\" }}]
  max_connections: 20000
  connections_per_address: 0
  head_timeout: 25s
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json }}
rules: [{{ id: everyone, per: [], limit: \"1000000/s\" }}]
",
        upstream.address
    ));
    let gateway = serving.address("gateway");
    let mut good = GoodCallers::new(gateway);
    good.ask_often(&serving);
    let mut without = good.ask_often(&serving);

    let slow = SlowCallers::connect(gateway);
    until(
        "all slow callers",
        || figure(&serving, OPEN),
        |open| *open > SLOW,
    );
    let with = good.ask_often(&serving);
    assert_eq!(
        figure(&serving, REAPED),
        0,
        "all were there meanwhile; if not, head_timeout is too short for this machine"
    );

    // Good callers are served while the slow ones are ended, too, and are asked as often as can be from the first to the last of them.
    let (mut between, mut meanwhile) = (Vec::new(), Vec::new());
    loop {
        match figure(&serving, REAPED) {
            0 => {
                between.push(good.ask());
                // Others need the machine, too.
                std::thread::sleep(Duration::from_millis(20));
            }
            SLOW.. => break,
            _ => meanwhile.push(good.ask()),
        }
    }
    assert_eq!(slow.hung_up_on(), SLOW, "all were ended by us");
    assert_eq!(figure(&serving, REAPED), SLOW, "and nobody else was");
    // Twice, before and after, as others may use the machine in between.
    without.extend(good.ask_often(&serving));
    assert_eq!(upstream.hits(), good.served, "every good request, once");

    let all = [&with[..], &between, &meanwhile].concat();
    let longest = all.into_iter().max();
    assert!(
        longest < Some(LONGEST),
        "a good caller waited for {longest:?}"
    );
    judge("there", &with, &without);
    judge("on their way out", &meanwhile, &without);
    let (alone, ending) = (at_any_moment(without), at_any_moment(meanwhile));
    assert!(
        ending < (alone * MOST_TIMES_AS_LONG).max(HICCUP),
        "who comes while slow ones are ended waits for {ending:?}, without them for {alone:?}"
    );
}

/// Whether good callers were served about as well as without slow ones.
fn judge(slow_ones: &str, times: &[Duration], without: &[Duration]) {
    assert!(times.len() >= FEWEST, "{} with {slow_ones}", times.len());
    for percent in [50, 90] {
        let (without, with) = (
            percentile(without.to_vec(), percent),
            percentile(times.to_vec(), percent),
        );
        let _ = writeln!(
            std::io::stderr(),
            "{percent} % of good callers: {without:?} without slow ones, {with:?} with {SLOW} {slow_ones}"
        );
        assert!(
            with < without * MOST_TIMES_AS_LONG,
            "{percent} % of good callers were served in {with:?} with slow ones {slow_ones}, in {without:?} without"
        );
    }
}
