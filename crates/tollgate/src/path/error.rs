//! What can be wrong with a path.

use std::fmt;

/// Why a path was refused. Its text says where, and never repeats what a client wrote.
///
/// ```
/// use tollgate::{PathError, RuleSet};
///
/// let error = RuleSet::default().read_path("/files%2Fsecret").unwrap_err();
/// assert_eq!(error, PathError::EncodedSlash { at: 6 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathError {
    /// It does not begin with a slash.
    NoSlash,
    /// It is longer than 8 KiB.
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// A `%` that two hexadecimal digits do not follow.
    BadEncoding {
        /// Where, in bytes.
        at: usize,
    },
    /// A control character, as it is or encoded.
    Control {
        /// Where, in bytes.
        at: usize,
    },
    /// A backslash, as it is or encoded: some servers take it for a slash.
    Backslash {
        /// Where, in bytes.
        at: usize,
    },
    /// A slash written as `%2F`: some servers take it for a slash.
    EncodedSlash {
        /// Where, in bytes.
        at: usize,
    },
    /// A dot, slash, backslash or NUL that is encoded twice.
    EncodedTwice {
        /// Where, in bytes.
        at: usize,
    },
    /// `.` or `..` beside a `;` or an encoded slash: some servers go up there.
    HiddenDots {
        /// Where, in bytes of the normalised path.
        at: usize,
    },
    /// A segment of nothing but what comes behind a `;`: some servers leave it out, and some take it for a name.
    NoNameBefore {
        /// Where, in bytes of the normalised path.
        at: usize,
    },
    /// A `#`: no path of a request has one.
    Fragment {
        /// Where, in bytes.
        at: usize,
    },
    /// Bytes that are not UTF-8.
    NotUtf8,
    /// Servers may read it in ways to which different rules apply.
    Ambiguous,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlash => f.write_str("the path does not begin with a slash"),
            Self::TooLong { bytes } => write!(
                f,
                "the path has {bytes} bytes; it can have at most {}",
                super::LONGEST
            ),
            Self::BadEncoding { at } => write!(
                f,
                "the path has a % at byte {at} that two hexadecimal digits do not follow; write %25 for a percent sign"
            ),
            Self::Control { at } => write!(
                f,
                "the path has a control character at byte {at}; `paths: {{ accept: [control] }}` allows encoded ones"
            ),
            Self::Backslash { at } => write!(
                f,
                "the path has a backslash at byte {at}; `paths: {{ accept: [backslash] }}` allows it"
            ),
            Self::EncodedSlash { at } => write!(
                f,
                "the path has an encoded slash (%2F) at byte {at}; `paths: {{ encoded_slash: keep }}` allows it"
            ),
            Self::EncodedTwice { at } => {
                write!(
                    f,
                    "the path has a character at byte {at} that is encoded twice; `paths: {{ accept: [encoded_twice] }}` allows it"
                )
            }
            Self::HiddenDots { at } => write!(
                f,
                "the path has dots beside a semicolon or an encoded slash (such as ..%2F) at byte {at}; `paths: {{ accept: [parameters] }}` allows those beside a semicolon"
            ),
            Self::NoNameBefore { at } => write!(
                f,
                "the path has a segment at byte {at} that begins with a semicolon; `paths: {{ accept: [parameters] }}` allows it"
            ),
            Self::Fragment { at } => write!(f, "the path has a # at byte {at}"),
            Self::NotUtf8 => f.write_str(
                "the path is not UTF-8; `paths: { accept: [not_utf8] }` allows it",
            ),
            Self::Ambiguous => f.write_str(
                "servers may read this path in ways that meet different rules: send it without needless escapes, doubled slashes, dot segments and parameters",
            ),
        }
    }
}

impl std::error::Error for PathError {}
