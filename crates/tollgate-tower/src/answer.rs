//! From a decision to HTTP: header fields, bodies and gRPC statuses. What is said depends on the decision and on what was asked; it knows no
//! limiter, no service and no time but the decision's own.
//!
//! ## Fields
//! | field | value | family |
//! |---|---|---|
//! | `X-RateLimit-Limit`, `-Remaining` | of the tier that bound the decision | legacy |
//! | `X-RateLimit-Reset` | Unix time in seconds at which that tier is full again | legacy |
//! | `RateLimit-Policy` | `"client";q=50;w=5`, one item per tier: capacity, window in seconds | standard |
//! | `RateLimit` | `"client";r=49;t=1`, one item per tier: what is left, seconds until it is full again | standard |
//! | `Retry-After` | whole seconds; on denials only, and only where waiting helps | of its own |
//! | `X-RateLimit-Source` | where the decision came from: [`Source::as_str`](tollgate::Source::as_str) | of its own, off by default |
//!
//! The standard family is that of draft-ietf-httpapi-ratelimit-headers, version 8 and later. All seconds are rounded up, so that who
//! waits so long has waited long enough. Shadow tiers are left out: the draft has no word for a quota that is only watched, and tells
//! receivers to ignore parameters that they do not know, so a marked shadow would be taken for a limit.
//!
//! ## What is there already stays, unless ours is stricter
//! A response may come with such fields from whoever answered it. What they say is never loosened, nor dropped for something weaker:
//!
//! - **legacy**: three fields that belong together, so the three of one side win: ours if our remaining is smaller, else theirs. If
//!   theirs cannot be read, it stays, as nobody can say that it is weaker.
//! - **standard**: lists, so ours are added as a line of their own. If theirs is of an older draft (`limit=100, remaining=50`), it
//!   stays alone, as a reader could make nothing of both in one field.
//! - **`Retry-After`**: the longer wait, be it seconds or a date. One that cannot be read stays.

mod denial;
mod dialect;
mod grpc;
mod limit_headers;
mod problem;
mod sheet;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tollgate::Decision;

pub use denial::{Denial, Reason};
pub use dialect::Dialect;
pub(crate) use problem::path_detail;
use sheet::Sheet;

/// The media type of problem details.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Which headers tell clients about their limits. All but [`source`](Self::source) by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderFamilies {
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset`.
    pub legacy: bool,
    /// `RateLimit-Policy` and `RateLimit`.
    pub standard: bool,
    /// `Retry-After` on denials. Who does not hear it can only guess when to come again.
    pub retry_after: bool,
    /// `X-RateLimit-Source`: where the decision came from. It shows whether the shared store decided, or this process without it.
    pub source: bool,
}

static SOURCE: HeaderName = HeaderName::from_static("x-ratelimit-source");

impl HeaderFamilies {
    /// Neither family. `Retry-After` is sent all the same.
    pub const NONE: Self = Self {
        legacy: false,
        standard: false,
        retry_after: true,
        source: false,
    };

    /// Adds what a decision says to the fields of a response, by the rules of this [module](self).
    ///
    /// ```
    /// use http::HeaderMap;
    /// use tollgate::{Dimension, LocalLimiter, Request, Rule};
    /// use tollgate_tower::answer::HeaderFamilies;
    ///
    /// let limiter = LocalLimiter::new()
    ///     .with_rules([Rule::new("client", "10/s burst 50".parse()?)?.per([Dimension::Client])])?;
    /// let decision = limiter.decide(&Request::new().client("merchant_123"));
    ///
    /// let mut headers = HeaderMap::new();
    /// HeaderFamilies::default().add(&decision, &mut headers);
    /// assert_eq!(headers["x-ratelimit-remaining"], "49");
    /// assert_eq!(headers["ratelimit-policy"], r#""client";q=50;w=5"#);
    /// assert_eq!(headers["ratelimit"], r#""client";r=49;t=1"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add(self, decision: &Decision, headers: &mut HeaderMap) {
        let mut sheet = Sheet::new();
        self.write(decision, decision.retry_after(), headers, &mut sheet);
        sheet.finish(headers);
    }

    fn write(
        self,
        decision: &Decision,
        wait: Option<Duration>,
        headers: &HeaderMap,
        sheet: &mut Sheet,
    ) {
        let others_spoke = speak_of_limits(headers);
        if self.legacy && !(others_spoke && limit_headers::is_stricter(headers, decision)) {
            limit_headers::write_legacy(decision, sheet);
        }
        if self.standard {
            limit_headers::write_standard(decision, headers, others_spoke, sheet);
        }
        if self.retry_after
            && let Some(wait) = wait
        {
            limit_headers::write_retry_after(wait, decision.at(), headers, sheet);
        }
        if self.source {
            sheet.set_text(&SOURCE, decision.source().as_str());
        }
    }
}

/// Whether somebody has said something of limits already. Mostly nobody has: that is seen in one walk, where to ask for each field would be
/// to hash each name.
fn speak_of_limits(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| {
        let name = name.as_str();
        name.starts_with("x-ratelimit") || name.starts_with("ratelimit")
    })
}

impl Default for HeaderFamilies {
    fn default() -> Self {
        Self {
            legacy: true,
            standard: true,
            retry_after: true,
            source: false,
        }
    }
}

/// Adds `X-RateLimit-Shadow`: what the tiers say that only watch, as a list like `RateLimit`'s, with `deny` on those that would
/// have denied. Nothing if there are none.
///
/// ```text
/// X-RateLimit-Shadow: "strict";r=0;t=9;deny, "loose";r=95;t=1
/// ```
pub fn add_shadows(decision: &Decision, headers: &mut HeaderMap) {
    let mut sheet = Sheet::new();
    limit_headers::write_shadows(decision, headers, &mut sheet);
    sheet.finish(headers);
}

type OwnAnswer = Arc<dyn Fn(&Denial<'_>) -> Response<Bytes> + Send + Sync>;

/// How to answer: which fields, and what a denial looks like.
#[derive(Clone, Default)]
pub struct Answers {
    /// Which fields to send.
    pub families: HeaderFamilies,
    /// Whether to [show](add_shadows) what shadows say. Not by default: it tells callers about limits to come.
    pub shadows: bool,
    own: Option<OwnAnswer>,
}

impl Answers {
    /// The usual answers, with these fields.
    #[must_use]
    pub fn new(families: HeaderFamilies) -> Self {
        Self {
            families,
            ..Self::default()
        }
    }

    /// Answers denials with a response of one's own. The fields are added to it; a caller that gets no body gets none, and
    /// gRPC callers get their status as ever.
    #[must_use]
    pub fn with(
        mut self,
        own: impl Fn(&Denial<'_>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.own = Some(Arc::new(own));
        self
    }

    /// Adds what a decision says to the fields of a response that somebody else wrote.
    pub fn add(&self, decision: &Decision, headers: &mut HeaderMap) {
        let mut sheet = Sheet::new();
        self.write(decision, decision.retry_after(), headers, &mut sheet);
        sheet.finish(headers);
    }

    fn write(
        &self,
        decision: &Decision,
        wait: Option<Duration>,
        headers: &HeaderMap,
        sheet: &mut Sheet,
    ) {
        self.families.write(decision, wait, headers, sheet);
        if self.shadows {
            limit_headers::write_shadows(decision, headers, sheet);
        }
    }

    /// The response to a request that was denied.
    #[must_use]
    pub fn denied(&self, denial: &Denial<'_>, dialect: Dialect) -> Response<Bytes> {
        let custom = match (dialect, &self.own) {
            (Dialect::Grpc(kind), _) => Some(grpc::denied(denial, kind)),
            (_, Some(own)) => Some(own(denial)),
            (_, None) => None,
        };
        let is_custom = custom.is_some();
        let mut response =
            custom.unwrap_or_else(|| problem(denial.status(), Bytes::new(), HEADERS_OF_A_DENIAL));
        let mut sheet = match is_custom {
            true => Sheet::new(),
            false => Sheet::after(denial.problem_json()),
        };
        let (decision, wait) = (denial.decision(), denial.retry_after());
        self.write(decision, wait, response.headers(), &mut sheet);
        let body = sheet.finish(response.headers_mut());
        if !is_custom {
            *response.body_mut() = body;
        }
        without_body_for(dialect, response)
    }

    /// The response to a request that can be read in more than one way. `detail` says why.
    #[must_use]
    pub fn refused(&self, detail: &str, dialect: Dialect) -> Response<Bytes> {
        let response = match dialect {
            Dialect::Grpc(kind) => grpc::refused(detail, kind),
            _ => problem(
                StatusCode::BAD_REQUEST,
                problem::of_failure(StatusCode::BAD_REQUEST, detail).into(),
                HEADERS_OF_A_FAILURE,
            ),
        };
        without_body_for(dialect, response)
    }
}

/// The response to a request that could not be served, for other reasons than a limit: problem details with the status's own title.
///
/// ```
/// use http::StatusCode;
/// use tollgate_tower::answer::{Dialect, failure};
///
/// let response = failure(StatusCode::NOT_FOUND, "nothing is served at this path", Dialect::Http);
/// assert_eq!(
///     response.body(),
///     r#"{"type":"about:blank","title":"Not Found","status":404,"detail":"nothing is served at this path"}"#
/// );
/// ```
#[must_use]
pub fn failure(status: StatusCode, detail: &str, dialect: Dialect) -> Response<Bytes> {
    let response = match dialect {
        Dialect::Grpc(kind) => grpc::failure(status, detail, kind),
        _ => problem(
            status,
            problem::of_failure(status, detail).into(),
            HEADERS_OF_A_FAILURE,
        ),
    };
    without_body_for(dialect, response)
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers")
            .field("families", &self.families)
            .field("shadows", &self.shadows)
            .field("own", &self.own.is_some())
            .finish()
    }
}

/// Room for the headers of a denial, or of another failure, and for what others add, so that nothing is moved when they do.
const HEADERS_OF_A_DENIAL: usize = 12;
const HEADERS_OF_A_FAILURE: usize = 4;

fn problem(status: StatusCode, body: Bytes, room: usize) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = HeaderMap::with_capacity(room);
    let kind = HeaderValue::from_static(PROBLEM_JSON);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn without_body_for(dialect: Dialect, response: Response<Bytes>) -> Response<Bytes> {
    match dialect {
        Dialect::Head => response.map(|_| Bytes::new()),
        _ => response,
    }
}
