//! `POST /v1/check`: whether requests may go, in JSON. Each check is all or none in itself, and independent of the others.

use std::net::IpAddr;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use futures_util::future::join_all;
use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode, Uri};
use serde_json::{Value, json};
use tollgate::ForwardedPath;
use tollgate_tower::identity::parse_address;
use tollgate_tower::policy::{Head, Policy, Refusal, View};

use super::answer::Answer;
use super::metrics::{Endpoint, Outcome};
use super::problem::Problem;
use super::reading::{self, Fields, LONGEST_PATH, LONGEST_TEXT, is_longer, kind};
use super::{Service, Shared};
use tollgate_config::document::shortened;
use tollgate_tower::policy::RequestAttributes;

/// The most checks of one question.
const MOST_CHECKS: usize = 100;

/// The most headers of a request.
const MOST_HEADERS: usize = 100;

const FACTS: &[&str] = &[
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
/// What may be said of who calls, and for what: all but the first and the last.
pub(super) const WHO: &[&str] = FACTS.split_at(1).1.split_at(FACTS.len() - 2).0;
const REQUEST: &[&str] = &["method", "path", "host", "headers", "ip"];

/// What is asked about.
enum Check<'a> {
    /// A request as it came to a gateway.
    Described(Box<Described>),
    /// What somebody found out about one.
    Told(RequestAttributes<'a>),
    /// One that can be read in more than one way.
    Refused(Refusal),
}

/// A request as it came to a gateway.
pub(super) struct Described {
    method: Method,
    uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) ip: IpAddr,
    pub(super) cost: Option<u64>,
}

pub(super) async fn check(State(shared): Service, request: Request) -> Response<Body> {
    let started = Instant::now();
    let response = match answer(&shared, request).await {
        Ok(response) => response,
        Err(problem) => {
            let response = problem.response();
            let outcome = Outcome::of_status(response.status().as_u16());
            shared.metrics.count(Endpoint::Check, outcome);
            response
        }
    };
    shared.metrics.took(Endpoint::Check, started.elapsed());
    response
}

async fn answer(shared: &Shared, request: Request) -> Result<Response<Body>, Problem> {
    shared.admit(request.headers())?;
    let by_decision = match request.uri().query() {
        None => false,
        Some("status=decision") => true,
        Some(_) => return Err(Problem::bad("the only query is ?status=decision")),
    };
    let (head, body) = request.into_parts();
    let body = reading::json(&reading::whole(body).await?)?;
    let policy = shared.decider.policy();
    let Some(checks) = many(&body)? else {
        let answer = decide(shared, &policy, read(&body, "", &policy)?, &head.headers).await;
        let status = match by_decision {
            true => status_by(&answer),
            false => StatusCode::OK,
        };
        return Ok(with_body(status, &answer));
    };
    let read = |(nth, check)| read(check, &format!("checks[{nth}]"), &policy);
    // All are read before one is decided: who made a mistake has not paid for the half of it.
    let checks: Vec<Check<'_>> = checks
        .iter()
        .enumerate()
        .map(read)
        .collect::<Result<_, _>>()?;
    let decided = checks
        .into_iter()
        .map(|check| decide(shared, &policy, check, &head.headers));
    let results = join_all(decided).await;
    let denied = results.iter().find(|answer| answer.status != 200);
    let status = match denied.filter(|_| by_decision) {
        Some(answer) => status_by(answer),
        None => StatusCode::OK,
    };
    Ok(with_body(status, &json!({ "results": results })))
}

/// The status that says what was decided. That of a request that is refused is 403, since 400 says that the check cannot be understood.
fn status_by(answer: &Answer) -> StatusCode {
    match StatusCode::from_u16(answer.status) {
        Ok(StatusCode::BAD_REQUEST) => StatusCode::FORBIDDEN,
        Ok(status) => status,
        Err(_) => StatusCode::OK,
    }
}

/// The checks, if there are several.
fn many(body: &Value) -> Result<Option<&Vec<Value>>, Problem> {
    if body.get("checks").is_none() {
        return Ok(None);
    }
    let fields = Fields::of(body, "", &["checks"])?;
    match fields.get("checks") {
        Some(Value::Array(checks)) if checks.len() <= MOST_CHECKS => Ok(Some(checks)),
        Some(Value::Array(checks)) => Err(fields.wrong(
            "checks",
            format!("{} checks are more than {MOST_CHECKS}", checks.len()),
        )),
        other => {
            let got = other.map_or("nothing", kind);
            Err(fields.wrong("checks", format!("expected a list of checks, got {got}")))
        }
    }
}

pub(super) fn with_body(status: StatusCode, body: &impl serde::Serialize) -> Response<Body> {
    let body = serde_json::to_vec(body).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

async fn decide(shared: &Shared, policy: &Policy, check: Check<'_>, headers: &HeaderMap) -> Answer {
    let mut span = shared.span("check", headers);
    let families = policy.answers().map(|answers| answers.families);
    let families = families.unwrap_or_default();
    let refused = |refusal| Answer::refused(&refusal, policy.generation());
    let answer = match check {
        Check::Refused(refusal) => refused(refusal),
        Check::Told(facts) => {
            let decision = shared.decider.decide_on(policy, &facts.request()).await;
            if let Some(span) = &mut span {
                span.add_decision(&decision);
            }
            Answer::of(&decision, families, facts.client.as_deref())
        }
        Check::Described(described) => match described.view(policy) {
            Err(refusal) => refused(refusal),
            Ok(view) => {
                let mut request = view.request();
                if let Some(cost) = described.cost {
                    request = request.cost(cost);
                }
                let decision = shared.decider.decide_on(policy, &request).await;
                if let Some(span) = &mut span {
                    span.add_request(&described.method, policy.rules().meet(&request).route());
                    span.add_decision(&decision);
                }
                Answer::of(&decision, families, view.caller().client())
            }
        },
    };
    if let (Some(span), Ok(status)) = (&mut span, StatusCode::from_u16(answer.status)) {
        span.add_status(status);
    }
    shared.metrics.count(Endpoint::Check, answer.outcome());
    answer
}

fn read<'a>(check: &'a Value, at: &str, policy: &'a Policy) -> Result<Check<'a>, Problem> {
    let fields = Fields::of(check, at, FACTS)?;
    if fields.has("request") {
        return Ok(Check::Described(Box::new(Described::read(check, at)?)));
    }
    let cost = fields.number("cost")?;
    let ignored = |_: &str| Ok(());
    Ok(match told(&fields, policy, ignored)? {
        Ok(mut facts) => {
            facts.cost = cost;
            Check::Told(facts)
        }
        Err(refusal) => Check::Refused(refusal),
    })
}

/// What is told of a request, or why it is refused. `unknown` says what becomes of an attribute that no rule looks at.
pub(super) fn told<'a>(
    fields: &Fields<'a>,
    policy: &'a Policy,
    unknown: impl Fn(&str) -> Result<(), Problem>,
) -> Result<Result<RequestAttributes<'a>, Refusal>, Problem> {
    let text = |name| fields.text(name, LONGEST_TEXT);
    let mut facts = RequestAttributes::new();
    facts.client = text("client")?.map(Into::into);
    facts.plan = text("plan")?.map(Into::into);
    facts.ip = ip(fields)?;
    facts.route = text("route")?.map(Into::into);
    facts.method = text("method")?;
    if let Some(host) = text("host")?
        && let Err(error) = facts.set_host(host)
    {
        return Ok(Err(error.into()));
    }
    for (name, value) in fields.object("attributes")?.into_iter().flatten() {
        let text = value.as_str();
        let Some(value) = text.filter(|value| !is_longer(value, LONGEST_TEXT)) else {
            let what = format!(
                "{} needs text of up to {LONGEST_TEXT} characters",
                shortened(name)
            );
            return Err(fields.wrong("attributes", what));
        };
        match facts.add_attribute(policy, name, value) {
            Ok(true) => {}
            Ok(false) => unknown(name)?,
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
    if let Some(path) = fields.text("path", LONGEST_PATH)?
        && let Err(error) = facts.set_path(policy, path)
    {
        return Ok(Err(error.into()));
    }
    facts.complete(policy);
    facts.name_by_address(policy);
    Ok(Ok(facts))
}

fn ip(fields: &Fields<'_>) -> Result<Option<IpAddr>, Problem> {
    let Some(text) = fields.text("ip", LONGEST_TEXT)? else {
        return Ok(None);
    };
    let wrong = |_| fields.wrong("ip", format!("{} is not an address", shortened(text)));
    parse_address(text).map(Some).map_err(wrong)
}

impl Described {
    /// `{ "request": { … }, "cost": 1 }`.
    pub(super) fn read(value: &Value, at: &str) -> Result<Self, Problem> {
        let outer = Fields::of(value, at, &["request", "cost"])?;
        let Some(request) = outer.get("request") else {
            return Err(outer.wrong("", "the field \"request\" is missing"));
        };
        let fields = Fields::of(request, &outer.path("request"), REQUEST)?;
        let method = fields.required("method", LONGEST_TEXT)?;
        let path = fields.required("path", LONGEST_PATH)?;
        let Some(ip) = ip(&fields)? else {
            let help =
                "the field \"ip\" is missing: the address of whoever connected to the gateway";
            return Err(fields.wrong("", help));
        };
        let mut headers = read_headers(&fields)?;
        if let Some(host) = fields.text("host", LONGEST_TEXT)? {
            let wrong = |_| fields.wrong("host", "this is not a host");
            headers.insert(HOST, HeaderValue::try_from(host).map_err(wrong)?);
        }
        let odd = |name, what| fields.wrong(name, format!("this is not {what}"));
        Ok(Self {
            method: Method::from_bytes(method.as_bytes()).map_err(|_| odd("method", "a method"))?,
            uri: read_uri(path.as_bytes())
                .ok_or_else(|| odd("path", "a path such as /v1/charges"))?,
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

    /// The request as the policy sees it. Who asks forwards its path as it came.
    fn view(&self, policy: &Policy) -> Result<View<'_>, Refusal> {
        policy.view_forwarded(&self.head(), self.ip, ForwardedPath::Original)
    }
}

/// A path with or without a query, or a whole address.
pub(super) fn read_uri(text: &[u8]) -> Option<Uri> {
    let uri = Uri::try_from(text).ok()?;
    uri.path().starts_with('/').then_some(uri)
}

/// Names and values, or lists of values.
fn read_headers(fields: &Fields<'_>) -> Result<HeaderMap, Problem> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields.object("headers")?.into_iter().flatten() {
        // What stands behind the name may be a secret.
        let wrong = || fields.wrong("headers", format!("{} is not a header", shortened(name)));
        let values = match value {
            Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        if is_longer(name, LONGEST_TEXT) {
            return Err(wrong());
        }
        let name = HeaderName::try_from(name).map_err(|_| wrong())?;
        for value in values {
            let value = value
                .as_str()
                .and_then(|value| HeaderValue::try_from(value).ok());
            headers.append(name.clone(), value.ok_or_else(wrong)?);
            if headers.len() > MOST_HEADERS {
                return Err(fields.wrong("headers", format!("more than {MOST_HEADERS} lines")));
            }
        }
    }
    Ok(headers)
}
