//! Row 10 of docs/FAULTS.md: damaged values in the engine's tables.

use super::*;
use nicekv_store::RealFiles;

/// Flips a bit in every copy of value `number` in the engine's tables. Returns the number of
/// copies.
fn damage_tables(directory: &Path, number: u32) -> usize {
    let mut damaged = 0;
    for table in std::fs::read_dir(directory.join("engine/tables")).unwrap() {
        let path = table.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let found: Vec<usize> =
            (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&value(number))).collect();
        damaged += found.len();
        found.iter().for_each(|at| bytes[at + 3] ^= 4);
        std::fs::write(&path, bytes).unwrap();
    }
    damaged
}

fn is_in_log(directory: &Path, number: u32) -> bool {
    std::fs::read_dir(directory.join("log")).unwrap().any(|segment| {
        // The segment may have been trimmed since it was listed.
        let bytes = std::fs::read(segment.unwrap().path()).unwrap_or_default();
        bytes.windows(value(number).len()).any(|window| window == value(number))
    })
}

/// Three restarted nodes with `puts` values. Value 3 is damaged at the first node, value 4 at the
/// second.
fn damaged(directory: &Path, puts: u32, scrubs: bool) -> Cluster {
    let options = StorageOptions {
        segment_bytes_max: 4 << 10,
        engine_sync_bytes: 2 << 10,
        reserve_bytes: 0,
        ..StorageOptions::DEFAULT
    };
    let machines: Vec<Machine> = (1..=3u16)
        .map(|id| {
            let path = directory.join(id.to_string());
            Machine { scrubs, ..Machine::new(Arc::new(RealFiles), &path, options, id) }
        })
        .collect();
    let start = |epoch| Cluster::of(machines.iter().map(|machine| machine.start().unwrap()).collect(), epoch);
    let mut cluster = start(1);
    put_all(&mut cluster, 0..puts);
    // A start writes the log's content to the engine again, so the test puts until the log no
    // longer has the values.
    let mut more = 1_000;
    while machines.iter().zip([3, 4]).any(|(machine, number)| is_in_log(&machine.path, number)) {
        assert!(more < 3_000, "the log was not trimmed");
        put_all(&mut cluster, more..more + 10);
        more += 10;
    }
    for mut node in cluster.nodes {
        node.storage.close().unwrap();
    }
    for (machine, number) in machines.iter().zip([3, 4]) {
        assert!(damage_tables(&machine.path, number) > 0, "no table has the value");
    }
    start(2)
}

/// Number of damaged and of repaired values, for each node.
fn repairs(cluster: &Cluster) -> Vec<(u64, u64)> {
    let counters = cluster.nodes.iter().map(|node| node.core.status().counters);
    counters.map(|counters| (counters.corrupt, counters.repaired)).collect()
}

#[test]
fn row_10_a_flipped_value_is_never_served_and_repaired_from_a_replica() {
    let directory = tempfile::tempdir().unwrap();
    let mut cluster = damaged(directory.path(), 40, false);
    for number in 0..40 {
        for node in 0..3 {
            assert_eq!(cluster.get(node, &key(number)), Some(Some(value(number))), "put {number} at {node}");
        }
    }
    let found = repairs(&cluster);
    assert!(found[0].0 > 0 && found[1].0 > 0, "{found:?}");
    let until_ns = now().after(Duration::from_secs(20));
    while repairs(&cluster).iter().any(|(corrupt, repaired)| corrupt != repaired) {
        assert!(now().boot_ns < until_ns, "{:?}", repairs(&cluster));
        cluster.get(0, &key(3));
    }
    assert_eq!(cluster.put(&key(3), &value(99)).unwrap(), Some(Status::Ok));
    assert_eq!(cluster.get(0, &key(3)), Some(Some(value(99))));
}

#[test]
fn row_10_a_block_that_cannot_be_scanned_stops_the_node_with_advice() {
    let directory = tempfile::tempdir().unwrap();
    let mut cluster = damaged(directory.path(), 40, true);
    let scrubbed = cluster.put(&key(50), &value(50));
    let error = scrubbed.expect_err("the scrub reads the damaged block").to_string();
    assert!(error.contains("remove the data directory of this node"), "{error}");
}
