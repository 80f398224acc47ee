//! A request as somebody describes it who is believed: a gateway that asks in plain words, an Envoy's descriptor, or an operator.

use std::borrow::Cow;
use std::net::IpAddr;

use http::HeaderMap;
use tollgate::{Dimension, ForwardedPath, HostError, Name, Path, PathError, Request, parse_host};
use tollgate_tower::policy::{Policy, Refusal};

/// Longest value of an attribute that is looked at, in bytes, as of a header at the gateway.
const MAX_VALUE_BYTES: usize = 1_024;

/// What is known of a request. Everything is optional.
#[derive(Debug, Default)]
pub(crate) struct Facts<'a> {
    pub(crate) client: Option<Cow<'a, str>>,
    pub(crate) plan: Option<Cow<'a, str>>,
    pub(crate) ip: Option<IpAddr>,
    pub(crate) route: Option<&'a str>,
    pub(crate) method: Option<&'a str>,
    pub(crate) host: Option<&'a str>,
    pub(crate) path: Option<Path<'a>>,
    pub(crate) attributes: Vec<(Name, Cow<'a, str>)>,
    pub(crate) cost: Option<u64>,
}

impl<'a> Facts<'a> {
    /// A path in its normal form; what follows a question mark is no part of it. Who asks forwards it as it came.
    pub(crate) fn set_path(&mut self, policy: &Policy, path: &'a str) -> Result<(), PathError> {
        let end = path.find(['?', '#']).unwrap_or(path.len());
        let path = path.get(..end).unwrap_or(path);
        let rules = policy.rules();
        self.path = Some(rules.read_path_forwarded(path, ForwardedPath::Original)?);
        Ok(())
    }

    /// A host, with or without a port.
    pub(crate) fn set_host(&mut self, host: &'a str) -> Result<(), HostError> {
        parse_host(host)?;
        self.host = Some(host);
        Ok(())
    }

    /// An attribute, if some rule looks at it: names are never made of what somebody sends. Says whether one does.
    ///
    /// A header may be a list. Conditions look at each of its members, as at the gateway, and rules count by the whole.
    pub(crate) fn add_attribute(
        &mut self,
        policy: &Policy,
        name: &str,
        value: impl Into<Cow<'a, str>>,
    ) -> Result<bool, Refusal> {
        let mut known = policy.rules().attribute_names().iter();
        let Some(known) = known.find(|known| known.as_str() == name) else {
            return Ok(false);
        };
        let value = value.into();
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

    /// Adds what the policy knows: the client's name as the gateway has it, an address in the form in which it is counted, and the plan
    /// of a known client.
    pub(crate) fn complete(&mut self, policy: &'a Policy) {
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

    /// Takes who has no name for whom its address stands, as a gateway would.
    pub(crate) fn name_by_address(&mut self, policy: &Policy) {
        if let (None, Some(ip)) = (&self.client, self.ip) {
            let caller = (policy.identity()).caller_by_address(ip, &HeaderMap::new());
            self.client = caller.client().map(|client| client.to_owned().into());
        }
    }

    /// Whether it says what a rule counts by. Who has no plan has said so.
    pub(crate) fn says(&self, dimension: Dimension) -> bool {
        match dimension {
            Dimension::Client => self.client.is_some(),
            Dimension::Ip => self.ip.is_some(),
            Dimension::Route => self.route.is_some() || self.path.is_some(),
            Dimension::Method => self.method.is_some(),
            Dimension::Attribute(name) => self.attributes.iter().any(|(said, _)| *said == name),
            _ => true,
        }
    }

    pub(crate) fn request(&self) -> Request<'_> {
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
        if let Some(route) = self.route {
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

/// A value that is too long is cut and marked, so that it is none of the values that rules name.
fn cut(mut value: Cow<'_, str>) -> Cow<'_, str> {
    if value.len() > MAX_VALUE_BYTES {
        let text = value.to_mut();
        text.truncate(text.floor_char_boundary(MAX_VALUE_BYTES));
        text.push('…');
    }
    value
}
