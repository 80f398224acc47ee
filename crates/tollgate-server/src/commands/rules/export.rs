//! `tollgate rules export`: prints rules and clients for `rules import` or a configuration file.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::cli::{ExportArgs, ExportFormat};
use crate::commands::database::DatabaseTarget;
use crate::database::Stored;
use crate::failure::Failure;

const ORDER: [&str; 10] = [
    "id",
    "plan",
    "description",
    "api_key_sha256",
    "match",
    "per",
    "limit",
    "mode",
    "on_store_failure",
    "active",
];

pub(super) fn export(
    target: &DatabaseTarget,
    args: &ExportArgs,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let (rules, clients) = target.list()?;
    let documents = |stored: Vec<Stored>| -> Vec<Value> {
        let wanted = stored.into_iter().filter(|it| it.active || args.all);
        let document = |mut stored: Stored| {
            if !stored.active {
                stored.document["active"] = json!(false);
            }
            stored.document
        };
        wanted.map(document).collect()
    };
    let (rules, clients) = (documents(rules), documents(clients));
    match args.format {
        ExportFormat::Json => {
            let all = json!({ "rules": rules, "clients": clients });
            writeln!(out, "{}", escape_variables(&format!("{all:#}")))?;
        }
        ExportFormat::Yaml => {
            write_section(out, "rules", &rules)?;
            write_section(out, "clients", &clients)?;
        }
    }
    Ok(())
}

/// Writes every value as JSON, which is valid YAML: quoted, so that text stays text.
fn write_section(out: &mut impl Write, name: &str, documents: &[Value]) -> io::Result<()> {
    if documents.is_empty() {
        return Ok(());
    }
    writeln!(out, "{name}:")?;
    for document in documents {
        let mut lead = "  - ";
        for field in ORDER {
            if let Some(value) = document.get(field) {
                let value = escape_variables(&value.to_string());
                writeln!(out, "{lead}{field}: {value}")?;
                lead = "    ";
            }
        }
    }
    Ok(())
}

/// Keeps text that looks like a variable as text.
fn escape_variables(text: &str) -> String {
    text.replace("${", "$${")
}
