//! Rows of the tables: a metric of a setup over all seeds, the paper's value beside it.

use super::paper::{bounds, printed};
use super::runs::Measured;
use super::setup::Setup;
use crate::report::{Goal, Row};
use crate::statistics::mean;

pub(crate) const THROUGHPUT: &str = "throughput";

/// The figures of all seeds, at a place on the horizontal axis of a panel of the paper. The paper's
/// tables have means.
pub(crate) fn row(
    (panel, axis, place): (&'static str, &'static str, f64),
    setup: &Setup,
    metric: (&str, &'static str),
    figures: Vec<f64>,
) -> Row {
    let row = Row::new(setup.workload(), setup.protocol.name(), metric, figures);
    let row = Row { is_mean: true, ..row.panel(panel).parameters(setup.parameters()) };
    if axis.is_empty() { row } else { row.at(axis, place) }
}

/// The same beside the paper's value.
pub(crate) fn beside_paper(row: Row, paper: Option<f64>) -> Row {
    let Some(value) = paper else { return row };
    let ratio = mean(&row.figures) / value;
    row.paper(paper).ratio("paper", ratio)
}

/// Throughput, disks' time and latency of a setup, beside the paper's.
pub(crate) fn averages(key: (&'static str, &'static str, f64), measured: &Measured) -> [Row; 3] {
    let (setup, cell) = (&measured.setup, printed(&measured.setup));
    let [throughput, latency, disk_points] = bounds(setup.chunk_kib);
    let of = |metric, figures, paper: Option<f64>, bound: f64| {
        beside_paper(row(key, setup, metric, figures), paper).goal(paper.map(|_| Goal::NearOne(bound)))
    };
    let disk_percent = cell.map(|cell| cell.disk_percent);
    [
        of(
            (THROUGHPUT, "chunks/s"),
            measured.each(|outcome| outcome.chunks_per_second),
            cell.map(|cell| cell.chunks_per_second),
            throughput,
        ),
        of(
            ("disks' time", "%"),
            measured.each(|outcome| outcome.disk_percent),
            disk_percent,
            disk_points / disk_percent.unwrap_or(1.0),
        ),
        of(
            ("latency", "us"),
            measured.each(|outcome| outcome.latency_us),
            cell.map(|cell| cell.latency_us),
            latency,
        ),
    ]
}

/// Which axes (horizontal, vertical) of a row's chart are logarithmic: chunks of 1M are 64 times
/// those of 16K, and so are their figures.
pub(crate) fn logarithmic(row: &Row) -> (bool, bool) {
    let is_wide = row.at.is_some_and(|(axis, _)| axis.starts_with("chunk"));
    (is_wide, is_wide && row.unit != "%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicast_sim::setup::Protocol;

    #[test]
    fn ours_is_judged_by_its_mean() {
        let setup = Setup::new(Protocol::M, 128, 400);
        let is_near = |figures: &[f64], bound| {
            let row = row(("table2", "", 0.0), &setup, (THROUGHPUT, "chunks/s"), figures.to_vec());
            beside_paper(row, Some(100.0)).goal(Goal::NearOne(bound)).is_met()
        };
        assert_eq!(is_near(&[90.0, 117.9], 0.04), Some(true));
        assert_eq!(is_near(&[90.0, 118.1], 0.04), Some(false));
    }
}
