//! One connection that all requests share, made anew when it breaks.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo,
};

use super::error::RedisError;

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
        /// User, password and database of the server itself.
        server: RedisConnectionInfo,
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
        let route = Route::parse(url)?;
        Ok(Self {
            route,
            // Deadlines are ours.
            config: AsyncConnectionConfig::new()
                .set_connection_timeout(Some(timeout))
                .set_response_timeout(None),
            timeout,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::new(()),
        })
    }

    /// The connection, and its generation for [`spoilt`](Self::spoilt).
    pub(super) async fn get(&self) -> Result<(MultiplexedConnection, u64), RedisError> {
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
    pub(super) fn spoilt(&self, generation: u64) {
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
            let has_port = host
                .rsplit_once(':')
                .is_some_and(|(_, port)| !port.ends_with(']'));
            let port = if has_port { "" } else { ":26379" };
            client(&format!("redis://{host}{port}")).map_err(|_| wrong())
        };
        let sentinels = hosts.split(',').map(sentinel).collect::<Result<_, _>>()?;
        // Only for its user, password and database.
        let at = if login.is_empty() { "" } else { "@" };
        let server = format!("redis://{login}{at}localhost/{db}")
            .into_connection_info()
            .map_err(|_| wrong())?;
        Ok(Self::Sentinel {
            sentinels,
            service: service.to_owned(),
            server: server.redis_settings().clone(),
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
                let info = info.set_redis_settings(server.clone());
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
