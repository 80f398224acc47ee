//! The fast path of HTTP/1.1 to a server: a request without a body is sent in one piece, and a response of a known length arrives
//! in one read.
//!
//! The contract is narrow: [`write_head`] writes what a server reads as the same request as hyper's, or declines; [`parse_response`]
//! returns the response that hyper would read from the same bytes, or declines. Nothing is judged here. A request that is declined
//! goes to hyper before anything of it is sent, and a response as if it had just arrived (`Stream::replay`). So hyper's rules
//! hold wherever there is something to decide: codings, lengths that differ, interim responses, surplus bytes.
//!
//! `gateway.fast_path: false` turns it off. Differential fuzzing compares it with hyper (`fuzz/`, `tests/it/differential.rs`).

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use httparse::{ParserConfig, Status};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use super::stream::Stream;
use crate::body::LimitedBody;
use crate::headers::push_line;

/// How many bytes are read at once. Longer responses are left to hyper.
const READ_BYTES: usize = 8 * 1_024;

/// Responses with more headers are left to hyper.
const MAX_HEADERS: usize = 64;

/// Room for headers that are added on the way back, so that nothing is moved then.
const ADDED_HEADERS: usize = 8;

pub(super) struct FastConnection {
    stream: Stream,
    head: Vec<u8>,
    written: usize,
    buffer: Box<[u8]>,
}

/// What a server sent.
pub(super) enum Parsed {
    Response(Response<Bytes>),
    /// For hyper to read.
    Declined(Bytes),
}

impl FastConnection {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            head: Vec::new(),
            written: 0,
            buffer: vec![0; READ_BYTES].into(),
        }
    }

    pub(super) fn into_stream(self) -> Stream {
        self.stream
    }

    /// Makes a request the next one to be sent, unless hyper has to send it.
    pub(super) fn accepts(&mut self, request: &Request<LimitedBody>) -> bool {
        self.head.clear();
        self.written = 0;
        write_head(request, &mut self.head).is_some()
    }

    /// Sends the request and reads what arrives. The end of the connection is an error.
    pub(super) fn poll_exchange(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Parsed>> {
        while let Some(rest @ [_, ..]) = self.head.get(self.written..) {
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        let mut read = ReadBuf::new(&mut self.buffer);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
        let read = read.filled();
        if read.is_empty() {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        let declined = || Parsed::Declined(Bytes::copy_from_slice(read));
        Poll::Ready(Ok(
            parse_response(read).map_or_else(declined, Parsed::Response)
        ))
    }

    /// Whether nothing has arrived since the last response, not even the end of the connection.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.stream.is_quiet(&mut self.buffer)
    }
}

/// Appends the head of a request to `head`. `None` if hyper has to write it.
pub fn write_head<B: Body>(request: &Request<B>, head: &mut Vec<u8>) -> Option<()> {
    let is_plain = request.body().is_end_stream()
        && !matches!(*request.method(), Method::HEAD | Method::CONNECT)
        && request.uri().authority().is_none();
    let target = request.uri().path_and_query()?.as_str();
    if !is_plain || !target.starts_with('/') {
        return None;
    }
    let method = request.method().as_str();
    for part in [method, " ", target, " HTTP/1.1\r\n"] {
        head.extend_from_slice(part.as_bytes());
    }
    for (name, value) in request.headers() {
        match *name {
            TRANSFER_ENCODING | UPGRADE | EXPECT => return None,
            CONTENT_LENGTH if value != "0" => return None,
            _ => {}
        }
        push_line(name, value, head);
    }
    head.extend_from_slice(b"\r\n");
    Some(())
}

/// The response that consists of these bytes, from the first to the last. `None` if hyper has to read them.
#[must_use]
pub fn parse_response(bytes: &[u8]) -> Option<Response<Bytes>> {
    let mut lines = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut head = httparse::Response::new(&mut []);
    // One copy, which all values share.
    let bytes = Bytes::copy_from_slice(bytes);
    let parsed =
        ParserConfig::default().parse_response_with_uninit_headers(&mut head, &bytes, &mut lines);
    let Ok(Status::Complete(end)) = parsed else {
        return None;
    };
    let status = StatusCode::from_u16(head.code?).ok()?;
    let has_body = status.as_u16() >= 200 && !matches!(status.as_u16(), 204 | 205 | 304);
    if head.version != Some(1) || head.reason != status.canonical_reason() || !has_body {
        return None;
    }
    let mut headers = HeaderMap::with_capacity(head.headers.len() + ADDED_HEADERS);
    let mut length = None;
    for line in head.headers.iter() {
        let name = HeaderName::from_bytes(line.name.as_bytes()).ok()?;
        match name {
            TRANSFER_ENCODING | UPGRADE => return None,
            // For this hop alone.
            CONNECTION if line.value.eq_ignore_ascii_case(b"keep-alive") => continue,
            CONNECTION => return None,
            CONTENT_LENGTH if length.is_some() => return None,
            CONTENT_LENGTH => length = Some(decimal(line.value)?),
            _ => {}
        }
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(line.value)).ok()?;
        headers.append(name, value);
    }
    let body = bytes.slice(end..);
    if length? != body.len() {
        return None;
    }
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Some(response)
}

/// A number of up to nine digits.
fn decimal(digits: &[u8]) -> Option<usize> {
    let is_number = (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let value = |number: usize, digit: &u8| number * 10 + usize::from(digit - b'0');
    is_number.then(|| digits.iter().fold(0, value))
}

#[cfg(test)]
mod tests;
