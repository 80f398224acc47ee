//! Requests on one connection: the fast path reads what hyper would read, or declines.

#![no_main]

#[path = "../../crates/tollgate-http/tests/it/differential.rs"]
#[allow(dead_code)]
mod differential;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // The first byte is the limit on the size of a head.
    let Some((limit, bytes)) = input.split_first() else { return };
    let limit = if *limit < b' ' { usize::from(*limit) * 16 } else { 32 * 1_024 };
    differential::compare_requests(bytes, limit);
});
