//! Zeros ahead of the records: when they are written, how a full disk affects them, and how
//! recovery treats them.

use crate::common;

use common::{DIRECTORY, collect, open, open_with, options, segment_paths};
use nicekv_store::{
    Forgetful, Log, LogOptions, LogPosition, StoreError,
    files::{FileCall, Moment, PowerLoss, Watched},
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

const HEADER: usize = 76;
const RECORD: usize = 32 + 50;
const AHEAD: LogOptions =
    LogOptions { segment_bytes_max: 1 << 20, buffer_bytes_max: 1 << 20, ahead_bytes: 8 << 10 };

fn put(log: &mut Log, number: u8) {
    log.append(&[number; 50]).unwrap();
    log.write().unwrap();
}

fn sync(log: &Log) {
    log.sync_handle().sync().unwrap();
}

fn length(disk: &Forgetful, segment: usize) -> usize {
    disk.content(&segment_paths(disk)[segment]).unwrap().len()
}

#[test]
fn zero_piece_lasts_for_many_records() {
    let disk = Forgetful::new(64);
    let mut log = open_with(&disk, AHEAD);
    let mut lengths = Vec::new();
    for number in 0..200 {
        put(&mut log, number);
        lengths.push(length(&disk, 0));
    }
    assert_eq!(lengths[0], HEADER + RECORD + AHEAD.ahead_bytes);
    lengths.dedup();
    assert_eq!(lengths.len(), 2, "{} bytes of records", log.segment_bytes());
    assert_eq!(log.segment_bytes() as usize, HEADER + 200 * RECORD);
    assert_eq!(collect(&disk.copy()).unwrap().0.len(), 200);
}

#[test]
fn large_write_adds_no_zeros_and_segment_bounds_them() {
    for (payload, zeros) in [(2 << 10, AHEAD.ahead_bytes), ((2 << 10) + 1, 0)] {
        let disk = Forgetful::new(64);
        let mut log = open_with(&disk, AHEAD);
        log.append(&vec![7; payload - 32]).unwrap();
        log.write().unwrap();
        assert_eq!(length(&disk, 0), HEADER + payload + zeros);
    }
    let disk = Forgetful::new(64);
    let mut log = open_with(&disk, LogOptions { segment_bytes_max: 1_000, ..AHEAD });
    for number in 0..100 {
        put(&mut log, number);
        for segment in 0..segment_paths(&disk).len() {
            assert!(length(&disk, segment) < 1_000 + RECORD, "record {number}, segment {segment}");
        }
    }
}

#[test]
fn a_disk_without_room_for_zeros_takes_records() {
    let disk = Forgetful::new(64);
    let mut log = open_with(&disk, LogOptions { segment_bytes_max: 4 << 10, ..AHEAD });
    disk.set_capacity(Some(disk.used() + 3 * RECORD as u64));
    for number in 0..3 {
        put(&mut log, number);
        assert_eq!(length(&disk, 0), HEADER + (usize::from(number) + 1) * RECORD);
    }
    log.append(&[3; 50]).unwrap();
    assert!(log.write().unwrap_err().is_out_of_space());
    disk.set_capacity(None);
    for number in 4..60 {
        put(&mut log, number);
    }
    assert_eq!(length(&disk, 0), HEADER + 50 * RECORD, "the segment continues without zeros");
    assert!(length(&disk, 1) > HEADER + 10 * RECORD, "the next segment has zeros");
    sync(&log);
    assert_eq!(collect(&disk.copy()).unwrap().0.len(), 60);
}

#[test]
fn a_full_disk_keeps_part_of_the_zeros_and_loses_nothing() {
    for kept in [0, 1, 40, RECORD, RECORD + 1, 5_000] {
        let disk = Forgetful::new(64);
        let mut log = open_with(&disk, AHEAD);
        disk.fail_next_write(28, kept); // ENOSPC
        put(&mut log, 1);
        put(&mut log, 2);
        sync(&log);
        let (records, recovered) = collect(&disk.copy()).unwrap();
        assert_eq!((records.len(), recovered.dropped_from), (2, None), "{kept} bytes kept");
    }
}

#[test]
fn log_continues_where_its_zeros_begin() {
    let disk = Forgetful::new(64);
    let mut log = open_with(&disk, AHEAD);
    put(&mut log, 1);
    sync(&log);
    let (before, end) = (length(&disk, 0), log.segment_bytes());
    let mut log = open_with(&disk, AHEAD);
    assert_eq!((log.segment_bytes(), length(&disk, 0)), (end, before), "nothing is cut off");
    for number in 2..10 {
        put(&mut log, number);
        assert_eq!(length(&disk, 0), before);
    }
    sync(&log);
    disk.power_loss(PowerLoss::DropAll);
    let (records, recovered) = collect(&disk).unwrap();
    let found: Vec<u8> = records.iter().map(|(_, payload)| payload[0]).collect();
    assert_eq!((found, recovered.bytes_dropped), ((1..10).collect(), 0));
}

#[test]
fn a_segment_that_ends_with_zeros_is_followed_by_the_next() {
    let disk = Forgetful::new(64);
    let mut log = open_with(&disk, AHEAD);
    for number in 0..3 {
        put(&mut log, number);
        log.write_and_rotate().unwrap();
    }
    sync(&log);
    log.write().unwrap();
    let intact = disk.copy();
    assert!(length(&intact, 0) > HEADER + RECORD);
    let (records, recovered) = collect(&intact.copy()).unwrap();
    assert_eq!((records.len(), recovered.dropped_from), (3, None));
    // Zeros in place of durable records are noticed, because the next segment continues after those
    // records.
    let path = segment_paths(&intact).remove(1);
    let mut bytes = intact.content(&path).unwrap();
    bytes[HEADER..].fill(0);
    let zeroed = intact.copy();
    zeroed.set_content(&path, bytes);
    match collect(&zeroed) {
        Err(StoreError::LogDamaged { path: found, offset, position }) => {
            assert_eq!((found, offset, position), (path, HEADER as u64, LogPosition(2)));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn zeros_in_the_place_of_any_durable_record_are_damage() {
    let disk = Forgetful::new(64);
    let mut log = open_with(&disk, AHEAD);
    for number in 0..6 {
        put(&mut log, number);
        sync(&log);
    }
    log.write().unwrap();
    let path = segment_paths(&disk).remove(0);
    let bytes = disk.content(&path).unwrap();
    for record in 0..6 {
        let zeroed = disk.copy();
        let mut damaged = bytes.clone();
        let at = HEADER + record * RECORD;
        damaged[at..at + RECORD].fill(0);
        zeroed.set_content(&path, damaged);
        let is_damage =
            matches!(collect(&zeroed), Err(StoreError::LogDamaged { offset, .. }) if offset == at as u64);
        assert!(is_damage, "record {record}");
    }
}

#[test]
fn anything_but_zeros_behind_the_last_record_is_a_torn_tail() {
    let disk = Forgetful::new(64);
    let mut log = open_with(&disk, AHEAD);
    put(&mut log, 1);
    sync(&log);
    let (path, end) = (segment_paths(&disk).remove(0), log.segment_bytes() as usize);
    let bytes = disk.content(&path).unwrap();
    for at in (end..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
        let torn = disk.copy();
        let mut damaged = bytes.clone();
        damaged[at] = 1;
        torn.set_content(&path, damaged);
        let (records, recovered) = collect(&torn).unwrap();
        assert_eq!((records.len(), recovered.dropped_from), (1, Some((path.clone(), end as u64))), "{at}");
        assert_eq!(recovered.bytes_dropped as usize, bytes.len() - end);
        assert_eq!(torn.content(&path).unwrap().len(), end, "byte {at}: the tail was not cut off");
    }
}

#[test]
fn sync_writes_no_length_while_zeros_last() {
    let (disk, resized) = (Forgetful::new(64), Arc::new(AtomicU64::new(0)));
    let (counted, on_disk) = (resized.clone(), disk.clone());
    let before = AtomicU64::new(0);
    let files = Watched::new(Arc::new(disk.clone()), move |moment, call, _| {
        if call == FileCall::Write {
            let used = on_disk.used();
            match moment {
                Moment::Begins => before.store(used, Ordering::Relaxed),
                Moment::Ended => {
                    counted.fetch_add(u64::from(used > before.load(Ordering::Relaxed)), Ordering::Relaxed);
                }
            }
        }
        Ok(())
    });
    let identity = common::identity();
    let (mut log, _) = Log::open(Arc::new(files), Path::new(DIRECTORY), identity, AHEAD, |_, _| {}).unwrap();
    let created = resized.load(Ordering::Relaxed);
    for number in 0..50 {
        put(&mut log, number);
        sync(&log);
    }
    assert_eq!(resized.load(Ordering::Relaxed) - created, 1);
}

#[test]
fn torn_tail_among_zeros_keeps_synced_records() {
    for kept in 0..3 * RECORD {
        let disk = Forgetful::new(64);
        let mut log = open(&disk);
        put(&mut log, 1);
        sync(&log);
        let mut log = open_with(&disk, LogOptions { ahead_bytes: 1_024, ..options() });
        for number in 2..4 {
            put(&mut log, number);
        }
        disk.power_loss(PowerLoss::KeepPrefix(kept));
        let (records, recovered) = collect(&disk).unwrap();
        assert_eq!(records.len(), 1 + (kept / RECORD).min(2), "{kept} bytes kept");
        assert_eq!(recovered.dropped_from.is_some(), kept < 2 * RECORD && kept % RECORD > 0, "{kept}");
    }
}
