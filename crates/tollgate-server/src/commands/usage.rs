//! `tollgate inspect` and `tollgate reset`: what a client has used of every rule, and forgetting it.

use std::collections::HashSet;
use std::fmt::Display;
use std::io::Write;
use std::time::Duration;

use tollgate::{Limiter, Name, StoreError, Usage};
use tollgate_config::Config;
use tollgate_config::document::listed;
use tollgate_config::text::escaped;
use tollgate_tower::policy::{Policy, RequestAttributes};

use super::inputs::Configured;
use super::{block_on, bucket_text, print_json, write_table};
use crate::cli::{ResetArgs, SubjectArgs};
use crate::failure::Failure;
use crate::usage::{BucketReport, ResetReport, UsageReport};

pub(super) fn inspect(args: &SubjectArgs, out: &mut impl Write) -> Result<(), Failure> {
    let report = block_on(async {
        let configured = Configured::read(&args.config).await?;
        let policy = &configured.policy;
        let subject = read_subject(args, policy)?;
        let limiter = limiter(&configured, "inspect")?;
        let used = limiter
            .matched(&policy.rules().matching(&subject.request()))
            .inspect()
            .await;
        let used = used.map_err(|error| unavailable(&error, "usage is unknown"))?;
        Ok(UsageReport::new(&used, policy, &subject))
    })?;
    if args.json {
        return Ok(print_json(out, &report)?);
    }
    if report.buckets.is_empty() {
        let nothing = "nothing is used, and no rule counts by these arguments alone";
        writeln!(out, "{nothing}")?;
        return print_hint(report.hint.as_deref(), out);
    }
    let rows: Vec<[String; 6]> = report.buckets.iter().map(cells).collect();
    let head = ["rule", "limit", "used", "left", "full again in", "bucket"];
    Ok(write_table(out, head, &rows)?)
}

pub(super) fn reset(args: &ResetArgs, out: &mut impl Write) -> Result<(), Failure> {
    let report = block_on(async {
        let configured = Configured::read(&args.subject.config).await?;
        let policy = &configured.policy;
        let subject = read_subject(&args.subject, policy)?;
        let request = subject.request();
        if !request.identifies_caller() && !args.everybody {
            return Err(Failure::BadInput(
                "no client is named, so this would reset what all clients share; name one by --client, --ip or \
                 --attribute, or use --everybody"
                    .to_owned(),
            ));
        }
        let limiter = limiter(&configured, "reset")?;
        let forgotten: Result<Vec<Usage>, _> = limiter
            .matched(&policy.rules().matching(&request))
            .reset()
            .await;
        let effect = "only a part may have been forgotten, or nothing";
        let forgotten = forgotten.map_err(|error| unavailable(&error, effect))?;
        Ok(ResetReport::new(&forgotten, policy, &subject))
    })?;
    if args.subject.json {
        return Ok(print_json(out, &report)?);
    }
    writeln!(out, "{}", report.summary())?;
    print_hint(report.hint.as_deref(), out)
}

fn print_hint(hint: Option<&str>, out: &mut impl Write) -> Result<(), Failure> {
    match hint {
        Some(hint) => Ok(writeln!(out, "hint: {hint}")?),
        None => Ok(()),
    }
}

/// The subject that the arguments name, completed by the policy.
fn read_subject<'a>(
    args: &'a SubjectArgs,
    policy: &'a Policy,
) -> Result<RequestAttributes<'a>, Failure> {
    let text = |name: &str, value: &'a Option<String>| match value.as_deref() {
        Some("") => {
            let message = format!("--{name} is empty; leave it out if there is none");
            Err(Failure::BadInput(message))
        }
        value => Ok(value),
    };
    let mut subject = RequestAttributes::new();
    subject.client = text("client", &args.client)?.map(Into::into);
    subject.plan = text("plan", &args.plan)?.map(Into::into);
    subject.ip = args.ip;
    subject.route = text("route", &args.route)?.map(Into::into);
    subject.method = text("method", &args.method)?;
    if let Some(host) = text("host", &args.host)? {
        let result = subject.set_host(host);
        result.map_err(|error| refused("host", &error))?;
    }
    let mut names = HashSet::new();
    for attribute in &args.attribute {
        let pair = attribute.split_once('=');
        let Some((name, value)) = pair.filter(|(_, value)| !value.is_empty()) else {
            let attribute = escaped(attribute, 100);
            return Err(Failure::BadInput(format!(
                "\"{attribute}\" is not an attribute; use --attribute NAME=VALUE"
            )));
        };
        if !names.insert(name) {
            let name = escaped(name, 100);
            return Err(Failure::BadInput(format!(
                "--attribute names \"{name}\" twice; run the command once for each value"
            )));
        }
        let known = subject.add_attribute(policy, name, value);
        if !known.map_err(|error| refused("attribute", &error))? {
            return Err(unknown_attribute(name, policy));
        }
    }
    if let Some(path) = text("path", &args.path)? {
        let result = subject.set_path(policy, path);
        result.map_err(|error| refused("path", &error))?;
    }
    subject.complete(policy);
    subject.name_by_address(policy);
    Ok(subject)
}

fn refused(argument: &str, error: &dyn Display) -> Failure {
    Failure::BadInput(format!("--{argument} is refused: {error}"))
}

fn unknown_attribute(name: &str, policy: &Policy) -> Failure {
    let known = policy.rules().attribute_names().iter();
    let known: Vec<&str> = known.map(Name::as_str).collect();
    let known = match known.is_empty() {
        true => "they look at none".to_owned(),
        false => format!("they look at {}", listed(&known, "and")),
    };
    let name = escaped(name, 100);
    Failure::BadInput(format!("no rule looks at an attribute \"{name}\"; {known}"))
}

/// The limiter over Redis. Usage in memory is out of reach of the command.
fn limiter(configured: &Configured, command: &str) -> Result<Limiter, Failure> {
    let in_memory = || {
        let help = service_help(&configured.config, command);
        let what = "usage is kept in the memory of the running program";
        Failure::Unavailable(format!("{what}, which cannot be asked from here; {help}"))
    };
    configured.limiter()?.ok_or_else(in_memory)
}

/// How to ask the decision service instead.
fn service_help(config: &Config, command: &str) -> String {
    let Some(service) = &config.service else {
        return format!(
            "add `service: {{ token: … }}` to the configuration and send POST /v1/{command}, or share usage by `store: {{ redis: … }}`"
        );
    };
    let token = match service.token {
        None if command == "reset" => {
            return "set service.token in its configuration, and send POST /v1/reset to its decision service"
                .to_owned();
        }
        None => "",
        Some(_) => "-H \"Authorization: Bearer $TOKEN\" ",
    };
    let listen = service.listen;
    format!(
        "ask its decision service: curl http://{listen}/v1/{command} {token}-d '{{ \"client\": \"ID\" }}'"
    )
}

fn unavailable(error: &StoreError, effect: &str) -> Failure {
    let error = escaped(&error.to_string(), 400);
    Failure::Unavailable(format!(
        "{error}; {effect}: check `store` in the configuration, and whether Redis runs there"
    ))
}

fn cells(bucket: &BucketReport) -> [String; 6] {
    let number = |figure: Option<u64>| figure.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let rule = bucket.rule.clone().unwrap_or_else(|| "(gone)".to_owned());
    let shadow = if bucket.shadow { " (shadow)" } else { "" };
    let values = bucket_text(&bucket.bucket);
    let other = (bucket.other.as_ref()).map_or(String::new(), |id| format!(" other {id}"));
    [
        format!("{rule}{shadow}"),
        bucket.limit.clone().unwrap_or_else(|| "?".to_owned()),
        number(bucket.used),
        number(bucket.remaining),
        duration(bucket.reset_after_ms),
        format!("{values}{other}"),
    ]
}

/// A duration in at most two units: `240ms`, `3.2s`, `2h 5m`. Rounded up.
fn duration(ms: u64) -> String {
    let two = |count: u64, unit: &str, per: u64, smaller: &str| match count % per {
        0 => format!("{}{unit}", count / per),
        rest => format!("{}{unit} {rest}{smaller}", count / per),
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
    fn durations_have_at_most_two_units() {
        for (ms, text) in [
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
            assert_eq!(duration(ms), text);
        }
    }
}
