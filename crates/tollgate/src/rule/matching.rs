//! The conditions under which a rule or a cost applies to a request.

use std::fmt;

use smallvec::SmallVec;

use crate::host::parse_host;
use crate::name::Name;
use crate::path::{Pattern, Shape};
use crate::request::Request;

/// Conditions, all of which a request must meet. Without any, every request does.
///
/// ```
/// use tollgate::Match;
///
/// let charges = Match::new().methods(["POST"])?.path("/v1/charges/{*rest}".parse()?);
/// assert_eq!(charges.to_string(), "method POST, path /v1/charges/{*rest}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "conditions do nothing until a rule or a cost has them"]
pub struct Match {
    methods: SmallVec<[Box<str>; 2]>,
    host: Option<Host>,
    path: Option<Pattern>,
    plans: Vec<Box<str>>,
    attributes: Vec<Attribute>,
}

/// Which hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Exactly(Box<str>),
    /// Those whose names end in a dot and this.
    Below(Box<str>),
}

/// Which values of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    pub(crate) name: Name,
    /// One of these; any value if there are none.
    pub(crate) values: Vec<Box<str>>,
}

/// The value that stands for any.
const ANY: &str = "*";

impl Match {
    /// Every request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only requests with one of these methods. GET includes HEAD.
    ///
    /// # Errors
    /// When there is none, or one is not a method.
    pub fn methods<'a>(
        mut self,
        methods: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, MatchError> {
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        self.methods.clear();
        for method in methods {
            if method.is_empty() || method.len() > 32 || !method.chars().all(is_token) {
                return Err(MatchError::Method(shown(method)));
            }
            self.methods.push(method.to_ascii_uppercase().into());
        }
        match self.methods.is_empty() {
            true => Err(MatchError::NoMethod),
            false => Ok(self),
        }
    }

    /// Only requests to this host, or to all hosts below one: `*.example.com`. Ports and case do not matter.
    ///
    /// # Errors
    /// When it is not the name of a host.
    pub fn host(mut self, host: &str) -> Result<Self, MatchError> {
        let below = host.strip_prefix("*.");
        let name = parse_host(below.unwrap_or(host));
        let name = name.map_err(|_| MatchError::Host(shown(host)))?;
        self.host = Some(match below {
            Some(_) => Host::Below(name.into()),
            None => Host::Exactly(name.into()),
        });
        Ok(self)
    }

    /// Only requests for paths of this pattern.
    pub fn path(mut self, pattern: Pattern) -> Self {
        self.path = Some(pattern);
        self
    }

    /// Only requests of clients with one of these plans.
    pub fn plans<P: Into<String>>(mut self, plans: impl IntoIterator<Item = P>) -> Self {
        self.plans = plans.into_iter().map(|plan| plan.into().into()).collect();
        self
    }

    /// Only requests whose attribute has one of these values; `*` stands for any. If a request has several values, one of them is
    /// enough; for an [exception](super::Rule::except) all of them are needed.
    ///
    /// Headers are attributes named `header:` and their name in lower case.
    pub fn attribute<V: Into<String>>(
        mut self,
        name: Name,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        let values: Vec<Box<str>> = values.into_iter().map(|v| v.into().into()).collect();
        let is_any = values.iter().any(|value| **value == *ANY);
        let values = if is_any { Vec::new() } else { values };
        self.attributes.push(Attribute { name, values });
        self
    }

    /// The pattern of paths, if there is one.
    #[must_use]
    pub fn pattern(&self) -> Option<&Pattern> {
        self.path.as_ref()
    }

    /// The plans. None means every plan.
    pub fn plan_names(&self) -> impl Iterator<Item = &str> {
        self.plans.iter().map(|plan| &**plan)
    }

    /// The attributes that the conditions look at.
    pub fn attribute_names(&self) -> impl Iterator<Item = Name> {
        self.attributes.iter().map(|attribute| attribute.name)
    }

    /// Whether every request meets the conditions, because there are none.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn has_more_than_path(&self) -> bool {
        let path_only = Self {
            path: self.path.clone(),
            ..Self::default()
        };
        *self != path_only
    }

    pub(crate) fn host_name(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    pub(crate) fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }

    /// With its path in lower case.
    pub(crate) fn ignoring_case(&self) -> Self {
        Self {
            path: self.path.as_ref().map(Pattern::in_small_letters),
            ..self.clone()
        }
    }

    /// Whether the request meets all conditions but that of the path, which is known to be met.
    pub(crate) fn fits_beside_path(&self, request: &Request<'_>) -> bool {
        self.mismatch_beside_path(request).is_none()
    }

    /// The first condition that the request does not meet.
    #[must_use]
    pub fn mismatch(&self, request: &Request<'_>) -> Option<Mismatch<'_>> {
        if let Some(pattern) = &self.path
            && !request
                .path_view()
                .is_some_and(|path| pattern.matches(path))
        {
            return Some(Mismatch(Missed::Path(pattern)));
        }
        self.mismatch_beside_path(request).map(Mismatch)
    }

    fn mismatch_beside_path(&self, request: &Request<'_>) -> Option<Missed<'_>> {
        if !self.methods.is_empty() && !self.allows_method(request.method_name()) {
            return Some(Missed::Method(&self.methods));
        }
        if let Some(host) = &self.host
            && !request.host_name().is_some_and(|there| host.is(there))
        {
            return Some(Missed::Host(host));
        }
        if !self.plans.is_empty() {
            let plan = request.plan_name();
            if !self.plans.iter().any(|wanted| Some(&**wanted) == plan) {
                return Some(Missed::Plan(&self.plans));
            }
        }
        let missed = self.attributes.iter().find(|attribute| {
            let mut there = request.attribute_values(attribute.name);
            !there.any(|there| attribute.allows(there))
        });
        missed.map(Missed::Attribute)
    }

    /// Whether the request is surely one of these, however its attributes are read: of several values, a server may look at any.
    pub(crate) fn excepts(&self, request: &Request<'_>) -> bool {
        self.mismatch(request).is_none()
            && self.attributes.iter().all(|attribute| {
                request.all_values(attribute.name, |there| attribute.allows(there))
            })
    }

    fn allows_method(&self, method: Option<&str>) -> bool {
        let Some(method) = method else { return false };
        let allows = |wanted: &str| self.methods.iter().any(|known| **known == *wanted);
        allows(method) || (method == "HEAD" && allows("GET"))
    }

    /// Of several that a request meets, the greatest is the most specific.
    pub(crate) fn specificity(&self) -> Specificity {
        let host = match &self.host {
            None => 0,
            Some(Host::Below(_)) => 1,
            Some(Host::Exactly(_)) => 2,
        };
        let others = self.attributes.len() + usize::from(!self.plans.is_empty());
        Specificity {
            path: self.path.iter().flat_map(Pattern::shape).collect(),
            host,
            others,
            methods: !self.methods.is_empty(),
        }
    }
}

/// The conditions in words: `method POST, path /v1/charges`.
impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut conditions: Vec<String> = Vec::new();
        if !self.methods.is_empty() {
            conditions.push(format!("method {}", self.methods.join(" or ")));
        }
        if let Some(host) = &self.host {
            conditions.push(format!("host {host}"));
        }
        if let Some(path) = &self.path {
            conditions.push(format!("path {path}"));
        }
        if !self.plans.is_empty() {
            conditions.push(format!("plan {}", self.plans.join(" or ")));
        }
        for Attribute { name, values } in &self.attributes {
            conditions.push(match values.is_empty() {
                true => format!("any {name}"),
                false => format!("{name} {}", values.join(" or ")),
            });
        }
        match conditions.is_empty() {
            true => f.write_str("every request"),
            false => f.write_str(&conditions.join(", ")),
        }
    }
}

/// How specific conditions are, the path first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Specificity {
    path: Vec<Shape>,
    host: u8,
    others: usize,
    methods: bool,
}

impl Attribute {
    fn allows(&self, there: &str) -> bool {
        self.values.is_empty() || self.values.iter().any(|value| **value == *there)
    }
}

impl Host {
    fn is(&self, there: &str) -> bool {
        match self {
            Self::Exactly(name) => **name == *there,
            Self::Below(name) => there
                .strip_suffix(&**name)
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(name) => f.pad(name),
            Self::Below(name) => write!(f, "*.{name}"),
        }
    }
}

/// A condition that a request does not meet. Its text says which.
///
/// ```
/// use tollgate::{Match, Request};
///
/// let posts = Match::new().methods(["POST"])?;
/// let request = Request::new().method("GET");
/// let mismatch = posts.mismatch(&request).expect("a GET is not a POST");
/// assert_eq!(mismatch.to_string(), "the method is not POST");
/// # Ok::<(), tollgate::MatchError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch<'a>(Missed<'a>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missed<'a> {
    Method(&'a [Box<str>]),
    Host(&'a Host),
    Path(&'a Pattern),
    Plan(&'a [Box<str>]),
    Attribute(&'a Attribute),
}

impl fmt::Display for Mismatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Missed::Method(methods) => write!(f, "the method is not {}", methods.join(" or ")),
            Missed::Host(host) => write!(f, "the host is not {host}"),
            Missed::Path(pattern) => write!(f, "the path is not {pattern}"),
            Missed::Plan(plans) => write!(f, "the plan is not {}", plans.join(" or ")),
            Missed::Attribute(Attribute { name, values }) if values.is_empty() => {
                write!(f, "there is no {name}")
            }
            Missed::Attribute(Attribute { name, values }) => {
                write!(f, "{name} is not {}", values.join(" or "))
            }
        }
    }
}

/// Conditions that no request can meet.
///
/// ```
/// use tollgate::Match;
///
/// let error = Match::new().methods(["GET /"]).unwrap_err();
/// assert_eq!(error.to_string(), "\"GET /\" is not a method; use names such as GET or POST");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MatchError {
    /// An empty list of methods.
    NoMethod,
    /// Text that is not a method.
    Method(String),
    /// Text that is not a host.
    Host(String),
}

impl fmt::Display for MatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMethod => f.write_str(
                "an empty list of methods would match no request; leave it out for all methods",
            ),
            Self::Method(text) => {
                write!(f, "{text:?} is not a method; use names such as GET or POST")
            }
            Self::Host(text) => write!(
                f,
                "{text:?} is not a host; use a name such as api.example.com, or *.example.com for all below it"
            ),
        }
    }
}

impl std::error::Error for MatchError {}

fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}
