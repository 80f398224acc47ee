//! Limits: what is parsed is written so that it parses to the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::Limit;

fuzz_target!(|text: &str| {
    match text.parse::<Limit>() {
        Ok(limit) => assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
