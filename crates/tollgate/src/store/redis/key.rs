//! Which key a bucket lies under, and which of its records is the bucket's.

use std::fmt::Write as _;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;
use siphasher::sip128::{Hasher128 as _, SipHasher13 as SipHasher128};

use super::error::RedisError;
use crate::bucket::Bucket;
use crate::dimension::{Dimension, Part};
use crate::name::Name;

/// Longer values are known by their hash.
const LONGEST_VALUE: usize = 80;

/// What all keys begin with.
#[derive(Debug)]
pub(super) struct Namespace {
    prefix: Box<str>,
}

/// Where a bucket lies in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The key with the record.
    pub(super) key: String,
    /// Which record: 4 bytes for the rule, so that whoever has the rules can say whose it is, and 4 for the values behind the subject.
    ///
    /// 32 bits, or 31, are enough for what is under one key. Behind a subject come routes, methods and plans, some hundreds at the most: two
    /// of 1,000 meet with a probability of 1 in 9,000, and then one client is limited on two of its routes together, never less than by
    /// the rule. Two of 100 rules meet with one of 1 in 900,000, and then both count what either does. Values that callers could choose so as to meet
    /// somebody else's (a client, an address, an attribute) have all 64 bits in a key of their own.
    pub(super) id: [u8; 8],
}

impl Namespace {
    pub(super) fn new(prefix: &str) -> Result<Self, RedisError> {
        match Name::new(prefix) {
            Ok(_) => Ok(Self {
                prefix: prefix.into(),
            }),
            Err(error) => Err(RedisError::Config(format!("the prefix: {error}"))),
        }
    }

    /// Where the instances are listed that share the limits.
    pub(super) fn instances(&self) -> String {
        format!("{}:{{instances}}", self.prefix)
    }

    /// The key of a subject; everybody's, if it is nobody.
    ///
    /// The part in braces decides the slot in a cluster: all keys of a subject lie together.
    pub(super) fn subject(&self, subject: Option<&Part<'_>>) -> String {
        let mut key = String::with_capacity(64);
        key.push_str(&self.prefix);
        match subject {
            None => key.push_str(":{everybody}"),
            Some(subject) => {
                let _ = write!(key, ":{{{}", subject.dimension);
                push_value(&mut key, subject);
                key.push('}');
            }
        }
        key
    }

    pub(super) fn address(&self, bucket: &Bucket<'_>) -> Address {
        let mut parts = bucket.parts();
        let mut key = self.subject(parts.next().as_ref());
        let mut hasher = SipHasher13::new();
        let mut is_unbounded = false;
        for part in parts {
            is_unbounded |= is_endless(&part);
            if let Dimension::Attribute(name) = part.dimension {
                feed(&mut hasher, name.as_str().as_bytes());
            }
            hasher.write_u8(tag(part.dimension));
            match part.value {
                None => hasher.write_u8(0),
                Some(value) => {
                    hasher.write_u8(1);
                    feed(&mut hasher, value);
                }
            }
        }
        let values = hasher.finish();
        if is_unbounded {
            // There may be any number of these for one subject: each under a key of its own.
            let _ = write!(key, ":{values:016x}");
        }
        let mut id = [0; 8];
        id[..4].copy_from_slice(&hash_of(bucket.rule()));
        id[4..].copy_from_slice(&values.to_le_bytes()[..4]);
        // Scripts also take an id for a double, which must be a number: then it is equal to itself.
        id[7] &= !0x40;
        Address { key, id }
    }
}

impl Address {
    /// The key of the entries, if the bucket is a sliding log.
    pub(super) fn log_key(&self) -> String {
        format!("{}:log:{:016x}", self.key, u64::from_le_bytes(self.id))
    }

    /// Whether this rule counts here.
    pub(crate) fn is_of(&self, rule: Name) -> bool {
        self.id[..4] == hash_of(rule)
    }

    /// Tells apart the buckets of one rule and subject.
    pub(crate) fn short_id(&self) -> u32 {
        let [.., a, b, c, d] = self.id;
        u32::from_le_bytes([a, b, c, d])
    }
}

/// A rule, in four bytes.
fn hash_of(rule: Name) -> [u8; 4] {
    let mut hasher = SipHasher13::new();
    hasher.write(rule.as_str().as_bytes());
    let [a, b, c, d, ..] = hasher.finish().to_le_bytes();
    [a, b, c, d]
}

/// Whether there may be any number of values, chosen by callers.
fn is_endless(part: &Part<'_>) -> bool {
    match part.dimension {
        Dimension::Client | Dimension::Ip | Dimension::Attribute(_) | Dimension::Key => true,
        // HTTP lets a caller invent some.
        Dimension::Method => part.value.is_some_and(|method| !METHODS.contains(&method)),
        Dimension::Route | Dimension::Plan => false,
    }
}

/// Those that everybody knows.
const METHODS: [&[u8]; 9] = [
    b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH",
];

fn tag(dimension: Dimension) -> u8 {
    match dimension {
        Dimension::Client => 0,
        Dimension::Ip => 1,
        Dimension::Route => 2,
        Dimension::Method => 3,
        Dimension::Plan => 4,
        Dimension::Attribute(_) => 5,
        Dimension::Key => 6,
    }
}

/// Length before text, so that no two lists run into each other.
fn feed(hasher: &mut SipHasher13, text: &[u8]) {
    hasher.write_u64(text.len() as u64);
    hasher.write(text);
}

/// A value as text that is safe in a key: plain characters as they are, others as `%xx`. Only we write braces.
fn push_value(key: &mut String, part: &Part<'_>) {
    let Some(value) = part.value else {
        return;
    };
    if value.len() > LONGEST_VALUE {
        let mut hasher = SipHasher128::new();
        hasher.write(value);
        let _ = write!(key, "#{:032x}", hasher.finish128().as_u128());
        return;
    }
    key.push(':');
    let is_plain = |byte: &u8| matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'@');
    match str::from_utf8(value) {
        // Most are plain throughout.
        Ok(text) if value.iter().all(is_plain) => key.push_str(text),
        _ => {
            for byte in value {
                match is_plain(byte) {
                    true => key.push(char::from(*byte)),
                    false => _ = write!(key, "%{byte:02x}"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;

    fn key(per: &[Dimension], request: &Request<'_>) -> String {
        let rule = Name::new("r").unwrap();
        let namespace = Namespace::new("tollgate").unwrap();
        namespace.address(&Bucket::new(rule, per, request)).key
    }

    #[test]
    fn keys_can_be_read_and_not_forged() {
        let client = |client: &str| key(&[Dimension::Client], &Request::new().client(client));
        assert_eq!(client("merchant_123"), "tollgate:{client:merchant_123}");
        assert_eq!(client("a}{b c\n"), "tollgate:{client:a%7d%7bb%20c%0a}");
        assert_eq!(client(""), "tollgate:{client:}");
        assert_eq!(
            key(&[Dimension::Client], &Request::new()),
            "tollgate:{client}"
        );
        assert_eq!(key(&[], &Request::new()), "tollgate:{everybody}");
        let long = client(&"x".repeat(5_000));
        assert!(
            long.starts_with("tollgate:{client#") && long.len() < 64,
            "{long}"
        );
    }

    #[test]
    fn what_has_no_end_gets_keys_of_its_own() {
        let attribute = Dimension::Attribute(Name::new("device").unwrap());
        let request = Request::new().client("a").route("/x");
        assert_eq!(
            key(&[Dimension::Client, Dimension::Route], &request),
            "tollgate:{client:a}"
        );
        let own = key(&[Dimension::Client, attribute], &request);
        assert!(own.starts_with("tollgate:{client:a}:"), "{own}");
        // A caller may make up methods.
        let method = |method| {
            let per = [Dimension::Client, Dimension::Method];
            key(&per, &request.clone().method(method))
        };
        assert_eq!(method("GET"), "tollgate:{client:a}");
        let own = method("GET1");
        assert!(own.starts_with("tollgate:{client:a}:"), "{own}");
        assert_ne!(own, method("GET2"));
        // Any number of clients may come to a route.
        let own = key(&[Dimension::Route, Dimension::Client], &request);
        assert!(own.starts_with("tollgate:{route:%2fx}:"), "{own}");
    }

    #[test]
    fn a_record_says_whose_it_is() {
        let namespace = Namespace::new("tollgate").unwrap();
        let (one, other) = (Name::new("one").unwrap(), Name::new("other").unwrap());
        let address = |rule, route: &str| {
            let request = Request::new().client("a").route(route);
            namespace.address(&Bucket::new(
                rule,
                &[Dimension::Client, Dimension::Route],
                &request,
            ))
        };
        assert!(address(one, "/x").is_of(one) && !address(one, "/x").is_of(other));
        assert_ne!(address(one, "/x"), address(one, "/y"));
        assert_ne!(address(one, "/x"), address(other, "/x"));
        assert_eq!(
            address(one, "/x").short_id(),
            address(other, "/x").short_id()
        );
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_caller_chooses_a_key_has_one_pair_of_braces_and_plain_characters(
            client in ".{0,100}", route in ".{0,30}", value in ".{0,100}",
        ) {
            let attribute = Name::new("device").unwrap();
            let request = Request::new().client(&client).route(&route).attribute(attribute, &value);
            for per in [
                &[Dimension::Client][..],
                &[Dimension::Route, Dimension::Client],
                &[Dimension::Attribute(attribute), Dimension::Route],
            ] {
                let key = key(per, &request);
                let is_plain = |c: char| c.is_ascii_graphic();
                proptest::prop_assert!(key.chars().all(is_plain) && key.len() < 300, "{}", key);
                proptest::prop_assert_eq!(key.matches(['{', '}']).count(), 2);
                proptest::prop_assert_eq!(key.find("tollgate:{"), Some(0));
            }
        }
    }

    #[test]
    fn no_two_of_a_million_buckets_share_a_key() {
        let namespace = Namespace::new("tollgate").unwrap();
        let mut seen = std::collections::HashSet::new();
        crate::bucket::tests::different_buckets(1_000_000, |bucket| {
            let address = namespace.address(bucket);
            assert!(seen.insert((address.key, address.id)), "{bucket:?}");
        });
    }
}
