//! Bytes that the caller shares with the client instead of copying them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{Debug, Formatter, Result};
use core::ops::Deref;

/// Immutable bytes, reference-counted, in whatever container their owner has. Cloning is cheap.
#[derive(Clone)]
pub struct SharedBytes(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl SharedBytes {
    /// The bytes of `owner`, which must always be the same. The owner is dropped with the last clone.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        Self(owner)
    }

    /// `bytes`, not copied if they are all of `shared`.
    pub(crate) fn of(bytes: &[u8], shared: Option<&Self>) -> Self {
        let same = shared.filter(|shared| core::ptr::eq::<[u8]>(&***shared, bytes));
        same.cloned().unwrap_or_else(|| Vec::from(bytes).into())
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Arc::new(bytes))
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl Debug for SharedBytes {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "{} shared bytes", self.len())
    }
}
