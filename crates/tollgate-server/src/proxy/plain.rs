//! The usual exchange with a server, without the machinery that others need: a request without a body goes out as one piece, and a
//! response of a known length comes with one read.
//!
//! Nothing is judged here. Whatever is not plain is left to hyper: a request before anything of it is sent, and a response as if it
//! had only now come ([`Stream::repeat`]). So hyper's rules hold wherever there is something to decide: codings, lengths that differ,
//! interim responses, bytes that nobody asked for.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use httparse::{ParserConfig, Status};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use super::outgoing::Outgoing;
use super::stream::Stream;
use super::upload::Upload;
use crate::http1::push_field;

/// So much is read at once. Longer responses are not plain.
const ROOM: usize = 8 * 1_024;

/// Who sends more fields is not plain.
const MOST_FIELDS: usize = 64;

/// Room for the headers that are added on the way back, so that nothing is moved when they are.
const ADDED_FIELDS: usize = 8;

/// A connection on which nobody speaks but us.
pub(super) struct Plain {
    stream: Stream,
    head: Vec<u8>,
    written: usize,
    room: Box<[u8]>,
}

/// What a server answered.
pub(super) enum Answered {
    Plainly(Response<Bytes>),
    /// It takes more to understand this.
    Otherwise(Bytes),
}

impl Plain {
    pub(super) fn over(stream: Stream) -> Self {
        Self {
            stream,
            head: Vec::new(),
            written: 0,
            room: vec![0; ROOM].into(),
        }
    }

    pub(super) fn into_stream(self) -> Stream {
        self.stream
    }

    /// Makes a request the next one to be sent, if it is plain.
    pub(super) fn takes(&mut self, request: &Outgoing) -> bool {
        self.head.clear();
        self.written = 0;
        write_head(request.request(), &mut self.head).is_some()
    }

    /// Sends it and waits for what comes: so many bytes. An error, or an end without a word, is for whoever asked to make something of.
    pub(super) fn poll_heard(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        while let Some(rest @ [_, ..]) = self.head.get(self.written..) {
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        let mut read = ReadBuf::new(&mut self.room);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
        if read.filled().is_empty() {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        Poll::Ready(Ok(read.filled().len()))
    }

    /// What was heard in so many bytes.
    pub(super) fn answer(&self, heard: usize) -> Answered {
        let read = self.room.get(..heard).unwrap_or_default();
        match read_response(read) {
            Some(response) => Answered::Plainly(response),
            None => Answered::Otherwise(Bytes::copy_from_slice(read)),
        }
    }

    /// Whether nothing was said since the last response, not even that this is the end.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.stream.is_quiet(&mut self.room)
    }
}

/// The head of a request that has no body and wants nothing special; `None` for any other.
fn write_head(request: &Request<Upload>, head: &mut Vec<u8>) -> Option<()> {
    let is_plain = request.body().is_nothing()
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
        push_field(name, value, head);
    }
    head.extend_from_slice(b"\r\n");
    Some(())
}

/// The response that these bytes are, if they are a plain one from its first byte to its last.
fn read_response(bytes: &[u8]) -> Option<Response<Bytes>> {
    let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let mut head = httparse::Response::new(&mut []);
    // All at once, as the response shares it.
    let bytes = Bytes::copy_from_slice(bytes);
    let parsed =
        ParserConfig::default().parse_response_with_uninit_headers(&mut head, &bytes, &mut fields);
    let Ok(Status::Complete(end)) = parsed else {
        return None;
    };
    let status = StatusCode::from_u16(head.code?).ok()?;
    let has_body = status.as_u16() >= 200 && !matches!(status.as_u16(), 204 | 205 | 304);
    if head.version != Some(1) || head.reason != status.canonical_reason() || !has_body {
        return None;
    }
    let mut headers = HeaderMap::with_capacity(head.headers.len() + ADDED_FIELDS);
    let mut length = None;
    for field in head.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        match name {
            TRANSFER_ENCODING | UPGRADE => return None,
            // For this hop alone.
            CONNECTION if field.value.eq_ignore_ascii_case(b"keep-alive") => continue,
            CONNECTION => return None,
            CONTENT_LENGTH if length.is_some() => return None,
            CONTENT_LENGTH => length = Some(decimal(field.value)?),
            _ => {}
        }
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value)).ok()?;
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

/// A number of a few digits, and nothing else.
fn decimal(digits: &[u8]) -> Option<usize> {
    let is_number = (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let value = |number: usize, digit: &u8| number * 10 + usize::from(digit - b'0');
    is_number.then(|| digits.iter().fold(0, value))
}

#[cfg(test)]
mod tests;
