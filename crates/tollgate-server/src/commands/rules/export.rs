//! `tollgate rules export`: in a form that `rules import` and a configuration file understand.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::cli::{ExportArgs, ExportFormat};
use crate::commands::database::{Meant, block_on};
use crate::failure::Failure;

/// The fields in the order in which people write them.
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
    meant: &Meant,
    args: &ExportArgs,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let (rules, clients) = block_on(async {
        let database = meant.open_what_is_there().await?;
        let listed = database.list(&meant.scope).await?;
        database.close().await;
        Ok(listed)
    })?;
    let documents = |stored: Vec<(Value, bool)>| -> Vec<Value> {
        let wanted = stored.into_iter().filter(|(_, active)| *active || args.all);
        wanted
            .map(|(mut document, active)| {
                if !active {
                    document["active"] = json!(false);
                }
                document
            })
            .collect()
    };
    let rules = documents(
        rules
            .into_iter()
            .map(|rule| (rule.document, rule.active))
            .collect(),
    );
    let clients = documents(
        clients
            .into_iter()
            .map(|client| (client.document, client.active))
            .collect(),
    );
    match args.format {
        ExportFormat::Json => {
            let all = json!({ "rules": rules, "clients": clients });
            writeln!(out, "{}", without_variables(&format!("{all:#}")))?;
        }
        ExportFormat::Yaml => {
            write_section(out, "rules", &rules)?;
            write_section(out, "clients", &clients)?;
        }
    }
    Ok(())
}

/// Every value is written as JSON, which is YAML too: quoted, so that nothing is taken for something else.
fn write_section(out: &mut impl Write, name: &str, documents: &[Value]) -> io::Result<()> {
    if documents.is_empty() {
        return Ok(());
    }
    writeln!(out, "{name}:")?;
    for document in documents {
        let mut lead = "  - ";
        for field in ORDER {
            if let Some(value) = document.get(field) {
                writeln!(
                    out,
                    "{lead}{field}: {}",
                    without_variables(&value.to_string())
                )?;
                lead = "    ";
            }
        }
    }
    Ok(())
}

/// What looks like a variable is text here, and a file says that so.
fn without_variables(text: &str) -> String {
    text.replace("${", "$${")
}
