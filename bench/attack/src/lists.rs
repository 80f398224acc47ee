//! The collected attacks, one file per list. To add a case is to add a line to one of them.
//!
//! A line may have placeholders, which [`fill`](crate::template::fill) replaces: `{w}`, a word that belongs to this case alone, in lower
//! case; `{W}`, the same in capitals; `{key}`, the case's own API key, and `{other}`, that of a client with a limit it never reaches;
//! `{host}`, a host of its own; `{address}`, an address of its own; `{i}`, the number of the attempt; `{long}` and `{many}`, see there.

pub(crate) mod floods;
pub(crate) mod framing;
pub(crate) mod headers;
pub(crate) mod hosts;
pub(crate) mod identity;
pub(crate) mod json;
pub(crate) mod methods;
pub(crate) mod paths;
pub(crate) mod proxies;
pub(crate) mod rls;
pub(crate) mod tokens;
pub(crate) mod trailers;

/// A configuration under attack. Rules and clients of the cases are added to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    /// Settings of `gateway`, each line with two spaces before it.
    pub(crate) gateway: &'static str,
    /// Other sections.
    pub(crate) sections: &'static str,
    /// Rules that all cases share, as items of a list.
    pub(crate) rules: &'static str,
    /// Who stands in front of the upstream.
    pub(crate) front: Front,
}

/// Who stands in front of the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// Tollgate's gateway.
    Gateway,
    /// nginx with docs/gateways/nginx.conf, which asks Tollgate's service.
    Nginx,
}

/// Cases of one kind: the same request with another text in the same place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) setup: &'static Setup,
    /// The request around the text.
    pub(crate) shape: Shape,
    pub(crate) place: Place,
    /// The text of a plain request that the limit counts for sure. It is sent three times first, and must arrive three times.
    pub(crate) plain: Option<&'static [u8]>,
    pub(crate) attacks: Attacks,
    /// What the judge looks for in the upstream's log.
    pub(crate) subject: Subject,
    /// How many requests of the subject may arrive.
    pub(crate) limit: usize,
    /// A rule or a client of each case, as an item of a list. Empty if all cases share one.
    pub(crate) rule: &'static str,
    pub(crate) client: &'static str,
    /// Whether all requests of a case come from one address; otherwise each comes from another one.
    pub(crate) one_source: bool,
}

/// The usual limit.
pub(crate) const THREE: usize = 3;

/// A request with room for a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) method: &'static str,
    pub(crate) target: &'static str,
    pub(crate) host: &'static str,
    /// Header lines, each with its end.
    pub(crate) lines: &'static str,
}

/// A request that no rule for paths, hosts or methods looks at.
pub(crate) const OPEN: Shape = Shape {
    method: "GET",
    target: "/open",
    host: "api.attack.test",
    lines: "",
};

/// Where the text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Method,
    Target,
    Host,
    /// Among the header lines. The text has no line end behind its last line.
    Lines,
    /// Behind a body in chunks.
    Trailers,
    /// The text is the request, byte for byte. Only in HTTP/1.
    Whole,
}

/// The texts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attacks {
    /// For both versions of HTTP, as far as a text can be said in HTTP/2.
    Texts(&'static [&'static [u8]]),
    /// Whole heads that only HTTP/2 can say.
    Heads(&'static [Head]),
}

/// Fields of a head in HTTP/2. The pseudo-headers of the shape come first, except for those that stand here, or here with a `!` before
/// them: these are left out.
pub(crate) type Head = &'static [(&'static str, &'static str)];

impl Attacks {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Texts(texts) => texts.len(),
            Self::Heads(heads) => heads.len(),
        }
    }
}

/// What a request has to be, by the upstream's own reading, to count.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject {
    /// Sent with the case's API key.
    Key,
    /// The same in `Authorization`, as a bearer token.
    Bearer,
    /// The same in `Authorization`, whatever the scheme.
    Credential,
    /// Sent by the user that is called `{w}`.
    User,
    /// Of the plan that is called `{w}`.
    Plan,
    /// Of the tenant that is called `{w}`.
    Tenant,
    /// With this header, whatever its value.
    HeaderNamed(&'static str),
    /// For this host.
    Host(&'static str),
    /// For a host with this end.
    HostBelow(&'static str),
    /// For this endpoint.
    Endpoint(&'static str),
    /// For an endpoint that begins so, and goes on.
    EndpointBelow(&'static str),
    /// For an endpoint that begins so, with one more segment.
    Parameter(&'static str),
    /// For this endpoint, with this method.
    Method(&'static str, &'static str),
    /// From the address `{address}`.
    Address,
    /// From the address of the connection.
    Source,
    /// With `{address}` in a header that only a trusted proxy may set.
    ClaimedAddress,
    /// With `{w}` in a trailer, or in a header that came as one.
    Trailer,
    /// With `{w}` anywhere in its target.
    Arrived,
}

/// All lists of requests that are forwarded.
pub(crate) fn forwarded() -> [(&'static str, Vec<Family>); 8] {
    [
        ("identity", identity::families()),
        ("proxies", proxies::families()),
        ("hosts", hosts::families()),
        ("headers", headers::families()),
        ("methods", methods::families()),
        ("paths", paths::families()),
        ("trailers", trailers::families()),
        ("framing", framing::families()),
    ]
}
