//! What a server is told of who asked whom for what.

use std::net::IpAddr;

use http::header::VIA;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::http1::push_field;

pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(super) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What a server is told, beside the fields of a request: put among them it would be hashed only to be written.
#[derive(Debug)]
pub(super) struct Told {
    /// The other end of the connection.
    pub(super) peer: Option<IpAddr>,
    /// Whom the peer asks for by its own account, each with a comma behind it: values of a field, so nothing but what may stand in one.
    pub(super) before_peer: Vec<u8>,
    /// `None` if what a trusted proxy says of it stands among the fields, here and below.
    pub(super) scheme: Option<&'static str>,
    pub(super) host: Option<HeaderValue>,
    /// What `Via` says, if it is sent.
    pub(super) via: Option<&'static str>,
}

impl Told {
    /// As lines of a head, each with its end.
    pub(super) fn write(&self, head: &mut Vec<u8>) {
        if let Some(peer) = self.peer {
            head.extend_from_slice(b"x-forwarded-for: ");
            self.write_chain(peer, head);
            head.extend_from_slice(b"\r\n");
        }
        if let Some(scheme) = self.scheme {
            head.extend_from_slice(b"x-forwarded-proto: ");
            head.extend_from_slice(scheme.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        if let Some(host) = &self.host {
            push_field(&X_FORWARDED_HOST, host, head);
        }
        if let Some(via) = self.via {
            head.extend_from_slice(b"via: ");
            head.extend_from_slice(via.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
    }

    /// As fields, for who writes fields only.
    pub(super) fn put_into(self, headers: &mut HeaderMap) {
        if let Some(peer) = self.peer {
            let mut chain = Vec::new();
            self.write_chain(peer, &mut chain);
            if let Ok(chain) = HeaderValue::try_from(chain) {
                headers.insert(X_FORWARDED_FOR, chain);
            }
        }
        if let Some(via) = self.via {
            headers.append(VIA, HeaderValue::from_static(via));
        }
        if let Some(scheme) = self.scheme {
            headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
        }
        if let Some(host) = self.host {
            headers.insert(X_FORWARDED_HOST, host);
        }
    }

    fn write_chain(&self, peer: IpAddr, text: &mut Vec<u8>) {
        text.extend_from_slice(&self.before_peer);
        push_address(peer.to_canonical(), text);
    }
}

/// By hand for the usual ones, as this is done for every request.
fn push_address(address: IpAddr, text: &mut Vec<u8>) {
    match address {
        IpAddr::V4(v4) => {
            let [first, rest @ ..] = v4.octets();
            push_octet(first, text);
            for octet in rest {
                text.push(b'.');
                push_octet(octet, text);
            }
        }
        // Into a vector, which takes everything.
        IpAddr::V6(_) => drop(std::io::Write::write_fmt(text, format_args!("{address}"))),
    }
}

fn push_octet(octet: u8, text: &mut Vec<u8>) {
    if octet >= 100 {
        text.push(b'0' + octet / 100);
    }
    if octet >= 10 {
        text.push(b'0' + octet / 10 % 10);
    }
    text.push(b'0' + octet % 10);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(peer: &str, before_peer: &str, host: Option<&'static str>) -> Told {
        Told {
            peer: Some(peer.parse().unwrap()),
            before_peer: before_peer.into(),
            scheme: Some("https"),
            host: host.map(HeaderValue::from_static),
            via: Some("2.0 tollgate"),
        }
    }

    /// The same in lines and in fields.
    fn both(told: Told) -> String {
        let mut head = Vec::new();
        told.write(&mut head);
        let mut headers = HeaderMap::new();
        told.put_into(&mut headers);
        let mut fields = Vec::new();
        for (name, value) in &headers {
            push_field(name, value, &mut fields);
        }
        let sorted = |text: &[u8]| {
            let text = String::from_utf8(text.to_vec()).unwrap();
            let mut lines: Vec<String> = text.split("\r\n").map(str::to_owned).collect();
            lines.sort();
            lines.join("\n")
        };
        assert_eq!(sorted(&head), sorted(&fields));
        String::from_utf8(head).unwrap()
    }

    #[test]
    fn lines_and_fields_say_the_same() {
        assert_eq!(
            both(told("192.0.2.1", "", Some("api.test"))),
            "x-forwarded-for: 192.0.2.1\r\nx-forwarded-proto: https\r\nx-forwarded-host: api.test\r\nvia: 2.0 tollgate\r\n"
        );
        assert_eq!(
            both(told("2001:db8::1", "198.51.100.1, ", None)),
            "x-forwarded-for: 198.51.100.1, 2001:db8::1\r\nx-forwarded-proto: https\r\nvia: 2.0 tollgate\r\n"
        );
        let mapped = both(told("::ffff:192.0.2.1", "", None));
        assert!(mapped.starts_with("x-forwarded-for: 192.0.2.1\r\n"));
        for octet in 0..=u8::MAX {
            let mut text = Vec::new();
            push_address([octet, 0, 10, octet].into(), &mut text);
            assert_eq!(text, format!("{octet}.0.10.{octet}").as_bytes());
        }
        let quiet = Told {
            peer: None,
            before_peer: Vec::new(),
            scheme: None,
            host: None,
            via: None,
        };
        assert_eq!(both(quiet), "");
    }
}
