//! `nicekv bench replicast`: a quick run of its first case has figures for every system, and leaves
//! nothing behind.

use crate::{as_root_in_long_runs, program};
use serde_json::Value;
use std::process::Command;

/// Prefix of the bench's network namespaces.
const PREFIX: &str = "nicekv-bench-replicast-";

#[test]
fn each_side_puts_chunks_as_often_over_its_links_as_it_says() {
    as_root_in_long_runs("each_side_puts_chunks_as_often_over_its_links_as_it_says", || {
        let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
        let json = scratch.path().join("figures");
        let mut bench = Command::new(program());
        bench.args(["bench", "replicast", "--quick", "--only", "full", "--clients", "2"]);
        bench.arg("--data-dir").arg(scratch.path()).arg("--json").arg(&json);
        let output = bench.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = std::fs::read_to_string(&json).unwrap();
        let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let median = |system: &str, metric: &str| {
            let row = rows.iter().find(|row| row["system"] == system && row["metric"] == metric);
            row.and_then(|row| row["median"].as_f64())
                .unwrap_or_else(|| panic!("no {metric} of {system}: {text}"))
        };
        for system in ["M", "H", "TCP"] {
            let [p50, p99] = ["p50", "p99"].map(|metric| median(system, metric));
            assert!(p50 > 80.0 && p99 >= p50, "{system}: a link takes 84 ms for a chunk: {text}");
        }
        // Two links of 12.5 MB/s. With multicast each byte crosses them once, otherwise three
        // times. A busy machine misses windows.
        assert!((2.0..25.0).contains(&median("M", "throughput")), "{text}");
        assert!((1.0..9.0).contains(&median("TCP", "throughput")), "{text}");
        assert!((1.0..2.5).contains(&median("M", "sent_per_byte")), "{text}");
        assert!((3.0..5.0).contains(&median("H", "sent_per_byte")), "{text}");
        assert!((3.0..3.5).contains(&median("TCP", "sent_per_byte")), "{text}");
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(shown.contains("M ÷ TCP, throughput: "), "{shown}");
        let left = std::fs::read_dir("/run/netns").unwrap().flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name().into_string().unwrap()).collect();
        assert!(!left.iter().any(|name| name.starts_with(PREFIX)), "{left:?}");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1, "the figures alone");
    });
}
