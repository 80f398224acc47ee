//! What goes wrong with Redis, in our words. Never shows an address's password or a caller's text.

use std::fmt;
use std::sync::Arc;

/// Why Redis did not decide.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RedisError {
    /// The configuration cannot be right.
    Config(String),
    /// There is no connection, or it broke.
    Unreachable(Arc<str>),
    /// It took longer than the deadline.
    TooLate,
    /// The deadline had passed before it could be sent.
    NotSent,
    /// The server answered with an error: the code it begins with, and the text.
    Refused {
        /// `READONLY`, `OOM`, `LOADING`, …
        code: Box<str>,
        /// What it said.
        text: Arc<str>,
    },
    /// The server answered with something that is no answer to what was asked.
    Garbage,
    /// More buckets in one request than fit into a message.
    TooMany,
}

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(what) => write!(f, "redis: {what}"),
            Self::Unreachable(why) => write!(f, "redis cannot be reached: {why}"),
            Self::TooLate => f.write_str("redis did not answer in time"),
            Self::NotSent => f.write_str("the deadline passed before redis could be asked"),
            Self::Refused { code, text } => write!(f, "redis refused: {code} {text}"),
            Self::Garbage => f.write_str("redis answered something that is no answer"),
            Self::TooMany => f.write_str("a request meets more than 255 buckets"),
        }
    }
}

impl std::error::Error for RedisError {}

impl From<redis::RedisError> for RedisError {
    fn from(error: redis::RedisError) -> Self {
        use redis::ErrorKind;
        match error.kind() {
            ErrorKind::Server(_) | ErrorKind::Extension => {
                let text = error.detail().unwrap_or_default();
                let (code, text) =
                    said_in_script(text).unwrap_or((error.code().unwrap_or("ERR"), text));
                // Of a database that cannot be selected, the library keeps the text alone.
                let code = match text.contains("no permissions to run") {
                    true => "NOPERM",
                    false => code,
                };
                Self::Refused {
                    code: code.into(),
                    text: text.into(),
                }
            }
            // The library does not say how the server put it.
            ErrorKind::AuthenticationFailed => Self::Refused {
                code: "WRONGPASS".into(),
                text: "the server does not take the user and password of the address".into(),
            },
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => Self::Garbage,
            _ if error.is_timeout() => Self::TooLate,
            _ => Self::Unreachable(error.to_string().into()),
        }
    }
}

/// What a command in a script was answered: `Error running script (call to …): @user_script: 7: -READONLY You can't write …`. Servers
/// before 7 wrap it so.
fn said_in_script(text: &str) -> Option<(&str, &str)> {
    let (_, said) = text
        .strip_prefix("Error running script")?
        .split_once(": -")?;
    let (code, text) = said.split_once(' ')?;
    let is_code = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase());
    is_code.then_some((code, text))
}

impl RedisError {
    /// Whether it was refused because its keys do not lie together at the moment: fewer would be served.
    pub(crate) fn is_of_several_keys(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if &**code == "TRYAGAIN")
    }

    /// Whether the connection is of no more use: broken, out of step, or to a server that is not the primary any more.
    pub(super) fn spoils_connection(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::TooLate | Self::Garbage => true,
            Self::Refused { code, .. } => matches!(&**code, "READONLY" | "LOADING" | "MASTERDOWN"),
            Self::Config(_) | Self::TooMany | Self::NotSent => false,
        }
    }
}
