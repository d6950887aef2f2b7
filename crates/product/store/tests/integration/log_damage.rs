//! The log under damage and power loss (docs/FAULTS.md rows 5, 6 and 7).

use crate::common;

use common::{Records, collect, flushed, open, open_collecting, segment_paths};
use nicekv_store::{Forgetful, Log, LogPosition, StoreError, files::PowerLoss};
use proptest::prelude::*;

fn payloads() -> Vec<Vec<u8>> {
    (0..9u8).map(|number| vec![number; 5 * usize::from(number)]).collect()
}

fn synced_log() -> (Forgetful, Records) {
    let payloads = payloads();
    let disk = flushed(&payloads.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let records = collect(&disk.copy()).unwrap().0;
    assert_eq!(records.len(), payloads.len());
    (disk, records)
}

/// After recovery, appending continues, and the next recovery finds old and new records.
fn check_goes_on(disk: &Forgetful, expected: &Records) {
    let (mut log, records, _) = open_collecting(disk).expect("opens again");
    assert_eq!(&records, expected);
    let position = log.append(b"goes on").unwrap();
    log.write().unwrap();
    log.sync_handle().sync().unwrap();
    disk.power_loss(PowerLoss::DropAll);
    let after = collect(disk).unwrap().0;
    assert_eq!(after[..expected.len()], expected[..]);
    assert_eq!(after[expected.len()..], [(position, b"goes on".to_vec())]);
}

#[test]
fn cut_at_every_byte_keeps_the_records_before_the_cut() {
    let (disk, records) = synced_log();
    let last = segment_paths(&disk).pop().unwrap();
    assert!(segment_paths(&disk).len() >= 2);
    let bytes = disk.content(&last).unwrap();
    let (mut kept_before, mut refused) = (0, 0);
    for length in 0..=bytes.len() {
        let cut = disk.copy();
        cut.set_content(&last, bytes[..length].to_vec());
        let opened = collect(&cut);
        // The manifest names this segment, and the last position that was durable.
        if let Err(StoreError::LogDamaged { path, .. }) = &opened {
            assert_eq!(
                (path, length),
                (&last, refused),
                "a longer prefix is refused although a shorter one was not"
            );
            refused += 1;
            continue;
        }
        let (kept, recovered) = opened.unwrap_or_else(|error| panic!("cut at {length}: {error}"));
        assert_eq!(kept[..], records[..kept.len()], "cut at {length}");
        assert!(kept.len() >= kept_before, "a later cut keeps no less");
        kept_before = kept.len();
        // A record begins with its 32-byte header. All records that end at or before the cut
        // survive.
        let ends = records.iter().filter(|(_, payload)| {
            let at = bytes.windows(32 + payload.len()).position(|window| {
                window[32..] == payload[..]
                    && window[8..12] == (payload.len() as u32).to_le_bytes()
                    && &window[4..8] == b"NKrP"
            });
            at.is_none_or(|at| at + 32 + payload.len() <= length)
        });
        assert_eq!(kept.len(), ends.count(), "cut at {length}");
        if recovered.bytes_dropped > 0 {
            assert_eq!(recovered.dropped_from.as_ref().unwrap().0, last);
        }
        check_goes_on(&cut, &kept);
    }
    assert!(refused > 76 && refused < bytes.len() / 2, "the header and the first record: {refused}");
    assert_eq!(kept_before, records.len());
}

#[test]
fn every_flipped_bit_is_refused_or_was_never_known_durable() {
    let (disk, records) = synced_log();
    let paths = segment_paths(&disk);
    let (mut refused, mut dropped_tails) = (0, 0);
    for (number, path) in paths.iter().enumerate() {
        let bytes = disk.content(path).unwrap();
        for bit in 0..bytes.len() * 8 {
            let damaged = disk.copy();
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            damaged.set_content(path, flipped.clone());
            match collect(&damaged) {
                Ok((kept, recovered)) => {
                    assert_eq!(
                        kept, records,
                        "segment {number}, bit {bit}: every record is covered by a marker"
                    );
                    assert!(recovered.bytes_dropped > 0, "segment {number}, bit {bit} is not even noticed");
                    dropped_tails += 1;
                }
                Err(error) => {
                    assert_eq!(damaged.content(path), Some(flipped), "a refused log is left as it is");
                    let names_it = error.to_string().contains(path.file_name().unwrap().to_str().unwrap());
                    assert!(names_it, "segment {number}, bit {bit}: {error}");
                    refused += 1;
                }
            }
        }
    }
    let last = disk.content(paths.last().unwrap()).unwrap().len();
    let zeros = last - open(&disk.copy()).segment_bytes() as usize;
    assert!(zeros > 0);
    assert_eq!(dropped_tails, (32 + zeros) * 8, "only the last marker, and zeros, were never known durable");
    assert!(refused > 0);
}

#[test]
fn damage_names_file_offset_and_record() {
    let (disk, _) = synced_log();
    let path = segment_paths(&disk).remove(0);
    let mut bytes = disk.content(&path).unwrap();
    bytes[76 + 32 + 34] ^= 1; // in the payload of the second record; the first one has none
    disk.set_content(&path, bytes);
    match collect(&disk) {
        Err(StoreError::LogDamaged { path: found, offset, position }) => {
            assert_eq!((found, offset, position), (path, 76 + 32, LogPosition(2)));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_missing_segment_in_the_middle_is_damage() {
    let disk = Forgetful::new(64);
    let mut log = open(&disk);
    for number in 0..40u8 {
        log.append(&[number; 40]).unwrap();
        log.write().unwrap();
        log.sync_handle().sync().unwrap();
    }
    let missing = segment_paths(&disk).remove(1);
    nicekv_store::Files::remove(&disk, &missing).unwrap();
    match collect(&disk) {
        Err(StoreError::LogSegmentMissing { path }) => assert_eq!(path, missing),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_power_loss_never_keeps_only_later_segments() {
    // Unsynced records in three segments; every combination of the names survives.
    for keeps in 0..64u32 {
        let disk = Forgetful::new(64);
        let mut log = open(&disk);
        for number in 0..3u8 {
            log.append(&[number; 400]).unwrap();
            log.write().unwrap();
        }
        let mut choices = (0..).map(|question| keeps >> (question % 6) & 1 == 1);
        disk.power_loss(PowerLoss::KeepPages(&mut || choices.next().unwrap()));
        let (records, recovered) = collect(&disk).unwrap();
        assert_eq!(recovered.first, LogPosition(1), "choices {keeps:06b}");
        let positions: Vec<u64> = records.iter().map(|(position, _)| position.0).collect();
        assert_eq!(positions, (1..=records.len() as u64).collect::<Vec<_>>(), "choices {keeps:06b}");
    }
}

#[test]
fn a_value_that_imitates_a_record_proves_nothing() {
    // A client stores the bytes of a log segment as its value; the tail of the record with this
    // value is torn.
    let (victim, _) = synced_log();
    let value: Vec<u8> =
        segment_paths(&victim).iter().flat_map(|path| victim.content(path).unwrap()).collect();
    let disk = Forgetful::new(64);
    let (mut log, _) = Log::open(
        std::sync::Arc::new(disk.clone()),
        std::path::Path::new(common::DIRECTORY),
        nicekv_store::LogIdentity { storage_id: 0xdead, ..common::identity() },
        common::options(),
        |_, _| {},
    )
    .unwrap();
    log.append(&value).unwrap();
    log.write().unwrap();
    let path = segment_paths(&disk).remove(0);
    let mut bytes = disk.content(&path).unwrap();
    bytes[76 + 20] ^= 1;
    disk.set_content(&path, bytes);
    let reopened = Log::open(
        std::sync::Arc::new(disk.clone()),
        std::path::Path::new(common::DIRECTORY),
        nicekv_store::LogIdentity { storage_id: 0xdead, ..common::identity() },
        common::options(),
        |_, _| panic!("nothing is left"),
    );
    assert!(reopened.is_ok());
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    Write,
    Sync,
    Trim,
    KillProcess,
    PowerLoss(u64),
    TornTail(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => (0..120usize).prop_map(Step::Append),
        8 => Just(Step::Write),
        4 => Just(Step::Sync),
        1 => Just(Step::Trim),
        1 => Just(Step::KillProcess),
        2 => any::<u64>().prop_map(Step::PowerLoss),
        1 => (0..200usize).prop_map(Step::TornTail),
    ];
    prop::collection::vec(step, 1..80)
}

/// The guarantees that the caller of a log may rely on.
struct Model {
    disk: Forgetful,
    log: Log,
    /// Everything that was appended and is not known to be lost, by position; the next payload
    /// contains `stamp`.
    appended: Records,
    /// All records up to this position were reported durable.
    durable: LogPosition,
    trimmed_before: LogPosition,
    stamp: u64,
}

impl Model {
    fn new() -> Self {
        let disk = Forgetful::new(64);
        let log = open(&disk);
        let (durable, trimmed_before) = (LogPosition(0), LogPosition(0));
        Self { disk, log, appended: vec![], durable, trimmed_before, stamp: 0 }
    }

    fn append(&mut self, length: usize) {
        self.stamp += 1;
        let payload: Vec<u8> = self.stamp.to_le_bytes().into_iter().cycle().take(length).collect();
        let position = self.log.append(&payload).unwrap();
        self.appended.push((position, payload));
    }

    fn trim(&mut self) {
        if let Some((position, _)) = self.appended.iter().rfind(|(position, _)| *position <= self.durable) {
            self.trimmed_before = *position;
            self.log.trim(self.trimmed_before).unwrap();
        }
    }

    /// Opens the log again and checks that it has a prefix of what was appended, including
    /// everything that was durable and not trimmed.
    fn reopen(&mut self) {
        let (log, found, recovered) =
            open_collecting(&self.disk).expect("an honest disk never looks damaged");
        let from = self.appended.iter().position(|(position, _)| *position >= recovered.first);
        let expected = &self.appended[from.unwrap_or(self.appended.len())..];
        assert!(found.len() <= expected.len());
        assert_eq!(found, expected[..found.len()]);
        assert!(
            recovered.first >= LogPosition(1) && recovered.first <= self.trimmed_before.max(LogPosition(1))
        );
        assert!(recovered.next > self.durable, "durable records were lost");
        self.appended = found;
        // Records that were shown are durable from now on.
        self.durable = LogPosition(recovered.next.0 - 1);
        self.log = log;
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Append(length) => self.append(length),
            Step::Write => self.log.write().unwrap(),
            Step::Sync => self.durable = self.log.sync_handle().sync().unwrap(),
            Step::Trim => self.trim(),
            Step::KillProcess => self.reopen(),
            Step::PowerLoss(seed) => {
                let mut state = seed;
                self.disk.power_loss(PowerLoss::KeepPages(&mut || {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    state >> 63 == 1
                }));
                self.reopen();
            }
            Step::TornTail(kept) => {
                self.disk.power_loss(PowerLoss::KeepPrefix(kept));
                self.reopen();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]
    #[test]
    fn power_loss_keeps_everything_reported_durable(steps in steps()) {
        let mut model = Model::new();
        for step in steps {
            model.step(step);
        }
        model.disk.power_loss(PowerLoss::DropAll);
        model.reopen();
    }
}
