//! Commands on all keys: SCAN, KEYS, DBSIZE, FLUSHDB and FLUSHALL. Each requests pieces of the
//! keyspace ([`Scan`]).
//!
//! ```text
//!   SCAN 0 ─▶ one piece after the other, until there are as many keys as asked for ─▶ [cursor, keys]
//!   KEYS, DBSIZE ─▶ several pieces at a time, until nothing is left
//!   FLUSHDB ─▶ pieces, whose keys are deleted before the next ones; FLUSHALL ─▶ one keyspace after the other
//! ```
//!
//! A cursor is a number that stands for the rest of a scan, which the host remembers
//! ([`CursorStore`]). The number cannot be the position itself, as in Redis, because a position in
//! the keyspace is a key.

use crate::answered::Answered;
use crate::call::Call;
use crate::continuation::{Continuation, Effect, Next};
use crate::error::CommandError;
use crate::resp::ReplyWriter;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;
use nicekv_client::{Request, Scan};
use nicekv_proto::glob;
use nicekv_proto::scan::{ScanWants, Scanned};
use nicekv_proto::{Form, KeyspaceId, Operation};

/// Maximum pieces of KEYS and DBSIZE in flight.
const PIECES_MAX: usize = 8;
/// Maximum deletes of FLUSHDB in flight.
const DELETES_MAX: usize = 64;
/// The part number of every delete; pieces have smaller numbers.
const DELETE: u32 = u32::MAX;

/// Remembers unfinished scans by the numbers that clients use as cursors.
pub trait CursorStore: Debug + Send + Sync {
    fn remember(&self, keyspace: KeyspaceId, scan: Scan) -> u64;

    /// The rest of the scan that this cursor of this keyspace stands for.
    fn find(&self, cursor: u64, keyspace: KeyspaceId) -> Option<Scan>;
}

/// A store that remembers nothing.
#[derive(Debug)]
pub(crate) struct NoCursors;

impl CursorStore for NoCursors {
    fn remember(&self, _: KeyspaceId, _: Scan) -> u64 {
        0
    }

    fn find(&self, _: u64, _: KeyspaceId) -> Option<Scan> {
        None
    }
}

/// The command that scans.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// SCAN, which ends once it has looked at `count` keys.
    Some { count: usize, cursors: Arc<dyn CursorStore> },
    /// KEYS.
    All,
    /// DBSIZE.
    Size,
    /// FLUSHDB, FLUSHALL.
    Flush {
        /// Keyspaces still to be flushed, the next one last.
        rest: Vec<KeyspaceId>,
    },
}

/// Which keys are listed; the others are skipped.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) pattern: Option<Box<[u8]>>,
    /// Some(true): only hashes; Some(false): only other values.
    pub(crate) is_hash: Option<bool>,
}

impl Filter {
    fn accepts(&self, found: &Scanned<'_>) -> bool {
        self.is_hash.is_none_or(|is_hash| is_hash == (found.form == Form::Hash))
            && self.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, found.key))
    }
}

/// A running command on all keys.
#[derive(Debug)]
pub(crate) struct KeyScan {
    keyspace: KeyspaceId,
    scan: Scan,
    purpose: Purpose,
    filter: Filter,
    /// Number of keys that were scanned.
    scanned: u64,
    /// Keys to list or to delete.
    found: Vec<Box<[u8]>>,
    found_bytes: usize,
    /// Number of deletes in flight, and the key of the last one.
    deletes: usize,
    deleted: Box<[u8]>,
    error: Option<CommandError>,
}

impl KeyScan {
    pub(crate) fn new(keyspace: KeyspaceId, scan: Scan, purpose: Purpose, filter: Filter) -> Self {
        Self {
            keyspace,
            scan,
            purpose,
            filter,
            scanned: 0,
            found: Vec::new(),
            found_bytes: 0,
            deletes: 0,
            deleted: Box::default(),
            error: None,
        }
    }

    /// Scans a whole keyspace.
    pub(crate) fn of_all(keyspace: KeyspaceId, purpose: Purpose, filter: Filter) -> Self {
        let wants = if matches!(purpose, Purpose::Size) { ScanWants::Count } else { ScanWants::Keys };
        Self::new(keyspace, Scan::new(wants, None), purpose, filter)
    }

    fn next_delete(&mut self) -> Next<'_> {
        if self.deletes == DELETES_MAX {
            return Next::Wait;
        }
        let Some(key) = self.found.pop() else { return Next::Wait };
        self.deleted = key;
        self.found_bytes -= self.deleted.len();
        self.deletes += 1;
        Next::Request(self.keyspace, DELETE, Request::update(&self.deleted, Operation::Delete))
    }

    /// If this keyspace is finished, begins with the next one to flush.
    fn begin_next(&mut self) {
        if let Purpose::Flush { rest } = &mut self.purpose
            && self.scan.is_done()
            && let Some(next) = rest.pop()
        {
            (self.keyspace, self.scan) = (next, Scan::new(ScanWants::Keys, None));
        }
    }

    fn has_enough(&self) -> bool {
        self.error.is_some()
            || match &self.purpose {
                Purpose::Some { count, .. } => self.scanned >= *count as u64 || self.scan.is_done(),
                Purpose::All | Purpose::Size => self.scan.is_done(),
                Purpose::Flush { rest } => rest.is_empty() && self.found.is_empty() && self.scan.is_done(),
            }
    }

    fn note(&mut self, found: Scanned<'_>) {
        if self.filter.accepts(&found) {
            self.found_bytes += found.key.len();
            self.found.push(found.key.into());
        }
    }
}

impl Continuation for KeyScan {
    fn next<'a>(&'a mut self, _: &Call<'a>) -> Next<'a> {
        if self.has_enough() {
            return if self.is_over() { Next::Done } else { Next::Wait };
        }
        if matches!(self.purpose, Purpose::Flush { .. }) && !self.found.is_empty() {
            return self.next_delete();
        }
        self.begin_next();
        let at_once = if matches!(self.purpose, Purpose::Some { .. }) { 1 } else { PIECES_MAX };
        if self.scan.asked() >= at_once {
            return Next::Wait;
        }
        let Some(part) = self.scan.unasked() else { return Next::Wait };
        Next::Request(self.keyspace, part, self.scan.ask(part))
    }

    fn take(&mut self, part: u32, answered: Answered<'_>) -> bool {
        match answered.result {
            Ok(_) if part == DELETE => self.deletes -= 1,
            Ok(answer) => {
                let mut taken = Vec::new();
                self.scan.take(part, answer.pieces(), |piece| taken.push(*piece));
                for piece in taken {
                    self.scanned += u64::from(piece.count);
                    piece.entries().for_each(|entry| self.note(entry));
                }
            }
            Err(error) => self.fail(part, CommandError::of_operation(error, answered.cause)),
        }
        self.is_over()
    }

    fn fail(&mut self, part: u32, error: CommandError) {
        if part == DELETE {
            self.deletes -= 1;
        } else {
            self.scan.give_up(part);
        }
        self.error.get_or_insert(error);
    }

    fn in_flight(&self) -> usize {
        self.scan.asked() + self.deletes
    }

    fn is_over(&self) -> bool {
        self.has_enough() && self.scan.asked() == 0 && self.deletes == 0
    }

    fn write(self: Box<Self>, reply: &mut ReplyWriter<'_>) -> Effect {
        if let Some(error) = &self.error {
            reply.error(error.as_bytes());
            return Effect::None;
        }
        match self.purpose {
            Purpose::Size => {
                reply.integer(self.scanned as i64);
                return Effect::None;
            }
            Purpose::Flush { .. } => {
                reply.simple("OK");
                return Effect::None;
            }
            Purpose::Some { cursors, .. } => {
                let is_done = self.scan.is_done();
                let cursor = if is_done { 0 } else { cursors.remember(self.keyspace, self.scan) };
                reply.array(2);
                reply.bulk(cursor.to_string().as_bytes());
            }
            Purpose::All => {}
        }
        reply.array(self.found.len());
        self.found.into_iter().for_each(|key| reply.bulk(&key));
        Effect::None
    }

    fn memory(&self) -> usize {
        self.scan.memory() + self.found.capacity() * size_of::<Box<[u8]>>() + self.found_bytes
    }
}
