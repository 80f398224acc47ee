//! Panics that a test wants.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static IS_WANTED: Cell<bool> = const { Cell::new(false) };
}

/// One hook for all tests of the process, as a second one could not be taken away again in the right order.
fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_WANTED.get() {
                usual(panic);
            }
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
