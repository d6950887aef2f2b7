//! System calls that aya lacks.

#![allow(unsafe_code, reason = "bpf(2) takes pointers")]

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use aya::Pod;
use aya::maps::MapData;

const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;
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

/// Sets entries of an array of maps in one call. The kernel waits for a grace period, about 8 ms,
/// once per call. So when the call returns, every running program has seen the entries.
pub(crate) fn update_batch(outer: BorrowedFd<'_>, entries: &[(u32, BorrowedFd<'_>)]) -> io::Result<()> {
    let keys: Vec<u32> = entries.iter().map(|(index, _)| *index).collect();
    let values: Vec<i32> = entries.iter().map(|(_, inner)| inner.as_raw_fd()).collect();
    // SAFETY: a value of an array of maps has four bytes, like a file descriptor.
    unsafe { update(outer, &keys, &values) }
}

/// Sets elements of an array in one call, without a grace period. `V` must have the length of the
/// map's values.
pub(crate) fn update_elements<V: Pod>(map: &MapData, keys: &[u32], values: &[V]) -> io::Result<()> {
    let bytes = map.info().map_err(io::Error::other)?.value_size();
    assert_eq!(bytes as usize, size_of::<V>(), "the map's value");
    // SAFETY: the length was asserted.
    unsafe { update(map.fd().as_fd(), keys, values) }
}

/// Reads `count` elements of a per-CPU array, starting at `first`: the values of all CPUs of the
/// first element, then of the next. The length of a value is a multiple of eight bytes.
pub(crate) fn lookup_per_cpu<V: Pod + Default>(map: &MapData, first: u32, count: u32) -> io::Result<Vec<V>> {
    let processors = processors::<V>(map)?;
    let (mut keys, mut values) =
        (vec![0_u32; count as usize], vec![V::default(); count as usize * processors]);
    let (before, mut last) = (first.wrapping_sub(1), 0_u32);
    let mut attributes = BatchAttributes {
        in_batch: if first == 0 { 0 } else { (&raw const before).addr() as u64 },
        out_batch: (&raw mut last).addr() as u64,
        keys: keys.as_mut_ptr().addr() as u64,
        values: values.as_mut_ptr().addr() as u64,
        count,
        map_fd: map.fd().as_fd().as_raw_fd() as u32,
        ..BatchAttributes::default()
    };
    // SAFETY: keys and values have room for `count` elements of the map's sizes (asserted), the
    // batch positions for one key each, and all of them outlive the call.
    unsafe { batch(BPF_MAP_LOOKUP_BATCH, &mut attributes, count as usize) }.map(|()| values)
}

/// Sets elements of a per-CPU array to zero, for all CPUs.
pub(crate) fn empty_per_cpu<V: Pod + Default>(map: &MapData, first: u32, count: u32) -> io::Result<()> {
    let processors = processors::<V>(map)?;
    let keys: Vec<u32> = (first..first + count).collect();
    let values = vec![V::default(); count as usize * processors];
    // SAFETY: there is a value for each CPU, of the map's size (asserted).
    unsafe { update_raw(map.fd().as_fd(), &keys, values.as_ptr().addr()) }
}

/// Number of values of an element of a per-CPU array.
fn processors<V>(map: &MapData) -> io::Result<usize> {
    let bytes = map.info().map_err(io::Error::other)?.value_size() as usize;
    assert!(bytes == size_of::<V>() && bytes.is_multiple_of(8), "the map's value, of whole words");
    aya::util::nr_cpus().map_err(|(_, error)| error)
}

/// # Safety
/// The map's keys have four bytes, and its values the size of a `V`.
unsafe fn update<V>(map: BorrowedFd<'_>, keys: &[u32], values: &[V]) -> io::Result<()> {
    assert_eq!(keys.len(), values.len(), "a value for each key");
    // SAFETY: the caller guarantees the sizes.
    unsafe { update_raw(map, keys, values.as_ptr().addr()) }
}

/// # Safety
/// `values` points to one value for each key, in the map's format.
unsafe fn update_raw(map: BorrowedFd<'_>, keys: &[u32], values: usize) -> io::Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let mut attributes = BatchAttributes {
        keys: keys.as_ptr().addr() as u64,
        values: values as u64,
        count: keys.len() as u32,
        map_fd: map.as_raw_fd() as u32,
        ..BatchAttributes::default()
    };
    // SAFETY: keys and values hold `count` elements of the map's sizes and outlive the call.
    unsafe { batch(BPF_MAP_UPDATE_BATCH, &mut attributes, keys.len()) }
}

/// # Safety
/// The attributes point to what the command expects. The kernel also writes to `count`.
unsafe fn batch(command: libc::c_long, attributes: &mut BatchAttributes, elements: usize) -> io::Result<()> {
    // SAFETY: the caller guarantees that the attributes are valid.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<BatchAttributes>()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    assert_eq!(attributes.count as usize, elements, "a batch that succeeds is complete");
    Ok(())
}
