//! The owner of a data directory is checked (docs/FAULTS.md row 34).

use nicekv_store::{DataDirectory, Expected, Files, Forgetful, RealFiles, StoreError, files::PowerLoss};
use std::{fs, path::Path, sync::Arc};

const EXPECTED: Expected<'static> =
    Expected { cluster_id: Some(0xc0ffee), owner: "node-0", cluster_id_if_new: 1, storage_id_if_new: 0xbeef };

fn open(path: &Path, expected: Expected<'_>) -> Result<DataDirectory, StoreError> {
    let files: Arc<dyn Files> = Arc::new(RealFiles);
    DataDirectory::open(&files, path, expected)
}

/// Opening fails with one line that contains all of `parts`.
fn assert_refused(path: &Path, expected: Expected<'_>, parts: &[&str]) -> StoreError {
    let Err(error) = open(path, expected) else { panic!("opened, expected {parts:?}") };
    let line = error.to_string();
    assert!(!line.contains('\n') && parts.iter().all(|part| line.contains(part)), "{line}");
    error
}

#[test]
fn is_created_and_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b");
    let created = open(&path, EXPECTED).unwrap();
    assert!(created.is_new());
    assert_eq!((created.cluster_id(), created.storage_id()), (0xc0ffee, 0xbeef));
    drop(created);
    let other_ids = Expected { cluster_id: None, cluster_id_if_new: 7, storage_id_if_new: 8, ..EXPECTED };
    let found = open(&path, other_ids).unwrap();
    assert!(!found.is_new());
    assert_eq!((found.cluster_id(), found.storage_id()), (0xc0ffee, 0xbeef));
    let new = open(&directory.path().join("new"), other_ids).unwrap();
    assert_eq!((new.cluster_id(), new.storage_id()), (7, 8));
}

#[test]
fn row_34_says_why_it_refuses() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let held = open(&path, EXPECTED).unwrap();
    let error = assert_refused(&path, EXPECTED, &["data", "in use by another process"]);
    assert!(matches!(error, StoreError::InUse { .. }));
    drop(held);

    let other = Expected { cluster_id: Some(5), ..EXPECTED };
    let error = assert_refused(&path, other, &["data", "belongs to cluster", "c0ffee", "not to"]);
    assert!(matches!(error, StoreError::OtherCluster { found: 0xc0ffee, expected: 5, .. }));

    let error = assert_refused(&path, Expected { owner: "metadata", ..EXPECTED }, &["node-0", "metadata"]);
    assert!(matches!(error, StoreError::OtherOwner { .. }));

    let format = path.join("nicekv-format");
    let text = fs::read_to_string(&format).unwrap();
    fs::write(&format, text.replace("format 3", "format 4").replace("cluster", "realm")).unwrap();
    let error = assert_refused(&path, EXPECTED, &["nicekv-format", "format 4", "use a newer program"]);
    assert!(matches!(error, StoreError::NewerFormat { found: 4, known: 3, .. }));

    fs::write(&format, text.replace("format 3", "format 1")).unwrap();
    let error =
        assert_refused(&path, EXPECTED, &["nicekv-format", "format 1", "use the release that wrote it"]);
    assert!(matches!(error, StoreError::OlderFormat { found: 1, known: 3, .. }));

    fs::remove_file(&format).unwrap();
    fs::write(path.join("log-1"), "data").unwrap();
    let error = assert_refused(&path, EXPECTED, &["is not a data directory", "log-1"]);
    assert!(matches!(error, StoreError::NotADataDirectory { .. }));
    assert!(!format.exists());

    let file = directory.path().join("file");
    fs::write(&file, "a file").unwrap();
    let error = assert_refused(&file.join("data"), EXPECTED, &["file/data is not writable"]);
    assert!(matches!(error, StoreError::NotWritable { .. }));
}

#[test]
fn row_34_every_flipped_bit_of_the_format_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path(), EXPECTED).unwrap());
    let format = directory.path().join("nicekv-format");
    let bytes = fs::read(&format).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(&format, flipped).unwrap();
        assert!(open(directory.path(), EXPECTED).is_err(), "bit {bit}");
    }
}

#[test]
fn survives_a_power_loss() {
    let disk = Forgetful::new(64);
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    let path = Path::new("/data");
    drop(DataDirectory::open(&files, path, EXPECTED).unwrap());
    disk.power_loss(PowerLoss::DropAll);
    assert!(!DataDirectory::open(&files, path, EXPECTED).unwrap().is_new());
}

#[test]
fn power_loss_during_creation_leaves_nothing_partial() {
    for errno in [5, 28] {
        let disk = Forgetful::new(64);
        let files: Arc<dyn Files> = Arc::new(disk.clone());
        let path = Path::new("/data");
        disk.fail_next_write(errno, 10);
        assert!(matches!(DataDirectory::open(&files, path, EXPECTED), Err(StoreError::NotWritable { .. })));
        disk.power_loss(PowerLoss::KeepPages(&mut || true));
        assert!(DataDirectory::open(&files, path, EXPECTED).unwrap().is_new());
    }
}

#[test]
fn unreadable_format_file_is_not_missing() {
    let directory = tempfile::tempdir().unwrap();
    // A directory in place of the file, which not even root can open for writing.
    fs::create_dir(directory.path().join("nicekv-format")).unwrap();
    let refused = assert_refused(directory.path(), EXPECTED, &["nicekv-format"]);
    assert!(matches!(refused, StoreError::Io { operation: "open", .. }), "{refused}");
    let refused = DataDirectory::refuse_data(&RealFiles, directory.path()).unwrap_err();
    assert!(matches!(refused, StoreError::Io { operation: "open", .. }), "{refused}");
    let file = directory.path().join("file");
    fs::write(&file, "no directory").unwrap();
    DataDirectory::refuse_data(&RealFiles, &file).unwrap();
}
