//! Reads requests in JSON. Errors name the place of a mistake, and what was probably meant.

use std::fmt;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use tollgate_config::document::{listed, shortened};
use tollgate_config::text::nearest;

use crate::problem::Problem;

/// Maximum size of a request body.
pub(super) const MAX_BYTES: usize = 256 * 1_024;

/// Maximum number of characters in a text.
pub(super) const MAX_TEXT: usize = 1_024;

/// Maximum number of characters in a path.
pub(super) const MAX_PATH: usize = 16 * 1_024;

/// The largest number that every JSON parser keeps exact.
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// How long a body may take to arrive.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn body(body: Body) -> Result<Bytes, Problem> {
    let limited = Limited::new(body, MAX_BYTES).collect();
    match tokio::time::timeout(TIMEOUT, limited).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body has more than {MAX_BYTES} bytes"),
        )),
        Ok(Err(_)) => Err(Problem::bad("the body ended early")),
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body took too long",
        )),
    }
}

pub(super) fn json(body: &[u8]) -> Result<Value, Problem> {
    parse(body).map_err(|error| Problem::bad(format!("not JSON: {error}")))
}

/// Parses JSON without duplicate keys: parsers differ in which of them counts, so a gateway in front may have checked another
/// client than the one that would be charged.
fn parse(text: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(text).map(|Strict(value)| value)
}

/// An object whose fields are known.
pub(super) struct Fields<'a> {
    /// Its place; empty for the whole body.
    at: String,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(super) fn of(value: &'a Value, at: &str, known: &[&str]) -> Result<Self, Problem> {
        let Value::Object(map) = value else {
            let place = if at.is_empty() { "the body" } else { at };
            let wanted = listed(known, "and");
            let got = kind(value);
            return Err(Problem::bad(format!(
                "{place}: expected an object with {wanted}, got {got}"
            )));
        };
        let fields = Self {
            at: at.to_owned(),
            map,
        };
        if let Some(name) = map.keys().find(|name| !known.contains(&name.as_str())) {
            let help = match nearest(name, known) {
                Some(meant) => format!("did you mean {meant:?}?"),
                None => format!("known are {}", listed(known, "and")),
            };
            let name = shortened(name);
            return Err(fields.wrong("", format!("there is no field {name} here; {help}")));
        }
        Ok(fields)
    }

    /// The error for a field, or for the object if the name is empty.
    pub(super) fn wrong(&self, name: &str, what: impl fmt::Display) -> Problem {
        match self.path(name).as_str() {
            "" => Problem::bad(what.to_string()),
            path => Problem::bad(format!("{path}: {what}")),
        }
    }

    pub(super) fn path(&self, name: &str) -> String {
        match (self.at.as_str(), name) {
            ("", name) => name.to_owned(),
            (at, "") => at.to_owned(),
            (at, name) => format!("{at}.{name}"),
        }
    }

    /// The value of a field. `null` is treated as absent.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Whether a field is there, even if it is `null`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    /// Text that is not empty.
    pub(super) fn text(&self, name: &str, max: usize) -> Result<Option<&'a str>, Problem> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match value.as_str() {
            Some("") => Err(self.wrong(name, "this is empty; leave it out if there is none")),
            Some(text) if is_longer(text, max) => {
                Err(self.wrong(name, format!("this has more than {max} characters")))
            }
            Some(text) => Ok(Some(text)),
            None => Err(self.wrong(name, format!("expected text, got {}", kind(value)))),
        }
    }

    pub(super) fn required(&self, name: &str, max: usize) -> Result<&'a str, Problem> {
        let missing = || self.wrong("", format!("the field {name:?} is missing"));
        self.text(name, max)?.ok_or_else(missing)
    }

    /// A whole number in any notation: 1.0 and 1e0 are 1, as in JSON Schema.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let wrong = |value| {
            let got = kind(value);
            self.wrong(
                name,
                format!("expected a whole number from 0 to {MAX_NUMBER}, got {got}"),
            )
        };
        let read = |value: &'a Value| whole_number(value).ok_or_else(|| wrong(value));
        self.get(name).map(read).transpose()
    }

    /// True or false, by default false.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => {
                let got = kind(other);
                Err(self.wrong(name, format!("expected true or false, got {got}")))
            }
        }
    }

    pub(super) fn object(&self, name: &str) -> Result<Option<&'a Map<String, Value>>, Problem> {
        let wrong = |value| self.wrong(name, format!("expected an object, got {}", kind(value)));
        let read = |value: &'a Value| value.as_object().ok_or_else(|| wrong(value));
        self.get(name).map(read).transpose()
    }
}

/// Whether a text has more than `max` characters.
pub(super) fn is_longer(text: &str, max: usize) -> bool {
    text.len() > max && text.chars().nth(max).is_some()
}

fn whole_number(value: &Value) -> Option<u64> {
    let number = value.as_u64().or_else(|| {
        let number = value.as_f64().filter(|number| number.fract() == 0.0)?;
        // All whole numbers up to the largest are exact in a double.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "within the bounds"
        )]
        (0.0..=MAX_NUMBER as f64)
            .contains(&number)
            .then_some(number as u64)
    });
    number.filter(|number| *number <= MAX_NUMBER)
}

pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                let key = shortened(&key);
                return Err(A::Error::custom(format_args!(
                    "the key {key} is there twice"
                )));
            }
            let Strict(value) = entries.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_key_is_refused_at_any_depth() {
        for text in [
            r#"{"client":"a","client":"b"}"#,
            r#"{"client":"a","client":"a"}"#,
            r#"{"client":"a","\u0063lient":"b"}"#,
            r#"{"checks":[{"request":{"headers":{"A":"1","A":"2"}}}]}"#,
        ] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("is there twice at line 1 column"), "{error}");
        }
        assert!(parse(br#"[{"a":1},{"a":1,"b":{"a":1}}]"#).is_ok());
    }

    #[test]
    fn other_documents_are_read_as_by_serde_json() {
        for text in [
            "null",
            "true",
            "-1",
            "18446744073709551615",
            "1.5",
            "-0.0",
            "1e300",
            r#""\ud83d\ude00\n""#,
            r#"{"a":[{},[],null,"x"],"b":{"c":-7}}"#,
        ] {
            let usual: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse(text.as_bytes()).unwrap(), usual, "{text}");
        }
        for text in ["", "{", "1e400", "\"\\ud800\"", "\"\u{1}\"", "[1,]", "1 2"] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert!(parse(deep.as_bytes()).is_err());
    }
}
