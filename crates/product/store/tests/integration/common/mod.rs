//! Helpers of the log tests: small logs on a disk in memory.

use nicekv_store::{Files, Forgetful, Log, LogIdentity, LogOptions, LogPosition, Recovered, Result};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

pub(crate) mod values;

pub(crate) const DIRECTORY: &str = "/data/log";

pub(crate) type Records = Vec<(LogPosition, Vec<u8>)>;

pub(crate) fn identity() -> LogIdentity {
    LogIdentity { cluster_id: 0xc0ffee, storage_id: 0xbeef, node_id: 3 }
}

/// Segments of a few records.
pub(crate) fn options() -> LogOptions {
    LogOptions { segment_bytes_max: 400, buffer_bytes_max: 1 << 20, ahead_bytes: 2_048 }
}

pub(crate) fn open_collecting(disk: &Forgetful) -> Result<(Log, Records, Recovered)> {
    let mut records = Vec::new();
    let visit = |position, payload: &[u8]| records.push((position, payload.to_vec()));
    let (log, recovered) =
        Log::open(Arc::new(disk.clone()), Path::new(DIRECTORY), identity(), options(), visit)?;
    Ok((log, records, recovered))
}

pub(crate) fn open_with(disk: &Forgetful, options: LogOptions) -> Log {
    Log::open(Arc::new(disk.clone()), Path::new(DIRECTORY), identity(), options, |_, _| {})
        .expect("the log opens")
        .0
}

pub(crate) fn open(disk: &Forgetful) -> Log {
    open_collecting(disk).expect("the log opens").0
}

/// Opens the log as a restarted process would, and returns what it finds.
pub(crate) fn collect(disk: &Forgetful) -> Result<(Records, Recovered)> {
    open_collecting(disk).map(|(_, records, recovered)| (records, recovered))
}

/// A disk with these records, each synced, and a marker after the last.
pub(crate) fn flushed(payloads: &[&[u8]]) -> Forgetful {
    let disk = Forgetful::new(64);
    let mut log = open(&disk);
    for payload in payloads {
        log.append(payload).unwrap();
        log.write().unwrap();
        log.sync_handle().sync().unwrap();
    }
    log.write().unwrap();
    disk.copy()
}

pub(crate) fn manifest_path() -> PathBuf {
    Path::new(DIRECTORY).join("manifest")
}

pub(crate) fn segment_paths(disk: &Forgetful) -> Vec<PathBuf> {
    let names = disk.list(Path::new(DIRECTORY)).unwrap();
    let segments = names.into_iter().filter(|name| name.starts_with("log-") && name.ends_with(".nklog"));
    segments.map(|name| Path::new(DIRECTORY).join(name)).collect()
}
