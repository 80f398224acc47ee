//! Reading and writing the messages of the fast path.

use std::cell::Cell;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, EXPECT, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use httparse::{ParserConfig, Status};
use httpdate::HttpDate;
use hyper::ext::ReasonPhrase;
use quanta::Instant;

use crate::headers::push_line;

/// Requests with more headers are left to hyper.
const MAX_HEADERS: usize = 64;

/// Room for headers that are added on the way (a request id, a trace), so that nothing is moved then.
const ADDED_HEADERS: usize = 3;

/// The request at the beginning of `bytes`, and where it ends. `None` if hyper has to read it.
#[must_use]
pub fn parse_request(bytes: &[u8], max_head_bytes: usize) -> Option<(Request<()>, usize)> {
    let mut lines = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut head = httparse::Request::new(&mut []);
    // One copy, which all values share.
    let bytes = Bytes::copy_from_slice(bytes);
    let parsed =
        ParserConfig::default().parse_request_with_uninit_headers(&mut head, &bytes, &mut lines);
    let Ok(Status::Complete(end)) = parsed else {
        return None;
    };
    let method = Method::from_bytes(head.method?.as_bytes()).ok()?;
    let is_plain = !matches!(method, Method::HEAD | Method::CONNECT);
    if !is_plain || head.version != Some(1) || end > max_head_bytes {
        return None;
    }
    let uri = Uri::from_maybe_shared(bytes.slice_ref(head.path?.as_bytes())).ok()?;
    let mut headers = HeaderMap::with_capacity(head.headers.len() + ADDED_HEADERS);
    for line in head.headers.iter() {
        let name = HeaderName::from_bytes(line.name.as_bytes()).ok()?;
        match name {
            CONTENT_LENGTH | TRANSFER_ENCODING | UPGRADE | EXPECT => return None,
            CONNECTION if !line.value.eq_ignore_ascii_case(b"keep-alive") => return None,
            _ => {}
        }
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(line.value)).ok()?;
        headers.append(name, value);
    }
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Some((request, end))
}

/// Appends the head of a response to `head`, and returns the length of its body. `None` if hyper has to write it.
pub fn write_head<B: Body>(response: &Response<B>, head: &mut Vec<u8>) -> Option<u64> {
    let status = response.status();
    let length = response.body().size_hint().exact()?;
    let has_body = status.as_u16() >= 200
        && !matches!(
            status,
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED
        );
    if !has_body || response.extensions().get::<ReasonPhrase>().is_some() {
        return None;
    }
    let reason = status.canonical_reason()?;
    for part in ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"] {
        head.extend_from_slice(part.as_bytes());
    }
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(length).as_bytes();
    let (mut has_length, mut has_date) = (false, false);
    for (name, value) in response.headers() {
        match *name {
            CONNECTION | TRANSFER_ENCODING | UPGRADE | TRAILER => return None,
            CONTENT_LENGTH if has_length || value.as_bytes() != digits => return None,
            CONTENT_LENGTH => has_length = true,
            DATE => has_date = true,
            _ => {}
        }
        push_line(name, value, head);
    }
    if !has_length {
        for part in [b"content-length: ", digits, b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    if !has_date {
        push_date(Instant::now(), head);
    }
    head.extend_from_slice(b"\r\n");
    Some(length)
}

const DATE_LENGTH: usize = "Sun, 06 Nov 1994 08:49:37 GMT".len();

const SECOND: Duration = Duration::from_secs(1);

/// The last second of the last year that such a date can have.
const LATEST: u64 = 253_402_300_799;

thread_local! {
    /// The date that was written last, and when its second is over.
    static WRITTEN: Cell<[u8; DATE_LENGTH]> = const { Cell::new([0; DATE_LENGTH]) };
    static UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Appends the date of `now`, which is formatted once a second.
pub(super) fn push_date(now: Instant, head: &mut Vec<u8>) {
    let until = UNTIL.try_with(Cell::get).ok().flatten();
    // A counter that was set back, which happens when a machine is moved, must not stop the clock.
    let is_current = |until: Instant| now < until && until.duration_since(now) <= SECOND;
    let written = match until {
        Some(until) if is_current(until) => WRITTEN.try_with(Cell::get),
        _ => Ok(format_date(now)),
    };
    head.extend_from_slice(b"date: ");
    head.extend_from_slice(&written.unwrap_or_else(|_| format_date(now)));
    head.extend_from_slice(b"\r\n");
}

#[cold]
fn format_date(now: Instant) -> [u8; DATE_LENGTH] {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default();
    let second = Duration::from_secs(since.as_secs().min(LATEST));
    let mut written = [0; DATE_LENGTH];
    // All dates are as long as that.
    let _ = write!(&mut written[..], "{}", HttpDate::from(UNIX_EPOCH + second));
    let rest = SECOND.saturating_sub(since.saturating_sub(second));
    // A thread that ends has nothing to keep.
    let _ = WRITTEN.try_with(|kept| kept.set(written));
    let _ = UNTIL.try_with(|kept| kept.set(Some(now + rest)));
    written
}

#[cfg(test)]
mod tests;
