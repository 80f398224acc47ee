//! Heads of requests and responses: the fast path writes what hyper would write, or declines.
//!
//! The input is text: the method and target of a request, or the status and length of a response, and a header a line.

#![no_main]

#[path = "../../crates/tollgate-http/tests/it/differential.rs"]
#[allow(dead_code)]
mod differential;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{Empty, Full};
use libfuzzer_sys::fuzz_target;

fn headers<'i>(lines: impl Iterator<Item = &'i [u8]>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = line.split_at(colon);
        let name = HeaderName::from_bytes(name).ok()?;
        headers.append(name, HeaderValue::from_bytes(value.get(1..)?.trim_ascii()).ok()?);
    }
    Some(headers)
}

fn compare(input: &[u8]) -> Option<()> {
    let mut lines = input.split(|byte| *byte == b'\n');
    let mut words = lines.next()?.split(|byte| *byte == b' ');
    let (first, second) = (words.next()?, words.next()?);
    let headers = headers(lines)?;
    if first.first()?.is_ascii_digit() {
        let length: usize = std::str::from_utf8(second).ok()?.parse().ok()?;
        let mut response = Response::new(Full::from(vec![b'a'; length.min(10_000)]));
        *response.status_mut() = StatusCode::from_bytes(first).ok()?;
        *response.headers_mut() = headers;
        differential::compare_response_head(&response);
    } else {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = Method::from_bytes(first).ok()?;
        *request.uri_mut() = Uri::try_from(second).ok()?;
        *request.headers_mut() = headers;
        differential::compare_request_head(&request);
    }
    Some(())
}

fuzz_target!(|input: &[u8]| {
    let _ = compare(input);
});
