//! The large arguments of a command while they arrive.
//!
//! ```text
//!   begin ──▶ missing ── accept ──▶ buffer ── end ──▶ shared bytes     one grant may cover several arguments
//!                ▲  └─── deny ──▶ nothing is kept   │
//!                └────────────── interrupt ─────────┘ returns what is not filled yet
//! ```
//!
//! A command requests memory once, for all bytes that it may keep, so it never waits while it holds
//! a buffer. There is one exception: if the peer stops sending in the middle of an argument, the
//! unfilled part of the grant is returned and requested again; the filled part then counts as
//! dependent.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;
use nicekv_client::SharedBytes;

/// Memory that the host has granted for large buffers. Dropping the grant returns the memory.
pub trait BufferGrant: Debug + Send + Sync + Sized + 'static {
    fn bytes(&self) -> usize;

    /// Splits off a grant of this many bytes.
    fn split(&mut self, bytes: usize) -> Self;

    /// Adds the bytes of another grant.
    fn join(&mut self, other: Self);

    /// Returns the bytes beyond this number.
    fn shrink_to(&mut self, bytes: usize);

    /// Marks the grant as dependent: it may end only after its holder got another grant. Returns
    /// false if there is no room for another dependent grant.
    fn make_dependent(&mut self) -> bool;
}

/// A complete argument with the grant that covers it. The bytes are freed before the grant is
/// returned.
struct Granted<G> {
    bytes: Vec<u8>,
    _grant: G,
}

impl<G> AsRef<[u8]> for Granted<G> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The large arguments that are arriving. Complete arguments are added to the caller's list.
#[derive(Debug)]
pub(super) struct LargeArguments<G> {
    /// Bytes of complete arguments.
    complete_bytes: usize,
    complete: usize,
    /// The argument that is arriving, and its full length.
    buffer: Option<Vec<u8>>,
    length: usize,
    /// The grant for this argument and those that follow.
    grant: Option<G>,
    /// Bytes that still have to be granted.
    missing: Option<usize>,
    is_denied: bool,
    /// The grant covers several arguments.
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
    /// Begins an argument. Returns false if it is not kept whole: most commands keep one large
    /// argument, others as many as the grant covers.
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

    /// Whether some bytes of the argument that waits for a grant have arrived.
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
        // The whole buffer is reserved: pages that are not touched take no memory, and it can grow
        // in place.
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

    /// The peer has stopped sending: returns the unfilled part of the grant.
    pub(super) fn interrupt(&mut self) {
        let (Some(buffer), Some(grant)) = (&self.buffer, &mut self.grant) else { return };
        let (filled, granted) = (buffer.len(), grant.bytes());
        let rest = grant.split(granted - filled);
        if filled == granted || self.complete > 0 || !grant.make_dependent() {
            // There is nothing to return, or no room for another dependent grant: the argument
            // keeps its grant.
            grant.join(rest);
            return;
        }
        self.missing = Some(granted - filled);
    }

    pub(super) fn buffer(&mut self) -> Option<&mut Vec<u8>> {
        self.buffer.as_mut()
    }

    /// Ends the argument. Returns its bytes; `None` if it was not large.
    pub(super) fn end(&mut self) -> Option<SharedBytes> {
        let (Some(bytes), Some(grant)) = (self.buffer.take(), &mut self.grant) else { return None };
        self.complete_bytes += bytes.len();
        self.complete += 1;
        let grant = grant.split(bytes.len());
        Some(SharedBytes::new(Arc::new(Granted { bytes, _grant: grant })))
    }

    /// At most this many bytes will follow: returns the excess part of the grant.
    pub(super) fn expect(&mut self, bytes: usize) {
        if let Some(grant) = &mut self.grant {
            grant.shrink_to(bytes);
        }
    }

    /// Bytes of complete arguments.
    pub(super) fn bytes(&self) -> usize {
        self.complete_bytes
    }

    /// Bytes of memory in use, not counting granted bytes.
    pub(super) fn memory(&self) -> usize {
        self.complete * (size_of::<(u32, SharedBytes)>() + size_of::<Granted<G>>())
    }
}

#[cfg(test)]
#[path = "large_arguments_tests.rs"]
mod tests;
