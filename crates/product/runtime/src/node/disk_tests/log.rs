//! Rows 5 to 8 of docs/FAULTS.md: logs that lose power, are truncated, are damaged, or cannot be
//! synced.

use super::*;
use nicekv_store::Forgetful;
use nicekv_store::files::PowerLoss;

/// Number of zero bytes after the records that the test also covers.
const ZEROS: usize = 20;

/// Small enough that a few hundred puts need several segments and engine syncs.
const SMALL: StorageOptions = StorageOptions {
    segment_bytes_max: 8 << 10,
    engine_sync_bytes: 6 << 10,
    reserve_bytes: 0,
    ..StorageOptions::DEFAULT
};

/// Length of a segment's header, which the manifest declares durable.
const HEADER: usize = 76;

/// The segments of the log, oldest first.
fn segments(disk: &Forgetful, path: &Path) -> Vec<PathBuf> {
    let directory = path.join("log");
    let names = disk.list(&directory).unwrap().into_iter().filter(|name| name.ends_with(".nklog"));
    let mut paths: Vec<_> = names.map(|name| directory.join(name)).collect();
    paths.sort();
    paths
}

/// Path and content of the log's last segment.
fn segment(disk: &Forgetful, path: &Path) -> (PathBuf, Vec<u8>) {
    let path = segments(disk, path).pop().unwrap();
    let mut bytes = disk.content(&path).unwrap();
    let records = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate((records + ZEROS).min(bytes.len()));
    (path, bytes)
}

#[test]
fn row_05_a_power_loss_takes_no_acknowledged_put() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Forgetful::new(64);
    let machine = Machine::new(Arc::new(disk.clone()), directory.path(), SMALL, 1);
    let mut last = 0;
    for round in 0..12u32 {
        let mut cluster = Cluster::lone(&machine, round + 1);
        for number in last.max(60) - 60..last {
            let found = cluster.get(0, &key(number));
            assert_eq!(found, Some(Some(value(number))), "put {number} after {round} losses");
        }
        put_all(&mut cluster, last..last + 25);
        last += 25;
        // Some unsynced pages survive the power loss.
        let mut state = u64::from(round);
        disk.power_loss(PowerLoss::KeepPages(&mut || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 63 == 1
        }));
    }
}

#[test]
fn row_06_a_log_cut_at_any_byte_keeps_the_records_before() {
    const PUTS: u32 = 4;
    let directory = tempfile::tempdir().unwrap();
    let disk = Forgetful::new(64);
    let machine = |disk: &Forgetful| Machine::new(Arc::new(disk.clone()), directory.path(), LOG_ONLY, 1);
    let mut cluster = Cluster::lone(&machine(&disk), 1);
    put_all(&mut cluster, 0..PUTS);
    drop(cluster);
    let (path, bytes) = segment(&disk, directory.path());
    disk.remove(&directory.path().join("nicekv-lock")).unwrap();
    let mut kept_before = 0;
    for length in 0..=bytes.len() {
        let cut = disk.copy();
        cut.set_content(&path, bytes[..length].to_vec());
        if length < HEADER {
            let error = machine(&cut).start().err().expect("a durable header is cut");
            assert!(error.to_string().contains("remove the data directory of this node"), "{error}");
            continue;
        }
        let mut cluster = Cluster::lone(&machine(&cut), 2);
        // If the decision of the last put was cut off, its prepare is decided again.
        let found: Vec<bool> =
            (0..PUTS).map(|number| cluster.get(0, &key(number)).flatten() == Some(value(number))).collect();
        let kept = found.iter().take_while(|found| **found).count();
        assert!(found[kept..].iter().all(|found| !found), "cut at {length}: {found:?}");
        assert!(kept >= kept_before, "cut at {length}: a later cut kept fewer puts");
        kept_before = kept;
    }
    assert_eq!(kept_before, PUTS as usize);
}

#[test]
fn row_07_a_log_damaged_in_the_middle_is_refused_and_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Forgetful::new(64);
    let machine = |disk: &Forgetful| Machine::new(Arc::new(disk.clone()), directory.path(), LOG_ONLY, 1);
    let mut cluster = Cluster::lone(&machine(&disk), 1);
    put_all(&mut cluster, 0..6);
    drop(cluster);
    let (path, bytes) = segment(&disk, directory.path());
    // All records but those of the last put are known to be durable.
    let end = bytes.windows(5).rposition(|window| window == b"key 4").unwrap();
    for at in (0..end).step_by(7) {
        let damaged = disk.copy();
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        damaged.set_content(&path, flipped.clone());
        let error = machine(&damaged)
            .start()
            .err()
            .unwrap_or_else(|| panic!("the damage at byte {at} was not detected"));
        assert!(damaged.content(&path) == Some(flipped), "byte {at}: the log was changed");
        if at > 100 {
            assert!(error.to_string().contains("remove the data directory of this node"), "{error}");
        }
    }
}

#[test]
fn row_07_a_log_without_some_of_its_files_is_refused_whenever_it_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Forgetful::new(64);
    let machine = |disk: &Forgetful| Machine::new(Arc::new(disk.clone()), directory.path(), SMALL, 1);
    let mut cluster = Cluster::lone(&machine(&disk), 1);
    // Put until the log was trimmed (by another thread), so that some data is only in the engine.
    let mut count = 0;
    while segments(&disk, directory.path())[0].ends_with("log-0000000000000001.nklog") {
        assert!(count < 40_000, "the log was never trimmed");
        put_all(&mut cluster, count..count + 400);
        count += 400;
    }
    // A segment without an acknowledged put may be missing: put until the last one holds one.
    let mut last = None;
    while last != segments(&disk, directory.path()).pop() {
        last = segments(&disk, directory.path()).pop();
        put_all(&mut cluster, count..count + 1);
        count += 1;
    }
    drop(cluster);
    disk.remove(&directory.path().join("nicekv-lock")).unwrap();
    let manifest = directory.path().join("log/manifest");
    let (segments, engine) = (segments(&disk, directory.path()), directory.path().join("engine"));
    let mut each: Vec<Vec<&PathBuf>> = segments.iter().chain([&manifest]).map(|path| vec![path]).collect();
    each.push(segments.iter().collect());
    each.push(segments.iter().chain([&manifest]).collect());
    let refused = |disk: &Forgetful, missing: &dyn std::fmt::Debug| {
        for _ in 0..2 {
            let error = machine(disk)
                .start()
                .err()
                .unwrap_or_else(|| panic!("the loss of {missing:?} was not detected"));
            assert!(error.to_string().contains("remove the data directory of this node"), "{error}");
        }
    };
    for missing in each {
        let without = disk.copy();
        missing.iter().for_each(|path| without.remove(path).unwrap());
        refused(&without, &missing);
    }
    let elsewhere = directory.path().join("engine-elsewhere");
    std::fs::rename(&engine, &elsewhere).unwrap();
    refused(&disk.copy(), &engine);
    assert!(!engine.exists(), "a new engine was created");
    std::fs::rename(&elsewhere, &engine).unwrap();
    let mut cluster = Cluster::lone(&machine(&disk), 2);
    assert_eq!(cluster.get(0, &key(0)), Some(Some(value(0))));
    assert_eq!(cluster.get(0, &key(count - 1)), Some(Some(value(count - 1))));
}

#[test]
fn row_08_a_failed_fdatasync_stops_the_node() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Forgetful::new(64);
    let machine = Machine::new(Arc::new(disk.clone()), directory.path(), LOG_ONLY, 1);
    let mut cluster = Cluster::lone(&machine, 1);
    put_all(&mut cluster, 0..5);
    disk.fail_next_sync(5); // EIO
    let failed = cluster.put(&key(5), &value(5));
    assert!(matches!(failed, Err(StoreError::LogFailed { .. })), "the put must fail: {failed:?}");
    assert!(cluster.put(&key(6), &value(6)).is_err(), "the log must stay failed");
    drop(cluster);
    disk.power_loss(PowerLoss::DropAll);
    let mut cluster = Cluster::lone(&machine, 2);
    for number in 0..5 {
        assert_eq!(cluster.get(0, &key(number)), Some(Some(value(number))));
    }
    assert_eq!(cluster.get(0, &key(5)), Some(None), "a put that was never acknowledged is visible");
}
