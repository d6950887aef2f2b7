//! Controls how much freed memory the C library's allocator keeps. The functions do nothing with
//! other libraries than glibc.

#![allow(unsafe_code, reason = "malloc_trim and mallopt have no safe wrapper")]

/// Allocations of at least this size get pages of their own.
const APART_BYTES: i32 = 1 << 20;

/// Makes the allocator return large buffers to the system as soon as they are freed, for the rest
/// of the process. By default, glibc raises its threshold for that, up to 32 MiB, whenever such a
/// buffer is freed, and each thread keeps its freed buffers: several times the memory in use.
pub fn keep_large_buffers_apart() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call sets a number of the allocator, under the allocator's own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, APART_BYTES);
    }
}

/// Returns the allocator's free memory to the system. Takes about a millisecond per 100 MB.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes the allocator's own locks, and does not move allocated memory.
    unsafe {
        libc::malloc_trim(0);
    }
}
