//! A request as rules see it.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use crate::dimension::{Dimension, Part};
use crate::host::parse_host;
use crate::name::Name;
use crate::path::Path;

/// Who asks for what: the view of a request that rules are matched against.
///
/// Everything is optional; what a rule counts by and a request does not say is shared by all such requests.
///
/// ```
/// use tollgate::Request;
///
/// let request = Request::new()
///     .client("merchant_123")
///     .plan("enterprise")
///     .route("/v1/charges/{id}")
///     .cost(10);
/// # let _ = request;
/// ```
#[derive(Clone, Debug)]
pub struct Request<'a> {
    client: Option<&'a str>,
    plan: Option<&'a str>,
    route: Option<&'a str>,
    method: Option<Cow<'a, str>>,
    host: Option<Cow<'a, str>>,
    path: Option<&'a Path<'a>>,
    ip: Option<IpOctets>,
    attributes: Vec<(Name, &'a str)>,
    cost: Option<u64>,
    deadline: Option<Duration>,
}

/// An address as bytes, of which 4 or 16 count.
#[derive(Clone, Copy, Debug)]
struct IpOctets {
    bytes: [u8; 16],
    len: usize,
}

impl<'a> Request<'a> {
    /// A request that says nothing.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self {
            client: None,
            plan: None,
            route: None,
            method: None,
            host: None,
            path: None,
            ip: None,
            attributes: Vec::new(),
            cost: None,
            deadline: None,
        }
    }

    /// The caller: an account, a merchant, a user.
    #[inline]
    #[must_use]
    pub fn client(mut self, client: &'a str) -> Self {
        self.client = Some(client);
        self
    }

    /// The caller's plan.
    #[inline]
    #[must_use]
    pub fn plan(mut self, plan: &'a str) -> Self {
        self.plan = Some(plan);
        self
    }

    /// The endpoint, as a pattern rather than a path. If it is not said, it is the pattern of the [path](Self::path) that says
    /// most, of all that the rules know.
    #[inline]
    #[must_use]
    pub fn route(mut self, route: &'a str) -> Self {
        self.route = Some(route);
        self
    }

    /// The HTTP method. Its case does not matter, as there are servers for which `post` is POST.
    #[inline]
    #[must_use]
    pub fn method(mut self, method: &'a str) -> Self {
        let is_large = !method.bytes().any(|byte| byte.is_ascii_lowercase());
        self.method = Some(match is_large {
            true => method.into(),
            false => method.to_ascii_uppercase().into(),
        });
        self
    }

    /// The host it is for. Its port and case do not matter. Text that is no host meets no condition on hosts, so that a rule could
    /// be evaded by it: refuse it where clients send it, by [`crate::parse_host`].
    #[inline]
    #[must_use]
    pub fn host(mut self, host: &'a str) -> Self {
        self.host = Some(parse_host(host).unwrap_or(Cow::Borrowed(host)));
        self
    }

    /// What it asks for, normalised by the [`PathRules`](crate::PathRules) of the rules.
    #[inline]
    #[must_use]
    pub fn path(mut self, path: &'a Path<'a>) -> Self {
        self.path = Some(path);
        self
    }

    /// The caller's address. An IPv4 address written as IPv6 is the IPv4 address.
    #[inline]
    #[must_use]
    pub fn ip(mut self, ip: IpAddr) -> Self {
        let mut bytes = [0; 16];
        let len = match ip.to_canonical() {
            IpAddr::V4(v4) => {
                bytes[..4].copy_from_slice(&v4.octets());
                4
            }
            IpAddr::V6(v6) => {
                bytes = v6.octets();
                16
            }
        };
        self.ip = Some(IpOctets { bytes, len });
        self
    }

    /// How many values of one attribute are looked at. They bound how many rules a request can meet.
    pub const MAX_ATTRIBUTE_VALUES: usize = 8;

    /// Any other thing a rule may count by. An attribute may have several values, such as a header that was sent twice: a
    /// [condition](crate::Match::attribute) is met if one of the first [eight](Self::MAX_ATTRIBUTE_VALUES) meets it, and rules count by
    /// the first. Whether rules name a value says [`RuleSet::names_value`](crate::RuleSet::names_value).
    #[inline]
    #[must_use]
    pub fn attribute(mut self, name: Name, value: &'a str) -> Self {
        self.attributes.push((name, value));
        self
    }

    /// How many tokens it takes, whatever the rules' costs say. 0 looks without charging.
    #[inline]
    #[must_use]
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }

    /// How long its decision may wait for a shared store. The deadline of the store counts if this is longer, or absent. In memory
    /// nothing waits.
    #[inline]
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    #[cfg(feature = "redis")]
    pub(crate) fn own_deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// If nobody said a cost, it is 1.
    pub(crate) fn tokens(&self) -> u64 {
        self.cost.unwrap_or(1)
    }

    pub(crate) fn says_cost(&self) -> bool {
        self.cost.is_some()
    }

    pub(crate) fn says_route(&self) -> bool {
        self.route.is_some()
    }

    pub(crate) fn client_name(&self) -> Option<&'a str> {
        self.client
    }

    pub(crate) fn address(&self) -> Option<IpAddr> {
        let ip = self.ip.as_ref()?;
        let v4 = <[u8; 4]>::try_from(&ip.bytes[..ip.len]);
        Some(v4.map_or_else(|_| ip.bytes.into(), IpAddr::from))
    }

    pub(crate) fn route_name(&self) -> Option<&'a str> {
        self.route
    }

    pub(crate) fn method_name(&self) -> Option<&str> {
        self.method.as_deref()
    }

    pub(crate) fn host_name(&self) -> Option<&str> {
        self.host.as_deref()
    }

    pub(crate) fn path_view(&self) -> Option<&Path<'a>> {
        self.path
    }

    /// The value that rules count by.
    pub(crate) fn attribute_value(&self, name: Name) -> Option<&'a str> {
        self.attribute_values(name).next()
    }

    /// The values that conditions look at.
    pub(crate) fn attribute_values(&self, name: Name) -> impl Iterator<Item = &'a str> {
        let known = self.attributes.iter();
        known
            .filter(move |(known, _)| *known == name)
            .map(|(_, value)| *value)
            .take(Self::MAX_ATTRIBUTE_VALUES)
    }

    pub(crate) fn plan_name(&self) -> Option<&'a str> {
        self.plan
    }

    /// Whether it names a caller: a client, an address or an attribute. A route, a method or a plan is what many have in common.
    #[must_use]
    pub fn names_somebody(&self) -> bool {
        self.parts().any(|part| part.dimension.is_caller())
    }

    /// Whether it is about nothing in particular.
    pub(crate) fn says_nothing(&self) -> bool {
        self.parts().next().is_none() && self.host.is_none() && self.path.is_none()
    }

    /// All it says of itself, each once.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        use Dimension::{Attribute, Client, Ip, Method, Plan, Route};
        let attributes = self.attributes.iter().enumerate();
        let first_said = attributes.filter(|(i, (name, _))| {
            let mut before = self.attributes[..*i].iter();
            !before.any(|(known, _)| known == name)
        });
        let others = first_said.map(|(_, (name, _))| Attribute(*name));
        ([Client, Ip, Route, Method, Plan].into_iter().chain(others))
            .map(|dimension| Part {
                dimension,
                value: self.value(dimension),
            })
            .filter(|part| part.value.is_some())
    }

    #[inline(always)]
    pub(crate) fn value(&self, dimension: Dimension) -> Option<&[u8]> {
        match dimension {
            Dimension::Client => self.client.map(str::as_bytes),
            Dimension::Plan => self.plan.map(str::as_bytes),
            Dimension::Route => self.route.map(str::as_bytes),
            Dimension::Method => self.method.as_deref().map(str::as_bytes),
            Dimension::Ip => self.ip.as_ref().map(|ip| &ip.bytes[..ip.len]),
            Dimension::Attribute(name) => self.attribute_value(name).map(str::as_bytes),
            Dimension::Key => None,
        }
    }
}

impl Default for Request<'_> {
    fn default() -> Self {
        Self::new()
    }
}
