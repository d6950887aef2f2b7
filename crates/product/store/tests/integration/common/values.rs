//! Helpers of the tests of large values: small segments on a disk in memory.
#![allow(dead_code, unreachable_pub, reason = "each test file uses some of them")]

use nicekv_proto::{ClientId, OpId};
use nicekv_store::{
    Files, Forgetful, Result, ValueOptions, ValueOwner, Values,
    files::{PowerLoss, Watched},
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

pub(crate) const DIRECTORY: &str = "/data/values";
pub(crate) const BLOCK: usize = nicekv_store::values::BLOCK_BYTES;
pub(crate) const PAGE: usize = 4_096;
/// Offset of the first value's content in a segment.
pub(crate) const FIRST: usize = PAGE;

/// A segment is filled by four values of two blocks; a value of four blocks gets a separate
/// segment.
pub(crate) fn options() -> ValueOptions {
    ValueOptions { segment_bytes: 10 * BLOCK as u64, writing_bytes_max: 64 << 20 }
}

pub(crate) fn disk() -> Forgetful {
    Forgetful::new(PAGE)
}

pub(crate) fn open_on(files: impl Files + 'static) -> Result<Values> {
    Values::open(Arc::new(files), Path::new(DIRECTORY), super::identity(), options())
}

pub(crate) fn open(disk: &Forgetful) -> Values {
    open_on(disk.clone()).expect("the values open")
}

pub(crate) fn name(sequence: u64) -> OpId {
    OpId { client: ClientId(7), sequence }
}

pub(crate) fn owner(sequence: u64) -> ValueOwner {
    ValueOwner { partition: sequence as u32 % 5, key: format!("key of {sequence}").into_bytes() }
}

/// The bytes of a value: different for each sequence number, and at each place.
pub(crate) fn content(sequence: u64, length: usize) -> Vec<u8> {
    let mut state = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ (state >> 29)).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Writes and finishes a value, without a sync.
pub(crate) fn put(values: &mut Values, sequence: u64, length: usize) -> Result<()> {
    let mut writing = values.begin(name(sequence), owner(sequence), length as u64)?;
    let bytes = content(sequence, length);
    for (number, piece) in bytes.chunks(10_000).enumerate() {
        if let Err(error) = values.write(&mut writing, number as u64 * 10_000, piece) {
            values.abandon(writing)?;
            return Err(error);
        }
    }
    values.finish(writing)
}

pub(crate) fn put_synced(values: &mut Values, sequence: u64, length: usize) -> Result<()> {
    put(values, sequence, length)?;
    values.sync_handle().sync()
}

pub(crate) fn read(values: &Values, sequence: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; values.length(name(sequence))? as usize];
    values.read(name(sequence), 0, &mut bytes)?;
    Ok(bytes)
}

/// Checks that the value exists with the bytes that were written.
pub(crate) fn check(values: &Values, sequence: u64, length: usize) {
    let found = read(values, sequence).unwrap_or_else(|error| panic!("value {sequence}: {error}"));
    assert!(found == content(sequence, length), "value {sequence} has other bytes");
    values.verify(name(sequence)).unwrap();
}

pub(crate) fn names(values: &Values) -> Vec<u64> {
    let mut names: Vec<u64> = values.iter().map(|(name, _, _)| name.sequence).collect();
    names.sort_unstable();
    names
}

pub(crate) fn segment_paths(disk: &Forgetful) -> Vec<PathBuf> {
    let names = disk.list(Path::new(DIRECTORY)).unwrap();
    names.into_iter().map(|name| Path::new(DIRECTORY).join(name)).collect()
}

/// Compacts until there is nothing to do.
pub(crate) fn compact(values: &mut Values) -> Result<()> {
    for _ in 0..10_000 {
        if !values.compact_step(1, None)? {
            return Ok(());
        }
    }
    panic!("compaction does not end");
}

/// Files whose first `moments` calls succeed (each counts before and after it); then all calls
/// fail.
pub(crate) fn dying(disk: &Forgetful, moments: u64) -> Watched {
    let passed = AtomicU64::new(0);
    Watched::new(Arc::new(disk.clone()), move |_, _, _| {
        let is_alive = passed.fetch_add(1, Ordering::Relaxed) < moments;
        if is_alive { Ok(()) } else { Err(io::Error::other("the power is gone")) }
    })
}

/// Number of different results of a power loss.
pub(crate) const LOSSES: u64 = 9;

/// One of [`LOSSES`] kinds of power loss; the first is a killed process on a machine that keeps
/// running.
pub(crate) fn lose_power(disk: &Forgetful, kind: u64) {
    match kind {
        0 => {}
        1 => disk.power_loss(PowerLoss::DropAll),
        2 => disk.power_loss(PowerLoss::KeepPrefix(1 << 30)),
        3 => disk.power_loss(PowerLoss::KeepPrefix(3 * PAGE)),
        4 => disk.power_loss(PowerLoss::KeepPrefix(0)),
        seed => {
            let mut state = seed;
            let mut choose = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
                (state >> 40) % 4 < seed % 4 + 1
            };
            disk.power_loss(PowerLoss::KeepPages(&mut choose));
        }
    }
}
