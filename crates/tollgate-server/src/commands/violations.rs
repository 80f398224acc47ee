//! `tollgate violations`: prints the audit trail.

use std::io::Write;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use tollgate_config::text::escaped;

use super::block_on;
use super::database::DatabaseTarget;
use super::table::write_table;
use crate::cli::ViolationsArgs;
use crate::database::{ViolationFilter, ViolationRow};
use crate::failure::Failure;
use crate::time::{unix_micros, utc_second};

pub(super) fn violations(args: &ViolationsArgs, out: &mut impl Write) -> Result<(), Failure> {
    let target = DatabaseTarget::of(&args.target)?;
    let rows = block_on(async {
        let database = target.open_existing().await?;
        let rows = database.violations(&filter(&target.scope, args)).await?;
        database.close().await;
        Ok(rows)
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

/// An address as rows have it unless `ipv6_prefix` is set: IPv6 by its /64.
fn counted(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & (u128::MAX << 64)).into()),
        v4 => v4,
    }
}

/// The filter, with texts as they were stored.
fn filter(scope: &str, args: &ViolationsArgs) -> ViolationFilter {
    let since = |since| SystemTime::now().checked_sub(since).unwrap_or(UNIX_EPOCH);
    ViolationFilter {
        scope: Some(scope.to_owned()),
        client: args.client.as_deref().map(|client| escaped(client, 128)),
        ip: args.ip.map(|ip| counted(ip).to_string()),
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
        for (given, stored) in [
            ("203.0.113.7", "203.0.113.7"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            let ip: IpAddr = given.parse().unwrap();
            assert_eq!(counted(ip).to_string(), stored);
        }
    }
}
