//! The host that a request is for, in the one form in which rules compare it. Knows no rules.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;

/// The longest name of a host, in bytes.
pub(crate) const LONGEST_HOST: usize = 253;

/// Parses `host` or `host:port` as a client sends it. The host is a name, an IPv4 address, or an IPv6 address in brackets; the port
/// is a number up to 65535.
///
/// Returns the host as rules compare it: in small letters, without the port, and without the dot at its end; an IPv6 address in its
/// shortest spelling. Everything else is refused, as servers read it in different ways, and a rule for a host could be evaded by it.
///
/// ```
/// use tollgate::parse_host;
///
/// assert_eq!(parse_host("API.example.com.:8443")?, "api.example.com");
/// assert_eq!(parse_host("[2001:DB8:0::1]:80")?, "[2001:db8::1]");
/// assert!(parse_host("api.example.com:80:80").is_err());
/// assert!(parse_host("user@api.example.com").is_err());
/// # Ok::<(), tollgate::HostError>(())
/// ```
///
/// # Errors
/// When it is anything else.
pub fn parse_host(text: &str) -> Result<Cow<'_, str>, HostError> {
    if let Some(bracketed) = text.strip_prefix('[') {
        let (inside, port) = bracketed.split_once(']').ok_or(HostError::Address)?;
        check_port(port)?;
        let address: Ipv6Addr = inside.parse().map_err(|_| HostError::Address)?;
        return Ok(match text.get(..inside.len() + 2) {
            // Mostly it is written like this.
            Some(written) if is_shortest(written, address) => written.into(),
            _ => format!("[{address}]").into(),
        });
    }
    let end = text.find(':').unwrap_or(text.len());
    let (name, port) = text.split_at(end);
    check_port(port)?;
    let name = name.strip_suffix('.').unwrap_or(name);
    check_name(name)?;
    let is_small = !name.bytes().any(|byte| byte.is_ascii_uppercase());
    Ok(match is_small {
        true => name.into(),
        false => name.to_ascii_lowercase().into(),
    })
}

fn is_shortest(written: &str, address: Ipv6Addr) -> bool {
    use fmt::Write as _;
    /// Compares what is written with what is expected.
    struct Rest<'a>(&'a str);
    impl fmt::Write for Rest<'_> {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            self.0 = self.0.strip_prefix(part).ok_or(fmt::Error)?;
            Ok(())
        }
    }
    let mut rest = Rest(written);
    write!(rest, "[{address}]").is_ok() && rest.0.is_empty()
}

/// Nothing, or a colon and a number.
fn check_port(text: &str) -> Result<(), HostError> {
    if text.is_empty() {
        return Ok(());
    }
    let digits = text.strip_prefix(':').ok_or(HostError::Port)?;
    let is_number = (1..=5).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    match is_number && digits.parse::<u16>().is_ok() {
        true => Ok(()),
        false => Err(HostError::Port),
    }
}

/// Parts of letters, digits, `-` and `_`, with a dot between them.
fn check_name(name: &str) -> Result<(), HostError> {
    if name.is_empty() {
        return Err(HostError::Empty);
    }
    if name.len() > LONGEST_HOST {
        return Err(HostError::TooLong);
    }
    let mut is_behind_dot = true;
    for byte in name.bytes() {
        match byte {
            b'.' if is_behind_dot => return Err(HostError::Name),
            b'.' => is_behind_dot = true,
            b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => is_behind_dot = false,
            _ => return Err(HostError::Name),
        }
    }
    match is_behind_dot {
        true => Err(HostError::Name),
        false => Ok(()),
    }
}

/// Text that is not a host: see [`parse_host`].
///
/// ```
/// use tollgate::{HostError, parse_host};
///
/// assert_eq!(parse_host("api.example.com:80:80"), Err(HostError::Port));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostError {
    /// There is nothing, or only a port.
    Empty,
    /// More than 253 bytes.
    TooLong,
    /// Neither a name nor an IPv4 address.
    Name,
    /// Brackets around something else than an IPv6 address.
    Address,
    /// Something else than a number from 0 to 65535 where the port stands.
    Port,
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the host is empty"),
            Self::TooLong => write!(f, "the host is longer than {LONGEST_HOST} bytes"),
            Self::Name => f.write_str(
                "the host is not a name, an IPv4 address or an IPv6 address in brackets",
            ),
            Self::Address => {
                f.write_str("the host has brackets around something else than an IPv6 address")
            }
            Self::Port => f.write_str("the port of the host is not a number from 0 to 65535"),
        }
    }
}

impl std::error::Error for HostError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_host_is_one_host() {
        for (host, spellings) in [
            (
                "lim.example.com",
                &[
                    "lim.example.com",
                    "LIM.Example.COM",
                    "lim.example.com.",
                    "lim.example.com:80",
                    "lim.example.com.:65535",
                    "lim.example.com:0",
                    "lim.example.com:00080",
                ][..],
            ),
            ("a", &["a", "A:1"]),
            ("my_host-1", &["my_host-1"]),
            ("203.0.113.7", &["203.0.113.7", "203.0.113.7:8080"]),
            (
                "[2001:db8::1]",
                &[
                    "[2001:db8::1]",
                    "[2001:DB8::1]:443",
                    "[2001:0db8:0:0:0:0:0:1]",
                    "[2001:db8::0.0.0.1]",
                ],
            ),
            ("[::1]", &["[::1]", "[0:0:0:0:0:0:0:1]:80"]),
        ] {
            for spelling in spellings {
                assert_eq!(parse_host(spelling).as_deref(), Ok(host), "{spelling}");
            }
        }
        assert!(matches!(parse_host("[::1]:80"), Ok(Cow::Borrowed(_))));
    }

    #[test]
    fn what_is_no_host_is_refused() {
        let long = "a".repeat(254);
        for (text, error) in [
            ("", HostError::Empty),
            (":80", HostError::Empty),
            (".", HostError::Empty),
            ("..", HostError::Name),
            ("a..", HostError::Name),
            ("a..b", HostError::Name),
            (".a", HostError::Name),
            ("user@a", HostError::Name),
            ("a b", HostError::Name),
            ("a/b", HostError::Name),
            ("a,b", HostError::Name),
            ("a%2eb", HostError::Name),
            ("a\u{e9}", HostError::Name),
            ("a\t", HostError::Name),
            ("a]", HostError::Name),
            (&long, HostError::TooLong),
            ("[", HostError::Address),
            ("[]", HostError::Address),
            ("[a]", HostError::Address),
            ("[lim.example.com]", HostError::Address),
            ("[203.0.113.7]", HostError::Address),
            ("[fe80::1%eth0]", HostError::Address),
            ("[::1", HostError::Address),
            ("[::1]80", HostError::Port),
            ("[::1]:", HostError::Port),
            ("[::1]]:80", HostError::Port),
            ("2001:db8::1", HostError::Port),
            ("a:", HostError::Port),
            ("a:x", HostError::Port),
            ("a:80:80", HostError::Port),
            ("a:65536", HostError::Port),
            ("a:000080", HostError::Port),
            ("a:+80", HostError::Port),
            ("a:80.", HostError::Port),
            ("user:pass@a", HostError::Port),
        ] {
            assert_eq!(parse_host(text), Err(error), "{text}");
        }
    }
}
