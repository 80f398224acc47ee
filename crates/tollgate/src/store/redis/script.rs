//! The scripts, called by digest.
//!
//! Servers from 7 on read flags at the head of a script, and then see before it starts whether they have the memory, the replicas
//! and the right to write what it may write. Older ones take them for an error; they get the script without.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, FromRedisValue, ServerErrorKind};
use tokio::time::Instant;

use super::error::RedisError;

/// A script, with flags and without.
#[derive(Debug)]
pub(super) struct Script {
    flagged: Text,
    plain: Text,
}

#[derive(Debug)]
struct Text {
    code: String,
    digest: String,
}

/// A connection, and what its server has shown of itself. The next connection may lead to one of another version, and knows nothing
/// of this.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) connection: MultiplexedConnection,
    reads_no_flags: Arc<AtomicBool>,
}

impl Line {
    pub(super) fn new(connection: MultiplexedConnection) -> Self {
        Self {
            connection,
            reads_no_flags: Arc::default(),
        }
    }
}

/// All there are.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) single: Script,
    pub(super) tokens: Script,
    pub(super) take: Script,
    /// The same for those who only look: it may write nothing.
    pub(super) peek: Script,
    pub(super) refund: Script,
    pub(super) reset: Script,
    pub(super) heartbeat: Script,
    pub(super) records: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self::changed_by(str::to_owned)
    }

    /// The scripts with a bug in them, to see that it is found: by a check, and not by the server, so all of them may write.
    pub(super) fn with_bug(from: &str, to: &str) -> Self {
        let mut scripts = Self::changed_by(|code| code.replace(from, to));
        for script in [&mut scripts.peek, &mut scripts.records] {
            *script = Script::new("#!lua", std::mem::take(&mut script.plain.code));
        }
        scripts
    }

    fn changed_by(change: impl Fn(&str) -> String) -> Self {
        let script = |head, code| Script::new(head, change(&pasted(code)));
        let take = include_str!("take.lua");
        // Looking is right on a server that is full, and so is what makes it less full.
        Self {
            single: script("#!lua", include_str!("single.lua")),
            tokens: script("#!lua", include_str!("tokens.lua")),
            take: script("#!lua", take),
            peek: script("#!lua flags=no-writes", take),
            refund: script("#!lua flags=allow-oom", include_str!("refund.lua")),
            reset: script("#!lua flags=allow-oom", include_str!("reset.lua")),
            heartbeat: script("#!lua", include_str!("heartbeat.lua")),
            records: script("#!lua flags=no-writes", include_str!("records.lua")),
        }
    }

    /// What all of them say.
    pub(super) fn codes(&self) -> [&str; 7] {
        [
            &self.single,
            &self.tokens,
            &self.take,
            &self.refund,
            &self.reset,
            &self.heartbeat,
            &self.records,
        ]
        .map(|script| script.plain.code.as_str())
    }
}

/// What scripts share, pasted where they name it (`--[drained]`): to make a function of it costs a script more than to run it, so only
/// those that need it in several places do. A piece may name those below it.
const PIECES: [(&str, &str); 10] = [
    ("--[seldom]", include_str!("piece/seldom.lua")),
    ("--[names]", include_str!("piece/names.lua")),
    ("--[level]", include_str!("piece/level.lua")),
    ("--[record]", include_str!("piece/record.lua")),
    ("--[subject]", include_str!("piece/subject.lua")),
    ("--[arithmetic]", include_str!("piece/arithmetic.lua")),
    ("--[time]", include_str!("piece/time.lua")),
    ("--[full]", include_str!("piece/full.lua")),
    ("--[drained]", include_str!("piece/drained.lua")),
    ("--[life]", include_str!("piece/life.lua")),
];

fn pasted(code: &str) -> String {
    let code = code.to_owned();
    (PIECES.iter()).fold(code, |code, (name, piece)| code.replace(name, piece))
}

impl Text {
    fn new(code: String) -> Self {
        let digest = redis::Script::new(&code).get_hash().to_owned();
        Self { code, digest }
    }
}

impl Script {
    fn new(head: &str, code: String) -> Self {
        Self {
            flagged: Text::new(format!("{head}\n{code}")),
            plain: Text::new(code),
        }
    }

    /// Calls it. A server that does not know it (any more) learns it in the same call, and so do we if it reads no flags. `asking` is
    /// for a node to which the slot is on its way. Nothing is sent after `send_by`, when its checks have given up.
    pub(super) async fn call<T: FromRedisValue>(
        &self,
        line: &mut Line,
        keys: &[impl AsRef<str>],
        args: &[&[u8]],
        asking: bool,
        send_by: Instant,
    ) -> Result<T, RedisError> {
        let is_too_late = || Instant::now() > send_by;
        let text = match line.reads_no_flags.load(Ordering::Relaxed) {
            true => &self.plain,
            false => &self.flagged,
        };
        let connection = &mut line.connection;
        let by_digest = command("EVALSHA", &text.digest, keys, args);
        match send(by_digest, connection, asking).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {}
            answer => return Ok(answer?),
        }
        if is_too_late() {
            return Err(RedisError::NotSent);
        }
        let by_code = command("EVAL", &text.code, keys, args);
        match send(by_code, connection, asking).await {
            Err(error) if stumbled_over_flags(&error) => {}
            answer => return Ok(answer?),
        }
        // Nothing of it has run.
        line.reads_no_flags.store(true, Ordering::Relaxed);
        if is_too_late() {
            return Err(RedisError::NotSent);
        }
        let by_code = command("EVAL", &self.plain.code, keys, args);
        Ok(send(by_code, connection, asking).await?)
    }
}

/// Whether a server could not read the head of a script.
fn stumbled_over_flags(error: &redis::RedisError) -> bool {
    let said = error.detail().unwrap_or_default();
    said.contains("compiling script") || said.contains("shebang")
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

fn command(name: &str, script: &str, keys: &[impl AsRef<str>], args: &[&[u8]]) -> redis::Cmd {
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
