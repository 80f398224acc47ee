//! Runs the list of JSON bodies against the decision service.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::Value;

use crate::lists::json::{BODIES, Bodies, Text};
use crate::lists::tokens::TOKEN;
use crate::report::{FailureKind, ListResult, shown};
use crate::template::{Word, fill, fill_text};
use crate::tollgate::Tollgate;
use crate::wire::{Answer, http1};
use crate::{Result, Setting};

const PLAIN: usize = 3;
const ATTEMPTS: usize = 8;

pub(crate) fn run(setting: &Setting, result: &mut ListResult) -> Result<()> {
    let all = BODIES
        .iter()
        .flat_map(|bodies| bodies.texts.iter().map(move |text| (bodies, text)));
    let cases: Vec<(&Bodies, &Text)> = all.collect();
    let chosen: Vec<_> = cases
        .iter()
        .enumerate()
        .step_by(setting.step(cases.len()))
        .collect();
    let mut configuration = format!(
        "service: {{ listen: 127.0.0.1:0, token: {TOKEN} }}
identity: {{ client: [\"api_key:X-API-Key\", bearer, \"header:X-User-Id\", ip] }}
rules:
  - {{ id: client, per: [client], limit: \"3/h burst 3\" }}
  - {{ id: client, plan: roomy, per: [client], limit: \"1000000/h burst 1000000\" }}
clients:
"
    );
    configuration += &fill_text(
        "  - { id: roomy, plan: roomy, api_key_sha256: \"{other_sha256}\" }\n",
        Word(0),
    );
    for (nth, _) in &chosen {
        let word = word(*nth);
        configuration += &fill_text(
            "  - { id: \"key-of-{w}\", api_key_sha256: \"{key_sha256}\" }\n",
            word,
        );
    }
    let mut tollgate = Tollgate::start(&setting.tollgate, &configuration);
    let service = tollgate.listener("service");
    for (nth, (bodies, text)) in chosen {
        result.cases += 1;
        result.runs += 1;
        run_case(service, bodies, text, word(nth), nth + 1, result);
    }
    tollgate.expect_running()
}

fn word(nth: usize) -> Word {
    Word(u32::try_from(nth).unwrap_or(u32::MAX).saturating_add(1))
}

fn run_case(
    service: SocketAddr,
    bodies: &Bodies,
    text: &Text,
    word: Word,
    nth: usize,
    result: &mut ListResult,
) {
    let case = format!("{} #{nth}", bodies.name);
    let mut answers = Vec::new();
    let mut allowed_plain = 0;
    for attempt in 0..PLAIN {
        if let Some(plain) = &bodies.plain {
            let answer = post(service, bodies.path, &body(plain, word, attempt));
            allowed_plain += allowed(&answer);
        }
    }
    for attempt in 0..ATTEMPTS {
        answers.push(post(service, bodies.path, &body(text, word, attempt)));
    }
    result.requests += answers.len() + PLAIN;
    let allowed_in_all = allowed_plain + answers.iter().map(allowed).sum::<usize>();
    let is_answered = |answer: &Answer| answer.status.is_some_and(|status| status < 500);
    let what = if bodies.plain.is_some() && allowed_plain < PLAIN {
        (
            FailureKind::NotJudged,
            format!("the plain body was allowed {allowed_plain} times, not {PLAIN}"),
        )
    } else if allowed_in_all > bodies.limit {
        (
            FailureKind::Bypassed,
            format!("allowed {allowed_in_all}, limit {}", bodies.limit),
        )
    } else if !answers.iter().all(is_answered) {
        (
            FailureKind::Bypassed,
            "an answer is 5xx, or there is none".to_owned(),
        )
    } else {
        return;
    };
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    let last = answers.last().map_or(&[][..], |answer| &answer.body);
    let details = format!(
        "POST {} {}\nanswered: {statuses:?}, last with {}\n{}",
        bodies.path,
        shown(&body(text, word, 0), 400),
        shown(last, 400),
        what.1
    );
    result.fail(&case, what.0, details);
}

fn body(text: &Text, word: Word, attempt: usize) -> Vec<u8> {
    match text {
        Text::Is(text) => fill(text, word, attempt),
        Text::Repeats(before, unit, times, after) => {
            let filled = |text: &str| fill(text.as_bytes(), word, attempt);
            [filled(before), filled(unit).repeat(*times), filled(after)].concat()
        }
    }
}

fn post(service: SocketAddr, path: &str, body: &[u8]) -> Answer {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    http1::exchange(
        service,
        Ipv4Addr::LOCALHOST,
        &[head.as_bytes(), body].concat(),
    )
}

/// How many checks the answer allows.
fn allowed(answer: &Answer) -> usize {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let is_allowed = |value: &Value| usize::from(value["allowed"] == true);
    let several = body["results"].as_array();
    several.map_or_else(
        || is_allowed(&body),
        |results| results.iter().map(is_allowed).sum(),
    )
}
