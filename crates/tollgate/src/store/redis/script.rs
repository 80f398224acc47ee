//! The scripts, called by digest.

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, FromRedisValue, ServerErrorKind};

use super::error::RedisError;

/// A script and its digest.
#[derive(Debug)]
pub(super) struct Script {
    code: &'static str,
    digest: String,
}

macro_rules! script {
    ($file:literal) => {
        Script::new(concat!(include_str!("arithmetic.lua"), include_str!($file)))
    };
}

/// All there are.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) take: Script,
    pub(super) refund: Script,
    pub(super) reset: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            take: script!("take.lua"),
            refund: script!("refund.lua"),
            reset: script!("reset.lua"),
        }
    }
}

impl Script {
    fn new(code: &'static str) -> Self {
        let digest = redis::Script::new(code).get_hash().to_owned();
        Self { code, digest }
    }

    /// Calls it. A server that does not know it (any more) learns it in the same call.
    pub(super) async fn call<T: FromRedisValue>(
        &self,
        connection: &mut MultiplexedConnection,
        keys: &[impl AsRef<[u8]>],
        args: &[&[u8]],
    ) -> Result<T, RedisError> {
        let by_digest = command("EVALSHA", &self.digest, keys, args);
        match by_digest.query_async(connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let by_code = command("EVAL", self.code, keys, args);
                Ok(by_code.query_async(connection).await?)
            }
            answer => Ok(answer?),
        }
    }
}

fn command(name: &str, script: &str, keys: &[impl AsRef<[u8]>], args: &[&[u8]]) -> redis::Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(keys.len());
    for key in keys {
        command.arg(key.as_ref());
    }
    for arg in args {
        command.arg(*arg);
    }
    command
}
