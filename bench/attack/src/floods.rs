//! Runs the list of floods. All are bounded in count and time, and each has a good client beside it that must be served.

mod send;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::front::Front;
use crate::judge::is_of;
use crate::lists::floods::{FLOODS, FRAMES, Flood, Load};
use crate::lists::{self, Family, Setup, Subject, THREE, identity};
use crate::report::{FailureKind, ListResult};
use crate::template::{Word, fill};
use crate::tollgate::Tollgate;
use crate::upstream::{Kind, Upstream};
use crate::wire::http1;
use crate::{Result, Setting};
use send::{
    hold, leave_unread, request_of, send_frames, send_keys, send_pipelined, send_requests,
    send_slowly, source,
};

/// One request of a good client in so many may fail: a listener that is full sheds connections, and may take a new one for idle.
const TOLERATED: usize = 20;

/// How much fewer floods the short form has than other cases.
const SHORTER: usize = 4;

const GATEWAY: Setup = Setup {
    name: "floods",
    gateway: "  max_connections: 300\n  idle_timeout: 3s\n  send_timeout: 3s\n",
    sections: "identity: { client: [\"api_key:X-API-Key\", \"header:X-User-Id\", ip] }\nstore: { max_keys: 2000 }\n",
    rules: "  - { id: client, per: [client], limit: \"3/h burst 3\" }
  - { id: client, plan: roomy, per: [client], limit: \"1000000/h burst 1000000\" }
",
    front: lists::Front::Gateway,
};

pub(crate) fn run(
    setting: &Setting,
    upstreams: &mut [Upstream],
    result: &mut ListResult,
) -> Result<()> {
    let upstream = upstreams
        .iter_mut()
        .find(|upstream| upstream.kind == Kind::Node);
    let upstream = upstream.ok_or("there is no Node")?;
    // They take seconds each, so the short form has few.
    let step = match setting.cases_per_list {
        Some(_) => setting.step(FLOODS.len() * SHORTER),
        None => 1,
    };
    let chosen: Vec<(usize, &Flood)> = FLOODS.iter().enumerate().step_by(step).collect();
    result.cases = chosen.len();
    for (nth, flood) in &chosen {
        result.runs += 1;
        // A gateway of its own, so that what one flood has left does not help against the next.
        let word = Word(u32::try_from(*nth).unwrap_or(0) + 1);
        let mut family = identity::LINES;
        family.setup = &GATEWAY;
        let front = Front::start(
            &setting.tollgate,
            &GATEWAY,
            upstream.address,
            &[(&family, word)],
        )?;
        run_against_gateway(
            front,
            setting.patience,
            flood,
            &family,
            word,
            upstream,
            result,
        )?;
    }
    let of_frames = chosen.iter().filter_map(|(_, flood)| match flood.load {
        Load::Frames(frame) => Some((flood, frame)),
        _ => None,
    });
    let service = "service: { listen: 127.0.0.1:0 }\nrules: [{ id: everyone, per: [], limit: \"1000000/h burst 1000000\" }]\n";
    let mut service = Tollgate::start(&setting.tollgate, service);
    let patience = setting.patience;
    let address = service.listener("service");
    for (flood, frame) in of_frames {
        result.runs += 1;
        let body = "{\"client\":\"a\"}";
        let good = format!(
            "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let (cut, served) = beside(address, patience, good.as_bytes(), || {
            send_frames(address, frame)
        });
        judge_frames(
            &format!("{} at the service", flood.name),
            &cut,
            &served,
            result,
        );
    }
    service.expect_running()
}

fn run_against_gateway(
    mut front: Front,
    patience: Duration,
    flood: &Flood,
    family: &Family,
    word: Word,
    upstream: &mut Upstream,
    result: &mut ListResult,
) -> Result<()> {
    let address = front.address;
    let good =
        b"GET /good HTTP/1.1\r\nHost: a\r\nX-API-Key: key-roomy\r\nConnection: close\r\n\r\n";
    upstream.records()?;
    match flood.load {
        Load::Frames(frame) => {
            let (cut, served) = beside(address, patience, good, || send_frames(address, frame));
            judge_frames(flood.name, &cut, &served, result);
        }
        Load::Requests(frame) => {
            let key = String::from_utf8_lossy(&fill(b"{key}", word, 0)).into_owned();
            let (_, served) = beside(address, patience, good, || {
                send_requests(address, frame, &key);
            });
            judge_served(flood.name, &served, result);
        }
        Load::Pipelined(template) => {
            let requests: Vec<u8> = (0..200).flat_map(|nth| fill(template, word, nth)).collect();
            let (_, served) = beside(address, patience, good, || {
                send_pipelined(address, &requests);
            });
            judge_served(flood.name, &served, result);
        }
        Load::Keys(line) => {
            let plain = |number| request_of(&fill(b"X-API-Key: {key}", word, number));
            for number in 0..THREE {
                http1::exchange(address, source(30, 0), &plain(number));
            }
            let (_, served) = beside(address, patience, good, || send_keys(address, line, word));
            judge_served(flood.name, &served, result);
            for number in 0..8 {
                http1::exchange(address, source(31, number), &plain(number.into()));
            }
        }
        Load::Held(count, bytes) => {
            let (_, served) = beside(address, patience, good, || hold(address, count, bytes));
            judge_served(flood.name, &served, result);
        }
        Load::Slow(count, bytes) => {
            let (_, served) = beside(address, patience, good, || {
                send_slowly(address, count, bytes);
            });
            judge_served(flood.name, &served, result);
        }
        Load::Unread => {
            let (_, served) = beside(address, patience, good, || leave_unread(address));
            judge_served(flood.name, &served, result);
        }
    }
    front.tollgate.expect_running()?;
    let records = upstream.records()?;
    let arrived = (records.iter())
        .filter(|record| is_of(Subject::Key, word, record))
        .count();
    result.requests += records.len();
    if arrived > family.limit {
        let details = format!(
            "arrived with the key: {arrived}, limit {}\nrule: {}",
            family.limit,
            GATEWAY.rules.trim()
        );
        result.fail(flood.name, FailureKind::Bypassed, details);
    }
    let is_of_keys = matches!(flood.load, Load::Keys(_));
    if is_of_keys && arrived < family.limit {
        let details = format!("arrived before the flood: {arrived} of {}", family.limit);
        result.fail(flood.name, FailureKind::NotJudged, details);
    }
    Ok(())
}

/// What a good client beside a flood got.
#[derive(Clone, Debug, Default)]
struct Served {
    answered: usize,
    /// The statuses of those that were not served, and how long they took.
    failed: Vec<(Option<u16>, Duration)>,
}

/// Runs a flood, and a good client beside it, which sends its request again and again.
fn beside<T: Send>(
    address: SocketAddr,
    patience: Duration,
    good: &[u8],
    flood: impl FnOnce() -> T + Send,
) -> (T, Served) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut served = Served::default();
            while !is_over.load(Ordering::Relaxed)
                || served.answered == 0 && served.failed.is_empty()
            {
                let begin = Instant::now();
                let status = http1::exchange(address, source(10, 0), good).status;
                match (status, begin.elapsed()) {
                    (Some(200), took) if took < patience => served.answered += 1,
                    failed => served.failed.push(failed),
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            served
        });
        let result = flood();
        is_over.store(true, Ordering::Relaxed);
        (result, client.join().unwrap_or_default())
    })
}

fn judge_served(name: &str, served: &Served, result: &mut ListResult) {
    let all = served.answered + served.failed.len();
    result.requests += all;
    if served.failed.len() * TOLERATED <= all {
        return;
    }
    let first: Vec<_> = served.failed.iter().take(5).collect();
    let details = format!(
        "a good client was served {} times, and {} times not, or too late: {first:?}",
        served.answered,
        served.failed.len()
    );
    result.fail(name, FailureKind::Bypassed, details);
}

fn judge_frames(name: &str, cut: &[bool], served: &Served, result: &mut ListResult) {
    let uncut = cut.iter().filter(|is_cut| !**is_cut).count();
    if uncut > 0 {
        let details = format!(
            "{uncut} of {} connections were not closed, after up to {FRAMES} frames each",
            cut.len()
        );
        result.fail(name, FailureKind::Bypassed, details);
    }
    judge_served(name, served, result);
}
