//! The scripts, called by digest.

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, FromRedisValue, ServerErrorKind};

use super::error::RedisError;

/// A script and its digest.
#[derive(Debug)]
pub(super) struct Script {
    code: String,
    digest: String,
}

/// All there are.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) tokens: Script,
    pub(super) take: Script,
    pub(super) refund: Script,
    pub(super) reset: Script,
    pub(super) heartbeat: Script,
    pub(super) records: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self::changed_by(str::to_owned)
    }

    /// The scripts with a bug in them, to see that it is found.
    pub(super) fn with_bug(from: &str, to: &str) -> Self {
        Self::changed_by(|code| code.replace(from, to))
    }

    fn changed_by(change: impl Fn(&str) -> String) -> Self {
        let script = |parts: &[&str]| Script::new(change(&parts.concat()));
        let (record, subject) = (include_str!("record.lua"), include_str!("subject.lua"));
        let arithmetic = include_str!("arithmetic.lua");
        Self {
            tokens: script(&[record, subject, include_str!("tokens.lua")]),
            take: script(&[record, subject, arithmetic, include_str!("take.lua")]),
            refund: script(&[record, subject, arithmetic, include_str!("refund.lua")]),
            reset: script(&[record, subject, include_str!("reset.lua")]),
            heartbeat: script(&[record, include_str!("heartbeat.lua")]),
            records: script(&[record, subject, include_str!("records.lua")]),
        }
    }

    pub(super) fn contain(&self, text: &str) -> bool {
        [
            &self.tokens,
            &self.take,
            &self.refund,
            &self.reset,
            &self.records,
        ]
        .iter()
        .any(|script| script.code.contains(text))
    }
}

impl Script {
    fn new(code: String) -> Self {
        let digest = redis::Script::new(&code).get_hash().to_owned();
        Self { code, digest }
    }

    /// Calls it. A server that does not know it (any more) learns it in the same call. `asking` is for a node to which the slot
    /// is on its way.
    pub(super) async fn call<T: FromRedisValue>(
        &self,
        connection: &mut MultiplexedConnection,
        keys: &[impl AsRef<[u8]>],
        args: &[&[u8]],
        asking: bool,
    ) -> Result<T, RedisError> {
        let by_digest = command("EVALSHA", &self.digest, keys, args);
        match send(by_digest, connection, asking).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let by_code = command("EVAL", &self.code, keys, args);
                Ok(send(by_code, connection, asking).await?)
            }
            answer => Ok(answer?),
        }
    }
}

async fn send<T: FromRedisValue>(
    command: redis::Cmd,
    connection: &mut MultiplexedConnection,
    asking: bool,
) -> redis::RedisResult<T> {
    if !asking {
        return command.query_async(connection).await;
    }
    let mut both = redis::pipe();
    both.cmd("ASKING").ignore().add_command(command);
    let (answer,): (T,) = both.query_async(connection).await?;
    Ok(answer)
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
