//! Responses of a server: the fast path reads what hyper would read, or declines.

#![no_main]

#[path = "../../crates/tollgate-http/tests/it/differential.rs"]
#[allow(dead_code)]
mod differential;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    differential::compare_response(input);
});
