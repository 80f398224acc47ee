//! `tollgate violations`: prints the audit trail.

use std::io::Write;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use tollgate_config::Config;
use tollgate_config::text::escaped;

use super::inputs::DatabaseTarget;
use super::write_table;
use crate::cli::ViolationsArgs;
use crate::database::{ViolationFilter, ViolationRow};
use crate::failure::Failure;
use crate::time::{unix_micros, utc_second};

pub(super) fn violations(args: &ViolationsArgs, out: &mut impl Write) -> Result<(), Failure> {
    let target = DatabaseTarget::of(&args.target)?;
    let filter = filter(&target, args);
    let rows = target.run(async |database| database.violations(&filter).await)?;
    if args.json {
        for row in &rows {
            serde_json::to_writer(&mut *out, row).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        return Ok(());
    }
    if rows.is_empty() {
        writeln!(out, "no violations")?;
        if let Some(client) = args.client.as_ref().filter(|client| !client.contains(':')) {
            let client = escaped(client, 128);
            writeln!(
                out,
                "hint: clients that a header names are called like x-user-id:{client}"
            )?;
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

/// An address as it is stored, which is the form in which it is counted.
fn counted(ip: IpAddr, config: Option<&Config>) -> IpAddr {
    let identity = config.map(|config| config.policy.identity.clone());
    let identity = identity.unwrap_or_default();
    identity.caller_by_address(ip, &HeaderMap::new()).ip()
}

/// The filter, with texts as they were stored.
fn filter(target: &DatabaseTarget, args: &ViolationsArgs) -> ViolationFilter {
    let since = |since| SystemTime::now().checked_sub(since).unwrap_or(UNIX_EPOCH);
    ViolationFilter {
        scope: Some(target.scope.clone()),
        client: args.client.as_deref().map(|client| escaped(client, 128)),
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
