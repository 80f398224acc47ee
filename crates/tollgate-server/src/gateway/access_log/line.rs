//! What a line of the access log says. Whatever callers chose is escaped.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderValue, Method, StatusCode, Uri, Version};
use serde::Serialize;
use tollgate::Decision;

use super::super::tunnel::TunnelEnd;
use crate::audit::escaped;
use crate::calendar::utc;
use crate::listen::RefusedHead;

/// Longer paths and names are cut.
const LONGEST: usize = 1_024;

/// What is logged when the caller left before there was an answer, as others do.
const LEFT: u16 = 499;

/// What was asked, and by whom.
#[derive(Clone, Debug)]
pub(in super::super) struct Asked {
    pub(in super::super) at: SystemTime,
    pub(in super::super) id: HeaderValue,
    pub(in super::super) ip: IpAddr,
    pub(in super::super) client: Option<String>,
    pub(in super::super) method: Method,
    pub(in super::super) uri: Uri,
    pub(in super::super) version: Version,
}

/// What came of it.
#[derive(Debug)]
pub(in super::super) struct Told<'a> {
    /// `None` if the caller left before there was one.
    pub(in super::super) status: Option<StatusCode>,
    /// Of the answer's body.
    pub(in super::super) bytes: u64,
    pub(in super::super) took: Duration,
    /// Whether the whole answer has gone out.
    pub(in super::super) is_whole: bool,
    pub(in super::super) decided: Option<&'a Decision>,
    pub(in super::super) upstream: Option<Duration>,
    /// How an upgraded connection ended.
    pub(in super::super) tunnel: Option<TunnelEnd>,
}

/// The fields of a line in JSON.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    time: String,
    request_id: &'a str,
    ip: IpAddr,
    client: Option<String>,
    method: &'a str,
    path: String,
    protocol: &'a str,
    status: u16,
    bytes: u64,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    denied_by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
    /// Where the decision came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tunnel: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    broken_off: bool,
}

impl<'a> Line<'a> {
    pub(super) fn new(asked: &'a Asked, told: &Told<'a>) -> Self {
        let denied = told.decided.filter(|_| told.status_is_denial());
        let denied_by = denied.and_then(|decision| Some(decision.tier()?.rule().as_str()));
        Self {
            time: time(asked.at),
            request_id: asked.id.to_str().unwrap_or_default(),
            ip: asked.ip,
            client: (asked.client.as_deref()).map(|client| escaped(client, LONGEST)),
            method: asked.method.as_str(),
            path: escaped(asked.uri.path(), LONGEST),
            protocol: protocol(asked.version),
            status: told.status.map_or(LEFT, |status| status.as_u16()),
            bytes: told.bytes,
            seconds: told.took.as_secs_f64(),
            upstream_seconds: told.upstream.map(|took| took.as_secs_f64()),
            denied_by,
            remaining: told.decided.and_then(Decision::remaining),
            source: told.decided.map(|decision| decision.source().as_str()),
            tunnel: told.tunnel.map(TunnelEnd::name),
            refused: None,
            broken_off: !told.is_whole,
        }
    }

    /// Nothing is known of it but where it came from: it has no name either, as hyper answers it.
    pub(super) fn refused(at: SystemTime, ip: IpAddr, head: RefusedHead) -> Self {
        Self {
            time: time(at),
            request_id: "-",
            ip: ip.to_canonical(),
            client: None,
            method: "-",
            path: "-".to_owned(),
            protocol: protocol(Version::HTTP_11),
            status: head.status().as_u16(),
            bytes: 0,
            seconds: 0.0,
            upstream_seconds: None,
            denied_by: None,
            remaining: None,
            source: None,
            tunnel: None,
            refused: Some(head.name()),
            broken_off: false,
        }
    }

    /// One JSON object.
    pub(super) fn json(&self) -> String {
        // Text and numbers, which cannot fail to be written.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }

    /// A line for people: time, address, client, what was asked, status, bytes, seconds, id, and what else there is.
    pub(super) fn text(&self) -> String {
        let client = self.client.as_deref().map_or("-".to_owned(), quoted);
        let what = quoted(&format!("{} {} {}", self.method, self.path, self.protocol));
        let mut text = format!(
            "{} {} {client} {what} {} {} {:.6} {}",
            self.time, self.ip, self.status, self.bytes, self.seconds, self.request_id
        );
        // To write to text cannot fail.
        if let Some(seconds) = self.upstream_seconds {
            let _ = write!(text, " upstream={seconds:.6}");
        }
        if let Some(rule) = self.denied_by {
            let _ = write!(text, " denied_by={rule}");
        }
        if let Some(remaining) = self.remaining {
            let _ = write!(text, " remaining={remaining}");
        }
        if let Some(source) = self.source {
            let _ = write!(text, " source={source}");
        }
        if let Some(end) = self.tunnel {
            let _ = write!(text, " tunnel={end}");
        }
        if let Some(reason) = self.refused {
            let _ = write!(text, " refused={reason}");
        }
        if self.broken_off {
            text.push_str(" broken_off");
        }
        text.push('\n');
        text
    }
}

fn time(at: SystemTime) -> String {
    let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    utc(i64::try_from(at.as_micros()).unwrap_or(i64::MAX))
}

impl Told<'_> {
    /// Of those that a decision was taken on, only denials are answered by us. A service behind may say 429 as well, and then it was let pass.
    fn status_is_denial(&self) -> bool {
        let is_late = self.upstream.is_none() && self.status == Some(StatusCode::TOO_MANY_REQUESTS);
        self.decided
            .is_some_and(|decided| !decided.allowed() || is_late && !decided.delay().is_zero())
    }
}

/// Backslashes are doubled already where it was escaped.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\\\""))
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2",
        _ => "HTTP/1.1",
    }
}

#[cfg(test)]
mod tests {
    use tollgate::LocalLimiter;

    use super::*;

    fn text(asked: &Asked, told: &Told<'_>) -> String {
        Line::new(asked, told).text()
    }

    fn asked(client: &str, path: &str) -> Asked {
        Asked {
            at: UNIX_EPOCH + Duration::from_micros(1_800_000_000_000_250),
            id: HeaderValue::from_static("7f9c"),
            ip: [203, 0, 113, 7].into(),
            client: Some(client.to_owned()),
            method: Method::POST,
            uri: path.parse().unwrap(),
            version: Version::HTTP_11,
        }
    }

    fn told() -> Told<'static> {
        Told {
            status: Some(StatusCode::OK),
            bytes: 12,
            took: Duration::from_micros(1_234),
            is_whole: true,
            decided: None,
            upstream: Some(Duration::from_millis(1)),
            tunnel: None,
        }
    }

    #[test]
    fn a_line_for_people_says_it_all_and_no_query() {
        let line = text(&asked("merchant_123", "/v1/charges?card=4242"), &told());
        assert_eq!(
            line,
            "2027-01-15T08:00:00.000250Z 203.0.113.7 \"merchant_123\" \"POST /v1/charges HTTP/1.1\" \
             200 12 0.001234 7f9c upstream=0.001000\n"
        );
        let left = Told {
            status: None,
            is_whole: false,
            upstream: None,
            ..told()
        };
        let line = text(&asked("a", "/"), &left);
        assert!(
            line.ends_with(" 499 12 0.001234 7f9c broken_off\n"),
            "{line}"
        );
    }

    #[test]
    fn a_429_of_the_server_behind_is_not_taken_for_ours_also_after_a_wait_in_the_queue() {
        let (limiter, queue) = (LocalLimiter::new(), "1/h queue 5".parse().unwrap());
        let check = || limiter.check("a", &queue, 1);
        let (first, queued) = (check(), check());
        assert!(first.delay().is_zero() && !queued.delay().is_zero());
        let denied_by = |decided, upstream| {
            let told = Told {
                status: Some(StatusCode::TOO_MANY_REQUESTS),
                decided: Some(decided),
                upstream,
                ..told()
            };
            text(&asked("a", "/"), &told).contains("denied_by=")
        };
        let upstream = Some(Duration::from_millis(1));
        assert!(!denied_by(&first, upstream));
        assert!(!denied_by(&queued, upstream));
        // The queue was longer than it could wait: it never got there.
        assert!(denied_by(&queued, None));
    }

    #[test]
    fn nobody_can_write_a_line_of_its_own_or_end_a_field() {
        let evil = "a\" 200 \n2027 \u{1b}[2J\u{202e}\\";
        let line = text(&asked(evil, "/a\"b\\"), &told());
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        assert!(
            line.contains(r#""a\" 200 \n2027 \u{1b}[2J\u{202e}\\""#),
            "{line}"
        );
        assert!(line.contains(r#""POST /a\"b\\ HTTP/1.1""#), "{line}");
        let line = Line::new(&asked(evil, "/a\"b\\"), &told()).json();
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["client"], escaped(evil, 100));
        assert_eq!((&read["status"], &read["bytes"]), (&200.into(), &12.into()));
        assert!(read.get("denied_by").is_none() && read.get("broken_off").is_none());
    }
}
