//! The OpenAPI document describes the service: the same endpoints, and responses of the described form.

use serde_json::{Value, json};

use crate::kit;
use tollgate_testing::client::request;
use tollgate_testing::{Response, Running};

const TOKEN: [&str; 1] = ["Authorization: Bearer 0123456789abcdef"];

const DOCUMENT: &str = include_str!("../../../src/service/openapi.json");

fn document() -> Value {
    serde_json::from_str(DOCUMENT).unwrap()
}

/// What is wrong with a value by a schema, as far as our document uses the language. Patterns and formats are left to `make openapi`.
fn wrong(document: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    if let Some(name) = schema["$ref"].as_str() {
        return wrong(document, referenced(document, name), value, at);
    }
    let fits = |schema: &Value| wrong(document, schema, value, at).is_none();
    if let Some(all) = schema["oneOf"].as_array() {
        let fit = all.iter().filter(|one| fits(one));
        return (fit.count() != 1).then(|| format!("{at}: {value} is not one of them"));
    }
    if let Some(any) = schema["anyOf"].as_array()
        && !any.iter().any(fits)
    {
        return Some(format!("{at}: {value} is none of them"));
    }
    if schema.get("not").is_some_and(fits) {
        return Some(format!("{at}: {value} is what it must not be"));
    }
    if let Some(condition) = schema.get("if") {
        let branch = if fits(condition) { "then" } else { "else" };
        if !fits(&schema[branch]) {
            return Some(format!("{at}: {value} does not fit {branch:?}"));
        }
    }
    if !is_of_type(&schema["type"], value) {
        return Some(format!("{at}: {value} is not of {}", schema["type"]));
    }
    let is_listed = |list: &Value| list.as_array().is_none_or(|known| known.contains(value));
    let is_constant = |schema: &Value| schema.get("const").is_none_or(|known| known == value);
    if !is_listed(&schema["enum"]) || !is_constant(schema) || !is_within(schema, value) {
        return Some(format!("{at}: {value} is out of bounds"));
    }
    if let (Some(items), Some(schema)) = (value.as_array(), schema.get("items")) {
        let mut all = items.iter().enumerate();
        return all.find_map(|(nth, item)| wrong(document, schema, item, &format!("{at}[{nth}]")));
    }
    wrong_field(document, schema, value, at)
}

fn wrong_field(document: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    let fields = value.as_object()?;
    for name in schema["required"].as_array().into_iter().flatten() {
        if !fields.contains_key(name.as_str().unwrap()) {
            return Some(format!("{at}: {name} is missing"));
        }
    }
    fields.iter().find_map(|(name, value)| {
        let at = format!("{at}.{name}");
        let names = schema.get("propertyNames");
        let is_name = |names: &Value| is_within(names, &Value::String(name.clone()));
        if !names.is_none_or(is_name) {
            return Some(format!("{at} is not a name"));
        }
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

fn referenced<'d>(document: &'d Value, name: &str) -> &'d Value {
    let found = document.pointer(name.strip_prefix('#').unwrap());
    found.unwrap_or_else(|| panic!("{name} leads nowhere"))
}

/// A number is an integer if it is whole, however it is written.
fn is_of_type(types: &Value, value: &Value) -> bool {
    let is = |known: &Value| match known.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is not a type"),
    };
    match types {
        Value::Null => true,
        Value::Array(types) => types.iter().any(is),
        one => is(one),
    }
}

/// Whether a value is as large as it may be. Characters are counted, not bytes.
fn is_within(schema: &Value, value: &Value) -> bool {
    let within = |size: Option<f64>, least: &str, most: &str| {
        size.is_none_or(|size| {
            schema[least].as_f64().is_none_or(|least| size >= least)
                && schema[most].as_f64().is_none_or(|most| size <= most)
        })
    };
    let size = |count: usize| f64::from(u32::try_from(count).unwrap());
    let text = value.as_str().map(|text| size(text.chars().count()));
    let items = value.as_array().map(|items| size(items.len()));
    let fields = value.as_object().map(|fields| size(fields.len()));
    within(text, "minLength", "maxLength")
        && within(items, "minItems", "maxItems")
        && within(fields, "minProperties", "maxProperties")
        && within(value.as_f64(), "minimum", "maximum")
}

/// Compares a response with its description in the document.
fn compare(method: &str, path: &str, response: &Response) {
    let document = document();
    let path = path.split('?').next().unwrap();
    let operation = &document["paths"][path][method];
    let mut described = &operation["responses"][response.status.to_string()];
    if let Some(name) = described["$ref"].as_str() {
        described = referenced(&document, name);
    }
    let status = response.status;
    assert!(
        described.is_object(),
        "{path} with {status} is not in the document"
    );
    let Some(content) = described["content"].as_object() else {
        assert!(response.body.is_empty(), "{path}: {response:?}");
        return;
    };
    let schema = &content[response.header("content-type").unwrap()]["schema"];
    let problem = wrong(&document, schema, &response.json(), "$");
    assert_eq!(problem, None, "{path}: {response:?}");
}

const METHODS: [&str; 8] = [
    "get", "put", "post", "delete", "options", "head", "patch", "trace",
];

/// All operations: path, method and description.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let methods = item.as_object().unwrap().iter();
        let methods = methods.filter(|(method, _)| METHODS.contains(&method.as_str()));
        all.extend(
            methods.map(|(method, operation)| (path.clone(), method.clone(), operation.clone())),
        );
    }
    all
}

#[test]
fn the_document_has_the_endpoints_that_there_are() {
    let operations = operations(&document());
    let service = kit::service("", "rules: []");
    let address = service.address("service");
    let status = |method: &str, path: &str| {
        let response = request(address, method, path, &[], "");
        response.unwrap().status
    };
    for (path, method, _) in &operations {
        assert_eq!(status("QUERY", path), 405, "{path}");
        let status = status(&method.to_uppercase(), path);
        assert!(![404, 405].contains(&status), "{method} {path}: {status}");
    }
    for (method, path, _) in tollgate_server::service::ENDPOINTS {
        let methods: Vec<&str> = (operations.iter())
            .filter(|(known, ..)| known == path)
            .map(|(_, method, _)| method.as_str())
            .collect();
        assert!(methods.contains(&method.to_lowercase().as_str()), "{path}");
        for other in METHODS.iter().filter(|other| !methods.contains(other)) {
            let status = status(&other.to_uppercase(), path);
            // GET includes HEAD.
            let is_head = *other == "head" && method == "GET";
            assert_eq!(status == 405, !is_head, "{other} {path}");
        }
    }
    let mut paths: Vec<&str> = operations.iter().map(|(path, ..)| path.as_str()).collect();
    paths.dedup();
    assert_eq!(paths.len(), tollgate_server::service::ENDPOINTS.len());
}

#[test]
fn every_operation_has_what_tools_require() {
    let document = document();
    assert!(document["servers"][0]["url"].is_string());
    assert!(document["info"]["license"]["name"].is_string());
    let tags = document["tags"].as_array().unwrap();
    let tags: Vec<&Value> = tags.iter().map(|tag| &tag["name"]).collect();
    let mut ids = Vec::new();
    for (path, method, operation) in operations(&document) {
        let at = format!("{method} {path}");
        assert!(operation["security"].is_array(), "{at}");
        assert!(!operation["summary"].as_str().unwrap().is_empty(), "{at}");
        assert!(tags.contains(&&operation["tags"][0]), "{at}");
        let responses = operation["responses"].as_object().unwrap();
        for kind in ['2', '4'] {
            let mut statuses = responses.keys();
            assert!(statuses.any(|status| status.starts_with(kind)), "{at}");
        }
        let id = operation["operationId"].as_str().unwrap().to_owned();
        assert!(id.chars().all(|c| c.is_ascii_alphanumeric()), "{at}");
        assert!(!ids.contains(&id), "{id} is there twice");
        ids.push(id);
    }
}

/// Walks all values of a document, with the path to each.
fn walk(value: &Value, at: &str, visit: &mut impl FnMut(&str, &Value)) {
    visit(at, value);
    match value {
        Value::Array(items) => {
            for (nth, item) in items.iter().enumerate() {
                walk(item, &format!("{at}/{nth}"), visit);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                walk(value, &format!("{at}/{}", name.replace('/', "~1")), visit);
            }
        }
        _ => {}
    }
}

#[test]
fn every_object_has_a_name_and_every_name_is_used() {
    let document = document();
    let mut used = Vec::new();
    walk(&document, "", &mut |at, value| {
        if let Some(name) = value["$ref"].as_str() {
            assert!(referenced(&document, name).is_object(), "{at}");
            used.push(name.to_owned());
        }
        let is_shape = value["type"] == "object" && value["properties"].is_object();
        let is_component = at.strip_prefix("/components/schemas/");
        // A generated client would name it after its position.
        assert!(
            !is_shape || is_component.is_some_and(|name| !name.contains('/')),
            "{at} has no name"
        );
    });
    for kind in ["schemas", "responses"] {
        for name in document["components"][kind].as_object().unwrap().keys() {
            let name = format!("#/components/{kind}/{name}");
            assert!(used.contains(&name), "{name} is not used");
        }
    }
}

#[test]
fn bodies_are_accepted_as_far_as_the_document_allows_them() {
    let service = kit::service(
        "token: \"0123456789abcdef\"",
        "rules: [{ id: client, per: [client, \"attribute:tenant\"], limit: \"1/h burst 2\" }]",
    );
    let long = |count: usize| "é".repeat(count);
    let longest_path = format!("/{}", "a".repeat(16 * 1_024 - 1));
    let request = |field: &str, value: Value| {
        let mut request = json!({ "method": "GET", "path": "/", "ip": "::1" });
        request[field] = value;
        json!({ "request": request })
    };
    let texts = [
        json!(null),
        json!(""),
        json!("a"),
        json!(long(1_024)),
        json!(long(1_025)),
        json!(1),
        json!(["a"]),
    ];
    let mut checks: Vec<Value> = Vec::new();
    for text in &texts {
        for field in ["client", "plan", "route", "method"] {
            checks.push(json!({ field: text }));
        }
        checks.push(json!({ "attributes": { "tenant": text } }));
    }
    let costs = [
        "null",
        "0",
        "-0.0",
        "1.0",
        "1e3",
        "9007199254740991",
        "9007199254740991.0",
        "9007199254740992",
        "18446744073709551616",
        "1e300",
        "1.5",
        "-1",
        "-1.0",
        "\"1\"",
        "true",
    ];
    for cost in costs {
        let cost: Value = serde_json::from_str(cost).unwrap();
        checks.push(json!({ "client": "a", "cost": cost }));
        checks.push(json!({ "request": request("method", json!("GET"))["request"], "cost": cost }));
    }
    checks.extend([
        json!({}),
        json!({ "path": longest_path }),
        json!({ "path": format!("{longest_path}a") }),
        json!({ "attributes": null }),
        json!({ "attributes": [] }),
        json!({ "request": null }),
        json!({ "request": {} }),
        json!({ "request": request("ip", json!("::1"))["request"], "client": "a" }),
        request("host", json!(null)),
        request("host", json!("")),
        request("headers", json!(null)),
        request("headers", json!({ "A": "1", "B": ["2", "3"], "C": [] })),
        request("headers", json!({ "A": null })),
        request("headers", json!({ "A": 1 })),
        request("headers", json!({ "": "1" })),
        request("headers", json!({ "a".repeat(1_024): "1" })),
        request("headers", json!({ "a".repeat(1_025): "1" })),
        request("method", json!("")),
        request("path", json!(longest_path)),
        request("path", json!(null)),
        request("other", json!(1)),
        json!({ "checks": [] }),
        json!({ "checks": null }),
        json!({ "checks": vec![json!({}); 100] }),
        json!({ "checks": vec![json!({}); 101] }),
        json!({ "checks": [{ "checks": [] }] }),
    ]);
    for check in &checks {
        agree(&service, "/v1/check", check);
    }
    let resets = [
        json!({}),
        json!({ "client": null }),
        json!({ "client": "a" }),
        json!({ "client": "a", "plan": "b", "everybody": null }),
        json!({ "client": "a", "everybody": false }),
        json!({ "client": "a", "everybody": true }),
        json!({ "everybody": true }),
        json!({ "everybody": true, "client": null, "attributes": {} }),
        json!({ "everybody": true, "route": "/a" }),
        json!({ "everybody": "yes" }),
        json!({ "route": "/a" }),
        json!({ "attributes": {} }),
        json!({ "attributes": { "tenant": "a" } }),
        json!({ "ip": "::1" }),
    ];
    for reset in &resets {
        agree(&service, "/v1/reset", reset);
    }
}

/// Checks that the service accepts a body if, and only if, the document allows it.
fn agree(service: &Running, path: &str, body: &Value) {
    let document = document();
    let content = &document["paths"][path]["post"]["requestBody"]["content"];
    let problem = wrong(&document, &content["application/json"]["schema"], body, "$");
    let response = service.post(path, &TOKEN, &body.to_string());
    let shown: String = body.to_string().chars().take(200).collect();
    let expected = if problem.is_none() { 200 } else { 400 };
    assert_eq!(
        response.status,
        expected,
        "{shown}: {problem:?}, {}",
        response.text()
    );
}

#[test]
fn a_key_that_is_there_twice_is_refused() {
    let service = kit::service(
        "token: \"0123456789abcdef\"",
        "rules: [{ id: client, per: [client], limit: \"1/h burst 2\" }]",
    );
    let bodies = [
        ("/v1/check", r#"{"client":"a","client":"b"}"#),
        ("/v1/check", r#"{"checks":[{"cost":0,"cost":1}]}"#),
        (
            "/v1/explain",
            r#"{"request":{"method":"GET","path":"/","path":"/a","ip":"::1"}}"#,
        ),
        ("/v1/inspect", r#"{"client":"a","\u0063lient":"b"}"#),
        ("/v1/reset", r#"{"client":"a","client":"a"}"#),
    ];
    for (path, body) in bodies {
        let response = service.post(path, &TOKEN, body);
        assert_eq!(response.status, 400, "{body}: {response:?}");
        assert!(response.text().contains("is there twice"), "{response:?}");
    }
}

#[test]
fn responses_have_the_form_that_the_document_describes() {
    let service = kit::service(
        "token: \"0123456789abcdef\"",
        "rules:
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
        (
            "/v1/check?status=decision",
            json!({ "checks": [{ "client": "c" }, { "client": "c", "cost": 2 }] }),
            429,
        ),
        (
            "/v1/check?status=decision",
            json!({ "path": "/a%2fb" }),
            403,
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
        (
            "/v1/inspect",
            json!({ "attributes": { "nothing": "x" } }),
            404,
        ),
        ("/v1/inspect", json!({ "path": "/a%2fb" }), 404),
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
        let without_token = service.post(path, &[], &body.to_string());
        assert_eq!(without_token.status, 401);
        compare("post", path, &without_token);
        let response = service.post(path, &TOKEN, &body.to_string());
        assert_eq!(response.status, status, "{path} {body}: {response:?}");
        compare("post", path, &response);
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
        let method = format!("X-{names}-Method: GET");
        let right = [&*method, &format!("X-{names}-Uri: /")];
        let odd = [&*method, &format!("X-{names}-Uri: /%00")];
        for headers in [&right[..], &right, &right, &[], &odd] {
            compare("get", path, &service.get("service", path, headers));
        }
    }
    let path = "/openapi.json";
    compare("get", path, &service.get("service", path, &[]));
}
