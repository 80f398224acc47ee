//! Takes a document apart, field by field, and says what does not fit where.

use serde_json::{Map, Value};

use super::error::DatabaseError;

/// The fields of a document that nobody has taken yet.
pub(super) struct Fields {
    which: String,
    left: Map<String, Value>,
}

impl Fields {
    pub(super) fn of(kind: &str, document: &Value) -> Result<Self, DatabaseError> {
        let Some(fields) = document.as_object() else {
            return Err(DatabaseError::Document {
                which: format!("a {kind}"),
                why: "expected an object with an id".to_owned(),
            });
        };
        let id = fields.get("id").and_then(Value::as_str).unwrap_or("?");
        let which = match fields.get("plan").and_then(Value::as_str) {
            Some(plan) if kind == "rule" => format!("{kind} {id} of plan {plan}"),
            _ => format!("{kind} {id}"),
        };
        Ok(Self {
            which: tollgate_config::text::escaped(&which, 200),
            left: fields.clone(),
        })
    }

    pub(super) fn of_part(whole: &Self, part: Value) -> Result<Self, DatabaseError> {
        match part {
            Value::Object(left) => Ok(Self {
                which: format!("{}: limit", whole.which),
                left,
            }),
            _ => {
                Err(whole.wrong("limit: expected \"10/s burst 50\" or an object with an algorithm"))
            }
        }
    }

    pub(super) fn wrong(&self, why: impl Into<String>) -> DatabaseError {
        DatabaseError::Document {
            which: self.which.clone(),
            why: why.into(),
        }
    }

    /// What is null was not said.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.left.remove(name).filter(|value| !value.is_null())
    }

    pub(super) fn id(&mut self) -> Result<String, DatabaseError> {
        match self.word("id")? {
            Some(id) => Ok(id),
            None => Err(self.wrong("expected an id")),
        }
    }

    /// A short text without control characters, and not empty.
    pub(super) fn word(&mut self, name: &str) -> Result<Option<String>, DatabaseError> {
        let word = self.text(name, 256)?;
        match &word {
            Some(text) if text.is_empty() || text.chars().any(char::is_control) => Err(self.wrong(
                format!("{name}: expected a text without control characters, and not empty"),
            )),
            _ => Ok(word),
        }
    }

    pub(super) fn text(
        &mut self,
        name: &str,
        most: usize,
    ) -> Result<Option<String>, DatabaseError> {
        // As in the file, where a plan may be called 1.
        let taken = self.take(name).map(|value| match value {
            Value::Number(number) => Value::String(number.to_string()),
            Value::Bool(truth) => Value::String(truth.to_string()),
            other => other,
        });
        match taken {
            None => Ok(None),
            // No database of ours stores a NUL in a text.
            Some(Value::String(text)) if text.chars().count() <= most && !text.contains('\0') => {
                Ok(Some(text))
            }
            Some(_) => Err(self.wrong(format!(
                "{name}: expected a text of at most {most} characters"
            ))),
        }
    }

    pub(super) fn number(&mut self, name: &str) -> Result<Option<i64>, DatabaseError> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match whole_number(&value) {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(format!("{name}: expected a whole number"))),
            },
        }
    }

    pub(super) fn json(
        &mut self,
        name: &str,
        most: usize,
    ) -> Result<Option<String>, DatabaseError> {
        match self.take(name).map(|value| value.to_string()) {
            Some(text) if text.chars().count() > most => {
                Err(self.wrong(format!("{name}: expected at most {most} characters")))
            }
            text => Ok(text),
        }
    }

    pub(super) fn active(&mut self) -> Result<bool, DatabaseError> {
        match self.take("active") {
            None => Ok(true),
            Some(Value::Bool(active)) => Ok(active),
            Some(_) => Err(self.wrong("active: expected true or false")),
        }
    }

    pub(super) fn end(&self) -> Result<(), DatabaseError> {
        match self.left.keys().next() {
            None => Ok(()),
            Some(name) => Err(self.wrong(format!(
                "the database has no place for the field {:?}",
                tollgate_config::text::escaped(name, 64)
            ))),
        }
    }
}

/// As in the file, where it may be quoted, and in groups: 1_000.
fn whole_number(value: &Value) -> Option<i64> {
    let number = match value {
        Value::String(text) => {
            i64::try_from(tollgate_config::document::whole_number(text)?).ok()?
        }
        value => value.as_i64()?,
    };
    Some(number).filter(|number| *number >= 0)
}
