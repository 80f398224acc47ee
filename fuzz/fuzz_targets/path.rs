//! Paths and patterns: a normal path stays as it is, and hides nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::{EncodedSlash, PathClasses, PathRules, Pattern};

fuzz_target!(|text: &str| {
    let (raw, pattern) = text.split_once('\n').unwrap_or((text, "/v1/{id}/{*rest}"));
    for encoded_slash in [EncodedSlash::Reject, EncodedSlash::Keep] {
        for ignore_case in [false, true] {
            let rules = PathRules::default().ignore_case(ignore_case).encoded_slash(encoded_slash);
            let lenient = rules.accept(PathClasses::all());
            if let Ok(path) = lenient.normalise(raw) {
                let again = lenient.normalise(path.as_str()).expect("a normal path is a path");
                assert_eq!(again.as_str(), path.as_str());
            }
            let Ok(path) = rules.normalise(raw) else { continue };
            let once = path.as_str();
            if once == "*" {
                continue;
            }
            assert!(once.starts_with('/') && once.is_ascii());
            assert!(!once.contains("//") && !once.contains('\\') && !once.contains('?'));
            for segment in once.split('/') {
                let name = segment.split(';').next().unwrap_or_default();
                assert!(name.split("%2F").all(|part| part != "." && part != ".."), "{once}");
            }
            let again = rules.normalise(once).expect("a normal path is a path");
            assert_eq!(again.as_str(), once);
            if let Ok(pattern) = pattern.parse::<Pattern>() {
                assert_eq!(pattern.matches(&path), pattern.matches(&again));
                let written: Pattern = pattern.as_str().parse().expect("a pattern is one as it is written");
                assert_eq!(written, pattern);
            }
        }
    }
});
