//! What a request asks for, as rules see it, whoever asks.

use std::borrow::Cow;

use http::header::HOST;
use http::{HeaderMap, Method};
use tollgate::{Name, Path, PathError, Request, RuleSet};

use super::Head;

/// What attributes are called that are headers.
const HEADER: &str = "header:";

/// Longer values of a header are as if it were not there.
const LONGEST_VALUE: usize = 1_024;

/// Method, host, path, and the headers that rules look at.
#[derive(Clone, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) method: &'a Method,
    pub(crate) host: Option<&'a str>,
    pub(crate) path: Path<'a>,
    attributes: Vec<(Name, Cow<'a, str>)>,
}

impl<'a> Target<'a> {
    pub(crate) fn of(rules: &RuleSet, head: &Head<'a>) -> Result<Self, PathError> {
        let path = rules.paths().normalise(head.uri.path())?;
        let headers = (rules.attribute_names().iter()).filter_map(|name| {
            let header = name.as_str().strip_prefix(HEADER)?;
            Some((*name, header_value(head.headers, header)?))
        });
        Ok(Self {
            method: head.method,
            host: host(head),
            path,
            attributes: headers.collect(),
        })
    }

    /// The request of somebody who asks for this. What it says already comes first.
    pub(crate) fn asked_by<'r>(&'r self, caller: Request<'r>) -> Request<'r> {
        let mut request = caller.method(self.method.as_str()).path(&self.path);
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

/// What a header says; said in several lines, they are one list.
fn header_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<Cow<'a, str>> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next()?.to_str().ok()?;
    let mut value = Cow::Borrowed(first);
    for line in lines {
        let value = value.to_mut();
        value.push_str(", ");
        value.push_str(line.to_str().ok()?);
        if value.len() > LONGEST_VALUE {
            return None;
        }
    }
    (value.len() <= LONGEST_VALUE).then_some(value)
}
