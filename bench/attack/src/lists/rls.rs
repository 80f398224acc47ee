//! Calls in Envoy's protocol. What a client can put into them must not become a gRPC error, as Envoy admits what it gets an error for.

use crate::wire::grpc::{Call, Descriptor, Hits};

/// Who could cause a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client, by what it writes into headers that descriptors are made of.
    Client,
    /// Only Envoy's own configuration. It may be answered with an error, but not admitted beyond the limit.
    Configuration,
}

/// A call, made with the word that belongs to this case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) origin: Origin,
    pub(crate) call: fn(&str) -> Call,
}

const fn client(name: &'static str, call: fn(&str) -> Call) -> Case {
    Case {
        name,
        origin: Origin::Client,
        call,
    }
}

const fn configuration(name: &'static str, call: fn(&str) -> Call) -> Case {
    Case {
        name,
        origin: Origin::Configuration,
        call,
    }
}

/// Rules under which all calls of a case together may be admitted three times.
pub(crate) const RULES: &str = "  - { id: tenant, per: [\"attribute:tenant\"], limit: \"3/h burst 3\" }
  - { id: client, per: [client], limit: \"3/h burst 3\" }
  - { id: region, match: { headers: { X-Region: \"*\" } }, per: [\"header:X-Region\"], limit: \"3/h burst 3\" }
  - { id: a1, per: [\"attribute:a1\"], limit: \"3/h burst 3\" }
  - { id: a2, per: [\"attribute:a2\"], limit: \"3/h burst 3\" }
  - { id: a3, per: [\"attribute:a3\"], limit: \"3/h burst 3\" }
  - { id: a4, per: [\"attribute:a4\"], limit: \"3/h burst 3\" }
  - { id: a5, per: [\"attribute:a5\"], limit: \"3/h burst 3\" }
";

/// Rules of each case, by its host and its path.
pub(crate) const RULES_OF_CASE: &str =
    "  - { id: \"host-{w}\", match: { host: \"{host}\" }, per: [], limit: \"3/h burst 3\" }
  - { id: \"path-{w}\", match: { path: \"/{w}/charges\" }, per: [], limit: \"3/h burst 3\" }
";

fn tenant(value: impl AsRef<[u8]>) -> Call {
    Call::of([Descriptor::of([("tenant", value.as_ref())])])
}

fn with(word: &str, key: &str, value: &[u8]) -> Call {
    Call::of([Descriptor::of([("tenant", word.as_bytes()), (key, value)])])
}

fn only(key: &str, value: impl AsRef<[u8]>) -> Call {
    Call::of([Descriptor::of([(key, value.as_ref())])])
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// A host as this case's rule knows it, with something around it.
fn host(before: &str, word: &str, after: &str) -> Call {
    only("host", format!("{before}{word}.attack.test{after}"))
}

fn path(value: &str, word: &str) -> Call {
    only("path", value.replace("{w}", word))
}

fn overridden(word: &str, requests: u32, unit: u64) -> Call {
    Call::of([Descriptor::of([("tenant", word.as_bytes())]).limit(requests, unit)])
}

fn many(word: &str, count: usize) -> Call {
    Call::of(
        (0..count).map(|n| {
            Descriptor::of([("tenant", word.as_bytes()), ("n", n.to_string().as_bytes())])
        }),
    )
}

fn buckets(word: &str, count: usize) -> Call {
    let keys = ["a1", "a2", "a3", "a4", "a5"];
    Call::of((0..count).map(|n| {
        let value = format!("{word}-{n}");
        Descriptor::of(keys.map(|key| (key, value.as_bytes()))).entry("tenant", word.as_bytes())
    }))
}

pub(crate) const CASES: &[Case] = &[
    client("a usual call", |w| tenant(w)),
    // Values.
    client("a value that is not UTF-8", |w| {
        tenant(joined(&[w.as_bytes(), b"\xff"]))
    }),
    client("a value that is only 0xff", |w| with(w, "x", b"\xff")),
    client("a value in Latin-1", |w| {
        tenant(joined(&[w.as_bytes(), b"caf\xe9"]))
    }),
    client("a value with an overlong slash", |w| {
        tenant(joined(&[w.as_bytes(), b"\xc0\xaf"]))
    }),
    client("a value with a surrogate", |w| {
        tenant(joined(&[w.as_bytes(), b"\xed\xa0\x80"]))
    }),
    client("a value cut within a character", |w| {
        tenant(joined(&[w.as_bytes(), b"\xe2\x82"]))
    }),
    client("a value beyond Unicode", |w| {
        tenant(joined(&[w.as_bytes(), b"\xf4\x90\x80\x80"]))
    }),
    client("a value with a byte order mark", |w| {
        tenant(joined(&[b"\xef\xbb\xbf", w.as_bytes()]))
    }),
    client("a value with NUL", |w| {
        tenant(joined(&[w.as_bytes(), b"\0"]))
    }),
    client("a value with line ends", |w| {
        tenant(joined(&[w.as_bytes(), b"\r\nX: y"]))
    }),
    client("a value with DEL", |w| {
        tenant(joined(&[w.as_bytes(), b"\x7f"]))
    }),
    client("a value with spaces around it", |w| {
        tenant(format!(" {w} "))
    }),
    client("a value of all bytes", |w| {
        tenant(joined(&[w.as_bytes(), &(0..=255).collect::<Vec<u8>>()]))
    }),
    client("an empty value", |w| with(w, "x", b"")),
    client("an empty tenant beside a client", |w| {
        Call::of([Descriptor::of([
            ("tenant", &b""[..]),
            ("client", w.as_bytes()),
        ])])
    }),
    client("a value of 1 KiB and more", |w| {
        tenant(format!("{w}{}", "x".repeat(1_100)))
    }),
    client("a value of 64 KiB", |w| {
        tenant(format!("{w}{}", "x".repeat(65_536)))
    }),
    client("a value of 1 MiB", |w| {
        tenant(format!("{w}{}", "x".repeat(1 << 20)))
    }),
    client("a value of 3.9 MiB", |w| {
        tenant(format!("{w}{}", "x".repeat(3_900 << 10)))
    }),
    client("a value of 5 MiB", |w| {
        tenant(format!("{w}{}", "x".repeat(5 << 20)))
    }),
    client("another value of 64 KiB that is not UTF-8", |w| {
        with(w, "x", &[0xff; 65_536])
    }),
    client("bytes that are not UTF-8 in each known entry", |w| {
        let keys = ["plan", "method", "host", "route", "x"];
        keys.iter().fold(tenant(w), |call, key| {
            call.and(Descriptor::of([
                ("tenant", w.as_bytes()),
                (key, b"\xff\xfe"),
            ]))
        })
    }),
    // Known entries.
    client("a client that is not UTF-8", |w| {
        only("client", joined(&[w.as_bytes(), b"\xff"]))
    }),
    client("a client", |w| only("client", w)),
    client("a client with NUL", |w| only("client", format!("{w}\0"))),
    client("a client of 64 KiB", |w| {
        only("client", format!("{w}{}", "x".repeat(65_536)))
    }),
    client("an empty client", |w| with(w, "client", b"")),
    client("a client said twice", |w| {
        Call::of([Descriptor::of([
            ("client", w.as_bytes()),
            ("client", b"junk"),
        ])])
    }),
    client("a client that is an address", |w| {
        with(w, "client", b"ip:203.0.113.9")
    }),
    client("a plan that is not UTF-8", |w| with(w, "plan", b"\xff")),
    client("an empty plan", |w| with(w, "plan", b"")),
    client("a plan of 64 KiB", |w| with(w, "plan", &[b'x'; 65_536])),
    client("a route that is not UTF-8", |w| with(w, "route", b"\xff")),
    client("a route of 64 KiB", |w| with(w, "route", &[b'x'; 65_536])),
    client("a header that is not UTF-8", |w| {
        with(w, "header:x-region", b"\xff")
    }),
    client("a header of 64 KiB", |w| {
        with(w, "header:x-region", &[b'x'; 65_536])
    }),
    client("a method that is not UTF-8", |w| {
        with(w, "method", b"G\xffT")
    }),
    client("an empty method", |w| with(w, "method", b"")),
    client("a method in lower case", |w| with(w, "method", b"get")),
    client("a method of 64 KiB", |w| with(w, "method", &[b'G'; 65_536])),
    // Addresses.
    client("an address that is none", |w| {
        with(w, "remote_address", b"junk")
    }),
    client("an address that is not UTF-8", |w| {
        with(w, "remote_address", b"\xff")
    }),
    client("an empty address", |w| with(w, "remote_address", b"")),
    client("an address with a port", |w| {
        with(w, "remote_address", b"203.0.113.9:80")
    }),
    client("an address with a zone", |w| {
        with(w, "remote_address", b"fe80::1%eth0")
    }),
    client("an address of a socket file", |w| {
        with(w, "remote_address", b"@/tmp/socket")
    }),
    client("an address out of range", |w| {
        with(w, "remote_address", b"999.1.1.1")
    }),
    client("two addresses", |w| {
        Call::of([Descriptor::of([
            ("tenant", w.as_bytes()),
            ("ip", b"203.0.113.1"),
            ("ip", b"junk"),
        ])])
    }),
    client("an address of 64 KiB", |w| with(w, "ip", &[b'1'; 65_536])),
    // Hosts.
    client("a host", |w| host("", w, "")),
    client("a host with a port", |w| host("", w, ":80")),
    client("a host with a port that is none", |w| host("", w, ":x")),
    client("a host with an empty port", |w| host("", w, ":")),
    client("a host with a port too large", |w| host("", w, ":65536")),
    client("a host with two ports", |w| host("", w, ":80:80")),
    client("a host with a dot behind", |w| host("", w, ".")),
    client("a host with two dots behind", |w| host("", w, "..")),
    client("a host with a dot before", |w| host(".", w, "")),
    client("a host in brackets", |w| host("[", w, "]")),
    client("a host with one bracket", |w| host("[", w, "")),
    client("a host with a user", |w| host("user@", w, "")),
    client("a host with a user and a password", |w| {
        host("user:password@", w, ":80")
    }),
    client("a host before a user", |w| host("", w, "@other.test")),
    client("a host with spaces", |w| host(" ", w, " ")),
    client("a host with a comma", |w| host("", w, ",other.test")),
    client("a host with a path", |w| host("", w, "/a")),
    client("a host with a scheme", |w| host("http://", w, "")),
    client("a host with NUL", |w| host("", w, "\0")),
    client("a host in capitals", |w| {
        only("authority", format!("{w}.ATTACK.Test"))
    }),
    client("a host that is not UTF-8", |w| {
        only("host", joined(&[w.as_bytes(), b".attack.test\xff"]))
    }),
    client("an empty host", |w| with(w, "host", b"")),
    client("a host with a port of 64 KiB", |w| {
        host("", w, &format!(":{}", "8".repeat(65_536)))
    }),
    client("a host and another authority", |w| {
        let name = format!("{w}.attack.test");
        Call::of([Descriptor::of([
            ("host", name.as_bytes()),
            ("authority", b"other.test"),
        ])])
    }),
    // Paths.
    client("a path", |w| path("/{w}/charges", w)),
    client("a path with a query", |w| path("/{w}/charges?a=b", w)),
    client("a path with two slashes", |w| path("//{w}//charges", w)),
    client("a path with dots", |w| path("/x/../{w}/./charges", w)),
    client("a path with encoded dots", |w| {
        path("/x/%2e%2e/{w}/charges", w)
    }),
    client("a path with encoded letters", |w| path("/{w}/%63harges", w)),
    client("a path with an encoded slash", |w| {
        path("/{w}%2fcharges", w)
    }),
    client("a path with a backslash", |w| path("/{w}\\charges", w)),
    client("a path with parameters", |w| path("/{w}/charges;a=b", w)),
    client("a path with a fragment", |w| path("/{w}/charges#a", w)),
    client("a path with NUL", |w| path("/{w}/charges\0", w)),
    client("a path with bad encoding", |w| path("/{w}/charges%zz", w)),
    client("a path without a slash", |w| path("{w}/charges", w)),
    client("a whole address for a path", |w| {
        path("http://a/{w}/charges", w)
    }),
    client("an asterisk for a path", |w| with(w, "path", b"*")),
    client("an empty path", |w| with(w, "path", b"")),
    client("a path that is not UTF-8", |w| {
        only("path", joined(&[b"/", w.as_bytes(), b"/\xff/../charges"]))
    }),
    client("a path with a byte of Latin-1", |w| {
        only("path", joined(&[b"/", w.as_bytes(), b"/caf\xe9"]))
            .and(Descriptor::of([("tenant", w.as_bytes())]))
    }),
    client("a path of 64 KiB", |w| with(w, "path", &[b'/'; 65_536])),
    client("a path said twice", |w| {
        let value = format!("/{w}/charges");
        Call::of([Descriptor::of([
            ("path", value.as_bytes()),
            ("path", b"/%"),
        ])])
    }),
    // Limits that descriptors bring, which Envoy can take from a client's metadata.
    client("an override of 0", |w| overridden(w, 0, 1)),
    client("an override of 0 without a unit", |w| overridden(w, 0, 0)),
    client("an override without a unit", |w| overridden(w, 2, 0)),
    client("an override of an unknown unit", |w| overridden(w, 2, 99)),
    client("an override of a negative unit", |w| {
        overridden(w, 2, u64::MAX)
    }),
    client("an override above what a limit can be", |w| {
        overridden(w, 10_000_001, 1).and(Descriptor::of([("client", w.as_bytes())]))
    }),
    client("an override of all numbers", |w| {
        overridden(w, u32::MAX, 1).and(Descriptor::of([("client", w.as_bytes())]))
    }),
    client("an override of 3 a year", |w| overridden(w, 3, 6)),
    client("an override of 1 a month", |w| overridden(w, 1, 5)),
    // Many.
    client("64 descriptors", |w| many(w, 64)),
    client("65 descriptors", |w| many(w, 65)),
    client("1,000 descriptors", |w| many(w, 1_000)),
    client("240 buckets", |w| buckets(w, 40)),
    client("260 buckets", |w| buckets(w, 52)),
    client("320 buckets", |w| buckets(w, 64)),
    client("400 buckets in 80 descriptors", |w| buckets(w, 80)),
    client("1,000 entries", |w| {
        let filler = (0..1_000).fold(
            Descriptor::of([("tenant", w.as_bytes())]),
            |descriptor, n| descriptor.entry(&format!("k{n}"), b"v"),
        );
        Call::of([filler])
    }),
    client("the same entry 1,000 times", |w| {
        let filler = (0..1_000).fold(Descriptor::of([]), |descriptor, _| {
            descriptor.entry("tenant", w.as_bytes())
        });
        Call::of([filler])
    }),
    client("the same descriptor 64 times", |w| {
        Call::of((0..64).map(|_| Descriptor::of([("tenant", w.as_bytes())])))
    }),
    // Hits, which Envoy can take from a header.
    client("hits of 4", |w| tenant(w).hits(4)),
    client("hits of all 32 bits", |w| {
        tenant(w).hits(u64::from(u32::MAX))
    }),
    client("hits beyond 32 bits", |w| tenant(w).hits(u64::MAX)),
    client("hits of a descriptor of 4", |w| {
        Call::of([Descriptor::of([("tenant", w.as_bytes())]).hits(Hits::Of(4))])
    }),
    client("hits of a descriptor of 2^53", |w| {
        Call::of([Descriptor::of([("tenant", w.as_bytes())]).hits(Hits::Of(1 << 53))])
    }),
    client("hits of a descriptor of all 64 bits", |w| {
        Call::of([Descriptor::of([("tenant", w.as_bytes())]).hits(Hits::Of(u64::MAX))])
    }),
    client("hits of many descriptors of all 64 bits", |w| {
        Call::of((0..10).map(|_| {
            Descriptor::of([("tenant", w.as_bytes()), ("client", w.as_bytes())])
                .hits(Hits::Of(u64::MAX))
        }))
    }),
    client("hits of a descriptor beside others", |w| {
        Call::of([
            Descriptor::of([("tenant", w.as_bytes())]).hits(Hits::Of(1)),
            Descriptor::of([("client", w.as_bytes())]),
        ])
        .hits(2)
    }),
    // Only configurations can say these.
    configuration("negative hits", |w| {
        Call::of([Descriptor::of([("tenant", w.as_bytes())]).hits(Hits::Negative)])
    }),
    configuration("negative hits beside a charge", |w| {
        Call::of([
            Descriptor::of([("tenant", w.as_bytes())]),
            Descriptor::of([("tenant", w.as_bytes())]).hits(Hits::Negative),
        ])
    }),
    configuration("no descriptors", |_| Call::of([])),
    configuration("a descriptor without entries", |w| {
        Call::of([
            Descriptor::of([]),
            Descriptor::of([("tenant", w.as_bytes())]),
        ])
    }),
    configuration("an entry without a key", |w| with(w, "", b"x")),
    configuration("a key that is not UTF-8", |w| {
        Call::of([Descriptor::of([("tenant", w.as_bytes())]).raw_entry(b"\xff", b"x")])
    }),
    configuration("a key of 64 KiB", |w| with(w, &"k".repeat(65_536), b"x")),
    configuration("an empty domain", |w| tenant(w).domain(b"")),
    configuration("a domain that is not UTF-8", |w| tenant(w).domain(b"\xff")),
    configuration("a domain of 64 KiB", |w| tenant(w).domain(&[b'd'; 65_536])),
    configuration("bytes behind the message", |w| tenant(w).raw(b"\xff")),
    configuration("a field that is not known", |w| {
        tenant(w).raw(b"\xf8\x07\x01")
    }),
    configuration("a length beyond the message", |w| {
        tenant(w).raw(b"\x12\xff\x7f")
    }),
    configuration("an endless number", |w| {
        tenant(w).raw(b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
    }),
    configuration("groups within groups", |w| tenant(w).raw(&[0x0b; 1_000])),
];
