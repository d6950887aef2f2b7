//! Row 9 of docs/FAULTS.md: full disks.

use super::*;
use nicekv_store::{Forgetful, RealFiles};

#[test]
fn row_09_a_full_disk_refuses_puts_serves_gets_and_recovers() {
    let options = StorageOptions {
        segment_bytes_max: 8 << 10,
        engine_sync_bytes: 6 << 10,
        reserve_bytes: 16 << 10,
        ..StorageOptions::DEFAULT
    };
    let directory = tempfile::tempdir().unwrap();
    let disk = Forgetful::new(64);
    let machine = Machine::new(Arc::new(disk.clone()), directory.path(), options, 1);
    let mut cluster = Cluster::lone(&machine, 1);
    put_all(&mut cluster, 0..20);
    disk.set_capacity(Some(disk.used()));
    let mut statuses = Vec::new();
    for number in 20..30 {
        statuses.push(cluster.put(&key(number), &value(number)).unwrap());
    }
    assert!(statuses.iter().all(Option::is_some), "every put is answered: {statuses:?}");
    assert_eq!(statuses.last(), Some(&Some(Status::DiskFull)));
    for number in 0..20 {
        assert_eq!(cluster.get(0, &key(number)), Some(Some(value(number))));
    }
    disk.set_capacity(None);
    let until_ns = now().after(Duration::from_secs(20));
    while cluster.put(&key(30), &value(30)).unwrap() == Some(Status::DiskFull) {
        assert!(now().boot_ns < until_ns, "puts are still refused after space was freed");
    }
    put_all(&mut cluster, 31..60);
    drop(cluster);
    let mut cluster = Cluster::lone(&machine, 2);
    for (number, status) in (20..30).zip(statuses) {
        let expected = (status == Some(Status::Ok)).then(|| value(number));
        assert_eq!(cluster.get(0, &key(number)), Some(expected), "put {number}: {status:?}");
    }
    assert_eq!(cluster.get(0, &key(59)), Some(Some(value(59))));
}

/// A small tmpfs, unmounted when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts it; `None` without root privileges.
    fn mount(size: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "nicekv-test"])
            .arg(directory.path())
            .output();
        mount.is_ok_and(|output| output.status.success()).then(|| Self(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} stays mounted", self.0.path().display());
    }
}

#[test]
fn row_09_a_real_disk_fills_up_under_log_and_engine() {
    const PUTS_MAX: u32 = 20_000;
    let Some(disk) = SmallDisk::mount("16m") else {
        nicekv_testkit::not_run("root", "row_09_a_real_disk_fills_up_under_log_and_engine");
        return;
    };
    let options = StorageOptions {
        segment_bytes_max: 512 << 10,
        engine_sync_bytes: 512 << 10,
        reserve_bytes: 4 << 20,
        ..StorageOptions::DEFAULT
    };
    let other = disk.0.path().join("other-file");
    std::fs::write(&other, vec![1; 5 << 20]).unwrap();
    let machine = Machine::new(Arc::new(RealFiles), &disk.0.path().join("node"), options, 1);
    let mut cluster = Cluster::lone(&machine, 1);
    // Values are distinct and incompressible.
    let value = |number: u32| -> Vec<u8> {
        (0..62).flat_map(|at| key_digest(format!("{number} {at}").as_bytes()).0).collect()
    };
    let mut stored = 0;
    let refused = loop {
        match cluster.put(&key(stored), &value(stored)).unwrap() {
            Some(Status::Ok) => stored += 1,
            other => break other,
        }
        assert!(stored < PUTS_MAX, "the disk of 16 MB never fills up: {stored} kB stored");
    };
    assert_eq!(refused, Some(Status::DiskFull));
    for number in (0..stored).step_by(97) {
        assert_eq!(cluster.get(0, &key(number)), Some(Some(value(number))), "put {number} of {stored}");
    }
    for number in 0..100 {
        let deleted = cluster.update(&key(number), Operation::Delete).unwrap();
        assert_eq!(deleted, Some(Status::Ok), "deletes are accepted on a full disk");
    }
    std::fs::remove_file(other).unwrap();
    let until_ns = now().after(Duration::from_secs(20));
    while cluster.put(&key(0), &value(0)).unwrap() == Some(Status::DiskFull) {
        assert!(now().boot_ns < until_ns, "puts are still refused after space was freed");
    }
    drop(cluster);
    let mut cluster = Cluster::lone(&machine, 2);
    for number in 100..stored {
        assert_eq!(cluster.get(0, &key(number)), Some(Some(value(number))), "put {number} of {stored}");
    }
    assert_eq!(cluster.get(0, &key(1)), Some(None));
}
