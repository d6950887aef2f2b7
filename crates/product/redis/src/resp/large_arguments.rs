//! The large arguments of a command while they arrive.
//!
//! ```text
//!   begin ──▶ missing ── accept ──▶ buffer ── end ──▶ shared bytes     one grant may cover several arguments
//!                ▲  └─── deny ──▶ nothing is kept   │
//!                └────────────── interrupt ─────────┘ returns what is not filled yet
//! ```
//!
//! A command asks once, for all that it may keep, so it never waits while it holds a buffer. The
//! exception is an argument whose peer stopped sending: it returns the unfilled rest and asks
//! again, and what it still holds counts as dependent.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;
use nicekv_client::SharedBytes;

/// Memory that the host has granted for large buffers; dropping it returns it.
pub trait BufferGrant: Debug + Send + Sync + Sized + 'static {
    fn bytes(&self) -> usize;

    /// Takes away a part of this many bytes.
    fn split(&mut self, bytes: usize) -> Self;

    /// Adds another grant.
    fn join(&mut self, other: Self);

    /// Returns what exceeds this many bytes.
    fn shrink_to(&mut self, bytes: usize);

    /// Marks the grant as one that may end only after its holder was granted more. False if there
    /// is no room for another such grant.
    fn make_dependent(&mut self) -> bool;
}

/// A complete argument with the grant that covers it. The bytes are freed first.
struct Granted<G> {
    bytes: Vec<u8>,
    _grant: G,
}

impl<G> AsRef<[u8]> for Granted<G> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// See the module. Complete arguments go to the caller's list.
#[derive(Debug)]
pub(super) struct LargeArguments<G> {
    /// Bytes of complete arguments.
    complete_bytes: usize,
    complete: usize,
    /// The argument that arrives, and its full length.
    buffer: Option<Vec<u8>>,
    length: usize,
    /// For it, and for those that follow.
    grant: Option<G>,
    /// Bytes that have to be granted.
    missing: Option<usize>,
    is_denied: bool,
    /// The grant covers more than one argument.
    covers_several: bool,
}

impl<G> Default for LargeArguments<G> {
    fn default() -> Self {
        Self {
            complete_bytes: 0,
            complete: 0,
            buffer: None,
            length: 0,
            grant: None,
            missing: None,
            is_denied: false,
            covers_several: false,
        }
    }
}

impl<G: BufferGrant> LargeArguments<G> {
    /// Begins an argument. False if it is not kept whole: most commands keep one, others as many
    /// as were granted.
    pub(super) fn begin(&mut self, length: usize) -> bool {
        let granted = self.grant.as_ref().map(G::bytes);
        let is_first = granted.is_none() && self.complete == 0;
        match granted {
            _ if self.is_denied => return false,
            None if is_first => self.missing = Some(length),
            Some(bytes) if length <= bytes => self.buffer = Some(Vec::with_capacity(length)),
            Some(_) => {
                self.is_denied = self.covers_several;
                return false;
            }
            None => return false,
        }
        self.length = length;
        true
    }

    pub(super) fn missing(&self) -> Option<usize> {
        self.missing
    }

    /// Whether some of the missing argument's bytes have arrived.
    pub(super) fn has_begun(&self) -> bool {
        self.buffer.is_some()
    }

    pub(super) fn accept(&mut self, grant: G) {
        self.covers_several |= self.missing.is_some_and(|missing| grant.bytes() > missing);
        match &mut self.grant {
            Some(held) => held.join(grant),
            None => self.grant = Some(grant),
        }
        self.missing = None;
        // Pages that are not touched take no memory, and a buffer grows in place.
        self.buffer.get_or_insert_default().reserve_exact(self.length);
    }

    pub(super) fn deny(&mut self) {
        *self = Self { is_denied: true, ..Self::default() };
    }

    pub(super) fn is_denied(&self) -> bool {
        self.is_denied
    }

    pub(super) fn has_grant(&self) -> bool {
        self.grant.is_some()
    }

    /// The peer has stopped sending: returns the part of the grant that is not filled.
    pub(super) fn interrupt(&mut self) {
        let (Some(buffer), Some(grant)) = (&self.buffer, &mut self.grant) else { return };
        let (filled, granted) = (buffer.len(), grant.bytes());
        let rest = grant.split(granted - filled);
        if filled == granted || self.complete > 0 || !grant.make_dependent() {
            // Nothing to return, or no room for another dependent grant: it keeps what it has.
            grant.join(rest);
            return;
        }
        self.missing = Some(granted - filled);
    }

    pub(super) fn buffer(&mut self) -> Option<&mut Vec<u8>> {
        self.buffer.as_mut()
    }

    /// The argument that arrived is complete; `None` if it was not a large one.
    pub(super) fn end(&mut self) -> Option<SharedBytes> {
        let (Some(bytes), Some(grant)) = (self.buffer.take(), &mut self.grant) else { return None };
        self.complete_bytes += bytes.len();
        self.complete += 1;
        let grant = grant.split(bytes.len());
        Some(SharedBytes::new(Arc::new(Granted { bytes, _grant: grant })))
    }

    /// At most this many bytes follow: returns the rest of the grant.
    pub(super) fn expect(&mut self, bytes: usize) {
        if let Some(grant) = &mut self.grant {
            grant.shrink_to(bytes);
        }
    }

    /// Bytes of complete arguments.
    pub(super) fn bytes(&self) -> usize {
        self.complete_bytes
    }

    /// Bytes occupied beside those that were granted.
    pub(super) fn memory(&self) -> usize {
        self.complete * (size_of::<(u32, SharedBytes)>() + size_of::<Granted<G>>())
    }
}

#[cfg(test)]
#[path = "large_arguments_tests.rs"]
mod tests;
