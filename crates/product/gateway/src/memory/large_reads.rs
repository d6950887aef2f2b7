//! The large values that a connection's commands are about to read.
//!
//! ```text
//!              dependent grant at once                                 answered
//!   Waiting ───────────────────────────────────────────▶ Granted ──────────────▶ in the reply
//!     └── its command is the oldest ── plain grant ──────────▲
//!   Deferred ── its command is the oldest ─▶ get again ─▶ Waiting …
//! ```
//!
//! Replies leave in the order of the commands, so a value read for a later command is held until
//! the values of earlier ones have left. Therefore only the oldest command may queue for a plain
//! grant, and only when the peer has read all earlier replies. If it reads several values, one
//! grant covers them all. If several commands share a get, the value is read for one of them; each
//! of the others gets the key again when it is the oldest.

use super::governor::Grant;
use crate::requests::Origin;
use nicekv_client::Ticket;
use nicekv_proto::KeyspaceId;
use nicekv_redis::resp::BufferGrant;

#[derive(Debug)]
enum Stage {
    /// The length of the value is known. `is_tried`: a dependent grant was tried and refused.
    Waiting {
        ticket: Ticket,
        bytes: usize,
        is_tried: bool,
    },
    Granted {
        ticket: Ticket,
        grant: Grant,
    },
    Deferred {
        keyspace: KeyspaceId,
        key: Vec<u8>,
    },
}

#[derive(Debug)]
struct LargeRead {
    origin: Origin,
    stage: Stage,
}

/// The large reads: at most one for each request of an unanswered command.
#[derive(Debug, Default)]
pub(crate) struct LargeReads {
    reads: Vec<LargeRead>,
    /// Number of the connection's queued memory request for reads.
    pub(crate) queued: Option<u64>,
    /// The command for which a plain grant was requested last.
    requested_for: Option<u64>,
}

/// The memory that the oldest command still needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    /// Memory. `at_once`: it must not queue, because the command already holds a grant.
    Grant {
        bytes: usize,
        at_once: bool,
    },
}

impl LargeReads {
    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// Bytes of memory in use.
    pub(crate) fn memory(&self) -> usize {
        self.reads.capacity() * size_of::<LargeRead>()
    }

    /// A request waits to read a value of this many bytes, for the first time or because the value
    /// has grown.
    pub(crate) fn add(&mut self, origin: Origin, ticket: Ticket, bytes: usize) {
        self.take(ticket);
        self.reads.push(LargeRead { origin, stage: Stage::Waiting { ticket, bytes, is_tried: false } });
    }

    pub(crate) fn defer(&mut self, origin: Origin, keyspace: KeyspaceId, key: Vec<u8>) {
        self.reads.push(LargeRead { origin, stage: Stage::Deferred { keyspace, key } });
    }

    /// A request has ended: removes it and returns its grant, if any.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Grant> {
        let at = self.reads.iter().position(|read| read.ticket() == Some(ticket))?;
        match self.reads.remove(at).stage {
            Stage::Granted { grant, .. } => Some(grant),
            _ => None,
        }
    }

    /// Tries to get dependent grants for reads that have not tried yet. `oldest`: a command whose
    /// reads are left out.
    pub(crate) fn try_dependent(
        &mut self,
        oldest: Option<u64>,
        mut try_it: impl FnMut(Ticket, usize) -> Option<Grant>,
    ) {
        for LargeRead { origin, stage } in &mut self.reads {
            let Stage::Waiting { ticket, bytes, is_tried } = stage else { continue };
            if Some(origin.command) == oldest || std::mem::replace(is_tried, true) {
                continue;
            }
            let ticket = *ticket;
            if let Some(grant) = try_it(ticket, *bytes) {
                *stage = Stage::Granted { ticket, grant };
            }
        }
    }

    /// Removes and returns a deferred read of the oldest command.
    pub(crate) fn take_deferred(&mut self, oldest: u64) -> Option<(Origin, KeyspaceId, Vec<u8>)> {
        let is_it =
            |read: &LargeRead| read.origin.command == oldest && matches!(read.stage, Stage::Deferred { .. });
        let LargeRead { origin, stage } = self.reads.remove(self.reads.iter().position(is_it)?);
        let Stage::Deferred { keyspace, key } = stage else { unreachable!("just seen") };
        Some((origin, keyspace, key))
    }

    /// What the oldest command needs. `in_flight`: its requests that may yet turn out to read large
    /// values; memory is requested once all of them are known.
    pub(crate) fn need(&self, oldest: u64, in_flight: usize) -> Need {
        let mut waiting = self.waiting_reads(oldest).peekable();
        if self.queued.is_some() || waiting.peek().is_none() {
            return Need::Nothing;
        }
        let (count, bytes) = waiting.fold((0, 0), |(count, sum), (_, bytes)| (count + 1, sum + bytes));
        if count < in_flight {
            return Need::Nothing;
        }
        Need::Grant { bytes, at_once: self.requested_for == Some(oldest) }
    }

    /// Remembers that a plain grant was requested for this command, which reads several values.
    pub(crate) fn note_requested(&mut self, command: u64) {
        self.requested_for = Some(command);
    }

    fn waiting_reads(&self, command: u64) -> impl Iterator<Item = (Ticket, usize)> {
        self.reads.iter().filter_map(move |read| match read.stage {
            Stage::Waiting { ticket, bytes, .. } if read.origin.command == command => Some((ticket, bytes)),
            _ => None,
        })
    }

    /// Requests of the oldest command that wait for memory.
    pub(crate) fn waiting(&self, oldest: u64) -> impl Iterator<Item = Ticket> {
        self.waiting_reads(oldest).map(|(ticket, _)| ticket)
    }

    /// Divides a grant among the waiting requests of the oldest command, and calls `allow` for each
    /// that it covers.
    pub(crate) fn allow(&mut self, oldest: u64, mut grant: Grant, mut allow: impl FnMut(Ticket, usize)) {
        for LargeRead { origin, stage } in &mut self.reads {
            let Stage::Waiting { ticket, bytes, .. } = *stage else { continue };
            if origin.command == oldest && bytes <= grant.bytes() {
                *stage = Stage::Granted { ticket, grant: grant.split(bytes) };
                allow(ticket, bytes);
            }
        }
    }

    /// Tickets of all requests that are waiting or granted.
    pub(crate) fn tickets(&self) -> impl Iterator<Item = Ticket> {
        self.reads.iter().filter_map(LargeRead::ticket)
    }
}

impl LargeRead {
    fn ticket(&self) -> Option<Ticket> {
        match self.stage {
            Stage::Waiting { ticket, .. } | Stage::Granted { ticket, .. } => Some(ticket),
            Stage::Deferred { .. } => None,
        }
    }
}

#[cfg(test)]
#[path = "large_reads_tests.rs"]
mod tests;
