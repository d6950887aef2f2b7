//! What is printed: a line for each metric of each cell, the paper's value beside ours.

use super::cells::Measured;
use super::paper::{bounds, printed};
use super::setup::Setup;
use super::tally::mean;
use crate::curves::{Axes, Chart};
use crate::report;
use crate::statistics::{Summary, figure};

pub(crate) const HEADER: [&str; 10] =
    ["", "workload", "protocol", "metric", "paper", "mean", "[min .. max]", "ratio", "bound", "met"];
/// The same beside a run of ours.
pub(crate) const HEADER_BEYOND: [&str; 10] =
    ["", "workload", "protocol", "metric", "plain", "mean", "[min .. max]", "ratio", "bound", "met"];
pub(crate) const THROUGHPUT: &str = "throughput";
pub(crate) const DISKS: &str = "disks' time";
pub(crate) const LATENCY: &str = "latency";

/// How near ours is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    /// A part of what is printed.
    Part(f64),
    /// Of the figure's own unit.
    Points(f64),
}

impl Bound {
    fn is_met(self, paper: f64, ours: f64) -> bool {
        match self {
            Self::Part(part) => (ours / paper - 1.0).abs() <= part,
            Self::Points(points) => (ours - paper).abs() <= points,
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Part(part) => write!(formatter, "± {:.0} %", 100.0 * part),
            Self::Points(points) => write!(formatter, "± {points} points"),
        }
    }
}

/// A metric of a cell, of each run.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The paper's table or figure.
    pub(crate) panel: &'static str,
    /// What its curve is drawn over, and where on it this is.
    pub(crate) axis: &'static str,
    pub(crate) at: f64,
    pub(crate) setup: Setup,
    pub(crate) metric: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) figures: Vec<f64>,
    /// What ours is compared with: the paper's, or a run of ours.
    pub(crate) beside: Option<(&'static str, f64)>,
    pub(crate) bound: Option<Bound>,
}

impl Line {
    pub(crate) fn of(
        (panel, axis, at): (&'static str, &'static str, f64),
        setup: &Setup,
        (metric, unit): (&'static str, &'static str),
        figures: Vec<f64>,
    ) -> Self {
        Self { panel, axis, at, setup: *setup, metric, unit, figures, beside: None, bound: None }
    }

    pub(crate) fn paper(self, paper: Option<f64>) -> Self {
        Self { beside: paper.map(|paper| ("paper", paper)), ..self }
    }

    pub(crate) fn bound(self, bound: Option<Bound>) -> Self {
        Self { bound, ..self }
    }

    pub(crate) fn mean(&self) -> f64 {
        mean(&self.figures)
    }

    pub(crate) fn is_met(&self) -> Option<bool> {
        let ((_, beside), bound) = (self.beside?, self.bound?);
        Some(bound.is_met(beside, self.mean()))
    }

    pub(crate) fn columns(&self) -> [String; 10] {
        let Summary { min, max, .. } = Summary::of(self.figures.iter().copied());
        let unit = if self.unit.is_empty() { String::new() } else { format!(", {}", self.unit) };
        let ratio = self.beside.map(|(_, beside)| format!("{:.3}", self.mean() / beside));
        [
            self.panel.into(),
            self.setup.workload(),
            self.setup.protocol.name().into(),
            format!("{}{unit}", self.metric),
            self.beside.map_or_else(String::new, |(_, beside)| number(beside)),
            number(self.mean()),
            format!("[{} .. {}]", number(min), number(max)),
            ratio.unwrap_or_default(),
            self.bound.map_or_else(String::new, |bound| bound.to_string()),
            self.is_met().map_or("", |is_met| if is_met { "yes" } else { "no" }).into(),
        ]
    }

    /// The ratio is that of means.
    pub(crate) fn json(&self, bench: &str) -> String {
        let ratio = self.beside.map(|(to, beside)| (to, self.mean() / beside));
        let (system, parameters) = (self.setup.protocol.name(), self.setup.parameters());
        report::row_of(bench, system, &parameters, (self.metric, self.unit), &self.figures, ratio)
    }
}

/// Shares and ratios may be small.
fn number(value: f64) -> String {
    if value.abs() < 10.0 { format!("{value:.2}") } else { figure(value) }
}

/// The three averages of a cell, beside those that the paper prints of it.
pub(crate) fn averages(key: (&'static str, &'static str, f64), measured: &Measured) -> [Line; 3] {
    let (setup, cell) = (&measured.setup, printed(&measured.setup));
    let [throughput, latency, disk] = bounds(setup.chunk_kib);
    let line = |metric, figures, paper: Option<f64>, bound| {
        Line::of(key, setup, metric, figures).paper(paper).bound(paper.map(|_| bound))
    };
    [
        line(
            (THROUGHPUT, "chunks/s"),
            measured.each(|outcome| outcome.chunks_per_second),
            cell.map(|cell| cell.chunks_per_second),
            Bound::Part(throughput),
        ),
        line(
            (DISKS, "%"),
            measured.each(|outcome| outcome.disk_percent),
            cell.map(|cell| cell.disk_percent),
            Bound::Points(disk),
        ),
        line(
            (LATENCY, "us"),
            measured.each(|outcome| outcome.latency_us),
            cell.map(|cell| cell.latency_us),
            Bound::Part(latency),
        ),
    ]
}

/// A chart for each metric of each panel that has at least two places on its axis.
pub(crate) fn charts(lines: &[Line]) -> Vec<Chart> {
    let mut charts: Vec<((&str, &str), Chart)> = Vec::new();
    for line in lines {
        let key = (line.panel, line.metric);
        let place = charts.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            let title = format!("{}  {}", line.panel, line.metric);
            let y = if line.unit.is_empty() { line.metric } else { line.unit };
            // Chunks are sixteen times as large, and so is what they take.
            let is_wide = line.axis.starts_with("chunk");
            let is_share = line.unit == "%";
            let axes =
                Axes { x: line.axis, y, is_logarithmic: is_wide, is_y_logarithmic: is_wide && !is_share };
            charts.push((key, Chart { title, axes, curves: Vec::new(), marks: Vec::new() }));
            charts.len() - 1
        });
        let Chart { curves, marks, .. } = &mut charts[place].1;
        let name = line.setup.protocol.name();
        let curve = curves.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            curves.push((name, Vec::new()));
            curves.len() - 1
        });
        curves[curve].1.push((line.at, line.mean()));
        marks.extend(line.beside.map(|(_, paper)| (curve, (line.at, paper))));
    }
    let is_wide = |points: &[(f64, f64)]| points.iter().any(|point| point.0 != points[0].0);
    let is_curve = |chart: &Chart| chart.curves.iter().any(|(_, points)| is_wide(points));
    charts.into_iter().map(|(_, chart)| chart).filter(is_curve).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicast::setup::Protocol;

    fn line(protocol: Protocol, at: f64, figures: &[f64]) -> Line {
        let setup = Setup::new(protocol, 128, 400);
        Line::of(("table2", "disk, MB/s", at), &setup, (THROUGHPUT, "chunks/s"), figures.to_vec())
    }

    #[test]
    fn ours_is_judged_by_its_mean() {
        let near = |figures: &[f64], bound| {
            line(Protocol::M, 400.0, figures).paper(Some(100.0)).bound(Some(bound)).is_met()
        };
        assert_eq!(near(&[90.0, 117.9], Bound::Part(0.04)), Some(true));
        assert_eq!(near(&[90.0, 118.1], Bound::Part(0.04)), Some(false));
        assert_eq!(near(&[97.0], Bound::Points(3.0)), Some(true));
        assert_eq!(near(&[96.9], Bound::Points(3.0)), Some(false));
        assert_eq!(line(Protocol::M, 400.0, &[1.0]).bound(Some(Bound::Points(3.0))).is_met(), None);
        let columns = line(Protocol::M, 400.0, &[90.0, 118.0]).paper(Some(100.0)).columns();
        assert_eq!(columns[4..8], ["100.0", "104.0", "[90.0 .. 118.0]", "1.040"]);
    }

    #[test]
    fn protocols_are_curves_of_one_chart_and_single_places_are_none() {
        let (m, h) = (Protocol::M, Protocol::H);
        let lines =
            [line(m, 400.0, &[1.0]), line(h, 400.0, &[2.0]).paper(Some(3.0)), line(m, 1_000.0, &[3.0, 5.0])];
        let drawn = charts(&lines);
        assert_eq!((drawn.len(), &drawn[0].marks[..]), (1, &[(1, (400.0, 3.0))][..]));
        let curves = [(m.name(), vec![(400.0, 1.0), (1_000.0, 4.0)]), (h.name(), vec![(400.0, 2.0)])];
        assert_eq!(drawn[0].curves, curves);
        assert!(charts(&lines[..2]).is_empty());
    }
}
