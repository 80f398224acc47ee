//! How long a caller has time.

use std::time::Duration;

use http::{Extensions, HeaderMap};
use tokio::time::Instant;

/// Put among a request's extensions, tells the layer until when the request must go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// At this time.
    #[must_use]
    pub fn at(time: std::time::Instant) -> Self {
        Self(Instant::from_std(time))
    }

    /// So long from now. `None` if there is no such time.
    #[must_use]
    pub fn after(time: Duration) -> Option<Self> {
        Instant::now().checked_add(time).map(Self)
    }
}

/// How long this request may wait: the shortest of what was said.
pub(crate) fn patience(extensions: &Extensions, headers: &HeaderMap) -> Option<Duration> {
    let told = extensions
        .get::<Deadline>()
        .map(|Deadline(time)| time.saturating_duration_since(Instant::now()));
    let grpc = headers.get("grpc-timeout").map(http::HeaderValue::as_bytes);
    let grpc = grpc.and_then(grpc_timeout);
    match (told, grpc) {
        (Some(told), Some(grpc)) => Some(told.min(grpc)),
        (told, grpc) => told.or(grpc),
    }
}

/// Up to eight digits and a unit, as `250m`. What is not of this form says nothing.
fn grpc_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(count * 3_600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeouts_are_read_and_nonsense_says_nothing() {
        let known: [(&[u8], Option<Duration>); 10] = [
            (b"1H", Some(Duration::from_secs(3_600))),
            (b"2M", Some(Duration::from_secs(120))),
            (b"99999999S", Some(Duration::from_secs(99_999_999))),
            (b"250m", Some(Duration::from_millis(250))),
            (b"7u", Some(Duration::from_micros(7))),
            (b"0n", Some(Duration::ZERO)),
            (b"", None),
            (b"S", None),
            (b"123456789S", None),
            (b"+1S", None),
        ];
        for (value, timeout) in known {
            assert_eq!(grpc_timeout(value), timeout, "{value:?}");
        }
    }
}
