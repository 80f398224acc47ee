//! Headers named by `Connection` are for this hop alone. They are removed before the limiter sees a request and before the
//! gateway adds its own, so that limiter and upstream see the same headers, and no client can remove what the gateway adds.

use http::header::{CONNECTION, HeaderMap, HeaderValue};

use super::filter::{remove_named_by_connection, tokens};

/// Removes the headers that `Connection` names, and their names.
pub fn drop_named_by_connection(headers: &mut HeaderMap) {
    let Some(line) = headers.get(CONNECTION) else {
        return;
    };
    let is_usual = |word: &[u8]| {
        let words: [&[u8]; 3] = [b"keep-alive", b"close", b"upgrade"];
        words.iter().any(|usual| word.eq_ignore_ascii_case(usual))
    };
    if is_usual(line.as_bytes()) && headers.get_all(CONNECTION).iter().nth(1).is_none() {
        return;
    }
    let upgrades = tokens(headers, &CONNECTION).any(|word| word.eq_ignore_ascii_case("upgrade"));
    // What is asked for in `Upgrade` is looked at later.
    let upgrade = headers
        .get(http::header::UPGRADE)
        .filter(|_| upgrades)
        .cloned();
    remove_named_by_connection(headers);
    if let Some(upgrade) = upgrade {
        headers.insert(http::header::UPGRADE, upgrade);
    }
    match upgrades {
        true => _ = headers.insert(CONNECTION, HeaderValue::from_static("upgrade")),
        false => _ = headers.remove(CONNECTION),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_connection_names_is_gone_before_anybody_looks_at_it() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "Upgrade, X-Api-Key"),
            ("connection", "x-request-id, x-forwarded-for"),
            ("upgrade", "websocket"),
            ("x-api-key", "a"),
            ("x-request-id", "7"),
            ("x-forwarded-for", "192.0.2.1"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        drop_named_by_connection(&mut headers);
        let mut left: Vec<String> = (headers.iter())
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or_default()))
            .collect();
        left.sort();
        assert_eq!(
            left,
            [
                "connection: upgrade",
                "upgrade: websocket",
                "x-forwarded-for: 192.0.2.1",
                "x-request-id: 7"
            ]
        );
    }
}
