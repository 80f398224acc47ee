//! Bounds the HTTP/2 frames that cost work and carry nothing.
//!
//! h2 answers every PING and SETTINGS frame and reads any number of PRIORITY, WINDOW_UPDATE, empty and unknown frames. A client that
//! sends nothing else keeps a core busy without ever making a request. Here such frames are paid for by what a connection does:
//! requests, bodies and responses earn more of them than any client needs, and a few per second are free.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Length of the client's connection preface, which comes before the first frame.
const PREFACE_BYTES: usize = 24;

const FRAME_HEAD_BYTES: usize = 9;

/// The padding of a frame, and its length.
const MAX_PADDING_BYTES: usize = 256;

/// The credit of a new connection, and the most it may save.
const MAX_CREDIT: u64 = 1_000;

/// A request may be accompanied by a priority, by window updates for its response, and by a reset.
const CREDIT_PER_HEADERS: u64 = 8;

/// A client that reads a response in tiny pieces may send a window update for each.
const BYTES_SENT_PER_CREDIT: u64 = 128;

const CREDIT_PER_SECOND: u64 = 100;

/// A stream that ends with an error if its other end sends too many frames that carry nothing.
#[derive(Debug)]
pub(super) struct FrameBudget<T> {
    stream: T,
    frames: Frames,
    credit: Credit,
    exceeded: Counter,
}

impl<T> FrameBudget<T> {
    /// `exceeded` counts the connections that are closed for it.
    pub(super) fn new(stream: T, exceeded: Counter) -> Self {
        Self {
            stream,
            frames: Frames::new(),
            credit: Credit::new(Instant::now()),
            exceeded,
        }
    }
}

/// What one frame is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worth {
    /// Part of a request.
    Earns(u64),
    /// Carries nothing that a request needs.
    Costs,
}

fn worth(kind: u8, flags: u8, length: usize) -> Worth {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const CONTINUATION: u8 = 9;
    const PADDED: u8 = 0x8;
    match kind {
        HEADERS => Worth::Earns(CREDIT_PER_HEADERS),
        // One that is padded and short may be nothing but padding.
        DATA if length > 0 && (flags & PADDED == 0 || length > MAX_PADDING_BYTES) => {
            Worth::Earns(1)
        }
        // h2 bounds these by the size of a head.
        CONTINUATION => Worth::Earns(0),
        _ => Worth::Costs,
    }
}

/// Finds the frames in what is read, however it is cut into pieces.
#[derive(Debug)]
struct Frames {
    /// Bytes before the next frame's head: of the preface, or of a payload.
    skip: usize,
    head: [u8; FRAME_HEAD_BYTES],
    head_read: usize,
}

impl Frames {
    fn new() -> Self {
        Self {
            skip: PREFACE_BYTES,
            head: [0; FRAME_HEAD_BYTES],
            head_read: 0,
        }
    }

    /// Calls `each` with the kind, the flags and the length of every frame whose head ends in these bytes.
    fn read(&mut self, mut bytes: &[u8], mut each: impl FnMut(u8, u8, usize)) {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            if bytes.is_empty() {
                return;
            }
            let missing = FRAME_HEAD_BYTES - self.head_read;
            let (part, rest) = bytes.split_at(missing.min(bytes.len()));
            if let Some(room) = (self.head).get_mut(self.head_read..self.head_read + part.len()) {
                room.copy_from_slice(part);
            }
            self.head_read += part.len();
            bytes = rest;
            if self.head_read == FRAME_HEAD_BYTES {
                let [a, b, c, kind, flags, ..] = self.head;
                self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.head_read = 0;
                each(kind, flags, self.skip);
            }
        }
    }
}

#[derive(Debug)]
struct Credit {
    left: u64,
    /// Bytes that were sent and have not earned anything yet.
    sent_bytes: u64,
    refilled_at: Instant,
}

impl Credit {
    fn new(now: Instant) -> Self {
        Self {
            left: MAX_CREDIT,
            sent_bytes: 0,
            refilled_at: now,
        }
    }

    fn earn(&mut self, count: u64) {
        self.left = self.left.saturating_add(count).min(MAX_CREDIT);
    }

    fn sent(&mut self, bytes: usize) {
        self.sent_bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
        self.earn(self.sent_bytes / BYTES_SENT_PER_CREDIT);
        self.sent_bytes %= BYTES_SENT_PER_CREDIT;
    }

    /// Pays for one frame; false if there is nothing left to pay with. The clock is read only then.
    fn spend(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if self.left == 0 {
            let now = now();
            let elapsed_ms = (now - self.refilled_at).as_millis();
            self.refilled_at = now;
            self.earn(u64::try_from(elapsed_ms).unwrap_or(u64::MAX) * CREDIT_PER_SECOND / 1_000);
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for FrameBudget<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        let mut is_within = true;
        this.frames.read(read, |kind, flags, length| {
            match worth(kind, flags, length) {
                Worth::Earns(count) => this.credit.earn(count),
                Worth::Costs => is_within &= this.credit.spend(Instant::now),
            }
        });
        if !is_within {
            this.exceeded.inc();
            return Poll::Ready(Err(io::Error::other("too many HTTP/2 control frames")));
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> FrameBudget<T> {
    fn note_sent(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = written {
            self.credit.sent(count);
        }
        written
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for FrameBudget<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note_sent(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.note_sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let frames = [(4, 1, 0), (1, 4, 300), (0, 9, 70_000), (6, 0, 8), (8, 0, 4)];
        for (kind, flags, length) in frames {
            let [_, a, b, c] = u32::try_from(length).unwrap().to_be_bytes();
            bytes.extend([a, b, c, kind, flags, 0, 0, 0, 1]);
            bytes.extend(std::iter::repeat_n(6, length));
        }
        for piece in [1, 2, 8, 9, 10, 33, 1_000, bytes.len()] {
            let (mut reader, mut found) = (Frames::new(), Vec::new());
            for part in bytes.chunks(piece) {
                reader.read(part, |kind, flags, length| {
                    found.push((kind, flags, length));
                });
            }
            assert_eq!(found, frames, "in pieces of {piece}");
        }
    }

    #[test]
    fn data_that_may_be_nothing_but_padding_earns_nothing() {
        for (flags, length, expected) in [
            (0, 1, Worth::Earns(1)),
            (0, 0, Worth::Costs),
            (0x8, 1, Worth::Costs),
            (0x9, 256, Worth::Costs),
            (0x8, 257, Worth::Earns(1)),
        ] {
            assert_eq!(worth(0, flags, length), expected, "{flags} {length}");
        }
    }

    #[test]
    fn control_frames_are_earned_by_requests_responses_and_time() {
        let start = Instant::now();
        let mut credit = Credit::new(start);
        let spend_all =
            |credit: &mut Credit, now| (0..).take_while(|_| credit.spend(|| now)).count();
        assert_eq!(spend_all(&mut credit, start), 1_000);
        assert!(!credit.spend(|| start));
        credit.earn(CREDIT_PER_HEADERS);
        credit.sent(100);
        credit.sent(28);
        assert_eq!(spend_all(&mut credit, start), 9);
        let later = start + Duration::from_millis(500);
        assert_eq!(spend_all(&mut credit, later), 50);
        // No more than a new connection has, however long it was quiet.
        let much_later = start + Duration::from_secs(3_600);
        assert_eq!(spend_all(&mut credit, much_later), 1_000);
    }
}
