//! An engine whose files are damaged: it opens, or says which file is damaged and what to do.

use nicekv_store::engine::DurableOptions;
use nicekv_store::{DurableEngine, Engine};
use std::fs;
use std::path::{Path, PathBuf};

const KEYS: u32 = 200;
const ROUNDS: u8 = 3;

fn open(directory: &Path) -> nicekv_store::Result<DurableEngine> {
    DurableEngine::open(
        directory,
        DurableOptions { memtable_bytes_max: 4096, cache_bytes: 1 << 20, ..DurableOptions::default() },
    )
}

/// An engine that has tables, and has had more than one version.
fn fill(directory: &Path) {
    let mut engine = open(directory).unwrap();
    for round in 0..ROUNDS {
        for key in 0..KEYS {
            engine.put(1, &key.to_be_bytes(), &[round; 50]).unwrap();
        }
        engine.sync().unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_damaged_file_is_named_with_what_to_do() {
    let scratch = tempfile::tempdir().unwrap();
    let whole = scratch.path().join("whole");
    fill(&whole);
    let all = files(&whole);
    assert!(all.len() >= 3, "{all:?}");
    for file in &all {
        let name = file.strip_prefix(&whole).unwrap();
        for damage in ["empty", "half", "garbage", "missing"] {
            let damaged = scratch.path().join("damaged");
            let _ = fs::remove_dir_all(&damaged);
            copy(&whole, &damaged);
            let path = damaged.join(name);
            let bytes = fs::read(&path).unwrap();
            match damage {
                "empty" => fs::write(&path, b"").unwrap(),
                "half" => fs::write(&path, &bytes[..bytes.len() / 2]).unwrap(),
                "garbage" => fs::write(&path, vec![0xa5; bytes.len()]).unwrap(),
                _ => fs::remove_file(&path).unwrap(),
            }
            let said = match open(&damaged) {
                // The damaged bytes are not needed: they belong to a past version, or to a part of
                // a file that is not read.
                Ok(engine) => {
                    for key in 0..KEYS {
                        let value = engine.get(1, &key.to_be_bytes()).unwrap();
                        assert_eq!(value, Some(vec![ROUNDS - 1; 50]), "{damage} {name:?}: key {key}");
                    }
                    continue;
                }
                Err(error) => error.to_string(),
            };
            let in_directory = said.starts_with(&damaged.display().to_string());
            let is_current = name == Path::new("current");
            let is_named =
                if is_current { said.starts_with(&path.display().to_string()) } else { in_directory };
            assert!(is_named && said.contains("is damaged"), "{damage} {name:?}: {said}");
            assert!(said.contains("remove the data directory of this node"), "{damage} {name:?}: {said}");
        }
    }
}
