//! Writes metrics that are collected when they are read.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Unit;
use tollgate::store::Spread;

pub(crate) struct MetricsEncoder<'a>(pub(crate) DescriptorEncoder<'a>);

impl MetricsEncoder<'_> {
    pub(crate) fn counter(&mut self, name: &str, help: &str, count: u64) -> fmt::Result {
        encode_count(self.metric(name, help, None, MetricType::Counter)?, count)
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.metric(name, help, None, MetricType::Gauge)?
            .encode_gauge(&value)
    }

    pub(crate) fn seconds(&mut self, name: &str, help: &str, value: Duration) -> fmt::Result {
        self.metric(name, help, Some(&Unit::Seconds), MetricType::Gauge)?
            .encode_gauge(&value.as_secs_f64())
    }

    /// A gauge without a sample if there is no value.
    pub(super) fn ratio(&mut self, name: &str, help: &str, value: Option<f64>) -> fmt::Result {
        let mut metric = self.metric(name, help, None, MetricType::Gauge)?;
        value.map_or(Ok(()), |value| metric.encode_gauge(&value))
    }

    pub(super) fn info(&mut self, name: &str, help: &str, label: (&str, &str)) -> fmt::Result {
        self.metric(name, help, None, MetricType::Info)?
            .encode_info(&[label])
    }

    /// Counters by their labels.
    pub(super) fn counters<'l, const N: usize>(
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

    /// Gauges by their labels.
    pub(super) fn gauges<'l, const N: usize>(
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
    pub(super) fn histogram(
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
