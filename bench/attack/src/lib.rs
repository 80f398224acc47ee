//! Collected attacks on the built program, with real upstreams behind it: Node's http, and Starlette on uvicorn.
//!
//! The judge is the upstream. Each case has an identity, a host, a path or a header of its own and a limit of three per hour for it. The
//! harness sends three plain requests, which must arrive, and then the same in other forms. If the upstream then has logged more than
//! three requests that it reads as that subject, the case is *bypassed*, whatever the gateway thought.

mod floods;
mod forwarded;
mod front;
mod json;
mod judge;
mod lists;
mod process;
pub mod report;
mod request;
mod rls;
mod template;
mod tokens;
mod tollgate;
mod upstream;
mod wire;

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use upstream::Kind;

use report::{ListResult, Outcome};
use upstream::Upstream;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// What to run, and with which programs.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The program `tollgate`.
    pub tollgate: PathBuf,
    /// The program `node`.
    pub node: PathBuf,
    /// A Python with Starlette and uvicorn, see requirements.txt.
    pub python: PathBuf,
    /// Runs at most so many cases of each list, each with one of the upstreams.
    pub cases_per_list: Option<usize>,
    /// How long a good client beside a flood may wait: longer where other programs keep the machine busy.
    pub patience: Duration,
    /// Runs only the lists with these names.
    pub only: Vec<String>,
}

impl Setting {
    fn runs(&self, list: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == list)
    }

    /// Every how many of so many cases are run.
    pub(crate) fn step(&self, cases: usize) -> usize {
        match self.cases_per_list {
            Some(most) => cases.div_ceil(most.max(1)).max(1),
            None => 1,
        }
    }
}

/// Runs the lists one after the other, and reports each.
///
/// # Errors
/// When a program cannot be started, or ends too early, and when no list has one of the names in `only`.
pub fn run(setting: &Setting, mut progress: impl FnMut(&ListResult)) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut record = |name: &'static str, attack: &mut dyn FnMut(&mut ListResult) -> Result<()>| {
        if !setting.runs(name) {
            return Ok(());
        }
        let begin = Instant::now();
        let mut result = ListResult::new(name);
        attack(&mut result).map_err(|error| format!("{name}: {error}"))?;
        result.took = begin.elapsed();
        progress(&result);
        outcome.lists.push(result);
        Ok::<(), Box<dyn Error + Send + Sync>>(())
    };
    let mut upstreams = Vec::new();
    for kind in Kind::ALL {
        upstreams.push(Upstream::start(kind, setting)?);
    }
    let mut words = 0;
    for (name, families) in lists::forwarded() {
        record(name, &mut |result| {
            forwarded::run(setting, &families, &mut upstreams, &mut words, result)
        })?;
    }
    record("tokens", &mut |result| tokens::run(setting, result))?;
    record("json", &mut |result| json::run(setting, result))?;
    record("rls", &mut |result| rls::run(setting, result))?;
    record("floods", &mut |result| {
        floods::run(setting, &mut upstreams, result)
    })?;
    let ran = |name: &&String| outcome.lists.iter().any(|list| list.name == **name);
    if let Some(unknown) = setting.only.iter().find(|name| !ran(name)) {
        return Err(format!("no list is called {unknown:?}").into());
    }
    Ok(outcome)
}
