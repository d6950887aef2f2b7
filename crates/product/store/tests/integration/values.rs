//! Tests of large values without faults, and with single ones: refusals, full disk, failed writes
//! and syncs, one sync with the log.

use crate::common;

use common::values::{
    BLOCK, DIRECTORY, check, compact, content, disk, name, names, open, open_on, options, owner, put,
    put_synced, read, segment_paths,
};
use nicekv_store::{
    Forgetful, Log, LogIdentity, RealFiles, StoreError, ValueOptions, ValueOwner, Values,
    files::{FileCall, Moment, PowerLoss, Watched},
    values::{FoundValues, OWNER_KEY_BYTES_MAX, Pinned, VALUE_BYTES_MAX, ValueSync, Writing},
};
use proptest::prelude::*;
use std::{
    path::Path,
    sync::{Arc, Mutex},
};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

#[test]
fn finds_what_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/er/values");
    let open = || Values::open(Arc::new(RealFiles), &path, common::identity(), options()).unwrap();
    let lengths = [0, 1, 9_001, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 5 * BLOCK + 77, 20 * BLOCK];
    let mut values = open();
    for (sequence, length) in (1..).zip(lengths) {
        put(&mut values, sequence, length).unwrap();
        check(&values, sequence, length);
    }
    values.sync_handle().sync().unwrap();
    let before = values.statistics();
    assert_eq!((before.values, before.dead_bytes, before.writing_bytes), (lengths.len(), 0, 0));
    drop(values);
    let values = open();
    assert_eq!(values.found(), FoundValues::default());
    for (sequence, length) in (1..).zip(lengths) {
        check(&values, sequence, length);
    }
    for (name, found, length) in values.iter() {
        assert_eq!((found, length), (&owner(name.sequence), lengths[name.sequence as usize - 1] as u64));
    }
    let after = values.statistics();
    assert_eq!((after.live_bytes, after.segments), (before.live_bytes, before.segments));
    let on_disk: u64 =
        std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert_eq!(after.disk_bytes, on_disk);
}

#[test]
fn one_thread_owns_values_others_sync_and_read() {
    fn is_send<T: Send>() {}
    fn is_shared<T: Send + Sync>() {}
    is_send::<Values>();
    is_send::<Writing>();
    is_shared::<Pinned>();
    is_shared::<ValueSync>();
}

#[test]
fn reads_any_range() {
    let mut values = open(&disk());
    let length = 3 * BLOCK + 100;
    put(&mut values, 1, length).unwrap();
    let bytes = content(1, length);
    let edges = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5, 3 * BLOCK, length - 1, length];
    for from in edges {
        for to in edges.into_iter().filter(|to| *to >= from) {
            let mut found = vec![0; to - from];
            values.read(name(1), from as u64, &mut found).unwrap();
            assert!(found == bytes[from..to], "{from}..{to}");
        }
        let beyond = values.read(name(1), from as u64, &mut vec![0; length - from + 1]);
        assert!(matches!(beyond, Err(StoreError::ValueRange { .. })));
    }
    assert!(matches!(values.read(name(1), u64::MAX, &mut [0]), Err(StoreError::ValueRange { .. })));
    assert!(matches!(values.read(name(2), 0, &mut [0]), Err(StoreError::ValueNotFound { .. })));
    assert!(matches!(values.length(name(2)), Err(StoreError::ValueNotFound { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn pieces_may_repeat_and_be_unordered(
        length in 1..4 * BLOCK,
        cuts in prop::collection::vec(0.0..1.0f64, 0..12),
        again in prop::collection::vec((0.0..1.0f64, 0.0..1.0f64), 0..8),
        order in any::<prop::sample::Index>(),
    ) {
        let at = |part: f64| (part * length as f64) as usize;
        let mut edges: Vec<usize> = cuts.into_iter().map(at).chain([0, length]).collect();
        edges.sort_unstable();
        let mut pieces: Vec<(usize, usize)> = edges.windows(2).map(|edges| (edges[0], edges[1])).collect();
        for (from, to) in again {
            let place = order.index(pieces.len());
            pieces.insert(place, (at(from).min(at(to)), at(from).max(at(to))));
        }
        let turn = order.index(pieces.len());
        pieces.rotate_left(turn);
        if order.index(2) == 0 {
            pieces.reverse();
        }
        let disk = disk();
        let mut values = open(&disk);
        let bytes = content(9, length);
        let mut writing = values.begin(name(9), owner(9), length as u64).unwrap();
        for (from, to) in pieces {
            values.write(&mut writing, from as u64, &bytes[from..to]).unwrap();
        }
        values.finish(writing).unwrap();
        check(&values, 9, length);
    }
}

#[test]
fn checksummed_bytes_are_not_overwritten() {
    let mut values = open(&disk());
    let length = 2 * BLOCK;
    let bytes = content(1, length);
    let mut writing = values.begin(name(1), owner(1), length as u64).unwrap();
    values.write(&mut writing, 0, &bytes[..BLOCK + 100]).unwrap();
    for (from, to) in [(0, BLOCK), (10, 20), (BLOCK - 1, BLOCK + 1), (BLOCK, BLOCK + 100)] {
        values.write(&mut writing, from as u64, &vec![0xee; to - from]).unwrap();
    }
    values.write(&mut writing, (BLOCK + 50) as u64, &bytes[BLOCK + 50..]).unwrap();
    values.finish(writing).unwrap();
    check(&values, 1, length);
}

#[test]
fn several_values_are_written_at_once() {
    let disk = disk();
    let mut values = open(&disk);
    let length = BLOCK + 5_000;
    let mut writings: Vec<_> =
        (1..6).map(|number| values.begin(name(number), owner(number), length as u64).unwrap()).collect();
    for from in (0..length).step_by(7_000) {
        for writing in &mut writings {
            let bytes = content(writing.name().sequence, length);
            values.write(writing, from as u64, &bytes[from..length.min(from + 7_000)]).unwrap();
        }
    }
    assert_eq!(names(&values), [] as [u64; 0], "none is finished");
    let beyond = values.write(&mut writings[0], length as u64, &[0]);
    assert!(matches!(beyond, Err(StoreError::ValueRange { .. })));
    values.abandon(writings.remove(1)).unwrap();
    for writing in writings.into_iter().rev() {
        values.finish(writing).unwrap();
    }
    values.sync_handle().sync().unwrap();
    disk.power_loss(PowerLoss::DropAll);
    let values = open(&disk);
    assert_eq!(names(&values), [1, 3, 4, 5]);
    [1, 3, 4, 5].into_iter().for_each(|number| check(&values, number, length));
    assert_eq!(values.found(), FoundValues::default());
}

#[test]
fn refuses_what_is_out_of_bounds() {
    let options = ValueOptions { writing_bytes_max: 100_000, ..options() };
    let open = |disk: &Forgetful| {
        Values::open(Arc::new(disk.clone()), Path::new(DIRECTORY), common::identity(), options).unwrap()
    };
    let disk = disk();
    let mut values = open(&disk);
    let too_large = values.begin(name(1), owner(1), VALUE_BYTES_MAX + 1);
    assert!(matches!(too_large, Err(StoreError::ValueTooLarge { .. })));
    let long = ValueOwner { partition: 1, key: vec![7; OWNER_KEY_BYTES_MAX + 1] };
    assert!(matches!(values.begin(name(1), long, 10), Err(StoreError::ValueOwnerTooLarge { .. })));
    let first = values.begin(name(1), owner(1), 60_000).unwrap();
    assert!(matches!(values.begin(name(1), owner(1), 10), Err(StoreError::ValueExists { .. })));
    let busy = values.begin(name(2), owner(2), 40_001);
    assert!(matches!(busy, Err(StoreError::ValuesBusy { bytes_max: 100_000 })));
    let second = values.begin(name(2), owner(2), 40_000).unwrap();
    values.abandon(first).unwrap();
    let longest = ValueOwner { partition: u32::MAX, key: vec![7; OWNER_KEY_BYTES_MAX] };
    let third = values.begin(name(3), longest.clone(), 60_000).unwrap();
    values.finish(third).unwrap();
    values.finish(second).unwrap();
    assert!(matches!(values.begin(name(2), owner(2), 10), Err(StoreError::ValueExists { .. })));
    put(&mut values, 4, 100_000).unwrap();
    drop(values);
    let values = open(&disk);
    assert_eq!(names(&values), [2, 3, 4]);
    assert!(values.iter().any(|(_, owner, _)| *owner == longest));
}

#[test]
fn refuses_other_stores_and_newer_formats() {
    let disk = disk();
    put_synced(&mut open(&disk), 1, 9_000).unwrap();
    let others = [
        LogIdentity { cluster_id: 99, ..common::identity() },
        LogIdentity { storage_id: 99, ..common::identity() },
        LogIdentity { node_id: 99, ..common::identity() },
    ];
    for identity in others {
        let result = Values::open(Arc::new(disk.clone()), Path::new(DIRECTORY), identity, options());
        assert!(matches!(result, Err(StoreError::ValuesForeign { .. })), "{identity:?}");
    }
    let note = Path::new(DIRECTORY).join("values-1.nkvalues.bak");
    disk.set_content(&note, b"an operator's copy".to_vec());
    check(&open(&disk), 1, 9_000);
    assert_eq!(disk.content(&note).unwrap(), b"an operator's copy");
    let path = segment_paths(&disk).remove(0);
    let mut bytes = disk.content(&path).unwrap();
    bytes[8] = 2;
    disk.set_content(&path, bytes);
    assert!(matches!(open_on(disk), Err(StoreError::NewerFormat { found: 2, known: 1, .. })));
}

#[test]
fn abandoned_space_is_reused_or_released() {
    let disk = disk();
    let mut values = open(&disk);
    put(&mut values, 1, BLOCK).unwrap();
    let before = values.statistics();
    for _ in 0..100 {
        let writing = values.begin(name(2), owner(2), BLOCK as u64).unwrap();
        values.abandon(writing).unwrap();
        assert_eq!(values.statistics(), before, "nothing was written to it");
    }
    for number in 2..100 {
        for length in [BLOCK, 8 * BLOCK] {
            let mut writing = values.begin(name(number), owner(number), length as u64).unwrap();
            values.write(&mut writing, 5, &[1; 100]).unwrap();
            values.abandon(writing).unwrap();
        }
        compact(&mut values).unwrap();
        assert!(values.statistics().segments <= 2, "{:?}", values.statistics());
    }
    assert!(disk.used() <= 2 * options().segment_bytes);
    check(&values, 1, BLOCK);
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let disk = disk();
    let mut values = open(&disk);
    put_synced(&mut values, 1, 2 * BLOCK).unwrap();
    let before = values.statistics();
    disk.set_capacity(Some(disk.used() + 3 * BLOCK as u64));
    let refused = values.begin(name(2), owner(2), 20 * BLOCK as u64);
    assert!(refused.err().unwrap().is_out_of_space());
    assert_eq!((values.statistics(), disk.used()), (before, before.disk_bytes), "it leaves nothing behind");
    check(&values, 1, 2 * BLOCK);
    // Space that is already allocated can still be used, and then as much as is free.
    (3..8).for_each(|number| put_synced(&mut values, number, 2 * BLOCK).unwrap());
    assert!(put(&mut values, 8, 2 * BLOCK).err().unwrap().is_out_of_space());
    disk.set_capacity(None);
    put_synced(&mut values, 8, 20 * BLOCK).unwrap();
    disk.power_loss(PowerLoss::DropAll);
    assert_eq!(names(&open(&disk)), [1, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn write_may_be_repeated_after_a_full_disk() {
    let disk = disk();
    let mut values = open(&disk);
    let bytes = content(1, BLOCK);
    let mut writing = values.begin(name(1), owner(1), BLOCK as u64).unwrap();
    for bytes_kept in [0, 100, 5_000] {
        disk.fail_next_write(ENOSPC, bytes_kept);
        assert!(values.write(&mut writing, 0, &bytes).unwrap_err().is_out_of_space());
    }
    values.write(&mut writing, 0, &bytes).unwrap();
    values.finish(writing).unwrap();
    check(&values, 1, BLOCK);
    let writing = values.begin(name(2), owner(2), 100).unwrap();
    disk.fail_next_write(ENOSPC, 20);
    assert!(values.finish(writing).unwrap_err().is_out_of_space());
    assert!(!values.contains(name(2)) && values.statistics().writing_bytes == 0);
    put_synced(&mut values, 2, 100).unwrap();
    disk.power_loss(PowerLoss::DropAll);
    assert_eq!(names(&open(&disk)), [1, 2]);
}

/// Checks that everything except reading is refused.
fn check_failed(values: &mut Values) {
    let is_failed = |result: Result<(), StoreError>| matches!(result, Err(StoreError::ValuesFailed { .. }));
    assert!(is_failed(values.sync_handle().sync()), "although this sync would succeed");
    assert!(is_failed(values.begin(name(99), owner(99), 10).map(drop)));
    assert!(is_failed(values.compact_step(1, None).map(drop)));
    check(values, 1, BLOCK);
}

#[test]
fn a_failed_sync_is_never_forgotten() {
    let disk = disk();
    let mut values = open(&disk);
    put_synced(&mut values, 1, BLOCK).unwrap();
    let mut open_one = values.begin(name(3), owner(3), 10).unwrap();
    put(&mut values, 2, BLOCK).unwrap();
    disk.fail_next_sync(EIO);
    assert!(matches!(values.sync_handle().sync(), Err(StoreError::ValuesFailed { .. })));
    check_failed(&mut values);
    assert!(matches!(values.write(&mut open_one, 0, &[1]), Err(StoreError::ValuesFailed { .. })));
    assert!(matches!(values.finish(open_one), Err(StoreError::ValuesFailed { .. })));
    drop(values);
    // The page cache still has the second value: if opening finds it, it must be on the disk.
    assert_eq!(names(&open(&disk)), [1, 2]);
    disk.power_loss(PowerLoss::DropAll);
    let values = open(&disk);
    check(&values, 1, BLOCK);
    check(&values, 2, BLOCK);
}

#[test]
fn a_failed_write_is_permanent() {
    for finishing in [false, true] {
        let disk = disk();
        let mut values = open(&disk);
        put_synced(&mut values, 1, BLOCK).unwrap();
        let mut writing = values.begin(name(2), owner(2), 10_000).unwrap();
        disk.fail_next_write(EIO, 10);
        let failed =
            if finishing { values.finish(writing) } else { values.write(&mut writing, 0, &[1; 10_000]) };
        assert!(matches!(failed, Err(StoreError::ValuesFailed { .. })));
        check_failed(&mut values);
        assert_eq!(names(&open(&disk)), [1]);
    }
}

#[test]
fn one_sync_covers_values_then_the_log() {
    let (disk, synced) = (disk(), Arc::new(Mutex::new(Vec::new())));
    let noted = synced.clone();
    let files = Watched::new(Arc::new(disk.clone()), move |moment, call, path| {
        if (moment, call) == (Moment::Ended, FileCall::Sync) {
            noted.lock().unwrap().push(path.parent().unwrap().to_path_buf());
        }
        Ok(())
    });
    let mut values = open_on(files.clone()).unwrap();
    let log_directory = Path::new(common::DIRECTORY);
    let (mut log, _) =
        Log::open(Arc::new(files), log_directory, common::identity(), common::options(), |_, _| {}).unwrap();
    log.sync_first(Arc::new(values.sync_handle()));
    for number in 1..20 {
        put(&mut values, number, 3 * BLOCK).unwrap();
        log.append(&number.to_le_bytes()).unwrap();
        log.write().unwrap();
        synced.lock().unwrap().clear();
        log.sync_handle().sync().unwrap();
        let synced = synced.lock().unwrap();
        assert_eq!(synced[0], Path::new(DIRECTORY));
        assert!(synced[1..].iter().all(|directory| directory == log_directory) && synced.len() > 1);
    }
    log.append(b"names no value").unwrap();
    log.write().unwrap();
    synced.lock().unwrap().clear();
    log.sync_handle().sync().unwrap();
    assert!(synced.lock().unwrap().iter().all(|directory| directory == log_directory));
    disk.power_loss(PowerLoss::DropAll);
    assert_eq!(names(&open(&disk)), (1..20).collect::<Vec<_>>());
    assert_eq!(common::collect(&disk).unwrap().0.len(), 20);
}

#[test]
fn the_log_fails_with_the_values() {
    let disk = disk();
    let mut values = open(&disk);
    let mut log = common::open(&disk);
    log.sync_first(Arc::new(values.sync_handle()));
    put(&mut values, 1, BLOCK).unwrap();
    let position = log.append(b"names it").unwrap();
    log.write().unwrap();
    disk.fail_next_sync(EIO);
    assert!(matches!(log.sync_handle().sync(), Err(StoreError::LogFailed { .. })));
    assert!(log.synced() < position);
    assert!(matches!(log.sync_handle().sync(), Err(StoreError::LogFailed { .. })));
    assert!(matches!(log.write(), Err(StoreError::LogFailed { .. })));
    assert!(matches!(values.sync_handle().sync(), Err(StoreError::ValuesFailed { .. })));
    assert_eq!(read(&values, 1).unwrap().len(), BLOCK);
}
