//! Runs the list of calls in Envoy's protocol.

use std::net::SocketAddr;

use crate::lists::rls::{CASES, Case, Origin, RULES, RULES_OF_CASE};
use crate::lists::tokens::TOKEN;
use crate::report::{FailureKind, ListResult, shown};
use crate::template::{Word, fill_text};
use crate::tollgate::Tollgate;
use crate::wire::grpc::{Answered, Call, Channel};
use crate::{Result, Setting};

/// What all rules allow.
const LIMIT: usize = 3;

const ATTEMPTS: usize = 8;

pub(crate) fn run(setting: &Setting, result: &mut ListResult) -> Result<()> {
    let chosen: Vec<(usize, &Case)> = CASES
        .iter()
        .enumerate()
        .step_by(setting.step(CASES.len()))
        .collect();
    result.cases = chosen.len();
    let rules: String = (chosen.iter())
        .map(|(nth, _)| fill_text(RULES_OF_CASE, word(*nth)))
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // As they come, and with the limits that descriptors bring.
    for overrides in [false, true] {
        let configuration = format!(
            "service: {{ listen: 127.0.0.1:0, token: {TOKEN}, rls: {{ overrides: {overrides}, deadline: 5s }} }}\nrules:\n{RULES}{rules}"
        );
        let mut tollgate = Tollgate::start(&setting.tollgate, &configuration);
        let service = tollgate.listener("service");
        runtime.block_on(run_all(service, &chosen, overrides, result))?;
        tollgate.expect_running()?;
    }
    Ok(())
}

fn word(nth: usize) -> Word {
    Word(u32::try_from(nth).unwrap_or(u32::MAX).saturating_add(1))
}

async fn run_all(
    service: SocketAddr,
    chosen: &[(usize, &Case)],
    overrides: bool,
    result: &mut ListResult,
) -> Result<()> {
    let mut channel = Channel::open(service, TOKEN).await?;
    for (nth, case) in chosen {
        result.runs += 1;
        let word = word(*nth).text();
        let plain = case.subject.plain(&word);
        let plain: Vec<Call> = plain.map_or(Vec::new(), |call| vec![call; LIMIT]);
        let attacks: Vec<Call> = (0..ATTEMPTS)
            .map(|attempt| (case.call)(&word, attempt))
            .collect();
        let mut answers = Vec::new();
        for call in plain.iter().chain(&attacks) {
            if !channel.is_open() {
                channel = Channel::open(service, TOKEN).await?;
            }
            answers.push(channel.call(call).await);
        }
        result.requests += answers.len();
        let (to_plain, to_attacks) = answers.split_at(plain.len());
        let count = |is: fn(&Answered) -> bool| answers.iter().filter(|answer| is(answer)).count();
        let admitted = count(|answer| *answer == Answered::Ok);
        let errors = count(|answer| matches!(answer, Answered::Error(_)));
        let details = |what: String| {
            let encoded = attacks.first().map(Call::encode).unwrap_or_default();
            let encoded = shown(&encoded, 300);
            format!(
                "first attack: {encoded}\noverrides: {overrides}\nanswered: plain {to_plain:?}, attack {to_attacks:?}\n{what}"
            )
        };
        if to_plain.iter().any(|answer| *answer != Answered::Ok) {
            let what = format!("a plain call of {:?} was not admitted", case.subject);
            result.fail(case.name, FailureKind::NotJudged, details(what));
            continue;
        }
        if admitted > LIMIT {
            let what = format!("admitted {admitted}, limit {LIMIT}");
            result.fail(case.name, FailureKind::Bypassed, details(what));
        }
        if errors > 0 && case.origin == Origin::Client {
            result.errors_to_envoy += errors;
            let what = format!("{errors} errors, for which Envoy admits the request");
            result.fail(case.name, FailureKind::ErrorToEnvoy, details(what));
        }
    }
    Ok(())
}
