//! Saturating load by wrk.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tollgate_testing::Process;

use crate::Result;
use crate::load::{LIMITED_EVERY, Load};
use crate::process::output_within;
use crate::upstream::SENT_HEADER;

/// How much longer than asked wrk may run.
const GRACE: Duration = Duration::from_secs(20);

/// A wrk that runs.
#[derive(Debug)]
pub(crate) struct Wrk {
    process: Process,
    length: Duration,
}

/// What wrk does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) connections: u32,
    pub(crate) threads: u32,
    pub(crate) length: Duration,
    pub(crate) path: &'a str,
    pub(crate) script: Option<&'a Path>,
}

impl Wrk {
    pub(crate) fn start(address: SocketAddr, plan: Plan<'_>) -> Result<Self> {
        let mut command = Command::new("wrk");
        command
            .arg(format!("-t{}", plan.threads))
            .arg(format!("-c{}", plan.connections))
            .arg(format!("-d{}s", plan.length.as_secs()))
            .arg("--latency");
        if let Some(script) = plan.script {
            command.arg("-s").arg(script);
        }
        command.arg(format!("http://{address}{}", plan.path));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Self {
            process: Process::spawn(&mut command)?,
            length: plan.length,
        })
    }

    /// Waits for the end and reads the summary.
    pub(crate) fn finish(self) -> Result<Load> {
        let output = output_within(self.process, self.length + GRACE)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let load = parse_summary(&text, self.length);
        load.ok_or_else(|| {
            let errors = String::from_utf8_lossy(&output.stderr);
            format!("cannot read the summary of wrk:\n{text}{errors}").into()
        })
    }
}

/// A script that mixes both kinds of paths. Requests for the limited one carry the time they are
/// sent, because wrk builds a request just before it writes it.
pub(crate) fn mixed_script() -> String {
    format!(
        r#"local ffi = require("ffi")
ffi.cdef[[
struct timeval {{ long seconds; long micros; }};
int gettimeofday(struct timeval *now, void *zone);
]]
local now = ffi.new("struct timeval")
local open = {{}}
for item = 0, 7 do
  open[item] = "GET /open/" .. item .. " HTTP/1.1\r\nHost: steady.example\r\n\r\n"
end
local number = 0
request = function()
  number = number + 1
  if number % {LIMITED_EVERY} ~= 0 then return open[number % 8] end
  ffi.C.gettimeofday(now, nil)
  local sent = string.format("%d%06d", tonumber(now.seconds), tonumber(now.micros))
  return "GET /limited HTTP/1.1\r\nHost: steady.example\r\n{SENT_HEADER}: " .. sent .. "\r\n\r\n"
end
"#
    )
}

fn parse_summary(text: &str, length: Duration) -> Option<Load> {
    let words = |start: &str| {
        let line = text.lines().map(str::trim);
        let mut lines = line.filter(|line| line.starts_with(start));
        Some(lines.next()?.split_whitespace().collect::<Vec<_>>())
    };
    let requests = text.lines().find(|line| line.contains(" requests in "))?;
    let errors = words("Socket errors:").unwrap_or_default();
    let count = |nth: usize| -> Option<u64> {
        let word = errors.get(nth)?.trim_end_matches(',');
        word.parse().ok()
    };
    // connect 1, read 2, write 3, timeout 4
    let failed = [3, 5, 7, 9].map(|nth| count(nth).unwrap_or(0));
    // wrk leaves out of its figures what took longer than its timeout.
    let max = match failed[3] {
        0 => Some(parse_time(words("Latency")?.get(3)?)?),
        _ => None,
    };
    Some(Load {
        requests: requests.split_whitespace().next()?.parse().ok()?,
        not_ok: words("Non-2xx").map_or(Some(0), |words| words.get(4)?.parse().ok())?,
        failed: failed.iter().sum(),
        length,
        p50: parse_time(words("50%")?.get(1)?)?,
        p99: parse_time(words("99%")?.get(1)?)?,
        max,
    })
}

/// Reads times such as `1.23ms`.
fn parse_time(text: &str) -> Option<Duration> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0)];
    let (number, seconds) = units
        .iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))?;
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMMARY: &str = "\
Running 3s test @ http://127.0.0.1:8080/
  2 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     5.84ms    1.70ms  41.07ms   90.58%
    Req/Sec     5.53k   373.22     6.07k    85.00%
  Latency Distribution
     50%    5.58ms
     75%    6.16ms
     90%    6.96ms
     99%   11.42ms
  33012 requests in 3.00s, 5.10MB read
  Non-2xx or 3xx responses: 5512
Requests/sec:  10998.47
Transfer/sec:      1.70MB
";

    #[test]
    fn summary_is_read() {
        let load = parse_summary(SUMMARY, Duration::from_secs(3)).unwrap();
        assert_eq!(
            (load.requests, load.not_ok, load.failed),
            (33_012, 5_512, 0)
        );
        assert_eq!(load.per_second(), 11_004);
        assert_eq!(load.p50, Duration::from_micros(5_580));
        assert_eq!(load.p99, Duration::from_micros(11_420));
        assert_eq!(load.max, Some(Duration::from_micros(41_070)));
    }

    #[test]
    fn timeouts_make_the_largest_latency_unknown() {
        let errors = "  Socket errors: connect 1, read 2, write 0, timeout 4\n";
        let load = parse_summary(&(SUMMARY.to_owned() + errors), Duration::from_secs(3)).unwrap();
        assert_eq!((load.failed, load.max), (7, None));
    }

    #[test]
    fn text_without_figures_is_no_summary() {
        let text = "unable to connect to 127.0.0.1:1 Connection refused\n";
        assert!(parse_summary(text, Duration::from_secs(3)).is_none());
    }

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("900.00us"), Some(Duration::from_micros(900)));
        assert_eq!(parse_time("1.50s"), Some(Duration::from_millis(1_500)));
        assert_eq!(parse_time("0.00m"), Some(Duration::ZERO));
        assert_eq!(parse_time("fast"), None);
    }
}
