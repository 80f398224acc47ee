//! The explanation for people.

use std::io::{self, Write};
use std::time::Duration;

use crate::explanation::{CallerReport, DecisionReport, Report, RequestReport, RuleReport};

pub(super) fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    write_request(out, &report.request)?;
    write_caller(out, &report.caller)?;
    if report.request.refused.is_some() {
        return Ok(());
    }
    writeln!(out, "\nrules (generation {})", report.generation)?;
    if report.rules.is_empty() {
        writeln!(out, "  there are none")?;
    }
    let width = report.rules.iter().map(|rule| rule.id.len()).max();
    let (applying, others): (Vec<_>, Vec<_>) = report.rules.iter().partition(|rule| rule.applies);
    for rule in applying {
        write_applying(out, rule, width.unwrap_or(0))?;
    }
    for rule in others {
        let why = rule.why_not.as_deref().unwrap_or_default();
        writeln!(
            out,
            "  no   {:width$}  {why}",
            rule.id,
            width = width.unwrap_or(0)
        )?;
    }
    write_decision(out, report)
}

fn write_request(out: &mut impl Write, request: &RequestReport) -> io::Result<()> {
    writeln!(out, "request  {} {}", request.method, request.asked)?;
    if let Some(why) = &request.refused {
        return writeln!(out, "  refused before any rule: {why}");
    }
    if let Some(path) = &request.path {
        writeln!(out, "  path      {path}")?;
    }
    if let Some(host) = &request.host {
        writeln!(out, "  host      {host}")?;
    }
    let endpoint = request.endpoint.as_deref();
    writeln!(
        out,
        "  endpoint  {}",
        endpoint.unwrap_or("none: no rule, cost or route has a pattern for this path")
    )?;
    writeln!(out, "  cost      {}", request.cost.unwrap_or(1))
}

fn write_caller(out: &mut impl Write, caller: &CallerReport) -> io::Result<()> {
    match &caller.client {
        Some(client) => writeln!(out, "\ncaller   {client}, {}", caller.how)?,
        None => writeln!(out, "\ncaller   nobody in particular")?,
    }
    let assumed = match caller.ip_is_assumed {
        true => " (--ip says another peer)",
        false => "",
    };
    writeln!(out, "  address   {}{assumed}", caller.address)?;
    writeln!(
        out,
        "  plan      {}",
        caller.plan.as_deref().unwrap_or("none")
    )?;
    for source in caller.client_sources.iter().chain(&caller.plan_sources) {
        writeln!(out, "  {}: {}", source.source, source.outcome)?;
    }
    Ok(())
}

fn write_applying(out: &mut impl Write, rule: &RuleReport, width: usize) -> io::Result<()> {
    let mut notes = Vec::new();
    if let Some(plan) = &rule.plan {
        notes.push(format!("plan {plan}"));
    }
    if rule.mode.as_deref() == Some("shadow") {
        notes.push("only watches".to_owned());
    }
    let limit = rule.limit.as_deref().unwrap_or_default();
    write!(out, "  yes  {:width$}  {limit}", rule.id)?;
    if !notes.is_empty() {
        write!(out, " ({})", notes.join(", "))?;
    }
    writeln!(out)?;
    let bucket: Vec<String> = (rule.bucket.iter())
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let bucket = match bucket.is_empty() {
        true => "everybody's".to_owned(),
        false => bucket.join(" "),
    };
    write!(out, "       {:width$}  bucket {bucket}", "")?;
    if let (Some(used), Some(remaining)) = (rule.used, rule.remaining) {
        write!(out, "; {used} used, {remaining} left")?;
        let reset = rule.reset_after_ms.unwrap_or(0);
        if reset > 0 {
            write!(out, ", full again in {:?}", Duration::from_millis(reset))?;
        }
    }
    writeln!(out)
}

fn write_decision(out: &mut impl Write, report: &Report) -> io::Result<()> {
    writeln!(out)?;
    match (&report.decision, report.usage_unknown) {
        (Some(DecisionReport { verdict, rule, .. }), _) => {
            write!(out, "now it would be {verdict}")?;
            match rule {
                Some(rule) => writeln!(out, ", by the rule {rule}"),
                None => writeln!(out, ": no rule decides"),
            }
        }
        (None, Some(why)) => writeln!(out, "what is used is not known: {why}"),
        (None, None) => Ok(()),
    }
}
