//! `tollgate explain`: reports the client of a request, the rules that apply and why others do not, and usage. Charges nothing.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tollgate::MatchedRules;
use tollgate_config::text::escaped;
use tollgate_tower::policy::Head;

use super::inputs::Configured;
use super::{block_on, bucket_text, print_json};
use crate::cli::ExplainArgs;
use crate::explanation::{
    CallerReport, DecisionReport, ExplainedRequest, Explanation, RequestReport, RuleReport,
    usage_in,
};
use crate::failure::Failure;

const IN_MEMORY: &str =
    "it is kept in the memory of the running program, which cannot be asked from here";

pub(super) fn explain(args: &ExplainArgs, out: &mut impl Write) -> Result<(), Failure> {
    let (method, uri, headers) = read_request(args)?;
    let request = ExplainedRequest {
        head: Head {
            method: &method,
            uri: &uri,
            headers: &headers,
        },
        peer: args.ip.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        peer_is_assumed: args.ip.is_none(),
        client: args.client.as_deref(),
        cost: args.cost,
    };
    let report = block_on(async {
        let configured = Configured::read(&args.config).await?;
        let limiter = configured.limiter()?;
        let usage = async |met: &MatchedRules<'_>| match &limiter {
            Some(limiter) => usage_in(limiter, met).await,
            None => Err(IN_MEMORY),
        };
        Ok(request.explain(&configured.policy, usage).await)
    })?;
    match args.json {
        true => print_json(out, &report)?,
        false => print(&report, out)?,
    }
    Ok(())
}

fn read_request(args: &ExplainArgs) -> Result<(Method, Uri, HeaderMap), Failure> {
    let bad = |text: &str, expected: &str| {
        let text = escaped(text, 100);
        Failure::BadInput(format!("\"{text}\" is not {expected}"))
    };
    let method = Method::from_bytes(args.method.to_ascii_uppercase().as_bytes())
        .map_err(|_| bad(&args.method, "a method; use one such as GET or POST"))?;
    let uri = args.path.parse().map_err(|_| {
        let expected =
            "a path or URL; use one such as /v1/charges or https://api.example.com/v1/charges";
        bad(&args.path, expected)
    })?;
    let mut headers = HeaderMap::new();
    for header in &args.header {
        let invalid = || {
            // The value may be a secret.
            let name = header.split(':').next().unwrap_or_default();
            bad(name, "a header; use -H 'Name: value'")
        };
        let (name, value) = header.split_once(':').ok_or_else(invalid)?;
        let name: HeaderName = name.trim().parse().map_err(|_| invalid())?;
        let value: HeaderValue = value.trim().parse().map_err(|_| invalid())?;
        headers.append(name, value);
    }
    Ok((method, uri, headers))
}

fn print(report: &Explanation, out: &mut impl Write) -> io::Result<()> {
    print_request(&report.request, out)?;
    print_client(&report.caller, out)?;
    if report.request.refused.is_some() {
        return Ok(());
    }
    writeln!(out, "\nrules (generation {})", report.generation)?;
    if report.rules.is_empty() {
        writeln!(out, "  none")?;
    }
    let width = report.rules.iter().map(|rule| rule.id.len()).max();
    let width = width.unwrap_or_default();
    let (applying, others): (Vec<_>, Vec<_>) = report.rules.iter().partition(|rule| rule.applies);
    for rule in applying {
        print_applying(rule, width, out)?;
    }
    for rule in others {
        let why = rule.why_not.as_deref().unwrap_or_default();
        writeln!(out, "  no   {:width$}  {why}", rule.id)?;
    }
    match (&report.decision, report.usage_unknown) {
        (Some(DecisionReport { verdict, rule, .. }), _) => {
            let by = rule
                .as_deref()
                .map_or(": no rule decides".to_owned(), |rule| {
                    format!(", by the rule {rule}")
                });
            writeln!(out, "\nnow it would be {verdict}{by}")
        }
        (None, Some(why)) => writeln!(out, "\nusage is unknown: {why}"),
        (None, None) => writeln!(out),
    }
}

fn print_request(request: &RequestReport, out: &mut impl Write) -> io::Result<()> {
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
    let endpoint = endpoint.unwrap_or("none: no rule, cost or route has a pattern for this path");
    writeln!(out, "  endpoint  {endpoint}")?;
    writeln!(out, "  cost      {}", request.cost.unwrap_or(1))
}

fn print_client(caller: &CallerReport, out: &mut impl Write) -> io::Result<()> {
    match &caller.client {
        Some(client) => writeln!(out, "\nclient   {client}, {}", caller.how)?,
        None => writeln!(out, "\nclient   none")?,
    }
    let assumed = match caller.ip_is_assumed {
        true => " (--ip sets another peer)",
        false => "",
    };
    writeln!(out, "  address   {}{assumed}", caller.address)?;
    let plan = caller.plan.as_deref().unwrap_or("none");
    writeln!(out, "  plan      {plan}")?;
    for source in caller.client_sources.iter().chain(&caller.plan_sources) {
        writeln!(out, "  {}: {}", source.source, source.outcome)?;
    }
    Ok(())
}

fn print_applying(rule: &RuleReport, width: usize, out: &mut impl Write) -> io::Result<()> {
    let plan = rule.plan.as_ref().map(|plan| format!("plan {plan}"));
    let shadow = (rule.mode.as_deref() == Some("shadow")).then(|| "shadow".to_owned());
    let notes: Vec<String> = plan.into_iter().chain(shadow).collect();
    let limit = rule.limit.as_deref().unwrap_or_default();
    write!(out, "  yes  {:width$}  {limit}", rule.id)?;
    if !notes.is_empty() {
        write!(out, " ({})", notes.join(", "))?;
    }
    let bucket = bucket_text(&rule.bucket);
    write!(out, "\n       {:width$}  bucket {bucket}", "")?;
    if let (Some(used), Some(remaining)) = (rule.used, rule.remaining) {
        write!(out, "; {used} used, {remaining} left")?;
        let reset = rule.reset_after_ms.unwrap_or_default();
        if reset > 0 {
            write!(out, ", full again in {:?}", Duration::from_millis(reset))?;
        }
    }
    writeln!(out)
}
