//! Memory that the connections of a thread lend each other: most of them are idle and need none, and what was used a moment ago is still near the processor.

use std::cell::{Cell, RefCell};

thread_local! {
    static ROOMS: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    static TEXT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// So many rooms are kept: as many as have requests under way at a busy time.
const MOST_ROOMS: usize = 64;

/// What grew beyond this is not kept.
const LARGEST_TEXT: usize = 16 * 1_024;

/// Room for so many bytes, each of them something that was there before.
pub(super) fn room(bytes: usize) -> Box<[u8]> {
    let spare = ROOMS.try_with(|rooms| rooms.borrow_mut().pop());
    let fits = spare.ok().flatten().filter(|room| room.len() == bytes);
    fits.unwrap_or_else(|| vec![0; bytes].into())
}

/// Takes it back.
pub(super) fn give_room(room: Box<[u8]>) {
    // A thread that ends has no use for it.
    let _ = ROOMS.try_with(|rooms| {
        let mut rooms = rooms.borrow_mut();
        if rooms.len() < MOST_ROOMS {
            rooms.push(room);
        }
    });
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
        for _ in 0..2 * MOST_ROOMS {
            give_room(vec![0; 64].into());
        }
        assert_eq!(ROOMS.with_borrow(Vec::len), MOST_ROOMS);
    }
}
