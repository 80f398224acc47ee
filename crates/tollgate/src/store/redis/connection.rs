//! One connection that all requests share, made anew when it breaks.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo};

use super::error::RedisError;

pub(super) struct Connection {
    client: Client,
    config: AsyncConnectionConfig,
    timeout: Duration,
    current: Mutex<Current>,
    /// Held by the one who connects, while the others wait for it.
    connecting: tokio::sync::Mutex<()>,
}

/// The connection, and how many there were before it: so that what broke does not take its successor along.
#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    generation: u64,
}

impl Connection {
    pub(super) fn new(url: &str, timeout: Duration) -> Result<Self, RedisError> {
        // The library's message may show the address, and with it the password.
        let wrong = |_| {
            RedisError::Config(
                "the address is not one; use redis://[user:password@]host[:port][/db] or unix:///path"
                    .to_owned(),
            )
        };
        let info = url.into_connection_info().map_err(wrong)?;
        // It is off by default, and would add 40 ms to requests that follow each other.
        let tcp = TcpSettings::default().set_nodelay(true);
        let client = Client::open(info.set_tcp_settings(tcp)).map_err(wrong)?;
        Ok(Self {
            client,
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
        let connect = (self.client).get_multiplexed_async_connection_with_config(&self.config);
        let connection = tokio::time::timeout(self.timeout, connect)
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

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client would show the password.
        f.debug_struct("Connection")
            .field("generation", &self.current.lock().generation)
            .finish_non_exhaustive()
    }
}
