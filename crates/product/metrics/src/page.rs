//! Samples, and the page that they make: OpenMetrics text, by `prometheus-client`.

use crate::catalogue::{ALL, Kind, Metric, Owner};
use crate::process;
use crate::roles::Source;
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

/// For the answers of all roles of a process.
const GATHER_TIME: Duration = Duration::from_secs(2);

/// What a metric says of one thing.
#[derive(Debug)]
enum Value {
    Whole(u64),
    Real(f64),
    Histogram(Box<Durations>),
}

#[derive(Debug)]
struct Sample {
    metric: &'static Metric,
    labels: Vec<(&'static str, String)>,
    value: Value,
}

/// What all roles said.
#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<Sample>);

impl Samples {
    fn push(&mut self, metric: &'static Metric, labels: &[&str], value: Value) {
        assert_eq!(metric.labels.len(), labels.len(), "{} has these labels", metric.name);
        let labels =
            metric.labels.iter().copied().zip(labels.iter().map(|label| (*label).to_owned())).collect();
        self.0.push(Sample { metric, labels, value });
    }

    pub(crate) fn set(&mut self, metric: &'static Metric, labels: &[&str], value: u64) {
        self.push(metric, labels, Value::Whole(value));
    }

    pub(crate) fn set_real(&mut self, metric: &'static Metric, labels: &[&str], value: f64) {
        self.push(metric, labels, Value::Real(value));
    }

    pub(crate) fn set_durations(&mut self, metric: &'static Metric, labels: &[&str], durations: &Durations) {
        self.push(metric, labels, Value::Histogram(Box::new(*durations)));
    }
}

/// The metrics of a process.
#[derive(Debug)]
pub struct Page {
    registry: Registry,
}

impl Page {
    /// Of the process that these roles run in.
    pub fn new(sources: Vec<Source>) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Roles { sources, pages: AtomicU64::new(0) }));
        Self { registry }
    }

    /// As of now. Takes two seconds at most, if roles do not answer.
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
            // All of ours are far below what a signed number holds.
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
