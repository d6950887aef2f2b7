//! Rows of the figures.

use super::experiment::{Experiment, Measured};
use crate::report::{Goal, Row};

/// A metric that falls from period to period.
pub(crate) const THRESHOLD: &str = "T ÷ mean load of a server";
/// Minimum number of frames per second through the kernel programs.
const FRAMES: Goal = Goal::AtLeast(500_000.0);

/// A metric of an experiment, at a place on the horizontal axis of a panel of the paper.
pub(crate) fn row(
    (panel, axis, place): (&'static str, &'static str, f64),
    experiment: &Experiment,
    system: &str,
    metric: (&str, &'static str),
    figures: Vec<f64>,
) -> Row {
    let row = Row::new(experiment.workload(), system, metric, figures).parameters(experiment.parameters());
    let row = row.panel(panel);
    if axis.is_empty() { row } else { row.at(axis, place) }
}

/// λ of each period.
pub(crate) fn lambda(key: (&'static str, &'static str, f64), measured: &Measured) -> Row {
    let Measured { experiment, lambdas, .. } = measured;
    row(key, experiment, experiment.system.name(), ("lambda", ""), lambdas.clone())
}

/// Frames per second through the kernel programs (KVSwitch's client sends 30 million; two
/// processors make half a million or more).
pub(crate) fn frame_rate(measured: &Measured) -> Option<Row> {
    let (rate, experiment) = (measured.rate?, &measured.experiment);
    let row = row(("fed", "", 0.0), experiment, experiment.system.name(), ("frames", "1/s"), vec![rate]);
    Some(row.goal(FRAMES))
}

/// Which axes (horizontal, vertical) of a row's chart are logarithmic: lambda and throughput differ
/// by orders of magnitude between systems, and T falls by a factor.
pub(crate) fn logarithmic(row: &Row) -> (bool, bool) {
    (false, matches!(row.metric.as_str(), "lambda" | "throughput" | THRESHOLD))
}
