//! What a line of the access log says. Whatever callers chose is escaped.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderValue, Method, StatusCode, Uri, Version};
use serde::Serialize;
use tollgate::Decision;

use tollgate_http::proxy::TunnelEnd;
use tollgate_http::server::RejectedHead;

use crate::calendar::utc;
use tollgate_config::text::escaped;

/// Longer paths and client names are cut.
const MAX_CHARS: usize = 1_024;

/// The status that is logged if the client disconnected before the response, as nginx does.
const DISCONNECTED: u16 = 499;

/// What is known of a request when it arrives.
#[derive(Clone, Debug)]
pub(in super::super) struct LoggedRequest {
    pub(in super::super) at: SystemTime,
    pub(in super::super) id: HeaderValue,
    pub(in super::super) method: Method,
    pub(in super::super) uri: Uri,
    pub(in super::super) version: Version,
}

/// What a line reports.
#[derive(Debug)]
pub(in super::super) struct Entry<'a> {
    pub(in super::super) request: &'a LoggedRequest,
    pub(in super::super) ip: IpAddr,
    pub(in super::super) client: Option<&'a str>,
    pub(in super::super) decision: Option<&'a Decision>,
    /// `None` if the client disconnected before the response.
    pub(in super::super) status: Option<StatusCode>,
    /// Of the response's body.
    pub(in super::super) bytes: u64,
    pub(in super::super) took: Duration,
    /// Whether all of the response was sent.
    pub(in super::super) is_complete: bool,
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
    pub(super) fn new(entry: &Entry<'a>) -> Self {
        let request = entry.request;
        let denied = entry.decision.filter(|_| entry.is_denial());
        let denied_by = denied.and_then(|decision| Some(decision.tier()?.rule().as_str()));
        Self {
            time: time(request.at),
            request_id: request.id.to_str().unwrap_or_default(),
            ip: entry.ip,
            client: entry.client.map(|client| escaped(client, MAX_CHARS)),
            method: request.method.as_str(),
            path: escaped(request.uri.path(), MAX_CHARS),
            protocol: protocol(request.version),
            status: entry.status.map_or(DISCONNECTED, |status| status.as_u16()),
            bytes: entry.bytes,
            seconds: entry.took.as_secs_f64(),
            upstream_seconds: entry.upstream.map(|took| took.as_secs_f64()),
            denied_by,
            remaining: entry.decision.and_then(Decision::remaining),
            source: entry.decision.map(|decision| decision.source().as_str()),
            tunnel: entry.tunnel.map(TunnelEnd::name),
            refused: None,
            broken_off: !entry.is_complete,
        }
    }

    /// A head that was rejected before it was a request. Only its peer is known.
    pub(super) fn rejected(at: SystemTime, ip: IpAddr, head: RejectedHead) -> Self {
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

impl Entry<'_> {
    /// Whether the gateway denied the request. An upstream may respond with 429 as well; then the request was admitted.
    fn is_denial(&self) -> bool {
        let is_late = self.upstream.is_none() && self.status == Some(StatusCode::TOO_MANY_REQUESTS);
        self.decision
            .is_some_and(|decision| !decision.allowed() || is_late && !decision.delay().is_zero())
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

    fn request(path: &str) -> LoggedRequest {
        LoggedRequest {
            at: UNIX_EPOCH + Duration::from_micros(1_800_000_000_000_250),
            id: HeaderValue::from_static("7f9c"),
            method: Method::POST,
            uri: path.parse().unwrap(),
            version: Version::HTTP_11,
        }
    }

    fn entry<'a>(request: &'a LoggedRequest, client: &'a str) -> Entry<'a> {
        Entry {
            request,
            ip: [203, 0, 113, 7].into(),
            client: Some(client),
            decision: None,
            status: Some(StatusCode::OK),
            bytes: 12,
            took: Duration::from_micros(1_234),
            is_complete: true,
            upstream: Some(Duration::from_millis(1)),
            tunnel: None,
        }
    }

    #[test]
    fn a_text_line_has_everything_but_the_query() {
        let charge = request("/v1/charges?card=4242");
        let line = Line::new(&entry(&charge, "merchant_123")).text();
        assert_eq!(
            line,
            "2027-01-15T08:00:00.000250Z 203.0.113.7 \"merchant_123\" \"POST /v1/charges HTTP/1.1\" \
             200 12 0.001234 7f9c upstream=0.001000\n"
        );
        let other = request("/");
        let line = Line::new(&Entry {
            status: None,
            is_complete: false,
            upstream: None,
            ..entry(&other, "a")
        });
        let line = line.text();
        assert!(
            line.ends_with(" 499 12 0.001234 7f9c broken_off\n"),
            "{line}"
        );
    }

    #[test]
    fn a_429_of_the_upstream_is_no_denial() {
        let (limiter, queue) = (LocalLimiter::new(), "1/h queue 5".parse().unwrap());
        let check = || limiter.check("a", &queue, 1);
        let (first, queued) = (check(), check());
        assert!(first.delay().is_zero() && !queued.delay().is_zero());
        let request = request("/");
        let denied_by = |decision, upstream| {
            let line = Line::new(&Entry {
                status: Some(StatusCode::TOO_MANY_REQUESTS),
                decision: Some(decision),
                upstream,
                ..entry(&request, "a")
            });
            line.text().contains("denied_by=")
        };
        let upstream = Some(Duration::from_millis(1));
        assert!(!denied_by(&first, upstream));
        assert!(!denied_by(&queued, upstream));
        // The queue was longer than it could wait: it never got there.
        assert!(denied_by(&queued, None));
    }

    #[test]
    fn clients_cannot_inject_lines_or_fields() {
        let evil = "a\" 200 \n2027 \u{1b}[2J\u{202e}\\";
        let request = request("/a\"b\\");
        let line = Line::new(&entry(&request, evil)).text();
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        assert!(
            line.contains(r#""a\" 200 \n2027 \u{1b}[2J\u{202e}\\""#),
            "{line}"
        );
        assert!(line.contains(r#""POST /a\"b\\ HTTP/1.1""#), "{line}");
        let line = Line::new(&entry(&request, evil)).json();
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["client"], escaped(evil, 100));
        assert_eq!((&read["status"], &read["bytes"]), (&200.into(), &12.into()));
        assert!(read.get("denied_by").is_none() && read.get("broken_off").is_none());
    }
}
