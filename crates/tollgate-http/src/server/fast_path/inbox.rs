//! What a connection has read and not answered, in buffers that the connections of a thread share: most connections are idle and
//! need none, and a buffer that was used a moment ago is still in the processor's cache.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

const READ_BYTES: usize = 8 * 1_024;

/// Number of buffers that are kept: as many as have requests in flight at a busy time.
const MAX_BUFFERS: usize = 64;

/// Heads that grew beyond this are not kept.
const MAX_HEAD_BYTES: usize = 16 * 1_024;

thread_local! {
    static BUFFERS: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    static HEAD: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What was read and not answered. It has no buffer while it is empty and waits.
#[derive(Default)]
pub(super) struct Inbox {
    buffer: Option<Box<[u8]>>,
    filled: usize,
}

impl Inbox {
    pub(super) fn bytes(&self) -> &[u8] {
        let buffer = self.buffer.as_deref().unwrap_or_default();
        buffer.get(..self.filled).unwrap_or_default()
    }

    /// Removes that many bytes from the beginning.
    pub(super) fn consume(&mut self, count: usize) {
        let rest = count.min(self.filled)..self.filled;
        self.filled = rest.len();
        if let Some(buffer) = &mut self.buffer
            && !rest.is_empty()
        {
            buffer.copy_within(rest, 0);
        }
    }

    /// Reads more. Returns how many bytes there were; 0 is the end.
    pub(super) fn poll_read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let buffer = self.buffer.get_or_insert_with(|| buffer(READ_BYTES));
        let mut read = ReadBuf::new(buffer.get_mut(self.filled..).unwrap_or_default());
        let polled = Pin::new(stream).poll_read(context, &mut read);
        let count = read.filled().len();
        self.filled += count;
        if self.filled == 0
            && let Some(buffer) = self.buffer.take()
        {
            return_buffer(buffer);
        }
        polled.map_ok(|()| count)
    }

    /// Whether the client disconnects while the first `end` bytes are being answered. What it sends meanwhile is kept.
    pub(super) fn poll_disconnect(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        end: usize,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if self.filled > end || self.filled == READ_BYTES {
            return Poll::Pending;
        }
        match ready!(self.poll_read(stream, context)) {
            Ok(0) | Err(_) => Poll::Ready(()),
            Ok(_) => Poll::Pending,
        }
    }
}

/// A buffer of this many bytes with arbitrary contents.
fn buffer(bytes: usize) -> Box<[u8]> {
    let kept = BUFFERS.try_with(|buffers| buffers.borrow_mut().pop());
    let fitting = kept.ok().flatten().filter(|buffer| buffer.len() == bytes);
    fitting.unwrap_or_else(|| vec![0; bytes].into())
}

fn return_buffer(buffer: Box<[u8]>) {
    // A thread that ends has no use for it.
    let _ = BUFFERS.try_with(|buffers| {
        let mut buffers = buffers.borrow_mut();
        if buffers.len() < MAX_BUFFERS {
            buffers.push(buffer);
        }
    });
}

/// An empty head with the capacity of a usual one.
pub(super) fn head() -> Vec<u8> {
    HEAD.try_with(Cell::take).unwrap_or_default()
}

pub(super) fn return_head(mut head: Vec<u8>) {
    if head.capacity() <= MAX_HEAD_BYTES {
        head.clear();
        let _ = HEAD.try_with(|kept| kept.set(head));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returned_buffers_are_used_again() {
        let mut one = head();
        one.extend_from_slice(b"head");
        let address = one.as_ptr();
        let other = head();
        assert!(other.is_empty());
        return_head(one);
        let again = head();
        assert_eq!(again.as_ptr(), address);
        assert!(again.is_empty() && again.capacity() >= 4);
        return_head(Vec::with_capacity(MAX_HEAD_BYTES + 1));
        assert_eq!(head().capacity(), 0);

        let one = buffer(64);
        let address = one.as_ptr();
        return_buffer(one);
        let (again, other) = (buffer(64), buffer(64));
        assert_eq!(again.as_ptr(), address);
        assert_ne!(other.as_ptr(), address);
        return_buffer(again);
        assert_eq!(buffer(32).len(), 32);
        for _ in 0..2 * MAX_BUFFERS {
            return_buffer(vec![0; 64].into());
        }
        assert_eq!(BUFFERS.with_borrow(Vec::len), MAX_BUFFERS);
    }
}
