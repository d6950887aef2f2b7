//! Bytes that their owner shares with the client instead of having them copied.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{Debug, Formatter, Result};
use core::ops::Deref;

/// Bytes that are kept where they are until nobody needs them any more.
#[derive(Clone)]
pub struct SharedBytes(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl SharedBytes {
    /// Those that the owner shows, which are always the same. It is dropped with the last clone.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        Self(owner)
    }

    /// `bytes`, which are not copied if they are all of `kept`.
    pub(crate) fn of(bytes: &[u8], kept: Option<&Self>) -> Self {
        let same = kept.filter(|kept| core::ptr::eq::<[u8]>(&***kept, bytes));
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
