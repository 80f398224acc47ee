//! Metrics in the formats of Prometheus and OpenMetrics.
//!
//! Decisions are counted where they are made ([`counters`](crate::counters)); everything else is collected when the metrics are
//! read. Labels are rules, which are configured and bounded, and the clients that are denied most often at the moment.

mod program;

use std::fmt::{self, Write as _};
use std::time::Duration;

use http::HeaderMap;
use http::header::ACCEPT;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};
use tollgate::store::Spread;

use crate::decider::Decider;
use program::ProgramMetrics;

/// A registry with the metrics of the program. Those of others begin with `tollgate_` too.
pub(crate) fn registry(decider: &Decider) -> Registry {
    let mut registry = Registry::default();
    let own = registry.sub_registry_with_prefix("tollgate");
    own.register_collector(Box::new(ProgramMetrics::new(decider.clone())));
    registry
}

pub(crate) fn text(registry: &Registry, format: Format) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, registry);
    match format {
        Format::OpenMetrics => text,
        Format::Text => plain_text(&text),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// The text format of Prometheus, version 0.0.4, which every reader knows.
    Text,
    OpenMetrics,
}

impl Format {
    /// OpenMetrics if it is requested by name, and not with less weight than plain text.
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        let (mut open_metrics, mut text) = (0.0_f64, 0.0_f64);
        let values = headers.get_all(ACCEPT).iter();
        let values = values.filter_map(|value| value.to_str().ok());
        for range in values.flat_map(|value| value.split(',')) {
            let (name, parameters) = range.split_once(';').unwrap_or((range, ""));
            let best = match name.trim().to_ascii_lowercase().as_str() {
                "application/openmetrics-text" => &mut open_metrics,
                "text/plain" => &mut text,
                _ => continue,
            };
            *best = best.max(weight(parameters));
        }
        match open_metrics > 0.0 && open_metrics >= text {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The weight `q` among the parameters of a media range. An invalid one is 0.
fn weight(parameters: &str) -> f64 {
    let mut parameters = parameters.split(';').filter_map(|it| it.split_once('='));
    let weight = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    let weight = weight.map_or(Ok(1.0), |(_, weight)| weight.trim().parse());
    weight
        .ok()
        .filter(|weight| (0.0..=1.0).contains(weight))
        .unwrap_or(0.0)
}

/// Converts OpenMetrics to the text format 0.0.4: counters have their full names in the head of their family, an info is a
/// gauge, and there are neither units nor an end mark.
fn plain_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        let family = line.strip_prefix("# TYPE ");
        if let Some(family) = line.strip_prefix("# HELP ") {
            help = family.split_once(' ');
        } else if let Some((name, kind)) = family.and_then(|family| family.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, help)) = help.take().filter(|(family, _)| *family == name) {
                let _ = writeln!(text, "# HELP {name}{suffix} {help}");
            }
            let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// Writes metrics that are collected when they are read.
pub(crate) struct MetricsEncoder<'a>(pub(crate) DescriptorEncoder<'a>);

impl MetricsEncoder<'_> {
    pub(crate) fn counter(&mut self, name: &str, help: &str, count: u64) -> fmt::Result {
        encode_count(self.metric(name, help, None, MetricType::Counter)?, count)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.metric(name, help, None, MetricType::Gauge)?
            .encode_gauge(&value)
    }

    pub(crate) fn seconds(&mut self, name: &str, help: &str, value: Duration) -> fmt::Result {
        self.metric(name, help, Some(&Unit::Seconds), MetricType::Gauge)?
            .encode_gauge(&value.as_secs_f64())
    }

    /// A gauge without a sample if there is no value.
    fn ratio(&mut self, name: &str, help: &str, value: Option<f64>) -> fmt::Result {
        let mut metric = self.metric(name, help, None, MetricType::Gauge)?;
        value.map_or(Ok(()), |value| metric.encode_gauge(&value))
    }

    fn info(&mut self, name: &str, help: &str, label: (&str, &str)) -> fmt::Result {
        self.metric(name, help, None, MetricType::Info)?
            .encode_info(&[label])
    }

    fn counters<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = ([(&'static str, &'l str); N], u64)>,
    ) -> fmt::Result {
        let mut metric = self.metric(name, help, None, MetricType::Counter)?;
        for (labels, count) in samples {
            encode_count(metric.encode_family(&labels)?, count)?;
        }
        Ok(())
    }

    fn gauges<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = ([(&'static str, &'l str); N], u64)>,
    ) -> fmt::Result {
        let mut metric = self.metric(name, help, None, MetricType::Gauge)?;
        for (labels, value) in samples {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// A histogram of whole numbers, `per_unit` of which are one unit.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts and microseconds are far below 2^53"
    )]
    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        spread: &Spread,
        per_unit: f64,
    ) -> fmt::Result {
        let bounds = spread.bounds.iter().map(|bound| *bound as f64 / per_unit);
        let bounds = bounds.chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(spread.counts.iter().copied()).collect();
        let (sum, count) = (spread.sum as f64 / per_unit, spread.counts.iter().sum());
        self.metric(name, help, unit, MetricType::Histogram)?
            .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        unit: Option<&'s Unit>,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, unit, kind)
    }
}

fn encode_count(mut metric: MetricEncoder<'_>, count: u64) -> fmt::Result {
    metric.encode_counter(&count, None::<&Exemplar<NoLabelSet, u64>>)
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
    fn open_metrics_is_sent_only_if_it_is_requested() {
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
    fn the_text_format_has_full_names_and_no_units() {
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
