//! A request as a policy sees it.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method};
use tollgate::{Name, Path, PathError, Request};

use super::{Head, Policy};
use crate::identity::Caller;

/// What attributes are called that are headers.
const HEADER: &str = "header:";

/// So many bytes of a header's value are looked at; longer ones that begin alike are one.
const LONGEST_VALUE: usize = 1_024;

/// A request, seen once: who calls, its path in its one spelling, and those of its headers that rules look at.
#[derive(Clone, Debug)]
pub struct View<'a> {
    caller: Caller,
    method: &'a Method,
    host: Option<&'a str>,
    path: Path<'a>,
    attributes: Vec<(Name, Cow<'a, str>)>,
}

impl<'a> View<'a> {
    pub(super) fn new(policy: &Policy, head: &Head<'a>, peer: IpAddr) -> Result<Self, PathError> {
        let rules = policy.rules();
        let headers = (rules.attribute_names().iter()).filter_map(|name| {
            let header = name.as_str().strip_prefix(HEADER)?;
            Some((*name, header_value(head.headers, header)?))
        });
        Ok(Self {
            // First, as a path that is refused needs no caller.
            path: rules.paths().normalise(head.uri.path())?,
            attributes: headers.collect(),
            caller: policy
                .identity()
                .caller(peer, head.headers, policy.clients()),
            method: head.method,
            host: host(head),
        })
    }

    /// Who calls.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The path, as it is matched and is to be forwarded.
    #[must_use]
    pub fn path(&self) -> &Path<'a> {
        &self.path
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// The host, as it was said.
    #[must_use]
    pub fn host(&self) -> Option<&'a str> {
        self.host
    }

    /// The request, ready for the engine.
    #[must_use]
    pub fn request(&self) -> Request<'_> {
        let mut request = (self.caller.request())
            .method(self.method.as_str())
            .path(&self.path);
        if let Some(host) = self.host {
            request = request.host(host);
        }
        for (name, value) in &self.attributes {
            request = request.attribute(*name, value);
        }
        request
    }
}

/// The target's own host comes before the header's, as HTTP has it.
fn host<'a>(head: &Head<'a>) -> Option<&'a str> {
    let named = || head.headers.get(HOST)?.to_str().ok();
    head.uri.host().or_else(named)
}

/// What a header says; said in several lines, they are one list. A header that is there is there, whatever it says: what is no text
/// is made text, and what is long is cut and marked, so that it is none of the values that rules name.
fn header_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<Cow<'a, str>> {
    let mut lines = headers.get_all(name).iter();
    let mut value = text_of(lines.next()?);
    for line in lines {
        if value.len() > LONGEST_VALUE {
            break;
        }
        let value = value.to_mut();
        value.push_str(", ");
        value.push_str(&text_of(line));
    }
    if value.len() > LONGEST_VALUE {
        let value = value.to_mut();
        value.truncate(value.floor_char_boundary(LONGEST_VALUE));
        value.push('…');
    }
    Some(value)
}

fn text_of(line: &HeaderValue) -> Cow<'_, str> {
    let bytes = line.as_bytes();
    String::from_utf8_lossy(bytes.get(..=LONGEST_VALUE).unwrap_or(bytes))
}
