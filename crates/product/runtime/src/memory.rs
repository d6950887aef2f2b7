//! What the C library's allocator keeps of freed memory. Where it is another one than GNU's, these do nothing.

#![allow(unsafe_code, reason = "malloc_trim and mallopt have no safe wrapper")]

/// Buffers of so many bytes have pages of their own.
const APART_BYTES: i32 = 1 << 20;

/// Has large buffers given back to the system when they are freed, in the whole process and from here on. Unless told so, the allocator raises the length from which it does,
/// up to 32 MiB, whenever such a buffer is freed, and each thread keeps what it has freed: several times what is in use.
pub fn keep_large_buffers_apart() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number of the allocator, which takes its own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, APART_BYTES);
    }
}

/// Gives back to the system what the allocator keeps of freed memory. Takes about a millisecond for 100 MB; does nothing where the C
/// library has no such call.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes the allocator's own locks, and moves nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
