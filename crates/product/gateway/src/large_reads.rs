//! The large values that a connection's commands are to read.
//!
//! ```text
//!              dependent claim at once                                answered
//!   Named ─────────────────────────────────────────────▶ Allowed ──────────────▶ kept, in the reply
//!     └── its command is the oldest ── plain claim ──────────▲
//!   Deferred ── its command is the oldest ─▶ got ─▶ Named …
//! ```
//!
//! A connection's replies leave in the order of its commands, so a value that is read for a later one is held until the values for the earlier ones have been. So only the
//! oldest command may wait for its value with a plain claim (`line`), when the peer has read what is before; and all values of a command that has several are granted together. A get
//! that several commands share is read for one of them: the others get the key anew, each when it is the oldest.

use crate::permits::Claim;
use crate::requests::Origin;
use nicekv_client::Ticket;
use nicekv_proto::KeyspaceId;

#[derive(Debug)]
pub(crate) enum Stage {
    /// It is so long. `is_tried`: there was no dependent claim for it.
    Named {
        ticket: Ticket,
        bytes: usize,
        is_tried: bool,
    },
    Allowed {
        ticket: Ticket,
        claim: Claim,
    },
    Deferred {
        keyspace: KeyspaceId,
        key: Vec<u8>,
    },
}

#[derive(Debug)]
pub(crate) struct LargeRead {
    pub(crate) origin: Origin,
    pub(crate) stage: Stage,
}

/// See the module. No more than there are requests of unanswered commands.
#[derive(Debug, Default)]
pub(crate) struct LargeReads {
    reads: Vec<LargeRead>,
    /// The question that waits, by its number.
    pub(crate) asked: Option<u64>,
    /// The command that a plain claim was asked for last.
    asked_for: Option<u64>,
}

/// What is to be done about the oldest command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    /// So many bytes are to be granted; at once, if something was before, so that no one waits for one that waits.
    Claim {
        bytes: usize,
        at_once: bool,
    },
}

impl LargeReads {
    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// Bytes that it occupies.
    pub(crate) fn memory(&self) -> usize {
        self.reads.capacity() * size_of::<LargeRead>()
    }

    /// A request waits to read so many bytes: for the first time, or because its value has become longer.
    pub(crate) fn name(&mut self, origin: Origin, ticket: Ticket, bytes: usize) {
        self.take(ticket);
        self.reads.push(LargeRead { origin, stage: Stage::Named { ticket, bytes, is_tried: false } });
    }

    pub(crate) fn defer(&mut self, origin: Origin, keyspace: KeyspaceId, key: Vec<u8>) {
        self.reads.push(LargeRead { origin, stage: Stage::Deferred { keyspace, key } });
    }

    /// A request has ended; the claim that it had.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Claim> {
        let at = self.reads.iter().position(|read| read.ticket() == Some(ticket))?;
        match self.reads.remove(at).stage {
            Stage::Allowed { claim, .. } => Some(claim),
            _ => None,
        }
    }

    /// Those that have not been tried with a dependent claim: `try_it` says whether there is one. Of the oldest command only if it has several.
    pub(crate) fn try_dependent(
        &mut self,
        oldest: Option<u64>,
        mut try_it: impl FnMut(Ticket, usize) -> Option<Claim>,
    ) {
        for LargeRead { origin, stage } in &mut self.reads {
            let Stage::Named { ticket, bytes, is_tried } = stage else { continue };
            if Some(origin.command) == oldest || std::mem::replace(is_tried, true) {
                continue;
            }
            let ticket = *ticket;
            if let Some(claim) = try_it(ticket, *bytes) {
                *stage = Stage::Allowed { ticket, claim };
            }
        }
    }

    /// Takes one of the oldest command that is to be got anew.
    pub(crate) fn take_deferred(&mut self, oldest: u64) -> Option<(Origin, KeyspaceId, Vec<u8>)> {
        let is_it =
            |read: &LargeRead| read.origin.command == oldest && matches!(read.stage, Stage::Deferred { .. });
        let LargeRead { origin, stage } = self.reads.remove(self.reads.iter().position(is_it)?);
        let Stage::Deferred { keyspace, key } = stage else { unreachable!("just seen") };
        Some((origin, keyspace, key))
    }

    /// Of the oldest command, which has so many requests under way.
    pub(crate) fn need(&self, oldest: u64, under_way: usize) -> Need {
        let mut named = self.named(oldest).peekable();
        if self.asked.is_some() || named.peek().is_none() {
            return Need::Nothing;
        }
        let (count, bytes) = named.fold((0, 0), |(count, sum), (_, bytes)| (count + 1, sum + bytes));
        if count < under_way {
            return Need::Nothing;
        }
        Need::Claim { bytes, at_once: self.asked_for == Some(oldest) }
    }

    /// Of a command that has several requests a plain claim was asked for.
    pub(crate) fn note_asked(&mut self, command: u64) {
        self.asked_for = Some(command);
    }

    fn named(&self, command: u64) -> impl Iterator<Item = (Ticket, usize)> {
        self.reads.iter().filter_map(move |read| match read.stage {
            Stage::Named { ticket, bytes, .. } if read.origin.command == command => Some((ticket, bytes)),
            _ => None,
        })
    }

    /// The requests of the oldest command that wait.
    pub(crate) fn waiting(&self, oldest: u64) -> impl Iterator<Item = Ticket> {
        self.named(oldest).map(|(ticket, _)| ticket)
    }

    /// Divides what was granted among the requests of the oldest command that wait, and calls `allow` for those that get theirs.
    pub(crate) fn allow(&mut self, oldest: u64, mut claim: Claim, mut allow: impl FnMut(Ticket, usize)) {
        for LargeRead { origin, stage } in &mut self.reads {
            let Stage::Named { ticket, bytes, .. } = *stage else { continue };
            if origin.command == oldest && bytes <= claim.bytes() {
                *stage = Stage::Allowed { ticket, claim: claim.split(bytes) };
                allow(ticket, bytes);
            }
        }
    }

    /// The requests that nobody waits for any more.
    pub(crate) fn tickets(&self) -> impl Iterator<Item = Ticket> {
        self.reads.iter().filter_map(LargeRead::ticket)
    }
}

impl LargeRead {
    fn ticket(&self) -> Option<Ticket> {
        match self.stage {
            Stage::Named { ticket, .. } | Stage::Allowed { ticket, .. } => Some(ticket),
            Stage::Deferred { .. } => None,
        }
    }
}

#[cfg(test)]
#[path = "large_reads_tests.rs"]
mod tests;
