//! Tests for every engine, and tests of what the durable one must survive.

use nicekv_store::{
    DurableEngine, Engine, MemoryEngine, StoreError,
    engine::{Checksummed, DurableOptions},
};
use proptest::prelude::*;
use std::{collections::BTreeMap, path::Path};

fn small() -> DurableOptions {
    DurableOptions { memtable_bytes_max: 16 << 10, cache_bytes: 1 << 20, ..DurableOptions::default() }
}

fn durable(directory: &Path) -> DurableEngine {
    DurableEngine::open(directory, small()).expect("opens")
}

/// Runs a test on each engine.
fn on_all(test: impl Fn(&mut dyn Engine)) {
    test(&mut MemoryEngine::new());
    test(&mut Checksummed::new(MemoryEngine::new()));
    let directory = tempfile::tempdir().expect("a directory");
    test(&mut durable(directory.path()));
}

fn scan_all(engine: &dyn Engine, partition: u32, bytes_max: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    loop {
        let after = entries.last().map(|(key, _)| key.clone());
        let page = engine.scan(partition, after.as_deref(), bytes_max).expect("scans");
        assert!(page.more <= !page.entries.is_empty(), "a page that promises more makes progress");
        let mut told = Vec::new();
        let mut tell = |key: &[u8], value: &[u8]| told.push((key.to_vec(), value.to_vec()));
        let rest = engine.scan_each(partition, after.as_deref(), bytes_max, &mut tell).expect("scans");
        assert_eq!(
            (&told, rest.more, rest.entries.len()),
            (&page.entries, page.more, 0),
            "scan_each passes the same entries"
        );
        entries.extend(page.entries);
        if !page.more {
            return entries;
        }
    }
}

#[test]
fn reads_the_last_put() {
    on_all(|engine| {
        assert_eq!(engine.get(1, b"key").unwrap(), None);
        engine.put(1, b"key", b"long first value").unwrap();
        engine.put(1, b"key", b"second").unwrap();
        engine.put(1, b"", b"value of the empty key").unwrap();
        engine.put(1, b"empty", b"").unwrap();
        assert_eq!(engine.get(1, b"key").unwrap().as_deref(), Some(&b"second"[..]));
        assert_eq!(engine.get(1, b"").unwrap().as_deref(), Some(&b"value of the empty key"[..]));
        assert_eq!(engine.get(1, b"empty").unwrap().as_deref(), Some(&b""[..]));
        assert_eq!(engine.get(2, b"key").unwrap(), None, "partitions are apart");
        let mut buffer = b"what was there before".to_vec();
        assert!(engine.get_into(1, b"key", &mut buffer).unwrap());
        assert_eq!(buffer, b"second");
        assert!(!engine.get_into(1, b"none", &mut buffer).unwrap());
        assert!(buffer.is_empty());
        engine.remove(1, b"key").unwrap();
        engine.remove(7, b"never there").unwrap();
        assert_eq!(engine.get(1, b"key").unwrap(), None);
        assert!(engine.approximate_keys() >= 2);
    });
}

#[test]
fn scans_in_pages() {
    on_all(|engine| {
        for number in (0..100u32).rev() {
            engine.put(5, format!("key-{number:03}").as_bytes(), &number.to_le_bytes()).unwrap();
        }
        engine.put(4, b"z", b"the partition before").unwrap();
        engine.put(6, b"", b"the partition after").unwrap();
        let all: Vec<_> =
            (0..100u32).map(|n| (format!("key-{n:03}").into_bytes(), n.to_le_bytes().to_vec())).collect();
        for bytes_max in [0, 1, 11, 12, 110, 1_099, 1_100, 1 << 20] {
            assert_eq!(scan_all(engine, 5, bytes_max), all, "pages of {bytes_max}");
        }
        // The lengths of entries vary, so that the room of a page cannot be predicted from earlier
        // entries.
        let put = |number: u8| engine.put(3, &[number], &vec![7; number as usize * 37 % 90]).unwrap();
        (0..100).for_each(put);
        assert!([1, 40, 300, 5_000].iter().all(|bytes_max| scan_all(engine, 3, *bytes_max).len() == 100));
        assert_eq!(engine.scan(5, None, 22).unwrap().entries.len(), 2, "a page ends when it is full");
        let last = engine.scan(5, Some(b"key-098"), 11).unwrap();
        assert_eq!((last.entries.len(), last.more), (1, false), "a full last page promises nothing");
        assert!(engine.scan(5, Some(b"key-099"), 100).unwrap().entries.is_empty());
        assert!(engine.scan(9, None, 100).unwrap().entries.is_empty());
        assert_eq!(engine.scan(5, Some(b"key-0505"), 1).unwrap().entries[0].0, b"key-051", "after no key");
    });
}

#[test]
fn clears_one_partition() {
    on_all(|engine| {
        for partition in [0, 6, 7, 8, u32::MAX] {
            for key in 0..50u8 {
                engine.put(partition, &[key], b"value").unwrap();
            }
        }
        for cleared in [7, u32::MAX] {
            engine.clear(cleared).unwrap();
            assert!(scan_all(engine, cleared, 1_000).is_empty());
            engine.put(cleared, b"new", b"life").unwrap();
            assert_eq!(scan_all(engine, cleared, 1_000).len(), 1);
        }
        for kept in [0, 6, 8] {
            assert_eq!(scan_all(engine, kept, 1_000).len(), 50);
        }
    });
}

#[test]
fn finishes_syncs_in_order() {
    on_all(|engine| {
        engine.put(0, b"key", b"value").unwrap();
        let first = engine.sync_begin().unwrap();
        let second = engine.sync_begin().unwrap();
        assert!(first <= second);
        engine.sync().unwrap();
        assert!(engine.synced().unwrap() >= second);
    });
}

#[test]
fn synced_state_is_found_again() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..5u32 {
        let mut engine = durable(directory.path());
        for key in 0..500u32 {
            let expected = (round > 0 && key % 5 != 0).then(|| (round - 1).to_le_bytes().repeat(25));
            assert_eq!(engine.get(3, &key.to_be_bytes()).unwrap(), expected, "key {key} in round {round}");
            engine.put(3, &key.to_be_bytes(), &round.to_le_bytes().repeat(25)).unwrap();
        }
        for key in (0..500u32).step_by(5) {
            engine.remove(3, &key.to_be_bytes()).unwrap();
        }
        engine.sync().unwrap();
        engine.put(3, b"not synced", b"value").unwrap();
    }
    let engine = durable(directory.path());
    assert_eq!(scan_all(&engine, 3, 1_000).len(), 400, "unsynced writes are left to the log");
}

#[test]
fn a_failed_sync_is_reported_and_can_be_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let (tables, elsewhere) = (directory.path().join("tables"), directory.path().join("elsewhere"));
    let mut engine = durable(directory.path());
    engine.put(0, b"key", b"value").unwrap();
    std::fs::rename(&tables, &elsewhere).unwrap();
    std::fs::write(&tables, "no directory").unwrap();
    assert!(matches!(engine.sync(), Err(StoreError::Engine { .. })));
    assert!(engine.synced().is_err());
    assert_eq!(engine.get(0, b"key").unwrap().as_deref(), Some(&b"value"[..]), "reads go on");
    std::fs::remove_file(&tables).unwrap();
    std::fs::rename(&elsewhere, &tables).unwrap();
    engine.sync().unwrap();
    drop(engine);
    assert_eq!(durable(directory.path()).get(0, b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_corrupt_value_is_an_error() {
    let mut engine = Checksummed::new(MemoryEngine::new());
    engine.put(2, b"key", b"value").unwrap();
    engine.put(2, b"other", b"value").unwrap();
    let stored = engine.inner_mut().get(2, b"key").unwrap().unwrap();
    let is_corrupt = |result: Result<(), StoreError>, key: &[u8]| matches!(result, Err(StoreError::Corrupt { partition: 2, key: found }) if found == key);
    for bit in 0..stored.len() * 8 {
        let mut flipped = stored.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        engine.inner_mut().put(2, b"key", &flipped).unwrap();
        assert!(is_corrupt(engine.get(2, b"key").map(drop), b"key"), "bit {bit}");
        let page = engine.scan(2, None, 1_000).unwrap();
        assert_eq!(page.corrupt, [b"key"], "bit {bit}");
        assert_eq!(page.entries, [(b"other".to_vec(), b"value".to_vec())], "bit {bit}");
        assert_eq!(page.last_key(), Some(&b"other"[..]));
    }
    for length in 0..stored.len() {
        engine.inner_mut().put(2, b"key", &stored[..length]).unwrap();
        assert!(is_corrupt(engine.get(2, b"key").map(drop), b"key"), "cut at {length}");
    }
    engine.inner_mut().put(2, b"other", &stored).unwrap();
    assert!(is_corrupt(engine.get(2, b"other").map(drop), b"other"), "a value under another key");
}

#[test]
fn a_flipped_bit_in_a_table_is_never_served() {
    let original = tempfile::tempdir().unwrap();
    let value = |key: u8| vec![key; 40];
    let mut engine = durable(original.path());
    for key in 0..8 {
        engine.put(0, &[key], &value(key)).unwrap();
    }
    engine.sync().unwrap();
    drop(engine);
    let table = std::fs::read_dir(original.path().join("tables")).unwrap().next().unwrap().unwrap().path();
    let bytes = std::fs::read(&table).unwrap();
    let last_value = bytes.windows(40).position(|window| window == value(7)).expect("is not compressed");
    let (mut refused, mut served, mut refused_scans) = (0, 0, 0);
    for at in 0..last_value + 40 {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(&table, flipped).unwrap();
        let engine = durable(original.path());
        for key in 0..8 {
            match engine.get(0, &[key]) {
                Ok(found) => {
                    assert_eq!(found, Some(value(key)), "byte {at}, key {key}");
                    served += 1;
                }
                Err(_) => refused += 1,
            }
        }
        // A scan that has lost a key must report it.
        match engine.scan(0, None, 10_000) {
            Ok(page) => {
                assert!(page.entries.iter().all(|(key, found)| *found == value(key[0])), "byte {at}");
                assert_eq!(page.entries.len() + page.corrupt.len(), 8, "byte {at}");
            }
            Err(error) => {
                assert!(error.to_string().contains("remove the data directory of this node"), "{error}");
                refused_scans += 1;
            }
        }
    }
    assert!(refused_scans > 0);
    std::fs::write(&table, &bytes).unwrap();
    assert_eq!(durable(original.path()).get(0, &[7]).unwrap(), Some(value(7)));
    assert!(refused > 0, "{refused} refused, {served} served");
}

#[derive(Clone, Debug)]
enum Step {
    Put(u32, u8, u16),
    Remove(u32, u8),
    Clear(u32),
    SyncBegin,
    Sync,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => (0..3u32, any::<u8>(), 0..2_000u16).prop_map(|(p, k, v)| Step::Put(p, k, v)),
        6 => (0..3u32, any::<u8>()).prop_map(|(p, k)| Step::Remove(p, k)),
        1 => (0..3u32).prop_map(Step::Clear),
        1 => Just(Step::SyncBegin),
        1 => Just(Step::Sync),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_durable_engine_agrees_with_a_map(steps in steps()) {
        let directory = tempfile::tempdir().unwrap();
        let mut model = BTreeMap::new();
        let mut engine = Some(durable(directory.path()));
        for step in steps {
            let engine_now = engine.as_mut().unwrap();
            match step {
                Step::Put(partition, key, length) => {
                    let value = vec![key; usize::from(length)];
                    engine_now.put(partition, &[key], &value).unwrap();
                    prop_assert_eq!(engine_now.get(partition, &[key]).unwrap(), Some(value.clone()));
                    model.insert((partition, vec![key]), value);
                }
                Step::Remove(partition, key) => {
                    engine_now.remove(partition, &[key]).unwrap();
                    model.remove(&(partition, vec![key]));
                }
                Step::Clear(partition) => {
                    engine_now.clear(partition).unwrap();
                    model.retain(|(of, _), _| *of != partition);
                }
                Step::SyncBegin => drop(engine_now.sync_begin().unwrap()),
                Step::Sync => engine_now.sync().unwrap(),
                Step::Reopen => {
                    engine_now.sync().unwrap();
                    drop(engine.take());
                    engine = Some(durable(directory.path()));
                }
            }
        }
        let engine = engine.unwrap();
        for (partition, key) in (0..3).flat_map(|partition| (0..=u8::MAX).map(move |key| (partition, vec![key]))) {
            let expected = model.get(&(partition, key.clone())).cloned();
            prop_assert_eq!(engine.get(partition, &key).unwrap(), expected);
        }
        for partition in 0..3 {
            let of_model = model.iter().filter(|((of, _), _)| *of == partition);
            let expected: Vec<_> = of_model.map(|((_, key), value)| (key.clone(), value.clone())).collect();
            prop_assert_eq!(scan_all(&engine, partition, 3_000), expected);
        }
    }
}

#[test]
fn reads_continue_while_tables_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = durable(directory.path());
    engine.put(0, b"kept", b"value").unwrap();
    engine.sync().unwrap();
    let mut last = engine.sync_begin().unwrap();
    for round in 0..40u32 {
        // Two syncs in progress: versions of the tree change while the reader reads.
        engine.put(0, &round.to_be_bytes(), b"value").unwrap();
        let next = engine.sync_begin().unwrap();
        while engine.synced().unwrap() < last {
            assert_eq!(engine.get(0, b"kept").unwrap().as_deref(), Some(b"value".as_slice()));
            assert!(scan_all(&engine, 0, 1_000).len() > round as usize);
        }
        last = next;
    }
}

#[test]
fn pages_cover_memory_and_disk() {
    const KEYS: u32 = 5_000;
    let directory = tempfile::tempdir().unwrap();
    let mut engine = DurableEngine::open(directory.path(), DurableOptions::default()).unwrap();
    let mut model = BTreeMap::new();
    // Entries are in the tree, in buffers handed over, and in the fresh buffer; later ones hide
    // earlier ones.
    for round in 0..4u32 {
        for step in 0..KEYS >> round {
            let key = (step.wrapping_mul(2_654_435_761) % KEYS).to_be_bytes().to_vec();
            if (step + round) % 9 == 0 {
                engine.remove(2, &key).unwrap();
                model.remove(&key);
            } else {
                let value = [round, step].map(u32::to_be_bytes).concat();
                engine.put(2, &key, &value).unwrap();
                model.insert(key, value);
            }
        }
        match round {
            0 => engine.sync().unwrap(),
            3 => {}
            _ => drop(engine.sync_begin().unwrap()),
        }
    }
    assert_eq!(scan_all(&engine, 2, 5_000), model.into_iter().collect::<Vec<_>>());
    engine.clear(2).unwrap();
    assert!(scan_all(&engine, 2, 5_000).is_empty());
}

#[test]
fn removals_are_reclaimed_without_other_writes() {
    const VALUES: u32 = 4_000;
    let directory = tempfile::tempdir().expect("a directory");
    let mut engine = DurableEngine::open(directory.path(), DurableOptions::default()).expect("opens");
    let key = |number: u32| format!("key-{number:05}").into_bytes();
    for number in 0..VALUES {
        // Values that do not compress.
        let value: Vec<u8> =
            (0..500u32).map(|byte| (number.wrapping_mul(2_654_435_761).rotate_left(byte)) as u8).collect();
        engine.put(1, &key(number), &value).unwrap();
    }
    engine.sync().unwrap();
    let full = engine.disk_bytes();
    assert!(full > 100 * u64::from(VALUES), "{full} bytes");
    for number in 0..VALUES - 10 {
        engine.remove(1, &key(number)).unwrap();
    }
    engine.sync().unwrap();
    // The engine's thread merges after the sync.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let on_disk = || {
        let tables = std::fs::read_dir(directory.path().join("tables")).expect("tables");
        tables.flatten().filter_map(|table| table.metadata().ok()).map(|found| found.len()).sum::<u64>()
    };
    while on_disk() > full / 10 {
        assert!(std::time::Instant::now() < deadline, "{} of {full} bytes", on_disk());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(scan_all(&engine, 1, 1 << 20).len(), 10, "live keys stay");
    drop(engine);
    let engine = DurableEngine::open(directory.path(), DurableOptions::default()).expect("opens again");
    assert_eq!(scan_all(&engine, 1, 1 << 20).len(), 10);
}

/// The numbers of the table files, in ascending order.
fn tables(directory: &Path) -> Vec<u64> {
    let files = std::fs::read_dir(directory.join("tables")).unwrap();
    let mut numbers: Vec<u64> =
        files.map(|file| file.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

/// Puts a file where the table with this number would be written, so that writing it fails. It
/// stands for a table that was partly written to a full disk.
fn begin_table(directory: &Path, number: u64) {
    std::fs::write(directory.join("tables").join(number.to_string()), [1; 1_000]).unwrap();
}

#[test]
fn failed_step_leaves_no_table_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = DurableEngine::open(directory.path(), DurableOptions::default()).unwrap();
    engine.put(1, b"key", b"value").unwrap();
    engine.sync().unwrap();
    let [first] = tables(directory.path())[..] else { panic!("one table") };
    begin_table(directory.path(), first + 1);
    engine.put(1, b"other", b"value").unwrap();
    assert!(matches!(engine.sync(), Err(StoreError::Engine { .. })));
    engine.sync().unwrap();
    assert_eq!(tables(directory.path()), [first, first + 2], "the partial table was removed");
    assert_eq!(scan_all(&engine, 1, 1_000).len(), 2);
}

#[test]
fn failed_merge_leaves_no_table_file() {
    const KEYS: u32 = 2_000;
    let directory = tempfile::tempdir().unwrap();
    let mut engine = DurableEngine::open(directory.path(), DurableOptions::default()).unwrap();
    for number in 0..KEYS {
        engine.put(1, &number.to_be_bytes(), b"value").unwrap();
    }
    engine.sync().unwrap();
    let [first] = tables(directory.path())[..] else { panic!("one table") };
    for number in 1..KEYS {
        engine.remove(1, &number.to_be_bytes()).unwrap();
    }
    // The removals become the next table, and the merge that they trigger would write the one after
    // it.
    begin_table(directory.path(), first + 2);
    engine.sync().unwrap();
    // The next sync waits for the merge.
    engine.sync().unwrap();
    assert!(!tables(directory.path()).contains(&(first + 2)), "{:?}", tables(directory.path()));
    assert_eq!(scan_all(&engine, 1, 1_000).len(), 1);
    drop(engine);
    let engine = DurableEngine::open(directory.path(), DurableOptions::default()).unwrap();
    assert_eq!(scan_all(&engine, 1, 1_000).len(), 1);
}

#[test]
fn memory_engine_writes_nothing_to_disk() {
    let mut engine = MemoryEngine::new();
    engine.put(1, b"k", &[7; 1000]).unwrap();
    assert_eq!((engine.disk_bytes(), engine.approximate_keys()), (0, 1));
    let directory = tempfile::tempdir().unwrap();
    let mut engine = durable(directory.path());
    engine.put(1, b"k", &[7; 1000]).unwrap();
    engine.sync().unwrap();
    assert!(engine.disk_bytes() > 0);
}
