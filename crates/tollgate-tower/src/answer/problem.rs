//! Bodies for programs and people: problem details as JSON.

use std::fmt::Write as _;

use http::StatusCode;
use tollgate::PathError;

use super::denial::{Denial, Reason};
use super::sheet::push_number;

/// How the body of a denial begins: all that is the same for each.
const QUOTA_EXCEEDED: &str = r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many requests","status":429,"detail":""#;
const REDUCED_CAPACITY: &str = r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Service temporarily unavailable","status":503,"detail":""#;

/// A body of the usual length, and the fields of its head behind it.
const USUAL: usize = 512;

pub(super) fn of_denial(denial: &Denial<'_>) -> String {
    let mut body = String::with_capacity(USUAL);
    body.push_str(match denial.reason() {
        Reason::Closed => REDUCED_CAPACITY,
        _ => QUOTA_EXCEEDED,
    });
    denial.push_detail(&mut body);
    body.push_str("\",\"violated-policies\":[");
    for (i, rule) in denial.violated().enumerate() {
        // Names are made of characters that need no escapes.
        body.push_str(if i > 0 { ",\"" } else { "\"" });
        body.push_str(rule);
        body.push('"');
    }
    body.push(']');
    if let (Some(seconds), Some(ms)) = (denial.retry_after_seconds(), denial.retry_after_ms()) {
        body.push_str(",\"retry_after\":");
        push_number(seconds, &mut body);
        body.push_str(",\"retry_after_ms\":");
        push_number(ms, &mut body);
    }
    body.push('}');
    body
}

pub(super) fn of_failure(status: StatusCode, detail: &str) -> String {
    let title = status.canonical_reason().unwrap_or("Error");
    let mut body = start("about:blank", title, status.as_u16(), detail);
    body.push('}');
    body
}

/// For the caller, who cannot change our configuration.
pub(crate) fn path_detail(error: &PathError) -> String {
    let text = error.to_string();
    let detail = text.split("; `paths:").next().unwrap_or_default();
    detail.to_owned()
}

fn start(kind: &str, title: &str, status: u16, detail: &str) -> String {
    let mut body = String::with_capacity(320);
    body.push_str("{\"type\":");
    push_text(kind, &mut body);
    body.push_str(",\"title\":");
    push_text(title, &mut body);
    body.push_str(",\"status\":");
    push_number(status.into(), &mut body);
    body.push_str(",\"detail\":");
    push_text(detail, &mut body);
    body
}

fn push_text(text: &str, body: &mut String) {
    body.push('"');
    match needs_escapes(text) {
        false => body.push_str(text),
        true => push_escaped(text, body),
    }
    body.push('"');
}

/// Looks at all bytes, without a way out: that way many are looked at in one step.
fn needs_escapes(text: &str) -> bool {
    let is_odd = |byte: u8| !(b' '..=b'~').contains(&byte) || byte == b'"' || byte == b'\\';
    text.bytes().fold(false, |odd, byte| odd | is_odd(byte))
}

fn push_escaped(text: &str, body: &mut String) {
    for c in text.chars() {
        match c {
            '"' | '\\' => body.extend(['\\', c]),
            c if c.is_control() => {
                // Into a string, which takes everything.
                let _ = write!(body, "\\u{:04x}", u32::from(c));
            }
            c => body.push(c),
        }
    }
}
