//! System calls that aya lacks.

#![allow(unsafe_code, reason = "bpf(2) takes pointers")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

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
    if entries.is_empty() {
        return Ok(());
    }
    let keys: Vec<u32> = entries.iter().map(|(index, _)| *index).collect();
    let values: Vec<i32> = entries.iter().map(|(_, inner)| inner.as_raw_fd()).collect();
    let mut attributes = BatchAttributes {
        keys: keys.as_ptr().addr() as u64,
        values: values.as_ptr().addr() as u64,
        count: entries.len() as u32,
        map_fd: outer.as_raw_fd() as u32,
        ..BatchAttributes::default()
    };
    // SAFETY: keys and values hold `count` elements of four bytes, the sizes of an array of maps, and outlive
    // the call; the kernel writes to `count` only.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_MAP_UPDATE_BATCH, &raw mut attributes, size_of::<BatchAttributes>())
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    assert_eq!(attributes.count as usize, entries.len(), "a batch that succeeds is complete");
    Ok(())
}
