//! The outcome as Markdown.

use std::fmt::Write as _;
use std::time::Duration;

use crate::figures::Ratio;
use crate::outcome::{Goal, Outcome};
use crate::phase::{Phase, millis};

const INTRODUCTION: &str = "
Gateway, Redis and upstream share all cores, without pinning. *Share* is `store` ÷ (`store` +
`fallback`) of `tollgate_store_decisions_total` over the phase; remembered denials are left out.
Latencies of paced load count from when a request was due.
";

const ABOUT_THE_REFEREE: &str = "
The referee reads when requests reached the upstream: those for `/limited`, and in the last two
phases all of them. *By arrival* is the largest excess over burst + rate × length of any interval. A
request arrives later than it was admitted, by at most *delay*; *excess* is what is left after
allowing for that. It must not exceed *local*, the number of decisions without the store.
";

/// The whole report. `circumstances` says when and where it was made.
pub(crate) fn markdown(outcome: &Outcome, circumstances: &str) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_report(&mut text, outcome, circumstances);
    text
}

fn write_report(text: &mut String, outcome: &Outcome, circumstances: &str) -> std::fmt::Result {
    writeln!(text, "# Steady: a busy machine is not a failed Redis\n")?;
    writeln!(text, "{circumstances}")?;
    writeln!(text, "{INTRODUCTION}")?;
    writeln!(text, "| figure | value | goal | |\n|---|---|---|---|")?;
    for goal in &outcome.goals() {
        write_goal(text, goal)?;
    }
    writeln!(text, "\n## Phases\n")?;
    writeln!(
        text,
        "| phase | requests/s | p50 ms | p99 ms | not 200 | failed | store | remembered | local | share | openings | |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|---|---|---|---|---|")?;
    for phase in &outcome.phases {
        write_phase(text, phase)?;
    }
    writeln!(text, "\n## Referee\n{ABOUT_THE_REFEREE}")?;
    writeln!(
        text,
        "| phase | admitted | admitted ÷ allowed | delay ms | by arrival | excess | local | |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|---|")?;
    for phase in &outcome.phases {
        write_verdict(text, phase)?;
    }
    writeln!(text, "\n    {}", outcome.summary())
}

fn write_goal(text: &mut String, goal: &Goal) -> std::fmt::Result {
    let mark = match goal.is_met {
        Some(true) => "reached",
        Some(false) => "missed",
        None => "not measured",
    };
    let (name, value, goal) = (goal.name, &goal.value, goal.goal);
    writeln!(text, "| {name} | {value} | {goal} | {mark} |")
}

fn write_phase(text: &mut String, phase: &Phase) -> std::fmt::Result {
    let load = &phase.load;
    let counters = match phase.counters {
        None => "– | – | – | – | –".to_owned(),
        Some(it) => format!(
            "{} | {} | {} | {} | {}",
            it.store,
            it.remembered,
            it.fallback,
            it.share(),
            it.openings
        ),
    };
    writeln!(
        text,
        "| {} | {} | {} | {} | {} | {} | {counters} | {} |",
        phase.name,
        load.per_second(),
        millis(load.p50),
        millis(load.p99),
        load.not_ok,
        load.failed,
        phase.note
    )
}

fn write_verdict(text: &mut String, phase: &Phase) -> std::fmt::Result {
    let verdict = &phase.verdict;
    let ratio = phase.ratio.map(Ratio::three_decimals);
    writeln!(
        text,
        "| {} | {} | {} | {} | {} | {} | {} | {} |",
        phase.name,
        verdict.admitted,
        ratio.as_deref().unwrap_or("–"),
        millis(Duration::from_micros(verdict.delay_us)),
        verdict.excess_by_arrival,
        verdict.excess,
        verdict.local,
        match verdict.is_within_bound() {
            true => "within the bound",
            false => "broken",
        }
    )
}
