//! Spellings of paths: which rules they meet, and that no server behind reads one in a way that meets others.

use std::collections::BTreeSet;

use tollgate::{
    ForwardedPath, Match, PathClasses, PathError, PathRules, Pattern, Request, Rule, RuleSet,
};

/// The endpoints of the test, the one that says most first.
const ENDPOINTS: [&str; 4] = ["/v1/charges", "/v1/charges/{id}", "/admin", "/"];

/// A rule for each endpoint.
fn rules(paths: PathRules) -> RuleSet {
    let rule = |pattern: &str| {
        let id = pattern.replace(['/', '{', '}'], "-");
        let rule = Rule::new(&format!("r{id}"), "10/s".parse().unwrap()).unwrap();
        rule.when(Match::new().path(pattern.parse().unwrap()))
    };
    let rules = RuleSet::new(ENDPOINTS.map(rule)).unwrap();
    rules.with_paths(paths)
}

/// What a server makes of a path: its segments as bytes, or nothing if it refuses it.
type Model = fn(&[u8]) -> Option<Vec<Vec<u8>>>;

fn split(path: &[u8]) -> Vec<Vec<u8>> {
    let inner = path.strip_prefix(b"/").unwrap_or(path);
    let inner = inner.strip_suffix(b"/").unwrap_or(inner);
    match inner {
        b"" if path.len() < 2 => Vec::new(),
        inner => inner
            .split(|byte| *byte == b'/')
            .map(<[u8]>::to_vec)
            .collect(),
    }
}

fn unescaped(path: &[u8]) -> Vec<u8> {
    let (mut text, mut rest) = (Vec::new(), path);
    while let [byte, tail @ ..] = rest {
        let digits = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let meant = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        match (byte, meant) {
            (b'%', Some(meant)) => {
                text.push(meant);
                rest = &tail[2..];
            }
            _ => {
                text.push(*byte);
                rest = tail;
            }
        }
    }
    text
}

fn merged(segments: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    segments
        .into_iter()
        .filter(|segment| !segment.is_empty())
        .collect()
}

fn resolved(segments: Vec<Vec<u8>>, is_dot: fn(&[u8]) -> usize) -> Vec<Vec<u8>> {
    let mut resolved = Vec::new();
    for segment in segments {
        match is_dot(&segment) {
            1 => {}
            2 => _ = resolved.pop(),
            _ => resolved.push(segment),
        }
    }
    resolved
}

/// How many dots a segment is, if it is nothing else.
fn dots(segment: &[u8]) -> usize {
    match segment {
        b"." => 1,
        b".." => 2,
        _ => 0,
    }
}

fn encoded_dots(segment: &[u8]) -> usize {
    dots(&unescaped(segment))
}

fn without_parameters(segments: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let name = |segment: Vec<u8>| segment.split(|byte| *byte == b';').next().unwrap().to_vec();
    segments.into_iter().map(name).collect()
}

/// Servers, each as its own short piece of code, that has nothing in common with Tollgate's.
const MODELS: [(&str, Model); 13] = [
    ("takes what comes (Express, Go with EscapedPath)", |path| {
        Some(split(path))
    }),
    ("decodes (Starlette, WSGI)", |path| {
        Some(split(&unescaped(path)))
    }),
    ("decodes each segment (JAX-RS)", |path| {
        Some(
            split(path)
                .iter()
                .map(|segment| unescaped(segment))
                .collect(),
        )
    }),
    ("merges slashes", |path| Some(merged(split(path)))),
    ("resolves dots as RFC 3986 does", |path| {
        Some(resolved(split(path), dots))
    }),
    ("resolves dots as URL of Node and browsers does", |path| {
        let path: Vec<u8> = path
            .iter()
            .map(|b| if *b == b'\\' { b'/' } else { *b })
            .collect();
        Some(resolved(split(&path), encoded_dots))
    }),
    ("makes a URL of it (Node's new URL(path, base))", |path| {
        let slashes = path
            .iter()
            .take_while(|byte| matches!(byte, b'/' | b'\\'))
            .count();
        let is_slash = |byte: &u8| matches!(byte, b'/' | b'\\');
        let path = match slashes {
            0 | 1 => path,
            _ => {
                let host = &path[slashes..];
                &host[host.iter().position(is_slash).unwrap_or(host.len())..]
            }
        };
        Some(resolved(split(path), encoded_dots))
    }),
    ("decodes, merges and resolves (nginx, Apache)", |path| {
        Some(resolved(merged(split(&unescaped(path))), dots))
    }),
    ("resolves and then decodes and merges", |path| {
        let path = resolved(split(path), dots).join(&b'/');
        Some(merged(split(&unescaped(&path))))
    }),
    ("cuts parameters, decodes and normalises (Tomcat)", |path| {
        let names = without_parameters(split(path));
        let path = unescaped(&names.join(&b'/'));
        Some(resolved(merged(split(&path)), dots))
    }),
    ("takes a backslash for a slash (IIS)", |path| {
        let path: Vec<u8> = unescaped(path);
        let path: Vec<u8> = path
            .iter()
            .map(|b| if *b == b'\\' { b'/' } else { *b })
            .collect();
        Some(resolved(merged(split(&path)), dots))
    }),
    ("decodes twice", |path| {
        Some(resolved(merged(split(&unescaped(&unescaped(path)))), dots))
    }),
    ("ends at a NUL (C)", |path| {
        let path = unescaped(path);
        Some(split(path.split(|byte| *byte == 0).next()?))
    }),
];

/// The endpoint that a server finds for these segments; the empty text if none.
fn endpoint(segments: &[Vec<u8>]) -> &'static str {
    let is = |pattern: &&&str| {
        let names = split(pattern.as_bytes());
        names.len() == segments.len()
            && (names.iter().zip(segments))
                .all(|(name, there)| name.starts_with(b"{") || name == there)
    };
    ENDPOINTS.iter().find(is).copied().unwrap_or("")
}

/// What is charged for a path; the empty text if no rule is met.
fn charged(rules: &RuleSet, raw: &str) -> Result<&'static str, PathError> {
    let path = rules.read_path(raw)?;
    let request = Request::new().path(&path);
    let met = rules.matching(&request);
    assert!(met.rules().len() <= 1, "{raw}");
    let route = met.route().unwrap_or("");
    Ok(ENDPOINTS
        .into_iter()
        .find(|known| *known == route)
        .unwrap_or(""))
}

/// Every spelling of the list below is refused, or read by every server as the endpoint that is charged.
fn check(paths: PathRules, raws: &[String]) -> usize {
    let rules = rules(paths);
    let mut passed = 0;
    for raw in raws {
        let Ok(charged) = charged(&rules, raw) else {
            continue;
        };
        passed += 1;
        let path = rules.paths().normalise(raw).unwrap();
        let forwarded = match paths.forward {
            ForwardedPath::Original => raw.split('?').next().unwrap(),
            _ => path.as_str(),
        };
        if matches!(forwarded, "" | "*") {
            continue;
        }
        for (server, model) in MODELS {
            let Some(segments) = model(forwarded.as_bytes()) else {
                continue;
            };
            assert_eq!(
                endpoint(&segments),
                charged,
                "{raw}: a server that {server}"
            );
        }
    }
    passed
}

/// The endpoint of a path in its normal form; the empty text if none.
fn bucket(raw: &str) -> Result<&'static str, PathError> {
    let path = PathRules::default().normalise(raw)?;
    let of = |text: &&str| text.parse::<Pattern>().unwrap().matches(&path);
    Ok(ENDPOINTS.into_iter().find(of).unwrap_or(""))
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

/// Spellings, and the endpoint of their normal form, or that they are refused.
fn spellings() -> Vec<(String, Result<&'static str, ()>)> {
    let mut all = Vec::new();
    let mut all_in = |wanted: Result<&'static str, ()>, spellings: &[String]| {
        all.extend(spellings.iter().map(|raw| (raw.clone(), wanted)));
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
    assert!(all.len() >= 300, "{}", all.len());
    all
}

#[test]
fn two_hundred_spellings_have_the_intended_normal_form_or_are_refused() {
    for (raw, wanted) in spellings() {
        assert_eq!(bucket(&raw).map_err(|_| ()), wanted, "{raw:?}");
    }
}

#[test]
fn two_hundred_spellings_meet_the_same_rules_at_every_upstream_or_are_refused() {
    let raws: Vec<String> = spellings().into_iter().map(|(raw, _)| raw).collect();
    for forward in [ForwardedPath::Original, ForwardedPath::Normalised] {
        let default = PathRules::default().forward(forward);
        let lenient = default.accept(PathClasses::all());
        let passed = [default, lenient].map(|paths| check(paths, &raws));
        // The check is about something: plain ones and harmless ones pass, and more where more is accepted.
        assert!(
            passed[0] >= 40 && passed[1] >= passed[0],
            "{forward:?}: {passed:?}"
        );
    }
    // A request is not refused for its spelling where that makes no difference.
    let rules = rules(PathRules::default());
    for (raw, endpoint) in [
        ("/v1/charges", "/v1/charges"),
        ("/v1/charges/", "/v1/charges"),
        ("/v1/charges?a=%2F..//", "/v1/charges"),
        ("/v1/charges/a%2Bb%40c", "/v1/charges/{id}"),
        ("/v1/charges/caf%C3%A9", "/v1/charges/{id}"),
        ("/elsewhere//x/../y", ""),
    ] {
        assert_eq!(charged(&rules, raw), Ok(endpoint), "{raw}");
    }
    for raw in [
        "/v1//charges",
        "/v1/%63harges",
        "/x/../admin",
        "/admin;a",
        "/v1/charges//",
        "//x/admin",
        "///x/v1/charges",
        "//x",
    ] {
        assert_eq!(charged(&rules, raw), Err(PathError::Ambiguous), "{raw}");
    }
}

#[test]
fn without_rules_for_paths_no_spelling_is_ambiguous() {
    let rule = Rule::new("all", "10/s".parse().unwrap()).unwrap();
    let rules = RuleSet::new([rule]).unwrap();
    for raw in [
        "/dir//file",
        "/a/../b",
        "/a%2Bb",
        "/proxy/https://example.com/x",
        "/a;b//..//",
    ] {
        assert!(rules.read_path(raw).is_ok(), "{raw}");
    }
}

#[test]
fn a_boundary_makes_a_path_ambiguous_and_names_no_endpoint() {
    let rule = Rule::new("all", "10/s".parse().unwrap()).unwrap();
    let boundary: Pattern = "/v1/reports/{*rest}".parse().unwrap();
    let rules = RuleSet::new([rule]).unwrap().with_boundaries([boundary]);
    for raw in ["/v1/reports/a//b", "/v1/x//y", "/v2/%72eports"] {
        let path = rules.read_path(raw).unwrap();
        let request = Request::new().path(&path);
        assert_eq!(rules.matching(&request).route(), None, "{raw}");
    }
    for raw in ["/v1//reports/a", "/v1/reports/../users", "/v1/%72eports"] {
        assert_eq!(rules.read_path(raw), Err(PathError::Ambiguous), "{raw}");
    }
}

#[test]
fn an_accepted_class_passes_only_where_every_reading_meets_the_same_rules() {
    let paths = PathRules::default().accept(PathClasses::all());
    let rules = rules(paths);
    for raw in [
        "/elsewhere/a%5Cb",
        "/v1/charges/a%09",
        "/v1/charges/%ff",
        "/v1/charges/100%2525",
    ] {
        assert!(charged(&rules, raw).is_ok(), "{raw}");
    }
    for raw in [
        "/v1%5Ccharges",
        "/v1\\charges",
        "/v1%252Fcharges",
        "/x/%252e%252e/admin",
        "/x/%25%32e%25%32e/admin",
        "/x/..;a/admin",
        "/;a/admin",
        "/v1/charges/a%5Cb",
    ] {
        assert_eq!(charged(&rules, raw), Err(PathError::Ambiguous), "{raw}");
    }
}

/// Random paths of the pieces that matter.
#[test]
fn random_spellings_meet_the_same_rules_at_every_upstream_or_are_refused() {
    let pieces = [
        "/",
        "/",
        "//",
        "v1",
        "charges",
        "admin",
        ".",
        "..",
        "%2e",
        "%2E%2e",
        ";",
        ";a=b",
        "%5C",
        "\\",
        "%252F",
        "%252e",
        "%63harges",
        "%76%31",
        "x",
        "%09",
        "%ff",
        "+",
        "%2B",
    ];
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap()
    };
    let mut raws = BTreeSet::new();
    while raws.len() < 50_000 {
        let count = 1 + random(9);
        let raw: String = (0..count).map(|_| pieces[random(pieces.len())]).collect();
        raws.insert(format!("/{raw}"));
    }
    let raws: Vec<String> = raws.into_iter().collect();
    for forward in [ForwardedPath::Original, ForwardedPath::Normalised] {
        for accept in [PathClasses::default(), PathClasses::all()] {
            let paths = PathRules::default().forward(forward).accept(accept);
            let passed = check(paths, &raws);
            assert!(passed > 1_000, "{paths:?}: {passed}");
        }
    }
}
