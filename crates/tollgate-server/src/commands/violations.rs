//! `tollgate violations`: who was denied what.

use std::io::Write;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use super::database::{Meant, block_on};
use super::table::{utc_second, write_table};
use crate::cli::ViolationsArgs;
use crate::database::{ViolationFilter, ViolationRow};
use crate::failure::Failure;
use tollgate_config::text::escaped;

/// Runs the command.
pub(crate) fn violations(args: &ViolationsArgs, out: &mut impl Write) -> Result<(), Failure> {
    let meant = Meant::of(&args.place)?;
    let rows = block_on(async {
        let database = meant.open_what_is_there().await?;
        let filter = filter(&meant.scope, args, SystemTime::now());
        let rows = database.violations(&filter).await?;
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
        if let Some(client) = &args.client
            && !client.contains(':')
        {
            let client = escaped(client, 128);
            writeln!(
                out,
                "hint: a client that a header names is called after it, such as x-user-id:{client}"
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
    write_table(out, head, &rows.iter().map(cells).collect::<Vec<_>>())?;
    Ok(())
}

/// As addresses are counted: IPv6 by its /64, which is what rows hold unless `ipv6_prefix` says otherwise.
fn counted(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & (u128::MAX << 64)).into()),
        v4 => v4,
    }
}

fn filter(scope: &str, args: &ViolationsArgs, now: SystemTime) -> ViolationFilter {
    let since = args.since.map(|since| {
        let from = now.checked_sub(since).unwrap_or(UNIX_EPOCH);
        let from = from.duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(from.as_micros()).unwrap_or(i64::MAX)
    });
    ViolationFilter {
        scope: Some(scope.to_owned()),
        // As they were stored.
        client: args.client.as_deref().map(|client| escaped(client, 128)),
        ip: args.ip.map(|ip| counted(ip).to_string()),
        rule: args.rule.as_deref().map(|rule| escaped(rule, 128)),
        since_us: since,
        limit: Some(args.limit),
    }
}

fn cells(row: &ViolationRow) -> [String; 9] {
    let first = |text: &Option<String>, others: bool| {
        let text = text.as_deref().unwrap_or("-");
        match others {
            true => format!("{text} +others"),
            false => text.to_owned(),
        }
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
    fn an_address_is_looked_for_as_it_was_counted() {
        for (said, stored) in [
            ("203.0.113.7", "203.0.113.7"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            let ip: IpAddr = said.parse().unwrap();
            assert_eq!(counted(ip).to_string(), stored);
        }
    }
}
