//! Compaction of large values: space, readers, crashes, a full disk.

use crate::common;

use common::values::{
    BLOCK, LOSSES, check, compact, content, disk, dying, lose_power, name, names, open, open_on, options,
    put, put_synced, segment_paths,
};
use nicekv_store::{Files, Forgetful, Result, StoreError, Values, files::PowerLoss};

const LENGTH: usize = 2 * BLOCK;
/// Number of values of length `LENGTH` in a segment.
const FULL: u64 = 4;

/// Segments full of values 1, 2, …, all synced.
fn filled(files: impl Files + 'static, segments: u64) -> Result<Values> {
    let mut values = open_on(files)?;
    for number in 1..=segments * FULL {
        put(&mut values, number, LENGTH)?;
    }
    values.sync_handle().sync()?;
    Ok(values)
}

fn remove(values: &mut Values, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        assert!(values.remove(name(number)).unwrap(), "{number} was there");
    }
}

fn survivors(disk: &Forgetful) -> Vec<u64> {
    let values = open(disk);
    let found = names(&values);
    found.iter().for_each(|number| check(&values, *number, LENGTH));
    found
}

#[test]
fn dead_segment_is_removed_at_once() {
    let disk = disk();
    let mut values = filled(disk.clone(), 3).unwrap();
    put(&mut values, 100, 4 * BLOCK).unwrap();
    assert_eq!((values.statistics().segments, segment_paths(&disk).len()), (4, 4));
    remove(&mut values, [100]);
    assert_eq!((values.statistics().segments, segment_paths(&disk).len()), (3, 3));
    remove(&mut values, 1..=FULL);
    let statistics = values.statistics();
    assert_eq!((statistics.segments, segment_paths(&disk).len(), statistics.dead_bytes), (2, 2, 0));
    assert!(!values.remove(name(1)).unwrap(), "it is dead already");
    assert!(matches!(values.verify(name(1)), Err(StoreError::ValueNotFound { .. })));
    assert_eq!(statistics.disk_bytes, disk.used());
}

#[test]
fn a_segment_below_half_moves_in_small_steps() {
    let disk = disk();
    let mut values = filled(disk.clone(), 3).unwrap();
    assert!(!values.compact_step(u64::MAX, None).unwrap(), "all are alive");
    remove(&mut values, [1, 2]);
    assert!(!values.compact_step(u64::MAX, None).unwrap(), "half is alive");
    remove(&mut values, [4]);
    let mut steps = 0;
    while values.compact_step(1, None).unwrap() {
        steps += 1;
        check(&values, 3, LENGTH);
    }
    assert!(steps >= LENGTH / BLOCK, "{steps} steps");
    assert_eq!(values.statistics().dead_bytes, 0);
    assert_eq!(values.statistics().disk_bytes, disk.used());
    let expected: Vec<u64> = [3].into_iter().chain(5..=3 * FULL).collect();
    assert_eq!(names(&values), expected);
    disk.power_loss(PowerLoss::DropAll);
    assert_eq!(
        survivors(&disk),
        (1..=3 * FULL).collect::<Vec<_>>(),
        "neither removals of values nor of the file are synced"
    );
    let mut values = open(&disk);
    remove(&mut values, [1, 2, 4]);
    compact(&mut values).unwrap();
    values.sync_handle().sync().unwrap();
    drop(values);
    assert_eq!(survivors(&disk.copy()), expected);
}

#[test]
fn short_space_compacts_segments_more_than_half_alive() {
    let disk = disk();
    const SEGMENTS: u64 = 8;
    let mut values = filled(disk.clone(), SEGMENTS).unwrap();
    let is_dead = |number: &u64| number % FULL == 1;
    remove(&mut values, (1..=SEGMENTS * FULL).filter(is_dead));
    let live = values.statistics().live_bytes / SEGMENTS;
    assert!(!values.compact_step(u64::MAX, None).unwrap(), "three in four are alive");
    assert!(!values.compact_step(u64::MAX, Some(live - 1)).unwrap(), "no room for three live values");
    let before = disk.used();
    while values.compact_step(u64::MAX, Some(live)).unwrap() {}
    assert!(disk.used() < before, "{} of {before} bytes", disk.used());
    assert_eq!(values.statistics().dead_bytes, 0);
    assert_eq!(names(&values), (1..=SEGMENTS * FULL).filter(|it| !is_dead(it)).collect::<Vec<_>>());
}

#[test]
fn all_dead_space_is_reclaimed_eventually() {
    let disk = disk();
    let mut values = open(&disk);
    let mut most = 0;
    for number in 1..400 {
        put_synced(&mut values, number, 9_000 + (number as usize * 7_919) % (3 * BLOCK)).unwrap();
        if number > 10 {
            remove(&mut values, [number - 10]);
        }
        values.compact_step(u64::MAX, None).unwrap();
        values.compact_step(u64::MAX, None).unwrap();
        most = most.max(disk.used());
    }
    assert!(most < 12 * options().segment_bytes, "{most} bytes for ten values");
    remove(&mut values, 390..400);
    compact(&mut values).unwrap();
    assert_eq!((values.statistics(), disk.used()), (Default::default(), 0));
}

#[test]
fn reader_continues_through_removal_and_compaction() {
    let disk = disk();
    let mut values = filled(disk.clone(), 2).unwrap();
    let pinned: Vec<_> = (1..=FULL).map(|number| values.pin(name(number)).unwrap()).collect();
    remove(&mut values, [1, 2, 3]);
    compact(&mut values).unwrap();
    remove(&mut values, [FULL]);
    put_synced(&mut values, 1, BLOCK).unwrap();
    compact(&mut values).unwrap();
    let reader = std::thread::spawn(move || {
        for (number, pinned) in (1..).zip(&pinned) {
            let mut found = vec![0; pinned.length() as usize];
            pinned.read(0, &mut found).unwrap();
            assert!(found == content(number, LENGTH), "value {number} has changed");
            pinned.verify().unwrap();
        }
    });
    reader.join().unwrap();
    check(&values, 1, BLOCK);
}

#[test]
fn value_removed_during_its_copy_stays_removed() {
    for steps in 0..8 {
        let disk = disk();
        let mut values = filled(disk.clone(), 2).unwrap();
        remove(&mut values, [1, 2, 4]);
        for _ in 0..steps {
            values.compact_step(1, None).unwrap();
        }
        remove(&mut values, [3]);
        put_synced(&mut values, 3, BLOCK).unwrap();
        compact(&mut values).unwrap();
        check(&values, 3, BLOCK);
        remove(&mut values, [3]);
        compact(&mut values).unwrap();
        assert_eq!(names(&values), (FULL + 1..=2 * FULL).collect::<Vec<_>>(), "after {steps} steps");
        let statistics = values.statistics();
        assert_eq!(statistics.writing_bytes, 0, "after {steps} steps");
        assert_eq!(statistics.live_bytes, FULL * (LENGTH as u64 + 4_096), "after {steps} steps");
    }
}

#[test]
fn a_segment_stays_until_its_copies_are_durable() {
    let length = BLOCK - 4_096;
    for (gone, stays) in [(1, 2), (2, 1), (10, 1), (10, 2)] {
        for (steps, kind) in (0..8).flat_map(|steps| (0..LOSSES).map(move |kind| (steps, kind))) {
            let disk = disk();
            let mut values = open(&disk);
            // Nine of these values fill a segment. The last removal may empty it, before or after
            // the other value was copied.
            (1..=9).for_each(|number| put(&mut values, number, length).unwrap());
            put_synced(&mut values, 10, BLOCK).unwrap();
            remove(&mut values, 3..=9);
            for _ in 0..steps {
                values.compact_step(1, None).unwrap();
            }
            remove(&mut values, [gone]);
            drop(values);
            lose_power(&disk, kind);
            check(&open(&disk), stays, length);
        }
    }
}

#[test]
fn a_crash_at_every_call_loses_nothing() {
    let alive = [3, 5, 9, 10, 11, 12, 20, 21];
    let prepare = |disk: &Forgetful| {
        let mut values = filled(disk.clone(), 3).unwrap();
        put(&mut values, 20, LENGTH).unwrap();
        put_synced(&mut values, 21, LENGTH).unwrap();
    };
    for kind in 0..LOSSES {
        let mut moments = 0;
        loop {
            let disk = disk();
            prepare(&disk);
            let ended = open_on(dying(&disk, moments)).and_then(|mut values| {
                for number in [1, 2, 4, 6, 7, 8] {
                    values.remove(name(number))?;
                }
                compact(&mut values)
            });
            lose_power(&disk, kind);
            let found = survivors(&disk);
            let lost: Vec<_> = alive.iter().filter(|number| !found.contains(number)).collect();
            assert!(lost.is_empty(), "loss {kind} after {moments} moments: {lost:?}");
            disk.power_loss(PowerLoss::DropAll);
            assert_eq!(survivors(&disk), found, "loss {kind} after {moments} moments");
            let mut values = open(&disk);
            for number in found.into_iter().filter(|number| !alive.contains(number)) {
                remove(&mut values, [number]);
            }
            compact(&mut values).unwrap();
            assert_eq!(names(&values), alive);
            if ended.is_ok() {
                break;
            }
            moments += 1;
        }
        assert!(moments > 20, "{moments} moments");
    }
}

#[test]
fn a_full_disk_stops_compaction_and_loses_nothing() {
    let disk = disk();
    let mut values = filled(disk.clone(), 3).unwrap();
    remove(&mut values, [1, 2, 3, 5, 6, 7]);
    let used = disk.used();
    disk.set_capacity(Some(used));
    let full = compact(&mut values).unwrap_err();
    assert!(full.is_out_of_space(), "{full}");
    assert!(compact(&mut values).unwrap_err().is_out_of_space(), "it may be tried again");
    let expected = [4, 8, 9, 10, 11, 12];
    expected.iter().for_each(|number| check(&values, *number, LENGTH));
    assert!(disk.used() <= used);
    assert_eq!(survivors(&disk.copy()), (1..=12).collect::<Vec<_>>(), "removals are not on the disk");
    disk.set_capacity(None);
    compact(&mut values).unwrap();
    assert_eq!(names(&values), expected);
    assert!(disk.used() < used);
    disk.power_loss(PowerLoss::DropAll);
    let found = survivors(&disk);
    assert!(expected.iter().all(|number| found.contains(number)), "{found:?}");
}

#[test]
fn full_disk_pauses_a_copy() {
    for writes in 0..4 {
        let disk = disk();
        let mut values = filled(disk.clone(), 2).unwrap();
        remove(&mut values, [1, 2, 4]);
        for _ in 0..=writes {
            values.compact_step(1, None).unwrap();
        }
        disk.fail_next_write(28, 100);
        match compact(&mut values) {
            Ok(()) => assert!(writes > 2, "there was something to write"),
            Err(error) => assert!(error.is_out_of_space(), "{error}"),
        }
        check(&values, 3, LENGTH);
        let _ = put(&mut values, 50, BLOCK); // meets the fault if nothing did yet
        compact(&mut values).unwrap();
        disk.power_loss(PowerLoss::DropAll);
        check(&open(&disk), 3, LENGTH);
    }
}

#[test]
fn a_failed_sync_of_copies_is_never_forgotten() {
    let disk = disk();
    let mut values = filled(disk.clone(), 2).unwrap();
    remove(&mut values, [1, 2, 4]);
    disk.fail_next_sync(5);
    assert!(matches!(compact(&mut values), Err(StoreError::ValuesFailed { .. })));
    assert!(matches!(values.compact_step(1, None), Err(StoreError::ValuesFailed { .. })));
    check(&values, 3, LENGTH);
    drop(values);
    disk.power_loss(PowerLoss::DropAll);
    assert!(survivors(&disk).contains(&3));
}
