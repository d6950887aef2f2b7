//! Controls how much freed memory the C library's allocator keeps. Only for glibc; otherwise these
//! do nothing.

#![allow(unsafe_code, reason = "malloc_trim and mallopt have no safe wrapper")]

/// Buffers of at least this size get pages of their own.
const APART_BYTES: i32 = 1 << 20;

/// Makes the allocator return large buffers to the system when they are freed, for the whole
/// process from now on. By default glibc raises the threshold for that, up to 32 MiB, whenever such
/// a buffer is freed, and each thread keeps what it has freed: several times what is in use.
pub fn keep_large_buffers_apart() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number of the allocator, which takes its own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, APART_BYTES);
    }
}

/// Returns the allocator's free memory to the system. Takes about a millisecond per 100 MB.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes the allocator's own locks, and moves nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
