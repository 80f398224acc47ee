//! Bounds the HTTP/2 frames that cost work and carry nothing.
//!
//! h2 answers every PING and SETTINGS frame and reads any number of PRIORITY, WINDOW_UPDATE, empty and unknown frames. A client
//! that sends nothing else keeps a core busy without ever making a request. Here a connection pays for such frames with what it
//! earns: requests, bodies and responses earn more of them than any client needs, and a few per second are free.

use std::time::Instant;

/// Length of the client's connection preface, which comes before the first frame.
const PREFACE_BYTES: usize = 24;

const FRAME_HEAD_BYTES: usize = 9;

/// The padding of a frame, and its length.
const MAX_PADDING_BYTES: usize = 256;

/// The credit of a new connection, and the maximum.
const MAX_CREDIT: u64 = 1_000;

/// A request may be accompanied by a priority, by window updates for its response, and by a reset.
const CREDIT_PER_HEADERS: u64 = 8;

/// A client that reads a response in tiny pieces may send a window update for each.
const BYTES_SENT_PER_CREDIT: u64 = 128;

const CREDIT_PER_SECOND: u64 = 100;

/// The frames of a client, and the credit that pays for them.
pub(super) struct FrameBudget {
    frames: FrameScanner,
    credit: u64,
    /// Bytes that were sent and have not earned anything yet.
    sent_bytes: u64,
    refilled_at: Instant,
}

impl FrameBudget {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            frames: FrameScanner {
                skip: PREFACE_BYTES,
                ..FrameScanner::default()
            },
            credit: MAX_CREDIT,
            sent_bytes: 0,
            refilled_at: now,
        }
    }

    /// Returns whether the frames that begin in these bytes are within the budget.
    #[must_use]
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> bool {
        let mut is_within = true;
        while let Some((kind, flags, length)) = self.frames.next(&mut bytes) {
            match earned_by(kind, flags, length) {
                Some(earned) => self.earn(earned),
                None => is_within &= self.spend(Instant::now),
            }
        }
        is_within
    }

    /// Earns credit for bytes that were sent to the client.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent_bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
        self.earn(self.sent_bytes / BYTES_SENT_PER_CREDIT);
        self.sent_bytes %= BYTES_SENT_PER_CREDIT;
    }

    fn earn(&mut self, count: u64) {
        self.credit = self.credit.saturating_add(count).min(MAX_CREDIT);
    }

    /// Pays for one frame; `false` if there is no credit left. The clock is read only then.
    fn spend(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if self.credit == 0 {
            let now = now();
            let elapsed_ms = (now - self.refilled_at).as_millis();
            self.refilled_at = now;
            self.earn(u64::try_from(elapsed_ms).unwrap_or(u64::MAX) * CREDIT_PER_SECOND / 1_000);
        }
        let left = self.credit.checked_sub(1);
        self.credit = left.unwrap_or(0);
        left.is_some()
    }
}

/// What one frame earns; `None` if it carries nothing that a request needs, and costs.
fn earned_by(kind: u8, flags: u8, length: usize) -> Option<u64> {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const CONTINUATION: u8 = 9;
    const PADDED: u8 = 0x8;
    match kind {
        HEADERS => Some(CREDIT_PER_HEADERS),
        // A frame that is padded and short may be nothing but padding.
        DATA if length > 0 && (flags & PADDED == 0 || length > MAX_PADDING_BYTES) => Some(1),
        // h2 bounds these by the size of a head.
        CONTINUATION => Some(0),
        _ => None,
    }
}

/// Finds the frames in a stream of bytes.
#[derive(Default)]
struct FrameScanner {
    /// Bytes before the next frame's head: of the preface, or of a payload.
    skip: usize,
    head: [u8; FRAME_HEAD_BYTES],
    head_read: usize,
}

impl FrameScanner {
    /// Removes bytes from the beginning up to the end of a frame's head, and returns its kind, flags and length. `None` if they
    /// end before that.
    fn next(&mut self, bytes: &mut &[u8]) -> Option<(u8, u8, usize)> {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        let missing = self.head.get_mut(self.head_read..).unwrap_or_default();
        let part = bytes.get(skipped..).unwrap_or_default();
        let count = missing.len().min(part.len());
        let (part, rest) = part.split_at(count);
        missing
            .iter_mut()
            .zip(part)
            .for_each(|(to, from)| *to = *from);
        *bytes = rest;
        self.head_read += count;
        if self.head_read < FRAME_HEAD_BYTES {
            return None;
        }
        let [a, b, c, kind, flags, ..] = self.head;
        self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        self.head_read = 0;
        Some((kind, flags, self.skip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn frames_are_found_across_reads() {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let frames = [(4, 1, 0), (1, 4, 300), (0, 9, 70_000), (6, 0, 8), (8, 0, 4)];
        for (kind, flags, length) in frames {
            let [_, a, b, c] = u32::try_from(length).unwrap().to_be_bytes();
            bytes.extend([a, b, c, kind, flags, 0, 0, 0, 1]);
            bytes.extend(std::iter::repeat_n(6, length));
        }
        for piece in [1, 2, 8, 9, 10, 33, 1_000, bytes.len()] {
            let (mut scanner, mut found) = (FrameBudget::new(Instant::now()).frames, Vec::new());
            for mut part in bytes.chunks(piece) {
                found.extend(std::iter::from_fn(|| scanner.next(&mut part)));
            }
            assert_eq!(found, frames, "in pieces of {piece}");
        }
    }

    #[test]
    fn data_that_may_be_padding_earns_nothing() {
        for (flags, length, expected) in [
            (0, 1, Some(1)),
            (0, 0, None),
            (0x8, 1, None),
            (0x9, 256, None),
            (0x8, 257, Some(1)),
        ] {
            assert_eq!(earned_by(0, flags, length), expected, "{flags} {length}");
        }
    }

    #[test]
    fn control_frames_are_earned_by_requests_responses_and_time() {
        let start = Instant::now();
        let mut budget = FrameBudget::new(start);
        let spend_all =
            |budget: &mut FrameBudget, now| (0..).take_while(|_| budget.spend(|| now)).count();
        assert_eq!(spend_all(&mut budget, start), 1_000);
        assert!(!budget.spend(|| start));
        budget.earn(CREDIT_PER_HEADERS);
        budget.sent(100);
        budget.sent(28);
        assert_eq!(spend_all(&mut budget, start), 9);
        let later = start + Duration::from_millis(500);
        assert_eq!(spend_all(&mut budget, later), 50);
        // No more than a new connection has, however long it was quiet.
        let much_later = start + Duration::from_secs(3_600);
        assert_eq!(spend_all(&mut budget, much_later), 1_000);
    }
}
