//! Disks that become full while values are put (docs/FAULTS.md row 9).

use crate::cluster::{Redis, Up, nicekv, outcome};
use crate::large::text;
use nicekv_proto::placement::key_digest;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Room for the reserves of the nodes, and for some values on each.
const DISK_MIB: usize = 240;
const WRITERS: usize = 8;
/// Each writer continues until this many of its puts were refused.
const REFUSALS: usize = 12;
const PUTS_MAX: usize = 400;
const VALUE_BYTES: usize = 300_000;

/// A small file system in memory.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` without root.
    fn at(path: &Path, mib: usize) -> Option<Self> {
        std::fs::create_dir(path).unwrap();
        let size = format!("size={mib}m");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path).output().ok()?;
        mounted.status.success().then(|| Self(path.into()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy unmount, because the process may still have files open.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

#[test]
fn row_09_a_put_refused_for_a_full_disk_is_not_stored() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::at(&scratch.path().join("disk"), DISK_MIB) else {
        nicekv_testkit::not_run("root", "full disks under large values");
        return;
    };
    let up = Up::start(scratch.path(), &["--data-dir", "disk/data"]);
    let value = text(VALUE_BYTES, 11);
    let refused: Vec<String> = std::thread::scope(|scope| {
        let write = |writer: usize| {
            let (mut redis, value) = (up.redis(), &value);
            move || {
                let mut refused = Vec::new();
                for number in 0..PUTS_MAX {
                    let key = format!("{writer}:{number}");
                    let reply = redis.call(&["SET", &key, value]);
                    if reply.contains("nothing was stored") {
                        refused.push(key);
                    } else {
                        assert!(reply == "+OK" || reply.contains("outcome unknown"), "{key}: {reply}");
                    }
                    if refused.len() == REFUSALS {
                        break;
                    }
                }
                refused
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(write(writer))).collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    assert!(refused.len() >= WRITERS, "{} refused: the disk is too large", refused.len());
    let mut redis = up.redis();
    let there: Vec<&String> = refused.iter().filter(|key| redis.call(&["EXISTS", key]) != ":0").collect();
    assert!(there.is_empty(), "of {} refused puts, {} were stored: {there:?}", refused.len(), there.len());
    drop(up);
}

/// Text of `parts` times 32 bytes that does not compress. Values of few parts are stored in the
/// engine's tables, longer ones in chunks.
fn incompressible(seed: usize, parts: usize) -> String {
    (0..parts)
        .map(|at| format!("{:032x}", u128::from_be_bytes(key_digest(format!("{seed} {at}").as_bytes()).0)))
        .collect()
}

const FULL: &str = "disk is full";

/// Puts until no put was accepted for the time `quiet`. Returns the stored keys.
fn fill(redis: &mut Redis, quiet: Duration, parts: usize) -> Vec<String> {
    let (mut stored, mut last) = (Vec::new(), Instant::now());
    for number in 0.. {
        let key = format!("fill-{number}");
        let reply = redis.call(&["SET", &key, &incompressible(number, parts)]);
        if reply == "+OK" {
            stored.push(key);
            last = Instant::now();
        } else {
            assert!(reply.contains(FULL), "{reply}");
            if last.elapsed() > quiet {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    stored
}

#[test]
fn row_09_deletes_on_a_full_disk_that_three_nodes_share_make_room_for_puts() {
    deletes_make_room(160, 300, 1_000);
}

#[test]
fn row_09_deletes_of_large_values_make_room_for_puts() {
    if !nicekv_testkit::runs_slow("row_09_deletes_of_large_values_make_room_for_puts") {
        return;
    }
    deletes_make_room(240, 3_200, 100);
}

/// Fills a disk with values of `parts` times 32 bytes, of which at least `least` must fit; then
/// deletes half of them, and puts again.
fn deletes_make_room(mib: usize, parts: usize, least: usize) {
    /// How long it may take until puts succeed again; a few seconds on an idle machine.
    const AGAIN: Duration = Duration::from_secs(30);
    let scratch = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::at(&scratch.path().join("disk"), mib) else {
        nicekv_testkit::not_run("root", "deletes on a full disk that three nodes share");
        return;
    };
    let up = Up::start(scratch.path(), &["--data-dir", "disk/data"]);
    let mut redis = up.redis();
    let stored = fill(&mut redis, Duration::from_secs(3), parts);
    assert!(stored.len() > least, "{} fit on the disk", stored.len());
    let (_, status, _) = outcome(nicekv(scratch.path(), &["status", "--endpoint", &up.endpoint]));
    assert!(status.contains("free space on the disk or delete keys"), "{status}");
    for key in stored.iter().step_by(2) {
        assert_eq!(redis.call(&["DEL", key]), ":1", "deletes still work");
    }
    let deleted = Instant::now();
    // A quarter of the deleted keys, so that more than one lucky put has to succeed.
    let (mut again, wanted) = (0, stored.len() / 8);
    while again < wanted {
        let reply = redis.call(&["SET", &format!("again-{again}"), &incompressible(again, parts)]);
        assert!(reply == "+OK" || reply.contains(FULL), "{reply}");
        again += usize::from(reply == "+OK");
        assert!(deleted.elapsed() < AGAIN, "{again} of {wanted} puts after {AGAIN:?}: {reply}");
        if reply != "+OK" {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    for key in stored.iter().skip(1).step_by(20) {
        let number: usize = key.strip_prefix("fill-").unwrap().parse().unwrap();
        assert!(redis.call(&["GET", key]) == format!("${}", incompressible(number, parts)), "{key}");
    }
    drop(up);
}

#[test]
fn disk_too_small_for_the_reserves_is_reported_at_start() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::at(&scratch.path().join("disk"), 48) else {
        let test = "disk_too_small_for_the_reserves_is_reported_at_start";
        nicekv_testkit::not_run("root", test);
        return;
    };
    let up = Up::start(scratch.path(), &["--data-dir", "disk/data", "--reserve-mib", "20"]);
    let said = up.said.join("\n");
    assert!(said.contains("each of 3 nodes sets 20 MiB aside") && said.contains("75 MiB in all"), "{said}");
    let reply = up.redis().call(&["SET", "color", "blue"]);
    assert!(reply.contains(FULL) && reply.contains("free space on the disk or delete keys"), "{reply}");
    let (_, status, _) = outcome(nicekv(scratch.path(), &["status", "--endpoint", &up.endpoint]));
    let is_named = |line: &str| line.contains("the disk of node node-") && line.contains("is full");
    assert!(status.lines().any(is_named), "{status}");
    up.kill();
    let up = Up::start(scratch.path(), &["--data-dir", "disk/data"]);
    assert!(!up.said.join("\n").contains("warning"), "{:?}", up.said);
    assert_eq!(up.redis().call(&["SET", "color", "blue"]), "+OK");
}
