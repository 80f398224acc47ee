//! `POST /v1/check`: whether to admit requests, in JSON. Each check is all or none in itself, and independent of the others.

use std::net::IpAddr;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use futures_util::future::join_all;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode, Uri};
use serde_json::{Value, json};
use tollgate::ForwardedPath;
use tollgate_config::document::shortened;
use tollgate_tower::identity::parse_address;
use tollgate_tower::policy::{Head, Policy, Refusal, RequestAttributes};

use super::answer::Answer;
use super::metrics::{Endpoint, Outcome};
use super::reading::{self, Fields, MAX_PATH, MAX_TEXT, is_longer, kind};
use super::{ServiceState, State as Service, json_response};
use crate::problem::Problem;

const MAX_CHECKS: usize = 100;

const MAX_HEADERS: usize = 100;

const CHECK_FIELDS: &[&str] = &[
    "request",
    "client",
    "plan",
    "ip",
    "route",
    "method",
    "path",
    "host",
    "attributes",
    "cost",
];
/// The fields that name a subject: all but the first and the last.
pub(super) const SUBJECT_FIELDS: &[&str] = CHECK_FIELDS
    .split_at(1)
    .1
    .split_at(CHECK_FIELDS.len() - 2)
    .0;
const REQUEST_FIELDS: &[&str] = &["method", "path", "host", "headers", "ip"];

/// What to check.
enum Check<'a> {
    /// A request as it arrived at a gateway.
    Described(Box<DescribedRequest>),
    /// The attributes of a request.
    Attributes(RequestAttributes<'a>),
    /// A request that servers can read in more than one way.
    Refused(Refusal),
}

/// A request as it arrived at a gateway.
pub(super) struct DescribedRequest {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    pub(super) ip: IpAddr,
    pub(super) cost: Option<u64>,
}

pub(super) async fn check(State(state): Service, request: Request) -> Response<Body> {
    let started = Instant::now();
    let response = answer(&state, request).await.unwrap_or_else(|problem| {
        let response = problem.into_response();
        let outcome = Outcome::of_status(response.status().as_u16());
        state.metrics.count(Endpoint::Check, outcome);
        response
    });
    state.metrics.took(Endpoint::Check, started.elapsed());
    response
}

async fn answer(state: &ServiceState, request: Request) -> Result<Response<Body>, Problem> {
    state.check_access(request.headers())?;
    let by_decision = match request.uri().query() {
        None => false,
        Some("status=decision") => true,
        Some(_) => return Err(Problem::bad("the only query is ?status=decision")),
    };
    let (head, body) = request.into_parts();
    let body = reading::json(&reading::body(body).await?)?;
    let policy = state.decider.policy();
    let Some(checks) = read_checks(&body)? else {
        let answer = decide(state, &policy, read(&body, "", &policy)?, &head.headers).await;
        let mut response = json_response(&answer);
        if by_decision {
            *response.status_mut() = status(&answer);
        }
        return Ok(response);
    };
    let read = |(nth, check)| read(check, &format!("checks[{nth}]"), &policy);
    // All are read before one is decided, so that a mistake charges nothing.
    let checks: Vec<Check<'_>> = (checks.iter().enumerate())
        .map(read)
        .collect::<Result<_, _>>()?;
    let deciding = (checks.into_iter()).map(|check| decide(state, &policy, check, &head.headers));
    let results = join_all(deciding).await;
    let mut response = json_response(&json!({ "results": results }));
    let denied = results.iter().find(|answer| answer.status != 200);
    if let Some(denied) = denied.filter(|_| by_decision) {
        *response.status_mut() = status(denied);
    }
    Ok(response)
}

/// The status that reports a decision. For a refused request it is 403, because 400 means that the check is malformed.
fn status(answer: &Answer) -> StatusCode {
    match StatusCode::from_u16(answer.status) {
        Ok(StatusCode::BAD_REQUEST) => StatusCode::FORBIDDEN,
        Ok(status) => status,
        Err(_) => StatusCode::OK,
    }
}

/// The checks, if there are several.
fn read_checks(body: &Value) -> Result<Option<&Vec<Value>>, Problem> {
    if body.get("checks").is_none() {
        return Ok(None);
    }
    let fields = Fields::of(body, "", &["checks"])?;
    match fields.get("checks") {
        Some(Value::Array(checks)) if checks.len() <= MAX_CHECKS => Ok(Some(checks)),
        Some(Value::Array(checks)) => {
            let what = format!("{} checks are more than {MAX_CHECKS}", checks.len());
            Err(fields.wrong("checks", what))
        }
        other => {
            let got = other.map_or("nothing", kind);
            Err(fields.wrong("checks", format!("expected a list of checks, got {got}")))
        }
    }
}

async fn decide(
    state: &ServiceState,
    policy: &Policy,
    check: Check<'_>,
    headers: &HeaderMap,
) -> Answer {
    let mut span = state.span("check", headers);
    let families = policy.answers().map(|answers| answers.families);
    let families = families.unwrap_or_default();
    let refused = |refusal| Answer::refused(&refusal, policy.generation());
    let answer = match check {
        Check::Refused(refusal) => refused(refusal),
        Check::Attributes(attributes) => {
            let request = attributes.request();
            let decision = (state.decider.decide_on(&policy.rules().matching(&request))).await;
            if let Some(span) = &mut span {
                span.add_decision(&decision);
            }
            Answer::new(&decision, families, attributes.client.as_deref())
        }
        Check::Described(described) => {
            // The gateway forwards the path as it came.
            let forward = ForwardedPath::Original;
            let names = policy.check_header_names(&described.headers);
            let view = policy.view_forwarded(&described.head(), described.ip, forward);
            match names.and(view) {
                Err(refusal) => refused(refusal),
                Ok(view) => {
                    let mut request = view.request();
                    if let Some(cost) = described.cost {
                        request = request.cost(cost);
                    }
                    let met = policy.rules().matching(&request);
                    let decision = state.decider.decide_on(&met).await;
                    if let Some(span) = &mut span {
                        span.add_request(&described.method, met.route());
                        span.add_decision(&decision);
                    }
                    Answer::new(&decision, families, view.caller().client())
                }
            }
        }
    };
    if let (Some(span), Ok(status)) = (&mut span, StatusCode::from_u16(answer.status)) {
        span.add_status(status);
    }
    let outcome = Outcome::of_status(answer.status);
    state.metrics.count(Endpoint::Check, outcome);
    answer
}

fn read<'a>(check: &'a Value, at: &str, policy: &'a Policy) -> Result<Check<'a>, Problem> {
    let fields = Fields::of(check, at, CHECK_FIELDS)?;
    if fields.has("request") {
        let described = DescribedRequest::read(check, at)?;
        return Ok(Check::Described(Box::new(described)));
    }
    let cost = fields.number("cost")?;
    let ignore_unknown = |_: &str| Ok(());
    Ok(match read_attributes(&fields, policy, ignore_unknown)? {
        Ok(mut attributes) => {
            attributes.cost = cost;
            Check::Attributes(attributes)
        }
        Err(refusal) => Check::Refused(refusal),
    })
}

/// Reads the attributes of a request, or why it is refused. `unknown` handles an attribute that no rule looks at.
pub(super) fn read_attributes<'a>(
    fields: &Fields<'a>,
    policy: &'a Policy,
    unknown: impl Fn(&str) -> Result<(), Problem>,
) -> Result<Result<RequestAttributes<'a>, Refusal>, Problem> {
    let text = |name| fields.text(name, MAX_TEXT);
    let mut attributes = RequestAttributes::new();
    attributes.client = text("client")?.map(Into::into);
    attributes.plan = text("plan")?.map(Into::into);
    attributes.ip = read_ip(fields)?;
    attributes.route = text("route")?.map(Into::into);
    attributes.method = text("method")?;
    if let Some(host) = text("host")?
        && let Err(error) = attributes.set_host(host)
    {
        return Ok(Err(error.into()));
    }
    for (name, value) in fields.object("attributes")?.into_iter().flatten() {
        let text = value.as_str();
        let Some(value) = text.filter(|value| !is_longer(value, MAX_TEXT)) else {
            let name = shortened(name);
            let what = format!("{name} needs text of up to {MAX_TEXT} characters");
            return Err(fields.wrong("attributes", what));
        };
        match attributes.add_attribute(policy, name, value) {
            Ok(true) => {}
            Ok(false) => unknown(name)?,
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
    if let Some(path) = fields.text("path", MAX_PATH)?
        && let Err(error) = attributes.set_path(policy, path)
    {
        return Ok(Err(error.into()));
    }
    attributes.complete(policy);
    attributes.name_by_address(policy);
    Ok(Ok(attributes))
}

fn read_ip(fields: &Fields<'_>) -> Result<Option<IpAddr>, Problem> {
    let Some(text) = fields.text("ip", MAX_TEXT)? else {
        return Ok(None);
    };
    let wrong = |_| fields.wrong("ip", format!("{} is not an address", shortened(text)));
    parse_address(text).map(Some).map_err(wrong)
}

impl DescribedRequest {
    /// Reads `{ "request": { … }, "cost": 1 }`.
    pub(super) fn read(value: &Value, at: &str) -> Result<Self, Problem> {
        let outer = Fields::of(value, at, &["request", "cost"])?;
        let Some(request) = outer.get("request") else {
            return Err(outer.wrong("", "the field \"request\" is missing"));
        };
        let fields = Fields::of(request, &outer.path("request"), REQUEST_FIELDS)?;
        let method = fields.required("method", MAX_TEXT)?;
        let path = fields.required("path", MAX_PATH)?;
        let Some(ip) = read_ip(&fields)? else {
            let what = "the field \"ip\" is missing: the address of the gateway's peer";
            return Err(fields.wrong("", what));
        };
        let mut headers = read_headers(&fields)?;
        if let Some(host) = fields.text("host", MAX_TEXT)? {
            let wrong = |_| fields.wrong("host", "this is not a host");
            headers.insert(HOST, HeaderValue::try_from(host).map_err(wrong)?);
        }
        let method = Method::from_bytes(method.as_bytes());
        let uri = read_uri(path.as_bytes());
        Ok(Self {
            method: method.map_err(|_| fields.wrong("method", "this is not a method"))?,
            uri: uri
                .ok_or_else(|| fields.wrong("path", "this is not a path such as /v1/charges"))?,
            headers,
            ip,
            cost: outer.number("cost")?,
        })
    }

    pub(super) fn head(&self) -> Head<'_> {
        Head {
            method: &self.method,
            uri: &self.uri,
            headers: &self.headers,
        }
    }
}

/// A path with or without a query, or a URL.
pub(super) fn read_uri(text: &[u8]) -> Option<Uri> {
    let uri = Uri::try_from(text).ok()?;
    uri.path().starts_with('/').then_some(uri)
}

/// Reads names with values or lists of values.
fn read_headers(fields: &Fields<'_>) -> Result<HeaderMap, Problem> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields.object("headers")?.into_iter().flatten() {
        // The value may be a secret.
        let wrong = || fields.wrong("headers", format!("{} is not a header", shortened(name)));
        let values = match value {
            Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        if is_longer(name, MAX_TEXT) {
            return Err(wrong());
        }
        let name = HeaderName::try_from(name).map_err(|_| wrong())?;
        for value in values {
            let text = value.as_str();
            let value = text.and_then(|value| HeaderValue::try_from(value).ok());
            headers.append(name.clone(), value.ok_or_else(wrong)?);
            if headers.len() > MAX_HEADERS {
                return Err(fields.wrong("headers", format!("more than {MAX_HEADERS} lines")));
            }
        }
    }
    Ok(headers)
}
