//! `make bench-redis`: checks in Redis beside the script that everybody writes, in one run on one server.
//!
//! Every figure is a ratio of two measurements taken in turns, so that a noisy machine slows both. The server, the
//! callers and what drives them share this machine's cores. How it was measured and what came out: bench/README.md.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a program that measures and prints"
)]

use std::future::Future;
use std::io::{IsTerminal as _, stderr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _};
use tokio::runtime::{Builder, Runtime};
use tollgate::store::contract::{Charge, StoreOperations as _};
use tollgate::store::{RedisConfig, RedisStore};
use tollgate::{Bucket, Dimension, Limit, Limiter, Name, Request, Source};
use tollgate_testing::ports::free_port;
use tollgate_testing::servers::{RedisAddress, RedisServer};

const WORKERS: usize = 2;
const CALLERS: u32 = 256;
const CLIENTS: u32 = 100_000;
/// Many short ones rather than few long ones: a neighbour on the same host then slows both sides of a ratio, not one.
const ROUNDS: usize = 25;
/// Three tiers cost the usual script three calls: fewer requests, so that a round takes about as long.
const CHECKS_ONE_TIER: u32 = 25_600;
const CHECKS_THREE_TIERS: u32 = 12_800;

const STEADY_RATE: u32 = 15_000;
/// Turns are short and many: a p99 on a machine with neighbours moves by half from second to second, and two turns that follow each
/// other mostly have the same neighbours.
const STEADY_SPAN: Duration = Duration::from_millis(200);
/// Half of them on a server that has nothing else to keep, half when it has all that the other parts leave.
const STEADY_ROUNDS: usize = 240;

const DENIAL_CHECKS: u32 = 256_000;
const DENIED_CLIENTS: u32 = 1_000;
/// One check in so many has room; the others are denied.
const ADMITTED_EVERY: u32 = 100;

const ROUTE: &str = "/v1/charges/{id}";
/// Slow enough that every key stays live, and deep enough that traffic is admitted, as most traffic is.
const CLIENT_LIMIT: &str = "36/h burst 1000000";
const CLIENT_FIGURES: [&str; 2] = ["0.01", "1000000"];
const EVERYBODY_LIMIT: &str = "10000000/s burst 100000000";
const EVERYBODY_FIGURES: [&str; 2] = ["10000000", "100000000"];

/// What is usually written: KEYS[1] the bucket; ARGV tokens per second, capacity, cost.
const USUAL_SCRIPT: &str = "
local rate = tonumber(ARGV[1])
local capacity = tonumber(ARGV[2])
local cost = tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'timestamp')
local tokens = tonumber(bucket[1]) or capacity
local timestamp = tonumber(bucket[2]) or now
tokens = math.min(capacity, tokens + math.max(0, now - timestamp) * rate)
local allowed = tokens >= cost
if allowed then
  tokens = tokens - cost
end
redis.call('HMSET', KEYS[1], 'tokens', tokens, 'timestamp', now)
redis.call('EXPIRE', KEYS[1], math.ceil(capacity / rate) * 2)
return { allowed and 1 or 0, math.floor(tokens) }
";

fn main() {
    let server = Server::start();
    let runtime = Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .unwrap();
    let bench = Bench {
        watch: runtime.block_on(server.connect()),
        runtime,
    };
    println!("{CALLERS} callers, {CLIENTS} clients, median of {ROUNDS} rounds in turns\n");

    let usual = bench.runtime.block_on(Usual::open(&server));
    let mut steady = bench.steady(&server, &usual);
    let (one, three) = bench.throughput(&server, &usual);
    let deny_calls = bench.deny_calls(&server);
    let steady_later = bench.steady(&server, &usual);
    done_waiting();
    let halves = [steady.p99_ratio(), steady_later.p99_ratio()];
    steady.add(steady_later);

    println!(
        "{:28} {:>12} {:>12} {:>8} {:>12} {:>12} {:>8}",
        "", "usual /s", "tollgate /s", "ratio", "usual CPU µs", "tollgate µs", "ratio"
    );
    for (tiers, pair) in [("one tier", &one), ("three tiers", &three)] {
        let (speed, cpu) = (pair.speed(), pair.cpu());
        println!(
            "{tiers:28} {:12.0} {:12.0} {:8.2} {:12.2} {:12.2} {:8.3}",
            speed.usual, speed.tollgate, speed.ratio, cpu.usual, cpu.tollgate, cpu.ratio
        );
    }
    println!("(CPU: of redis-server, per request)\n");
    println!(
        "{:28} {:>12} {:>12}",
        format!("at a steady {STEADY_RATE}/s"),
        "p50 µs",
        "p99 µs"
    );
    for (what, latency) in [
        ("no call (the pacing itself)", &steady.nothings),
        ("a bare GET", &steady.gets),
        ("tollgate, one tier", &steady.ours),
    ] {
        let latency = middle(latency);
        println!("{what:28} {:12.0} {:12.0}", latency.p50, latency.p99);
    }
    println!(
        "(p99 beside a GET: {:.2} before all the others, {:.2} after them)",
        halves[0], halves[1]
    );
    println!("\n99 % of {DENIAL_CHECKS} checks denied: {deny_calls:.4} calls per denied check");
    println!(
        "redis: one_tier={:.2} three_tier={:.2} cpu={:.2} cpu3={:.2} deny_calls={deny_calls:.4} p99_vs_get={:.2} p99_us={:.0}",
        one.speed().ratio,
        three.speed().ratio,
        one.cpu().ratio,
        three.cpu().ratio,
        steady.p99_ratio(),
        middle(&steady.ours).p99
    );
}

/// Something that can be asked about a client: whether it was admitted.
trait Check: Clone + Send + 'static {
    fn check(&self, client: u32) -> impl Future<Output = Result<bool, String>> + Send;
}

#[derive(Clone, Copy)]
enum Tiers {
    One,
    /// Per client, per client and route, one for everybody.
    Three,
}

/// The usual script, a call per bucket.
#[derive(Clone)]
struct Usual {
    connection: MultiplexedConnection,
    digest: String,
    tiers: Tiers,
}

impl Usual {
    async fn open(server: &Server) -> Self {
        let mut connection = server.connect().await;
        let digest = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(USUAL_SCRIPT)
            .query_async(&mut connection)
            .await
            .unwrap();
        Self {
            connection,
            digest,
            tiers: Tiers::One,
        }
    }

    fn with(&self, tiers: Tiers) -> Self {
        Self {
            tiers,
            ..self.clone()
        }
    }

    fn call(&self, key: &str, figures: [&str; 2]) -> redis::Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.digest).arg(1).arg(key);
        command.arg(&figures).arg("1");
        command
    }
}

impl Check for Usual {
    async fn check(&self, client: u32) -> Result<bool, String> {
        let mut connection = self.connection.clone();
        let name = name(client);
        let per_client = self.call(&format!("ratelimit:client:{name}"), CLIENT_FIGURES);
        let answers: Vec<(i64, i64)> = match self.tiers {
            Tiers::One => per_client
                .query_async(&mut connection)
                .await
                .map(|one| vec![one]),
            Tiers::Three => {
                let per_route = format!("ratelimit:route:{name}:{ROUTE}");
                redis::pipe()
                    .add_command(per_client)
                    .add_command(self.call(&per_route, CLIENT_FIGURES))
                    .add_command(self.call("ratelimit:everybody", EVERYBODY_FIGURES))
                    .query_async(&mut connection)
                    .await
            }
        }
        .map_err(|error| error.to_string())?;
        Ok(answers.iter().all(|(allowed, _)| *allowed == 1))
    }
}

/// Tollgate, all buckets of a request in one `take`.
#[derive(Clone)]
struct Tollgate {
    store: RedisStore,
    rules: [Name; 3],
    client_limit: Limit,
    everybody_limit: Limit,
    tiers: Tiers,
}

impl Tollgate {
    /// Each has a prefix of its own, so that none finds what another left.
    fn open(server: &Server, prefix: &str, tiers: Tiers) -> Self {
        let config = RedisConfig::default()
            .prefix(prefix.to_owned())
            // What is measured is how long answers take, so all of them are waited for.
            .deadline(Duration::from_secs(5));
        Self {
            store: RedisStore::open(&server.url(), config).unwrap(),
            rules: ["client", "client-route", "everybody"].map(|id| Name::new(id).unwrap()),
            client_limit: CLIENT_LIMIT.parse().unwrap(),
            everybody_limit: EVERYBODY_LIMIT.parse().unwrap(),
            tiers,
        }
    }
}

impl Check for Tollgate {
    async fn check(&self, client: u32) -> Result<bool, String> {
        let name = name(client);
        let request = Request::new().client(&name).route(ROUTE);
        let charge = |rule, per, limit| Charge {
            bucket: Bucket::new(rule, per, &request),
            limit,
            cost: 1,
            shadow: false,
        };
        let [of_client, of_route, of_everybody] = self.rules;
        let charges = [
            charge(of_client, &[Dimension::Client], &self.client_limit),
            charge(
                of_route,
                &[Dimension::Client, Dimension::Route],
                &self.client_limit,
            ),
            charge(of_everybody, &[], &self.everybody_limit),
        ];
        let charges = match self.tiers {
            Tiers::One => &charges[..1],
            Tiers::Three => &charges[..],
        };
        let taken = self.store.take(charges).await;
        taken
            .map(|taken| taken.admitted)
            .map_err(|error| error.to_string())
    }
}

/// The least that can be asked of Redis.
#[derive(Clone)]
struct BareGet(MultiplexedConnection);

impl Check for BareGet {
    async fn check(&self, client: u32) -> Result<bool, String> {
        let mut connection = self.0.clone();
        let key = format!("bare:client:{}", name(client));
        let answer: Result<Option<String>, _> = redis::cmd("GET")
            .arg(key)
            .query_async(&mut connection)
            .await;
        answer.map(|_| true).map_err(|error| error.to_string())
    }
}

/// What pacing and recording alone take.
#[derive(Clone)]
struct Nothing;

impl Check for Nothing {
    async fn check(&self, _: u32) -> Result<bool, String> {
        Ok(true)
    }
}

/// Clients that are over their limit, but for one check in [`ADMITTED_EVERY`], which is somebody else's.
#[derive(Clone)]
struct MostlyDenied {
    /// Remembers denials, as a store does not.
    limiter: Arc<Limiter>,
    strict: Limit,
    generous: Limit,
}

impl MostlyDenied {
    fn open(server: &Server) -> Self {
        let Tollgate {
            store,
            client_limit,
            ..
        } = Tollgate::open(server, "denied", Tiers::One);
        Self {
            limiter: Arc::new(Limiter::new(store)),
            strict: "1/d burst 1".parse().unwrap(),
            generous: client_limit,
        }
    }

    async fn ask(&self, client: &str, limit: &Limit) -> Result<bool, String> {
        let decision = self.limiter.check(client, limit, 1).await;
        match decision.source() {
            Source::Store | Source::Remembered => Ok(decision.allowed()),
            other => Err(format!("decided without the store: {other:?}")),
        }
    }
}

impl Check for MostlyDenied {
    async fn check(&self, client: u32) -> Result<bool, String> {
        // Clients come at random, so these are as well.
        if client.is_multiple_of(ADMITTED_EVERY) {
            self.ask(&name(client), &self.generous).await
        } else {
            let over_its_limit = name(CLIENTS + client % DENIED_CLIENTS);
            self.ask(&over_its_limit, &self.strict).await
        }
    }
}

struct Bench {
    runtime: Runtime,
    /// For what the server says of itself.
    watch: MultiplexedConnection,
}

/// What a round came to.
#[derive(Clone, Copy)]
struct Round {
    per_second: f64,
    cpu_us: f64,
}

/// The rounds of two that were measured in turns.
#[derive(Default)]
struct Pair {
    rounds: Vec<(Round, Round)>,
}

struct Compared {
    usual: f64,
    tollgate: f64,
    ratio: f64,
}

impl Pair {
    fn speed(&self) -> Compared {
        self.compare(|round| round.per_second)
    }

    fn cpu(&self) -> Compared {
        self.compare(|round| round.cpu_us)
    }

    /// The round in the middle, by ratio.
    fn compare(&self, figure: impl Fn(&Round) -> f64) -> Compared {
        let mut all: Vec<Compared> = (self.rounds.iter())
            .map(|(usual, tollgate)| Compared {
                usual: figure(usual),
                tollgate: figure(tollgate),
                ratio: figure(tollgate) / figure(usual),
            })
            .collect();
        all.sort_by(|x, y| x.ratio.total_cmp(&y.ratio));
        all.swap_remove(self.rounds.len() / 2)
    }
}

#[derive(Clone, Copy)]
struct Latency {
    p50: f64,
    p99: f64,
}

/// By round, in turns.
#[derive(Default)]
struct Steady {
    nothings: Vec<Latency>,
    gets: Vec<Latency>,
    ours: Vec<Latency>,
}

impl Steady {
    /// Of two turns that follow each other: the middle of all rounds.
    fn p99_ratio(&self) -> f64 {
        let pairs = self.ours.iter().zip(&self.gets);
        median(pairs.map(|(ours, get)| ours.p99 / get.p99).collect())
    }

    fn add(&mut self, other: Self) {
        self.nothings.extend(other.nothings);
        self.gets.extend(other.gets);
        self.ours.extend(other.ours);
    }
}

impl Bench {
    /// As fast as they go: the usual script and Tollgate, with one tier and with three.
    fn throughput(&self, server: &Server, usual: &Usual) -> (Pair, Pair) {
        let usual_one = usual.with(Tiers::One);
        let usual_three = usual.with(Tiers::Three);
        let our_one = Tollgate::open(server, "one", Tiers::One);
        let our_three = Tollgate::open(server, "three", Tiers::Three);
        progress("filling the server");
        self.visit_every_client(&usual_three);
        self.visit_every_client(&our_one);
        self.visit_every_client(&our_three);
        let (mut one, mut three) = (Pair::default(), Pair::default());
        for round in 0..ROUNDS {
            progress(&format!("throughput, round {} of {ROUNDS}", round + 1));
            one.rounds.push((
                self.round(&usual_one, CHECKS_ONE_TIER),
                self.round(&our_one, CHECKS_ONE_TIER),
            ));
            three.rounds.push((
                self.round(&usual_three, CHECKS_THREE_TIERS),
                self.round(&our_three, CHECKS_THREE_TIERS),
            ));
        }
        (one, three)
    }

    fn round(&self, subject: &impl Check, checks: u32) -> Round {
        let cpu_before = self.server_cpu_us();
        let start = Instant::now();
        let denied = self.all_callers(subject, checks / CALLERS, |seed| {
            let mut random = Random::seeded(seed);
            move |_| random.below(CLIENTS)
        });
        let seconds = start.elapsed().as_secs_f64();
        let cpu_us = self.server_cpu_us() - cpu_before;
        assert_eq!(denied, 0, "there was room for all");
        Round {
            per_second: f64::from(checks) / seconds,
            cpu_us: cpu_us / f64::from(checks),
        }
    }

    fn visit_every_client(&self, subject: &impl Check) {
        self.all_callers(subject, CLIENTS.div_ceil(CALLERS), |caller| {
            move |i| (i * CALLERS + caller) % CLIENTS
        });
    }

    /// Every caller asks one thing after the other. How many checks were denied; any that failed ends the program.
    fn all_callers<Next>(
        &self,
        subject: &impl Check,
        checks_each: u32,
        clients_of: impl Fn(u32) -> Next,
    ) -> u32
    where
        Next: FnMut(u32) -> u32 + Send + 'static,
    {
        self.runtime.block_on(async {
            let callers: Vec<_> = (0..CALLERS)
                .map(|caller| {
                    let subject = subject.clone();
                    let mut next_client = clients_of(caller);
                    tokio::spawn(async move {
                        let mut tally = Tally::default();
                        for i in 0..checks_each {
                            tally.count(subject.check(next_client(i)).await);
                        }
                        tally
                    })
                })
                .collect();
            let mut all = Tally::default();
            for caller in callers {
                all.add(caller.await.unwrap());
            }
            all.denied_if_none_failed()
        })
    }

    /// Calls to the server per denied check, when nearly all checks are denied.
    fn deny_calls(&self, server: &Server) -> f64 {
        progress("denials");
        let subject = MostlyDenied::open(server);
        let random_clients = |seed| {
            let mut random = Random::seeded(seed);
            move |_| random.below(CLIENTS)
        };
        // Until all that are to be denied have used what they had.
        self.all_callers(&subject, 10 * DENIED_CLIENTS / CALLERS, random_clients);
        let calls_before = self.script_calls();
        let denied = self.all_callers(&subject, DENIAL_CHECKS / CALLERS, |seed| {
            random_clients(seed + CALLERS)
        });
        let calls = self.script_calls() - calls_before;
        let share = f64::from(denied) / f64::from(DENIAL_CHECKS);
        assert!((0.985..0.995).contains(&share), "{share} were denied");
        calls as f64 / f64::from(denied)
    }

    /// As many per second as there are to be, however long the answers take.
    fn steady(&self, server: &Server, usual: &Usual) -> Steady {
        let get = BareGet(usual.connection.clone());
        let tollgate = Tollgate::open(server, "steady", Tiers::One);
        progress("filling the server");
        self.visit_every_client(&tollgate);
        self.runtime.block_on(fill_for_get(&get.0));
        let mut steady = Steady::default();
        for round in 0..STEADY_ROUNDS / 2 {
            progress(&format!(
                "at a steady {STEADY_RATE}/s, round {} of {}",
                round + 1,
                STEADY_ROUNDS / 2
            ));
            let seed = round as u32;
            let nothing = self.paced(&Nothing, STEADY_SPAN / 4, seed);
            steady.nothings.push(nothing);
            // Who comes first changes, so that neither always follows the other.
            for tollgates_turn in [round % 2 == 0, round % 2 == 1] {
                match tollgates_turn {
                    true => steady.ours.push(self.paced(&tollgate, STEADY_SPAN, seed)),
                    false => steady.gets.push(self.paced(&get, STEADY_SPAN, seed)),
                }
            }
        }
        steady
    }

    /// Each check has its moment, and counts from then on even if it was sent late: what waits behind a slow answer is
    /// not forgotten.
    fn paced(&self, subject: &impl Check, span: Duration, seed: u32) -> Latency {
        let mut random = Random::seeded(seed);
        let checks = (span.as_secs_f64() * f64::from(STEADY_RATE)) as u32;
        let start = Instant::now() + Duration::from_millis(20);
        let mut under_way = Vec::with_capacity(checks as usize);
        for i in 0..checks {
            let moment = start + Duration::from_secs(1) * i / STEADY_RATE;
            // This thread does nothing else; a runtime's timers know milliseconds only.
            std::thread::sleep(moment.saturating_duration_since(Instant::now()));
            let (subject, client) = (subject.clone(), random.below(CLIENTS));
            under_way.push(self.runtime.spawn(async move {
                let answer = subject.check(client).await;
                (moment.elapsed(), answer)
            }));
        }
        let (mut tally, mut latencies) = (Tally::default(), Vec::with_capacity(under_way.len()));
        for check in under_way {
            let (latency, answer) = self.runtime.block_on(check).unwrap();
            tally.count(answer);
            latencies.push(latency.as_secs_f64() * 1e6);
        }
        assert_eq!(tally.denied_if_none_failed(), 0, "there was room for all");
        latencies.sort_by(f64::total_cmp);
        Latency {
            p50: latencies[latencies.len() / 2],
            p99: latencies[latencies.len() * 99 / 100],
        }
    }

    fn server_cpu_us(&self) -> f64 {
        let info = self.info("cpu");
        let seconds = |name| field(&info, name).parse::<f64>().unwrap();
        (seconds("used_cpu_user:") + seconds("used_cpu_sys:")) * 1e6
    }

    fn script_calls(&self) -> u64 {
        let info = self.info("commandstats");
        let calls = |name| {
            let line = field(&info, name);
            let number = line.split(',').next().unwrap_or_default();
            number.parse::<u64>().unwrap_or_default()
        };
        calls("cmdstat_evalsha:calls=") + calls("cmdstat_eval:calls=")
    }

    fn info(&self, section: &str) -> String {
        let mut command = redis::cmd("INFO");
        let mut connection = self.watch.clone();
        let answer = command.arg(section).query_async(&mut connection);
        self.runtime.block_on(answer).unwrap()
    }
}

/// What follows a field's name; empty if there is no such field.
fn field<'a>(info: &'a str, name: &str) -> &'a str {
    let mut lines = info.lines();
    lines
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_default()
}

/// Values as long as a bucket, so that a GET brings as much as is read for a check.
async fn fill_for_get(connection: &MultiplexedConnection) {
    let mut connection = connection.clone();
    for first in (0..CLIENTS).step_by(1_000) {
        let mut many = redis::pipe();
        for client in first..first + 1_000 {
            let key = format!("bare:client:{}", name(client));
            many.cmd("SET").arg(key).arg("x".repeat(40)).ignore();
        }
        many.query_async::<()>(&mut connection).await.unwrap();
    }
}

#[derive(Default)]
struct Tally {
    denied: u32,
    failed: u32,
    failure: Option<String>,
}

impl Tally {
    fn count(&mut self, answer: Result<bool, String>) {
        match answer {
            Ok(admitted) => self.denied += u32::from(!admitted),
            Err(error) => {
                self.failed += 1;
                self.failure = Some(error);
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.denied += other.denied;
        self.failed += other.failed;
        self.failure = self.failure.take().or(other.failure);
    }

    fn denied_if_none_failed(self) -> u32 {
        assert_eq!(self.failed, 0, "checks failed: {:?}", self.failure);
        self.denied
    }
}

/// Of several rounds: each figure's own median.
fn middle(rounds: &[Latency]) -> Latency {
    Latency {
        p50: median(rounds.iter().map(|round| round.p50).collect()),
        p99: median(rounds.iter().map(|round| round.p99).collect()),
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// What an identifier looks like: 16 bytes of text.
fn name(client: u32) -> String {
    format!("merchant_{client:07x}")
}

/// The same clients in every run.
struct Random(u64);

impl Random {
    fn seeded(seed: u32) -> Self {
        Self(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(u64::from(seed) + 1))
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(bound)) >> 32) as u32
    }
}

/// What is under way, on one line that is written over, if somebody looks.
fn progress(what: &str) {
    if stderr().is_terminal() {
        eprint!("\r{what:60}");
    }
}

fn done_waiting() {
    progress("");
    if stderr().is_terminal() {
        eprint!("\r");
    }
}

/// A redis-server that keeps nothing.
struct Server(RedisServer);

impl Server {
    fn start() -> Self {
        Self(RedisServer::start_at(RedisAddress::Port(free_port())))
    }

    fn url(&self) -> String {
        self.0.url()
    }

    /// A connection as Tollgate makes its own: nothing waits to be sent, and no answer is given up.
    async fn connect(&self) -> MultiplexedConnection {
        let info = self.url().into_connection_info().unwrap();
        let tcp = TcpSettings::default().set_nodelay(true);
        let client = Client::open(info.set_tcp_settings(tcp)).unwrap();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .unwrap()
    }
}
