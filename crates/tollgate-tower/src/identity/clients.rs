//! Clients that are known, each with its plan and the hash of its API key. Knows nothing of requests.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::address::NAME_PREFIX;
use super::source::{LONGEST_KEY, LONGEST_PLAN, is_printable, shown};

/// The longest id.
const LONGEST_ID: usize = 128;

/// The SHA-256 of an API key: all that is kept of it.
///
/// ```
/// let hash = tollgate_tower::identity::api_key_sha256(b"abc");
/// assert_eq!(hash[..4], [0xba, 0x78, 0x16, 0xbf]);
/// ```
#[must_use]
pub fn api_key_sha256(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// A client that is known before it calls.
#[derive(Clone, PartialEq, Eq)]
pub struct Client {
    /// 1 to 128 printable characters. What begins with `ip:` is reserved for addresses; what begins with the name of a header
    /// that names clients, and a colon, for those: see [`Identity::check`](super::Identity::check).
    pub id: String,
    /// 1 to 64 bytes of printable characters.
    pub plan: Option<String>,
    /// Of the key by which it makes itself known. A client with a key is found by it and by nothing else.
    ///
    /// It is as good as the key is long: a key of 128 random bits or more cannot be guessed from it.
    pub api_key_sha256: Option<[u8; 32]>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.id)
            .field("plan", &self.plan)
            .field("api_key_sha256", &self.api_key_sha256.map(|_| "[redacted]"))
            .finish()
    }
}

/// All clients that are known. Looked up in constant time, whatever their number.
///
/// Keys are found by their hash. How long that takes depends on the hash of what was presented, which says nothing about
/// how close it came to a key.
#[derive(Clone, Default)]
pub struct Clients {
    by_id: HashMap<Arc<str>, Known>,
    by_key: HashMap<[u8; 32], Arc<str>>,
    /// Whether an id looks like one that is made of a header's name and its value.
    any_with_colon: bool,
}

/// What there is to know of a client.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) plan: Option<Arc<str>>,
    pub(crate) has_key: bool,
}

impl Clients {
    /// # Errors
    /// When an id or a key occurs twice, or when an id or plan is not 1 to 128 (64) printable characters, or reserved.
    pub fn new(clients: impl IntoIterator<Item = Client>) -> Result<Self, ClientsError> {
        let mut all = Self::default();
        for client in clients {
            all.add(client)?;
        }
        Ok(all)
    }

    fn add(&mut self, client: Client) -> Result<(), ClientsError> {
        let Client {
            id,
            plan,
            api_key_sha256,
        } = client;
        if id.is_empty() || id.chars().count() > LONGEST_ID || !is_printable(&id) || id.trim() != id
        {
            return Err(ClientsError::BadId(shown(&id)));
        }
        if id.starts_with(NAME_PREFIX) {
            return Err(ClientsError::ReservedId(id));
        }
        if let Some(plan) = &plan
            && (plan.is_empty()
                || plan.len() > LONGEST_PLAN
                || !is_printable(plan)
                || plan.trim() != plan)
        {
            return Err(ClientsError::BadPlan {
                id,
                plan: shown(plan),
            });
        }
        let id: Arc<str> = id.into();
        let Entry::Vacant(place) = self.by_id.entry(Arc::clone(&id)) else {
            return Err(ClientsError::SameId(id.as_ref().into()));
        };
        if let Some(hash) = api_key_sha256 {
            if hash == sha256_of_nothing() {
                return Err(ClientsError::EmptyKey(id.as_ref().into()));
            }
            if let Some(other) = self.by_key.insert(hash, Arc::clone(&id)) {
                return Err(ClientsError::SameKey {
                    first: other.as_ref().into(),
                    second: id.as_ref().into(),
                });
            }
        }
        self.any_with_colon |= id.contains(':');
        place.insert(Known {
            plan: plan.map(Into::into),
            has_key: api_key_sha256.is_some(),
        });
        Ok(())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether nobody is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Whether there is a client of this id.
    #[must_use]
    pub fn contains(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    /// The plan of the client with this id, if it has one.
    #[must_use]
    pub fn plan_of(&self, id: &str) -> Option<&str> {
        self.by_id.get(id)?.plan.as_deref()
    }

    /// All ids, in no order.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.by_id.keys().map(AsRef::as_ref)
    }

    pub(crate) fn by_id(&self, id: &str) -> Option<&Known> {
        self.by_id.get(id)
    }

    /// Whether a name made of a header's name and its value is the id of somebody who is known.
    pub(crate) fn own_made_name(&self, name: &str) -> bool {
        self.any_with_colon && self.by_id.contains_key(name)
    }

    pub(crate) fn by_key(&self, key: &[u8]) -> Option<(&str, &Known)> {
        // Without keys there is nothing to hash for.
        if self.by_key.is_empty() {
            return None;
        }
        let id = self.by_key.get(&api_key_sha256(key))?;
        Some((id, self.by_id.get(id)?))
    }
}

/// How many words of a value are looked at, and the last one.
const FIRST_WORDS: usize = 3;

impl Clients {
    /// Whether one of the words of a value is a client's API key: behind another word, in a list, in quotes, or as `token=…`. Servers
    /// take such values apart in various ways, mostly for the first or the last of their words. What was `looked_up` already is none.
    pub(crate) fn key_among_words(&self, value: &[u8], looked_up: Option<&[u8]>) -> bool {
        if self.by_key.is_empty() {
            return false;
        }
        let separates =
            |byte: &u8| !byte.is_ascii_graphic() || matches!(byte, b',' | b';' | b'"' | b'\'');
        let mut words = value.split(separates).filter(|word| !word.is_empty());
        let is_key = |word: &[u8]| {
            let is_new = Some(word) != looked_up && word.len() <= LONGEST_KEY;
            is_new && self.by_key(word).is_some()
        };
        let holds_key = |word: &[u8]| {
            let behind = |sign: u8| {
                let at = word.iter().position(|byte| *byte == sign)?;
                word.get(at + 1..)
            };
            is_key(word) || [b'=', b':'].into_iter().filter_map(behind).any(is_key)
        };
        let mut first = words.by_ref().take(FIRST_WORDS);
        first.any(holds_key) || words.next_back().is_some_and(holds_key)
    }
}

/// `printf '' | sha256sum`: what comes out when the variable that should hold the key is not set.
fn sha256_of_nothing() -> [u8; 32] {
    api_key_sha256(b"")
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients")
            .field("known", &self.by_id.len())
            .field("with_api_key", &self.by_key.len())
            .finish()
    }
}

/// Clients that cannot be told apart, or cannot be named so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientsError {
    /// Two of one id.
    SameId(String),
    /// Two clients with one API key.
    SameKey {
        /// The id of the one that has it already.
        first: String,
        /// The id of the one that may not have it too.
        second: String,
    },
    /// An id that is empty, too long, or not printable.
    BadId(String),
    /// An id that could be that of a caller who is known by its address.
    ReservedId(String),
    /// A plan that is empty, too long, or not printable.
    BadPlan {
        /// Whose plan.
        id: String,
        /// The plan, cut short.
        plan: String,
    },
    /// The hash of a key that is empty.
    EmptyKey(String),
}

impl fmt::Display for ClientsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameId(id) => write!(
                f,
                "two clients have the id {id:?}; give each an id of its own"
            ),
            Self::SameKey { first, second } => {
                write!(
                    f,
                    "the clients {first:?} and {second:?} have the same API key; give each a key of its own"
                )
            }
            Self::BadId(id) => write!(
                f,
                "{id:?} cannot be a client's id; use 1 to {LONGEST_ID} printable characters, without spaces around them"
            ),
            Self::ReservedId(id) => write!(
                f,
                "{id:?} cannot be a client's id, as {NAME_PREFIX:?} begins the names of clients known by their address; use another beginning"
            ),
            Self::BadPlan { id, plan } => write!(
                f,
                "{plan:?} cannot be the plan of client {id:?}; use 1 to {LONGEST_PLAN} bytes of printable characters, without spaces around them"
            ),
            Self::EmptyKey(id) => write!(
                f,
                "the API key of client {id:?} is empty: the hash is that of nothing; hash the key itself"
            ),
        }
    }
}

impl std::error::Error for ClientsError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(id: &str) -> Client {
        Client {
            id: id.into(),
            plan: None,
            api_key_sha256: None,
        }
    }

    fn with_key(id: &str, key: &[u8]) -> Client {
        Client {
            api_key_sha256: Some(api_key_sha256(key)),
            ..client(id)
        }
    }

    #[test]
    fn clients_that_cannot_be_told_apart_are_refused_by_name() {
        let error = Clients::new([client("a"), client("b"), client("a")]).unwrap_err();
        assert_eq!(error, ClientsError::SameId("a".into()));
        let error = Clients::new([with_key("a", b"k"), with_key("b", b"k")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the clients \"a\" and \"b\" have the same API key; give each a key of its own"
        );
        let error = Clients::new([with_key("a", b"")]).unwrap_err();
        assert_eq!(error, ClientsError::EmptyKey("a".into()));
    }

    #[test]
    fn ids_and_plans_are_short_and_printable() {
        let long = "x".repeat(129);
        for bad in [
            "",
            " ",
            "a ",
            "\ta",
            "a\nb",
            "a\u{7f}",
            "a\u{202e}b",
            "\u{feff}",
            &long,
        ] {
            let error = Clients::new([client(bad)]).unwrap_err();
            assert!(matches!(error, ClientsError::BadId(_)), "{error}");
        }
        for good in [
            "a",
            "merchant_123",
            "org:7",
            "urn:x:y",
            "Zoë Ü",
            "ipx",
            "a{b}",
            &"x".repeat(128),
            &"ü".repeat(128),
        ] {
            assert!(Clients::new([client(good)]).unwrap().contains(good));
        }
        assert!(matches!(
            Clients::new([client("ip:1.2.3.4")]),
            Err(ClientsError::ReservedId(_))
        ));
        for bad in ["", " a", "a\nb", &"p".repeat(65)] {
            let plan = Client {
                plan: Some(bad.to_owned()),
                ..client("a")
            };
            assert!(matches!(
                Clients::new([plan]),
                Err(ClientsError::BadPlan { .. })
            ));
        }
    }

    #[test]
    fn a_key_finds_its_client_and_no_other_key_does() {
        let clients = Clients::new([
            with_key("a", b"key-a"),
            with_key("b", b"key-b"),
            client("c"),
        ])
        .unwrap();
        assert_eq!(clients.by_key(b"key-a").unwrap().0, "a");
        assert_eq!(clients.by_key(b"key-b").unwrap().0, "b");
        for other in [&b"key-"[..], b"", b"key-a ", b"KEY-A", b"a"] {
            assert!(clients.by_key(other).is_none());
        }
        // Nor does the hash that is kept.
        assert!(clients.by_key(&api_key_sha256(b"key-a")).is_none());
    }

    #[test]
    fn neither_a_key_nor_its_hash_is_shown() {
        let one = with_key("a", b"key-a");
        let shown = format!("{one:?} {:?}", Clients::new([one.clone()]).unwrap());
        assert_eq!(
            shown,
            "Client { id: \"a\", plan: None, api_key_sha256: Some(\"[redacted]\") } Clients { known: 1, with_api_key: 1 }"
        );
    }
}
