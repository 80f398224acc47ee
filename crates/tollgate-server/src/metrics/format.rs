//! The two forms in which metrics are read: the text format 0.0.4, which every reader knows, and OpenMetrics for those who ask
//! for it.

use std::fmt::Write as _;

use http::HeaderMap;
use http::header::ACCEPT;

/// A form of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The text format of Prometheus, version 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

const OPEN_METRICS: &str = "application/openmetrics-text";

impl Format {
    /// OpenMetrics if it is asked for by its name, and not less than plain text.
    #[must_use]
    pub fn accepted(headers: &HeaderMap) -> Self {
        let (mut open, mut text) = (0, 0);
        let values = headers.get_all(ACCEPT).iter();
        for value in values.filter_map(|value| value.to_str().ok()) {
            for range in value.split(',') {
                let (name, settings) = range.split_once(';').unwrap_or((range, ""));
                let name = name.trim();
                let best = match name {
                    _ if name.eq_ignore_ascii_case(OPEN_METRICS) => &mut open,
                    _ if name.eq_ignore_ascii_case("text/plain") => &mut text,
                    _ => continue,
                };
                *best = (*best).max(thousandths(settings));
            }
        }
        match open > 0 && open >= text {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }

    /// What a reader is told of the form.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The weight `q` among the settings of a media range, in thousandths. One that cannot be read is none.
fn thousandths(settings: &str) -> u16 {
    let mut settings = settings
        .split(';')
        .filter_map(|setting| setting.split_once('='));
    let Some((_, weight)) = settings.find(|(name, _)| name.trim().eq_ignore_ascii_case("q")) else {
        return 1_000;
    };
    let (whole, part) = weight.trim().split_once('.').unwrap_or((weight.trim(), ""));
    let part = format!("{part:0<3}");
    match (whole, part.parse::<u16>()) {
        ("1", Ok(0)) => 1_000,
        ("0", Ok(part)) => part.min(999),
        _ => 0,
    }
}

/// OpenMetrics text in the text format 0.0.4: counters have their whole name in the head of their family, an info is a
/// gauge, and there are neither units nor an end.
pub(super) fn plain_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(family) = line.strip_prefix("# HELP ") {
            help = family.split_once(' ');
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|line| line.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, about)) = help.take().filter(|(family, _)| *family == name) {
                let _ = writeln!(text, "# HELP {name}{suffix} {about}");
            }
            let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(lines: &[&str]) -> Format {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ACCEPT, line.parse().unwrap());
        }
        Format::accepted(&headers)
    }

    #[test]
    fn open_metrics_is_for_readers_that_ask_for_it() {
        for lines in [
            &["application/openmetrics-text"][..],
            &["application/openmetrics-text; version=1.0.0; charset=utf-8"],
            // Prometheus 2 and 3.
            &[
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            ],
            &[
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 text/plain;version=0.0.4;q=0.5, */*;q=0.4",
            ],
            &["text/plain;q=0.5", "Application/OpenMetrics-Text ; q=0.8"],
        ] {
            assert_eq!(accepted(lines), Format::OpenMetrics, "{lines:?}");
        }
        for lines in [
            &[][..],
            &["*/*"],
            &["text/plain;version=0.0.4;q=1,*/*;q=0.1"],
            &["application/openmetrics-text;q=0"],
            &["application/openmetrics-text;q=0.3,text/plain;q=0.5"],
            &["application/openmetrics-text;q=much"],
            &["text/html,application/xhtml+xml"],
        ] {
            assert_eq!(accepted(lines), Format::Text, "{lines:?}");
        }
    }

    #[test]
    fn plain_text_has_whole_names_and_no_units() {
        let open = "# HELP a Things.\n# TYPE a counter\na_total{x=\"# TYPE a\"} 1\n# HELP b_seconds Time.\n\
                    # TYPE b_seconds gauge\n# UNIT b_seconds seconds\nb_seconds 2.5\n# HELP c Build.\n# TYPE c info\n\
                    c_info{v=\"1\"} 1\n# EOF\n";
        assert_eq!(
            plain_text(open),
            "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"# TYPE a\"} 1\n# HELP b_seconds Time.\n\
             # TYPE b_seconds gauge\nb_seconds 2.5\n# HELP c_info Build.\n# TYPE c_info gauge\nc_info{v=\"1\"} 1\n"
        );
    }
}
