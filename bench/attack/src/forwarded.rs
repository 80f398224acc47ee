//! Runs the lists of requests that are forwarded: sends each case, and lets the upstream's log judge.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::front::Front;
use crate::judge::is_of;
use crate::lists::{self, Family, Setup, Subject};
use crate::report::{FailureKind, ListResult, shown};
use crate::request::{self, Request, Version};
use crate::template::{Word, fill_text};
use crate::upstream::{Kind, Record, Upstream};
use crate::wire::{http1, http2};
use crate::{Result, Setting};

/// How often the plain form is sent before the attack.
const PLAIN: usize = 3;

/// How often an attack is sent.
const ATTEMPTS: usize = 8;

/// Cases at a time.
const THREADS: usize = 8;

/// A line of a list.
#[derive(Clone, Copy)]
struct Case<'f> {
    family: &'f Family,
    nth: usize,
    /// Its place in the whole list.
    place: usize,
}

/// A case in one version of HTTP, with a word of its own.
struct Run<'f> {
    case: Case<'f>,
    version: Version,
    word: Word,
}

/// What a run was answered with.
#[derive(Clone, Debug, Default)]
struct Statuses {
    plain: Vec<Option<u16>>,
    attack: Vec<Option<u16>>,
}

/// Runs the families of a list against all upstreams.
pub(crate) fn run(
    setting: &Setting,
    families: &[Family],
    upstreams: &mut [Upstream],
    words: &mut u32,
    result: &mut ListResult,
) -> Result<()> {
    let all = families
        .iter()
        .flat_map(|family| (0..family.attacks.len()).map(move |nth| (family, nth)));
    let cases: Vec<Case<'_>> = (all.enumerate())
        .map(|(place, (family, nth))| Case { family, nth, place })
        .collect();
    let step = setting.step(cases.len());
    let chosen: Vec<Case<'_>> = cases.into_iter().step_by(step).collect();
    result.cases = chosen.len();
    let mut setups: Vec<&Setup> = Vec::new();
    for family in families {
        if setups.iter().all(|known| known.name != family.setup.name) {
            setups.push(family.setup);
        }
    }
    let count = upstreams.len();
    for (number, upstream) in upstreams.iter_mut().enumerate() {
        for setup in &setups {
            // In the short form each case has one upstream.
            let is_here = |case: &&Case<'_>| {
                let of_setup = case.family.setup.name == setup.name;
                of_setup
                    && (setting.cases_per_list.is_none() || case.place / step % count == number)
            };
            let cases = chosen.iter().filter(is_here).copied().collect::<Vec<_>>();
            if !cases.is_empty() {
                run_setup(setting, setup, &cases, upstream, words, result)?;
            }
        }
    }
    Ok(())
}

fn run_setup(
    setting: &Setting,
    setup: &Setup,
    cases: &[Case<'_>],
    upstream: &mut Upstream,
    words: &mut u32,
    result: &mut ListResult,
) -> Result<()> {
    let versions: &[Version] = match setup.front {
        lists::Front::Gateway => &[Version::Http1, Version::Http2],
        lists::Front::Nginx => &[Version::Http1],
    };
    let mut runs = Vec::new();
    for case in cases {
        for version in versions {
            let is_sayable = request::attack(case.family, case.nth, *version, Word(0), 0).is_some();
            if is_sayable {
                *words += 1;
                runs.push(Run {
                    case: *case,
                    version: *version,
                    word: Word(*words),
                });
            }
        }
    }
    let words_of: Vec<(&Family, Word)> =
        runs.iter().map(|run| (run.case.family, run.word)).collect();
    let mut front = match Front::start(&setting.tollgate, setup, upstream.address, &words_of) {
        Ok(front) => front,
        Err(error) => {
            result.fail(
                &format!("setup {:?}", setup.name),
                FailureKind::NotJudged,
                error.to_string(),
            );
            return Ok(());
        }
    };
    // What is left from earlier runs.
    upstream.records()?;
    let statuses = send_all(front.address, &runs);
    let records = upstream.records()?;
    front.tollgate.expect_running()?;
    let found = by_word(&records);
    for (run, statuses) in runs.iter().zip(statuses) {
        result.runs += 1;
        result.requests += statuses.plain.len() + statuses.attack.len();
        let of_subject: Vec<&Record> = (found.get(&run.word.0).into_iter().flatten())
            .filter(|record| is_of(run.case.family.subject, run.word, record))
            .copied()
            .collect();
        judge(run, upstream, &statuses, &of_subject, result);
    }
    Ok(())
}

/// Sends all runs, some at a time. Returns what each was answered with.
fn send_all(front: SocketAddr, runs: &[Run<'_>]) -> Vec<Statuses> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Statuses>> = runs.iter().map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(run), Some(result)) = (runs.get(nth), results.get(nth)) else {
                        return;
                    };
                    let statuses = send(front, run);
                    if let Ok(mut result) = result.lock() {
                        *result = statuses;
                    }
                }
            });
        }
    });
    let inner = |result: Mutex<Statuses>| result.into_inner().unwrap_or_default();
    results.into_iter().map(inner).collect()
}

fn send(front: SocketAddr, run: &Run<'_>) -> Statuses {
    let Run {
        case,
        version,
        word,
    } = run;
    let mut source = Sources::of(run);
    let mut statuses = Statuses::default();
    for attempt in 0..PLAIN {
        if let Some(request) = request::plain(case.family, *version, *word, attempt) {
            statuses
                .plain
                .push(exchange(front, source.next(), &request));
        }
    }
    // What must not arrive at all is bypassed by the first that does.
    let attempts = if case.family.limit == 0 {
        PLAIN
    } else {
        ATTEMPTS
    };
    for attempt in 0..attempts {
        if let Some(request) = request::attack(case.family, case.nth, *version, *word, attempt) {
            statuses
                .attack
                .push(exchange(front, source.next(), &request));
        }
    }
    statuses
}

fn exchange(front: SocketAddr, source: Ipv4Addr, request: &Request) -> Option<u16> {
    match request {
        Request::Http1(bytes) => http1::exchange(front, source, bytes).status,
        Request::Http2(request) => http2::exchange(front, source, request).status,
    }
}

/// The addresses from which the requests of a run come.
struct Sources {
    word: Word,
    is_one: bool,
    sent: u8,
}

impl Sources {
    fn of(run: &Run<'_>) -> Self {
        Self {
            word: run.word,
            is_one: run.case.family.one_source,
            sent: 0,
        }
    }

    /// Each one another, so that a limit by address does not help.
    fn next(&mut self) -> Ipv4Addr {
        let [_, _, c, d] = self.word.source().octets();
        self.sent += 1;
        match self.is_one {
            true => self.word.source(),
            false => Ipv4Addr::new(127, 100 + self.sent, c, d),
        }
    }
}

/// Records by the words that they mention in any reading.
fn by_word(records: &[Record]) -> HashMap<u32, Vec<&Record>> {
    let mut found: HashMap<u32, Vec<&Record>> = HashMap::new();
    for record in records {
        for word in record.words() {
            found.entry(word).or_default().push(record);
        }
    }
    found
}

fn judge(
    run: &Run<'_>,
    upstream: &Upstream,
    statuses: &Statuses,
    of_subject: &[&Record],
    result: &mut ListResult,
) {
    let family = run.case.family;
    let arrived = of_subject.len();
    let case = format!("{} #{}", family.name, run.case.nth + 1);
    // h11 reads trailers and passes none on.
    let sees = !(matches!(family.subject, Subject::Trailer) && upstream.kind == Kind::H11);
    let kind = if arrived > family.limit {
        FailureKind::Bypassed
    } else if sees && family.plain.is_some() && arrived < PLAIN.min(family.limit) {
        FailureKind::NotJudged
    } else {
        return;
    };
    let request = request::attack(family, run.case.nth, run.version, run.word, 0);
    let sent = match request {
        Some(Request::Http1(bytes)) => shown(&bytes, 600),
        Some(Request::Http2(request)) => shown(&in_one_line(&request), 600),
        None => String::new(),
    };
    let read = of_subject
        .last()
        .map_or("nothing", |record| record.text.as_str());
    let rule = match family.rule {
        "" => family.setup.rules.trim().to_owned(),
        rule => fill_text(rule, run.word),
    };
    let details = format!(
        "{:?} to {} in setup {:?}\nrequest: {sent}\nanswered: plain {}, attack {}\narrived as {:?}: {arrived}, limit {}\nread: {}\nrule: {rule}",
        run.version,
        upstream.kind.name(),
        family.setup.name,
        listed(&statuses.plain),
        listed(&statuses.attack),
        family.subject,
        family.limit,
        shown(read.as_bytes(), 1_200),
    );
    result.fail(&case, kind, details);
}

fn listed(statuses: &[Option<u16>]) -> String {
    let text = |status: &Option<u16>| status.map_or("-".to_owned(), |status| status.to_string());
    statuses.iter().map(text).collect::<Vec<_>>().join(" ")
}

fn in_one_line(request: &http2::Request) -> Vec<u8> {
    let line = |(name, value): &(Vec<u8>, Vec<u8>)| [name, &b": "[..], value, &b"\n"[..]].concat();
    let mut text: Vec<u8> = request.fields.iter().flat_map(line).collect();
    if !request.trailers.is_empty() {
        text.extend_from_slice(b"trailers:\n");
        text.extend(request.trailers.iter().flat_map(line));
    }
    text
}
