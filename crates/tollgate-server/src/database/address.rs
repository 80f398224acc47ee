//! Where a database is, as told by its URL; and how to speak of it without telling secrets.

use std::path::PathBuf;

use tollgate_config::encryption::percent_decoded;
use tollgate_config::text::escaped;

use super::encryption;
use super::error::DatabaseError;

/// The two kinds of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Sqlite,
    Postgres,
}

/// A URL that was understood, in the form in which it may be shown.
pub(super) struct Address {
    kind: Kind,
    shown: String,
    /// SQLite's file.
    file: Option<PathBuf>,
    /// What must not show up in any message.
    secrets: Vec<String>,
}

impl Address {
    pub(super) fn of(url: &str) -> Result<Self, DatabaseError> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            return Self::of_sqlite(path.strip_prefix("//").unwrap_or(path));
        }
        let rest = url.strip_prefix("postgres://");
        let Some(rest) = rest.or_else(|| url.strip_prefix("postgresql://")) else {
            let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
            return Err(DatabaseError::Url {
                database: match scheme.chars().all(|c| c.is_ascii_alphanumeric()) {
                    true if !scheme.is_empty() => format!("{scheme}:…"),
                    _ => "the database's URL".to_owned(),
                },
                why: "expected sqlite:path or postgres://user:password@host/name".to_owned(),
            });
        };
        Ok(Self::of_postgres(rest))
    }

    fn of_sqlite(path: &str) -> Result<Self, DatabaseError> {
        let file = path.split('?').next().unwrap_or_default();
        let shown = format!("sqlite:{}", escaped(file, 256));
        if file.is_empty() || file.contains(":memory:") || path.contains("mode=memory") {
            return Err(DatabaseError::Url {
                database: shown,
                why: "expected the path of a file, as in sqlite:tollgate.db: what is only in memory is lost"
                    .to_owned(),
            });
        }
        Ok(Self {
            kind: Kind::Sqlite,
            shown,
            file: Some(percent_decoded(file).into()),
            secrets: Vec::new(),
        })
    }

    fn of_postgres(rest: &str) -> Self {
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A password may hold a slash, if somebody forgot to escape it: the last @ counts.
        let (user, place) = place.rsplit_once('@').unwrap_or(("", place));
        let password = user.split_once(':').map_or("", |(_, password)| password);
        let mut secrets: Vec<String> = query
            .split('&')
            .filter_map(|pair| pair.strip_prefix("password="))
            .chain([password])
            .filter(|secret| !secret.is_empty())
            .flat_map(|secret| [secret.to_owned(), percent_decoded(secret)])
            .collect();
        // The longest first, as a short one may be part of it.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self {
            kind: Kind::Postgres,
            file: None,
            shown: format!("postgres://{}", escaped(place, 256)),
            secrets,
        }
    }

    /// Whether it is a file that is not there.
    pub(super) fn is_missing(&self) -> bool {
        self.file.as_ref().is_some_and(|file| !file.exists())
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Without user, password and settings.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// A URL that the driver does not understand.
    pub(super) fn refused(&self, error: &impl ToString) -> DatabaseError {
        DatabaseError::Url {
            database: self.shown.clone(),
            why: self.without_secrets(&error.to_string()),
        }
    }

    /// Something that the database, or the way to it, did not do.
    pub(super) fn failed(&self, doing: &'static str, error: &sqlx::Error) -> DatabaseError {
        DatabaseError::Failed {
            doing,
            database: self.shown.clone(),
            why: format!(
                "{}{}",
                self.without_secrets(&error.to_string()),
                encryption::remedy(error).unwrap_or_else(|| remedy(error))
            ),
            is_about_data: is_about_data(error),
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

/// What to do about it, where the database's own words do not say.
fn remedy(error: &sqlx::Error) -> &'static str {
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    match code.as_deref() {
        // SQLite: CANTOPEN, READONLY and NOTADB.
        Some("14") => "; its folder must be there, and this user must be allowed to write in it",
        Some("8") => "; this user must be allowed to write the file and in its folder",
        Some("26") => "; name a file that is not there yet, or one that Tollgate made",
        _ => "",
    }
}

/// Whether the database will refuse the same data again, however often it is asked: SQLSTATE class 22 (data) or 23
/// (constraint); SQLite's 19 (constraint) and 20 (mismatch), in the low byte of its codes.
fn is_about_data(error: &sqlx::Error) -> bool {
    let Some(code) = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
    else {
        return false;
    };
    match code.len() {
        5 => code.starts_with("22") || code.starts_with("23"),
        _ => code
            .parse::<u32>()
            .is_ok_and(|code| matches!(code & 0xff, 19 | 20)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_has_no_user_password_or_settings() {
        let url = "postgres://me:s3c%2Fret@db.example:5432/limits?password=other&sslmode=require";
        let address = Address::of(url).unwrap();
        assert_eq!(address.shown(), "postgres://db.example:5432/limits");
        let told = address.without_secrets("no: s3c/ret, s3c%2Fret and other");
        assert_eq!(told, "no: ***, *** and ***");
    }

    #[test]
    fn what_is_no_database_is_refused_without_repeating_it() {
        for url in ["mysql://me:secret@host/x", "secret", "", "se cret://x"] {
            let Err(error) = Address::of(url) else {
                panic!("{url} was taken")
            };
            assert!(!error.to_string().contains("secret"), "{error}");
            assert!(
                error.to_string().contains("expected sqlite:path"),
                "{error}"
            );
        }
    }

    #[test]
    fn memory_is_no_place_for_rules() {
        for url in ["sqlite::memory:", "sqlite:", "sqlite://x?mode=memory"] {
            assert!(Address::of(url).is_err(), "{url}");
        }
        assert_eq!(Address::of("sqlite:a.db").unwrap().shown(), "sqlite:a.db");
        assert_eq!(
            Address::of("sqlite:///tmp/a.db").unwrap().kind(),
            Kind::Sqlite
        );
    }
}
