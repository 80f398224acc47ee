//! Reading and writing the messages of the fast path.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, EXPECT, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use httparse::{ParserConfig, Status};
use hyper::ext::ReasonPhrase;
use quanta::Instant;

use super::date;
use crate::http1::push_header;

/// Requests with more headers are left to hyper.
const MAX_HEADERS: usize = 64;

/// Room for headers that are added on the way, a request id and those of a trace, so that nothing is moved when they are.
const ADDED_HEADERS: usize = 3;

/// The request at the beginning of `bytes`, and where it ends. `None` if hyper has to read it.
#[must_use]
pub fn parse_request(bytes: &[u8], max_head_bytes: usize) -> Option<(Request<()>, usize)> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut head = httparse::Request::new(&mut []);
    // One copy, which all values share.
    let bytes = Bytes::copy_from_slice(bytes);
    let parsed =
        ParserConfig::default().parse_request_with_uninit_headers(&mut head, &bytes, &mut fields);
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
    for field in head.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        match name {
            CONTENT_LENGTH | TRANSFER_ENCODING | UPGRADE | EXPECT => return None,
            CONNECTION if !field.value.eq_ignore_ascii_case(b"keep-alive") => return None,
            _ => {}
        }
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value)).ok()?;
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
    push_status(status, status.canonical_reason()?, head);
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
        push_header(name, value, head);
    }
    if !has_length {
        push_length(digits, head);
    }
    if !has_date {
        push_date(Instant::now(), head);
    }
    head.extend_from_slice(b"\r\n");
    Some(length)
}

fn push_status(status: StatusCode, reason: &str, head: &mut Vec<u8>) {
    // The usual ones in one piece.
    match status {
        StatusCode::OK => return head.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
        StatusCode::TOO_MANY_REQUESTS => {
            return head.extend_from_slice(b"HTTP/1.1 429 Too Many Requests\r\n");
        }
        _ => {}
    }
    for part in ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"] {
        head.extend_from_slice(part.as_bytes());
    }
}

fn push_length(digits: &[u8], head: &mut Vec<u8>) {
    for part in [b"content-length: ", digits, b"\r\n"] {
        head.extend_from_slice(part);
    }
}

fn push_date(now: Instant, head: &mut Vec<u8>) {
    head.extend_from_slice(b"date: ");
    date::push(now, head);
    head.extend_from_slice(b"\r\n");
}

/// Appends a complete response. `lines` are its headers but for length and date, each with its line end.
pub(super) fn push_response(
    status: StatusCode,
    lines: &[&[u8]],
    body: &[u8],
    now: Instant,
    response: &mut Vec<u8>,
) {
    push_status(
        status,
        status.canonical_reason().unwrap_or_default(),
        response,
    );
    for line in lines {
        response.extend_from_slice(line);
    }
    push_length(itoa::Buffer::new().format(body.len()).as_bytes(), response);
    push_date(now, response);
    response.extend_from_slice(b"\r\n");
    response.extend_from_slice(body);
}

#[cfg(test)]
mod tests;
