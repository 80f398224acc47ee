//! Documents that come from and go to JSON, such as the rules in a database.

use serde_json::{Map, Number, Value as Json};

use super::{Entry, Node, Scalar, Value};

impl Node {
    /// The same as a tree without positions. A key whose value is `null` is left out: it says nothing.
    #[must_use]
    pub fn from_json(json: &Json) -> Self {
        let plain = |text: String| Value::Scalar(Scalar::new(text, false));
        let value = match json {
            Json::Null => plain("null".to_owned()),
            Json::Bool(truth) => plain(truth.to_string()),
            Json::Number(number) => plain(number.to_string()),
            Json::String(text) => Value::Scalar(Scalar::new(text.as_str(), true)),
            Json::Array(items) => Value::List(items.iter().map(Self::from_json).collect()),
            Json::Object(fields) => Value::Map(
                fields
                    .iter()
                    .filter(|(_, value)| !value.is_null())
                    .map(|(key, value)| Entry {
                        key: key.clone(),
                        key_at: None,
                        value: Self::from_json(value),
                    })
                    .collect(),
            ),
        };
        Self { at: None, value }
    }

    /// The same as JSON. What was not quoted and looks like a number, true, false or null becomes that.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match &self.value {
            Value::Scalar(scalar) => scalar.to_json(),
            Value::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Map(entries) => {
                let fields = entries.iter();
                let fields = fields.map(|entry| (entry.key.clone(), entry.value.to_json()));
                Json::Object(fields.collect::<Map<_, _>>())
            }
            Value::Unknown => Json::Null,
        }
    }
}

impl Scalar {
    fn to_json(&self) -> Json {
        if self.quoted {
            return Json::String(self.text.clone());
        }
        if self.is_null() {
            return Json::Null;
        }
        match &*self.text {
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            text => match number(text) {
                Some(number) => Json::Number(number),
                None => Json::String(text.to_owned()),
            },
        }
    }
}

/// Only what JSON itself would take for a number, so that nothing is lost: `010` stays text.
fn number(text: &str) -> Option<Number> {
    let number: Number = serde_json::from_str(text).ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_json_goes_back_as_the_same() {
        let json = serde_json::json!({
            "id": "charges", "per": ["client"], "limit": { "rate": "10/s", "burst": 50 },
            "flag": true, "number": "50", "ratio": 0.5, "none": [null],
        });
        assert_eq!(Node::from_json(&json).to_json(), json);
    }

    #[test]
    fn a_null_says_nothing() {
        let node = Node::from_json(&serde_json::json!({ "id": "a", "plan": null }));
        assert!(node.get("plan").is_none());
    }
}
