//! Large values after a power loss at every call to the file layer (docs/FAULTS.md rows 5 and 6).

use crate::common;

use common::values::{
    BLOCK, LOSSES, check, compact, content, disk, dying, lose_power, name, names, open, open_on, owner, put,
    put_synced,
};
use nicekv_store::{Files, Forgetful, Result, Values, files::PowerLoss};
use std::collections::{BTreeMap, BTreeSet};

/// The caller's knowledge when the power is lost.
#[derive(Default)]
struct Ledger {
    /// Lengths by name, of values that were synced and not removed.
    synced: BTreeMap<u64, usize>,
    /// Lengths by name, of all values whose finishing was tried.
    finished: BTreeMap<u64, usize>,
    removed: BTreeSet<u64>,
}

impl Ledger {
    fn put(&mut self, values: &mut Values, number: u64, length: usize) -> Result<()> {
        self.finished.insert(number, length);
        put(values, number, length)
    }

    fn sync(&mut self, values: &Values) -> Result<()> {
        values.sync_handle().sync()?;
        self.synced.clone_from(&self.finished);
        self.synced.retain(|number, _| !self.removed.contains(number));
        Ok(())
    }

    fn remove(&mut self, values: &mut Values, number: u64) -> Result<()> {
        self.synced.remove(&number);
        self.removed.insert(number);
        values.remove(name(number)).map(drop)
    }
}

/// A workload with shared and separate segments, interleaved and out-of-order writes, unfinished,
/// abandoned and removed values, and compaction.
fn live(files: impl Files + 'static, ledger: &mut Ledger) -> Result<()> {
    let mut values = open_on(files)?;
    ledger.put(&mut values, 1, 2 * BLOCK + 100)?;
    ledger.sync(&values)?;
    let (second, third) = (content(2, BLOCK), content(3, BLOCK + 9));
    let mut unfinished = values.begin(name(2), owner(2), second.len() as u64)?;
    let mut in_turn = values.begin(name(3), owner(3), third.len() as u64)?;
    values.write(&mut in_turn, 40_000, &third[40_000..])?;
    values.write(&mut unfinished, 0, &second[..40_000])?;
    values.write(&mut in_turn, 0, &third[..40_000])?;
    ledger.finished.insert(3, third.len());
    values.finish(in_turn)?;
    ledger.sync(&values)?;
    ledger.put(&mut values, 4, 4 * BLOCK)?;
    ledger.put(&mut values, 5, 9_000)?;
    let mut abandoned = values.begin(name(6), owner(6), 30_000)?;
    values.write(&mut abandoned, 0, &content(6, 30_000))?;
    values.abandon(abandoned)?;
    ledger.sync(&values)?;
    values.write(&mut unfinished, 40_000, &second[40_000..])?;
    ledger.put(&mut values, 7, 2 * BLOCK)?;
    ledger.put(&mut values, 8, 2 * BLOCK)?;
    ledger.remove(&mut values, 1)?;
    ledger.remove(&mut values, 4)?;
    ledger.remove(&mut values, 7)?;
    values.abandon(unfinished)?;
    compact(&mut values)?;
    ledger.put(&mut values, 9, BLOCK)?;
    ledger.sync(&values)?;
    ledger.put(&mut values, 11, BLOCK)?;
    let mut last = values.begin(name(10), owner(10), 20_000)?;
    values.write(&mut last, 0, &content(10, 20_000))?;
    Ok(())
}

/// Checks that every synced value is found, that every value found is whole and durable, and that
/// writing continues.
fn check_survivors(disk: &Forgetful, ledger: &Ledger, context: &str) {
    let values = open_on(disk.clone()).unwrap_or_else(|error| panic!("{context}: {error}"));
    let found = names(&values);
    for number in ledger.synced.keys() {
        assert!(found.contains(number), "{context}: {number} was synced, found are {found:?}");
    }
    for (name, found_owner, length) in values.iter() {
        let number = name.sequence;
        let expected = ledger.finished.get(&number);
        assert_eq!(expected, Some(&(length as usize)), "{context}: {number} was not finished");
        assert_eq!(found_owner, &owner(number), "{context}");
        check(&values, number, length as usize);
    }
    drop(values);
    disk.power_loss(PowerLoss::DropAll);
    let mut values = open(disk);
    assert_eq!(names(&values), found, "{context}: what was found is durable");
    for number in 100..103 {
        put_synced(&mut values, number, BLOCK).unwrap();
        check(&values, number, BLOCK);
    }
    disk.power_loss(PowerLoss::DropAll);
    let values = open(disk);
    let expected: Vec<u64> = found.iter().copied().chain(100..103).collect();
    assert_eq!(names(&values), expected, "{context}: nothing that was dropped comes back");
    found.iter().for_each(|number| check(&values, *number, ledger.finished[number]));
}

#[test]
fn power_loss_at_every_call() {
    for kind in 0..LOSSES {
        let mut moments = 0;
        loop {
            let (disk, mut ledger) = (disk(), Ledger::default());
            let ended = live(dying(&disk, moments), &mut ledger);
            lose_power(&disk, kind);
            check_survivors(&disk, &ledger, &format!("loss {kind} after {moments} moments"));
            if ended.is_ok() {
                break;
            }
            moments += 1;
        }
        assert!(moments > 80, "{moments} moments");
    }
}

#[test]
fn power_loss_at_every_call_of_opening() {
    for kind in 0..LOSSES {
        for second in [0, 1, 4, 6] {
            let mut moments = 0;
            loop {
                let (disk, mut ledger) = (disk(), Ledger::default());
                live(disk.clone(), &mut ledger).unwrap();
                lose_power(&disk, kind);
                let ended = open_on(dying(&disk, moments));
                lose_power(&disk, second);
                check_survivors(&disk, &ledger, &format!("losses {kind}, {second} after {moments} moments"));
                if ended.is_ok() {
                    break;
                }
                moments += 1;
            }
        }
    }
}

#[test]
fn torn_header_is_not_a_value() {
    let length = 2 * BLOCK;
    for kept in [0, 1, 4, 8, 40, 55, 56, 60, 64, 70, 72] {
        let disk = disk();
        let mut values = open(&disk);
        put_synced(&mut values, 1, length).unwrap();
        let mut writing = values.begin(name(2), owner(2), length as u64).unwrap();
        values.write(&mut writing, 0, &content(2, length)).unwrap();
        disk.fail_next_write(5, kept);
        values.finish(writing).unwrap_err();
        drop(values);
        let values = open(&disk);
        let found = names(&values);
        assert!(found == [1] || found == [1, 2], "{kept} bytes: {found:?}");
        assert_eq!(found.len() == 2, kept >= 56 + owner(2).key.len() + 8, "{kept} bytes");
        check(&values, 1, length);
    }
}

#[test]
fn dropped_value_does_not_return_with_later_proof() {
    let disk = disk();
    let mut values = open(&disk);
    put_synced(&mut values, 1, BLOCK).unwrap();
    put(&mut values, 2, BLOCK).unwrap();
    put(&mut values, 3, BLOCK).unwrap();
    drop(values);
    // All but one page of the second value's content reaches the disk.
    let mut pages = 0;
    disk.power_loss(PowerLoss::KeepPages(&mut || {
        pages += 1;
        pages != 3
    }));
    let mut values = open(&disk);
    assert_eq!((names(&values), values.found().values_dropped), (vec![1, 3], 1));
    for number in 4..7 {
        put_synced(&mut values, number, BLOCK).unwrap();
    }
    drop(values);
    assert_eq!(names(&open(&disk)), [1, 3, 4, 5, 6]);
}

#[test]
fn place_of_a_refused_header_is_not_reused() {
    let disk = disk();
    let mut values = open(&disk);
    put_synced(&mut values, 1, BLOCK).unwrap();
    let mut refused = values.begin(name(2), owner(2), BLOCK as u64).unwrap();
    values.write(&mut refused, 0, &content(2, BLOCK)).unwrap();
    // The whole header is on the disk, although the write reported a full disk.
    disk.fail_next_write(28, BLOCK);
    assert!(values.finish(refused).unwrap_err().is_out_of_space());
    let mut unfinished = values.begin(name(3), owner(3), BLOCK as u64).unwrap();
    values.write(&mut unfinished, 0, &content(3, BLOCK)).unwrap();
    put_synced(&mut values, 4, BLOCK).unwrap();
    put_synced(&mut values, 5, BLOCK).unwrap();
    drop(values);
    let values = open(&disk);
    let found = names(&values);
    assert!([1, 4, 5].iter().all(|number| found.contains(number)) && !found.contains(&3), "{found:?}");
    found.into_iter().for_each(|number| check(&values, number, BLOCK));
}

#[test]
fn only_unproven_values_are_read_at_opening() {
    let disk = disk();
    let mut values = open(&disk);
    for number in 1..5 {
        put_synced(&mut values, number, BLOCK).unwrap();
    }
    drop(values);
    let path = common::values::segment_paths(&disk).remove(0);
    let intact = disk.content(&path).unwrap();
    for number in 0..4 {
        let mut damaged = intact.clone();
        damaged[4_096 + number * (4_096 + BLOCK) + 4_096] ^= 1;
        disk.set_content(&path, damaged);
        let values = open(&disk);
        let is_last = number == 3;
        assert_eq!(values.found().values_dropped, u64::from(is_last), "{number}");
        assert_eq!(names(&values).len(), if is_last { 3 } else { 4 }, "{number}");
    }
}
