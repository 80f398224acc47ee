//! What clients learn about their limits: the headers, and the body of denials. The same at every listener.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use http::header::{CONTENT_TYPE, HeaderValue};
use tollgate_tower::answer::{Answers, HeaderFamilies};

use crate::document::reading::{Fields, Input, choice, list, map, text};
use crate::document::{Location, Problems};
use crate::template::{MAX_BYTES, Template};
use crate::values::file;

/// What clients learn about their limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AnswersConfig {
    families: HeaderFamilies,
    denied: Option<DeniedBody>,
}

/// The body of denials.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeniedBody {
    content_type: HeaderValue,
    is_json: bool,
    /// The file that it is in, if any.
    file: Option<(PathBuf, Location)>,
    /// `None` until that file is read.
    template: Option<Template>,
}

impl AnswersConfig {
    pub(super) fn answers(&self) -> Answers {
        let answers = Answers::new(self.families);
        let Some(DeniedBody {
            template: Some(template),
            content_type,
            ..
        }) = self.denied.clone()
        else {
            return answers;
        };
        answers.with(move |denial| {
            let mut response = http::Response::new(template.write(denial).into());
            *response.status_mut() = denial.status();
            let content_type = content_type.clone();
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            response
        })
    }

    /// The current content of the file with the body, if there is one.
    pub(super) fn file_contents(&self) -> Option<Result<String, String>> {
        let (file, _) = self.denied.as_ref()?.file.as_ref()?;
        Some(read(file))
    }

    /// Reads that file.
    pub(super) fn read_file(&mut self, problems: &mut Problems) {
        let Some(denied) = &mut self.denied else {
            return;
        };
        let Some((file, location)) = &denied.file else {
            return;
        };
        let (message, help) = match read(file) {
            Ok(text) => match Template::parse(&text, denied.is_json) {
                Ok(template) => {
                    denied.template = Some(template);
                    return;
                }
                Err(error) => (format!("in {file:?} {}", error.message), error.help),
            },
            Err(error) => (
                format!("{file:?} {error}"),
                "name a file with the body of denials".to_owned(),
            ),
        };
        problems.error(location.clone(), message).help(help);
    }
}

/// Reads at most one byte more than a body may have.
fn read(file: &Path) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    // Opening something else, such as a pipe, may block forever.
    if !file.metadata().map_err(cannot)?.is_file() {
        return Err("is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    let read =
        File::open(file).and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes));
    match read.map_err(cannot)? > MAX_BYTES {
        // The last character may have been cut in two.
        true => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        false => String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned()),
    }
}

pub(super) fn answers(fields: &Fields<'_>) -> Option<AnswersConfig> {
    let mut answers = AnswersConfig {
        families: HeaderFamilies::default(),
        denied: None,
    };
    fields.set("headers", &mut answers.families, families);
    answers.denied = fields.read("denied", map(denied));
    Some(answers)
}

/// An empty list is a choice: no headers.
fn families(input: &Input<'_>) -> Option<HeaderFamilies> {
    let words = ["x-ratelimit", "ratelimit", "retry-after", "source"].map(|word| (word, word));
    let sent = list(
        "x-ratelimit, ratelimit, retry-after and source",
        choice(&words),
    )(input)?;
    Some(HeaderFamilies {
        legacy: sent.contains(&"x-ratelimit"),
        standard: sent.contains(&"ratelimit"),
        retry_after: sent.contains(&"retry-after"),
        source: sent.contains(&"source"),
    })
}

fn denied(fields: &Fields<'_>) -> Option<DeniedBody> {
    let mut content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    fields.set("content_type", &mut content_type, media_type);
    let essence = essence(content_type.to_str().unwrap_or_default()).to_ascii_lowercase();
    let is_json = essence.ends_with("/json") || essence.ends_with("+json");
    let file = fields.read("body_file", file("the path of a file"));
    let file = file.map(|file| (file, fields.location_of("body_file")));
    let template = fields.read("body", |input| body(input, is_json));
    match (fields.has("body"), fields.has("body_file")) {
        (true, true) => {
            fields
                .error_at("body_file", "the body is set twice")
                .help("remove `body` or `body_file`");
        }
        (false, false) => {
            fields
                .input()
                .error("the body of denials is missing")
                .help("such as body: \"Slow down, try again in {retry_after} s\", or a body_file; remove `denied` for problem details");
        }
        _ => {}
    }
    Some(DeniedBody {
        content_type,
        is_json,
        file,
        template,
    })
}

fn body(input: &Input<'_>, is_json: bool) -> Option<Template> {
    let text = &input.scalar("the text of a denial")?.text;
    match Template::parse(text, is_json) {
        Ok(template) => Some(template),
        // The name may be a part of what the environment holds.
        Err(error) if error.quotes_text && input.is_from_environment() => {
            input.reject("it contains an unknown placeholder", "")
        }
        Err(error) => input.reject(error.message, &error.help),
    }
}

fn media_type(input: &Input<'_>) -> Option<HeaderValue> {
    let expected = "a media type such as application/json";
    text(200, expected)(input)?;
    input.parse(expected, |text| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "!#$&-^_.+".contains(c);
        let is_part = |part: &str| !part.is_empty() && part.chars().all(allowed);
        let (kind, subtype) = essence(text).split_once('/')?;
        let is_type = is_part(kind) && is_part(subtype) && text.is_ascii();
        HeaderValue::from_str(text).ok().filter(|_| is_type)
    })
}

/// A media type without its parameters.
fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}
