//! A rule or client as a document, and as a row.
//!
//! A document has the form of the configuration file; a row has a column for each field. Nothing is lost on the way:
//! a field that has no column is an error. Whether the document makes sense is for whoever reads rules to say.

use serde_json::{Value, json};
use sqlx::{ColumnIndex, Decode, FromRow, Row, Type};
use tollgate::{Algorithm, Limit};

use super::error::DatabaseError;
use super::fields::Fields;

/// A rule as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRule {
    /// The rule, as the configuration file has it.
    pub document: Value,
    /// Whether it is in force.
    pub active: bool,
    /// When it was first stored, in microseconds since 1970.
    pub created_us: i64,
    /// When it was last changed, in microseconds since 1970.
    pub updated_us: i64,
}

/// A client as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredClient {
    /// The client, as the configuration file has it.
    pub document: Value,
    /// Whether it is known.
    pub active: bool,
    /// When it was first stored, in microseconds since 1970.
    pub created_us: i64,
    /// When it was last changed, in microseconds since 1970.
    pub updated_us: i64,
}

/// The columns of a rule that a document says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RuleRow {
    pub(super) id: String,
    /// Empty: none.
    pub(super) plan: String,
    pub(super) matches: Option<String>,
    pub(super) per: Option<String>,
    pub(super) limit: LimitColumns,
    pub(super) mode: Option<String>,
    pub(super) on_store_failure: Option<String>,
    pub(super) active: bool,
    pub(super) description: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LimitColumns {
    pub(super) algorithm: Option<String>,
    pub(super) rate: Option<String>,
    pub(super) burst: Option<i64>,
    pub(super) queue: Option<i64>,
    pub(super) max: Option<i64>,
    pub(super) window: Option<String>,
}

/// The columns of a client that a document says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClientRow {
    pub(super) id: String,
    pub(super) plan: Option<String>,
    pub(super) api_key_sha256: Option<String>,
    pub(super) active: bool,
}

/// A field of a row, as a document has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) value: Option<Value>,
    /// It may not be shown.
    pub(super) is_secret: bool,
}

impl Field {
    fn open(name: &'static str, value: Option<Value>) -> Self {
        Self {
            name,
            value,
            is_secret: false,
        }
    }
}

/// A row with what the table knows beside it.
pub(super) struct Kept<T> {
    pub(super) row: T,
    pub(super) position: i64,
    pub(super) created_us: i64,
    pub(super) updated_us: i64,
}

impl RuleRow {
    pub(super) fn of(document: &Value) -> Result<Self, DatabaseError> {
        let mut fields = Fields::of("rule", document)?;
        let row = Self {
            id: fields.id()?,
            plan: fields.word("plan")?.unwrap_or_default(),
            matches: fields.json("match", 16_384)?,
            per: fields.json("per", 4_096)?,
            limit: LimitColumns::of(&mut fields)?,
            mode: fields.word("mode")?,
            on_store_failure: fields.word("on_store_failure")?,
            active: fields.active()?,
            description: fields.text("description", 4_096)?,
        };
        fields.end()?;
        Ok(row)
    }

    /// The same with what `document` leaves out as it is stored. What is null in it was said: nothing.
    pub(super) fn over(self, stored: &Self, document: &Value) -> Self {
        let kept = |field: &str| document.get(field).is_none();
        let or = |field: &str, new, stored: &Option<String>| match kept(field) {
            true => stored.clone(),
            false => new,
        };
        Self {
            id: self.id,
            plan: self.plan,
            matches: or("match", self.matches, &stored.matches),
            per: or("per", self.per, &stored.per),
            limit: match kept("limit") {
                true => stored.limit.clone(),
                false => self.limit,
            },
            mode: or("mode", self.mode, &stored.mode),
            on_store_failure: or(
                "on_store_failure",
                self.on_store_failure,
                &stored.on_store_failure,
            ),
            active: match kept("active") {
                true => stored.active,
                false => self.active,
            },
            description: or("description", self.description, &stored.description),
        }
    }

    /// What it says beside its name.
    pub(super) fn fields(&self) -> Vec<Field> {
        let json = |text: &Option<String>| {
            let parse = |text: &String| serde_json::from_str(text).unwrap_or_else(|_| json!(text));
            text.as_ref().map(parse)
        };
        let text = |text: &Option<String>| text.clone().map(Value::from);
        vec![
            Field::open("match", json(&self.matches)),
            Field::open("per", json(&self.per)),
            Field::open("limit", self.limit.document()),
            Field::open("mode", text(&self.mode)),
            Field::open("on_store_failure", text(&self.on_store_failure)),
            Field::open("description", text(&self.description)),
            Field::open("active", Some(json!(self.active))),
        ]
    }

    /// As messages call it.
    pub(super) fn name(&self) -> String {
        match self.plan.as_str() {
            "" => format!("rule {}", self.id),
            plan => format!("rule {} of plan {plan}", self.id),
        }
    }

    pub(super) fn document(&self) -> Result<Value, DatabaseError> {
        let json_of = |column: &str, text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => {
                serde_json::from_str(text)
                    .map(Some)
                    .map_err(|error| DatabaseError::Document {
                        which: self.name(),
                        why: format!("column {column:?} is no JSON: {error}"),
                    })
            }
        };
        let plan = Some(self.plan.clone()).filter(|plan| !plan.is_empty());
        let said = [
            ("id", Some(json!(self.id))),
            ("plan", plan.map(Value::from)),
            ("match", json_of("match", &self.matches)?),
            ("per", json_of("per", &self.per)?),
            ("limit", self.limit.document()),
            ("mode", self.mode.clone().map(Value::from)),
            (
                "on_store_failure",
                self.on_store_failure.clone().map(Value::from),
            ),
            ("description", self.description.clone().map(Value::from)),
        ];
        Ok(object(said))
    }
}

impl LimitColumns {
    fn of(fields: &mut Fields) -> Result<Self, DatabaseError> {
        let limit = match fields.take("limit") {
            None => return Ok(Self::default()),
            Some(Value::String(text)) => {
                return text
                    .parse()
                    .map(|limit| Self::of_limit(&limit))
                    .map_err(|error| fields.wrong(format!("limit: {error}")));
            }
            Some(limit) => limit,
        };
        let mut limit = Fields::of_part(fields, limit)?;
        let columns = Self {
            algorithm: limit.word("algorithm")?,
            rate: limit.word("rate")?,
            burst: limit.number("burst")?,
            queue: limit.number("queue")?,
            max: limit.number("limit")?,
            window: limit.word("window")?,
        };
        limit.end()?;
        Ok(columns)
    }

    /// A limit says itself in words that its parser understands: rate and capacity, or capacity "per" window.
    pub(super) fn of_limit(limit: &Limit) -> Self {
        let text = limit.to_string();
        let words: Vec<&str> = text.split(' ').collect();
        let word = |at: usize| words.get(at).map(|word| (*word).to_owned());
        let capacity = i64::try_from(limit.capacity()).ok();
        let algorithm = limit.algorithm();
        let mut columns = Self {
            algorithm: Some(algorithm.name().to_owned()),
            ..Self::default()
        };
        match algorithm {
            Algorithm::TokenBucket => (columns.rate, columns.burst) = (word(0), capacity),
            Algorithm::LeakyBucket => (columns.rate, columns.queue) = (word(0), capacity),
            _ => (columns.max, columns.window) = (capacity, word(2)),
        }
        columns
    }

    fn document(&self) -> Option<Value> {
        let said = object([
            ("algorithm", self.algorithm.clone().map(Value::from)),
            ("rate", self.rate.clone().map(Value::from)),
            ("burst", self.burst.map(Value::from)),
            ("queue", self.queue.map(Value::from)),
            ("limit", self.max.map(Value::from)),
            ("window", self.window.clone().map(Value::from)),
        ]);
        Some(said).filter(|said| said.as_object().is_some_and(|said| !said.is_empty()))
    }
}

impl ClientRow {
    pub(super) fn of(document: &Value) -> Result<Self, DatabaseError> {
        let mut fields = Fields::of("client", document)?;
        let row = Self {
            id: fields.id()?,
            plan: fields.word("plan")?,
            // One hash, one spelling: the table allows each once.
            api_key_sha256: fields
                .word("api_key_sha256")?
                .map(|hex| hex.to_ascii_lowercase()),
            active: fields.active()?,
        };
        let is_hash = |hex: &String| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit());
        if row.api_key_sha256.as_ref().is_some_and(|hex| !is_hash(hex)) {
            return Err(fields.wrong("api_key_sha256: expected 64 hexadecimal digits"));
        }
        fields.end()?;
        Ok(row)
    }

    /// The same with what `document` leaves out as it is stored. What is null in it was said: nothing.
    pub(super) fn over(self, stored: &Self, document: &Value) -> Self {
        let kept = |field: &str| document.get(field).is_none();
        let or = |field: &str, new, stored: &Option<String>| match kept(field) {
            true => stored.clone(),
            false => new,
        };
        Self {
            id: self.id,
            plan: or("plan", self.plan, &stored.plan),
            api_key_sha256: or(
                "api_key_sha256",
                self.api_key_sha256,
                &stored.api_key_sha256,
            ),
            active: match kept("active") {
                true => stored.active,
                false => self.active,
            },
        }
    }

    /// What it says beside its name.
    pub(super) fn fields(&self) -> Vec<Field> {
        vec![
            Field::open("plan", self.plan.clone().map(Value::from)),
            Field {
                name: "api_key_sha256",
                value: self.api_key_sha256.clone().map(Value::from),
                is_secret: true,
            },
            Field::open("active", Some(json!(self.active))),
        ]
    }

    pub(super) fn name(&self) -> String {
        format!("client {}", self.id)
    }

    pub(super) fn document(&self) -> Value {
        object([
            ("id", Some(json!(self.id))),
            ("plan", self.plan.clone().map(Value::from)),
            (
                "api_key_sha256",
                self.api_key_sha256.clone().map(Value::from),
            ),
        ])
    }
}

impl Kept<RuleRow> {
    pub(super) fn stored(&self) -> Result<StoredRule, DatabaseError> {
        Ok(StoredRule {
            document: self.row.document()?,
            active: self.row.active,
            created_us: self.created_us,
            updated_us: self.updated_us,
        })
    }
}

impl Kept<ClientRow> {
    pub(super) fn stored(&self) -> StoredClient {
        StoredClient {
            document: self.row.document(),
            active: self.row.active,
            created_us: self.created_us,
            updated_us: self.updated_us,
        }
    }
}

impl<'r, R: Row> FromRow<'r, R> for Kept<RuleRow>
where
    &'static str: ColumnIndex<R>,
    String: Decode<'r, R::Database> + Type<R::Database>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    bool: Decode<'r, R::Database> + Type<R::Database>,
    Option<String>: Decode<'r, R::Database> + Type<R::Database>,
    Option<i64>: Decode<'r, R::Database> + Type<R::Database>,
{
    fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
        let limit = LimitColumns {
            algorithm: row.try_get("algorithm")?,
            rate: row.try_get("rate")?,
            burst: row.try_get("burst")?,
            queue: row.try_get("queue")?,
            max: row.try_get("max")?,
            window: row.try_get("window")?,
        };
        let rule = RuleRow {
            id: row.try_get("id")?,
            plan: row.try_get("plan")?,
            matches: row.try_get("match")?,
            per: row.try_get("per")?,
            limit,
            mode: row.try_get("mode")?,
            on_store_failure: row.try_get("on_store_failure")?,
            active: row.try_get("active")?,
            description: row.try_get("description")?,
        };
        Ok(Self {
            row: rule,
            position: row.try_get("position")?,
            created_us: row.try_get("created_us")?,
            updated_us: row.try_get("updated_us")?,
        })
    }
}

impl<'r, R: Row> FromRow<'r, R> for Kept<ClientRow>
where
    &'static str: ColumnIndex<R>,
    String: Decode<'r, R::Database> + Type<R::Database>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    bool: Decode<'r, R::Database> + Type<R::Database>,
    Option<String>: Decode<'r, R::Database> + Type<R::Database>,
{
    fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
        let client = ClientRow {
            id: row.try_get("id")?,
            plan: row.try_get("plan")?,
            api_key_sha256: row.try_get("api_key_sha256")?,
            active: row.try_get("active")?,
        };
        Ok(Self {
            row: client,
            position: 0,
            created_us: row.try_get("created_us")?,
            updated_us: row.try_get("updated_us")?,
        })
    }
}

fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let said = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(said.collect())
}
