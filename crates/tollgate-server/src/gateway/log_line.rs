//! A line of the access log. Text from clients is escaped.

use std::fmt::{Display, Write as _};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use http::{HeaderValue, Method, StatusCode, Uri, Version};
use serde::Serialize;
use tollgate::Decision;
use tollgate_config::text::escaped;
use tollgate_http::proxy::TunnelEnd;
use tollgate_http::server::RejectedHead;

use crate::time::{unix_micros, utc};

/// Longer paths and client names are cut.
const MAX_CHARS: usize = 1_024;

/// The status that is logged if the client disconnected before the response, as nginx does.
const DISCONNECTED: u16 = 499;

/// What is known of a request when it arrives.
#[derive(Clone, Debug)]
pub(super) struct LoggedRequest {
    pub(super) at: SystemTime,
    pub(super) id: HeaderValue,
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) version: Version,
}

/// What is known of a response in the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// `None` if the client disconnected before the response.
    pub(super) status: Option<StatusCode>,
    /// Bytes of the response's body.
    pub(super) bytes: u64,
    /// Whether all of the response was sent.
    pub(super) is_complete: bool,
    /// How long the upstream took to respond.
    pub(super) upstream: Option<Duration>,
    /// How an upgraded connection ended.
    pub(super) tunnel: Option<TunnelEnd>,
}

/// A line, with the fields that it has in JSON.
#[derive(Serialize)]
pub(super) struct LogLine<'a> {
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
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tunnel: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    broken_off: bool,
}

impl<'a> LogLine<'a> {
    pub(super) fn new(
        request: &'a LoggedRequest,
        (ip, client): (IpAddr, Option<&str>),
        decision: Option<&'a Decision>,
        outcome: &Outcome,
        took: Duration,
    ) -> Self {
        let denial = decision.filter(|decision| is_denial(decision, outcome));
        Self {
            time: utc(unix_micros(request.at)),
            request_id: request.id.to_str().unwrap_or_default(),
            ip,
            client: client.map(|client| escaped(client, MAX_CHARS)),
            method: request.method.as_str(),
            path: escaped(request.uri.path(), MAX_CHARS),
            protocol: protocol(request.version),
            status: outcome.status.map_or(DISCONNECTED, |it| it.as_u16()),
            bytes: outcome.bytes,
            seconds: took.as_secs_f64(),
            upstream_seconds: outcome.upstream.map(|took| took.as_secs_f64()),
            denied_by: denial.and_then(|decision| Some(decision.tier()?.rule().as_str())),
            remaining: decision.and_then(Decision::remaining),
            source: decision.map(|decision| decision.source().as_str()),
            tunnel: outcome.tunnel.map(TunnelEnd::name),
            refused: None,
            broken_off: !outcome.is_complete,
        }
    }

    /// The line of a head that was rejected before it was a request. Only its peer is known.
    pub(super) fn rejected(at: SystemTime, ip: IpAddr, head: RejectedHead) -> Self {
        Self {
            time: utc(unix_micros(at)),
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

    /// The line as a JSON object.
    pub(super) fn json(&self) -> String {
        // Text and numbers can always be written.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }

    /// The line as text: time, address, client, request, status, bytes, seconds, id, and optional fields.
    pub(super) fn text(&self) -> String {
        let client = self.client.as_deref().map_or("-".to_owned(), quoted);
        let request = quoted(&format!("{} {} {}", self.method, self.path, self.protocol));
        let mut text = format!(
            "{} {} {client} {request} {} {} {:.6} {}",
            self.time, self.ip, self.status, self.bytes, self.seconds, self.request_id
        );
        // Writing to a string cannot fail.
        if let Some(seconds) = self.upstream_seconds {
            let _ = write!(text, " upstream={seconds:.6}");
        }
        let mut add = |name: &str, value: Option<&dyn Display>| {
            if let Some(value) = value {
                let _ = write!(text, " {name}={value}");
            }
        };
        add("denied_by", self.denied_by.as_ref().map(|it| it as _));
        add("remaining", self.remaining.as_ref().map(|it| it as _));
        add("source", self.source.as_ref().map(|it| it as _));
        add("tunnel", self.tunnel.as_ref().map(|it| it as _));
        add("refused", self.refused.as_ref().map(|it| it as _));
        text.push_str(if self.broken_off {
            " broken_off\n"
        } else {
            "\n"
        });
        text
    }
}

/// Whether the gateway denied the request. An upstream may respond with 429 too; then the request was admitted.
fn is_denial(decision: &Decision, outcome: &Outcome) -> bool {
    let is_late =
        outcome.upstream.is_none() && outcome.status == Some(StatusCode::TOO_MANY_REQUESTS);
    !decision.allowed() || is_late && !decision.delay().is_zero()
}

/// Backslashes are doubled already in escaped text.
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
    use std::time::UNIX_EPOCH;

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

    fn outcome() -> Outcome {
        Outcome {
            status: Some(StatusCode::OK),
            bytes: 12,
            is_complete: true,
            upstream: Some(Duration::from_millis(1)),
            tunnel: None,
        }
    }

    fn line<'a>(
        request: &'a LoggedRequest,
        client: &str,
        decision: Option<&'a Decision>,
        outcome: &Outcome,
    ) -> LogLine<'a> {
        let client = ([203, 0, 113, 7].into(), Some(client));
        LogLine::new(
            request,
            client,
            decision,
            outcome,
            Duration::from_micros(1_234),
        )
    }

    #[test]
    fn a_text_line_has_everything_but_the_query() {
        let charge = request("/v1/charges?card=4242");
        assert_eq!(
            line(&charge, "merchant_123", None, &outcome()).text(),
            "2027-01-15T08:00:00.000250Z 203.0.113.7 \"merchant_123\" \"POST /v1/charges HTTP/1.1\" \
             200 12 0.001234 7f9c upstream=0.001000\n"
        );
        let disconnected = Outcome {
            bytes: 12,
            ..Outcome::default()
        };
        let other = request("/");
        let line = line(&other, "a", None, &disconnected).text();
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
            let outcome = Outcome {
                status: Some(StatusCode::TOO_MANY_REQUESTS),
                upstream,
                ..outcome()
            };
            let line = line(&request, "a", Some(decision), &outcome);
            line.text().contains("denied_by=")
        };
        let upstream = Some(Duration::from_millis(1));
        assert!(!denied_by(&first, upstream));
        assert!(!denied_by(&queued, upstream));
        // It could not wait for its turn, so it was not forwarded.
        assert!(denied_by(&queued, None));
    }

    #[test]
    fn clients_cannot_inject_lines_or_fields() {
        let evil = "a\" 200 \n2027 \u{1b}[2J\u{202e}\\";
        let request = request("/a\"b\\");
        let line = line(&request, evil, None, &outcome());
        let text = line.text();
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert!(
            text.contains(r#""a\" 200 \n2027 \u{1b}[2J\u{202e}\\""#),
            "{text}"
        );
        assert!(text.contains(r#""POST /a\"b\\ HTTP/1.1""#), "{text}");
        let json = line.json();
        assert_eq!(json.matches('\n').count(), 1, "{json}");
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["client"], escaped(evil, 100));
        assert_eq!((&read["status"], &read["bytes"]), (&200.into(), &12.into()));
        assert!(read.get("denied_by").is_none() && read.get("broken_off").is_none());
    }
}
