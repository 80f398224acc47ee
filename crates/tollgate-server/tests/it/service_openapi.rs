//! The OpenAPI document says what there is: the same endpoints, and answers of the form that it says.

use serde_json::{Value, json};

use crate::served::{Reply, Served, ask};

const DOCUMENT: &str = include_str!("../../src/service/openapi.json");

fn document() -> Value {
    serde_json::from_str(DOCUMENT).unwrap()
}

/// What is wrong with a value by a schema, as far as our document uses the language.
fn wrong(document: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let schema = document.pointer(name.strip_prefix('#').unwrap()).unwrap();
        return wrong(document, schema, value, at);
    }
    if let Some(all) = schema["oneOf"].as_array() {
        let fit = all
            .iter()
            .filter(|one| wrong(document, one, value, at).is_none());
        return (fit.count() != 1).then(|| format!("{at}: {value} is not one of them"));
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is_kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().any(|known| known == kind),
        known => known == kind,
    };
    if !is_kind {
        return Some(format!("{at}: {value} is not of {}", schema["type"]));
    }
    if let Some(known) = schema["enum"].as_array()
        && !known.contains(value)
    {
        return Some(format!("{at}: {value} is not in {known:?}"));
    }
    if let (Some(items), Some(schema)) = (value.as_array(), schema.get("items")) {
        let mut all = items.iter().enumerate();
        return all.find_map(|(nth, item)| wrong(document, schema, item, &format!("{at}[{nth}]")));
    }
    let fields = value.as_object()?;
    for name in schema["required"].as_array().into_iter().flatten() {
        if !fields.contains_key(name.as_str().unwrap()) {
            return Some(format!("{at}: {name} is missing"));
        }
    }
    fields.iter().find_map(|(name, value)| {
        let at = format!("{at}.{name}");
        match (
            schema["properties"].get(name),
            &schema["additionalProperties"],
        ) {
            (Some(schema), _) => wrong(document, schema, value, &at),
            (None, Value::Bool(false)) => Some(format!("{at} is not known")),
            (None, Value::Null | Value::Bool(true)) => None,
            (None, schema) => wrong(document, schema, value, &at),
        }
    })
}

/// Compares an answer with what the document says of it.
fn compare(method: &str, path: &str, reply: &Reply) {
    let document = document();
    let path = path.split('?').next().unwrap();
    let operation = &document["paths"][path][method];
    let response = &operation["responses"][reply.status.to_string()];
    assert!(
        response.is_object(),
        "{path} with {} is not in the document",
        reply.status
    );
    let Some(content) = response["content"].as_object() else {
        assert_eq!(reply.body, "");
        return;
    };
    let schema = &content[reply.header("content-type")]["schema"];
    let problem = wrong(&document, schema, &reply.json(), "$");
    assert_eq!(problem, None, "{path}: {}", reply.body);
}

#[test]
fn the_document_has_the_endpoints_that_there_are() {
    let document = document();
    let mut said: Vec<(String, String)> = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let methods = methods.as_object().unwrap().keys();
        said.extend(methods.map(|method| (method.to_uppercase(), path.clone())));
    }
    let mut known = tollgate_server::service::ENDPOINTS
        .map(|(method, path, _)| (method.to_owned(), path.to_owned()))
        .to_vec();
    said.sort();
    known.sort();
    assert_eq!(said, known);
    let served = Served::start("service: {}\nrules: []");
    for (method, path) in known {
        let status = ask(served.address, &method, &path, "", "").status;
        assert!(![404, 405].contains(&status), "{method} {path}: {status}");
    }
}

#[test]
fn answers_have_the_form_that_the_document_says() {
    let served = Served::start(
        "service: { token: \"0123456789abcdef\" }
rules:
  - { id: client, per: [client], limit: \"1/h burst 2\" }
  - { id: watched, per: [client], mode: shadow, limit: \"1/h burst 1\" }
  - { id: slow, match: { path: /slow }, per: [], limit: \"10/s queue 3 leaky_bucket\" }
",
    );
    let request = json!({ "method": "GET", "path": "/a?b=c", "ip": "203.0.113.7" });
    let bodies = [
        ("/v1/check", json!({ "client": "a" }), 200),
        (
            "/v1/check?status=decision",
            json!({ "client": "a", "cost": 9 }),
            429,
        ),
        ("/v1/check", json!({ "client": "b", "path": "/slow" }), 200),
        ("/v1/check", json!({ "client": "b", "path": "/slow" }), 200),
        ("/v1/check", json!({ "path": "/a%2fb" }), 200),
        ("/v1/check", json!({ "request": request }), 200),
        (
            "/v1/check",
            json!({ "checks": [{ "client": "a" }, { "client": "a", "cost": 2 }] }),
            200,
        ),
        ("/v1/check", json!({ "nobody": 1 }), 400),
        ("/v1/explain", json!({ "request": request, "cost": 5 }), 200),
        (
            "/v1/explain",
            json!({ "request": { "method": "GET", "path": "/a%2fb", "ip": "::1" } }),
            200,
        ),
        ("/v1/explain", json!({}), 400),
        ("/v1/inspect", json!({ "client": "a" }), 200),
        ("/v1/inspect", json!({}), 200),
        ("/v1/inspect", json!({ "nobody": 1 }), 400),
        ("/v1/reset", json!({ "client": "a" }), 200),
        (
            "/v1/reset",
            json!({ "everybody": true, "path": "/slow" }),
            200,
        ),
        ("/v1/reset", json!({}), 400),
    ];
    let document = document();
    for (path, body, status) in bodies {
        let unopened = served.post(path, "", &body.to_string());
        assert_eq!(unopened.status, 401);
        compare("post", path, &unopened);
        let token = "Authorization: Bearer 0123456789abcdef\r\n";
        let reply = served.post(path, token, &body.to_string());
        assert_eq!(reply.status, status, "{path} {body}: {}", reply.body);
        compare("post", path, &reply);
        if status == 200 {
            let at = format!(
                "/paths/{}/post/requestBody/content/application~1json/schema",
                path.replace('/', "~1")
            );
            let schema = document.pointer(&at).unwrap();
            assert_eq!(wrong(&document, schema, &body, "$"), None, "{body}");
        }
    }
    for (path, names) in [
        ("/v1/forward-auth", "Forwarded"),
        ("/v1/auth-request", "Original"),
    ] {
        let right = format!("X-{names}-Method: GET\r\nX-{names}-Uri: /\r\n");
        let odd = format!("X-{names}-Method: GET\r\nX-{names}-Uri: /%00\r\n");
        for headers in [&right, &right, &right, "", &odd] {
            let reply = ask(served.address, "GET", path, headers, "");
            compare("get", path, &reply);
        }
    }
    compare(
        "get",
        "/openapi.json",
        &ask(served.address, "GET", "/openapi.json", "", ""),
    );
}
