//! The outcome as Markdown, and as one line.

use std::fmt::Write as _;
use std::time::Duration;

use crate::merchants::{ENTERPRISE, MERCHANTS, SANDBOX};
use crate::tiers::Finding;
use crate::traffic::Sent;
use crate::{Outcome, Phase, Setting};

/// The phases in which the sandbox floods.
pub const FLOOD: [Phase; 3] = [Phase::Before, Phase::Away, Phase::After];

/// The whole report; `circumstances` says when and where.
#[must_use]
pub fn markdown(outcome: &Outcome, setting: &Setting, circumstances: &str) -> String {
    let mut text =
        format!("# Payments: four gateways, one Redis that is killed\n\n{circumstances}\n");
    // Writing to a string cannot fail.
    let _ = write_report(&mut text, outcome, setting);
    text
}

/// The last line: what to compare from run to run.
#[must_use]
pub fn summary(outcome: &Outcome) -> String {
    let worst = outcome.worst();
    format!(
        "payments: excess={} bound={} enterprise_admitted={:.4} sandbox_admitted={:.4}",
        worst.excess.tokens,
        worst.bound,
        outcome.admitted_share(ENTERPRISE, &FLOOD),
        outcome.admitted_share(SANDBOX, &FLOOD),
    )
}

fn write_report(text: &mut String, outcome: &Outcome, setting: &Setting) -> std::fmt::Result {
    let seconds = setting.phase.as_secs_f64();
    let (killed, back) = (outcome.away.0.as_secs_f64(), outcome.away.1.as_secs_f64());
    writeln!(
        text,
        "Phases of {seconds:.0} s each. Redis was killed at {killed:.1} s, and was back with nothing in it at {back:.1} s.\n"
    )?;
    writeln!(text, "## What each merchant got\n")?;
    writeln!(
        text,
        "| merchant | plan | phase | sent | admitted | share | denied (429) | failed | p99 ms, admitted | p99 ms, denied |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|---|---|---|")?;
    for merchant in &MERCHANTS {
        for phase in Phase::ALL {
            write_row(text, outcome, merchant.id, merchant.plan, phase)?;
        }
    }
    write_deciders(text, outcome)?;
    write_enterprise(text, outcome)?;
    write_findings(text, &outcome.findings)?;
    writeln!(text, "\n    {}", summary(outcome))
}

fn write_row(
    text: &mut String,
    outcome: &Outcome,
    merchant: &str,
    plan: Option<&str>,
    phase: Phase,
) -> std::fmt::Result {
    let of_row = |sent: &&Sent| sent.merchant == merchant && sent.phase == phase;
    let sent: Vec<_> = outcome.sent.iter().filter(of_row).collect();
    if sent.is_empty() {
        return Ok(());
    }
    let admitted: Vec<_> = sent.iter().filter(|sent| sent.is_admitted()).collect();
    let denied: Vec<_> = sent.iter().filter(|sent| sent.is_denied()).collect();
    writeln!(
        text,
        "| {merchant} | {} | {} | {} | {} | {:.1} % | {} | {} | {} | {} |",
        plan.unwrap_or("ordinary"),
        phase.name(),
        sent.len(),
        admitted.len(),
        outcome.admitted_share(merchant, &[phase]) * 100.0,
        denied.len(),
        sent.len() - admitted.len() - denied.len(),
        p99(admitted.iter().map(|sent| sent.took)),
        p99(denied.iter().map(|sent| sent.took)),
    )
}

fn write_deciders(text: &mut String, outcome: &Outcome) -> std::fmt::Result {
    writeln!(text, "\n## Who decided\n")?;
    writeln!(
        text,
        "| phase | Redis | a denial of Redis, remembered | a gateway by itself | share of Redis, without remembered denials |"
    )?;
    writeln!(text, "|---|---|---|---|---|")?;
    for (phase, it) in &outcome.deciders {
        let name = phase.name();
        let share = it.store_percent();
        let share = share.map_or("–".to_owned(), |share| format!("{share:.3} %"));
        writeln!(
            text,
            "| {name} | {} | {} | {} | {share} |",
            it.store, it.remembered, it.fallback
        )?;
    }
    Ok(())
}

fn write_enterprise(text: &mut String, outcome: &Outcome) -> std::fmt::Result {
    writeln!(text, "\n## A sandbox cannot hurt an enterprise\n")?;
    writeln!(
        text,
        "{ENTERPRISE} got {:.2} % of its requests admitted without the sandbox's flood, {:.2} % with it, {:.2} % with it while Redis was away. The sandbox got {:.2} % of its flood.",
        outcome.admitted_share(ENTERPRISE, &[Phase::Quiet]) * 100.0,
        outcome.admitted_share(ENTERPRISE, &[Phase::Before, Phase::After]) * 100.0,
        outcome.admitted_share(ENTERPRISE, &[Phase::Away]) * 100.0,
        outcome.admitted_share(SANDBOX, &FLOOD) * 100.0,
    )
}

fn write_findings(text: &mut String, findings: &[Finding]) -> std::fmt::Result {
    writeln!(text, "\n## What the referee found\n")?;
    writeln!(
        text,
        "It reads when requests reached the processor, over all intervals of the whole run. *Excess* is the most beyond burst + rate × length; *bound* is what
docs/guarantees.md allows that interval on top: 0.8 × (burst + rate × length) by the gateways themselves while Redis is away, and one burst for a Redis
that forgot. The last column must be 0. A request reaches the processor a little after it was admitted, and not always by the same time: what comes
through in a delay of d counts as up to rate × d of excess, though nothing was.\n"
    )?;
    writeln!(
        text,
        "| tier | whose | limit | admitted | excess | in s | bound | beyond the bound |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|---|")?;
    for finding in findings {
        let length = Duration::from_micros(finding.excess.to_us - finding.excess.from_us);
        writeln!(
            text,
            "| {} | {} | {}/s burst {} | {} | {} | {:.2} | {} | {} |",
            finding.tier,
            finding.merchant.unwrap_or("all together"),
            finding.limit.rate,
            finding.limit.burst,
            finding.admitted,
            finding.excess.tokens,
            length.as_secs_f64(),
            finding.bound,
            finding.beyond_bound.tokens,
        )?;
    }
    Ok(())
}

/// In milliseconds; a dash where nothing was.
fn p99(times: impl Iterator<Item = Duration>) -> String {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    match times.len() {
        0 => "–".to_owned(),
        count => format!(
            "{:.1}",
            times[(count * 99).div_ceil(100) - 1].as_secs_f64() * 1_000.0
        ),
    }
}
