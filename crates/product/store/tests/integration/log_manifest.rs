//! The manifest of a log: missing segments are damage, and a crash at any call leaves a log that opens.

use crate::common;

use common::values::{LOSSES, dying, lose_power};
use common::{DIRECTORY, Records, collect, identity, manifest_path, open, options, segment_paths};
use nicekv_store::{
    Files, Forgetful, Log, LogPosition, StoreError,
    files::{FileCall, Moment, Watched},
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

fn put(log: &mut Log, number: u8) -> nicekv_store::Result<LogPosition> {
    log.append(&[number; 100])?;
    log.write()?;
    log.sync_handle().sync()
}

/// A disk with a log of several segments, and the log.
fn filled() -> (Forgetful, Log) {
    let disk = Forgetful::new(64);
    let mut log = open(&disk);
    for number in 0..20 {
        put(&mut log, number).unwrap();
    }
    assert!(log.segments() > 4);
    (disk, log)
}

fn remove(disk: &Forgetful, path: &Path) {
    Files::remove(disk, path).unwrap();
}

#[test]
fn every_missing_segment_is_named() {
    let (disk, _) = filled();
    let paths = segment_paths(&disk);
    for missing in &paths {
        let disk = disk.copy();
        remove(&disk, missing);
        match collect(&disk) {
            Err(StoreError::LogSegmentMissing { path }) => assert_eq!(path, *missing),
            other => panic!("without {}: {other:?}", missing.display()),
        }
    }
    for first in 0..paths.len() {
        let (without_newest, without_oldest) = (disk.copy(), disk.copy());
        paths[first..].iter().for_each(|path| remove(&without_newest, path));
        paths[..=first].iter().for_each(|path| remove(&without_oldest, path));
        for disk in [without_newest, without_oldest] {
            let opened = collect(&disk);
            assert!(matches!(opened, Err(StoreError::LogSegmentMissing { .. })), "{opened:?}");
        }
    }
}

#[test]
fn missing_trimmed_segments_are_no_damage() {
    let (disk, mut log) = filled();
    let first = segment_paths(&disk).remove(0);
    let bytes = disk.content(&first).unwrap();
    log.trim(LogPosition(10)).unwrap();
    let records = collect(&disk.copy()).unwrap().0;
    assert!(records[0].0 > LogPosition(1));
    // Puts the segment back, as if the process had ended before it removed it.
    disk.set_content(&first, bytes);
    assert_eq!(collect(&disk).unwrap().0, records);
    assert_eq!(disk.content(&first), None, "opening removes it");
}

#[test]
fn a_log_without_its_manifest_is_damaged() {
    let (disk, _) = filled();
    remove(&disk, &manifest_path());
    assert!(matches!(collect(&disk), Err(StoreError::LogManifest { what: "missing", .. })));
}

#[test]
fn a_damaged_manifest_is_refused_or_changes_nothing() {
    let (disk, mut log) = filled();
    log.trim(LogPosition(10)).unwrap();
    let records = collect(&disk.copy()).unwrap().0;
    let bytes = disk.content(&manifest_path()).unwrap();
    let mut refused = 0;
    let is_slot = |byte: &usize| byte % 4_096 < 96;
    for byte in (0..bytes.len()).filter(is_slot) {
        let damaged = disk.copy();
        let mut flipped = bytes.clone();
        flipped[byte] ^= 0x10;
        damaged.set_content(&manifest_path(), flipped);
        match collect(&damaged) {
            Ok((found, _)) => assert_eq!(found, records, "byte {byte}"),
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains(DIRECTORY), "byte {byte}: {error}");
            }
        }
    }
    assert!(refused > 0);
    for length in [0, 1, 88, 4_096, 8_191] {
        let cut = disk.copy();
        cut.set_content(&manifest_path(), bytes[..length].to_vec());
        assert!(matches!(collect(&cut), Err(StoreError::LogManifest { what: "damaged", .. })), "{length}");
    }
}

#[test]
fn durable_records_at_close_or_open_must_exist() {
    for is_closed in [true, false] {
        let disk = Forgetful::new(64);
        let mut log = open(&disk);
        put(&mut log, 1).unwrap();
        put(&mut log, 2).unwrap();
        let end = log.segment_bytes() as usize;
        if is_closed {
            log.close().unwrap();
        } else {
            open(&disk);
        }
        let path = segment_paths(&disk).remove(0);
        let bytes = disk.content(&path).unwrap();
        for length in 0..=end {
            let cut = disk.copy();
            cut.set_content(&path, bytes[..length].to_vec());
            let opened = collect(&cut);
            assert_eq!(opened.is_ok(), length == end, "cut at {length} of {end}: {opened:?}");
        }
    }
}

#[test]
fn log_is_found_in_its_directory() {
    let disk = Forgetful::new(64);
    let directory = Path::new(DIRECTORY);
    assert!(!Log::is_in(&disk, directory).unwrap());
    open(&disk);
    assert!(Log::is_in(&disk, directory).unwrap());
    remove(&disk, &manifest_path());
    assert!(Log::is_in(&disk, directory).unwrap(), "a segment is left");
}

#[test]
fn a_segment_costs_one_sync_more() {
    let disk = Forgetful::new(64);
    let syncs = Arc::new(AtomicUsize::new(0));
    let counted = syncs.clone();
    let files = Watched::new(Arc::new(disk.clone()), move |moment, call, _| {
        if moment == Moment::Begins && call == FileCall::Sync {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    });
    let (mut log, _) =
        Log::open(Arc::new(files), Path::new(DIRECTORY), identity(), options(), |_, _| {}).unwrap();
    let opened = syncs.load(Ordering::Relaxed);
    for number in 0..20 {
        put(&mut log, number).unwrap();
    }
    let last = segment_paths(&disk).pop().unwrap();
    let is_empty = disk.content(&last).unwrap().len() <= 76;
    let named = log.segments() - 1 - usize::from(is_empty);
    assert_eq!(syncs.load(Ordering::Relaxed) - opened, 20 + named);
}

/// Opens, fills, trims and closes a log. `durable` becomes the last position that was reported
/// durable.
fn live(files: impl Files + 'static, durable: &mut LogPosition) -> nicekv_store::Result<()> {
    let files: Arc<dyn Files> = Arc::new(files);
    let (mut log, recovered) = Log::open(files, Path::new(DIRECTORY), identity(), options(), |_, _| {})?;
    *durable = LogPosition(recovered.next.0 - 1);
    for number in 0..9 {
        *durable = put(&mut log, number)?;
        if number % 4 == 3 {
            log.trim(LogPosition(durable.0 - 1))?;
        }
    }
    log.close()
}

#[test]
fn a_crash_at_any_call_leaves_a_log_that_opens() {
    for lives in 1..3 {
        let mut moments = 0;
        loop {
            let mut is_done = false;
            for loss in 0..LOSSES {
                let disk = Forgetful::new(64);
                let mut durable = LogPosition(0);
                for _ in 1..lives {
                    live(disk.clone(), &mut durable).unwrap();
                }
                is_done = live(dying(&disk, moments), &mut durable).is_ok();
                lose_power(&disk, loss);
                let context = format!("life {lives}, {moments} moments, loss {loss}");
                let (found, recovered): (Records, _) =
                    collect(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert!(recovered.next > durable, "{context}: {durable} was durable, {recovered:?}");
                // What one process has found must still exist if the next one loses power before it
                // writes anything.
                lose_power(&disk, 1);
                assert_eq!(collect(&disk).unwrap().0, found, "{context}");
            }
            if is_done {
                assert!(moments > 50, "{moments}");
                break;
            }
            moments += 1;
        }
    }
}
