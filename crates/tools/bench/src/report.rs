//! What a bench prints: a table for people, one JSON object per line for programs.

use crate::plot::{Bar, Panel};
use crate::statistics::{Rounds, Summary, figure};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// Which ratios meet a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    pub(crate) fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(least) => ratio >= least,
            Self::AtMost(most) => ratio <= most,
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(least) => write!(formatter, "≥ {least}"),
            Self::AtMost(most) => write!(formatter, "≤ {most}"),
        }
    }
}

/// A line of JSON about figures of NICEKV that are compared with nothing but, perhaps, a target.
pub(crate) fn row(
    bench: &str,
    parameters: &Value,
    (metric, unit): (&str, &str),
    figures: &[f64],
    target: Option<&str>,
) -> String {
    let Summary { median, min, max } = Summary::of(figures.iter().copied());
    let (system, rounds, ratio_to, ratio) = ("nicekv", figures.len(), None, None);
    let row =
        Row { bench, system, parameters, rounds, metric, unit, median, min, max, ratio_to, ratio, target };
    line(&row)
}

/// The same of one of several systems, which may be compared with another one of them.
pub(crate) fn row_of(
    bench: &str,
    system: &str,
    parameters: &Value,
    (metric, unit): (&str, &str),
    figures: &[f64],
    ratio: Option<(&str, f64)>,
) -> String {
    let Summary { median, min, max } = Summary::of(figures.iter().copied());
    let (rounds, target) = (figures.len(), None);
    let (ratio_to, ratio) = (ratio.map(|(to, _)| to), ratio.map(|(_, ratio)| ratio));
    let row =
        Row { bench, system, parameters, rounds, metric, unit, median, min, max, ratio_to, ratio, target };
    line(&row)
}

fn line<P: Serialize>(row: &Row<'_, P>) -> String {
    serde_json::to_string(row).expect("plain data always encodes") + "\n"
}

/// A finished comparison of NICEKV with a peer.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) bench: &'static str,
    /// The target's id in the list of figures to reach, if it is there.
    pub(crate) target: Option<&'static str>,
    pub(crate) goal: Option<Goal>,
    /// What is compared, for people.
    pub(crate) title: String,
    /// The network between the hosts, where rows differ in that.
    pub(crate) network: Option<&'static str>,
    pub(crate) metric: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) peer: &'static str,
    /// How it was measured.
    pub(crate) parameters: Map<String, Value>,
    pub(crate) rounds: Rounds,
    /// Microseconds of processor time per op, of everybody who takes part.
    pub(crate) costs: Rounds,
}

/// One line of JSON: one metric of one system. The peer's lines have no ratio, being what ours are compared with.
#[derive(Serialize)]
struct Row<'a, P = Map<String, Value>> {
    bench: &'a str,
    system: &'a str,
    parameters: &'a P,
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

impl Comparison {
    fn rows(&self) -> [Row<'_>; 4] {
        let [figure, peers_figure] = self.pair(&self.rounds, (self.metric, self.unit), self.target);
        let [cost, peers_cost] = self.pair(&self.costs, ("cpu_per_op", "us"), None);
        [figure, peers_figure, cost, peers_cost]
    }

    fn full_title(&self) -> String {
        [Some(self.title.as_str()), self.network].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Whether it is the same on another network.
    pub(crate) fn is_row_of(&self, other: &Self) -> bool {
        self.target.is_some() && self.target == other.target
    }

    fn pair<'a>(
        &'a self,
        rounds: &Rounds,
        (metric, unit): (&'a str, &'a str),
        target: Option<&'a str>,
    ) -> [Row<'a>; 2] {
        let row = |system, Summary { median, min, max }| Row {
            bench: self.bench,
            system,
            parameters: &self.parameters,
            rounds: rounds.pairs.len(),
            metric,
            unit,
            median,
            min,
            max,
            ratio_to: None,
            ratio: None,
            target: None,
        };
        let ours = Row {
            ratio_to: Some(self.peer),
            ratio: Some(rounds.ratios().median),
            target,
            ..row("nicekv", rounds.ours())
        };
        [ours, row(self.peer, rounds.peers())]
    }
}

/// The table.
pub(crate) fn table(comparisons: &[Comparison]) -> String {
    let header = [
        "",
        "metric",
        "nicekv",
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
    let mut lines = vec![header.map(String::from)];
    for comparison in comparisons {
        let ratios = comparison.rounds.ratios();
        let goal = comparison.goal.map_or_else(String::new, |goal| goal.to_string());
        let met = comparison.goal.map(|goal| if goal.is_met(ratios.median) { "yes" } else { "no" });
        lines.push([
            comparison.target.unwrap_or_default().into(),
            format!("{}, {}", comparison.full_title(), comparison.unit),
            figure(comparison.rounds.ours().median),
            figure(comparison.rounds.peers().median),
            comparison.peer.into(),
            format!("{:.2}", ratios.median),
            format!("[{:.2} .. {:.2}]", ratios.min, ratios.max),
            figure(comparison.costs.ours().median),
            figure(comparison.costs.peers().median),
            format!("{:.2}", comparison.costs.ratios().median),
            goal,
            met.unwrap_or_default().into(),
        ]);
    }
    aligned(&lines)
}

/// Rows on further networks beside the same on the first one, each side by itself: a line for each.
pub(crate) fn across_networks(comparisons: &[Comparison]) -> String {
    let mut text = String::new();
    for row in comparisons.chunk_by(Comparison::is_row_of) {
        for other in &row[1..] {
            let (first, other_rounds) = (&row[0].rounds, &other.rounds);
            let ratios = [first.ours_beside(other_rounds), first.peers_beside(other_rounds)];
            let [ours, peers] =
                ratios.map(|Summary { median, min, max }| format!("{median:.2} [{min:.2} .. {max:.2}]"));
            let [here, there] = [other, &row[0]].map(|comparison| comparison.network.unwrap_or_default());
            let (id, title, peer) = (other.target.unwrap_or_default(), &other.title, other.peer);
            let _ = writeln!(text, "{id:3}  {title}, {here} ÷ {there}: nicekv {ours}, {peer} {peers}");
        }
    }
    text
}

/// Columns as wide as their widest cell.
pub(crate) fn aligned<const COLUMNS: usize>(lines: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for line in lines {
        let cells: Vec<String> =
            line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}

/// A panel for each row, on all its networks.
pub(crate) fn panels(comparisons: &[Comparison]) -> Vec<Panel> {
    let bars = |comparison: &Comparison| {
        let label = |system: &str| {
            [Some(system), comparison.network].into_iter().flatten().collect::<Vec<_>>().join(", ")
        };
        let ours = Bar::ours(label("nicekv"), comparison.rounds.ours());
        let peers = Bar::ours(label(comparison.peer), comparison.rounds.peers());
        [ours, Bar { is_peers: true, ..peers }]
    };
    let panel = |row: &[Comparison]| {
        let Comparison { target, title, unit, .. } = &row[0];
        let id = target.map(|id| format!("{id}  ")).unwrap_or_default();
        Panel { title: format!("{id}{title}, {unit}"), bars: row.iter().flat_map(bars).collect() }
    };
    comparisons.chunk_by(Comparison::is_row_of).map(panel).collect()
}

/// The lines of JSON.
pub(crate) fn json(comparisons: &[Comparison]) -> String {
    comparisons.iter().flat_map(Comparison::rows).map(|row| line(&row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison() -> Comparison {
        Comparison {
            bench: "peers",
            target: Some("P4b"),
            goal: Some(Goal::AtMost(0.6)),
            title: "put, one caller".into(),
            network: Some("tc"),
            metric: "mean_time",
            unit: "us",
            peer: "redis",
            parameters: Map::from_iter([("callers".to_owned(), Value::from(1))]),
            rounds: Rounds { pairs: vec![(40.0, 80.0), (50.0, 80.0), (30.0, 80.0)] },
            costs: Rounds { pairs: vec![(20.0, 80.0)] },
        }
    }

    #[test]
    fn lines_of_json_have_the_agreed_fields() {
        let text = json(&[comparison()]);
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
        let text = table(&[comparison(), missed]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("0.50") && lines[1].ends_with("yes"), "{text}");
        assert!(lines[2].contains("≥ 1.5") && lines[2].ends_with("no"), "{text}");
    }

    #[test]
    fn a_panel_has_both_sides_on_all_networks_of_a_row() {
        let of_xdp = Comparison { network: Some("xdp"), ..comparison() };
        let alone = || Comparison { target: None, network: None, ..comparison() };
        let panels = panels(&[of_xdp, comparison(), alone(), alone()]);
        let labels = |panel: &Panel| panel.bars.iter().map(|bar| bar.label.clone()).collect::<Vec<_>>();
        assert_eq!(panels[0].title, "P4b  put, one caller, us");
        assert_eq!(labels(&panels[0]), ["nicekv, xdp", "redis, xdp", "nicekv, tc", "redis, tc"]);
        assert_eq!((panels.len(), labels(&panels[1])), (3, vec!["nicekv".into(), "redis".into()]));
        assert_eq!((panels[0].bars[3].is_peers, panels[0].bars[3].summary.median), (true, 80.0));
    }

    #[test]
    fn networks_are_compared_round_by_round() {
        let pairs = vec![(20.0, 40.0), (50.0, 40.0), (60.0, 160.0)];
        let xdp = Comparison { network: Some("xdp"), rounds: Rounds { pairs }, ..comparison() };
        let other = Comparison { target: Some("P4a"), ..comparison() };
        let line = "P4b  put, one caller, tc ÷ xdp: nicekv 1.00 [0.50 .. 2.00], redis 2.00 [0.50 .. 2.00]\n";
        assert_eq!(across_networks(&[xdp, comparison(), other]), line);
    }
}
