//! `docs/METRICS.md` lists every metric. `NICEKV_METRICS=write` rewrites the list.

use nicekv_metrics::catalogue::{ALL, Kind, Metric};
use std::path::Path;

const HEADING: &str = "## All of them\n\n";

fn row(metric: &Metric) -> String {
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let labels = metric.labels.join(", ");
    format!("| `{}` | {kind} | {} | {labels} | {} |\n", metric.full_name(), metric.unit(), metric.help)
}

#[test]
fn list_in_docs_matches_the_catalogue() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/METRICS.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, list) = text.split_once(HEADING).expect("the list is at the end");
    let head = "| metric | type | unit | labels | meaning |\n| --- | --- | --- | --- | --- |\n";
    let expected: String = head.to_owned() + &ALL.iter().map(|metric| row(metric)).collect::<String>();
    if std::env::var_os("NICEKV_METRICS").is_some_and(|value| value == "write") {
        std::fs::write(&path, format!("{before}{HEADING}{expected}")).unwrap();
    } else {
        assert!(
            list == expected,
            "docs/METRICS.md is out of date: run `NICEKV_METRICS=write cargo test -p nicekv-metrics`"
        );
    }
}

#[test]
fn queries_in_docs_name_existing_metrics() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/METRICS.md");
    let text = std::fs::read_to_string(path).unwrap();
    let before = text.split_once(HEADING).unwrap().0;
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let known = |name: &str| {
        let is = |metric: &&&Metric| {
            let full = metric.full_name();
            name == full || (metric.kind == Kind::Histogram && name == format!("{full}_bucket"))
        };
        ALL.iter().any(|metric| is(&metric))
    };
    let names: Vec<_> = before.split(|c| !is_part(c)).filter(|word| word.starts_with("nicekv_")).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(known(name), "{name} is not a metric");
    }
}
