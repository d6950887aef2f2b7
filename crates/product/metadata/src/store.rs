//! The store of the state for a single instance: one value, replaced by compare-and-swap. Several
//! instances share a store through [`crate::Election`].

use alloc::vec::Vec;

/// A store for the state. The core's driver executes each [`crate::StorageRequest`] with it, in
/// order.
pub trait StateStore {
    /// The error of the store.
    type Error;

    /// Loads the last stored value; `None` if nothing was ever stored.
    fn load(&mut self) -> Result<Option<Vec<u8>>, Self::Error>;

    /// Replaces the state of version `expected_version` ([`crate::persisted_version`]; 0: no state)
    /// by `bytes`, durably and atomically. If another version is stored, it fails: another instance
    /// leads, and the caller must stop.
    fn compare_and_swap(&mut self, expected_version: u64, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Until when no other instance can replace the state, on the boot-time clock; `u64::MAX` while
    /// a lock excludes others. For [`crate::Metadata::handle_leadership`].
    fn exclusive_until_ns(&self) -> u64;
}
