//! What a request asks for, as rules see it, whoever asks.

use std::borrow::Cow;

use http::header::{COOKIE, HOST};
use http::{HeaderMap, HeaderValue, Method};
use tollgate::{ForwardedPath, HostError, Name, Path, Request, RuleSet, parse_host};

use super::{Head, Refusal};

/// What attributes are called that are headers.
pub(super) const HEADER: &str = "header:";

/// So many bytes of a header's value are looked at; longer ones that begin alike are one.
const LONGEST_VALUE: usize = 1_024;

/// The most different lines of a header that conditions look at: with all of them joined, as many values as the engine compares.
const MAX_LINES: usize = 7;

/// Method, host, path, and the headers that rules look at.
#[derive(Clone, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) method: &'a Method,
    pub(crate) host: Option<Cow<'a, str>>,
    pub(crate) path: Path<'a>,
    attributes: Vec<(Name, Cow<'a, str>)>,
}

impl<'a> Target<'a> {
    /// A request whose path goes on in this form.
    pub(crate) fn of(
        rules: &RuleSet,
        head: &Head<'a>,
        forward: ForwardedPath,
    ) -> Result<Self, Refusal> {
        let path = rules.read_path_forwarded(head.uri.path(), forward)?;
        let host = host(head)?;
        let mut attributes = Vec::new();
        for name in rules.attribute_names() {
            add_header(&mut attributes, rules, *name, head.headers)?;
        }
        Ok(Self {
            method: head.method,
            host,
            path,
            attributes,
        })
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

/// The host that is asked for, as rules compare it. The target's own comes before the header's, as HTTP has it.
fn host<'a>(head: &Head<'a>) -> Result<Option<Cow<'a, str>>, Refusal> {
    let text = match head.uri.authority() {
        Some(authority) => authority.as_str(),
        None => {
            let mut lines = head.headers.get_all(HOST).iter();
            let Some(line) = lines.next().filter(|line| !line.is_empty()) else {
                return Ok(None);
            };
            if lines.any(|other| other != line) {
                return Err(Refusal::SeveralHosts);
            }
            line.to_str().map_err(|_| HostError::Name)?
        }
    };
    Ok(Some(parse_host(text)?))
}

/// Adds what a header says. Of several lines, servers take the first, the last, or all of them joined: so conditions look at each of
/// these, and what rules count by may not be said in two ways. A header that is there is there, whatever it says: what is no text is
/// made text, and what is long is cut and marked, so that it is none of the values that rules name.
fn add_header<'a>(
    attributes: &mut Vec<(Name, Cow<'a, str>)>,
    rules: &RuleSet,
    name: Name,
    headers: &'a HeaderMap,
) -> Result<(), Refusal> {
    let Some(header) = name.as_str().strip_prefix(HEADER) else {
        return Ok(());
    };
    let mut lines = headers.get_all(header).iter();
    let Some(first) = lines.next() else {
        return Ok(());
    };
    if lines.all(|line| line == first) {
        attributes.push((name, text_of(first)));
        return Ok(());
    }
    let all = || headers.get_all(header).iter();
    // HTTP/2 may send each cookie in a line of its own, and they mean one line.
    if header == COOKIE.as_str() {
        attributes.push((name, joined(all(), "; ").into()));
        return Ok(());
    }
    if rules.counted_attributes().contains(&name) {
        return Err(Refusal::Header(header.into()));
    }
    let mut different: Vec<&HeaderValue> = Vec::new();
    for line in all() {
        if different.contains(&line) {
            continue;
        }
        if different.len() == MAX_LINES {
            return Err(Refusal::Header(header.into()));
        }
        different.push(line);
    }
    attributes.push((name, joined(all(), ", ").into()));
    attributes.extend(different.into_iter().map(|line| (name, text_of(line))));
    Ok(())
}

fn joined<'a>(lines: impl Iterator<Item = &'a HeaderValue>, separator: &str) -> String {
    let mut all = String::new();
    for line in lines {
        if all.len() > LONGEST_VALUE {
            break;
        }
        if !all.is_empty() {
            all.push_str(separator);
        }
        all.push_str(&text_of(line));
    }
    cut(all.into()).into_owned()
}

/// A line as servers read it: without the spaces and tabs around it, which HTTP/2 carries and HTTP/1 does not.
fn text_of(line: &HeaderValue) -> Cow<'_, str> {
    let bytes = line.as_bytes().trim_ascii();
    let looked_at = bytes.get(..=LONGEST_VALUE).unwrap_or(bytes);
    cut(String::from_utf8_lossy(looked_at))
}

fn cut(mut text: Cow<'_, str>) -> Cow<'_, str> {
    if text.len() > LONGEST_VALUE {
        let text = text.to_mut();
        text.truncate(text.floor_char_boundary(LONGEST_VALUE));
        text.push('…');
    }
    text
}
