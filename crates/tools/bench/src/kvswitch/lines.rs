//! What the figures print: a line for each metric of each cell.

use super::cells::{Cell, Measured};
use crate::curves::{Axes, Chart};
use crate::report::{self, Goal};
use crate::statistics::{self, Summary};
use serde_json::Value;

pub(crate) const HEADER: [&str; 9] =
    ["figure", "workload", "system", "metric", "median", "[min .. max]", "paper", "target", "met"];

/// A metric that falls from period to period.
pub(crate) const THRESHOLD: &str = "T ÷ mean load of a server";
/// Frames a second that programs are to be given, at least.
const FRAMES_MIN: f64 = 500_000.0;

/// A metric of a cell, of each measured period.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The paper's, as `7a`.
    pub(crate) panel: &'static str,
    /// What its curve is drawn over, and where on it this is.
    pub(crate) axis: &'static str,
    pub(crate) at: f64,
    pub(crate) workload: String,
    pub(crate) system: &'static str,
    pub(crate) metric: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) figures: Vec<f64>,
    pub(crate) paper: Option<f64>,
    pub(crate) goal: Option<Goal>,
    pub(crate) parameters: Value,
}

impl Line {
    /// A metric of what was measured.
    pub(crate) fn of(
        (panel, axis, at): (&'static str, &'static str, f64),
        (cell, system): (&Cell, &'static str),
        (metric, unit): (&'static str, &'static str),
        figures: Vec<f64>,
    ) -> Self {
        let (workload, parameters) = (cell.workload(), cell.parameters());
        Self { panel, axis, at, workload, system, metric, unit, figures, paper: None, goal: None, parameters }
    }

    pub(crate) fn paper(self, paper: Option<f64>) -> Self {
        Self { paper, ..self }
    }

    pub(crate) fn goal(self, goal: Option<Goal>) -> Self {
        Self { goal, ..self }
    }

    pub(crate) fn median(&self) -> f64 {
        Summary::of(self.figures.iter().copied()).median
    }

    pub(crate) fn columns(&self) -> [String; 9] {
        let Summary { median, min, max } = Summary::of(self.figures.iter().copied());
        let unit = if self.unit.is_empty() { String::new() } else { format!(", {}", self.unit) };
        let met = self.goal.map(|goal| if goal.is_met(median) { "yes" } else { "no" });
        [
            self.panel.into(),
            self.workload.clone(),
            self.system.into(),
            format!("{}{unit}", self.metric),
            number(median),
            format!("[{} .. {}]", number(min), number(max)),
            self.paper.map_or_else(String::new, number),
            self.goal.map_or_else(String::new, |goal| goal.to_string()),
            met.unwrap_or_default().into(),
        ]
    }

    pub(crate) fn json(&self, bench: &str) -> String {
        report::row_of(bench, self.system, &self.parameters, (self.metric, self.unit), &self.figures, None)
    }
}

/// λ and shares are small.
pub(crate) fn number(value: f64) -> String {
    if value.abs() < 10.0 { format!("{value:.4}") } else { statistics::figure(value) }
}

/// Round by round.
pub(crate) fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect()
}

/// λ of each period.
pub(crate) fn lambda(key: (&'static str, &'static str, f64), measured: &Measured) -> Line {
    let Measured { cell, lambdas, .. } = measured;
    Line::of(key, (cell, cell.system.name()), ("lambda", ""), lambdas.clone())
}

/// Frames that programs in the kernel were given in a second (KVSwitch's client sends 30 million, two processors half a million or more).
pub(crate) fn fed(measured: &Measured) -> Option<Line> {
    let (rate, cell) = (measured.rate?, &measured.cell);
    let line = Line::of(("fed", "", 0.0), (cell, cell.system.name()), ("frames", "1/s"), vec![rate]);
    Some(line.goal(Some(Goal::AtLeast(FRAMES_MIN))))
}

/// A chart for each metric of each panel that has at least two places on its axis.
pub(crate) fn charts(lines: &[Line]) -> Vec<Chart> {
    let mut charts: Vec<(&str, &str, Chart)> = Vec::new();
    for line in lines {
        let point = (line.at, line.median());
        let place =
            charts.iter().position(|(panel, metric, _)| (*panel, *metric) == (line.panel, line.metric));
        let place = place.unwrap_or_else(|| {
            let title = format!("{}  {}", line.panel, line.metric);
            let y = if line.unit.is_empty() { line.metric } else { line.unit };
            // Without balance they are many times what they are with it; T falls by a factor, and a switch that answers by itself knows no bound.
            let is_y_logarithmic = matches!(line.metric, "lambda" | "throughput" | THRESHOLD);
            let axes = Axes { x: line.axis, y, is_logarithmic: false, is_y_logarithmic };
            charts.push((
                line.panel,
                line.metric,
                Chart { title, axes, curves: Vec::new(), marks: Vec::new() },
            ));
            charts.len() - 1
        });
        let Chart { curves, marks, .. } = &mut charts[place].2;
        let curve = curves.iter().position(|(name, _)| *name == line.system).unwrap_or_else(|| {
            curves.push((line.system, Vec::new()));
            curves.len() - 1
        });
        curves[curve].1.push(point);
        marks.extend(line.paper.map(|paper| (curve, (line.at, paper))));
    }
    let is_wide = |points: &[(f64, f64)]| points.iter().any(|point| point.0 != points[0].0);
    let is_curve = |chart: &Chart| chart.curves.iter().any(|(_, points)| is_wide(points));
    charts.into_iter().map(|(_, _, chart)| chart).filter(is_curve).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(system: &'static str, at: f64, figures: &[f64]) -> Line {
        Line {
            panel: "7a",
            axis: "skew",
            at,
            workload: String::new(),
            system,
            metric: "lambda",
            unit: "",
            figures: figures.to_vec(),
            paper: Some(0.017),
            goal: Some(Goal::AtMost(0.017)),
            parameters: json!({}),
        }
    }

    #[test]
    fn a_line_is_judged_by_its_median() {
        let met = |figures: &[f64]| line("kvswitch", 0.9, figures).columns()[8].clone();
        assert_eq!((met(&[0.01, 0.016, 0.3]), met(&[0.01, 0.018, 0.3])), ("yes".into(), "no".into()));
    }

    #[test]
    fn systems_are_curves_of_one_chart_and_single_places_are_none() {
        let lines = [line("a", 0.9, &[1.0]), line("b", 0.9, &[2.0]), line("a", 1.5, &[3.0, 5.0])];
        let drawn = charts(&lines);
        assert_eq!(drawn.len(), 1);
        assert_eq!(drawn[0].marks, [(0, (0.9, 0.017)), (1, (0.9, 0.017)), (0, (1.5, 0.017))]);
        assert_eq!(drawn[0].curves, [("a", vec![(0.9, 1.0), (1.5, 4.0)]), ("b", vec![(0.9, 2.0)])]);
        assert!(charts(&lines[..2]).is_empty());
        assert!(charts(&[line("a", 0.0, &[1.0]), line("a", 0.0, &[2.0])]).is_empty());
    }
}
