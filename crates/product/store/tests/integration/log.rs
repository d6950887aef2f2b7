//! Tests of the log without faults, and with single ones: refusals, full disk, failed sync, trim.

use crate::common;

use common::{DIRECTORY, collect, flushed, identity, open, open_with, options};
use nicekv_store::{
    Files, Forgetful, Log, LogIdentity, LogOptions, LogPosition, RealFiles, StoreError, files::PowerLoss,
    log::SyncFirst,
};
use std::{
    path::Path,
    sync::{Arc, Mutex},
};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

#[test]
fn finds_what_was_written_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/er/log");
    let open = || {
        let mut found = Vec::new();
        let visit = |position: LogPosition, payload: &[u8]| found.push((position.0, payload.to_vec()));
        let (log, recovered) =
            Log::open(Arc::new(RealFiles), &path, identity(), options(), visit).expect("opens");
        (log, recovered, found)
    };
    let (mut log, recovered, _) = open();
    assert_eq!((recovered.first, recovered.next, recovered.records), (LogPosition(1), LogPosition(1), 0));
    let mut expected = Vec::new();
    for number in 0..100u32 {
        let payload = number.to_le_bytes().repeat(number as usize % 7);
        expected.push((log.append(&payload).unwrap().0, payload));
        log.write().unwrap();
        if number % 10 == 0 {
            assert_eq!(log.sync_handle().sync().unwrap(), log.last());
            assert_eq!(log.synced(), log.last());
        }
    }
    assert!(log.segments() > 5, "{} segments", log.segments());
    drop(log);
    let (_, recovered, found) = open();
    assert_eq!(found, expected);
    assert_eq!((recovered.records, recovered.bytes_dropped, recovered.dropped_from), (100, 0, None));
}

#[test]
fn refuses_another_owners_log() {
    let disk = flushed(&[b"a payload"]);
    let other = [
        LogIdentity { cluster_id: 99, ..identity() },
        LogIdentity { storage_id: 99, ..identity() },
        LogIdentity { node_id: 99, ..identity() },
    ];
    for identity in other {
        let result = Log::open(Arc::new(disk.clone()), Path::new(DIRECTORY), identity, options(), |_, _| {});
        assert!(matches!(result, Err(StoreError::LogForeign { .. })), "{identity:?}");
    }
}

#[test]
fn refuses_a_newer_format() {
    let disk = flushed(&[b"a payload"]);
    let path = common::segment_paths(&disk).remove(0);
    let mut bytes = disk.content(&path).unwrap();
    bytes[8] = 2;
    disk.set_content(&path, bytes);
    assert!(matches!(collect(&disk), Err(StoreError::NewerFormat { found: 2, known: 1, .. })));
}

#[test]
fn bounds_records_and_buffer() {
    let disk = Forgetful::new(64);
    let options = LogOptions { buffer_bytes_max: 1_000, ..options() };
    let (mut log, _) =
        Log::open(Arc::new(disk), Path::new(DIRECTORY), identity(), options, |_, _| {}).unwrap();
    let too_large = vec![0; nicekv_store::log::PAYLOAD_BYTES_MAX + 1];
    assert!(matches!(log.append(&too_large), Err(StoreError::RecordTooLarge { .. })));
    while log.append(&[7; 100]).is_ok() {}
    assert!(matches!(log.append(&[7; 100]), Err(StoreError::LogBufferFull { bytes_max: 1_000 })));
    assert_eq!(log.last(), LogPosition(7), "refused records take no position");
    log.write().unwrap();
    assert_eq!(log.append(&[7; 100]).unwrap(), LogPosition(8));
}

#[test]
fn a_failed_sync_is_never_forgotten() {
    let disk = Forgetful::new(64);
    let mut log = open(&disk);
    log.append(b"first").unwrap();
    log.write().unwrap();
    let sync = log.sync_handle();
    disk.fail_next_sync(EIO);
    assert!(matches!(sync.sync(), Err(StoreError::LogFailed { .. })));
    assert!(matches!(sync.sync(), Err(StoreError::LogFailed { .. })), "although this sync would succeed");
    assert_eq!(log.synced(), LogPosition(0));
    log.append(b"second").unwrap();
    assert!(matches!(log.write(), Err(StoreError::LogFailed { .. })));
}

#[test]
fn a_restart_after_a_failed_sync_writes_again() {
    let disk = Forgetful::new(64);
    let mut log = open(&disk);
    log.append(b"seen by the restarted process").unwrap();
    log.write().unwrap();
    disk.fail_next_sync(EIO);
    log.sync_handle().sync().unwrap_err();
    drop(log);
    let shown = collect(&disk).unwrap().0;
    assert_eq!(shown.len(), 1, "the page cache still has it");
    disk.power_loss(PowerLoss::DropAll);
    assert_eq!(collect(&disk).unwrap().0, shown, "a record that was shown must be on the disk");
}

#[test]
fn a_failed_write_is_permanent_but_a_full_disk_is_not() {
    let disk = Forgetful::new(64);
    let mut log = open_with(&disk, LogOptions { ahead_bytes: 0, ..options() });
    for bytes_kept in [0, 1, 40] {
        log.append(b"waits for space").unwrap();
        disk.fail_next_write(ENOSPC, bytes_kept);
        assert!(log.write().unwrap_err().is_out_of_space());
        assert_eq!(log.sync_handle().written().0, log.last().0 - 1);
        log.write().unwrap();
        assert_eq!(log.sync_handle().sync().unwrap(), log.last());
    }
    assert_eq!(collect(&disk.copy()).unwrap().0.len(), 3);
    log.append(b"lost").unwrap();
    disk.fail_next_write(EIO, 3);
    assert!(matches!(log.write(), Err(StoreError::LogFailed { .. })));
    assert!(matches!(log.write(), Err(StoreError::LogFailed { .. })));
    assert!(matches!(log.sync_handle().sync(), Err(StoreError::LogFailed { .. })));
    assert_eq!(collect(&disk).unwrap().0.len(), 3, "half a record is a torn tail");
}

/// A dependency that appends a record while it is synced.
struct WritesMeanwhile(Mutex<Log>);

impl SyncFirst for WritesMeanwhile {
    fn sync_first(&self) -> nicekv_store::Result<()> {
        let mut log = self.0.lock().unwrap();
        log.append(b"names something that is not yet durable")?;
        log.write()
    }
}

#[test]
fn sync_covers_only_records_before_its_dependency() {
    let disk = Forgetful::new(64);
    let mut log = open(&disk);
    let first = log.append(b"names something").unwrap();
    log.write().unwrap();
    let sync = log.sync_handle();
    let writes = Arc::new(WritesMeanwhile(Mutex::new(log)));
    writes.0.lock().unwrap().sync_first(writes.clone());
    assert_eq!(sync.sync().unwrap(), first);
    assert_eq!(sync.written(), LogPosition(2));
    assert!(sync.sync().unwrap() >= LogPosition(2), "the next sync covers the record");
}

#[test]
fn trims_whole_segments_and_reopens() {
    let disk = Forgetful::new(64);
    let mut log = open(&disk);
    for number in 0..60u8 {
        log.append(&[number; 50]).unwrap();
        log.write().unwrap();
    }
    log.sync_handle().sync().unwrap();
    let segments = log.segments();
    log.trim(LogPosition(0)).unwrap();
    assert_eq!(log.segments(), segments);
    log.trim(LogPosition(30)).unwrap();
    assert!(log.segments() < segments);
    assert!(log.first() <= LogPosition(30), "nothing from position 30 on is gone");
    let first = log.first();
    disk.power_loss(PowerLoss::DropAll);
    let (records, recovered) = collect(&disk).unwrap();
    assert_eq!(recovered.first, first);
    assert_eq!(records.first().unwrap().0, first);
    assert_eq!(records.last().unwrap().1, vec![59; 50]);
    let mut log = open(&disk);
    log.trim(LogPosition(u64::MAX)).unwrap();
    assert_eq!(log.segments(), 1, "the current segment stays");
    let position = log.append(b"goes on").unwrap();
    log.write().unwrap();
    assert!(collect(&disk).unwrap().0.contains(&(position, b"goes on".to_vec())));
}

#[test]
fn early_ended_segment_can_be_trimmed() {
    let disk = Forgetful::new(64);
    let mut log = open(&disk);
    log.write_and_rotate().unwrap();
    assert_eq!(log.segments(), 1, "an empty segment is not ended");
    log.append(b"first").unwrap();
    let empty = log.segment_bytes();
    log.write_and_rotate().unwrap();
    log.write_and_rotate().unwrap();
    assert_eq!((log.segments(), log.segment_bytes()), (2, empty), "the segment with records was ended once");
    let second = log.append(b"second").unwrap();
    log.write().unwrap();
    assert!(log.segment_bytes() > empty);
    log.sync_handle().sync().unwrap();
    log.trim(second).unwrap();
    assert_eq!((log.segments(), log.first()), (1, second));
    let (records, _) = collect(&disk).unwrap();
    assert_eq!(records, [(second, b"second".to_vec())]);
}

#[test]
fn trimming_keeps_undurable_records() {
    let disk = Forgetful::new(64);
    let mut log = open(&disk);
    for number in 0..3u8 {
        log.append(&[number; 400]).unwrap();
        log.write().unwrap();
    }
    log.trim(LogPosition(u64::MAX)).unwrap();
    assert_eq!((log.segments(), log.first()), (4, LogPosition(1)));
    log.sync_handle().sync().unwrap();
    log.trim(LogPosition(u64::MAX)).unwrap();
    assert_eq!(log.first(), LogPosition(3), "the last durable record is kept");
}

#[test]
fn garbage_log_is_not_recreated() {
    let disk = Forgetful::new(64);
    let mut log = open(&disk);
    for _ in 0..10 {
        log.append(&[7; 400]).unwrap();
        log.write().unwrap();
        log.sync_handle().sync().unwrap();
        log.trim(log.synced()).unwrap();
    }
    for path in common::segment_paths(&disk) {
        disk.set_content(&path, b"nothing that was a log".to_vec());
    }
    for _ in 0..2 {
        assert!(matches!(collect(&disk), Err(StoreError::LogDamaged { .. })));
        disk.power_loss(PowerLoss::DropAll);
    }
}

#[test]
fn other_files_are_left_alone() {
    let disk = flushed(&[b"a payload"]);
    let note = Path::new(DIRECTORY).join("log-1.nklog.bak");
    disk.set_content(&note, b"an operator's copy".to_vec());
    assert_eq!(collect(&disk).unwrap().0.len(), 1);
    assert_eq!(disk.content(&note).unwrap(), b"an operator's copy");
    assert_eq!(disk.list(Path::new(DIRECTORY)).unwrap().len(), 3);
}
