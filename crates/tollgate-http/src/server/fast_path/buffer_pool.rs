//! Buffers that the connections of a thread share: most connections are idle and need none, and a buffer that was used a
//! moment ago is still in the processor's cache.

use std::cell::{Cell, RefCell};

thread_local! {
    static BUFFERS: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    static TEXT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Number of buffers that are kept: as many as have requests in flight at a busy time.
const MAX_BUFFERS: usize = 64;

/// Texts that grew beyond this are not kept.
const MAX_TEXT_BYTES: usize = 16 * 1_024;

/// A buffer of this many bytes with arbitrary contents.
pub(super) fn buffer(bytes: usize) -> Box<[u8]> {
    let spare = BUFFERS.try_with(|buffers| buffers.borrow_mut().pop());
    let fits = spare.ok().flatten().filter(|buffer| buffer.len() == bytes);
    fits.unwrap_or_else(|| vec![0; bytes].into())
}

/// Returns it to the pool.
pub(super) fn return_buffer(buffer: Box<[u8]>) {
    // A thread that ends has no use for it.
    let _ = BUFFERS.try_with(|buffers| {
        let mut buffers = buffers.borrow_mut();
        if buffers.len() < MAX_BUFFERS {
            buffers.push(buffer);
        }
    });
}

/// An empty text with the capacity of a usual one.
pub(super) fn text() -> Vec<u8> {
    TEXT.try_with(Cell::take).unwrap_or_default()
}

/// Returns it to the pool.
pub(super) fn return_text(mut text: Vec<u8>) {
    if text.capacity() <= MAX_TEXT_BYTES {
        text.clear();
        let _ = TEXT.try_with(|spare| spare.set(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returned_buffers_are_used_again() {
        let mut one = text();
        one.extend_from_slice(b"answer");
        let place = one.as_ptr();
        let other = text();
        assert!(other.is_empty());
        return_text(one);
        let again = text();
        assert_eq!(again.as_ptr(), place);
        assert!(again.is_empty() && again.capacity() >= 6);
        return_text(Vec::with_capacity(MAX_TEXT_BYTES + 1));
        assert_eq!(text().capacity(), 0);

        let one = buffer(64);
        let place = one.as_ptr();
        return_buffer(one);
        let (again, other) = (buffer(64), buffer(64));
        assert_eq!(again.as_ptr(), place);
        assert_ne!(other.as_ptr(), place);
        return_buffer(again);
        assert_eq!(buffer(32).len(), 32);
        for _ in 0..2 * MAX_BUFFERS {
            return_buffer(vec![0; 64].into());
        }
        assert_eq!(BUFFERS.with_borrow(Vec::len), MAX_BUFFERS);
    }
}
