//! A request as rules see it.

use std::net::IpAddr;

use crate::bucket::Dimension;
#[cfg(feature = "redis")]
use crate::bucket::Part;
use crate::name::Name;

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
    method: Option<&'a str>,
    ip: Option<IpOctets>,
    attributes: Vec<(Name, &'a str)>,
    cost: u64,
}

/// An address as bytes, of which 4 or 16 count.
#[derive(Clone, Copy, Debug)]
struct IpOctets {
    bytes: [u8; 16],
    len: usize,
}

impl<'a> Request<'a> {
    /// A request that says nothing, at a cost of 1.
    #[must_use]
    pub fn new() -> Self {
        Self {
            client: None,
            plan: None,
            route: None,
            method: None,
            ip: None,
            attributes: Vec::new(),
            cost: 1,
        }
    }

    /// The caller: an account, a merchant, a user.
    #[must_use]
    pub fn client(mut self, client: &'a str) -> Self {
        self.client = Some(client);
        self
    }

    /// The caller's plan.
    #[must_use]
    pub fn plan(mut self, plan: &'a str) -> Self {
        self.plan = Some(plan);
        self
    }

    /// The endpoint, as a pattern rather than a path.
    #[must_use]
    pub fn route(mut self, route: &'a str) -> Self {
        self.route = Some(route);
        self
    }

    /// The HTTP method.
    #[must_use]
    pub fn method(mut self, method: &'a str) -> Self {
        self.method = Some(method);
        self
    }

    /// The caller's address. An IPv4 address written as IPv6 is the IPv4 address.
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

    /// Any other thing a rule may count by.
    #[must_use]
    pub fn attribute(mut self, name: Name, value: &'a str) -> Self {
        self.attributes.push((name, value));
        self
    }

    /// How many tokens it takes. 0 looks without charging.
    #[must_use]
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    pub(crate) fn tokens(&self) -> u64 {
        self.cost
    }

    pub(crate) fn plan_name(&self) -> Option<&str> {
        self.plan
    }

    /// All it says of itself, each once.
    #[cfg(feature = "redis")]
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
            Dimension::Method => self.method.map(str::as_bytes),
            Dimension::Ip => self.ip.as_ref().map(|ip| &ip.bytes[..ip.len]),
            Dimension::Attribute(name) => self
                .attributes
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.as_bytes()),
            Dimension::Key => None,
        }
    }
}

impl Default for Request<'_> {
    fn default() -> Self {
        Self::new()
    }
}
