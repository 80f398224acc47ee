//! Calls in Envoy's protocol. What a client can put into them must not become a gRPC error, as Envoy admits what it gets an error for.

use Subject::{Client, Host, Own, Path, Region, Tenant};

use crate::wire::grpc::{Call, Descriptor, Hits};

/// Who could cause a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client, by what it writes into headers that descriptors are made of.
    Client,
    /// Only Envoy's own configuration. It may be answered with an error, but not admitted beyond the limit.
    Configuration,
}

/// What an API takes a call for, and so whose limit it must not evade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Tenant,
    Client,
    /// The header `X-Region`.
    Region,
    Host,
    Path,
    /// A value of its own, in all forms of the case.
    Own,
}

impl Subject {
    /// The usual call of the subject with this word.
    pub(crate) fn plain(self, word: &str) -> Option<Call> {
        Some(match self {
            Self::Tenant => tenant(word),
            Self::Client => only("client", word),
            Self::Region => only("header:x-region", word),
            Self::Host => host("", word, ""),
            Self::Path => path("/{w}/charges", word),
            Self::Own => return None,
        })
    }
}

/// A call, made with the word that belongs to this case and the number of the attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) origin: Origin,
    pub(crate) subject: Subject,
    pub(crate) call: fn(&str, usize) -> Call,
}

const fn client(name: &'static str, subject: Subject, call: fn(&str, usize) -> Call) -> Case {
    Case {
        name,
        origin: Origin::Client,
        subject,
        call,
    }
}

const fn configuration(
    name: &'static str,
    subject: Subject,
    call: fn(&str, usize) -> Call,
) -> Case {
    Case {
        name,
        origin: Origin::Configuration,
        subject,
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

/// A value with other spaces around it in each attempt.
fn spaced(value: &str, attempt: usize) -> String {
    let spaces = [" ", "\t", "  ", "\t "];
    let around = spaces.get(attempt / 2 % spaces.len()).unwrap_or(&" ");
    match attempt % 2 {
        0 => format!("{around}{value}"),
        _ => format!("{value}{around}"),
    }
}

/// Another byte that is not UTF-8 in each attempt.
fn not_utf8(attempt: usize) -> [u8; 1] {
    [u8::try_from(0xf8 + attempt % 8).unwrap_or(0xff)]
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
    client("a usual call", Tenant, |w, _| tenant(w)),
    // Values.
    client("a value that is not UTF-8", Own, |w, i| {
        tenant(joined(&[w.as_bytes(), &not_utf8(i)]))
    }),
    client("a value that is only 0xff", Tenant, |w, _| {
        with(w, "x", b"\xff")
    }),
    client("a value in Latin-1", Own, |w, i| {
        tenant(joined(&[w.as_bytes(), b"caf", &not_utf8(i)]))
    }),
    client("a value with an overlong slash", Own, |w, _| {
        tenant(joined(&[w.as_bytes(), b"\xc0\xaf"]))
    }),
    client("a value with a surrogate", Own, |w, _| {
        tenant(joined(&[w.as_bytes(), b"\xed\xa0\x80"]))
    }),
    client("a value cut within a character", Own, |w, _| {
        tenant(joined(&[w.as_bytes(), b"\xe2\x82"]))
    }),
    client("a value beyond Unicode", Own, |w, _| {
        tenant(joined(&[w.as_bytes(), b"\xf4\x90\x80\x80"]))
    }),
    client("a value with a byte order mark", Own, |w, _| {
        tenant(joined(&[b"\xef\xbb\xbf", w.as_bytes()]))
    }),
    client("a value with NUL", Own, |w, _| {
        tenant(joined(&[w.as_bytes(), b"\0"]))
    }),
    client("a value with line ends", Own, |w, _| {
        tenant(joined(&[w.as_bytes(), b"\r\nX: y"]))
    }),
    client("a value with DEL", Own, |w, _| {
        tenant(joined(&[w.as_bytes(), b"\x7f"]))
    }),
    client("a value with spaces around it", Tenant, |w, i| {
        tenant(spaced(w, i))
    }),
    client("a client with spaces around it", Client, |w, i| {
        only("client", spaced(w, i))
    }),
    client("a header with spaces around it", Region, |w, i| {
        only("header:x-region", spaced(w, i))
    }),
    client("a path with spaces around it", Path, |w, i| {
        path(&spaced("/{w}/charges", i), w)
    }),
    client("a tenant beside a plan with spaces", Tenant, |w, i| {
        with(w, "plan", spaced("gold", i).as_bytes())
    }),
    client("a tenant in a list of junk entries", Tenant, |w, i| {
        with(w, &format!("junk{i}"), b"x")
    }),
    client("a client with an invisible character", Client, |w, i| {
        only("client", format!("{w}{}", "\u{200b}".repeat(i + 1)))
    }),
    client("a value of all bytes", Own, |w, _| {
        tenant(joined(&[w.as_bytes(), &(0..=255).collect::<Vec<u8>>()]))
    }),
    client("an empty value", Tenant, |w, _| with(w, "x", b"")),
    client("an empty tenant beside a client", Client, |w, _| {
        Call::of([Descriptor::of([
            ("tenant", &b""[..]),
            ("client", w.as_bytes()),
        ])])
    }),
    client("a value of 1 KiB and more", Own, |w, i| {
        tenant(format!("{w}{}{i}", "x".repeat(1_100)))
    }),
    client("a value of 64 KiB", Own, |w, i| {
        tenant(format!("{w}{}{i}", "x".repeat(65_536)))
    }),
    client("a value of 1 MiB", Own, |w, _| {
        tenant(format!("{w}{}", "x".repeat(1 << 20)))
    }),
    client("a value of 3.9 MiB", Own, |w, _| {
        tenant(format!("{w}{}", "x".repeat(3_900 << 10)))
    }),
    client("a value of 5 MiB", Own, |w, _| {
        tenant(format!("{w}{}", "x".repeat(5 << 20)))
    }),
    client(
        "another value of 64 KiB that is not UTF-8",
        Tenant,
        |w, _| with(w, "x", &[0xff; 65_536]),
    ),
    client(
        "bytes that are not UTF-8 in each known entry",
        Tenant,
        |w, _| {
            let keys = ["plan", "method", "host", "route", "x"];
            keys.iter().fold(tenant(w), |call, key| {
                call.and(Descriptor::of([
                    ("tenant", w.as_bytes()),
                    (key, b"\xff\xfe"),
                ]))
            })
        },
    ),
    // Known entries.
    client("a client that is not UTF-8", Client, |w, _| {
        only("client", joined(&[w.as_bytes(), b"\xff"]))
    }),
    client("a client", Client, |w, _| only("client", w)),
    client("a client with NUL", Client, |w, _| {
        only("client", format!("{w}\0"))
    }),
    client("a client of 64 KiB", Client, |w, _| {
        only("client", format!("{w}{}", "x".repeat(65_536)))
    }),
    client("an empty client", Tenant, |w, _| with(w, "client", b"")),
    client("a client said twice", Client, |w, _| {
        Call::of([Descriptor::of([
            ("client", w.as_bytes()),
            ("client", b"junk"),
        ])])
    }),
    client("a client that is an address", Tenant, |w, _| {
        with(w, "client", b"ip:203.0.113.9")
    }),
    client("a plan that is not UTF-8", Tenant, |w, _| {
        with(w, "plan", b"\xff")
    }),
    client("an empty plan", Tenant, |w, _| with(w, "plan", b"")),
    client("a plan of 64 KiB", Tenant, |w, _| {
        with(w, "plan", &[b'x'; 65_536])
    }),
    client("a route that is not UTF-8", Tenant, |w, _| {
        with(w, "route", b"\xff")
    }),
    client("a route of 64 KiB", Tenant, |w, _| {
        with(w, "route", &[b'x'; 65_536])
    }),
    client("a header that is not UTF-8", Tenant, |w, _| {
        with(w, "header:x-region", b"\xff")
    }),
    client("a header of 64 KiB", Tenant, |w, _| {
        with(w, "header:x-region", &[b'x'; 65_536])
    }),
    client("a method that is not UTF-8", Tenant, |w, _| {
        with(w, "method", b"G\xffT")
    }),
    client("an empty method", Tenant, |w, _| with(w, "method", b"")),
    client("a method in lower case", Tenant, |w, _| {
        with(w, "method", b"get")
    }),
    client("a method of 64 KiB", Tenant, |w, _| {
        with(w, "method", &[b'G'; 65_536])
    }),
    // Addresses.
    client("an address that is none", Tenant, |w, _| {
        with(w, "remote_address", b"junk")
    }),
    client("an address that is not UTF-8", Tenant, |w, _| {
        with(w, "remote_address", b"\xff")
    }),
    client("an empty address", Tenant, |w, _| {
        with(w, "remote_address", b"")
    }),
    client("an address with a port", Tenant, |w, _| {
        with(w, "remote_address", b"203.0.113.9:80")
    }),
    client("an address with a zone", Tenant, |w, _| {
        with(w, "remote_address", b"fe80::1%eth0")
    }),
    client("an address of a socket file", Tenant, |w, _| {
        with(w, "remote_address", b"@/tmp/socket")
    }),
    client("an address out of range", Tenant, |w, _| {
        with(w, "remote_address", b"999.1.1.1")
    }),
    client("two addresses", Tenant, |w, _| {
        Call::of([Descriptor::of([
            ("tenant", w.as_bytes()),
            ("ip", b"203.0.113.1"),
            ("ip", b"junk"),
        ])])
    }),
    client("an address of 64 KiB", Tenant, |w, _| {
        with(w, "ip", &[b'1'; 65_536])
    }),
    // Hosts.
    client("a host", Host, |w, _| host("", w, "")),
    client("a host with a port", Host, |w, i| {
        host("", w, &format!(":{}", 80 + i))
    }),
    client("a host with a port that is none", Host, |w, _| {
        host("", w, ":x")
    }),
    client("a host with an empty port", Host, |w, _| host("", w, ":")),
    client("a host with a port too large", Host, |w, _| {
        host("", w, ":65536")
    }),
    client("a host with two ports", Host, |w, _| host("", w, ":80:80")),
    client("a host with a dot behind", Host, |w, _| host("", w, ".")),
    client("a host with two dots behind", Host, |w, _| {
        host("", w, "..")
    }),
    client("a host with a dot before", Host, |w, _| host(".", w, "")),
    client("a host in brackets", Host, |w, _| host("[", w, "]")),
    client("a host with one bracket", Host, |w, _| host("[", w, "")),
    client("a host with a user", Host, |w, _| host("user@", w, "")),
    client("a host with a user and a password", Host, |w, _| {
        host("user:password@", w, ":80")
    }),
    client("a host before a user", Host, |w, _| {
        host("", w, "@other.test")
    }),
    client("a host with spaces", Host, |w, i| {
        only("host", spaced(&format!("{w}.attack.test"), i))
    }),
    client("a host with a comma", Host, |w, _| {
        host("", w, ",other.test")
    }),
    client("a host with a path", Host, |w, _| host("", w, "/a")),
    client("a host with a scheme", Host, |w, _| host("http://", w, "")),
    client("a host with NUL", Host, |w, _| host("", w, "\0")),
    client("a host in capitals", Host, |w, _| {
        only("authority", format!("{w}.ATTACK.Test"))
    }),
    client("a host that is not UTF-8", Host, |w, _| {
        only("host", joined(&[w.as_bytes(), b".attack.test\xff"]))
    }),
    client("an empty host", Tenant, |w, _| with(w, "host", b"")),
    client("a host with a port of 64 KiB", Host, |w, _| {
        host("", w, &format!(":{}", "8".repeat(65_536)))
    }),
    client("a host and another authority", Host, |w, _| {
        let name = format!("{w}.attack.test");
        Call::of([Descriptor::of([
            ("host", name.as_bytes()),
            ("authority", b"other.test"),
        ])])
    }),
    // Paths.
    client("a path", Path, |w, _| path("/{w}/charges", w)),
    client("a path with a query", Path, |w, i| {
        path(&format!("/{{w}}/charges?a={i}"), w)
    }),
    client("a path with two slashes", Path, |w, _| {
        path("//{w}//charges", w)
    }),
    client("a path with dots", Path, |w, _| {
        path("/x/../{w}/./charges", w)
    }),
    client("a path with encoded dots", Path, |w, _| {
        path("/x/%2e%2e/{w}/charges", w)
    }),
    client("a path with encoded letters", Path, |w, _| {
        path("/{w}/%63harges", w)
    }),
    client("a path with an encoded slash", Path, |w, _| {
        path("/{w}%2fcharges", w)
    }),
    client("a path with a backslash", Path, |w, _| {
        path("/{w}\\charges", w)
    }),
    client("a path with parameters", Path, |w, i| {
        path(&format!("/{{w}}/charges;a={i}"), w)
    }),
    client("a path with a fragment", Path, |w, i| {
        path(&format!("/{{w}}/charges#{i}"), w)
    }),
    client("a path with NUL", Path, |w, _| path("/{w}/charges\0", w)),
    client("a path with bad encoding", Path, |w, _| {
        path("/{w}/charges%zz", w)
    }),
    client("a path without a slash", Path, |w, _| {
        path("{w}/charges", w)
    }),
    client("a whole address for a path", Path, |w, _| {
        path("http://a/{w}/charges", w)
    }),
    client("an asterisk for a path", Tenant, |w, _| {
        with(w, "path", b"*")
    }),
    client("an empty path", Tenant, |w, _| with(w, "path", b"")),
    client("a path that is not UTF-8", Path, |w, _| {
        only("path", joined(&[b"/", w.as_bytes(), b"/\xff/../charges"]))
    }),
    client("a path with a byte of Latin-1", Tenant, |w, _| {
        only("path", joined(&[b"/", w.as_bytes(), b"/caf\xe9"]))
            .and(Descriptor::of([("tenant", w.as_bytes())]))
    }),
    client("a path of 64 KiB", Tenant, |w, _| {
        with(w, "path", &[b'/'; 65_536])
    }),
    client("a path said twice", Path, |w, _| {
        let value = format!("/{w}/charges");
        Call::of([Descriptor::of([
            ("path", value.as_bytes()),
            ("path", b"/%"),
        ])])
    }),
    // Limits that descriptors bring, which Envoy can take from a client's metadata.
    client("an override of 0", Tenant, |w, _| overridden(w, 0, 1)),
    client("an override of 0 without a unit", Tenant, |w, _| {
        overridden(w, 0, 0)
    }),
    client("an override without a unit", Tenant, |w, _| {
        overridden(w, 2, 0)
    }),
    client("an override of an unknown unit", Tenant, |w, _| {
        overridden(w, 2, 99)
    }),
    client("an override of a negative unit", Tenant, |w, _| {
        overridden(w, 2, u64::MAX)
    }),
    client("an override above what a limit can be", Tenant, |w, _| {
        overridden(w, 10_000_001, 1).and(Descriptor::of([("client", w.as_bytes())]))
    }),
    client("an override of all numbers", Tenant, |w, _| {
        overridden(w, u32::MAX, 1).and(Descriptor::of([("client", w.as_bytes())]))
    }),
    client("an override of 3 a year", Tenant, |w, _| {
        overridden(w, 3, 6)
    }),
    client("an override of 1 a month", Tenant, |w, _| {
        overridden(w, 1, 5)
    }),
    // Many.
    client("64 descriptors", Tenant, |w, _| many(w, 64)),
    client("65 descriptors", Tenant, |w, _| many(w, 65)),
    client("1,000 descriptors", Tenant, |w, _| many(w, 1_000)),
    client("240 buckets", Tenant, |w, _| buckets(w, 40)),
    client("260 buckets", Tenant, |w, _| buckets(w, 52)),
    client("320 buckets", Tenant, |w, _| buckets(w, 64)),
    client("400 buckets in 80 descriptors", Tenant, |w, _| {
        buckets(w, 80)
    }),
    client("1,000 entries", Tenant, |w, _| {
        let filler = (0..1_000).fold(
            Descriptor::of([("tenant", w.as_bytes())]),
            |descriptor, n| descriptor.entry(&format!("k{n}"), b"v"),
        );
        Call::of([filler])
    }),
    client("the same entry 1,000 times", Tenant, |w, _| {
        let filler = (0..1_000).fold(Descriptor::of([]), |descriptor, _| {
            descriptor.entry("tenant", w.as_bytes())
        });
        Call::of([filler])
    }),
    client("the same descriptor 64 times", Tenant, |w, _| {
        Call::of((0..64).map(|_| Descriptor::of([("tenant", w.as_bytes())])))
    }),
    // Hits, which Envoy can take from a header.
    client("hits of 4", Tenant, |w, _| tenant(w).hits(4)),
    client("hits of all 32 bits", Tenant, |w, _| {
        tenant(w).hits(u64::from(u32::MAX))
    }),
    client("hits beyond 32 bits", Tenant, |w, _| {
        tenant(w).hits(u64::MAX)
    }),
    client("hits of a descriptor of 4", Tenant, |w, _| {
        Call::of([Descriptor::of([("tenant", w.as_bytes())]).hits(Hits::Of(4))])
    }),
    client("hits of a descriptor of 2^53", Tenant, |w, _| {
        Call::of([Descriptor::of([("tenant", w.as_bytes())]).hits(Hits::Of(1 << 53))])
    }),
    client("hits of a descriptor of all 64 bits", Tenant, |w, _| {
        Call::of([Descriptor::of([("tenant", w.as_bytes())]).hits(Hits::Of(u64::MAX))])
    }),
    client("hits of many descriptors of all 64 bits", Tenant, |w, _| {
        Call::of((0..10).map(|_| {
            Descriptor::of([("tenant", w.as_bytes()), ("client", w.as_bytes())])
                .hits(Hits::Of(u64::MAX))
        }))
    }),
    client("hits of a descriptor beside others", Tenant, |w, _| {
        Call::of([
            Descriptor::of([("tenant", w.as_bytes())]).hits(Hits::Of(1)),
            Descriptor::of([("client", w.as_bytes())]),
        ])
        .hits(2)
    }),
    // Only configurations can say these.
    configuration("negative hits", Tenant, |w, _| {
        Call::of([Descriptor::of([("tenant", w.as_bytes())]).hits(Hits::Negative)])
    }),
    configuration("negative hits beside a charge", Tenant, |w, _| {
        Call::of([
            Descriptor::of([("tenant", w.as_bytes())]),
            Descriptor::of([("tenant", w.as_bytes())]).hits(Hits::Negative),
        ])
    }),
    configuration("no descriptors", Own, |_, _| Call::of([])),
    configuration("a descriptor without entries", Tenant, |w, _| {
        Call::of([
            Descriptor::of([]),
            Descriptor::of([("tenant", w.as_bytes())]),
        ])
    }),
    configuration("an entry without a key", Tenant, |w, _| with(w, "", b"x")),
    configuration("a key that is not UTF-8", Tenant, |w, _| {
        Call::of([Descriptor::of([("tenant", w.as_bytes())]).raw_entry(b"\xff", b"x")])
    }),
    configuration("a key of 64 KiB", Tenant, |w, _| {
        with(w, &"k".repeat(65_536), b"x")
    }),
    configuration("an empty domain", Tenant, |w, _| tenant(w).domain(b"")),
    configuration("a domain that is not UTF-8", Tenant, |w, _| {
        tenant(w).domain(b"\xff")
    }),
    configuration("a domain of 64 KiB", Tenant, |w, _| {
        tenant(w).domain(&[b'd'; 65_536])
    }),
    configuration("bytes behind the message", Tenant, |w, _| {
        tenant(w).raw(b"\xff")
    }),
    configuration("a field that is not known", Tenant, |w, _| {
        tenant(w).raw(b"\xf8\x07\x01")
    }),
    configuration("a length beyond the message", Tenant, |w, _| {
        tenant(w).raw(b"\x12\xff\x7f")
    }),
    configuration("an endless number", Tenant, |w, _| {
        tenant(w).raw(b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
    }),
    configuration("groups within groups", Tenant, |w, _| {
        tenant(w).raw(&[0x0b; 1_000])
    }),
];
