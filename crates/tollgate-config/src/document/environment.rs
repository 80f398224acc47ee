//! `${NAME}` and `${NAME:-default}` in values, replaced after parsing: the value of a variable is never structure.

/// Looks up the value of a variable.
pub(crate) type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Why a variable could not be replaced.
pub(super) enum VariableError {
    Unset(String),
    Syntax,
}

/// A value with its variables replaced.
#[derive(Default)]
pub(super) struct Replaced {
    pub(super) text: String,
    pub(super) has_variables: bool,
}

/// Replaces the variables of a value, and `$$` by a dollar.
pub(super) fn replace(written: &str, env: &Environment<'_>) -> Result<Replaced, VariableError> {
    let mut replaced = Replaced::default();
    let mut rest = written;
    while let Some((before, after)) = rest.split_once('$') {
        replaced.text.push_str(before);
        if let Some(after) = after.strip_prefix('{') {
            let (inside, after) = after.split_once('}').ok_or(VariableError::Syntax)?;
            replaced.text.push_str(&value_of(inside, env)?);
            replaced.has_variables = true;
            rest = after;
        } else {
            replaced.text.push('$');
            rest = after.strip_prefix('$').unwrap_or(after);
        }
    }
    replaced.text.push_str(rest);
    Ok(replaced)
}

/// The value of `NAME` or `NAME:-default`.
fn value_of(inside: &str, env: &Environment<'_>) -> Result<String, VariableError> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    if !is_name(name) {
        return Err(VariableError::Syntax);
    }
    match (env(name), default) {
        // As in a shell, the default also replaces an empty value.
        (Some(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(VariableError::Unset(name.to_owned())),
    }
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
        replace(written, &env).ok().map(|replaced| replaced.text)
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
