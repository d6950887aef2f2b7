//! Large values under damage (docs/FAULTS.md row 10).

use crate::common;

use common::values::{
    BLOCK, FIRST, PAGE, check, compact, disk, name, names, open, open_on, owner, put, put_synced, read,
    segment_paths,
};
use nicekv_store::{Forgetful, StoreError, files::PowerLoss};

const LENGTH: usize = 2 * BLOCK;
/// Length of an extent: a page for the header, and the content.
const EXTENT: usize = PAGE + LENGTH;

/// Three values in one segment, and a fourth whose header proves them durable.
fn three() -> Forgetful {
    let disk = disk();
    let mut values = open(&disk);
    (1..5).for_each(|number| put_synced(&mut values, number, LENGTH).unwrap());
    assert_eq!(segment_paths(&disk).len(), 1);
    disk.copy()
}

fn flip(disk: &Forgetful, at: usize) {
    let path = segment_paths(disk).remove(0);
    let mut bytes = disk.content(&path).unwrap();
    bytes[at] ^= 0x10;
    disk.set_content(&path, bytes);
}

#[test]
fn a_flipped_bit_in_a_value_is_found_when_it_is_read() {
    for block in 0..2 {
        for within in [0, 1, BLOCK / 2, BLOCK - 1] {
            let disk = three();
            flip(&disk, FIRST + EXTENT + PAGE + block * BLOCK + within);
            let values = open(&disk);
            assert_eq!((names(&values), values.found().headers_damaged), (vec![1, 2, 3, 4], 0));
            [1, 3, 4].into_iter().for_each(|number| check(&values, number, LENGTH));
            match read(&values, 2) {
                Err(StoreError::Corrupt { partition, key }) => {
                    assert_eq!((partition, key), (owner(2).partition, owner(2).key));
                }
                other => panic!("{other:?}"),
            }
            assert!(matches!(values.verify(name(2)), Err(StoreError::Corrupt { .. })));
            let other = 1 - block;
            values.read(name(2), (other * BLOCK) as u64, &mut vec![0; BLOCK]).expect("the other is intact");
            let one = values.read(name(2), (block * BLOCK + 7) as u64, &mut [0]);
            assert!(matches!(one, Err(StoreError::Corrupt { .. })), "a block is verified as a whole");
        }
    }
}

#[test]
fn a_flipped_bit_in_a_checksum_is_found_when_it_is_read() {
    let disk = three();
    flip(&disk, FIRST + EXTENT + 56 + owner(2).key.len() + 4);
    let values = open(&disk);
    values.read(name(2), 0, &mut vec![0; BLOCK]).unwrap();
    assert!(matches!(values.verify(name(2)), Err(StoreError::Corrupt { .. })));
    [1, 3, 4].into_iter().for_each(|number| check(&values, number, LENGTH));
}

#[test]
fn damaged_header_is_counted_and_later_values_are_found() {
    for at in 0..56 + owner(2).key.len() {
        let disk = three();
        flip(&disk, FIRST + EXTENT + at);
        let values = open(&disk);
        assert_eq!((names(&values), values.found().headers_damaged), (vec![1, 3, 4], 1), "byte {at}");
        [1, 3, 4].into_iter().for_each(|number| check(&values, number, LENGTH));
    }
}

#[test]
fn a_damaged_segment_header_loses_no_value() {
    for at in (0..8).chain(12..80) {
        let disk = three();
        flip(&disk, at);
        let mut values = open_on(disk.clone()).unwrap_or_else(|error| panic!("byte {at}: {error}"));
        assert_eq!((names(&values), values.found().headers_damaged), (vec![1, 2, 3, 4], 1), "byte {at}");
        put_synced(&mut values, 5, LENGTH).unwrap();
        disk.power_loss(PowerLoss::DropAll);
        assert_eq!(names(&open(&disk)), [1, 2, 3, 4, 5]);
    }
}

#[test]
fn copied_value_is_not_accepted_elsewhere() {
    let disk = three();
    let path = segment_paths(&disk).remove(0);
    let bytes = disk.content(&path).unwrap();
    let mut moved = bytes.clone();
    moved.copy_within(FIRST..FIRST + EXTENT, FIRST + EXTENT);
    disk.set_content(&path, moved);
    let values = open(&disk);
    assert_eq!((names(&values), values.found().headers_damaged), (vec![1, 3, 4], 1));
    let mut swapped = bytes.clone();
    let content = |number: usize| FIRST + number * EXTENT + PAGE;
    swapped.copy_within(content(0)..content(0) + LENGTH, content(1));
    disk.set_content(&path, swapped);
    let values = open(&disk);
    assert!(matches!(read(&values, 2), Err(StoreError::Corrupt { .. })), "another value's bytes");
    let mut turned = bytes;
    let checksums = FIRST + EXTENT + 56 + owner(2).key.len();
    turned[checksums..checksums + 8].rotate_left(4);
    turned[content(1)..content(1) + LENGTH].rotate_left(BLOCK);
    disk.set_content(&path, turned);
    assert!(matches!(read(&open(&disk), 2), Err(StoreError::Corrupt { .. })), "its blocks in another order");
}

#[test]
fn a_client_cannot_imitate_a_value() {
    let disk = three();
    let bytes = disk.content(&segment_paths(&disk).remove(0)).unwrap();
    let mut values = open(&disk);
    // The content of a value contains a whole header where a header may be, and the header before
    // it is damaged.
    let length = 60_000;
    let mut writing = values.begin(name(50), owner(50), length as u64).unwrap();
    values.write(&mut writing, 0, &bytes[FIRST..FIRST + length]).unwrap();
    values.finish(writing).unwrap();
    put_synced(&mut values, 51, 100).unwrap();
    drop(values);
    flip(&disk, FIRST + 4 * EXTENT);
    let values = open(&disk);
    assert_eq!((names(&values), values.found().headers_damaged), (vec![1, 2, 3, 4, 51], 1));
}

#[test]
fn truncated_file_keeps_earlier_values() {
    let disk = three();
    let path = segment_paths(&disk).remove(0);
    let bytes = disk.content(&path).unwrap();
    for length in (0..FIRST + 4 * EXTENT).step_by(1_000) {
        disk.set_content(&path, bytes[..length].to_vec());
        let values = open(&disk);
        let whole = length.saturating_sub(FIRST) / EXTENT;
        assert_eq!(names(&values), (1..=whole as u64).collect::<Vec<_>>(), "cut at {length}");
        (1..=whole as u64).for_each(|number| check(&values, number, LENGTH));
    }
}

#[test]
fn damaged_value_can_be_rewritten() {
    let disk = three();
    flip(&disk, FIRST + EXTENT + PAGE);
    let mut values = open(&disk);
    assert!(values.remove(name(2)).unwrap());
    put_synced(&mut values, 2, LENGTH).unwrap();
    check(&values, 2, LENGTH);
    disk.power_loss(PowerLoss::DropAll);
    let values = open(&disk);
    assert_eq!(names(&values), [1, 2, 3, 4]);
    check(&values, 2, LENGTH);
}

#[test]
fn compaction_leaves_damaged_values_in_place() {
    let disk = three();
    flip(&disk, FIRST + EXTENT + PAGE);
    let mut values = open(&disk);
    (10..13).for_each(|number| put_synced(&mut values, number, LENGTH).unwrap());
    for number in [1, 4] {
        values.remove(name(number)).unwrap();
    }
    values.remove(name(3)).unwrap();
    assert!(matches!(compact(&mut values), Err(StoreError::Corrupt { .. })));
    compact(&mut values).expect("the segment is left alone");
    assert!(matches!(read(&values, 2), Err(StoreError::Corrupt { .. })), "damage stays visible");
    let segments = values.statistics().segments;
    values.remove(name(2)).unwrap();
    compact(&mut values).unwrap();
    assert_eq!(values.statistics().segments, segments - 1);
    (10..13).for_each(|number| check(&values, number, LENGTH));
}

#[test]
fn compaction_continues_after_damaged_value_is_removed() {
    let (disk, length) = (disk(), BLOCK - PAGE);
    let mut values = open(&disk);
    (1..12).for_each(|number| put_synced(&mut values, number, length).unwrap());
    drop(values);
    flip(&disk, FIRST + 7 * BLOCK + PAGE);
    let mut values = open(&disk);
    for number in [1, 2, 4, 5, 6, 7, 9] {
        values.remove(name(number)).unwrap();
    }
    assert!(matches!(compact(&mut values), Err(StoreError::Corrupt { .. })));
    compact(&mut values).unwrap();
    assert_eq!(values.statistics().segments, 2);
    values.remove(name(8)).unwrap();
    compact(&mut values).unwrap();
    let statistics = values.statistics();
    assert_eq!((statistics.segments, statistics.dead_bytes, names(&values)), (1, 0, vec![3, 10, 11]));
    check(&values, 3, length);
}

#[test]
fn garbage_is_never_a_value() {
    for fill in [0, 0xff, 0xa5, b'N'] {
        let disk = three();
        let path = segment_paths(&disk).remove(0);
        let mut garbage = disk.content(&path).unwrap();
        garbage[FIRST + EXTENT..].fill(fill);
        disk.set_content(&path, garbage);
        let values = open(&disk);
        assert_eq!((names(&values), values.found().headers_damaged), (vec![1], u64::from(fill != 0)));
        disk.set_content(&path, vec![fill; 3 * BLOCK]);
        let mut values = open(&disk);
        assert_eq!(names(&values), [] as [u64; 0]);
        assert!(segment_paths(&disk).is_empty(), "an unreadable segment without values was kept");
        put(&mut values, 1, LENGTH).unwrap();
        check(&values, 1, LENGTH);
    }
}

#[test]
fn condemned_value_is_found_until_its_replacement_is_durable() {
    // The value is in a shared segment, then in a separate one.
    for length in [LENGTH, 20 * BLOCK] {
        let disk = disk();
        let mut values = open(&disk);
        (1..4).for_each(|number| put_synced(&mut values, number, length).unwrap());
        assert!(values.condemn(name(2)) && !values.condemn(name(9)));
        assert!(
            !values.contains(name(2)) && matches!(read(&values, 2), Err(StoreError::ValueNotFound { .. }))
        );
        let died = disk.copy();
        died.power_loss(PowerLoss::DropAll);
        check(&open(&died), 2, length);
        put(&mut values, 2, length).unwrap();
        check(&values, 2, length);
        // The new value is not synced, so the one that it replaces must still be found.
        let died = disk.copy();
        died.power_loss(PowerLoss::DropAll);
        assert_eq!(names(&open(&died)), [1, 2, 3]);
        compact(&mut values).unwrap();
        values.sync_handle().sync().unwrap();
        disk.power_loss(PowerLoss::DropAll);
        let values = open(&disk);
        (1..4).for_each(|number| check(&values, number, length));
        assert_eq!(values.statistics().values, 3);
    }
}

#[test]
fn condemned_value_stays_condemned_when_moved() {
    let disk = disk();
    let mut values = open(&disk);
    (1..30).for_each(|number| put_synced(&mut values, number, LENGTH).unwrap());
    assert!(values.condemn(name(2)));
    (3..30).for_each(|number| assert!(values.remove(name(number)).unwrap()));
    compact(&mut values).unwrap();
    assert!(!values.contains(name(2)) && values.statistics().values == 2);
    check(&values, 1, LENGTH);
    assert!(values.remove(name(2)).unwrap() && !values.condemn(name(2)));
    check(&values, 1, LENGTH);
}
