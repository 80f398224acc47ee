use super::*;
use proptest::prelude::*;

/// What a spelling becomes: the path, or why not.
fn read(raw: &str) -> Result<String, PathError> {
    PathRules::default()
        .normalise(raw)
        .map(|path| path.as_str().to_owned())
}

#[test]
fn a_path_keeps_what_its_server_may_care_for() {
    for (raw, normal) in [
        ("/a/", "/a/"),
        ("/a", "/a"),
        ("/a;b=c/d", "/a;b=c/d"),
        ("/Caf%c3%a9/Ü", "/Caf%C3%A9/%C3%9C"),
        ("/a/./", "/a/"),
        ("/a/b/..", "/a/"),
        ("/%7Euser/%40me", "/~user/@me"),
        ("/a%3bb", "/a%3Bb"),
        ("/a b\"<>^`{|}", "/a%20b%22%3C%3E%5E%60%7B%7C%7D"),
    ] {
        assert_eq!(read(raw).as_deref(), Ok(normal), "{raw}");
    }
}

#[test]
fn an_encoded_slash_can_be_kept_but_hides_no_dots() {
    let rules = PathRules {
        encoded_slash: EncodedSlash::Keep,
        ..PathRules::default()
    };
    let keeps = |raw| rules.normalise(raw).map(|path| path.as_str().to_owned());
    assert_eq!(
        keeps("/p/group%2fproject").as_deref(),
        Ok("/p/group%2Fproject")
    );
    let pattern: Pattern = "/p/{id}".parse().unwrap();
    assert!(pattern.matches(&rules.normalise("/p/group%2Fproject").unwrap()));
    for raw in ["/p/..%2fadmin", "/p/x%2F..%2Fadmin", "/p/x%2f%2e%2e"] {
        assert!(
            matches!(keeps(raw), Err(PathError::HiddenDots { .. })),
            "{raw}"
        );
    }
}

#[test]
fn a_path_is_not_longer_than_it_may_be() {
    let most = format!("/{}", "a".repeat(LONGEST - 1));
    assert!(read(&most).is_ok());
    let more = format!("{most}a");
    assert_eq!(read(&more), Err(PathError::TooLong { bytes: LONGEST + 1 }));
}

#[test]
fn patterns_that_cannot_be_right_say_what_would_be() {
    for (said, hint) in [
        ("v1/charges", "begin it with a slash"),
        ("/v1/{*rest}/x", "put it last"),
        ("/files/{name}.json", "a whole segment"),
        ("/files/{}", "give the placeholder a name"),
        ("/files/{a b}", "give the placeholder a name"),
        ("/files/{a}{b}", "a whole segment"),
        ("/a//b", "write one"),
        ("/a/../b", "leave them out"),
        ("/a?b=c", "leave them"),
        ("/a/*", "{*rest}"),
        ("/a/%zz", "two hexadecimal digits"),
        ("/a/%2e", "leave them out"),
    ] {
        let error = said.parse::<Pattern>().unwrap_err().to_string();
        assert!(error.contains(hint), "{said}: {error}");
    }
    let deep = "/a".repeat(65);
    assert!(deep.parse::<Pattern>().is_err());
}

#[test]
fn patterns_match_as_they_say() {
    for (pattern, matching, others) in [
        ("/", &["/", "//"][..], &["/a"][..]),
        (
            "/a/{x}",
            &["/a/b", "/a/b/", "/a/%62"],
            &["/a", "/a/", "/a/b/c", "/b/b"],
        ),
        (
            "/a/{*x}",
            &["/a", "/a/", "/a/b", "/a/b/c"],
            &["/", "/ab", "/b/a"],
        ),
        ("/{*x}", &["/", "/a", "/a/b"], &[]),
        ("/café/", &["/caf%C3%A9", "/café"], &["/cafe"]),
        ("/a b", &["/a%20b"], &["/a+b"]),
        ("/%41", &["/A", "/%41"], &["/a"]),
    ] {
        let parsed: Pattern = pattern.parse().unwrap();
        let matches = |raw: &&str| parsed.matches(&PathRules::default().normalise(raw).unwrap());
        assert!(matching.iter().all(matches), "{pattern}");
        assert!(!others.iter().any(matches), "{pattern}");
    }
}

#[test]
fn what_is_encoded_twice_is_refused_however_its_digits_are_written() {
    for raw in [
        "/v1/%252e%252e/admin",
        "/v1/%25%32%65%25%32%65/admin",
        "/v1/%252%65/admin",
        "/v1/%25%32e/admin",
        "/v1/%25%32%46admin",
        "/v1/%25%35%63admin",
        "/v1/%25%30%30",
    ] {
        let error = PathRules::default().normalise(raw).unwrap_err();
        assert_eq!(error, PathError::EncodedTwice { at: 4 }, "{raw}");
    }
}

/// Tomcat takes it for nothing, and Express for a name: a rule for `/users/{id}` must not depend on that.
#[test]
fn a_segment_that_begins_with_a_semicolon_is_refused() {
    for (raw, at) in [
        ("/users/;7", 7),
        ("/users/;7/orders", 7),
        ("/;a/admin", 1),
        ("/users//;", 7),
        ("/users/x/../;", 7),
    ] {
        let error = PathRules::default().normalise(raw).unwrap_err();
        assert_eq!(error, PathError::NoNameBefore { at }, "{raw}");
    }
}

#[test]
fn dots_behind_a_semicolon_are_no_way_up() {
    let keep = PathRules {
        encoded_slash: EncodedSlash::Keep,
        ..PathRules::default()
    };
    for raw in ["/a;x%2F..%2Fadmin", "/a;../admin", "/a;x%2F%2e%2e"] {
        let error = keep.normalise(raw).unwrap_err();
        assert_eq!(error, PathError::HiddenDots { at: 1 }, "{raw}");
    }
}

proptest! {
    /// To normalise twice is to normalise once, and no plain way round gives anything else.
    #[test]
    fn a_normal_path_is_normal(raw in "([/.;%a-c2eEfF5C?é\\\\ ]|%2[5ef]|%3[0259]|%[46][56]){0,24}") {
        if let Ok(once) = read(&format!("/{raw}")) {
            prop_assert_eq!(read(&once), Ok(once.clone()));
            prop_assert!(!once.contains("//") && !once.contains("/../") && !once.contains("/./"));
            let path = spelling::normal(&once, &PathRules::default());
            prop_assert_eq!(path.as_deref(), Ok(&*once));
        }
    }

    #[test]
    fn no_text_is_too_odd(raw in ".{0,64}") {
        let _ = read(&raw);
        let _ = raw.parse::<Pattern>();
    }
}

#[test]
fn an_accepted_class_is_no_longer_refused_and_the_rest_is() {
    let accepting = |class| PathRules {
        accept: [class].into_iter().collect(),
        ..PathRules::default()
    };
    for (class, raw, normal) in [
        (PathClass::Backslash, "/a%5cb\\c", "/a%5Cb%5Cc"),
        (PathClass::Control, "/a%09%7f", "/a%09%7F"),
        (PathClass::NotUtf8, "/caf%e9", "/caf%E9"),
        (PathClass::EncodedTwice, "/a%252fb", "/a%252fb"),
        (PathClass::Parameters, "/a/..;x/;b", "/a/..;x/;b"),
    ] {
        assert!(read(raw).is_err(), "{raw}");
        let rules = accepting(class);
        let path = rules.normalise(raw).map(|path| path.as_str().to_owned());
        assert_eq!(path.as_deref(), Ok(normal), "{raw}");
        // Never, whatever is accepted.
        let all = PathRules::permissive();
        for raw in [
            "/a%00",
            "/a%0a",
            "/a%0D",
            "/a\t",
            "/a%2500",
            "/a%c0%af",
            "/a%e0%80%af",
            "/..%2fa",
            "/a%4",
            "a",
            "/a#b",
        ] {
            assert!(all.normalise(raw).is_err(), "{raw}");
        }
        for other in PathClass::ALL.into_iter().filter(|other| *other != class) {
            let refused = accepting(other).normalise(raw);
            assert!(refused.is_err(), "{raw} with {other}");
        }
    }
}
