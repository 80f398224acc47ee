//! Configuration files: whatever they say, the answer is a configuration, or problems that lie within the file.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let environment = |name: &str| (name == "SET").then(|| "value".to_owned());
    let _ = tollgate_config::parse(text, &environment);
});
