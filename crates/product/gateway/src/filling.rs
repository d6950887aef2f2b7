//! The large arguments of a command, on their way in.
//!
//! ```text
//!   begin ──▶ missing ── accept ──▶ buffer ── end ──▶ kept          a claim for several is divided among them
//!                ▲  └─── deny ──▶ nothing is kept   │
//!                └────────────── interrupt ─────────┘ what is not filled is given back
//! ```
//!
//! A command asks once, for all that it may keep, so that it waits for nothing while it holds something; but where it was interrupted by its peer, and what it
//! holds is counted as dependent (`line`).

use crate::permits::{Claim, Kept};
use std::sync::Arc;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    /// By the number of the argument.
    kept: Vec<(u32, Arc<Kept>)>,
    kept_bytes: usize,
    /// Of the argument that is on its way, and how long that will be.
    buffer: Option<Vec<u8>>,
    length: usize,
    /// For it, and for those that follow.
    claim: Option<Claim>,
    /// What is to be granted.
    missing: Option<usize>,
    is_denied: bool,
    /// More was granted than for one.
    is_for_several: bool,
}

impl Filling {
    /// Begins an argument; false if it is not to be kept as a whole: only one is in most commands, or as many as were granted.
    pub(crate) fn begin(&mut self, length: usize) -> bool {
        let granted = self.claim.as_ref().map(Claim::bytes);
        let is_first = granted.is_none() && self.kept.is_empty();
        match granted {
            _ if self.is_denied => return false,
            None if is_first => self.missing = Some(length),
            Some(bytes) if length <= bytes => self.buffer = Some(Vec::with_capacity(length)),
            Some(_) => {
                self.is_denied = self.is_for_several;
                return false;
            }
            None => return false,
        }
        self.length = length;
        true
    }

    pub(crate) fn missing(&self) -> Option<usize> {
        self.missing
    }

    /// Whether bytes are there of what is missing.
    pub(crate) fn has_begun(&self) -> bool {
        self.buffer.is_some()
    }

    pub(crate) fn accept(&mut self, claim: Claim) {
        self.is_for_several |= self.missing.is_some_and(|missing| claim.bytes() > missing);
        match &mut self.claim {
            Some(held) => held.join(claim),
            None => self.claim = Some(claim),
        }
        self.missing = None;
        // What is not touched takes no memory, and what is grows in its place.
        self.buffer.get_or_insert_default().reserve_exact(self.length);
    }

    pub(crate) fn deny(&mut self) {
        *self = Self { is_denied: true, ..Self::default() };
    }

    pub(crate) fn is_denied(&self) -> bool {
        self.is_denied
    }

    pub(crate) fn has_claim(&self) -> bool {
        self.claim.is_some()
    }

    pub(crate) fn interrupt(&mut self) {
        let (Some(buffer), Some(claim)) = (&self.buffer, &mut self.claim) else { return };
        let (filled, granted) = (buffer.len(), claim.bytes());
        let rest = claim.split(granted - filled);
        if filled == granted || !self.kept.is_empty() || !claim.make_dependent() {
            // There are too many of its kind, or it has more that would be dependent. It goes on with what it has.
            claim.join(rest);
            return;
        }
        self.missing = Some(granted - filled);
    }

    pub(crate) fn buffer(&mut self) -> Option<&mut Vec<u8>> {
        self.buffer.as_mut()
    }

    /// The argument with this number is there.
    pub(crate) fn end(&mut self, number: u32) {
        let (Some(bytes), Some(claim)) = (self.buffer.take(), &mut self.claim) else { return };
        self.kept_bytes += bytes.len();
        let claim = claim.split(bytes.len());
        self.kept.push((number, Arc::new(Kept::new(bytes, claim))));
    }

    /// So many bytes may follow at most.
    pub(crate) fn expect(&mut self, bytes: usize) {
        if let Some(claim) = &mut self.claim {
            claim.shrink_to(bytes);
        }
    }

    /// The argument with this number.
    pub(crate) fn kept(&self, number: u32) -> Option<&Arc<Kept>> {
        let at = self.kept.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&self.kept[at].1)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Kept>> {
        self.kept.iter().map(|(_, kept)| kept)
    }

    /// Bytes that are kept.
    pub(crate) fn bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Bytes that it occupies beside those that it was granted.
    pub(crate) fn memory(&self) -> usize {
        self.kept.capacity() * size_of::<(u32, Arc<Kept>)>() + self.kept.len() * size_of::<Kept>()
    }
}

#[cfg(test)]
#[path = "filling_tests.rs"]
mod tests;
