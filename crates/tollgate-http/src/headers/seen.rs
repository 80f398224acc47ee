//! Which fields of a head need care.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Which of the fields are there that are not passed on as they are: found in one walk, as most heads have none or one of them, and
/// to ask for each would be to hash each name.
#[derive(Clone, Copy)]
pub(crate) struct Seen(u16);

impl Seen {
    pub(crate) const CONNECTION: u16 = 1;
    pub(crate) const TRANSFER_ENCODING: u16 = 1 << 1;
    pub(crate) const TE: u16 = 1 << 2;
    pub(crate) const UPGRADE: u16 = 1 << 3;
    /// Others that are meant for the next hop alone.
    pub(crate) const HOP: u16 = 1 << 4;
    pub(crate) const EXPECT: u16 = 1 << 5;
    /// What other proxies say of a caller, but for `X-Forwarded-For`, `-Host` and `-Proto`.
    pub(crate) const CLAIM: u16 = 1 << 6;
    pub(crate) const FORWARDED_FOR: u16 = 1 << 7;
    pub(crate) const FORWARDED_HOST_OR_PROTO: u16 = 1 << 8;
    pub(crate) const HOST: u16 = 1 << 9;
    pub(crate) const CONTENT_TYPE: u16 = 1 << 10;
    pub(crate) const CONTENT_LENGTH: u16 = 1 << 11;

    pub(crate) fn in_all(headers: &HeaderMap) -> Self {
        Self(headers.keys().fold(0, |seen, name| seen | Self::of(name)))
    }

    /// The same, and each value of the host on the way.
    pub(crate) fn in_each<'a>(
        headers: &'a HeaderMap,
        mut host: impl FnMut(&'a HeaderValue),
    ) -> Self {
        let mut all = 0;
        for (name, value) in headers {
            let seen = Self::of(name);
            all |= seen;
            if seen == Self::HOST {
                host(value);
            }
        }
        Self(all)
    }

    fn of(name: &HeaderName) -> u16 {
        match name.as_str() {
            "connection" => Self::CONNECTION,
            "transfer-encoding" => Self::TRANSFER_ENCODING,
            "te" => Self::TE,
            "upgrade" => Self::UPGRADE,
            "keep-alive" | "proxy-connection" | "proxy-authenticate" | "proxy-authorization" => {
                Self::HOP
            }
            "expect" => Self::EXPECT,
            "forwarded" | "x-forwarded-port" | "x-forwarded-prefix" | "x-real-ip" => Self::CLAIM,
            "x-forwarded-for" => Self::FORWARDED_FOR,
            "x-forwarded-host" | "x-forwarded-proto" => Self::FORWARDED_HOST_OR_PROTO,
            "host" => Self::HOST,
            "content-type" => Self::CONTENT_TYPE,
            "content-length" => Self::CONTENT_LENGTH,
            _ => 0,
        }
    }

    pub(crate) fn has(self, one_of: u16) -> bool {
        self.0 & one_of != 0
    }
}
