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
use http::header::{CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use httparse::{ParserConfig, Status};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use super::outgoing::Outgoing;
use super::stream::Stream;
use crate::http1::{ReadLines, push_field};

/// So much is read at once. Longer responses are not plain.
const ROOM: usize = 8 * 1_024;

/// Who sends more fields is not plain.
const MOST_FIELDS: usize = 64;

/// A connection on which nobody speaks but us.
pub(super) struct Plain {
    stream: Stream,
    head: Vec<u8>,
    written: usize,
    room: Box<[u8]>,
}

/// What a server answered.
pub(super) enum Answered {
    Plainly(Response<Bytes>, Option<ReadLines>),
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
        write_head(request, &mut self.head).is_some()
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

    /// What was heard in so many bytes, fields as lines if they may be.
    pub(super) fn answer(&self, heard: usize, as_lines: bool) -> Answered {
        let read = self.room.get(..heard).unwrap_or_default();
        match read_response(read, as_lines) {
            Some((response, lines)) => Answered::Plainly(response, lines),
            None => Answered::Otherwise(Bytes::copy_from_slice(read)),
        }
    }

    /// Whether nothing was said since the last response, not even that this is the end.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.stream.is_quiet(&mut self.room)
    }
}

/// The head of a request that has no body and wants nothing special; `None` for any other.
fn write_head(outgoing: &Outgoing, head: &mut Vec<u8>) -> Option<()> {
    let request = outgoing.request();
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
    if let Some(told) = outgoing.told() {
        told.write(head);
    }
    head.extend_from_slice(b"\r\n");
    Some(())
}

/// The response that these bytes are, if they are a plain one from its first byte to its last. If they may be, those of its fields are lines that nobody looks
/// for on the way back: to read, hash and write each of them would cost more than all else that is done with a response.
fn read_response(bytes: &[u8], as_lines: bool) -> Option<(Response<Bytes>, Option<ReadLines>)> {
    let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let mut head = httparse::Response::new(&mut []);
    let parsed =
        ParserConfig::default().parse_response_with_uninit_headers(&mut head, bytes, &mut fields);
    let Ok(Status::Complete(end)) = parsed else {
        return None;
    };
    let status = StatusCode::from_u16(head.code?).ok()?;
    let has_body = status.as_u16() >= 200 && !matches!(status.as_u16(), 204 | 205 | 304);
    if head.version != Some(1) || head.reason != status.canonical_reason() || !has_body {
        return None;
    }
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    // The lines are no longer than what was read, but for blanks and ends of lines that were left out there.
    let mut text = Vec::with_capacity(bytes.len() + 2 * head.headers.len());
    let (mut length, mut has_date) = (None, false);
    for field in head.headers.iter() {
        let start = text.len();
        text.extend_from_slice(field.name.as_bytes());
        let name = text.get_mut(start..).unwrap_or_default();
        make_lowercase(name);
        let is_line = match &*name {
            b"transfer-encoding" | b"upgrade" => return None,
            // These are for us alone.
            b"connection" if is_keep_alive(field.value) => None,
            b"connection" => return None,
            b"keep-alive" => None,
            b"content-length" if length.is_some() => return None,
            b"content-length" => {
                length = Some(decimal(field.value)?);
                // Who writes lines writes it with what is sent.
                (!as_lines).then_some(false)
            }
            b"date" => {
                has_date = true;
                Some(as_lines)
            }
            name => Some(as_lines && !is_looked_for(name)),
        };
        match is_line {
            Some(true) => {
                text.extend_from_slice(b": ");
                text.extend_from_slice(field.value);
                text.extend_from_slice(b"\r\n");
                continue;
            }
            Some(false) => {
                let name = HeaderName::from_bytes(name).ok()?;
                let value = HeaderValue::from_bytes(field.value).ok()?;
                response.headers_mut().append(name, value);
            }
            None => {}
        }
        text.truncate(start);
    }
    let body = bytes.get(end..)?;
    if length? != body.len() {
        return None;
    }
    let end_of_lines = text.len();
    text.extend_from_slice(body);
    let mut text = Bytes::from(text);
    *response.body_mut() = text.split_off(end_of_lines);
    Some((response, as_lines.then(|| ReadLines::new(text, has_date))))
}

/// Whether somebody on the way back removes, sets or reads such a field: this proxy what is for the next hop alone, others what is said of limits or what a
/// request is called.
fn is_looked_for(name: &[u8]) -> bool {
    let is_one = matches!(
        name,
        b"te"
            | b"proxy-connection"
            | b"proxy-authenticate"
            | b"proxy-authorization"
            | b"trailer"
            | b"retry-after"
            | b"x-request-id"
    );
    is_one || name.starts_with(b"ratelimit") || name.starts_with(b"x-ratelimit")
}

fn is_keep_alive(value: &[u8]) -> bool {
    // Mostly it is just that, and seen at once.
    value == b"keep-alive" || value.eq_ignore_ascii_case(b"keep-alive")
}

/// In steps of a few bytes, for which there are instructions: most names are too short to be done at once.
fn make_lowercase(name: &mut [u8]) {
    let (steps, rest) = name.as_chunks_mut::<4>();
    for step in steps {
        step.make_ascii_lowercase();
    }
    rest.make_ascii_lowercase();
}

/// A number of a few digits, and nothing else.
fn decimal(digits: &[u8]) -> Option<usize> {
    let is_number = (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let value = |number: usize, digit: &u8| number * 10 + usize::from(digit - b'0');
    is_number.then(|| digits.iter().fold(0, value))
}

#[cfg(test)]
mod tests;
