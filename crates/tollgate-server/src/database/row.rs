//! Rules and clients as rows.
//!
//! A document has the form of the configuration file, and a row a column for each of its fields. A field without a column is an
//! error, so nothing is lost. Whether a document makes sense is checked by those who read it.

use serde_json::{Map, Value, json};
use sqlx::{ColumnIndex, Decode, Row as SqlRow, Type};
use tollgate::{Algorithm, Limit};
use tollgate_config::text::escaped;

use super::error::DatabaseError;

/// A rule or a client in the database.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The document, as in the configuration file.
    pub document: Value,
    /// Whether it is in force.
    pub active: bool,
    /// When it was first stored, in microseconds since 1970.
    pub created_us: i64,
    /// When it was last changed, in microseconds since 1970.
    pub updated_us: i64,
}

/// A field whose value changed. Secrets are shown as `***`.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldChange {
    /// The name of the field.
    pub field: &'static str,
    /// The value before, if there was one.
    pub before: Option<Value>,
    /// The value after, if there is one.
    pub after: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Rules,
    Clients,
}

#[derive(Clone, Copy)]
enum Kind {
    /// A short text without control characters that is not empty.
    Word,
    /// Text of at most this many characters.
    Text(usize),
    /// Any JSON, stored as text of at most this many characters.
    Json(usize),
    Number,
    /// True or false, by default true.
    Flag,
    Limit,
    Sha256,
}

type FieldList = &'static [(&'static str, Kind)];

/// The fields of a rule, in the order of their columns.
const RULE: FieldList = &[
    ("id", Kind::Word),
    ("plan", Kind::Word),
    ("match", Kind::Json(16_384)),
    ("per", Kind::Json(4_096)),
    ("limit", Kind::Limit),
    ("mode", Kind::Word),
    ("on_store_failure", Kind::Word),
    ("active", Kind::Flag),
    ("description", Kind::Text(4_096)),
];

/// The fields of a limit. Its columns are among those of the rule.
const LIMIT: FieldList = &[
    ("algorithm", Kind::Word),
    ("rate", Kind::Word),
    ("burst", Kind::Number),
    ("queue", Kind::Number),
    ("limit", Kind::Number),
    ("window", Kind::Word),
];

const CLIENT: FieldList = &[
    ("id", Kind::Word),
    ("plan", Kind::Word),
    ("api_key_sha256", Kind::Sha256),
    ("active", Kind::Flag),
];

impl Table {
    fn fields(self) -> FieldList {
        match self {
            Self::Rules => RULE,
            Self::Clients => CLIENT,
        }
    }
}

/// A row: the fields of a document and `active`, as they are stored. JSON is text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) table: Table,
    fields: Map<String, Value>,
}

/// A row with what the table has beside the document.
pub(super) struct StoredRow {
    pub(super) row: Row,
    pub(super) position: Option<i64>,
    created_us: i64,
    updated_us: i64,
}

pub(super) enum Cell<'a> {
    Text(Option<&'a str>),
    Number(Option<i64>),
    Flag(bool),
}

impl Row {
    pub(super) fn of(table: Table, document: &Value) -> Result<Self, DatabaseError> {
        let kind = match table {
            Table::Rules => "rule",
            Table::Clients => "client",
        };
        let Some(fields) = document.as_object() else {
            let expected = "expected an object with an id";
            return Err(DatabaseError::bad_input(format!("a {kind}"), expected));
        };
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        let id = text("id").unwrap_or("?");
        let name = display_name(table, id, text("plan").unwrap_or_default());
        let name = escaped(&name, 200);
        let fields = read(&name, table.fields(), fields)?;
        match fields.contains_key("id") {
            true => Ok(Self { table, fields }),
            false => Err(DatabaseError::bad_input(name, "expected an id")),
        }
    }

    /// The same with what `document` leaves out as it is stored. A field that is null there is removed.
    pub(super) fn or_stored(mut self, stored: &Self, document: &Value) -> Self {
        for (field, value) in &stored.fields {
            if document.get(field).is_none() {
                self.fields.insert(field.clone(), value.clone());
            }
        }
        self
    }

    pub(super) fn id(&self) -> &str {
        self.text("id").unwrap_or_default()
    }

    /// The plan of a rule is a part of its key. No plan is stored as an empty text.
    pub(super) fn rule_plan(&self) -> &str {
        self.text("plan").unwrap_or_default()
    }

    /// Identifies the row within its table and scope.
    pub(super) fn key(&self) -> (&str, &str) {
        match self.table {
            Table::Rules => (self.id(), self.rule_plan()),
            Table::Clients => (self.id(), ""),
        }
    }

    pub(super) fn api_key(&self) -> Option<&str> {
        self.text("api_key_sha256")
    }

    pub(super) fn name(&self) -> String {
        display_name(self.table, self.id(), self.rule_plan())
    }

    pub(super) fn is_active(&self) -> bool {
        self.fields.get("active") == Some(&Value::Bool(true))
    }

    pub(super) fn document(&self) -> Result<Value, DatabaseError> {
        let mut document = self.fields.clone();
        document.remove("active");
        for (field, kind) in self.table.fields() {
            if let (Kind::Json(_), Some(Value::String(text))) = (kind, self.fields.get(*field)) {
                let value = serde_json::from_str(text).map_err(|error| {
                    let why = format!("column {field:?} is not JSON: {error}");
                    DatabaseError::bad_input(self.name(), why)
                })?;
                document.insert((*field).to_owned(), value);
            }
        }
        Ok(Value::Object(document))
    }

    /// The fields in which `after` differs.
    pub(super) fn changes(&self, after: &Self) -> Vec<FieldChange> {
        let fields = self.table.fields().iter();
        let differs =
            |field: &&(&'static str, Kind)| self.fields.get(field.0) != after.fields.get(field.0);
        let change = |(field, kind): &(&'static str, Kind)| {
            let shown = |row: &Self| match (kind, row.fields.get(*field)) {
                (Kind::Sha256, Some(_)) => Some(json!("***")),
                (Kind::Json(_), Some(Value::String(text))) => {
                    Some(serde_json::from_str(text).unwrap_or_else(|_| json!(text)))
                }
                (_, value) => value.cloned(),
            };
            FieldChange {
                field,
                before: shown(self),
                after: shown(after),
            }
        };
        fields.filter(differs).map(change).collect()
    }

    /// The values in the order of the columns.
    pub(super) fn cells(&self) -> Vec<Cell<'_>> {
        let mut cells = Vec::new();
        for (field, kind) in self.table.fields() {
            let value = self.fields.get(*field);
            match (kind, self.table) {
                (Kind::Limit, _) => cells.extend((LIMIT.iter()).map(|(part, kind)| {
                    let value = value.and_then(|limit| limit.get(part));
                    cell(*kind, value)
                })),
                (_, Table::Rules) if *field == "plan" => {
                    cells.push(Cell::Text(Some(self.rule_plan())));
                }
                (kind, _) => cells.push(cell(*kind, value)),
            }
        }
        cells
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field)?.as_str()
    }
}

impl StoredRow {
    pub(super) fn stored(&self) -> Result<Stored, DatabaseError> {
        Ok(Stored {
            document: self.row.document()?,
            active: self.row.is_active(),
            created_us: self.created_us,
            updated_us: self.updated_us,
        })
    }

    pub(super) fn read<'r, R: SqlRow>(table: Table, row: &'r R) -> Result<Self, sqlx::Error>
    where
        &'static str: ColumnIndex<R>,
        i64: Decode<'r, R::Database> + Type<R::Database>,
        bool: Decode<'r, R::Database> + Type<R::Database>,
        Option<String>: Decode<'r, R::Database> + Type<R::Database>,
        Option<i64>: Decode<'r, R::Database> + Type<R::Database>,
    {
        let read = |column: &'static str, kind: Kind| {
            Ok::<_, sqlx::Error>(match kind {
                Kind::Flag => Some(row.try_get::<bool, _>(column)?.into()),
                Kind::Number => row.try_get::<Option<i64>, _>(column)?.map(Value::from),
                _ => {
                    let text: Option<String> = row.try_get(column)?;
                    // No plan is an empty one.
                    let text = text.filter(|text| column != "plan" || !text.is_empty());
                    text.map(Value::from)
                }
            })
        };
        let mut fields = Map::new();
        let mut limit = Map::new();
        for (field, kind) in table.fields() {
            if matches!(kind, Kind::Limit) {
                for (part, kind) in LIMIT {
                    let column = if *part == "limit" { "max" } else { part };
                    limit.extend(read(column, *kind)?.map(|value| ((*part).to_owned(), value)));
                }
            } else {
                fields.extend(read(field, *kind)?.map(|value| ((*field).to_owned(), value)));
            }
        }
        if !limit.is_empty() {
            fields.insert("limit".to_owned(), Value::Object(limit));
        }
        Ok(Self {
            row: Row { table, fields },
            position: match table {
                Table::Rules => Some(row.try_get("position")?),
                Table::Clients => None,
            },
            created_us: row.try_get("created_us")?,
            updated_us: row.try_get("updated_us")?,
        })
    }
}

fn cell(kind: Kind, value: Option<&Value>) -> Cell<'_> {
    match kind {
        Kind::Number => Cell::Number(value.and_then(Value::as_i64)),
        Kind::Flag => Cell::Flag(value == Some(&Value::Bool(true))),
        _ => Cell::Text(value.and_then(Value::as_str)),
    }
}

fn display_name(table: Table, id: &str, plan: &str) -> String {
    match (table, plan) {
        (Table::Clients, _) => format!("client {id}"),
        (Table::Rules, "") => format!("rule {id}"),
        (Table::Rules, plan) => format!("rule {id} of plan {plan}"),
    }
}

/// Reads these fields, and rejects others. A field that is null is absent. `of` names the document in errors.
fn read(
    of: &str,
    fields: FieldList,
    document: &Map<String, Value>,
) -> Result<Map<String, Value>, DatabaseError> {
    let is_known = |name: &&String| fields.iter().any(|(field, _)| field == name);
    if let Some(name) = document.keys().find(|name| !is_known(name)) {
        let name = escaped(name, 64);
        let why = format!("the database has no column for the field {name:?}");
        return Err(DatabaseError::bad_input(of, why));
    }
    let mut row = Map::new();
    for (field, kind) in fields {
        let value = match document.get(*field).filter(|value| !value.is_null()) {
            Some(value) => read_value(of, field, *kind, value)?,
            None if matches!(kind, Kind::Flag) => Value::Bool(true),
            None => continue,
        };
        // A limit without fields is none.
        if value != json!({}) {
            row.insert((*field).to_owned(), value);
        }
    }
    Ok(row)
}

fn read_value(of: &str, field: &str, kind: Kind, value: &Value) -> Result<Value, DatabaseError> {
    let wrong = |what: &str| DatabaseError::bad_input(of, format!("{field}: expected {what}"));
    match kind {
        Kind::Word => match text(value, 256) {
            Some(word) if !word.is_empty() && !word.contains(char::is_control) => Ok(word.into()),
            _ => Err(wrong(
                "a text of 1 to 256 characters without control characters",
            )),
        },
        Kind::Text(max) => match text(value, max) {
            Some(text) => Ok(text.into()),
            None => Err(wrong(&format!("a text of at most {max} characters"))),
        },
        Kind::Json(max) => match value.to_string() {
            json if json.chars().count() <= max => Ok(json.into()),
            _ => Err(wrong(&format!("at most {max} characters"))),
        },
        Kind::Number => match whole_number(value) {
            Some(number) => Ok(number.into()),
            None => Err(wrong("a whole number")),
        },
        Kind::Flag if value.is_boolean() => Ok(value.clone()),
        Kind::Flag => Err(wrong("true or false")),
        // One spelling of each hash, because the table allows each hash once.
        Kind::Sha256 => match text(value, 64) {
            Some(hex) if hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
                Ok(hex.to_ascii_lowercase().into())
            }
            _ => Err(wrong("64 hexadecimal digits")),
        },
        Kind::Limit => match value {
            Value::Object(limit) => Ok(read(&format!("{of}: limit"), LIMIT, limit)?.into()),
            Value::String(words) => match words.parse() {
                Ok(limit) => Ok(limit_fields(&limit)),
                Err(error) => Err(DatabaseError::bad_input(of, format!("limit: {error}"))),
            },
            _ => Err(wrong("\"10/s burst 50\" or an object with an algorithm")),
        },
    }
}

/// Accepts numbers and booleans as a configuration file does, where a plan may be called 1. No database stores NUL in a text.
fn text(value: &Value, max: usize) -> Option<String> {
    let text = match value {
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        value => value.as_str()?.to_owned(),
    };
    (text.chars().count() <= max && !text.contains('\0')).then_some(text)
}

/// Accepts quotes and groups of digits, as in `1_000`, like a configuration file.
fn whole_number(value: &Value) -> Option<i64> {
    let number = match value {
        Value::String(text) => {
            i64::try_from(tollgate_config::document::whole_number(text)?).ok()?
        }
        value => value.as_i64()?,
    };
    Some(number).filter(|number| *number >= 0)
}

/// The fields of a limit. As text, it is a rate and a capacity, or a capacity "per" a window.
fn limit_fields(limit: &Limit) -> Value {
    let text = limit.to_string();
    let word = |at: usize| text.split(' ').nth(at).unwrap_or_default();
    let (algorithm, capacity) = (limit.algorithm().name(), limit.capacity());
    match limit.algorithm() {
        Algorithm::TokenBucket => {
            json!({ "algorithm": algorithm, "rate": word(0), "burst": capacity })
        }
        Algorithm::LeakyBucket => {
            json!({ "algorithm": algorithm, "rate": word(0), "queue": capacity })
        }
        _ => json!({ "algorithm": algorithm, "limit": capacity, "window": word(2) }),
    }
}
