//! Panics that nobody would hear of, as one in a task ends only that task; and those that a test wants.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, Once, PoisonError};

/// The names of the threads that panicked.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    static IS_WANTED: Cell<bool> = const { Cell::new(false) };
}

/// One hook for all tests of the process, as a second one could not be taken away again in the right order.
fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if IS_WANTED.get() {
                return;
            }
            let thread = std::thread::current();
            let name = thread.name().unwrap_or_default().to_owned();
            (SEEN.lock().unwrap_or_else(PoisonError::into_inner)).push(name);
            usual(panic);
        }));
    });
}

/// Whether this panics here, which is what a test wants: nobody needs to read its complaint.
pub(crate) fn panics(work: impl FnOnce()) -> bool {
    watch();
    IS_WANTED.set(true);
    let has_panicked = catch_unwind(AssertUnwindSafe(work)).is_err();
    IS_WANTED.set(false);
    has_panicked
}

/// Fails the test at its end if a thread of this name has panicked.
pub(crate) struct Witness {
    threads: String,
}

impl Witness {
    pub(crate) fn of(threads: &str) -> Self {
        watch();
        Self {
            threads: threads.to_owned(),
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        let count = seen.iter().filter(|name| **name == self.threads).count();
        drop(seen);
        // One panic is enough for a test.
        if !std::thread::panicking() {
            assert_eq!(count, 0, "a task panicked");
        }
    }
}

#[test]
fn a_panic_of_another_thread_does_not_go_unheard() {
    let witness = Witness::of("another");
    let another = std::thread::Builder::new().name("another".to_owned());
    let another = another.spawn(|| panic!("as it should")).unwrap();
    assert!(another.join().is_err());
    assert!(panics(|| drop(witness)));
}
