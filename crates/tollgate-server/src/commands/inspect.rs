//! `tollgate inspect`: what a caller used of every rule, and when it is full again. Changes nothing.

use std::collections::HashSet;
use std::io::Write;
use std::time::Duration;

use tollgate::{Name, StoreError};
use tollgate_tower::policy::Policy;

use super::database::block_on;
use super::setting::Setting;
use super::table::write_table;
use crate::cli::{InspectArgs, WhoArgs};
use crate::failure::Failure;
use crate::usage::{BucketReport, Report};
use tollgate_config::Config;
use tollgate_config::document::listed;
use tollgate_config::text::escaped;
use tollgate_tower::policy::RequestAttributes;

/// Runs the command.
pub(crate) fn inspect(args: &InspectArgs, out: &mut impl Write) -> Result<(), Failure> {
    let report = block_on(async {
        let setting = Setting::read(&args.who.config).await?;
        let facts = facts(&args.who, &setting.policy)?;
        let Some(limiter) = setting.limiter()? else {
            return Err(in_memory(&setting.config, "inspect"));
        };
        let policy = &setting.policy;
        let request = facts.request();
        let matched = policy.rules().matching(&request);
        let used = limiter.matched(&matched).inspect().await;
        let used =
            used.map_err(|error| out_of_reach(&error, "nothing is known of what is used"))?;
        Ok(Report::of(&used, policy, &facts))
    })?;
    if args.who.json {
        serde_json::to_writer_pretty(&mut *out, &report).map_err(std::io::Error::from)?;
        writeln!(out)?;
        return Ok(());
    }
    if report.buckets.is_empty() {
        writeln!(
            out,
            "nothing is used, and no rule counts for these words alone"
        )?;
        if let Some(hint) = &report.hint {
            writeln!(out, "hint: {hint}")?;
        }
        return Ok(());
    }
    let rows: Vec<[String; 6]> = report.buckets.iter().map(cells).collect();
    let head = ["rule", "limit", "used", "left", "full again in", "bucket"];
    Ok(write_table(out, head, &rows)?)
}

/// Who is meant, completed by what the policy knows.
pub(super) fn facts<'a>(
    args: &'a WhoArgs,
    policy: &'a Policy,
) -> Result<RequestAttributes<'a>, Failure> {
    let text = |name: &str, said: &'a Option<String>| match said.as_deref() {
        Some("") => Err(Failure::BadInput(format!(
            "--{name} is empty; leave it out if there is none"
        ))),
        said => Ok(said),
    };
    let mut facts = RequestAttributes::new();
    facts.client = text("client", &args.client)?.map(Into::into);
    facts.plan = text("plan", &args.plan)?.map(Into::into);
    facts.ip = args.ip;
    facts.route = text("route", &args.route)?.map(Into::into);
    facts.method = text("method", &args.method)?;
    if let Some(host) = text("host", &args.host)? {
        let refused = |error| Failure::BadInput(format!("--host is refused: {error}"));
        facts.set_host(host).map_err(refused)?;
    }
    let mut names = HashSet::new();
    for said in &args.attribute {
        let Some((name, value)) = said.split_once('=').filter(|(_, value)| !value.is_empty())
        else {
            let said = escaped(said, 100);
            return Err(Failure::BadInput(format!(
                "\"{said}\" is not an attribute; use --attribute NAME=VALUE"
            )));
        };
        if !names.insert(name) {
            let name = escaped(name, 100);
            return Err(Failure::BadInput(format!(
                "--attribute says \"{name}\" twice; ask for one after the other"
            )));
        }
        let refused = |error| Failure::BadInput(format!("--attribute is refused: {error}"));
        if !facts.add_attribute(policy, name, value).map_err(refused)? {
            return Err(Failure::BadInput(unknown_attribute(name, policy)));
        }
    }
    if let Some(path) = text("path", &args.path)? {
        let refused = |error| Failure::BadInput(format!("--path is refused: {error}"));
        facts.set_path(policy, path).map_err(refused)?;
    }
    facts.complete(policy);
    facts.name_by_address(policy);
    Ok(facts)
}

/// What to say of an attribute that no rule looks at.
fn unknown_attribute(name: &str, policy: &Policy) -> String {
    let known: Vec<&str> = (policy.rules().attribute_names().iter())
        .map(Name::as_str)
        .collect();
    let known = match known.is_empty() {
        true => "they look at none".to_owned(),
        false => format!("they look at {}", listed(&known, "and")),
    };
    format!(
        "no rule looks at an attribute \"{}\"; {known}",
        escaped(name, 100)
    )
}

/// Where to ask in place of this.
pub(super) fn in_memory(config: &Config, what: &str) -> Failure {
    let ask = match &config.service {
        Some(service) if service.token.is_none() && what == "reset" => {
            "set service.token in its configuration, and ask its decision service by POST /v1/reset"
                .to_owned()
        }
        Some(service) => {
            let token = match service.token {
                Some(_) => "-H \"Authorization: Bearer $TOKEN\" ",
                None => "",
            };
            format!(
                "ask its decision service: curl http://{}/v1/{what} {token}-d '{{ \"client\": \"ID\" }}'",
                service.listen
            )
        }
        None => format!(
            "add `service: {{ token: … }}` to the configuration, and ask it by POST /v1/{what}; or share usage by `store: {{ redis: … }}`"
        ),
    };
    Failure::Unavailable(format!(
        "usage is kept in the memory of the running program, which cannot be asked from here; {ask}"
    ))
}

pub(super) fn out_of_reach(error: &StoreError, so: &str) -> Failure {
    let error = escaped(&error.to_string(), 400);
    Failure::Unavailable(format!(
        "{error}; {so}: see `store` in the configuration, and whether Redis runs there"
    ))
}

fn cells(bucket: &BucketReport) -> [String; 6] {
    let number = |figure: Option<u64>| figure.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let rule = bucket.rule.clone().unwrap_or_else(|| "(gone)".to_owned());
    let rule = match bucket.shadow {
        true => format!("{rule} (only watches)"),
        false => rule,
    };
    [
        rule,
        bucket.limit.clone().unwrap_or_else(|| "?".to_owned()),
        number(bucket.used),
        number(bucket.remaining),
        span(bucket.reset_after_ms),
        which(bucket),
    ]
}

/// Which bucket it is, in a line.
fn which(bucket: &BucketReport) -> String {
    let mut parts: Vec<String> = (bucket.bucket.iter())
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if parts.is_empty() {
        parts.push("everybody's".to_owned());
    }
    parts.extend(bucket.other.as_ref().map(|id| format!("other {id}")));
    parts.join(" ")
}

/// A time as people say it, in two units at the most: `240ms`, `3.2s`, `2h 5m`. Rounded up.
fn span(ms: u64) -> String {
    let two = |one: u64, unit: &str, per: u64, other: &str| match one % per {
        0 => format!("{}{unit}", one / per),
        rest => format!("{}{unit} {rest}{other}", one / per),
    };
    let seconds = ms.div_ceil(1_000);
    match seconds {
        0 => "full".to_owned(),
        _ if ms < 1_000 => format!("{ms}ms"),
        1..=59 => format!("{:?}", Duration::from_millis(ms.div_ceil(100) * 100)),
        60..3_600 => two(seconds, "m", 60, "s"),
        3_600..86_400 => two(seconds.div_ceil(60), "h", 60, "m"),
        _ => two(seconds.div_ceil(3_600), "d", 24, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_as_people_say_them() {
        for (ms, said) in [
            (0, "full"),
            (1, "1ms"),
            (999, "999ms"),
            (3_120, "3.2s"),
            (59_950, "1m"),
            (60_000, "1m"),
            (61_001, "1m 2s"),
            (7_200_000, "2h"),
            (7_200_001, "2h 1m"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(span(ms), said);
        }
    }
}
