//! `tollgate violations`: prints the audit trail.

use std::io::Write;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use tollgate_config::text::escaped;
use tollgate_config::{Config, RulesFrom};
use tollgate_tower::identity::Clients;

use super::inputs::DatabaseTarget;
use super::write_table;
use crate::cli::ViolationsArgs;
use crate::database::{Database, DatabaseError, ViolationFilter, ViolationRow};
use crate::failure::Failure;
use crate::time::{unix_micros, utc_second};
use crate::usage::naming_hint;

pub(super) fn violations(args: &ViolationsArgs, out: &mut impl Write) -> Result<(), Failure> {
    let target = DatabaseTarget::of(&args.target)?;
    let (rows, hint) = target.run(async |database| {
        let client = match &args.client {
            Some(client) => Some(Client::find(client, &target, database).await?),
            None => None,
        };
        let filter = filter(&target, args, client.as_ref());
        let rows = database.violations(&filter).await?;
        Ok((rows, client.and_then(|client| client.hint)))
    })?;
    if args.json {
        for row in &rows {
            serde_json::to_writer(&mut *out, row).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        return Ok(());
    }
    if rows.is_empty() {
        writeln!(out, "no violations")?;
        if let Some(hint) = hint {
            writeln!(out, "hint: {hint}")?;
        }
        return Ok(());
    }
    let head = [
        "first (UTC)",
        "count",
        "rule",
        "client",
        "ip",
        "endpoint",
        "left",
        "cost",
        "source",
    ];
    let rows: Vec<_> = rows.iter().map(cells).collect();
    Ok(write_table(out, head, &rows)?)
}

/// A client as it was named, by the name under which it is counted.
struct Client {
    name: String,
    /// How clients are named, if this one is unknown.
    hint: Option<String>,
}

impl Client {
    async fn find(
        text: &str,
        target: &DatabaseTarget,
        database: &Database,
    ) -> Result<Self, DatabaseError> {
        let Some(config) = &target.config else {
            let hint =
                "without a configuration (-c FILE), give the whole name, such as x-user-id:42";
            return Ok(Self {
                name: text.to_owned(),
                hint: (!text.contains(':')).then(|| hint.to_owned()),
            });
        };
        let text = text.trim_matches([' ', '\t']);
        let (identity, mut clients) = (&config.policy.identity, &config.policy.clients);
        let nobody = Clients::default();
        if config.rules_from == RulesFrom::Database {
            clients = &nobody;
            let (_, stored) = database.list(&target.scope).await?;
            let mut active = stored.iter().filter(|client| client.active);
            if active.any(|client| client.document["id"] == text) {
                return Ok(Self {
                    name: text.to_owned(),
                    hint: None,
                });
            }
        }
        let name = identity.client_name(text, clients).into_owned();
        let is_named = clients.contains(&name) || name.starts_with("ip:");
        let hint = (!is_named).then(|| naming_hint(identity));
        Ok(Self { name, hint })
    }
}

/// An address as it is stored, which is the form in which it is counted.
fn counted(ip: IpAddr, config: Option<&Config>) -> IpAddr {
    let identity = config.map(|config| config.policy.identity.clone());
    let identity = identity.unwrap_or_default();
    identity.caller_by_address(ip, &HeaderMap::new()).ip()
}

/// The filter, with texts as they were stored.
fn filter(
    target: &DatabaseTarget,
    args: &ViolationsArgs,
    client: Option<&Client>,
) -> ViolationFilter {
    let since = |since| SystemTime::now().checked_sub(since).unwrap_or(UNIX_EPOCH);
    ViolationFilter {
        scope: Some(target.scope.clone()),
        client: client.map(|client| escaped(&client.name, 128)),
        ip: (args.ip).map(|ip| counted(ip, target.config.as_ref()).to_string()),
        rule: args.rule.as_deref().map(|rule| escaped(rule, 128)),
        since_us: args.since.map(since).map(unix_micros),
        limit: Some(args.limit),
    }
}

fn cells(row: &ViolationRow) -> [String; 9] {
    let first = |text: &Option<String>, others: bool| {
        let text = text.as_deref().unwrap_or("-");
        format!("{text}{}", if others { " +others" } else { "" })
    };
    [
        utc_second(row.at_us),
        row.count.to_string(),
        row.rule.clone(),
        first(&row.client, row.other_clients),
        first(&row.ip, row.other_ips),
        first(&row.endpoint, row.other_endpoints),
        row.remaining.to_string(),
        row.cost.to_string(),
        row.source.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_queried_as_it_was_counted() {
        let text = "{ identity: { ipv6_prefix: 48 }, rules: [{ id: any, per: [], limit: 1/s }] }";
        let config = tollgate_config::parse(text, &|_| None).unwrap();
        let stored = |ip: &str, config| counted(ip.parse().unwrap(), config).to_string();
        for (ip, expected) in [
            ("203.0.113.7", "203.0.113.7"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("64:ff9b::203.0.113.7", "203.0.113.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            assert_eq!(stored(ip, None), expected);
        }
        let wide = stored("2001:db8:1:2:3:4:5:6", Some(&config));
        assert_eq!(wide, "2001:db8:1::");
    }
}
