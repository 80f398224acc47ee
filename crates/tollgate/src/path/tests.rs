use super::*;
use proptest::prelude::*;

/// What a spelling becomes: the path, or why not.
fn read(raw: &str) -> Result<String, PathError> {
    PathRules::default()
        .normalise(raw)
        .map(|path| path.as_str().to_owned())
}

/// Where a spelling is counted, of the endpoints `/v1/charges`, `/v1/charges/{id}` and `/admin`; the empty text if nowhere.
fn bucket(raw: &str) -> Result<&'static str, PathError> {
    let path = PathRules::default().normalise(raw)?;
    let patterns = ["/v1/charges", "/v1/charges/{id}", "/admin", "/"];
    let mut patterns = patterns.into_iter();
    let of = |text: &&str| text.parse::<Pattern>().unwrap().matches(&path);
    Ok(patterns.find(of).unwrap_or(""))
}

/// All spellings of an ASCII word with each letter encoded or not, in four ways.
fn spellings_of(word: &str) -> Vec<String> {
    let encoded = |byte: u8| format!("%{byte:02x}");
    let capital = |byte: u8| format!("%{byte:02X}");
    let plain = |byte: u8| char::from(byte).to_string();
    let odd = |(i, byte): (usize, u8)| {
        if i % 2 == 0 {
            encoded(byte)
        } else {
            plain(byte)
        }
    };
    let even = |(i, byte): (usize, u8)| {
        if i % 2 == 1 {
            capital(byte)
        } else {
            plain(byte)
        }
    };
    vec![
        word.to_owned(),
        word.bytes().map(encoded).collect(),
        word.bytes().map(capital).collect(),
        word.bytes().enumerate().map(odd).collect(),
        word.bytes().enumerate().map(even).collect(),
    ]
}

#[test]
fn two_hundred_spellings_end_in_the_intended_bucket_or_are_refused() {
    let mut seen = 0;
    let mut all_in = |wanted: Result<&str, ()>, spellings: &[String]| {
        for raw in spellings {
            seen += 1;
            assert_eq!(bucket(raw).map_err(|_| ()), wanted, "{raw:?}");
        }
    };
    // Encodings of letters, in both cases of their digits, and everything around the segments that says nothing.
    let mut charges = Vec::new();
    for word in spellings_of("charges") {
        for version in ["v1", "%761", "v%31", "%56%31"] {
            // %56 is a V: another letter.
            if version == "%56%31" {
                continue;
            }
            for form in [
                "/V/C",
                "//V//C",
                "/V/C/",
                "/V/C//",
                "/./V/./C",
                "/V/x/../C",
                "/V/C/.",
                "/%2e/V/C",
                "/V/x/%2e%2E/C",
                "/../V/C",
                "/V;a=b/C",
                "/V/C;jsessionid=1",
                "/V/C?x=/admin",
                "/V/C;a/?b",
                "/V/C/x/..",
            ] {
                charges.push(form.replace('V', version).replace('C', &word));
            }
        }
    }
    assert!(charges.len() >= 200, "{}", charges.len());
    all_in(Ok("/v1/charges"), &charges);

    let with_id = [
        "/v1/charges/ch_7",
        "/v1/charges/ch%5F7",
        "/v1/charges/ch%5f7",
        "/v1//charges//ch_7/",
        "/v1/charges/ch_7?expand[]=a",
        "/v1/charges/caf%C3%A9",
        "/v1/charges/café",
        "/v1/charges/%e2%82%ac",
        "/v1/charges/a%20b",
        "/v1/charges/a b",
        "/v1/charges/%7e",
        "/v1/charges/~",
        "/v1/charges/...",
        "/v1/charges/%2e%2e%2e",
        "/v1/charges/.hidden",
        "/v1/charges/x%3Fy",
        "/v1/charges/x%23y",
        "/v1/charges/x%3by",
        "/v1/charges/100%25",
        "/v1/charges/%2540me",
        "/v1/charges/a:b@c",
        "/v1/charges/{x}",
        "/v1/charges/x;y/",
        "/v1/x/../charges/y/../z",
    ]
    .map(str::to_owned);
    all_in(Ok("/v1/charges/{id}"), &with_id);

    let admin = [
        "/admin",
        "/%61dmin",
        "/v1/../admin",
        "/v1/charges/../../admin",
        "/x/..//admin/",
        "/v1/%2e%2e/admin",
        "/admin;x",
        "/a/b/c/../../../admin",
        "/../../../admin",
        "/.//admin",
    ]
    .map(str::to_owned);
    all_in(Ok("/admin"), &admin);

    let nowhere = [
        "/V1/charges",
        "/v1/Charges",
        "/v1/chargesx",
        "/v1/charges/a/b",
        "/v1/char%20ges",
        "/v1charges",
        "/v1/charges%20",
        "/v1/%EF%BC%8Fcharges",
        "/admin.",
        "/v1/charges%3B/x/y",
        "*",
    ]
    .map(str::to_owned);
    all_in(Ok(""), &nowhere);
    all_in(
        Ok("/"),
        &[
            "/", "", "//", "/.", "/..", "/./", "/x/..", "?", "/?a", "/%2e", "///",
        ]
        .map(str::to_owned),
    );

    let refused = [
        "/v1%2Fcharges",
        "/v1%2fcharges",
        "/v1%2f%2fcharges",
        "/v1/charges%2F",
        "/v1\\charges",
        "/v1%5Ccharges",
        "/v1%5ccharges",
        "/v1/charges%00",
        "/%00v1/charges",
        "/v1/charges\0",
        "/v1/charges%0a",
        "/v1/charges%0d%0aHost:%20x",
        "/v1/charges\n",
        "/v1/charges\t",
        "/v1/charges%7f",
        "/v1/charges%09",
        "/v1/charges%1F",
        "/v1/charges%",
        "/v1/charges%4",
        "/v1/charges%zz",
        "/v1/charges%u0063",
        "/v1/%c0%aecharges",
        "/v1%c0%afcharges",
        "/v1%e0%80%afcharges",
        "/v1/%ff",
        "/v1/%f8%80%80%80%af",
        "/v1/..;/admin",
        "/v1/..;x=1/admin",
        "/v1/%2e%2e;/admin",
        "/v1/.;/charges",
        "/v1/%252e%252e/admin",
        "/v1%252Fcharges",
        "/v1%252fcharges",
        "/v1%255ccharges",
        "/v1/charges%2500",
        "v1/charges",
        "http://h/v1/charges",
        "\\v1\\charges",
        "/v1/charges#x",
        "%2Fv1/charges",
        "./v1/charges",
        "../v1/charges",
        " /v1/charges",
        "/v1/..%5cadmin",
        "/v1/..%2fadmin",
    ]
    .map(str::to_owned);
    all_in(Err(()), &refused);
    assert!(seen >= 300, "{seen}");
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
            let path = spelling::normal(&once, EncodedSlash::Reject);
            prop_assert_eq!(path.as_deref(), Ok(&*once));
        }
    }

    #[test]
    fn no_text_is_too_odd(raw in ".{0,64}") {
        let _ = read(&raw);
        let _ = raw.parse::<Pattern>();
    }
}
