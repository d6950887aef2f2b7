//! One node with tiny segments behind the user-space switch. Its log stays bounded, the engine has
//! all data that was trimmed from the log, and expired data leaves both.

use crate::support;

use nicekv_proto::{Duration, Expiry};
use nicekv_runtime::node::StorageOptions;
use nicekv_runtime::now;
use std::path::Path;
use support::Cluster;

const OPTIONS: StorageOptions = StorageOptions {
    segment_bytes_max: 64 << 10,
    engine_sync_bytes: 48 << 10,
    reserve_bytes: 128 << 10,
    ..StorageOptions::DEFAULT
};

fn log_bytes(path: &Path) -> u64 {
    bytes_in(&path.join("node-1/log"))
}

/// Total length of all files below a directory. A file that disappears meanwhile counts as empty.
fn bytes_in(directory: &Path) -> u64 {
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_in(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    std::fs::read_dir(directory).map_or(0, |entries| entries.flatten().map(bytes).sum())
}

#[test]
fn trimming_the_log_loses_nothing() {
    const ROUNDS: u32 = 4;
    const PUTS: u32 = 1_000;
    let path = tempfile::tempdir().unwrap();
    let key = |number: u32| format!("key {}", number % 300).into_bytes();
    let value = |number: u32| vec![number as u8; 400];
    let mut last = 0;
    for _ in 0..ROUNDS {
        let cluster = Cluster::start(path.path(), 1, OPTIONS);
        let client = cluster.client.clone();
        for number in last.max(300) - 300..last {
            let read = futures_executor::block_on(client.get(&key(number))).unwrap();
            assert_eq!(read.map(|read| read.bytes), Some(value(number)), "put {number} of {last}");
        }
        for number in last..last + PUTS {
            futures_executor::block_on(client.put(&key(number), &value(number), Expiry::Never)).unwrap();
        }
        last += PUTS;
        drop(client);
        cluster.stop();
        // A round writes about 450 KB. The log may have three segments: one being written, one that
        // waits for an engine sync, and one that has begun meanwhile.
        let bytes = log_bytes(path.path());
        assert!(bytes < 4 * OPTIONS.segment_bytes_max, "the log has {bytes} bytes after {last} puts");
    }
}

#[test]
fn expired_data_is_reclaimed_without_other_writes() {
    const VALUES: u32 = 4_000;
    const BYTES: usize = 400;
    const WRITERS: u32 = 16;
    /// Time after the last value has expired: 2 s for deletes at 2,000 a second, 1 s for the trim,
    /// and the rest as a margin for a busy machine.
    const TIMEOUT: Duration = Duration::from_secs(30);
    let options = StorageOptions {
        trim_interval: Duration::from_secs(1),
        trim_bytes_min: 16 << 10,
        ..StorageOptions::DEFAULT
    };
    let path = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(path.path(), 1, options);
    let sizes = || [bytes_in(&path.path().join("node-1/engine")), log_bytes(path.path())];
    let at_ms = now().unix_ms + 10_000;
    // Concurrent puts share syncs, so that even on a slow disk all puts are done long before they
    // expire.
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let client = cluster.client.clone();
            scope.spawn(move || {
                for number in (writer..VALUES).step_by(WRITERS as usize) {
                    let (key, value) = (format!("key {number}"), vec![number as u8; BYTES]);
                    let put = client.put(key.as_bytes(), &value, Expiry::At(at_ms));
                    futures_executor::block_on(put).unwrap();
                }
            });
        }
    });
    // The first trim steps move the values from the log to the engine.
    let stored = u64::from(VALUES) * BYTES as u64;
    let wait_until = |what: &str, until_ms: u64, holds: &dyn Fn([u64; 2]) -> bool| {
        while !holds(sizes()) {
            assert!(now().unix_ms < until_ms, "{what}: {:?} bytes in engine and log", sizes());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_until("values are in the engine", at_ms, &|[engine, _]| engine > stored / 4);
    let until_ms = at_ms + TIMEOUT.as_millis() as u64;
    wait_until("the space is reclaimed", until_ms, &|[engine, log]| engine < stored / 20 && log < stored / 4);
    cluster.stop();
}
