//! One connection that all requests share, made anew when it breaks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, FromRedisValue, IntoConnectionInfo,
    RedisConnectionInfo,
};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::deadline::{Times, until_given_up};
use super::error::RedisError;
use super::script::{Line, Script};
use super::tls::{RedisTls, Transport};

pub(super) struct Connection {
    route: Route,
    config: AsyncConnectionConfig,
    timeout: Duration,
    current: Mutex<Current>,
}

/// How to find the server.
enum Route {
    Direct(Client),
    /// The one that these say is the primary now.
    Sentinel {
        sentinels: Vec<Client>,
        service: String,
        /// Of the server itself, with the database.
        server: Login,
        transport: Transport,
    },
}

/// The connection, and how many there were before it: so that what broke does not take its successor along.
#[derive(Default)]
struct Current {
    line: Option<Line>,
    generation: u64,
    /// What comes of the attempt that is under way.
    attempt: Option<watch::Receiver<Option<Attempt>>>,
    /// Why the last attempt failed: for those who cannot wait for the end of the next.
    failure: Option<RedisError>,
}

/// A connection and its generation.
type Attempt = Result<(Line, u64), RedisError>;

impl Connection {
    pub(super) fn new(url: &str, tls: &RedisTls, timeout: Duration) -> Result<Self, RedisError> {
        Ok(Self::along(Route::parse(url, tls)?, timeout))
    }

    /// To one node of a cluster, `host:port`.
    pub(super) fn to_node(
        node: &str,
        transport: &Transport,
        login: &Login,
        timeout: Duration,
    ) -> Result<Self, RedisError> {
        let info = format!("{}://{node}", transport.scheme())
            .into_connection_info()
            .map_err(|_| RedisError::Garbage)?;
        let client = transport.client(info.set_redis_settings(login.0.clone()))?;
        Ok(Self::along(Route::Direct(client), timeout))
    }

    fn along(route: Route, timeout: Duration) -> Self {
        Self {
            route,
            // Deadlines are ours.
            config: AsyncConnectionConfig::new()
                .set_connection_timeout(None)
                .set_response_timeout(None),
            timeout,
            current: Mutex::default(),
        }
    }

    /// Calls a script. Gives up the connection if it is of no more use: broken, or without a reply for too long.
    pub(super) async fn call<T: FromRedisValue>(
        self: &Arc<Self>,
        script: &Script,
        keys: &[impl AsRef<str>],
        args: &[&[u8]],
        asking: bool,
        times: Times,
    ) -> Result<T, RedisError> {
        let send_by = times.send_by;
        let call = async |line: &mut Line| script.call(line, keys, args, asking, send_by).await;
        self.run(call, times).await
    }

    /// Which slots lie where.
    pub(super) async fn cluster_slots(
        self: &Arc<Self>,
        until: Instant,
    ) -> Result<Vec<SlotRange>, RedisError> {
        let ask = async |line: &mut Line| {
            let mut command = redis::cmd("CLUSTER");
            let asked = command.arg("SLOTS").query_async(&mut line.connection);
            Ok(asked.await?)
        };
        let answer: redis::Value = self.run(ask, Times::until(until)).await?;
        read_slots(&answer).ok_or(RedisError::Garbage)
    }

    /// `INFO`.
    pub(super) async fn info(self: &Arc<Self>, until: Instant) -> Result<String, RedisError> {
        let ask = async |line: &mut Line| {
            Ok(redis::cmd("INFO").query_async(&mut line.connection).await?)
        };
        self.run(ask, Times::until(until)).await
    }

    /// Waits until there is a connection, or it is known why there is none, or the time is over. Says whether there is one.
    pub(super) async fn ready(self: &Arc<Self>, until: Instant) -> bool {
        let is_there = self.current.lock().line.is_some();
        is_there || matches!(timeout_at(until, self.get()).await, Ok(Ok(_)))
    }

    /// Why there is no connection, if that is known.
    pub(super) fn failure(&self) -> Option<RedisError> {
        self.current.lock().failure.clone()
    }

    async fn run<T>(
        self: &Arc<Self>,
        call: impl AsyncFnOnce(&mut Line) -> Result<T, RedisError>,
        times: Times,
    ) -> Result<T, RedisError> {
        let (mut line, generation) = match timeout_at(times.send_by, self.get()).await {
            Ok(line) => line?,
            // Rather why there is no connection than that there is none yet.
            Err(_) => {
                return Err(self.failure().unwrap_or(RedisError::TooLate));
            }
        };
        let answer = until_given_up(call(&mut line), times.reply_by).await;
        let answer = answer.unwrap_or(Err(RedisError::TooLate));
        if let Err(error) = &answer
            && error.spoils_connection()
        {
            self.spoilt(generation);
        }
        answer
    }

    /// The connection, and its generation for [`spoilt`](Self::spoilt).
    async fn get(self: &Arc<Self>) -> Attempt {
        let lost = || RedisError::Unreachable("connecting was given up".into());
        let mut attempt = {
            let mut current = self.current.lock();
            if let Some(line) = &current.line {
                return Ok((line.clone(), current.generation));
            }
            match &current.attempt {
                // One whose runtime is gone ends without a word.
                Some(attempt) if attempt.has_changed().is_ok() => attempt.clone(),
                _ => {
                    let (outcome, attempt) = watch::channel(None);
                    current.attempt = Some(attempt.clone());
                    // A task of its own: a deadline may be over sooner than a connection is made, for which the next ones are
                    // then glad.
                    tokio::spawn(Arc::clone(self).connect(outcome));
                    attempt
                }
            }
        };
        let outcome = attempt.wait_for(Option::is_some).await;
        outcome
            .map_or(None, |outcome| outcome.clone())
            .unwrap_or_else(|| Err(lost()))
    }

    /// Makes a connection for all who wait for one.
    async fn connect(self: Arc<Self>, outcome: watch::Sender<Option<Attempt>>) {
        let made = self.route.connect(&self.config, self.timeout).await;
        let mut current = self.current.lock();
        current.attempt = None;
        let attempt = match made {
            Ok(connection) => {
                let line = Line::new(connection);
                current.generation += 1;
                current.line = Some(line.clone());
                current.failure = None;
                Ok((line, current.generation))
            }
            Err(error) => {
                current.failure = Some(error.clone());
                Err(error)
            }
        };
        drop(current);
        outcome.send_replace(Some(attempt));
    }

    /// The next request makes a new one. Those on their way with this one will not be heard.
    fn spoilt(&self, generation: u64) {
        let mut current = self.current.lock();
        if current.generation == generation {
            current.line = None;
        }
    }
}

impl Route {
    /// `redis://…`, `unix://…`, or `redis+sentinel://[user:password@]host[:port][,host[:port]…]/service[/db]`; with `rediss` for
    /// `redis` over TLS.
    fn parse(url: &str, tls: &RedisTls) -> Result<Self, RedisError> {
        let transport = Transport::of(url, tls)?;
        match url.split_once("+sentinel://") {
            Some(("redis" | "rediss", rest)) => Self::parse_sentinel(rest, transport),
            _ => Ok(Self::Direct(client(url, &transport)?)),
        }
    }

    fn parse_sentinel(rest: &str, transport: Transport) -> Result<Self, RedisError> {
        let scheme = transport.scheme();
        let wrong = || {
            RedisError::Config(format!(
                "the address is not one; use {scheme}+sentinel://[user:password@]host[:port],host[:port]/service[/db]"
            ))
        };
        let (login, places) = rest.rsplit_once('@').unwrap_or(("", rest));
        let mut places = places.splitn(3, '/');
        let (Some(hosts), Some(service)) = (places.next(), places.next()) else {
            return Err(wrong());
        };
        let db = places.next().unwrap_or("0");
        if service.is_empty() {
            return Err(wrong());
        }
        let sentinel = |host: &str| {
            let host = with_port(host, 26379);
            client(&format!("{scheme}://{host}"), &transport).map_err(|_| wrong())
        };
        let sentinels = hosts.split(',').map(sentinel).collect::<Result<_, _>>()?;
        let server = login_from(login, db).ok_or_else(wrong)?;
        Ok(Self::Sentinel {
            sentinels,
            service: service.to_owned(),
            server,
            transport,
        })
    }

    async fn connect(
        &self,
        config: &AsyncConnectionConfig,
        timeout: Duration,
    ) -> Result<MultiplexedConnection, RedisError> {
        let (sentinels, service, server, transport) = match self {
            Self::Direct(client) => return within(timeout, client, connect(client, config)).await,
            Self::Sentinel {
                sentinels,
                service,
                server,
                transport,
            } => (sentinels, service, server, transport),
        };
        // One that does not answer must not use up the time of those that would.
        let turn = timeout / u32::try_from(sentinels.len()).unwrap_or(u32::MAX);
        let mut last = RedisError::Unreachable("no sentinel answers".into());
        for sentinel in sentinels {
            let found = async {
                let mut asked = connect(sentinel, config).await?;
                let (host, port): (String, u16) = redis::cmd("SENTINEL")
                    .arg("GET-MASTER-ADDR-BY-NAME")
                    .arg(service)
                    .query_async(&mut asked)
                    .await?;
                let client = transport.client_of(host, port, &server.0)?;
                let mut connection = connect(&client, config).await?;
                // A sentinel may not have heard yet.
                let role: redis::Value = redis::cmd("ROLE").query_async(&mut connection).await?;
                match is_primary(&role) {
                    true => Ok(connection),
                    false => Err(RedisError::Unreachable("that is not the primary".into())),
                }
            };
            match within(turn, sentinel, found).await {
                Ok(connection) => return Ok(connection),
                // What the server itself refused says more than a sentinel that cannot be reached.
                Err(_) if matches!(last, RedisError::Refused { .. }) => {}
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

async fn connect(
    client: &Client,
    config: &AsyncConnectionConfig,
) -> Result<MultiplexedConnection, RedisError> {
    let connecting = client.get_multiplexed_async_connection_with_config(config);
    connecting.await.map_err(|error| {
        let hint = match client.get_connection_info().addr() {
            // That is all that one who expects TLS says to plain words.
            ConnectionAddr::Tcp(..) if error.is_connection_dropped() => {
                "if the server speaks TLS there, use rediss://"
            }
            ConnectionAddr::TcpTls { .. } if error.to_string().contains("UnknownIssuer") => {
                "nobody in tls.ca vouches for it, or if that is not set, nobody the system believes"
            }
            _ => return error.into(),
        };
        RedisError::Unreachable(format!("{error}; {hint}").into())
    })
}

/// Gives up connecting when the time is over, and says what may be wrong.
async fn within<T>(
    time: Duration,
    client: &Client,
    connecting: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    let done = tokio::time::timeout(time, connecting).await;
    done.unwrap_or_else(|_| {
        let address = client.get_connection_info().addr();
        let hint = match matches!(address, ConnectionAddr::TcpTls { .. }) {
            true => "; a server that does not speak TLS there says nothing either",
            false => "",
        };
        let why = format!("no connection within {time:?}{hint}");
        Err(RedisError::Unreachable(why.into()))
    })
}

/// Slots that lie together.
pub(super) struct SlotRange {
    pub(super) from: u16,
    pub(super) to: u16,
    /// `host:port`, as the node puts it that was asked.
    pub(super) owner: String,
}

/// `[[from, to, [host, port, …], …], …]`: the first node of each range is its primary.
fn read_slots(answer: &redis::Value) -> Option<Vec<SlotRange>> {
    let array = |value: &redis::Value| match value {
        redis::Value::Array(items) => Some(items.clone()),
        _ => None,
    };
    let range = |range: &redis::Value| {
        let range = array(range)?;
        let number = |i: usize| u16::from_redis_value_ref(range.get(i)?).ok();
        let primary = array(range.get(2)?)?;
        // A node that nobody has told its own name names none.
        let host = Option::<String>::from_redis_value_ref(primary.first()?).ok()?;
        let port = u16::from_redis_value_ref(primary.get(1)?).ok()?;
        Some(SlotRange {
            from: number(0)?,
            to: number(1)?,
            owner: format!("{}:{port}", host.unwrap_or_default()),
        })
    };
    array(answer)?.iter().map(range).collect()
}

/// User and password.
#[derive(Clone)]
pub(super) struct Login(RedisConnectionInfo);

/// The nodes of a cluster to begin with, and how to log in there: `[user:password@]host[:port][,host[:port]…]`.
pub(super) fn parse_cluster(
    rest: &str,
    transport: &Transport,
) -> Result<(Vec<Arc<str>>, Login), RedisError> {
    let scheme = transport.scheme();
    let wrong = || {
        RedisError::Config(format!(
            "the address is not one; use {scheme}+cluster://[user:password@]host[:port],host[:port]"
        ))
    };
    let (login, hosts) = rest.rsplit_once('@').unwrap_or(("", rest));
    let hosts: Vec<Arc<str>> = (hosts.trim_end_matches('/').split(','))
        .map(|host| with_port(host, 6379).into())
        .collect();
    for host in &hosts {
        client(&format!("{scheme}://{host}"), transport).map_err(|_| wrong())?;
    }
    Ok((hosts, login_from(login, "0").ok_or_else(wrong)?))
}

fn with_port(host: &str, port: u16) -> String {
    let is_said = (host.rsplit_once(':')).is_some_and(|(_, port)| !port.ends_with(']'));
    match is_said {
        true => host.to_owned(),
        false => format!("{host}:{port}"),
    }
}

/// `user:password` or nothing, and a database.
fn login_from(login: &str, db: &str) -> Option<Login> {
    let at = if login.is_empty() { "" } else { "@" };
    let info = format!("redis://{login}{at}localhost/{db}")
        .into_connection_info()
        .ok()?;
    Some(Login(info.redis_settings().clone()))
}

fn is_primary(role: &redis::Value) -> bool {
    let redis::Value::Array(words) = role else {
        return false;
    };
    matches!(words.first(), Some(redis::Value::BulkString(word)) if word == b"master")
}

fn client(url: &str, transport: &Transport) -> Result<Client, RedisError> {
    // The library's message may show the address, and with it the password.
    let wrong = || {
        RedisError::Config(
            "the address is not one; use redis://[user:password@]host[:port][/db], rediss:// for TLS, or unix:///path"
                .to_owned(),
        )
    };
    let info = url.into_connection_info().map_err(|_| wrong())?;
    transport.client(info).map_err(|_| wrong())
}

/// Without delay, which is not the default, and would add 40 ms to requests that follow each other.
pub(super) fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client would show the password.
        f.debug_struct("Connection")
            .field("generation", &self.current.lock().generation)
            .finish_non_exhaustive()
    }
}
