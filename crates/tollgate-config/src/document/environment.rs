//! `${NAME}` and `${NAME:-default}` in values, replaced after parsing: what a variable holds is never structure.

use super::position::Span;
use super::problem::{Problems, Spot};
use super::{Node, Value};

/// Says what a variable holds.
pub(crate) type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Replaces the variables of all values in the tree; keys stay as they are.
pub(super) fn replace(node: &mut Node, path: &str, env: &Environment<'_>, problems: &mut Problems) {
    match &mut node.value {
        Value::Scalar(scalar) => match replaced(&scalar.text, env) {
            Ok(None) => {}
            Ok(Some(text)) => {
                let written = std::mem::replace(&mut scalar.text, text.text);
                if text.has_variables {
                    scalar.written = Some(written.into());
                }
            }
            Err(wrong) => {
                complain(&wrong, node.at, path, problems);
                node.value = Value::Unknown;
            }
        },
        Value::List(items) => {
            for (nth, item) in items.iter_mut().enumerate() {
                replace(item, &format!("{path}[{nth}]"), env, problems);
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                let path = match path {
                    "" => entry.key.clone(),
                    _ => format!("{path}.{}", entry.key),
                };
                replace(&mut entry.value, &path, env, problems);
            }
        }
        Value::Unknown => {}
    }
}

fn complain(wrong: &Wrong, at: Option<Span>, path: &str, problems: &mut Problems) {
    let spot = Spot {
        at,
        path: path.to_owned(),
    };
    match wrong {
        Wrong::Unset(name) => problems
            .error(spot, format!("the environment variable {name} is not set"))
            .help(format!(
                "set {name}, or give a default: ${{{name}:-default}}"
            )),
        Wrong::Syntax => problems
            .error(
                spot,
                "\"${\" begins a variable, and no name and \"}\" follow",
            )
            .help("write ${NAME} or ${NAME:-default}, or $${ for the characters \"${\""),
    };
}

enum Wrong {
    Unset(String),
    Syntax,
}

struct Replaced {
    text: String,
    has_variables: bool,
}

/// `None` if there is nothing to replace.
fn replaced(written: &str, env: &Environment<'_>) -> Result<Option<Replaced>, Wrong> {
    if !written.contains('$') {
        return Ok(None);
    }
    let (mut text, mut has_variables) = (String::with_capacity(written.len()), false);
    let mut rest = written;
    while let Some(dollar) = rest.find('$') {
        text.push_str(&rest[..dollar]);
        rest = &rest[dollar + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            text.push('$');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let (inside, after) = after.split_once('}').ok_or(Wrong::Syntax)?;
            let (name, default) = match inside.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (inside, None),
            };
            if !is_name(name) {
                return Err(Wrong::Syntax);
            }
            // As in a shell: a default also stands for a variable that is set and empty.
            let value = match (env(name), default) {
                (Some(value), None) => value,
                (Some(value), Some(_)) if !value.is_empty() => value,
                (_, Some(default)) => default.to_owned(),
                (None, None) => return Err(Wrong::Unset(name.to_owned())),
            };
            text.push_str(&value);
            has_variables = true;
            rest = after;
        } else {
            text.push('$');
        }
    }
    text.push_str(rest);
    Ok(Some(Replaced {
        text,
        has_variables,
    }))
}

fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.len() <= 128
        && name.chars().all(allowed)
        && name.starts_with(|c: char| !c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(written: &str) -> Option<String> {
        let env = |name: &str| match name {
            "HOST" => Some("db.internal".to_owned()),
            "EMPTY" => Some(String::new()),
            "TRICKY" => Some("a: [b, ${HOST}] $$".to_owned()),
            _ => None,
        };
        match replaced(written, &env) {
            Ok(Some(replaced)) => Some(replaced.text),
            Ok(None) => Some(written.to_owned()),
            Err(_) => None,
        }
    }

    #[test]
    fn variables_defaults_and_dollars_are_replaced_once() {
        for (written, expected) in [
            ("plain", "plain"),
            ("redis://${HOST}:6379", "redis://db.internal:6379"),
            ("${NONE:-localhost}", "localhost"),
            ("${EMPTY:-full}", "full"),
            ("${EMPTY}", ""),
            ("$${HOST}", "${HOST}"),
            ("cost: 5$", "cost: 5$"),
            ("$HOST", "$HOST"),
            ("${TRICKY}", "a: [b, ${HOST}] $$"),
        ] {
            assert_eq!(text(written).as_deref(), Some(expected), "{written}");
        }
        for wrong in ["${NONE}", "${HOST", "${}", "${1A}", "${HO ST}"] {
            assert_eq!(text(wrong), None, "{wrong}");
        }
    }
}
