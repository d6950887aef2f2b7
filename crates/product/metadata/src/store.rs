//! Where the state of an only instance is kept: one value, replaced by compare-and-swap. Several instances share a store by an
//! [`crate::Election`].

use alloc::vec::Vec;

/// A place for the state. Whoever runs the core executes each [`crate::StorageRequest`] by it, in order.
pub trait StateStore {
    /// Why it did not work.
    type Error;

    /// What was stored last, exactly, or an error; `None` if nothing ever was.
    fn load(&mut self) -> Result<Option<Vec<u8>>, Self::Error>;

    /// Replaces the state of version `expected_version` ([`crate::persisted_version`]; 0: nothing is stored) by
    /// `bytes`, durably and as a whole. Any other version there is an error: somebody else leads, and the caller
    /// must stop.
    fn compare_and_swap(&mut self, expected_version: u64, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Until when nobody else can replace the state, by the boot-time clock: `u64::MAX` while a lock keeps others away. For
    /// [`crate::Metadata::handle_leadership`].
    fn exclusive_until_ns(&self) -> u64;
}
