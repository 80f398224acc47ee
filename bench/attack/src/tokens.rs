//! Runs the list of tokens: a wrong one never opens, and the right one always does, however often others were wrong.

use std::net::{Ipv4Addr, SocketAddr};

use crate::lists::tokens::{LINES, Line, PAGES, TOKEN};
use crate::report::{FailureKind, ListResult, shown};
use crate::template::{Word, fill};
use crate::tollgate::Tollgate;
use crate::wire::http1;
use crate::{Result, Setting};

/// How often a wrong token is tried before the right one.
const ATTEMPTS: usize = 8;

/// What is asked for: the listener, the first line, and the body.
const ENDPOINTS: [(&str, &str, &str); 6] = [
    (
        "service",
        "POST /v1/check HTTP/1.1",
        "{\"ip\":\"203.0.113.9\"}",
    ),
    ("service", "POST /v1/inspect HTTP/1.1", "{\"client\":\"a\"}"),
    ("service", "POST /v1/reset HTTP/1.1", "{\"client\":\"a\"}"),
    ("admin", "GET /metrics HTTP/1.1", ""),
    ("admin", "GET /v1/status HTTP/1.1", ""),
    ("admin", "GET /v1/top HTTP/1.1", ""),
];

const RULES: &str = "rules: [{ id: address, per: [ip], limit: \"1000000/h burst 1000000\" }]\n";

pub(crate) fn run(setting: &Setting, result: &mut ListResult) -> Result<()> {
    let step = setting.step(LINES.len() + PAGES.len());
    let token = format!("listen: 127.0.0.1:0, token: {TOKEN}");
    let closed = format!("service: {{ {token} }}\nadmin: {{ {token} }}\n{RULES}");
    let mut tollgate = Tollgate::start(&setting.tollgate, &closed);
    for (nth, line) in LINES.iter().enumerate().step_by(step) {
        result.cases += 1;
        for endpoint in ENDPOINTS {
            result.runs += 1;
            let address = tollgate.listener(endpoint.0);
            check_line(address, endpoint, nth, line, result);
        }
    }
    tollgate.expect_running()?;
    let open =
        format!("service: {{ listen: 127.0.0.1:0 }}\nadmin: {{ listen: 127.0.0.1:0 }}\n{RULES}");
    let mut tollgate = Tollgate::start(&setting.tollgate, &open);
    for (nth, lines) in PAGES.iter().enumerate().step_by(step) {
        result.cases += 1;
        for endpoint in ENDPOINTS {
            result.runs += 1;
            result.requests += 1;
            let request = request(endpoint, "", lines);
            let status = status(tollgate.listener(endpoint.0), &request);
            if !is_refusal(status) {
                report(
                    &format!("page #{}", nth + 1),
                    &request,
                    &[status],
                    "a refusal",
                    result,
                );
            }
        }
    }
    tollgate.expect_running()
}

fn check_line(
    address: SocketAddr,
    endpoint: (&str, &str, &str),
    nth: usize,
    line: &Line,
    result: &mut ListResult,
) {
    let case = format!("token #{}", nth + 1);
    let host = "Host: localhost\r\n";
    let attempts = if line.opens { 1 } else { ATTEMPTS };
    let requests: Vec<Vec<u8>> = (0..attempts)
        .map(|attempt| request(endpoint, host, &fill(line.lines, Word(0), attempt)))
        .collect();
    let statuses: Vec<Option<u16>> = requests
        .iter()
        .map(|request| status(address, request))
        .collect();
    result.requests += attempts + 1;
    let held = |status: &Option<u16>| match line.opens {
        true => *status == Some(200),
        false => is_refusal(*status),
    };
    if !statuses.iter().all(held) {
        let expected = if line.opens { "200" } else { "a refusal" };
        report(&case, &requests[0], &statuses, expected, result);
    }
    // The same address has just been wrong.
    let right = request(
        endpoint,
        host,
        format!("Authorization: Bearer {TOKEN}\r\n").as_bytes(),
    );
    let status = status(address, &right);
    if status != Some(200) {
        report(
            &format!("{case}, then the right token"),
            &right,
            &[status],
            "200",
            result,
        );
    }
}

/// Whether it was answered, and refused. A connection that is closed without an answer has let nobody in either.
fn is_refusal(status: Option<u16>) -> bool {
    status.is_none_or(|status| (400..500).contains(&status))
}

fn status(address: SocketAddr, request: &[u8]) -> Option<u16> {
    http1::exchange(address, Ipv4Addr::LOCALHOST, request).status
}

fn request(endpoint: (&str, &str, &str), host: &str, lines: &[u8]) -> Vec<u8> {
    let (_, first, body) = endpoint;
    let head = format!("{first}\r\n{host}");
    let rest = format!(
        "Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    [head.as_bytes(), lines, rest.as_bytes()].concat()
}

fn report(
    case: &str,
    request: &[u8],
    statuses: &[Option<u16>],
    expected: &str,
    result: &mut ListResult,
) {
    let details = format!(
        "request: {}\nanswered: {statuses:?}, expected {expected}",
        shown(request, 600)
    );
    result.fail(case, FailureKind::Bypassed, details);
}
