//! Backups of objects with their chunks, while objects are replaced and garbage is collected,
//! restored into a cluster of another shape; also invalid files.

use crate::cluster::{Up, nicekv, outcome};
use crate::large::text;
use crate::refusals::one_line;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn succeeds(here: &Path, words: &[&str]) -> String {
    let (code, out, error) = outcome(nicekv(here, words));
    assert_eq!(code, Some(0), "{words:?}: {error}");
    out
}

fn put(here: &Path, name: &str, content: &str, further: &[&str]) {
    let file = format!("in-{name}");
    std::fs::write(here.join(&file), content).unwrap();
    succeeds(here, &[&["object", "put", name, &file], further].concat());
}

/// Names, contents and options of the objects that must be restored. Two have the same chunks, and
/// one has a manifest so long that it is a large value.
fn objects() -> Vec<(&'static str, String, &'static [&'static str])> {
    let long = text(3_000_000, 3);
    vec![
        ("empty", String::new(), &[]),
        ("small", text(1, 1), &[]),
        ("long", long.clone(), &[]),
        ("same", long.clone(), &[]),
        ("begins-alike", long[..1 << 20].to_owned() + "other", &[]),
        ("of-many", text(300_000, 4), &["--chunk-kib", "1"]),
    ]
}

/// Distinct chunks. Long: 3, begins-alike: 1 more, of-many: 293, small: 1.
const CHUNKS: u64 = 3 + 1 + 293 + 1;
/// References to chunks, including repeated ones.
const NEEDED: u64 = CHUNKS + 3 + 1;

fn all_come_back(here: &Path) {
    for (name, content, _) in objects() {
        succeeds(here, &["object", "get", name, "out"]);
        assert!(std::fs::read_to_string(here.join("out")).unwrap() == content, "{name} is something else");
    }
}

/// The number before these words in the output.
fn number(told: &str, before: &str) -> u64 {
    let words = told.split_once(before).unwrap_or_else(|| panic!("{before}: {told}")).0;
    words.rsplit(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{before}: {told}"))
}

/// Runs `act` while objects are replaced and deleted and garbage is collected.
fn while_objects_move(here: &Path, act: impl FnOnce() -> String) -> String {
    let (stopped, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stopped.load(Ordering::Relaxed) {
                succeeds(here, &["object", "gc", "--now"]);
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            for seed in 100.. {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let name = format!("moving-{}", seed % 7);
                put(here, &name, &text(1_500_000, seed), &[]);
                if seed % 3 == 0 {
                    succeeds(here, &["object", "delete", &name]);
                }
            }
        });
        // After the first round there is garbage.
        while rounds.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let told = act();
        stopped.store(true, Ordering::Relaxed);
        told
    })
}

#[test]
fn objects_are_backed_up_during_moves_and_restored_during_collection() {
    if !nicekv_testkit::runs_slow("objects_are_backed_up_during_moves_and_restored_during_collection") {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let here = scratch.path();
    let up = Up::start(here, &["--data-dir", "data", "--keyspace", "objects=chunks=multicast"]);
    assert_eq!(up.redis().call(&["SET", "color", "blue"]), "+OK");
    for (name, content, further) in objects() {
        put(here, name, &content, further);
    }
    let told = succeeds(here, &["backup", "quiet"]);
    assert_eq!(number(&told, " chunks of "), CHUNKS, "each distinct chunk once");
    let told = while_objects_move(here, || succeeds(here, &["backup", "file"]));
    assert!(number(&told, " chunks of ") >= CHUNKS, "{told}");
    up.kill();
    std::fs::remove_dir_all(here.join("data")).unwrap();
    for file in ["quiet", "file"] {
        assert!(succeeds(here, &["restore", file, "--dry-run"]).starts_with("valid: "));
    }
    assert_eq!(std::fs::read_dir(here).unwrap().filter(is_left_over).count(), 0);

    let shape = ["--engine", "memory", "--nodes", "4", "--keyspace", "objects=chunks=unicast,replicas=2"];
    let up = Up::start(here, &shape);
    let told = succeeds(here, &["restore", "quiet"]);
    assert_eq!(number(&told, " keys; "), objects().len() as u64 + 1, "{told}");
    // At most the repeated chunks exist already; if two objects with the same chunk are put
    // concurrently, it is sent twice.
    assert!(number(&told, " chunks already existed") <= NEEDED - CHUNKS, "{told}");
    all_come_back(here);
    assert_eq!(up.redis().call(&["GET", "color"]), "$blue");
    let told = succeeds(here, &["restore", "quiet", "--merge"]);
    nearly_all_are_there(&told);
    let told = while_objects_move(here, || succeeds(here, &["restore", "file", "--merge"]));
    nearly_all_are_there(&told);
    // Chunks that an object references are kept, however old they are.
    succeeds(here, &["object", "gc", "--now"]);
    all_come_back(here);
    assert_eq!(up.interrupt(), Some(0));
}

/// On a busy machine, a target that has a chunk may answer late, and another one then gets a copy,
/// too.
fn nearly_all_are_there(told: &str) {
    assert!(number(told, " chunks already existed") * 10 >= NEEDED * 9, "{told}");
}

fn is_left_over(entry: &std::io::Result<std::fs::DirEntry>) -> bool {
    let name = entry.as_ref().unwrap().file_name().into_string().unwrap();
    name.ends_with(".nicekv-new")
}

#[test]
fn damaged_object_backup_changes_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let here = scratch.path();
    let up = Up::start(here, &["--engine", "memory", "--keyspace", "objects=chunks=multicast"]);
    let content = text(2_500_000, 1);
    put(here, "name", &content, &[]);
    succeeds(here, &["backup", "file"]);
    let whole = std::fs::read(here.join("file")).unwrap();
    assert!(whole.len() > 2_500_000);
    succeeds(here, &["object", "delete", "name"]);
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for (bytes, why) in [(&flipped[..], "damaged"), (&whole[..whole.len() / 2], "the file is truncated")] {
        std::fs::write(here.join("file"), bytes).unwrap();
        one_line(nicekv(here, &["restore", "file", "--merge"]), why);
        assert_eq!(succeeds(here, &["object", "list"]), "");
    }
    std::fs::write(here.join("file"), whole).unwrap();
    succeeds(here, &["restore", "file", "--merge"]);
    assert!(succeeds(here, &["object", "get", "name"]) == content);
    assert_eq!(up.interrupt(), Some(0));
    let _up = Up::start(here, &["--engine", "memory", "--keyspace", "objects=replicas=2"]);
    one_line(nicekv(here, &["restore", "file"]), "holds objects in the backup but values in this cluster");
}
