//! Keys of the maximum length, in the engines and after a restart.

use nicekv_proto::limits::KEY_BYTES_MAX;
use nicekv_store::{DurableEngine, Engine, MemoryEngine, engine::DurableOptions};
use std::path::Path;

const PARTITION: u32 = 7;
const KEYS: u32 = 60;

fn durable(directory: &Path) -> DurableEngine {
    // A small buffer, so that some keys are in tables and some are not.
    let options =
        DurableOptions { memtable_bytes_max: 16 << 10, cache_bytes: 1 << 20, ..DurableOptions::default() };
    DurableEngine::open(directory, options).expect("opens")
}

/// Keys that differ only in their ends; half of them are a byte shorter.
fn key(number: u32) -> Vec<u8> {
    let mut key = vec![b'k'; KEY_BYTES_MAX - 4];
    key.extend(number.to_be_bytes());
    key.truncate(KEY_BYTES_MAX - number as usize % 2);
    key
}

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; 256 + number as usize]
}

fn fill(engine: &mut dyn Engine) {
    for number in 0..KEYS {
        engine.put(PARTITION, &key(number << 8), &value(number)).unwrap();
    }
    for number in (0..KEYS).step_by(3) {
        engine.remove(PARTITION, &key(number << 8)).unwrap();
    }
}

/// Checks that all keys are found one by one, and in pages of any size.
fn check(engine: &dyn Engine) {
    let there: Vec<_> = (0..KEYS).filter(|number| number % 3 > 0).collect();
    for number in 0..KEYS {
        let expected = there.contains(&number).then(|| value(number));
        assert_eq!(engine.get(PARTITION, &key(number << 8)).unwrap(), expected, "{number}");
    }
    let expected: Vec<_> = there.iter().map(|number| (key(*number << 8), value(*number))).collect();
    for bytes_max in [1, 3_000, 1 << 20] {
        let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        loop {
            let after = found.last().map(|(key, _)| key.clone());
            let page = engine.scan(PARTITION, after.as_deref(), bytes_max).unwrap();
            found.extend(page.entries);
            if !page.more {
                break;
            }
        }
        assert_eq!(found, expected, "{bytes_max}");
    }
}

#[test]
fn longest_keys_survive_a_restart() {
    let mut memory = MemoryEngine::new();
    fill(&mut memory);
    check(&memory);
    let directory = tempfile::tempdir().unwrap();
    let mut engine = durable(directory.path());
    fill(&mut engine);
    check(&engine);
    engine.sync().unwrap();
    drop(engine);
    check(&durable(directory.path()));
}
