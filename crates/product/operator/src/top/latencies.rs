//! Latencies between two observations: stages of puts at nodes, and requests at gateways whose
//! metrics pages are given.
//!
//! All histograms have the same buckets ([`nicekv_proto::durations`]), two per doubling. The upper
//! bound of a bucket is shown, so values are up to 41 % too high.

use crate::table::Table;
use nicekv_metadata::{NodeState, Status};
use nicekv_proto::durations::{BOUNDS, bound_ns};
use nicekv_runtime::admin;
use nicekv_runtime::control_plane::{AdminRequest, NodeDurations, NodeGets};
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

/// Timeout of a node or of a metrics page.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum bytes of a metrics page.
const PAGE_BYTES_MAX: u64 = 16 << 20;
/// Histograms to show: the metric's name, the label with the place, the label with the kind, and a
/// text before the kind.
const SHOWN: [(&str, &str, &str, &str); 3] = [
    ("nicekv_gateway_request_duration_seconds", "gateway", "command", ""),
    ("nicekv_node_put_stage_duration_seconds", "node", "stage", "put "),
    ("nicekv_node_log_sync_duration_seconds", "node", "", "log sync"),
];

/// Durations of one kind at one place, since its process started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Histogram {
    place: String,
    what: String,
    /// Counts by bucket; the last bucket has durations above all bounds.
    counts: Vec<u64>,
}

/// The counters of all nodes and pages at one point in time.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) histograms: Vec<Histogram>,
    /// Gets answered by each node.
    pub(super) gets: Vec<(String, NodeGets)>,
}

/// Reads all nodes and pages in parallel; those that do not answer are left out.
pub(super) fn gather(status: &Status, pages: &[SocketAddr]) -> Gathered {
    let nodes = status.nodes.iter().filter(|node| node.state == NodeState::Live);
    let told: Vec<Gathered> = std::thread::scope(|scope| {
        let nodes = nodes.map(|node| scope.spawn(move || of_node(&node.name, node.address)));
        let pages = pages.iter().map(|page| scope.spawn(move || of_page(*page)));
        let asked: Vec<_> = nodes.chain(pages).collect();
        asked.into_iter().filter_map(|asked| asked.join().ok().flatten()).collect()
    });
    let mut gathered = Gathered::default();
    for one in told {
        gathered.histograms.extend(one.histograms);
        gathered.gets.extend(one.gets);
    }
    // The page of a node may be among the given pages: its histograms are shown once.
    let mut known = Vec::new();
    gathered.histograms.retain(|histogram| {
        let name = (histogram.place.clone(), histogram.what.clone());
        let is_new = !known.contains(&name);
        known.push(name);
        is_new
    });
    gathered
}

fn of_node(name: &str, address: SocketAddrV4) -> Option<Gathered> {
    let json = admin::ask(&[address], &AdminRequest::Durations, TIMEOUT).ok()?;
    let NodeDurations { stages, gets, .. } = serde_json::from_slice(&json).ok()?;
    let histogram = |(what, counts)| Histogram { place: name.into(), what, counts };
    let histograms = stages.into_iter().map(histogram).collect();
    Some(Gathered { histograms, gets: vec![(name.into(), gets)] })
}

fn of_page(address: SocketAddr) -> Option<Gathered> {
    let limits = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).proxy(None).build();
    let agent: ureq::Agent = limits.into();
    let mut response = agent.get(format!("http://{address}/metrics")).call().ok()?;
    let page = response.body_mut().with_config().limit(PAGE_BYTES_MAX).read_to_string().ok()?;
    Some(Gathered { histograms: parse(&page), gets: Vec::new() })
}

/// The histograms of a page that are to be shown. On the page, buckets are cumulative and in order.
fn parse(page: &str) -> Vec<Histogram> {
    let mut found: Vec<Histogram> = Vec::new();
    for line in page.lines() {
        let Some((name, rest)) = line.split_once("_bucket{") else { continue };
        let Some(shown) = SHOWN.iter().find(|shown| shown.0 == name) else { continue };
        let Some((labels, count)) = rest.rsplit_once("} ") else { continue };
        let (Some(place), Ok(count)) = (label(labels, shown.1), count.trim().parse::<u64>()) else {
            continue;
        };
        let what = format!("{}{}", shown.3, label(labels, shown.2).unwrap_or_default());
        match found.last_mut().filter(|last| (last.place.as_str(), &last.what) == (place, &what)) {
            Some(last) => last.counts.push(count),
            None => found.push(Histogram { place: place.into(), what, counts: vec![count] }),
        }
    }
    for histogram in &mut found {
        for bucket in (1..histogram.counts.len()).rev() {
            histogram.counts[bucket] = histogram.counts[bucket].saturating_sub(histogram.counts[bucket - 1]);
        }
    }
    found.retain(|histogram| histogram.counts.len() == BOUNDS + 1);
    found
}

fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let values = labels.split(',').filter_map(|label| label.split_once('='));
    values.filter(|(key, _)| *key == name).map(|(_, value)| value.trim_matches('"')).next()
}

/// The table of latencies since `before`; if `before` lacks a histogram, since its process started.
pub(super) fn table(before: &[Histogram], now: &[Histogram]) -> Table {
    let row = |histogram: &Histogram| {
        let is_same =
            |earlier: &&Histogram| (&earlier.place, &earlier.what) == (&histogram.place, &histogram.what);
        let earlier = before.iter().find(is_same).map_or(&[][..], |earlier| &earlier.counts);
        let earlier = earlier.iter().chain(std::iter::repeat(&0));
        // If a process restarts, its counters begin at zero.
        let counts: Vec<u64> =
            histogram.counts.iter().zip(earlier).map(|(now, then)| now.saturating_sub(*then)).collect();
        let count: u64 = counts.iter().sum();
        let shown = |quantile| quantile_ns(&counts, quantile).map_or_else(String::new, in_words);
        vec![histogram.place.clone(), histogram.what.clone(), count.to_string(), shown(50), shown(99)]
    };
    let head = ["where", "what", "count", "p50", "p99"];
    Table::new("latencies since the previous look", &head, now.iter().map(row).collect())
}

/// The upper bound of the bucket with the quantile; `None` if nothing was counted.
fn quantile_ns(counts: &[u64], percent: u64) -> Option<u64> {
    let rank = (counts.iter().sum::<u64>() * percent).div_ceil(100);
    let mut below = 0;
    let reached = |count: &u64| {
        below += count;
        below >= rank
    };
    let bucket = counts.iter().position(reached).filter(|_| rank > 0)?;
    Some(if bucket < BOUNDS { bound_ns(bucket) } else { u64::MAX })
}

fn in_words(ns: u64) -> String {
    match ns {
        u64::MAX => format!("> {} s", bound_ns(BOUNDS - 1) / 1_000_000_000),
        ns if ns < 1_000_000 => format!("{} us", ns / 1_000),
        ns if ns < 1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        ns => format!("{:.1} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::Durations;

    fn histogram(took_ns: &[u64]) -> Histogram {
        let mut durations = Durations::default();
        took_ns.iter().for_each(|took_ns| durations.count_ns(*took_ns));
        Histogram { place: "node-0".into(), what: "put synced".into(), counts: durations.counts().to_vec() }
    }

    #[test]
    fn latencies_between_two_looks_are_bucket_bounds() {
        let before = [histogram(&[9_000_000_000; 500])];
        let took = [&[9_000_000_000; 500][..], &[100_000; 98], &[3_000_000; 2]].concat();
        let shown = table(&before, &[histogram(&took)]);
        assert_eq!(shown.rows, [["node-0", "put synced", "100", "131 us", "3.1 ms"]]);
        assert_eq!(table(&[], &[histogram(&[])]).rows, [["node-0", "put synced", "0", "", ""]]);
        assert_eq!(table(&[], &before).rows[0][3..], ["> 8 s", "> 8 s"]);
    }

    #[test]
    fn metrics_pages_are_parsed_into_histograms() {
        let expected = histogram(&[100_000, 100_000, 3_000_000]);
        let (mut page, mut sum) = ("# TYPE other histogram\nother_bucket{le=\"1\"} 3\n".to_owned(), 0);
        for (bucket, count) in expected.counts.iter().enumerate() {
            sum += count;
            let le =
                if bucket < BOUNDS { format!("{}", bound_ns(bucket) as f64 / 1e9) } else { "+Inf".into() };
            page += "nicekv_node_put_stage_duration_seconds_bucket";
            page += &format!("{{le=\"{le}\",node=\"node-0\",stage=\"synced\"}} {sum}\n");
        }
        assert_eq!(parse(&page), [expected]);
        assert_eq!(parse("nicekv_node_put_stage_duration_seconds_bucket{le=\"1\",node=\"a\"} 3"), []);
    }
}
