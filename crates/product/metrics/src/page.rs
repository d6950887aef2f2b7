//! A page of metrics: OpenMetrics text, encoded by `prometheus-client`.

use crate::catalogue::{ALL, Kind, Owner};
use crate::process;
use crate::roles::Source;
use crate::samples::{Samples, Value};
use nicekv_proto::Durations;
use nicekv_proto::durations::bound_ns;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Timeout for the answers of all roles of the process.
const GATHER_TIME: Duration = Duration::from_secs(2);

/// The metrics of a process.
#[derive(Debug)]
pub struct Page {
    registry: Registry,
}

impl Page {
    /// A page of these roles and of their process.
    pub fn new(sources: Vec<Source>) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Roles { sources, pages: AtomicU64::new(0) }));
        Self { registry }
    }

    /// Generates the page; takes up to two seconds if roles do not answer.
    pub fn text(&self) -> String {
        let mut text = String::new();
        text::encode(&mut text, &self.registry).expect("a string takes everything");
        text
    }
}

struct Roles {
    sources: Vec<Source>,
    pages: AtomicU64,
}

impl fmt::Debug for Roles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Roles").finish_non_exhaustive()
    }
}

impl Roles {
    fn gather(&self) -> Samples {
        let mut samples = Samples::default();
        let pages = self.pages.fetch_add(1, Ordering::Relaxed) + 1;
        process::gather(&mut samples, pages);
        let deadline = Instant::now() + GATHER_TIME;
        for source in &self.sources {
            source.gather(&mut samples, deadline);
        }
        samples
    }
}

impl Collector for Roles {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let samples = self.gather().0;
        let has = |owner| owner == Owner::Process || self.sources.iter().any(|source| source.has(owner));
        for metric in ALL.iter().filter(|metric| has(metric.owner)) {
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut encoder = encoder.encode_descriptor(metric.name, metric.help, None, kind)?;
            let mut samples = samples.iter().filter(|sample| std::ptr::eq(sample.metric, *metric));
            if metric.labels.is_empty() {
                samples.next().map_or(Ok(()), |only| only.value.encode(metric.kind, encoder))?;
                continue;
            }
            for sample in samples {
                sample.value.encode(metric.kind, encoder.encode_family(&sample.labels)?)?;
            }
        }
        Ok(())
    }
}

impl Value {
    fn encode(&self, kind: Kind, encoder: MetricEncoder<'_>) -> fmt::Result {
        match (self, kind) {
            (Self::Whole(value), Kind::Counter) => ConstCounter::new(*value).encode(encoder),
            (Self::Real(value), Kind::Counter) => ConstCounter::new(*value).encode(encoder),
            // Values are far below the maximum of i64.
            (Self::Whole(value), _) => ConstGauge::new(*value as i64).encode(encoder),
            (Self::Real(value), _) => ConstGauge::new(*value).encode(encoder),
            (Self::Histogram(durations), _) => encode_durations(durations, encoder),
        }
    }
}

fn encode_durations(durations: &Durations, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    let counts = durations.counts();
    let bound =
        |bucket| if bucket + 1 < counts.len() { bound_ns(bucket) as f64 / 1e9 } else { f64::INFINITY };
    let buckets: Vec<_> = counts.iter().enumerate().map(|(bucket, count)| (bound(bucket), *count)).collect();
    let sum_s = durations.sum_ns() as f64 / 1e9;
    encoder.encode_histogram::<NoLabelSet>(sum_s, durations.count(), &buckets, None)
}
