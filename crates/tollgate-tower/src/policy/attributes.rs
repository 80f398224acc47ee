//! A request as somebody who is trusted describes it.

use std::borrow::Cow;
use std::net::IpAddr;

use http::HeaderMap;
use tollgate::{Dimension, ForwardedPath, HostError, Name, Path, PathError, Request, parse_host};

use super::{Policy, Refusal};
use crate::identity::{
    Caller, HeaderError, IdentifiedBy, LONGEST_ID, LONGEST_PLAN, Outcome, check_text,
};

/// Longest value of an attribute that is compared, in bytes, as of a header at the gateway.
const MAX_VALUE_BYTES: usize = 1_024;

/// What may surround the value of a header without being part of it.
const SPACES: [char; 2] = [' ', '\t'];

/// A request as somebody who is trusted describes it: a closure of your own, another gateway, or an operator. Everything is optional.
///
/// ```
/// use tollgate_tower::policy::RequestAttributes;
///
/// let request = RequestAttributes::new().client("merchant_123").plan("enterprise").cost(10);
/// assert_eq!(request.client.as_deref(), Some("merchant_123"));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RequestAttributes<'a> {
    /// The client: an account, a merchant, a user.
    pub client: Option<Cow<'a, str>>,
    /// Its plan.
    pub plan: Option<Cow<'a, str>>,
    /// Its address.
    pub ip: Option<IpAddr>,
    /// The endpoint, as a pattern.
    pub route: Option<Cow<'a, str>>,
    /// The method.
    pub method: Option<&'a str>,
    /// The host, with or without a port.
    pub host: Option<&'a str>,
    /// The path in its normal form.
    pub path: Option<Path<'a>>,
    /// Anything else that a rule may count by.
    pub attributes: Vec<(Name, Cow<'a, str>)>,
    /// What it costs, whatever the rules say.
    pub cost: Option<u64>,
}

impl<'a> RequestAttributes<'a> {
    /// A request of which nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the client: an account, a merchant, a user.
    #[must_use]
    pub fn client(mut self, client: impl Into<Cow<'a, str>>) -> Self {
        self.client = Some(client.into());
        self
    }

    /// Names the client's plan. If it is left out, it is that of the known client.
    #[must_use]
    pub fn plan(mut self, plan: impl Into<Cow<'a, str>>) -> Self {
        self.plan = Some(plan.into());
        self
    }

    /// Names the endpoint, as a pattern (axum's `MatchedPath`). If it is left out, the rules find it by the path.
    #[must_use]
    pub fn route(mut self, route: impl Into<Cow<'a, str>>) -> Self {
        self.route = Some(route.into());
        self
    }

    /// Sets the client's address. It is counted like others: IPv6 by network.
    #[must_use]
    pub fn ip(mut self, ip: IpAddr) -> Self {
        self.ip = Some(ip);
        self
    }

    /// Adds anything else that a rule may count by.
    #[must_use]
    pub fn attribute(mut self, name: Name, value: impl Into<Cow<'a, str>>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    /// Sets the cost, whatever the rules say. 0 looks without charging.
    #[must_use]
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Names the client by a value that a client sent, such as a header that another gateway read.
    ///
    /// # Errors
    /// When the gateway refuses a header with this value: it is longer than 256 bytes, or has characters that cannot be shown.
    pub fn set_client(&mut self, id: &'a str) -> Result<(), Outcome> {
        let id = id.trim_matches(SPACES);
        check_text(id, LONGEST_ID)?;
        self.client = Some(id.into());
        Ok(())
    }

    /// Names the plan by a value that a client sent, such as a header that another gateway read.
    ///
    /// # Errors
    /// As [`set_client`](Self::set_client), with at most 64 bytes.
    pub fn set_plan(&mut self, plan: &'a str) -> Result<(), Outcome> {
        let plan = plan.trim_matches(SPACES);
        check_text(plan, LONGEST_PLAN)?;
        self.plan = Some(plan.into());
        Ok(())
    }

    /// Sets the path, without its query, in its normal form. The gateway that describes the request forwards it as it came.
    ///
    /// # Errors
    /// When servers may read it in ways that meet different rules.
    pub fn set_path(&mut self, policy: &Policy, path: &'a str) -> Result<(), PathError> {
        let end = path.find(['?', '#']).unwrap_or(path.len());
        let path = path.get(..end).unwrap_or(path);
        let rules = policy.rules();
        self.path = Some(rules.read_path_forwarded(path, ForwardedPath::Original)?);
        Ok(())
    }

    /// Sets the host, with or without a port.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn set_host(&mut self, host: &'a str) -> Result<(), HostError> {
        parse_host(host)?;
        self.host = Some(host);
        Ok(())
    }

    /// Adds an attribute if some rule looks at it, and returns whether one does: names are never made of what somebody sends.
    ///
    /// A header may be a list. Conditions compare each of its members, as at the gateway, and rules count by the whole.
    ///
    /// # Errors
    /// When it has more values than are compared.
    pub fn add_attribute(
        &mut self,
        policy: &Policy,
        name: &str,
        value: impl Into<Cow<'a, str>>,
    ) -> Result<bool, Refusal> {
        let mut known = policy.rules().attribute_names().iter();
        let Some(known) = known.find(|known| known.as_str() == name) else {
            return Ok(false);
        };
        let value = without_spaces(value.into());
        let mut members = Vec::new();
        if name.starts_with("header:") && value.contains(',') {
            members = policy.header_values(*known, &value)?;
        }
        // An Envoy may be told to say a key several times.
        let said = self.attributes.iter().filter(|(said, _)| said == known);
        if said.count() + 1 + members.len() > Request::MAX_ATTRIBUTE_VALUES {
            return Err(Refusal::HeaderList(name.into()));
        }
        let members: Vec<_> = (members.into_iter())
            .map(|member| (*known, Cow::Owned(member.to_owned())))
            .collect();
        self.attributes.push((*known, cut(value)));
        self.attributes.extend(members);
        Ok(true)
    }

    /// Adds what the policy knows: the client's name as the gateway has it, the address in the form in which it is counted, and the
    /// plan of a known client. Spaces and tabs around values are removed, as from headers at the gateway.
    pub fn complete(&mut self, policy: &'a Policy) {
        self.trim();
        if let Some(client) = &mut self.client
            && let Cow::Owned(name) = policy.client_name(client)
        {
            *client = name.into();
        }
        if let Some(ip) = self.ip {
            let caller = (policy.identity()).caller_by_address(ip, &HeaderMap::new());
            self.ip = Some(caller.ip());
        }
        if let (Some(client), None) = (&self.client, &self.plan) {
            self.plan = policy.clients().plan_of(client).map(Cow::Borrowed);
        }
    }

    /// Removes spaces and tabs around values. HTTP/2 carries them in headers and HTTP/1 does not, so servers ignore them.
    fn trim(&mut self) {
        let values = self.attributes.iter_mut().map(|(_, value)| value);
        let named = [&mut self.client, &mut self.plan].into_iter().flatten();
        for value in values.chain(named) {
            *value = without_spaces(std::mem::take(value));
        }
    }

    /// Names a client that has no name by its address, as a gateway would.
    pub fn name_by_address(&mut self, policy: &Policy) {
        if let (None, Some(ip)) = (&self.client, self.ip) {
            let caller = (policy.identity()).caller_by_address(ip, &HeaderMap::new());
            self.client = caller.client().map(|client| client.to_owned().into());
        }
    }

    /// Whether it has what a rule counts by. A missing plan means that the client has none.
    #[must_use]
    pub fn says(&self, dimension: Dimension) -> bool {
        match dimension {
            Dimension::Client => self.client.is_some(),
            Dimension::Ip => self.ip.is_some(),
            Dimension::Route => self.route.is_some() || self.path.is_some(),
            Dimension::Method => self.method.is_some(),
            Dimension::Attribute(name) => self.attributes.iter().any(|(said, _)| *said == name),
            _ => true,
        }
    }

    /// Whose request it is. What is left out is found by the peer and the headers. The identity's headers are judged only if the
    /// client is left out, because nothing else depends on them.
    pub(crate) fn caller(
        &mut self,
        policy: &Policy,
        peer: IpAddr,
        headers: &HeaderMap,
    ) -> Result<Caller, HeaderError> {
        self.trim();
        let identity = policy.identity();
        let given = (self.ip).map(|ip| identity.caller_by_address(ip, &HeaderMap::new()).ip());
        let Some(client) = self.client.take() else {
            let mut caller = identity.caller(peer, headers, policy.clients())?;
            if let Some(plan) = self.plan.take() {
                caller.plan = Some(plan.as_ref().into());
            }
            caller.ip = given.unwrap_or(caller.ip);
            return Ok(caller);
        };
        let client = policy.client_name(&client).into_owned();
        let plan = match self.plan.take() {
            Some(plan) => Some(plan.as_ref().into()),
            None => match policy.clients().plan_of(&client) {
                Some(plan) => Some(plan.into()),
                None => identity.claimed_plan(peer, headers)?.map(Into::into),
            },
        };
        Ok(Caller {
            client: Some(client),
            ip: given.unwrap_or_else(|| identity.caller_by_address(peer, headers).ip()),
            plan,
            how: IdentifiedBy::Program,
        })
    }

    /// The request, ready for the engine.
    pub fn request(&self) -> Request<'_> {
        let mut request = Request::new();
        if let Some(client) = &self.client {
            request = request.client(client);
        }
        if let Some(plan) = &self.plan {
            request = request.plan(plan);
        }
        if let Some(ip) = self.ip {
            request = request.ip(ip);
        }
        if let Some(route) = &self.route {
            request = request.route(route);
        }
        if let Some(method) = self.method {
            request = request.method(method);
        }
        if let Some(host) = self.host {
            request = request.host(host);
        }
        if let Some(path) = &self.path {
            request = request.path(path);
        }
        for (name, value) in &self.attributes {
            request = request.attribute(*name, value);
        }
        if let Some(cost) = self.cost {
            request = request.cost(cost);
        }
        request
    }
}

fn without_spaces(value: Cow<'_, str>) -> Cow<'_, str> {
    match value {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim_matches(SPACES)),
        Cow::Owned(text) => match text.trim_matches(SPACES) {
            trimmed if trimmed.len() < text.len() => Cow::Owned(trimmed.to_owned()),
            _ => Cow::Owned(text),
        },
    }
}

/// A value that is too long is cut and marked, so that it is none of the values that rules name.
fn cut(mut value: Cow<'_, str>) -> Cow<'_, str> {
    if value.len() > MAX_VALUE_BYTES {
        let text = value.to_mut();
        text.truncate(text.floor_char_boundary(MAX_VALUE_BYTES));
        text.push('…');
    }
    value
}
