//! The URL of a database: what it names, and what messages may show of it.

use std::fmt;
use std::path::PathBuf;

use tollgate_config::encryption::percent_decoded;
use tollgate_config::text::escaped;

use super::encryption;
use super::error::DatabaseError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatabaseKind {
    Sqlite,
    Postgres,
}

/// A valid URL. It is displayed without user, password and settings.
pub(super) struct Address {
    pub(super) kind: DatabaseKind,
    shown: String,
    /// SQLite's file.
    file: Option<PathBuf>,
    /// What no message may contain.
    secrets: Vec<String>,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, DatabaseError> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            return Self::of_sqlite(path.strip_prefix("//").unwrap_or(path));
        }
        let postgres = url.strip_prefix("postgres://");
        match postgres.or_else(|| url.strip_prefix("postgresql://")) {
            Some(rest) => Ok(Self::of_postgres(rest)),
            None => {
                let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
                let is_scheme = scheme.chars().all(|c| c.is_ascii_alphanumeric());
                let shown = match is_scheme && !scheme.is_empty() {
                    true => format!("{scheme}:…"),
                    false => "the database's URL".to_owned(),
                };
                let expected = "expected sqlite:path or postgres://user:password@host/name";
                Err(DatabaseError::bad_input(shown, expected))
            }
        }
    }

    fn of_sqlite(path: &str) -> Result<Self, DatabaseError> {
        let file = path.split('?').next().unwrap_or_default();
        let shown = format!("sqlite:{}", escaped(file, 256));
        if file.is_empty() || file.contains(":memory:") || path.contains("mode=memory") {
            let expected = "expected the path of a file, as in sqlite:tollgate.db, because a database in memory is lost with the process";
            return Err(DatabaseError::bad_input(shown, expected));
        }
        Ok(Self {
            kind: DatabaseKind::Sqlite,
            shown,
            file: Some(percent_decoded(file).into()),
            secrets: Vec::new(),
        })
    }

    fn of_postgres(rest: &str) -> Self {
        let (authority, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A password may contain an unescaped slash, so the last @ counts.
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let password = user.split_once(':').map_or("", |(_, password)| password);
        let mut secrets: Vec<String> = query
            .split('&')
            .filter_map(|pair| pair.strip_prefix("password="))
            .chain([password])
            .filter(|secret| !secret.is_empty())
            .flat_map(|secret| [secret.to_owned(), percent_decoded(secret)])
            .collect();
        // The longest first, because it may contain a shorter one.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self {
            kind: DatabaseKind::Postgres,
            shown: format!("postgres://{}", escaped(host, 256)),
            file: None,
            secrets,
        }
    }

    /// Whether it names a file that does not exist.
    pub(super) fn is_missing(&self) -> bool {
        self.file.as_ref().is_some_and(|file| !file.exists())
    }

    /// The error for a URL that the driver rejects.
    pub(super) fn rejected(&self, error: &impl ToString) -> DatabaseError {
        DatabaseError::bad_input(self, self.without_secrets(&error.to_string()))
    }

    /// The error for an action, such as "read the rules", that the driver reports as failed.
    pub(super) fn failed(&self, action: &str, error: &sqlx::Error) -> DatabaseError {
        let advice = encryption::advice(error).unwrap_or_else(|| advice(error));
        let why = self.without_secrets(&error.to_string());
        let why = format!("cannot {action}: {why}{advice}");
        match is_about_data(error) {
            true => DatabaseError::bad_input(self, why),
            false => DatabaseError::failed(self, why),
        }
    }

    fn without_secrets(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), "***");
        }
        escaped(&text, 512)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// What to do where the database's own message does not say.
fn advice(error: &sqlx::Error) -> &'static str {
    match code(error).as_deref() {
        // SQLite: CANTOPEN, READONLY and NOTADB.
        Some("14") => "; its folder must exist and be writable for this user",
        Some("8") => "; the file and its folder must be writable for this user",
        Some("26") => "; name a file that does not exist yet, or one that Tollgate created",
        _ => "",
    }
}

/// Whether the database will always refuse this data: SQLSTATE class 22 (data) or 23 (constraint); SQLite's 19 (constraint) and 20
/// (mismatch), in the low byte of its codes.
fn is_about_data(error: &sqlx::Error) -> bool {
    let Some(code) = code(error) else {
        return false;
    };
    match code.len() {
        5 => code.starts_with("22") || code.starts_with("23"),
        _ => (code.parse::<u32>()).is_ok_and(|code| matches!(code & 0xff, 19 | 20)),
    }
}

fn code(error: &sqlx::Error) -> Option<String> {
    let code = error.as_database_error()?.code()?;
    Some(code.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_user_password_and_settings() {
        let url = "postgres://me:s3c%2Fret@db.example:5432/limits?password=other&sslmode=require";
        let address = Address::parse(url).unwrap();
        assert_eq!(address.to_string(), "postgres://db.example:5432/limits");
        let shown = address.without_secrets("no: s3c/ret, s3c%2Fret and other");
        assert_eq!(shown, "no: ***, *** and ***");
    }

    #[test]
    fn an_unknown_url_is_rejected_without_repeating_it() {
        for url in ["mysql://me:secret@host/x", "secret", "", "se cret://x"] {
            let Err(error) = Address::parse(url) else {
                panic!("{url} was accepted")
            };
            assert!(!error.to_string().contains("secret"), "{error}");
            assert!(
                error.to_string().contains("expected sqlite:path"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_database_in_memory_is_rejected() {
        for url in ["sqlite::memory:", "sqlite:", "sqlite://x?mode=memory"] {
            assert!(Address::parse(url).is_err(), "{url}");
        }
        let relative = Address::parse("sqlite:a.db").unwrap();
        assert_eq!(relative.to_string(), "sqlite:a.db");
        let absolute = Address::parse("sqlite:///tmp/a.db").unwrap();
        assert_eq!(absolute.kind, DatabaseKind::Sqlite);
    }
}
