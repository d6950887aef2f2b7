//! `--metrics`: the metrics of a cluster under load, and whether they are those that
//! `docs/METRICS.md` lists.

use crate::cluster::{Up, nicekv, outcome};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

const PUTS: u64 = 200;
const GETS: u64 = 300;

/// Reads the page of metrics at the address that `line` contains.
pub(crate) fn scrape(line: &str) -> String {
    let address = line.split("http://").nth(1).unwrap().strip_suffix("/metrics").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: nicekv\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    body.to_owned()
}

/// The samples of a page, by name with labels.
fn samples(page: &str) -> BTreeMap<&str, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect()
}

/// The sum of all samples of a metric whose labels contain each of the `parts`, which are separated
/// by spaces.
pub(crate) fn sum(page: &str, metric: &str, parts: &str) -> f64 {
    let holds = |name: &str| parts.split(' ').all(|part| name.contains(part));
    let is = |name: &str| name.split('{').next() == Some(metric) && holds(name);
    samples(page).into_iter().filter(|(name, _)| is(name)).map(|(_, value)| value).sum()
}

/// (name, type, meaning) of each metric in a page.
fn described(page: &str) -> BTreeSet<(String, String, String)> {
    let line = |kind: &str, name: &str| {
        let begin = format!("# {kind} {name} ");
        page.lines().find_map(|line| line.strip_prefix(&begin)).expect("both lines").to_owned()
    };
    let names = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let full = |name: &str, kind: &str| format!("{name}{}", if kind == "counter" { "_total" } else { "" });
    names
        .map(|name| {
            let kind = line("TYPE", name);
            (full(name, &kind), kind, line("HELP", name))
        })
        .collect()
}

fn listed() -> BTreeSet<(String, String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/METRICS.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows =
        text.split_once("## All of them").unwrap().1.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let cells: Vec<_> = row.trim_end_matches(" |").splitn(5, " | ").collect();
        (cells[0].trim_end_matches('`').to_owned(), cells[1].to_owned(), cells[4].to_owned())
    })
    .collect()
}

/// With a hot-key keyspace, so that metrics of hot keys exist although no key is hot.
const ARGUMENTS: [&str; 8] = [
    "--data-dir",
    "data",
    "--metrics",
    "localhost:0",
    "--keyspace",
    "carts=balancing=hot",
    "--keyspace",
    "objects=chunks=multicast",
];

/// Metrics that have samples only when partitions are balanced by load, and only after a period.
fn is_of_periods(name: &str) -> bool {
    name.starts_with("nicekv_metadata_balancing_") || name == "nicekv_metadata_hot_keys"
}

const OBJECT_BYTES: usize = 2_500_000;
/// Chunks of the object, and copies of each.
const CHUNKS: u64 = 3;
const COPIES: u64 = 3;

fn store_object_twice_and_read_it(here: &Path) {
    std::fs::write(here.join("object"), crate::large::text(OBJECT_BYTES, 1)).unwrap();
    for words in [["put", "first", "object"], ["put", "second", "object"], ["get", "first", "out"]] {
        let (code, _, error) = outcome(nicekv(here, &[&["object"], &words[..]].concat()));
        assert_eq!(code, Some(0), "{words:?}: {error}");
    }
    // A target publishes its counters a moment later.
    std::thread::sleep(Duration::from_millis(500));
}

fn targets_have_moved(page: &str) {
    let of = |metric: &str, part: &str| sum(page, metric, part) as u64;
    assert_eq!(of("nicekv_target_chunks", "node=\"node-"), CHUNKS * COPIES);
    assert_eq!(of("nicekv_target_chunk_bytes", ""), OBJECT_BYTES as u64 * COPIES);
    assert_eq!(of("nicekv_target_transfers_total", "outcome=\"stored\""), CHUNKS * COPIES);
    assert!(of("nicekv_target_put_answers_total", "answer=\"stored\"") >= CHUNKS * COPIES);
    assert!(of("nicekv_target_bids_total", "outcome=\"accepted\"") >= CHUNKS * COPIES);
    assert!(of("nicekv_target_put_answers_total", "answer=\"bid\"") >= CHUNKS * COPIES);
    assert!(of("nicekv_target_get_answers_total", "answer=\"held\"") >= CHUNKS);
    assert!(of("nicekv_target_read_bytes_total", "") >= OBJECT_BYTES as u64);
    assert!(of("nicekv_target_frames_total", "event=\"received\"") * 1_408 >= 3 * OBJECT_BYTES as u64);
    for node in ["node-1", "node-2", "node-3"] {
        let part = format!("node=\"{node}\"");
        assert!(of("nicekv_target_disk_free_bytes", &part) > 0, "{node}");
        assert!(of("nicekv_target_round", &format!("stage=\"known\" {part}")) > 0, "{node}");
        assert!(of("nicekv_target_datagrams_total", &format!("outcome=\"received\" {part}")) > 0, "{node}");
    }
    let bad = ["damaged_chunks", "refused", "malformed", "chunks_put_again"];
    bad.iter().for_each(|name| assert_eq!(of(&format!("nicekv_target_{name}_total"), ""), 0, "{name}"));
    assert_eq!(of("nicekv_target_reads_total", "outcome=\"unproven\""), 0);
}

#[test]
fn metrics_match_the_list_and_move_with_load() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &ARGUMENTS);
    let line = up.said.iter().find(|line| line.starts_with("metrics at ")).expect("it says where").clone();
    let before = scrape(&line);
    assert_eq!(described(&before), listed());

    let mut redis = up.redis();
    for number in 0..PUTS {
        assert_eq!(redis.call(&["SET", &format!("key-{number}"), "value"]), "+OK");
    }
    for number in 0..GETS {
        redis.call(&["GET", &format!("key-{number}")]);
    }
    redis.call(&["INCR", "key-0"]);
    store_object_twice_and_read_it(scratch.path());
    let after = scrape(&line);
    let grown = |metric: &str, part: &str| sum(&after, metric, part) - sum(&before, metric, part);
    assert_eq!(grown("nicekv_gateway_commands_total", "gateway=\"gateway\"") as u64, PUTS + GETS + 1);
    assert_eq!(grown("nicekv_gateway_request_duration_seconds_count", "command=\"set\"") as u64, PUTS);
    assert_eq!(grown("nicekv_gateway_request_duration_seconds_count", "command=\"get\"") as u64, GETS);
    assert_eq!(grown("nicekv_gateway_request_failures_total", "reason=\"refused\"") as u64, 1);
    assert_eq!(
        sum(&after, "nicekv_gateway_request_duration_seconds_bucket", "command=\"set\" le=\"+Inf\"") as u64,
        PUTS
    );
    assert!(grown("nicekv_node_gets_total", "node=\"node-") as u64 >= GETS);
    assert!(grown("nicekv_node_decisions_total", "") as u64 > PUTS);
    // Every member syncs every put, and the primary decides it.
    assert!(grown("nicekv_node_put_stage_duration_seconds_count", "stage=\"synced\"") as u64 > 3 * PUTS);
    assert!(grown("nicekv_node_put_stage_duration_seconds_count", "stage=\"decided\"") as u64 > PUTS);
    assert!(grown("nicekv_node_put_stage_duration_seconds_sum", "stage=\"decided\"") > 0.0);
    for node in ["node-1", "node-2", "node-3"] {
        let part = format!("node=\"{node}\"");
        assert!(grown("nicekv_node_log_sync_duration_seconds_count", &part) > 0.0, "{node}");
        assert!(grown("nicekv_node_log_records_total", &part) as u64 > PUTS, "{node}");
        assert_eq!(sum(&after, "nicekv_role_answering", &format!("name=\"{node}\"")) as u64, 1);
    }
    assert!(grown("nicekv_switch_table_hits_total", "table=\"unicast_vring\"") as u64 >= GETS);
    assert!(grown("nicekv_switch_table_hits_total", "table=\"multicast_vring\"") as u64 > PUTS);
    assert!(grown("process_cpu_seconds_total", "") > 0.0);
    targets_have_moved(&after);
    for (metric, part, value) in [
        ("nicekv_metadata_ready", "", 1),
        ("nicekv_metadata_nodes", "state=\"live\"", 3),
        ("nicekv_metadata_switches", "state=\"current\"", 1),
        ("nicekv_switch_connected", "switch=\"switch\"", 1),
    ] {
        assert_eq!(sum(&after, metric, part) as u64, value, "{metric} {part}");
    }
    let address = line.split("http://").nth(1).unwrap().strip_suffix("/metrics").unwrap();
    let (code, top, _) = outcome(nicekv(scratch.path(), &["top", "--once", "--metrics", address]));
    for part in ["latencies since the previous look", "put synced", "put decided", "log sync"] {
        assert!(code == Some(0) && top.contains(part), "{part}: {top}");
    }
    let gateway =
        top.lines().find(|line| line.trim_start().starts_with("gateway ") && line.contains(" set "));
    assert!(gateway.is_some(), "{top}");
    // Every listed metric has a sample.
    for (name, kind, _) in listed().into_iter().filter(|(name, ..)| !is_of_periods(name)) {
        let name = if kind == "histogram" { format!("{name}_count") } else { name };
        assert!(samples(&after).keys().any(|sample| sample.split('{').next() == Some(&name)), "{name}");
    }
    assert_eq!(up.interrupt(), Some(0));
}

#[test]
fn metrics_port_in_use_is_refused_before_anything_is_created() {
    let scratch = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, _, error) =
        outcome(nicekv(scratch.path(), &["up", "--resp", "localhost:0", "--metrics", &address]));
    assert_eq!((code, error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("metrics") && error.contains(&address), "{error}");
    assert!(!scratch.path().join("nicekv-data").exists());
}
