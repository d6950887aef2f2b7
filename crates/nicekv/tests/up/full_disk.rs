//! Disks become full while large values are put (docs/FAULTS.md row 9).

use crate::cluster::Up;
use crate::large::text;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the nodes set aside, and room for some values at each.
const DISK_MIB: usize = 420;
const WRITERS: usize = 8;
/// Each goes on until so many of its puts were refused.
const REFUSALS: usize = 12;
const PUTS_MAX: usize = 400;
const VALUE_BYTES: usize = 300_000;

/// A small disk in memory.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// None without root.
    fn at(path: &Path) -> Option<Self> {
        std::fs::create_dir(path).unwrap();
        let size = format!("size={DISK_MIB}m");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path).output().ok()?;
        mounted.status.success().then(|| Self(path.into()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // What may still be open goes with the process.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

#[test]
fn row_09_a_put_that_is_refused_for_a_full_disk_is_not_there_afterwards() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::at(&scratch.path().join("disk")) else {
        eprintln!("NOT RUN (needs root): full disks under large values");
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
    assert!(there.is_empty(), "of {} refused puts {} are there: {there:?}", refused.len(), there.len());
    drop(up);
}
