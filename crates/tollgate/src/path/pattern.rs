//! Patterns of paths: `/v1/charges/{id}`, `/files/{*rest}`.

use std::fmt;
use std::str::FromStr;

use super::{PathError, spelling};

/// The most segments of a pattern.
const MOST_SEGMENTS: usize = 64;

/// The paths that belong together.
///
/// `{name}` stands for one segment, `{*name}` at the end for any number of them, also for none. Everything else stands
/// for itself. A slash at the end does not matter.
///
/// ```
/// use tollgate::{PathRules, Pattern};
///
/// let pattern: Pattern = "/v1/charges/{id}".parse()?;
/// assert!(pattern.matches(&PathRules::default().normalise("/v1/charges/ch_7")?));
/// assert!(!pattern.matches(&PathRules::default().normalise("/v1/charges")?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    segments: Vec<Segment>,
    takes_rest: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Named(Box<str>),
    /// Any one.
    One,
}

/// How specific a pattern is, from its first segment on: of two that match a path, the greater one is more specific.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    Rest,
    One,
    Named,
    End,
}

impl Pattern {
    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a path belongs here.
    #[must_use]
    pub fn matches(&self, path: &super::Path<'_>) -> bool {
        let mut left = path.segments();
        for segment in &self.segments {
            let is_there = match (segment, left.next()) {
                (Segment::One, Some(_)) => true,
                (Segment::Named(name), Some(there)) => **name == *there,
                (_, None) => false,
            };
            if !is_there {
                return false;
            }
        }
        self.takes_rest || left.next().is_none()
    }

    /// The same in small letters, for paths whose case is ignored.
    pub(crate) fn in_small_letters(&self) -> Self {
        let small = |segment: &Segment| match segment {
            Segment::Named(name) => Segment::Named(name.to_ascii_lowercase().into()),
            Segment::One => Segment::One,
        };
        Self {
            text: self.text.clone(),
            segments: self.segments.iter().map(small).collect(),
            takes_rest: self.takes_rest,
        }
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    pub(crate) fn takes_rest(&self) -> bool {
        self.takes_rest
    }

    pub(crate) fn shape(&self) -> impl Iterator<Item = Shape> {
        let end = match self.takes_rest {
            true => Shape::Rest,
            false => Shape::End,
        };
        let shape = |segment: &Segment| match segment {
            Segment::Named(_) => Shape::Named,
            Segment::One => Shape::One,
        };
        self.segments.iter().map(shape).chain([end])
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let refuse = |why| PatternError {
            text: text.into(),
            why,
        };
        if text.len() > super::LONGEST {
            return Err(refuse(Why::TooLong));
        }
        let inner = text.strip_prefix('/').ok_or_else(|| refuse(Why::NoSlash))?;
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        let mut pattern = Self {
            text: format!("/{inner}").into(),
            segments: Vec::new(),
            takes_rest: false,
        };
        for segment in inner.split('/').filter(|_| !inner.is_empty()) {
            if pattern.takes_rest {
                return Err(refuse(Why::RestNotLast));
            }
            if pattern.segments.len() == MOST_SEGMENTS {
                return Err(refuse(Why::TooLong));
            }
            match placeholder(segment) {
                Some(Ok(Placeholder::One)) => pattern.segments.push(Segment::One),
                Some(Ok(Placeholder::Rest)) => pattern.takes_rest = true,
                Some(Err(why)) => return Err(refuse(why)),
                None => {
                    let name = named(segment).map_err(refuse)?;
                    pattern.segments.push(Segment::Named(name.into()));
                }
            }
        }
        Ok(pattern)
    }
}

enum Placeholder {
    One,
    Rest,
}

/// What stands in braces, if the segment has any.
fn placeholder(segment: &str) -> Option<Result<Placeholder, Why>> {
    if !segment.contains(['{', '}']) {
        return None;
    }
    let inside = segment
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    let Some(inside) = inside.filter(|inside| !inside.contains(['{', '}'])) else {
        return Some(Err(Why::BracesInside));
    };
    let (name, found) = match inside.strip_prefix('*') {
        Some(name) => (name, Placeholder::Rest),
        None => (inside, Placeholder::One),
    };
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    Some(match is_name && !name.is_empty() {
        true => Ok(found),
        false => Err(Why::BadName),
    })
}

fn named(segment: &str) -> Result<String, Why> {
    match segment {
        "" => return Err(Why::DoubleSlash),
        "*" | "**" => return Err(Why::Star),
        segment if segment.contains(['?', '#', ';']) => return Err(Why::NotAPath),
        _ => {}
    }
    let name = spelling::literal(segment).map_err(Why::Spelling)?;
    match &*name {
        "." | ".." => Err(Why::Dots),
        _ => Ok(name),
    }
}

/// Text that is not a [`Pattern`].
///
/// ```
/// use tollgate::Pattern;
///
/// let error = "/files/{name}.json".parse::<Pattern>().unwrap_err();
/// assert!(error.to_string().contains("a placeholder is a whole segment"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    text: Box<str>,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    NoSlash,
    TooLong,
    RestNotLast,
    BracesInside,
    BadName,
    DoubleSlash,
    Dots,
    NotAPath,
    Star,
    Spelling(PathError),
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: String = self.text.chars().take(100).collect();
        write!(f, "{text:?} is not a path pattern: ")?;
        match self.why {
            Why::NoSlash => f.write_str("begin it with a slash, as in \"/v1/charges/{id}\""),
            Why::TooLong => write!(f, "use at most {MOST_SEGMENTS} segments"),
            Why::RestNotLast => f.write_str("{*rest} stands for all that follows, so put it last"),
            Why::BracesInside => f.write_str(
                "a placeholder is a whole segment: write /files/{name} rather than /files/{name}.json",
            ),
            Why::BadName => f.write_str(
                "give the placeholder a name of letters, digits and _, as in {id} or {*rest}",
            ),
            Why::DoubleSlash => {
                f.write_str("doubled slashes are one in a request's path: write one")
            }
            Why::Dots => f.write_str(". and .. are resolved in a request's path: leave them out"),
            Why::NotAPath => f.write_str(
                "?, # and ; are not part of what is matched: leave them and what follows out",
            ),
            Why::Star => {
                f.write_str("write {name} for one segment, or {*rest} at the end for all that follow")
            }
            Why::Spelling(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PatternError {}
