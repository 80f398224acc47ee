//! What callers hear of limits: which header fields, and the body of a denial. The same at every door.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use http::header::{CONTENT_TYPE, HeaderValue};
use tollgate_tower::answer::{Answers, HeaderFamilies};

use crate::document::reading::{Fields, Place, choice, shown, text};
use crate::document::{Problems, Spot};
use crate::template::{self, Template};

pub(super) const ANSWERS: &[&str] = &["headers", "denied"];
pub(super) const DENIED: &[&str] = &["body", "body_file", "content_type"];

const PLAIN: &str = "text/plain; charset=utf-8";

/// What callers hear of limits.
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
    /// Where it is, if it is in a file of its own.
    file: Option<(PathBuf, Spot)>,
    /// `None` until that file is read.
    template: Option<Template>,
}

impl AnswersConfig {
    pub(super) fn answers(&self) -> Answers {
        let answers = Answers::new(self.families);
        let Some(denied) = &self.denied else {
            return answers;
        };
        let Some(template) = denied.template.clone() else {
            return answers;
        };
        let content_type = denied.content_type.clone();
        answers.with(move |denial| {
            let mut response = http::Response::new(template.write(denial).into());
            *response.status_mut() = denial.status();
            let content_type = content_type.clone();
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            response
        })
    }

    /// What the file with the body holds now, if there is one.
    pub(super) fn file_contents(&self) -> Option<Result<String, String>> {
        let (file, _) = self.denied.as_ref()?.file.as_ref()?;
        Some(read(file))
    }

    /// Reads that file.
    pub(super) fn read_file(&mut self, problems: &mut Problems) {
        let Some(denied) = &mut self.denied else {
            return;
        };
        let Some((file, spot)) = &denied.file else {
            return;
        };
        let text = match read(file) {
            Ok(text) => text,
            Err(why) => {
                problems
                    .error(spot.clone(), format!("{file:?} {why}"))
                    .help("name a file with the text that denials are answered with");
                return;
            }
        };
        match Template::parse(&text, denied.is_json) {
            Ok(template) => denied.template = Some(template),
            Err(error) => {
                problems
                    .error(spot.clone(), format!("in {file:?} {error}"))
                    .help(error.help());
            }
        }
    }
}

/// At most a byte more than may be.
fn read(file: &Path) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    // To open what is no file, such as a pipe, may wait for ever.
    if !file.metadata().map_err(cannot)?.is_file() {
        return Err("is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    let most = u64::try_from(template::LONGEST + 1).unwrap_or(u64::MAX);
    let read = File::open(file).and_then(|file| file.take(most).read_to_end(&mut bytes));
    read.map_err(cannot)?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        // A character may have been cut in two.
        Err(error) if error.as_bytes().len() > template::LONGEST => {
            Ok(String::from_utf8_lossy(error.as_bytes()).into_owned())
        }
        Err(_) => Err("is not UTF-8 text".to_owned()),
    }
}

pub(super) fn answers(place: &Place<'_>, problems: &mut Problems) -> Option<AnswersConfig> {
    let fields = Fields::of(place, ANSWERS, problems)?;
    Some(AnswersConfig {
        families: fields.or("headers", HeaderFamilies::default(), problems, families),
        denied: fields.optional("denied", problems, denied),
    })
}

/// Whether one of the families is sent.
type Family = fn(&mut HeaderFamilies) -> &mut bool;

/// An empty list is a choice: nothing is said.
fn families(place: &Place<'_>, problems: &mut Problems) -> Option<HeaderFamilies> {
    let words: [(&'static str, Family); 3] = [
        ("x-ratelimit", |families| &mut families.legacy),
        ("ratelimit", |families| &mut families.standard),
        ("retry-after", |families| &mut families.retry_after),
    ];
    let mut families = HeaderFamilies {
        legacy: false,
        standard: false,
        retry_after: false,
    };
    for item in place.items("x-ratelimit, ratelimit and retry-after", problems)? {
        if let Some(family) = choice(&words)(&item, problems) {
            *family(&mut families) = true;
        }
    }
    Some(families)
}

fn denied(place: &Place<'_>, problems: &mut Problems) -> Option<DeniedBody> {
    let fields = Fields::of(place, DENIED, problems)?;
    let plain = HeaderValue::from_static(PLAIN);
    let content_type = fields.or("content_type", plain, problems, content_type);
    let is_json = is_json(&content_type);
    let named = fields.optional("body_file", problems, text(4_096, "the name of a file"));
    let file = named.map(|file| (PathBuf::from(file), fields.spot_of("body_file")));
    let template = fields.optional("body", problems, |place, problems| {
        body(place, is_json, problems)
    });
    match (fields.has("body"), fields.has("body_file")) {
        (true, true) => {
            problems
                .error(fields.spot_of("body_file"), "the body is said twice")
                .help("leave `body` or `body_file` out");
        }
        (false, false) => {
            place
                .error(problems, "the body of denials is missing")
                .help("such as body: \"Slow down, try again in {retry_after} s\", or a body_file; leave `denied` out for problem details");
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

fn body(place: &Place<'_>, is_json: bool, problems: &mut Problems) -> Option<Template> {
    let scalar = place.scalar("the text of a denial", problems)?;
    match Template::parse(&scalar.text, is_json) {
        Ok(template) => Some(template),
        // A name in it may be a part of what the environment holds.
        Err(template::TemplateError::Unknown { .. }) if scalar.is_from_environment() => {
            place.error(problems, "there is a placeholder in it that is not known");
            None
        }
        Err(error) => {
            place.error(problems, error.to_string()).help(error.help());
            None
        }
    }
}

fn content_type(place: &Place<'_>, problems: &mut Problems) -> Option<HeaderValue> {
    let expected = "a media type such as application/json";
    let said = text(200, expected)(place, problems)?;
    let essence = said.split(';').next().unwrap_or_default().trim_end();
    let is_part = |part: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "!#$&-^_.+".contains(c);
        !part.is_empty() && part.chars().all(is_plain)
    };
    let is_type = (essence.split_once('/')).is_some_and(|(a, b)| is_part(a) && is_part(b));
    let value = HeaderValue::from_str(&said).ok().filter(|_| is_type);
    if value.is_none() || !said.is_ascii() {
        let got = place.peek().map(shown).unwrap_or_default();
        place.error(problems, format!("{got} is not {expected}"));
        return None;
    }
    value
}

fn is_json(content_type: &HeaderValue) -> bool {
    let essence = content_type.to_str().unwrap_or_default().split(';').next();
    let essence = essence.unwrap_or_default().trim().to_ascii_lowercase();
    essence.ends_with("/json") || essence.ends_with("+json")
}
