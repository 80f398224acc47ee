//! A request as rules see it.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use crate::dimension::{Dimension, Part};
use crate::host::parse_host;
use crate::name::Name;
use crate::path::Path;

/// A request as rules see it: who sends it, and what it asks for.
///
/// Everything is optional. Requests that lack a dimension which a rule counts by share one bucket.
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
#[must_use = "a request is decided on by a limiter"]
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

/// An address as 4 or 16 bytes.
#[derive(Clone, Copy, Debug)]
struct IpOctets {
    bytes: [u8; 16],
    len: usize,
}

impl<'a> Request<'a> {
    /// A request of which nothing is known.
    #[inline]
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

    /// Sets the client: an account, a merchant, a user.
    #[inline]
    pub fn client(mut self, client: &'a str) -> Self {
        self.client = Some(client);
        self
    }

    /// Sets the client's plan.
    #[inline]
    pub fn plan(mut self, plan: &'a str) -> Self {
        self.plan = Some(plan);
        self
    }

    /// Names the endpoint, by a pattern rather than a path. Without it, the endpoint is the most specific pattern of the
    /// [path](Self::path) that the rules know.
    #[inline]
    pub fn route(mut self, route: &'a str) -> Self {
        self.route = Some(route);
        self
    }

    /// Sets the HTTP method. Its case does not matter, because some servers take `post` for POST.
    #[inline]
    pub fn method(mut self, method: &'a str) -> Self {
        let is_upper_case = !method.bytes().any(|byte| byte.is_ascii_lowercase());
        self.method = Some(match is_upper_case {
            true => method.into(),
            false => method.to_ascii_uppercase().into(),
        });
        self
    }

    /// Sets the host that the request is for. Its port and case do not matter. Text that is not a host meets no condition on hosts,
    /// so a client could evade a rule by it: refuse it first, with [`parse_host`].
    #[inline]
    pub fn host(mut self, host: &'a str) -> Self {
        self.host = Some(parse_host(host).unwrap_or(Cow::Borrowed(host)));
        self
    }

    /// Sets the path, as read by the [rules](crate::RuleSet::read_path).
    #[inline]
    pub fn path(mut self, path: &'a Path<'a>) -> Self {
        self.path = Some(path);
        self
    }

    /// Sets the client's address. An IPv4 address written as IPv6 is the IPv4 address.
    #[inline]
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

    /// How many values of one attribute conditions look at. This bounds how many rules can apply to a request.
    pub const MAX_ATTRIBUTE_VALUES: usize = 8;

    /// Adds anything else that a rule may count by. An attribute may have several values, such as a header that was sent twice: a
    /// [condition](crate::Match::attribute) is met if one of the first [eight](Self::MAX_ATTRIBUTE_VALUES) meets it, and rules count by
    /// the first. [`RuleSet::names_value`](crate::RuleSet::names_value) tells which values matter to conditions.
    #[inline]
    pub fn attribute(mut self, name: Name, value: &'a str) -> Self {
        self.attributes.push((name, value));
        self
    }

    /// Sets what the request costs, in place of the [costs](crate::RuleSet::with_costs) of the rules. 0 looks without charging. Rules
    /// with a [cost of their own](crate::Rule::cost) charge that.
    #[inline]
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Sets how long the decision may wait for a shared store, if that is less than the store's own deadline. Decisions in memory
    /// wait for nothing.
    #[inline]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    #[cfg(feature = "redis")]
    pub(crate) fn own_deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// The cost; 1 by default.
    pub(crate) fn tokens(&self) -> u64 {
        self.cost.unwrap_or(1)
    }

    pub(crate) fn has_cost(&self) -> bool {
        self.cost.is_some()
    }

    pub(crate) fn has_route(&self) -> bool {
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

    /// Whether every value of an attribute passes the test, also those that conditions do not look at.
    pub(crate) fn all_values(&self, name: Name, test: impl Fn(&str) -> bool) -> bool {
        let mut known = self.attributes.iter();
        known.all(|(known, value)| *known != name || test(value))
    }

    pub(crate) fn plan_name(&self) -> Option<&'a str> {
        self.plan
    }

    /// Whether the request says who sends it, by a client, an address or an attribute. Many clients share a route, a method or a plan.
    #[must_use]
    pub fn identifies_caller(&self) -> bool {
        self.parts().any(|part| part.dimension.is_caller())
    }

    /// Whether nothing is known of the request.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts().next().is_none() && self.host.is_none() && self.path.is_none()
    }

    /// All dimensions for which the request has a value, each once.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        use Dimension::{Attribute, Client, Ip, Method, Plan, Route};
        let attributes = self.attributes.iter().enumerate();
        let first_values = attributes.filter(|(i, (name, _))| {
            let mut before = self.attributes[..*i].iter();
            !before.any(|(known, _)| known == name)
        });
        let others = first_values.map(|(_, (name, _))| Attribute(*name));
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

/// What buckets are made of, borrowed from nothing.
#[derive(Clone, Debug)]
pub(crate) struct OwnedRequest {
    client: Option<Box<str>>,
    plan: Option<Box<str>>,
    route: Option<Box<str>>,
    method: Option<Box<str>>,
    ip: Option<IpAddr>,
    attributes: Vec<(Name, Box<str>)>,
}

impl OwnedRequest {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        Self {
            client: request.client.map(Into::into),
            plan: request.plan.map(Into::into),
            route: request.route.map(Into::into),
            method: request.method_name().map(Into::into),
            ip: request.address(),
            attributes: (request.attributes.iter())
                .map(|(name, value)| (*name, (*value).into()))
                .collect(),
        }
    }

    pub(crate) fn borrowed(&self) -> Request<'_> {
        let mut request = Request::new();
        request.client = self.client.as_deref();
        request.plan = self.plan.as_deref();
        request.route = self.route.as_deref();
        request.method = self.method.as_deref().map(Cow::Borrowed);
        request.attributes = (self.attributes.iter())
            .map(|(name, value)| (*name, &**value))
            .collect();
        match self.ip {
            Some(ip) => request.ip(ip),
            None => request,
        }
    }
}

impl Default for Request<'_> {
    fn default() -> Self {
        Self::new()
    }
}
