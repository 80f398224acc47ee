//! What a server would break of our promises: asked once, at the start.

use std::fmt;

/// Something about a server that would break a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerWarning {
    /// It throws keys away when its memory is full: limits would be reset.
    Evicts {
        /// Its `maxmemory-policy`.
        policy: String,
    },
    /// Scripts of anybody who may run some can break out of this version.
    HolesInLua {
        /// As it says.
        version: String,
        /// From which on it is mended.
        mended: &'static str,
    },
    /// It does not let us do what we need.
    Forbids {
        /// What it said.
        text: String,
    },
    /// It is a replica, and takes nothing down.
    IsReplica,
}

/// What the scripts and this check use.
const NEEDED: &str = "+eval +evalsha +get +mget +set +del +strlen +getrange +setrange +append +pexpire +pttl +zadd +zrem \
    +zremrangebyscore +zrevrange +zcard +time +info";

impl fmt::Display for ServerWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evicts { policy } => write!(
                f,
                "the server evicts keys when its memory is full (maxmemory-policy {policy}), which resets limits; use noeviction"
            ),
            Self::HolesInLua { version, mended } => write!(
                f,
                "version {version} has known holes in Lua (CVE-2025-49844) unless your distribution mended them; use {mended}"
            ),
            Self::Forbids { text } => write!(
                f,
                "the server does not let us in or run scripts ({text}); the user needs: ~<prefix>:* {NEEDED}, for a database other than 0 also +select, in a cluster +cluster|slots +asking, behind sentinels +role"
            ),
            Self::IsReplica => {
                f.write_str("the server is a replica, which takes nothing down; use the primary")
            }
        }
    }
}

/// What the answer to `INFO` shows.
pub(super) fn examine(info: &str) -> Vec<ServerWarning> {
    let value = |name: &str| {
        let lines = info
            .lines()
            .filter_map(|line| line.trim_end().split_once(':'));
        lines
            .filter(|(known, _)| *known == name)
            .map(|(_, value)| value)
            .next()
    };
    let mut warnings = Vec::new();
    let (valkey, redis) = (value("valkey_version"), value("redis_version"));
    let mended = match valkey {
        Some(version) => Some(version).zip(mended_valkey(version)),
        None => redis.and_then(|version| Some((version, mended_redis(version)?))),
    };
    if let Some((version, mended)) = mended {
        warnings.push(ServerWarning::HolesInLua {
            version: version.to_owned(),
            mended,
        });
    }
    let policy = value("maxmemory_policy").unwrap_or("noeviction");
    if policy != "noeviction" {
        warnings.push(ServerWarning::Evicts {
            policy: policy.to_owned(),
        });
    }
    if value("role") == Some("slave") {
        warnings.push(ServerWarning::IsReplica);
    }
    warnings
}

/// The version that is mended, if this one is not.
fn mended_redis(version: &str) -> Option<&'static str> {
    let mended = match parts(version)? {
        (6, 2, patch) if patch >= 20 => return None,
        (7, 2, patch) if patch >= 11 => return None,
        (7, 4, patch) if patch >= 6 => return None,
        (8, 0, patch) if patch >= 4 => return None,
        (8, 2, patch) if patch >= 2 => return None,
        (8, 3.., _) | (9.., _, _) => return None,
        (..=6, _, _) => "6.2.20 or later",
        (7, ..=2, _) => "7.2.11 or later",
        (7, _, _) => "7.4.6 or later",
        _ => "8.2.2 or later",
    };
    Some(mended)
}

fn mended_valkey(version: &str) -> Option<&'static str> {
    match parts(version)? {
        (7, 2, patch) if patch >= 11 => None,
        (8, 0, patch) if patch >= 6 => None,
        (8, 1, patch) if patch >= 4 => None,
        (8, 2.., _) | (9.., _, _) => None,
        (7, _, _) => Some("7.2.11 or later"),
        _ => Some("8.1.4 or later"),
    }
}

fn parts(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::store::redis::script::Scripts;

    #[test]
    fn the_rights_we_name_are_those_that_the_scripts_need() {
        let named: BTreeSet<&str> = NEEDED.split_whitespace().collect();
        let mut needed = BTreeSet::from(["+eval", "+evalsha", "+info"].map(str::to_owned));
        for code in Scripts::new().codes() {
            // `try` is a name for `pcall`, and `of_string` hands its command on.
            for calls in ["call('", "try('", "of_string('"] {
                for call in code.split(calls).skip(1) {
                    let (command, _) = call.split_once('\'').unwrap();
                    needed.insert(format!("+{}", command.to_lowercase()));
                }
            }
        }
        assert_eq!(
            named,
            needed.iter().map(String::as_str).collect::<BTreeSet<_>>()
        );
    }

    #[test]
    fn an_old_version_and_an_eviction_policy_are_named() {
        let info = "# Server\r\nredis_version:7.0.15\r\n# Memory\r\nmaxmemory_policy:allkeys-lru\r\nrole:master\r\n";
        let warnings: Vec<String> = examine(info).iter().map(ToString::to_string).collect();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("7.0.15") && warnings[0].contains("7.2.11"));
        assert!(warnings[1].contains("allkeys-lru") && warnings[1].contains("noeviction"));
    }

    #[test]
    fn a_server_that_is_well_gets_no_warning() {
        for version in [
            "redis_version:8.2.2",
            "redis_version:7.2.11",
            "redis_version:7.2.4\r\nvalkey_version:8.1.4",
        ] {
            let info = format!("{version}\r\nmaxmemory_policy:noeviction\r\nrole:master\r\n");
            assert_eq!(examine(&info), [], "{version}");
        }
    }
}
