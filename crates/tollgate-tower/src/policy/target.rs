//! What a request asks for, as rules see it, whoever asks.

use std::borrow::Cow;

use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method};
use tollgate::{Name, Path, Request, RuleSet};

use super::{Head, Refusal};

/// What attributes are called that are headers.
const HEADER: &str = "header:";

/// So many bytes of a header's value are looked at; longer ones that begin alike are one.
const LONGEST_VALUE: usize = 1_024;

/// Method, host, path, and the headers that rules look at.
#[derive(Clone, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) method: Cow<'a, Method>,
    pub(crate) host: Option<Cow<'a, str>>,
    pub(crate) path: Path<'a>,
    attributes: Vec<(Name, Cow<'a, str>)>,
}

impl<'a> Target<'a> {
    pub(crate) fn of(rules: &RuleSet, head: &Head<'a>) -> Result<Self, Refusal> {
        let path = rules.paths().normalise(head.uri.path())?;
        let headers = (rules.attribute_names().iter()).filter_map(|name| {
            let header = name.as_str().strip_prefix(HEADER)?;
            Some((*name, header_value(head.headers, header)?))
        });
        Ok(Self {
            method: Cow::Borrowed(head.method),
            host: host(head).map(Cow::Borrowed),
            path,
            attributes: headers.collect(),
        })
    }

    /// The same, for who keeps it.
    pub(crate) fn into_owned(self) -> Target<'static> {
        let owned = |(name, value): (Name, Cow<'a, str>)| (name, value.into_owned().into());
        Target {
            method: Cow::Owned(self.method.into_owned()),
            host: self.host.map(|host| host.into_owned().into()),
            path: self.path.into_owned(),
            attributes: self.attributes.into_iter().map(owned).collect(),
        }
    }

    /// The request of somebody who asks for this. What it says already comes first.
    pub(crate) fn asked_by<'r>(&'r self, caller: Request<'r>) -> Request<'r> {
        let mut request = caller.method(self.method.as_str()).path(&self.path);
        if let Some(host) = &self.host {
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
