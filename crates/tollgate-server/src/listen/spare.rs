//! Memory that connections lend each other: a thread serves one at a time, so most of them need none of their own while they are idle, and what was used
//! a moment ago is still near the processor.

use std::cell::Cell;

thread_local! {
    static ROOM: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
    static TEXT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What grew beyond this is not kept.
const LARGEST_TEXT: usize = 16 * 1_024;

/// Room for so many bytes, each of them something that was there before.
pub(super) fn room(bytes: usize) -> Box<[u8]> {
    let spare = ROOM.try_with(Cell::take).ok().flatten();
    let fits = spare.filter(|room| room.len() == bytes);
    fits.unwrap_or_else(|| vec![0; bytes].into())
}

/// Takes it back.
pub(super) fn give_room(room: Box<[u8]>) {
    // A thread that ends has no use for it.
    let _ = ROOM.try_with(|spare| spare.set(Some(room)));
}

/// An empty text with room for a usual one.
pub(super) fn text() -> Vec<u8> {
    TEXT.try_with(Cell::take).unwrap_or_default()
}

/// Takes it back.
pub(super) fn give_text(mut text: Vec<u8>) {
    if text.capacity() <= LARGEST_TEXT {
        text.clear();
        let _ = TEXT.try_with(|spare| spare.set(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_is_lent_again() {
        let mut one = text();
        one.extend_from_slice(b"answer");
        let place = one.as_ptr();
        let other = text();
        assert!(other.is_empty());
        give_text(one);
        let again = text();
        assert_eq!(again.as_ptr(), place);
        assert!(again.is_empty() && again.capacity() >= 6);
        give_text(Vec::with_capacity(LARGEST_TEXT + 1));
        assert_eq!(text().capacity(), 0);

        let one = room(64);
        let place = one.as_ptr();
        give_room(one);
        let (again, other) = (room(64), room(64));
        assert_eq!(again.as_ptr(), place);
        assert_ne!(other.as_ptr(), place);
        give_room(again);
        assert_eq!(room(32).len(), 32);
    }
}
