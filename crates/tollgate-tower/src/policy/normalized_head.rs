//! The head of a request as rules see it, without its client.

use std::borrow::Cow;
use std::iter;

use http::header::{COOKIE, HOST};
use http::{HeaderMap, HeaderValue, Method};
use tollgate::{ForwardedPath, HostError, Name, Path, Request, RuleSet, parse_host};

use super::{Head, Refusal};

/// What attributes are called that are headers.
pub(super) const HEADER: &str = "header:";

/// So many bytes of a header's value are looked at; longer ones that begin alike are one.
const LONGEST_VALUE: usize = 1_024;

/// Most values of a header that conditions name: with the header as a whole, as many as the engine compares.
const MAX_NAMED_VALUES: usize = Request::MAX_ATTRIBUTE_VALUES - 1;

/// Method, host, path, and the headers that rules look at, in the form in which rules compare them.
#[derive(Clone, Debug)]
pub(crate) struct NormalizedHead<'a> {
    pub(crate) method: &'a Method,
    pub(crate) host: Option<Cow<'a, str>>,
    pub(crate) path: Path<'a>,
    attributes: Vec<(Name, Cow<'a, str>)>,
}

impl<'a> NormalizedHead<'a> {
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

    /// The request of a client with this head. What the request has already comes first.
    pub(crate) fn sent_by<'r>(&'r self, caller: Request<'r>) -> Request<'r> {
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
///
/// The header as a whole comes first, which is what rules count by.
fn add_header<'a>(
    attributes: &mut Vec<(Name, Cow<'a, str>)>,
    rules: &RuleSet,
    name: Name,
    headers: &'a HeaderMap,
) -> Result<(), Refusal> {
    let Some(header) = name.as_str().strip_prefix(HEADER) else {
        return Ok(());
    };
    let lines = || headers.get_all(header).iter();
    let Some(first) = lines().next() else {
        return Ok(());
    };
    if lines().all(|line| line == first) {
        attributes.push((name, text_of(first)));
        if !first.as_bytes().contains(&b',') {
            return Ok(());
        }
    } else if header == COOKIE.as_str() {
        // HTTP/2 may send each cookie in a line of its own, and they mean one line.
        attributes.push((name, joined(lines(), "; ").into()));
        return Ok(());
    } else if rules.counted_attributes().contains(&name) {
        return Err(Refusal::Header(header.into()));
    } else {
        attributes.push((name, joined(lines(), ", ").into()));
    }
    let named = named_values(rules, name, lines().map(HeaderValue::as_bytes))?;
    attributes.extend(named.into_iter().map(|value| (name, value.into())));
    Ok(())
}

/// The values of a header that conditions name, among its lines and the members of lines that are lists. Servers and proxies may join
/// lines with commas, and split lists at them, so `eu, us` means the same in one line and in two.
pub(super) fn named_values<'v>(
    rules: &RuleSet,
    name: Name,
    lines: impl Iterator<Item = &'v [u8]>,
) -> Result<Vec<&'v str>, Refusal> {
    let mut named = Vec::new();
    let values = lines.flat_map(|line| iter::once(line).chain(line.split(|byte| *byte == b',')));
    for value in values {
        // Rules name only what is text.
        let Ok(value) = std::str::from_utf8(value.trim_ascii()) else {
            continue;
        };
        if !rules.names_value(name, value) || named.contains(&value) {
            continue;
        }
        if named.len() == MAX_NAMED_VALUES {
            let header = name.as_str().trim_start_matches(HEADER);
            return Err(Refusal::HeaderList(header.into()));
        }
        named.push(value);
    }
    Ok(named)
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
