//! Explains why a target is rejected: it has a character that must be encoded. hyper answers such a request with an empty 400, which is no
//! help, because some clients send such characters and other servers accept them.
//!
//! hyper alone decides what is rejected. A [`HeadStream`] between hyper and the client replaces that empty response, and nothing else.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::Uri;
use quanta::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::fast_path::push_date;

/// Number of bytes that are kept. A head that begins before them is rejected without an explanation.
const MAX_KEPT_BYTES: usize = 16 * 1_024;

/// How many requests of a connection hyper has read, for its [`HeadStream`].
#[derive(Clone, Debug, Default)]
pub(super) struct RequestCount(Arc<AtomicUsize>);

impl RequestCount {
    /// Instead of a count: what follows is no HTTP.
    const UPGRADED: usize = usize::MAX;

    pub(super) fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Notes that the connection is upgraded: nothing is replaced any more.
    pub(super) fn end(&self) {
        self.0.store(Self::UPGRADED, Relaxed);
    }

    fn get(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// What hyper reads and writes. It keeps the end of what was read, with the head that hyper reads next.
pub(super) struct HeadStream<S> {
    stream: S,
    requests: RequestCount,
    read: Vec<u8>,
    /// The number of requests when it was added to last.
    after: usize,
    /// Is to be written in place of what hyper wrote.
    replaced: Bytes,
}

impl<S> HeadStream<S> {
    pub(super) fn new(stream: S, requests: RequestCount) -> Self {
        Self {
            stream,
            requests,
            read: Vec::new(),
            after: 0,
            replaced: Bytes::new(),
        }
    }

    fn note_read(&mut self, bytes: &[u8]) {
        let requests = self.requests.get();
        if requests == RequestCount::UPGRADED {
            self.read = Vec::new();
            return;
        }
        if std::mem::replace(&mut self.after, requests) != requests {
            // The next head may have begun behind the last one.
            let next = head_starts(&self.read).last().unwrap_or_default();
            self.read.drain(..next);
        }
        let skipped = bytes.len().saturating_sub(MAX_KEPT_BYTES);
        self.read
            .extend_from_slice(bytes.get(skipped..).unwrap_or_default());
        let excess = self.read.len().saturating_sub(MAX_KEPT_BYTES);
        self.read.drain(..excess);
    }

    /// What to write in place of hyper's output, if it ends with the response to a target that can be explained.
    fn replacement(&self, output: &[u8]) -> Option<Bytes> {
        let start = own_response(output)?;
        if self.requests.get() == RequestCount::UPGRADED {
            return None;
        }
        // Requests may have arrived together: the heads before this one were good.
        let heads = head_starts(&self.read).filter_map(|at| self.read.get(at..));
        let response = heads.filter_map(rejection).next()?;
        Some([output.get(..start)?, &response].concat().into())
    }
}

impl<S: AsyncWrite + Unpin> HeadStream<S> {
    fn poll_replaced(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.replaced.has_remaining() {
            let written = Pin::new(&mut self.stream).poll_write(context, &self.replaced);
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.replaced.advance(count),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(bytes) = buffer.filled().get(before..)
            && !bytes.is_empty()
        {
            self.note_read(bytes);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeadStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_replaced(context))?;
        if let Some(replacement) = self.replacement(bytes) {
            self.replaced = replacement;
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_replaced(context))?;
        if slices
            .last()
            .is_some_and(|last| own_response(last).is_some())
        {
            let bytes: Vec<u8> = slices
                .iter()
                .flat_map(|slice| slice.iter().copied())
                .collect();
            if let Some(replacement) = self.replacement(&bytes) {
                self.replaced = replacement;
                return Poll::Ready(Ok(bytes.len()));
            }
        }
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_replaced(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_replaced(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Where hyper's own 400 begins, if these bytes end with it. It has none of the headers that a handler adds.
fn own_response(output: &[u8]) -> Option<usize> {
    const LINE: &[u8] = b"HTTP/1.1 400 Bad Request\r\n";
    const MAX_BYTES: usize = 256;
    if !output.ends_with(b"\r\n\r\n") {
        return None;
    }
    let skipped = output.len().saturating_sub(MAX_BYTES);
    let end = output.get(skipped..)?;
    let start = end.windows(LINE.len()).rposition(|part| part == LINE)?;
    let head = std::str::from_utf8(end.get(start + LINE.len()..)?).ok()?;
    let is_own = |line: &str| {
        let name = line.split(':').next().unwrap_or_default();
        matches!(name, "connection" | "content-length" | "date")
    };
    let mut lines = head.trim_end().split("\r\n");
    (lines.all(is_own) && head.contains("content-length: 0\r\n")).then_some(skipped + start)
}

/// Where heads may begin in these bytes: at the start, and behind the empty line at the end of a head.
fn head_starts(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let is_end = |line: &[u8]| matches!(line, b"\n" | b"\r\n");
    let mut at = 0;
    let ends = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .filter_map(move |line| {
            at += line.len();
            is_end(line).then_some(at)
        });
    std::iter::once(0).chain(ends)
}

/// The position and value of the first byte that must be encoded, if that is why a target is malformed.
fn unencoded(target: &[u8]) -> Option<(usize, u8)> {
    if target.first() != Some(&b'/') || Uri::try_from(target).is_ok() {
        return None;
    }
    let query = target.iter().position(|byte| *byte == b'?');
    let query = query.unwrap_or(target.len());
    let is_unencoded = |at: usize, byte: u8| match byte {
        b'<' | b'>' => true,
        b'"' => at > query,
        b'`' => at < query,
        _ => false,
    };
    let mut bytes = target.iter().copied().enumerate();
    let first = bytes.find(|(at, byte)| is_unencoded(*at, *byte));
    let not_utf8 = std::str::from_utf8(target).err();
    let not_utf8 = not_utf8.map(|error| error.valid_up_to());
    let at = first.map(|(at, _)| at).into_iter().chain(not_utf8).min()?;
    Some((at, *target.get(at)?))
}

/// The response to a request whose target has such a character.
fn rejection(head: &[u8]) -> Option<Vec<u8>> {
    let head = head.trim_ascii_start();
    let end = head.iter().position(|byte| b"\r\n".contains(byte));
    // httparse has no target for what is not UTF-8.
    let line = head.get(..end.unwrap_or(head.len()))?;
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next()?, words.next()?);
    let is_request = match (words.next(), words.next()) {
        (Some(b"HTTP/1.1" | b"HTTP/1.0"), None) => true,
        // hyper may reject the line before it is complete.
        (_, None) => end.is_none(),
        _ => false,
    };
    if !is_request {
        return None;
    }
    let (at, byte) = unencoded(target)?;
    let what = match byte {
        0x80.. => "a byte that is not UTF-8".to_owned(),
        b'"' => "an unencoded \\\"".to_owned(),
        _ => format!("an unencoded {}", char::from(byte)),
    };
    let body = format!(
        r#"{{"type":"about:blank","title":"Bad Request","status":400,"detail":"The target of the request has {what} at byte {at}. Send it as %{byte:02X}."}}"#
    );
    let mut response = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    )
    .into_bytes();
    push_date(Instant::now(), &mut response);
    response.extend_from_slice(b"\r\n");
    if method != b"HEAD" {
        response.extend_from_slice(body.as_bytes());
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_character_that_must_be_encoded_is_found() {
        for (target, expected) in [
            (&b"/?filter={\"a\":1}"[..], Some((10, b'"'))),
            (b"/a<b", Some((2, b'<'))),
            (b"/?a>b", Some((3, b'>'))),
            (b"/a`b", Some((2, b'`'))),
            (b"/?a=caf\xe9", Some((7, 0xe9))),
            (b"/\xe9\"", Some((1, 0xe9))),
            // What browsers send unencoded, and what is wrong for other reasons.
            (b"/{a}|\"b\"?{|}^`\\[]'", None),
            (b"admin", None),
            (b"/caf\xc3\xa9?\xc3\xa9", None),
        ] {
            let actual = unencoded(target);
            assert_eq!(actual, expected, "{}", target.escape_ascii());
        }
    }

    #[test]
    fn only_hypers_own_response_is_found() {
        let own = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\ndate: now\r\n\r\n";
        let before = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        for (output, expected) in [
            (own.to_owned(), Some(0)),
            (format!("{before}{own}"), Some(before.len())),
            (format!("{own}{before}"), None),
            (own.replace("date: now", "x-request-id: 1"), None),
            (own.replace(": 0", ": 1"), None),
            (own.replace("400", "200"), None),
            (before.to_owned(), None),
        ] {
            assert_eq!(own_response(output.as_bytes()), expected, "{output}");
        }
    }
}
