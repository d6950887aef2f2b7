//! Reports: tables for people, one JSON object per line for programs, charts as SVG.
//!
//! ```text
//!   Row: a metric of one system              ─▶ a line of the table, a line of JSON
//!   Comparison: a metric beside a peer's,
//!               and the processor time of both ─▶ a line of the table, four lines of JSON, a panel of bars
//! ```

use crate::bar_chart::{self, Bar, Panel};
use crate::error::Result;
use crate::line_chart::{self, Axes, Chart};
use crate::output::OutputArguments;
use crate::statistics::{Rounds, Summary, figure, mean, median, precise, ratios};
use serde::Serialize;
use serde_json::Value;
use std::fmt::{self, Display, Write as _};

/// The system under test, as JSON names it.
pub(crate) const NICEKV: &str = "nicekv";

/// Which figures meet a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    Between(f64, f64),
    /// A ratio that differs from 1 by at most this.
    NearOne(f64),
}

impl Goal {
    pub(crate) fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            Self::Between(least, most) => (least..=most).contains(&value),
            Self::NearOne(part) => (value - 1.0).abs() <= part,
        }
    }
}

impl Display for Goal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(formatter, "≥ {least}"),
            Self::AtMost(most) => write!(formatter, "≤ {most}"),
            Self::Between(least, most) => write!(formatter, "{least} to {most}"),
            Self::NearOne(part) => write!(formatter, "± {:.1} %", 100.0 * part),
        }
    }
}

/// One metric of one system under one workload, over the rounds (or seeds) of a run.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Id in the list of targets to reach, as `P9`.
    pub(crate) target: Option<&'static str>,
    /// Figure or table of the paper, as `7a`.
    pub(crate) panel: &'static str,
    pub(crate) workload: String,
    pub(crate) system: String,
    pub(crate) is_peer: bool,
    pub(crate) metric: String,
    pub(crate) unit: &'static str,
    /// How it was measured, for JSON.
    pub(crate) parameters: Value,
    /// One per round.
    pub(crate) figures: Vec<f64>,
    /// The table shows the mean instead of the median.
    pub(crate) is_mean: bool,
    /// The system that this one is compared with, and the ratio to it.
    pub(crate) ratio: Option<(String, f64)>,
    /// The figure that the paper prints.
    pub(crate) paper: Option<f64>,
    /// Judges the ratio, or the figure if there is no ratio.
    pub(crate) goal: Option<Goal>,
    /// For people only.
    pub(crate) remark: String,
    /// Name of the horizontal axis of this row's curve, and the place on it.
    pub(crate) at: Option<(&'static str, f64)>,
}

impl Row {
    pub(crate) fn new(
        workload: impl Into<String>,
        system: impl Into<String>,
        (metric, unit): (impl Into<String>, &'static str),
        figures: Vec<f64>,
    ) -> Self {
        Self {
            target: None,
            panel: "",
            workload: workload.into(),
            system: system.into(),
            is_peer: false,
            metric: metric.into(),
            unit,
            parameters: Value::Null,
            figures,
            is_mean: false,
            ratio: None,
            paper: None,
            goal: None,
            remark: String::new(),
            at: None,
        }
    }

    pub(crate) fn parameters(self, parameters: Value) -> Self {
        Self { parameters, ..self }
    }

    pub(crate) fn peer(self, is_peer: bool) -> Self {
        Self { is_peer, ..self }
    }

    pub(crate) fn panel(self, panel: &'static str) -> Self {
        Self { panel, ..self }
    }

    pub(crate) fn at(self, axis: &'static str, place: f64) -> Self {
        Self { at: Some((axis, place)), ..self }
    }

    pub(crate) fn ratio(self, to: impl Into<String>, ratio: f64) -> Self {
        Self { ratio: Some((to.into(), ratio)), ..self }
    }

    /// The median of the ratios to the figures of another system in the same rounds.
    pub(crate) fn beside(self, to: impl Into<String>, theirs: &[f64]) -> Self {
        let ratio = median(&ratios(&self.figures, theirs));
        self.ratio(to, ratio)
    }

    pub(crate) fn paper(self, paper: Option<f64>) -> Self {
        Self { paper, ..self }
    }

    pub(crate) fn goal(self, goal: impl Into<Option<Goal>>) -> Self {
        Self { goal: goal.into(), ..self }
    }

    pub(crate) fn target(self, target: impl Into<Option<&'static str>>) -> Self {
        Self { target: target.into(), ..self }
    }

    pub(crate) fn remark(self, remark: impl Into<String>) -> Self {
        Self { remark: remark.into(), ..self }
    }

    /// The figure that the table shows: the median, or the mean.
    pub(crate) fn average(&self) -> f64 {
        if self.is_mean { mean(&self.figures) } else { median(&self.figures) }
    }

    /// `None` without a goal.
    pub(crate) fn is_met(&self) -> Option<bool> {
        let judged = self.ratio.as_ref().map_or_else(|| self.average(), |(_, ratio)| *ratio);
        self.goal.map(|goal| goal.is_met(judged))
    }

    fn full_metric(&self) -> String {
        if self.unit.is_empty() { self.metric.clone() } else { format!("{}, {}", self.metric, self.unit) }
    }

    fn columns(&self) -> Vec<String> {
        let Summary { min, max, .. } = Summary::of(&self.figures);
        let (to, ratio) = self.ratio.as_ref().map(|(to, ratio)| (to.clone(), format!("{ratio:.3}"))).unzip();
        vec![
            self.target.unwrap_or(self.panel).into(),
            self.workload.clone(),
            self.system.clone(),
            self.full_metric(),
            precise(self.average()),
            format!("[{} .. {}]", precise(min), precise(max)),
            ratio.unwrap_or_default(),
            to.unwrap_or_default(),
            self.paper.map(precise).unwrap_or_default(),
            self.goal.map(|goal| goal.to_string()).unwrap_or_default(),
            self.is_met().map_or("", yes_or_no).into(),
            self.remark.clone(),
        ]
    }

    fn json(&self, bench: &str) -> String {
        let Summary { median, min, max } = Summary::of(&self.figures);
        let line = Line {
            bench,
            system: &self.system,
            parameters: &self.parameters,
            rounds: self.figures.len(),
            metric: &self.metric,
            unit: self.unit,
            median,
            min,
            max,
            ratio_to: self.ratio.as_ref().map(|(to, _)| to.as_str()),
            ratio: self.ratio.as_ref().map(|(_, ratio)| *ratio),
            target: self.target,
        };
        serde_json::to_string(&line).expect("plain data always encodes") + "\n"
    }

    fn is_of_same_panel(&self, other: &Self) -> bool {
        (&self.workload, &self.metric, self.target) == (&other.workload, &other.metric, other.target)
    }
}

fn yes_or_no(is_met: bool) -> &'static str {
    if is_met { "yes" } else { "no" }
}

/// A line of JSON: one metric of one system. `ratio_to` and `ratio` are null for what others are
/// compared with.
#[derive(Serialize)]
struct Line<'a> {
    bench: &'a str,
    system: &'a str,
    parameters: &'a Value,
    rounds: usize,
    metric: &'a str,
    unit: &'a str,
    median: f64,
    min: f64,
    max: f64,
    ratio_to: Option<&'a str>,
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
}

/// A metric of NICEKV beside that of a peer, and the cost of an operation for both, measured in the
/// same rounds.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    /// Id in the list of targets to reach, if it is in it.
    pub(crate) target: Option<&'static str>,
    /// Judges the ratio of the metric.
    pub(crate) goal: Option<Goal>,
    pub(crate) title: String,
    /// The network between the hosts, where rows differ in it.
    pub(crate) network: Option<&'static str>,
    pub(crate) metric: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) peer: &'static str,
    /// How it was measured, for JSON.
    pub(crate) parameters: Value,
    pub(crate) rounds: Rounds,
    /// Processor time of the whole machine per operation, in microseconds.
    pub(crate) costs: Rounds,
}

impl Comparison {
    const HEADER: [&str; 12] = [
        "",
        "metric",
        NICEKV,
        "peer",
        "",
        "ratio",
        "[min .. max]",
        "CPU us/op",
        "peer",
        "ratio",
        "target",
        "met",
    ];

    fn columns(&self) -> Vec<String> {
        let Self { rounds, costs, .. } = self;
        let ratio = Summary::of(&rounds.ratios());
        vec![
            self.target.unwrap_or_default().into(),
            format!("{}, {}", self.labelled(&self.title), self.unit),
            figure(median(&rounds.ours)),
            figure(median(&rounds.peers)),
            self.peer.into(),
            format!("{:.2}", ratio.median),
            format!("[{:.2} .. {:.2}]", ratio.min, ratio.max),
            figure(median(&costs.ours)),
            figure(median(&costs.peers)),
            format!("{:.2}", median(&costs.ratios())),
            self.goal.map(|goal| goal.to_string()).unwrap_or_default(),
            self.goal.map_or("", |goal| yes_or_no(goal.is_met(ratio.median))).into(),
        ]
    }

    /// The figure of both sides, then the cost of both.
    fn rows(&self) -> [Row; 4] {
        let pair = |metric, rounds: &Rounds| {
            let row = |system, figures: &[f64]| {
                Row::new("", system, metric, figures.to_vec()).parameters(self.parameters.clone())
            };
            [row(NICEKV, &rounds.ours).beside(self.peer, &rounds.peers), row(self.peer, &rounds.peers)]
        };
        let [ours, peers] = pair((self.metric, self.unit), &self.rounds);
        let [our_cost, peers_cost] = pair(("cpu_per_op", "us"), &self.costs);
        [ours.target(self.target), peers, our_cost, peers_cost]
    }

    fn labelled(&self, label: &str) -> String {
        self.network.map_or_else(|| label.to_owned(), |network| format!("{label}, {network}"))
    }

    fn bars(&self) -> [Bar; 2] {
        let Rounds { ours, peers } = &self.rounds;
        [Bar::ours(self.labelled(NICEKV), ours), Bar::peers(self.labelled(self.peer), peers)]
    }

    /// Whether `other` is the same target on another network.
    fn is_of_same_target(&self, other: &Self) -> bool {
        self.target.is_some() && self.target == other.target
    }
}

/// Collects what a bench has to report.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    bench: &'static str,
    /// Not printed yet.
    text: String,
    json: String,
    panels: Vec<Panel>,
    charts: Vec<Chart>,
}

impl Report {
    pub(crate) fn new(bench: &'static str) -> Self {
        Self { bench, text: String::new(), json: String::new(), panels: Vec::new(), charts: Vec::new() }
    }

    /// A line of the table and a line of JSON for each row. Columns without content are left out.
    pub(crate) fn rows(&mut self, rows: &[Row]) {
        let average = if rows.iter().any(|row| row.is_mean) { "mean" } else { "median" };
        let header = [
            "",
            "workload",
            "system",
            "metric",
            average,
            "[min .. max]",
            "ratio",
            "to",
            "paper",
            "target",
            "met",
            "",
        ];
        let mut lines: Vec<Vec<String>> = rows.iter().map(Row::columns).collect();
        let is_used: Vec<bool> =
            (0..header.len()).map(|column| lines.iter().any(|line| !line[column].is_empty())).collect();
        let keep_used = |column: &mut usize| {
            *column += 1;
            is_used[*column - 1]
        };
        for line in &mut lines {
            let mut column = 0;
            line.retain(|_| keep_used(&mut column));
        }
        let mut column = 0;
        let header: Vec<&str> = header.into_iter().filter(|_| keep_used(&mut column)).collect();
        self.table(&header, lines);
        rows.iter().for_each(|row| self.record(row));
    }

    /// The same, and a panel of bars for each metric of each workload.
    pub(crate) fn rows_with_bars(&mut self, rows: &[Row]) {
        self.rows(rows);
        let panel = |rows: &[Row]| {
            let Row { target, workload, .. } = &rows[0];
            let bar = |row: &Row| match row.is_peer {
                true => Bar::peers(&*row.system, &row.figures),
                false => Bar::ours(&*row.system, &row.figures),
            };
            let id = target.map(|id| format!("{id}  ")).unwrap_or_default();
            let mut bars: Vec<Bar> = rows.iter().map(bar).collect();
            // A system compared with several others has a row for each.
            bars.dedup();
            Panel { title: format!("{id}{workload}, {}", rows[0].full_metric()), bars }
        };
        self.panels.extend(rows.chunk_by(Row::is_of_same_panel).map(panel));
    }

    pub(crate) fn comparisons(&mut self, comparisons: &[Comparison]) {
        self.table(&Comparison::HEADER, comparisons.iter().map(Comparison::columns));
        comparisons.iter().flat_map(Comparison::rows).for_each(|row| self.record(&row));
        let panel = |row: &[Comparison]| {
            let Comparison { target, title, unit, .. } = &row[0];
            let id = target.map(|id| format!("{id}  ")).unwrap_or_default();
            Panel {
                title: format!("{id}{title}, {unit}"),
                bars: row.iter().flat_map(Comparison::bars).collect(),
            }
        };
        self.panels.extend(comparisons.chunk_by(Comparison::is_of_same_target).map(panel));
    }

    /// For each target on each further network: the figures of each side ÷ its figures on the first
    /// network.
    pub(crate) fn across_networks(&mut self, comparisons: &[Comparison]) {
        for row in comparisons.chunk_by(Comparison::is_of_same_target) {
            for other in &row[1..] {
                let ratio = |there: &[f64], here: &[f64]| {
                    let Summary { median, min, max } = Summary::of(&ratios(there, here));
                    format!("{median:.2} [{min:.2} .. {max:.2}]")
                };
                let ours = ratio(&other.rounds.ours, &row[0].rounds.ours);
                let peers = ratio(&other.rounds.peers, &row[0].rounds.peers);
                let [there, first] =
                    [other, &row[0]].map(|comparison| comparison.network.unwrap_or_default());
                let (id, title, peer) = (other.target.unwrap_or_default(), &other.title, other.peer);
                self.note(format_args!(
                    "{id:3}  {title}, {there} ÷ {first}: {NICEKV} {ours}, {peer} {peers}"
                ));
            }
        }
    }

    /// A line of JSON only.
    pub(crate) fn record(&mut self, row: &Row) {
        self.json += &row.json(self.bench);
    }

    /// A table for people only.
    pub(crate) fn table(&mut self, header: &[&str], lines: impl IntoIterator<Item = Vec<String>>) {
        let mut table = comfy_table::Table::new();
        table.load_preset(comfy_table::presets::NOTHING).set_header(header.iter().copied());
        table.add_rows(lines);
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        for line in table.lines() {
            self.note(line.trim_end());
        }
    }

    /// A line for people only.
    pub(crate) fn note(&mut self, line: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    pub(crate) fn panel(&mut self, panel: Panel) {
        self.panels.push(panel);
    }

    pub(crate) fn charts(&mut self, charts: impl IntoIterator<Item = Chart>) {
        self.charts.extend(charts);
    }

    /// Prints what was added since the last time, so that a long run shows its parts.
    pub(crate) fn print(&mut self) {
        print!("{}", std::mem::take(&mut self.text));
    }

    /// Prints, and writes the files that were asked for: lines of JSON, bars as NAME.svg. Curves
    /// are in NAME.svg if there are no bars, else in NAME-curves.svg.
    pub(crate) fn finish(mut self, output: &OutputArguments) -> Result<()> {
        self.print();
        output.write_json(&self.json)?;
        let Self { bench, panels, charts, .. } = &self;
        if panels.is_empty() {
            return output.draw(bench, || line_chart::svg(charts));
        }
        output.draw(bench, || bar_chart::svg(panels))?;
        if charts.is_empty() {
            Ok(())
        } else {
            output.draw(&format!("{bench}-curves"), || line_chart::svg(charts))
        }
    }
}

/// A chart for each metric of each panel, if a system has at least two places on its axis.
/// `logarithmic` says which of the axes (horizontal, vertical) of a row's chart are.
pub(crate) fn charts(rows: &[Row], logarithmic: impl Fn(&Row) -> (bool, bool)) -> Vec<Chart> {
    let mut charts: Vec<((&str, &str), Chart)> = Vec::new();
    for row in rows {
        let Some((x, place)) = row.at else { continue };
        let key = (row.panel, row.metric.as_str());
        let index = charts.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            let y = if row.unit.is_empty() { &row.metric } else { row.unit }.to_owned();
            let (is_logarithmic, is_y_logarithmic) = logarithmic(row);
            let axes = Axes { x, y, is_logarithmic, is_y_logarithmic };
            let title = format!("{}  {}", row.panel, row.metric);
            charts.push((key, Chart { title, axes, curves: Vec::new(), marks: Vec::new() }));
            charts.len() - 1
        });
        let Chart { curves, marks, .. } = &mut charts[index].1;
        let curve = curves.iter().position(|(name, _)| *name == row.system).unwrap_or_else(|| {
            curves.push((row.system.clone(), Vec::new()));
            curves.len() - 1
        });
        curves[curve].1.push((place, row.average()));
        marks.extend(row.paper.map(|paper| (curve, (place, paper))));
    }
    let is_wide = |points: &[(f64, f64)]| points.iter().any(|point| point.0 != points[0].0);
    let is_curve = |chart: &Chart| chart.curves.iter().any(|(_, points)| is_wide(points));
    charts.into_iter().map(|(_, chart)| chart).filter(is_curve).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn comparison() -> Comparison {
        Comparison {
            target: Some("P4b"),
            goal: Some(Goal::AtMost(0.6)),
            title: "put, one caller".into(),
            network: Some("tc"),
            metric: "mean_time",
            unit: "us",
            peer: "redis",
            parameters: json!({ "callers": 1 }),
            rounds: Rounds { ours: vec![40.0, 50.0, 30.0], peers: vec![80.0; 3] },
            costs: Rounds { ours: vec![20.0], peers: vec![80.0] },
        }
    }

    fn reported(comparisons: &[Comparison]) -> Report {
        let mut report = Report::new("peers");
        report.comparisons(comparisons);
        report
    }

    #[test]
    fn json_lines_have_the_agreed_fields() {
        let text = reported(&[comparison()]).json;
        let ours = concat!(
            r#"{"bench":"peers","system":"nicekv","parameters":{"callers":1},"rounds":3,"metric":"mean_time","unit":"us","#,
            r#""median":40.0,"min":30.0,"max":50.0,"ratio_to":"redis","ratio":0.5,"target":"P4b"}"#,
        );
        let peers = concat!(
            r#"{"bench":"peers","system":"redis","parameters":{"callers":1},"rounds":3,"metric":"mean_time","unit":"us","#,
            r#""median":80.0,"min":80.0,"max":80.0,"ratio_to":null,"ratio":null}"#,
        );
        assert!(text.starts_with(&format!("{ours}\n{peers}\n")), "{text}");
        let cost = r#""metric":"cpu_per_op","unit":"us","median":20.0,"min":20.0,"max":20.0,"ratio_to":"redis","ratio":0.25}"#;
        assert!(text.lines().nth(2).unwrap().ends_with(cost), "{text}");
    }

    #[test]
    fn the_table_says_whether_a_target_is_met() {
        let missed = Comparison { goal: Some(Goal::AtLeast(1.5)), ..comparison() };
        let report = reported(&[comparison(), missed]);
        let lines: Vec<&str> = report.text.lines().collect();
        assert!(lines[1].contains("0.50") && lines[1].ends_with("yes"), "{}", report.text);
        assert!(lines[2].contains("≥ 1.5") && lines[2].ends_with("no"), "{}", report.text);
    }

    #[test]
    fn a_panel_has_both_sides_on_all_networks_of_a_target() {
        let of_xdp = Comparison { network: Some("xdp"), ..comparison() };
        let alone = || Comparison { target: None, network: None, ..comparison() };
        let report = reported(&[of_xdp, comparison(), alone(), alone()]);
        let labels = |panel: &Panel| panel.bars.iter().map(|bar| bar.label.clone()).collect::<Vec<_>>();
        assert_eq!(report.panels[0].title, "P4b  put, one caller, us");
        assert_eq!(labels(&report.panels[0]), ["nicekv, xdp", "redis, xdp", "nicekv, tc", "redis, tc"]);
        assert_eq!(
            (report.panels.len(), labels(&report.panels[1])),
            (3, vec![NICEKV.into(), "redis".into()])
        );
        let bar = &report.panels[0].bars[3];
        assert_eq!((bar.is_peers, bar.summary.median), (true, 80.0));
    }

    #[test]
    fn networks_are_compared_round_by_round() {
        let rounds = Rounds { ours: vec![20.0, 50.0, 60.0], peers: vec![40.0, 40.0, 160.0] };
        let xdp = Comparison { network: Some("xdp"), rounds, ..comparison() };
        let other = Comparison { target: Some("P4a"), ..comparison() };
        let mut report = Report::new("peers");
        report.across_networks(&[xdp, comparison(), other]);
        let line = "P4b  put, one caller, tc ÷ xdp: nicekv 1.00 [0.50 .. 2.00], redis 2.00 [0.50 .. 2.00]\n";
        assert_eq!(report.text, line);
    }

    fn row(system: &str, place: f64, figures: &[f64]) -> Row {
        Row::new("zipf", system, ("lambda", ""), figures.to_vec()).panel("7a").at("skew", place)
    }

    #[test]
    fn a_goal_judges_the_ratio_if_there_is_one_and_the_average_otherwise() {
        let row = || row("kvswitch", 0.9, &[1.0, 2.0, 6.0]).goal(Goal::AtMost(2.0));
        assert_eq!(row().is_met(), Some(true));
        assert_eq!(Row { is_mean: true, ..row() }.is_met(), Some(false));
        assert_eq!(row().beside("netcache", &[0.5, 0.5, 0.5]).is_met(), Some(false));
        assert_eq!(Row { goal: None, ..row() }.is_met(), None);
        assert!(Goal::NearOne(0.04).is_met(0.961) && !Goal::NearOne(0.04).is_met(1.041));
        assert!(Goal::Between(0.9, 1.1).is_met(1.1) && !Goal::Between(0.9, 1.1).is_met(0.89));
    }

    #[test]
    fn a_table_of_rows_has_no_empty_columns() {
        let mut report = Report::new("kvswitch-fig7");
        report.rows(&[row("kvswitch", 0.9, &[0.016]).paper(Some(0.017)), row("netcache", 0.9, &[12.0])]);
        let lines: Vec<Vec<&str>> =
            report.text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["workload", "system", "metric", "median", "[min", "..", "max]", "paper"]);
        assert_eq!(
            lines[1],
            ["7a", "zipf", "kvswitch", "lambda", "0.0160", "[0.0160", "..", "0.0160]", "0.0170"]
        );
        assert_eq!((lines.len(), report.json.lines().count()), (3, 2));
    }

    #[test]
    fn systems_are_curves_of_one_chart_and_single_places_make_none() {
        let lines =
            |paper| [row("a", 0.9, &[1.0]).paper(paper), row("b", 0.9, &[2.0]), row("a", 1.5, &[3.0, 5.0])];
        let drawn = charts(&lines(Some(0.017)), |_| (false, true));
        assert_eq!((drawn.len(), drawn[0].marks.as_slice()), (1, &[(0, (0.9, 0.017))][..]));
        let curves = [("a".to_owned(), vec![(0.9, 1.0), (1.5, 4.0)]), ("b".to_owned(), vec![(0.9, 2.0)])];
        assert_eq!(drawn[0].curves, curves);
        assert!(charts(&lines(None)[..2], |_| (false, false)).is_empty());
    }
}
