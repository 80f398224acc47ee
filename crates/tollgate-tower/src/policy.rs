//! What decides, as one whole: the rules, who is who, and how a request is seen through both. Swapped whole when any of it changes.

mod attributes;
mod normalized_head;
mod refusal;
mod view;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Uri};
use tollgate::{ForwardedPath, Name, RuleSet};

use crate::answer::Answers;
use crate::identity::{Clients, Identity};
pub use attributes::RequestAttributes;
pub use refusal::Refusal;
pub use view::View;

/// Rules, and who they are for.
///
/// ```
/// use http::{HeaderMap, Method};
/// use tollgate::{Dimension, LocalLimiter, Match, Rule, RuleSet};
/// use tollgate_tower::identity::{Clients, Identity, IdentityConfig};
/// use tollgate_tower::policy::{Head, Policy};
///
/// let rules = RuleSet::new([Rule::new("charges", "10/s burst 50".parse()?)?
///     .when(Match::new().methods(["POST"])?.path("/v1/charges/{*rest}".parse()?))
///     .per([Dimension::Client])])?;
/// let identity = Identity::new(IdentityConfig::default())?;
/// let policy = Policy::new(rules, identity, Clients::default());
///
/// let head = Head { method: &Method::POST, uri: &"/v1/charges?expand=all".parse()?, headers: &HeaderMap::new() };
/// let view = policy.view(&head, [203, 0, 113, 7].into())?;
/// assert_eq!(view.path().as_str(), "/v1/charges");
///
/// let decision = LocalLimiter::new().matched(&policy.rules().matching(&view.request())).decide();
/// assert_eq!(decision.remaining(), Some(49));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Policy {
    rules: RuleSet,
    identity: Identity,
    clients: Clients,
    /// Shared, as each request under way holds those it was decided with.
    answers: Option<Arc<Answers>>,
}

/// What a request says before its body.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// What is to be done.
    pub method: &'a Method,
    /// With what: the path, and in HTTP/2 the host.
    pub uri: &'a Uri,
    /// All else.
    pub headers: &'a HeaderMap,
}

impl<'a> From<&'a Parts> for Head<'a> {
    fn from(parts: &'a Parts) -> Self {
        Self {
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
        }
    }
}

impl Policy {
    /// A policy of these. Ask [`Identity::check`] first whether they go together, to hear of it if they do not.
    #[must_use]
    pub fn new(rules: RuleSet, identity: Identity, clients: Clients) -> Self {
        Self {
            rules,
            identity,
            clients,
            answers: None,
        }
    }

    /// The same with answers of its own, which take the place of those a layer was told.
    #[must_use]
    pub fn with_answers(mut self, answers: Answers) -> Self {
        self.answers = Some(Arc::new(answers));
        self
    }

    /// How to answer, if the policy says so.
    #[must_use]
    pub fn answers(&self) -> Option<&Arc<Answers>> {
        self.answers.as_ref()
    }

    /// The same with its rules numbered.
    #[must_use]
    pub fn with_generation(mut self, generation: u64) -> Self {
        self.rules = self.rules.with_generation(generation);
        self
    }

    /// Its number: that of the rules.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.rules.generation()
    }

    /// The rules.
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// Who is who.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The clients that are known.
    #[must_use]
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// The name under which a client is counted, from what somebody who is believed calls it: see
    /// [`Identity::client_name`](crate::identity::Identity::client_name).
    ///
    /// ```
    /// # use tollgate::RuleSet;
    /// # use tollgate_tower::identity::{Clients, Identity, IdentityConfig};
    /// # use tollgate_tower::policy::Policy;
    /// let identity = Identity::new(IdentityConfig {
    ///     client: vec!["header:X-User-Id".parse()?, "ip".parse()?],
    ///     ..IdentityConfig::default()
    /// })?;
    /// let policy = Policy::new(RuleSet::default(), identity, Clients::default());
    /// assert_eq!(policy.client_name("42"), "x-user-id:42");
    /// assert_eq!(policy.client_name("x-user-id:42"), "x-user-id:42");
    /// assert_eq!(policy.client_name("ip:2001:db8::1"), "ip:2001:db8::/64");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn client_name<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.identity.client_name(text, &self.clients)
    }

    /// Whether a header of this name tells who is calling, by which plan, or which rules apply.
    #[must_use]
    pub fn looks_at(&self, name: &HeaderName) -> bool {
        let mut by_rules = (self.rules.attribute_names().iter())
            .filter_map(|attribute| attribute.as_str().strip_prefix(normalized_head::HEADER));
        self.identity.header_names().any(|known| known == name)
            || by_rules.any(|known| name == known)
    }

    /// Refuses headers that a server may read as others. CGI, WSGI, PHP and others know `X-Api-Key`, `X_Api_Key` and `X.Api.Key` by one
    /// name, so a client that is identified by the first could send the second and shed its limits. To be asked where others forward
    /// the headers.
    ///
    /// # Errors
    /// When a name has other characters than letters, digits and hyphens, and with hyphens in their place it is one that the policy
    /// [looks at](Self::looks_at).
    pub fn check_header_names(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let odd = headers.keys().filter(|name| !is_plain(name.as_str()));
        for name in odd.filter(|name| !self.looks_at(name)) {
            let with_hyphens = name.as_str().replace(|c: char| !is_plain_char(c), "-");
            if let Ok(other) = HeaderName::try_from(with_hyphens)
                && self.looks_at(&other)
            {
                return Err(Refusal::HeaderName(name.as_str().into()));
            }
        }
        Ok(())
    }

    /// The values that conditions name, in the value of a header that somebody who is believed tells: the whole of it, and the members
    /// of a list. `attribute` is what rules call the header, such as `header:x-region`.
    ///
    /// # Errors
    /// When it has more of them than are compared: such a request is to be refused.
    pub fn header_values<'v>(
        &self,
        attribute: Name,
        value: &'v str,
    ) -> Result<Vec<&'v str>, Refusal> {
        normalized_head::named_values(&self.rules, attribute, std::iter::once(value.as_bytes()))
    }

    /// Sees a request that came from `peer`, the other end of the connection.
    ///
    /// # Errors
    /// When it cannot be said for sure what its path means or who calls: such a request is to be refused.
    pub fn view<'a>(&self, head: &Head<'a>, peer: IpAddr) -> Result<View<'a>, Refusal> {
        View::new(self, head, peer, self.rules.paths().forward)
    }

    /// The same for a request whose path somebody else forwards, in this form.
    ///
    /// # Errors
    /// As [`view`](Self::view).
    pub fn view_forwarded<'a>(
        &self,
        head: &Head<'a>,
        peer: IpAddr,
        forward: ForwardedPath,
    ) -> Result<View<'a>, Refusal> {
        View::new(self, head, peer, forward)
    }
}

fn is_plain(name: &str) -> bool {
    name.chars().all(is_plain_char)
}

fn is_plain_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-'
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("generation", &self.generation())
            .field("rules", &self.rules.rules().count())
            .field("clients", &self.clients.len())
            .finish_non_exhaustive()
    }
}
