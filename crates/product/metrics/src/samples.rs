//! Values of metrics, as they are collected for a page.

use crate::catalogue::Metric;
use nicekv_proto::Durations;
use nicekv_runtime::DatagramCounters;

#[derive(Debug)]
pub(crate) enum Value {
    Whole(u64),
    Real(f64),
    Histogram(Box<Durations>),
}

#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) metric: &'static Metric,
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: Value,
}

/// The samples of all roles.
#[derive(Debug, Default)]
pub(crate) struct Samples(pub(crate) Vec<Sample>);

impl Samples {
    fn push(&mut self, metric: &'static Metric, labels: &[&str], value: Value) {
        assert_eq!(metric.labels.len(), labels.len(), "labels of {}", metric.name);
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

/// Counters of a socket, by value of the label `outcome`.
pub(crate) fn outcomes(datagrams: &DatagramCounters) -> [(&'static str, u64); 4] {
    let DatagramCounters { received, too_long, sent, lost } = *datagrams;
    [("received", received), ("sent", sent), ("lost", lost), ("too_long", too_long)]
}
