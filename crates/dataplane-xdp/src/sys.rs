//! System calls that aya lacks.

#![allow(unsafe_code, reason = "bpf(2) takes pointers")]

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use aya::Pod;
use aya::maps::MapData;

const BPF_MAP_UPDATE_BATCH: libc::c_long = 26;

/// The part of `union bpf_attr` that batch operations use.
#[repr(C)]
#[derive(Default)]
struct BatchAttributes {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    element_flags: u64,
    flags: u64,
}

/// Sets entries of an array of maps in one call. Returns after every program that runs has seen them: the
/// kernel waits for a grace period, about 8 ms, once per call.
pub(crate) fn update_batch(outer: BorrowedFd<'_>, entries: &[(u32, BorrowedFd<'_>)]) -> io::Result<()> {
    let keys: Vec<u32> = entries.iter().map(|(index, _)| *index).collect();
    let values: Vec<i32> = entries.iter().map(|(_, inner)| inner.as_raw_fd()).collect();
    // SAFETY: four bytes are the size of a value of an array of maps.
    unsafe { update(outer, &keys, &values) }
}

/// Sets elements of an array in one call, whose values are as long as the map says that they are; waits for nobody.
pub(crate) fn update_elements<V: Pod>(map: &MapData, keys: &[u32], values: &[V]) -> io::Result<()> {
    let bytes = map.info().map_err(io::Error::other)?.value_size();
    assert_eq!(bytes as usize, size_of::<V>(), "the map's value");
    // SAFETY: asserted.
    unsafe { update(map.fd().as_fd(), keys, values) }
}

/// # Safety
/// A value of the map, whose keys are of four bytes, is as long as a `V`.
unsafe fn update<V>(map: BorrowedFd<'_>, keys: &[u32], values: &[V]) -> io::Result<()> {
    assert_eq!(keys.len(), values.len(), "a value for each key");
    if keys.is_empty() {
        return Ok(());
    }
    let mut attributes = BatchAttributes {
        keys: keys.as_ptr().addr() as u64,
        values: values.as_ptr().addr() as u64,
        count: keys.len() as u32,
        map_fd: map.as_raw_fd() as u32,
        ..BatchAttributes::default()
    };
    // SAFETY: keys and values hold `count` elements of the map's sizes and outlive the call; the kernel writes to `count` only.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_MAP_UPDATE_BATCH, &raw mut attributes, size_of::<BatchAttributes>())
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    assert_eq!(attributes.count as usize, keys.len(), "a batch that succeeds is complete");
    Ok(())
}
