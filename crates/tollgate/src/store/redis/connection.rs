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
use tokio::time::{Instant, timeout_at};

use super::error::RedisError;
use super::script::Script;

pub(super) struct Connection {
    route: Route,
    config: AsyncConnectionConfig,
    timeout: Duration,
    current: Mutex<Current>,
    /// Held by the one who connects, while the others wait for it.
    connecting: tokio::sync::Mutex<()>,
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
    },
}

/// The connection, and how many there were before it: so that what broke does not take its successor along.
#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    generation: u64,
}

impl Connection {
    pub(super) fn new(url: &str, timeout: Duration) -> Result<Self, RedisError> {
        Ok(Self::along(Route::parse(url)?, timeout))
    }

    /// To one node of a cluster, `host:port`.
    pub(super) fn to_node(
        node: &str,
        login: &Login,
        timeout: Duration,
    ) -> Result<Self, RedisError> {
        let info = format!("redis://{node}")
            .into_connection_info()
            .map_err(|_| RedisError::Garbage)?;
        let info = info.set_redis_settings(login.0.clone());
        let client = Client::open(info.set_tcp_settings(tcp()))?;
        Ok(Self::along(Route::Direct(client), timeout))
    }

    fn along(route: Route, timeout: Duration) -> Self {
        Self {
            route,
            // Deadlines are ours.
            config: AsyncConnectionConfig::new()
                .set_connection_timeout(Some(timeout))
                .set_response_timeout(None),
            timeout,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::new(()),
        }
    }

    /// Calls a script, and gives up the connection if it is of no more use: broken, or out of step. An answer that did not come
    /// in time may come later, and would be taken for that of another request.
    pub(super) async fn call<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[String],
        args: &[&[u8]],
        asking: bool,
        until: Instant,
    ) -> Result<T, RedisError> {
        let call = async |connection: &mut MultiplexedConnection| {
            script.call(connection, keys, args, asking).await
        };
        self.run(call, until).await
    }

    /// Which slots lie where: from, to, `host:port`.
    pub(super) async fn cluster_slots(
        &self,
        until: Instant,
    ) -> Result<Vec<(u16, u16, String)>, RedisError> {
        let ask = async |connection: &mut MultiplexedConnection| {
            let mut command = redis::cmd("CLUSTER");
            Ok(command.arg("SLOTS").query_async(connection).await?)
        };
        let answer: redis::Value = self.run(ask, until).await?;
        read_slots(&answer).ok_or(RedisError::Garbage)
    }

    /// `INFO`.
    pub(super) async fn info(&self, until: Instant) -> Result<String, RedisError> {
        let ask = async |connection: &mut MultiplexedConnection| {
            Ok(redis::cmd("INFO").query_async(connection).await?)
        };
        self.run(ask, until).await
    }

    async fn run<T>(
        &self,
        call: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
        until: Instant,
    ) -> Result<T, RedisError> {
        let late = Err(RedisError::TooLate);
        let (mut connection, generation) = match timeout_at(until, self.get()).await {
            Ok(connection) => connection?,
            Err(_) => return late,
        };
        let answer = (timeout_at(until, call(&mut connection)).await).unwrap_or(late);
        if let Err(error) = &answer
            && error.spoils_connection()
        {
            self.spoilt(generation);
        }
        answer
    }

    /// The connection, and its generation for [`spoilt`](Self::spoilt).
    async fn get(&self) -> Result<(MultiplexedConnection, u64), RedisError> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let connection = tokio::time::timeout(self.timeout, self.route.connect(&self.config))
            .await
            .map_err(|_| RedisError::TooLate)??;
        let mut current = self.current.lock();
        current.generation += 1;
        current.connection = Some(connection.clone());
        Ok((connection, current.generation))
    }

    fn known(&self) -> Option<(MultiplexedConnection, u64)> {
        let current = self.current.lock();
        let connection = current.connection.clone()?;
        Some((connection, current.generation))
    }

    /// The next request makes a new one. Those on their way with this one will not be heard.
    fn spoilt(&self, generation: u64) {
        let mut current = self.current.lock();
        if current.generation == generation {
            current.connection = None;
        }
    }
}

impl Route {
    /// `redis://…`, `unix://…`, or `redis+sentinel://[user:password@]host[:port][,host[:port]…]/service[/db]`.
    fn parse(url: &str) -> Result<Self, RedisError> {
        match url.strip_prefix("redis+sentinel://") {
            None => Ok(Self::Direct(client(url)?)),
            Some(rest) => Self::parse_sentinel(rest),
        }
    }

    fn parse_sentinel(rest: &str) -> Result<Self, RedisError> {
        let wrong = || {
            RedisError::Config(
                "the address is not one; use redis+sentinel://[user:password@]host[:port],host[:port]/service[/db]"
                    .to_owned(),
            )
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
            client(&format!("redis://{host}")).map_err(|_| wrong())
        };
        let sentinels = hosts.split(',').map(sentinel).collect::<Result<_, _>>()?;
        let server = login_from(login, db).ok_or_else(wrong)?;
        Ok(Self::Sentinel {
            sentinels,
            service: service.to_owned(),
            server,
        })
    }

    async fn connect(
        &self,
        config: &AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, RedisError> {
        let connect = |client: Client| async move {
            let connecting = client.get_multiplexed_async_connection_with_config(config);
            connecting.await.map_err(RedisError::from)
        };
        let (sentinels, service, server) = match self {
            Self::Direct(client) => return connect(client.clone()).await,
            Self::Sentinel {
                sentinels,
                service,
                server,
            } => (sentinels, service, server),
        };
        let mut last = RedisError::Unreachable("no sentinel answers".into());
        for sentinel in sentinels {
            let found = async {
                let mut sentinel = connect(sentinel.clone()).await?;
                let (host, port): (String, u16) = redis::cmd("SENTINEL")
                    .arg("GET-MASTER-ADDR-BY-NAME")
                    .arg(service)
                    .query_async(&mut sentinel)
                    .await?;
                let info = ConnectionAddr::Tcp(host, port).into_connection_info()?;
                let info = info.set_redis_settings(server.0.clone());
                let client = Client::open(info.set_tcp_settings(tcp()))?;
                let mut connection = connect(client).await?;
                // A sentinel may not have heard yet.
                let role: redis::Value = redis::cmd("ROLE").query_async(&mut connection).await?;
                match is_primary(&role) {
                    true => Ok(connection),
                    false => Err(RedisError::Unreachable("that is not the primary".into())),
                }
            };
            match found.await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// `[[from, to, [host, port, …], …], …]`: the first node of each range is its primary.
fn read_slots(answer: &redis::Value) -> Option<Vec<(u16, u16, String)>> {
    let array = |value: &redis::Value| match value {
        redis::Value::Array(items) => Some(items.clone()),
        _ => None,
    };
    let range = |range: &redis::Value| {
        let range = array(range)?;
        let number = |i: usize| u16::from_redis_value_ref(range.get(i)?).ok();
        let primary = array(range.get(2)?)?;
        let host = String::from_redis_value_ref(primary.first()?).ok()?;
        let port = u16::from_redis_value_ref(primary.get(1)?).ok()?;
        Some((number(0)?, number(1)?, format!("{host}:{port}")))
    };
    array(answer)?.iter().map(range).collect()
}

/// User and password.
#[derive(Clone)]
pub(super) struct Login(RedisConnectionInfo);

/// The nodes of a cluster to begin with, and how to log in there:
/// `redis+cluster://[user:password@]host[:port][,host[:port]…]`.
pub(super) fn parse_cluster(rest: &str) -> Result<(Vec<Arc<str>>, Login), RedisError> {
    let wrong = || {
        RedisError::Config(
            "the address is not one; use redis+cluster://[user:password@]host[:port],host[:port]"
                .to_owned(),
        )
    };
    let (login, hosts) = rest.rsplit_once('@').unwrap_or(("", rest));
    let hosts: Vec<Arc<str>> = (hosts.trim_end_matches('/').split(','))
        .map(|host| with_port(host, 6379).into())
        .collect();
    for host in &hosts {
        client(&format!("redis://{host}")).map_err(|_| wrong())?;
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

fn client(url: &str) -> Result<Client, RedisError> {
    // The library's message may show the address, and with it the password.
    let wrong = |_| {
        RedisError::Config(
            "the address is not one; use redis://[user:password@]host[:port][/db] or unix:///path"
                .to_owned(),
        )
    };
    let info = url.into_connection_info().map_err(wrong)?;
    Client::open(info.set_tcp_settings(tcp())).map_err(wrong)
}

/// Without delay, which is not the default, and would add 40 ms to requests that follow each other.
fn tcp() -> TcpSettings {
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
