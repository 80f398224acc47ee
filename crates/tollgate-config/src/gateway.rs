//! The front of the gateway: what callers may do, before anything is said of what stands behind it.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use super::connections::{ConnectionLimits, WaitingLimits};
use crate::document::Problems;
use crate::document::reading::{Fields, Place, choice, duration, number, shown, text, truth};
use tollgate_http::headers::{OverrideHeaders, Underscores};
use tollgate_http::tls::TlsFiles;

pub(super) const TLS: &[&str] = &["cert", "key"];

/// What callers of the gateway may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// How many threads; `None`: as many as there are processors.
    pub workers: Option<NonZeroUsize>,
    /// The certificate, if TLS is spoken.
    pub tls: Option<TlsFiles>,
    /// How many connections there may be.
    pub connections: ConnectionLimits,
    /// How many requests may wait in queues.
    pub waiting: WaitingLimits,
    /// How long a caller may take for TLS and the head of a request.
    pub head_timeout: Duration,
    /// How long a connection may be idle.
    pub idle_timeout: Duration,
    /// How long a caller may take to go on with the body of a request.
    pub body_timeout: Duration,
    /// How long a caller may take to go on taking the answer.
    pub send_timeout: Duration,
    /// The most bytes of a request's head.
    pub max_head: usize,
    /// The most bytes of a request's body; 0 for any number.
    pub max_body: u64,
    /// The most requests at a time on a connection of HTTP/2.
    pub max_streams: u32,
    /// How old a connection of HTTP/2 may become.
    pub max_age: Duration,
    /// How long a request may wait for its turn in a queue.
    pub max_delay: Duration,
    /// What becomes of the questions that browsers ask before they ask another origin.
    pub preflights: Preflights,
    /// What becomes of headers with underscores in their names.
    pub underscores: Underscores,
    /// What becomes of headers that replace the method, path or host for some frameworks.
    pub override_headers: OverrideHeaders,
    /// Whether upstreams see a `Via` header of ours.
    pub via: bool,
    /// Whether usual HTTP/1.1 exchanges take the fast path instead of hyper.
    pub fast_path: bool,
    /// How long requests may take to end when the program does.
    pub drain: Duration,
    /// The log of requests.
    pub access_log: AccessLogFormat,
    /// Where it is written; `None`: stdout.
    pub access_log_file: Option<PathBuf>,
}

/// What becomes of CORS preflights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preflights {
    /// They are decided on like all else.
    #[default]
    Charge,
    /// They go to the servers uncharged, however many.
    Pass,
}

/// The form of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// There is none.
    #[default]
    Off,
    /// Lines for people.
    Text,
    /// One JSON object a line, for programs.
    Json,
}

impl Default for Front {
    fn default() -> Self {
        Self {
            workers: None,
            tls: None,
            connections: ConnectionLimits {
                max_connections: 10_000,
                per_address: 1_000,
            },
            waiting: WaitingLimits {
                max_waiting: None,
                per_address: 1_000,
            },
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(30),
            send_timeout: Duration::from_secs(60),
            max_head: 32 * 1_024,
            max_body: 100 * 1_024 * 1_024,
            max_streams: 100,
            max_age: Duration::from_secs(3_600),
            max_delay: Duration::from_secs(30),
            preflights: Preflights::default(),
            underscores: Underscores::default(),
            override_headers: OverrideHeaders::default(),
            via: false,
            fast_path: true,
            drain: Duration::from_secs(30),
            access_log: AccessLogFormat::Off,
            access_log_file: None,
        }
    }
}

impl Front {
    /// The same with at most this many connections. The share that one address may have stays the same.
    #[must_use]
    pub fn within(&self, max_connections: usize) -> Self {
        Self {
            connections: self.connections.within(max_connections),
            ..self.clone()
        }
    }
}

pub(super) fn front(fields: &Fields<'_>, problems: &mut Problems) -> Front {
    let default = Front::default();
    let time = || duration(Duration::from_millis(10)..=Duration::from_secs(86_400));
    let mut count = |name, default: usize, least, most| {
        let said = fields.optional(name, problems, number(least..=most));
        said.map_or(default, |n| usize::try_from(n).unwrap_or(default))
    };
    let workers = NonZeroUsize::new(count("workers", 0, 1, 1_024));
    let streams = usize::try_from(default.max_streams).unwrap_or(usize::MAX);
    let streams = count("max_streams", streams, 1, 10_000);
    let heads = u64::try_from(default.max_head).unwrap_or(u64::MAX);
    let max_head = fields.or("max_head", heads, problems, size(1_024..=1_048_576));
    let formats = [
        ("off", AccessLogFormat::Off),
        ("text", AccessLogFormat::Text),
        ("json", AccessLogFormat::Json),
    ];
    let underscores = [
        ("drop", Underscores::Drop),
        ("pass", Underscores::Pass),
        ("reject", Underscores::Reject),
    ];
    let overrides = [
        ("pass", OverrideHeaders::Pass),
        ("drop", OverrideHeaders::Drop),
    ];
    let preflights = [("charge", Preflights::Charge), ("pass", Preflights::Pass)];
    let file = text(4_096, "the path of a file");
    Front {
        workers,
        tls: fields.optional("tls", problems, tls),
        connections: ConnectionLimits::read(fields, default.connections, problems),
        waiting: WaitingLimits::read(fields, default.waiting, problems),
        head_timeout: fields.or("head_timeout", default.head_timeout, problems, time()),
        idle_timeout: fields.or("idle_timeout", default.idle_timeout, problems, time()),
        body_timeout: fields.or("body_timeout", default.body_timeout, problems, time()),
        send_timeout: fields.or("send_timeout", default.send_timeout, problems, time()),
        max_head: usize::try_from(max_head).unwrap_or(default.max_head),
        max_body: fields.or("max_body", default.max_body, problems, size(0..=1 << 50)),
        max_streams: u32::try_from(streams).unwrap_or(default.max_streams),
        max_age: fields.or("max_age", default.max_age, problems, time()),
        max_delay: fields.or("max_delay", default.max_delay, problems, time()),
        preflights: fields.or(
            "preflights",
            default.preflights,
            problems,
            choice(&preflights),
        ),
        underscores: fields.or(
            "underscores",
            default.underscores,
            problems,
            choice(&underscores),
        ),
        override_headers: fields.or(
            "override_headers",
            default.override_headers,
            problems,
            choice(&overrides),
        ),
        via: fields.or("via", default.via, problems, truth),
        fast_path: fields.or("fast_path", default.fast_path, problems, truth),
        drain: fields.or("drain", default.drain, problems, time()),
        access_log: fields.or("access_log", default.access_log, problems, choice(&formats)),
        access_log_file: fields
            .optional("access_log_file", problems, file)
            .map(PathBuf::from),
    }
}

/// Whether the files are there and right is looked at when they are used.
fn tls(place: &Place<'_>, problems: &mut Problems) -> Option<TlsFiles> {
    let fields = Fields::of(place, TLS, problems)?;
    let cert = fields.required(
        "cert",
        "cert: /etc/tollgate/cert.pem",
        problems,
        text(4_096, "the path of a certificate in PEM form"),
    );
    let key = fields.required(
        "key",
        "key: /etc/tollgate/key.pem",
        problems,
        text(4_096, "the path of a private key in PEM form"),
    );
    Some(TlsFiles {
        cert: PathBuf::from(cert?),
        key: PathBuf::from(key?),
    })
}

const SIZES: [(&str, u64); 4] = [
    ("", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// A number of bytes such as `4096`, `32KiB` or `100MiB`.
fn size(range: std::ops::RangeInclusive<u64>) -> impl Fn(&Place<'_>, &mut Problems) -> Option<u64> {
    move |place, problems| {
        let expected = "a size such as 32KiB, 100MiB or 1GiB";
        let scalar = place.scalar(expected, problems)?;
        let said = parsed_size(&scalar.text);
        if let Some(bytes) = said.filter(|bytes| range.contains(bytes)) {
            return Some(bytes);
        }
        let got = shown(scalar);
        let (least, most) = (size_text(*range.start()), size_text(*range.end()));
        let message = match said {
            Some(_) => format!("expected a size from {least} to {most}, got {got}"),
            None => format!("expected {expected}, got {got}"),
        };
        place.error(problems, message);
        None
    }
}

fn parsed_size(text: &str) -> Option<u64> {
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (count, unit) = text.split_at(unit_at);
    let unit = unit.trim_start();
    let (_, bytes) = SIZES.iter().find(|(name, _)| *name == unit)?;
    count.parse::<u64>().ok()?.checked_mul(*bytes)
}

/// A size in the largest unit that divides it.
pub(super) fn size_text(bytes: u64) -> String {
    let mut sizes = SIZES.iter().rev();
    let fits = sizes.find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size));
    fits.map_or(bytes.to_string(), |(unit, size)| {
        format!("{}{unit}", bytes / size)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in [
            ("0", 0),
            ("100", 100),
            ("32KiB", 32_768),
            ("100MiB", 104_857_600),
            ("2 GiB", 2_147_483_648),
        ] {
            assert_eq!(parsed_size(text), Some(bytes), "{text}");
            assert_eq!(size_text(bytes), text.replace(' ', ""));
        }
        for wrong in [
            "",
            "MiB",
            "-1",
            "1.5MiB",
            "1 MB",
            "99999999999999999999",
            "99999999999GiB",
        ] {
            assert_eq!(parsed_size(wrong), None, "{wrong}");
        }
    }
}
