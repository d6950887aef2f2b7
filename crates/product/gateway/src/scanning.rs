//! Commands on all keys: SCAN, KEYS, DBSIZE, FLUSHDB and FLUSHALL, each made of requests for pieces (`nicekv_client::Scan`).
//!
//! ```text
//!   SCAN 0 ─▶ pieces, one after the other, until there are as many keys as asked for ─▶ [cursor, keys]
//!   KEYS, DBSIZE ─▶ pieces, several at a time, until nothing is left
//!   FLUSHDB ─▶ pieces, and deletes of the keys in them before others are asked for; FLUSHALL ─▶ the same of one keyspace after the other
//! ```
//!
//! A cursor is a number for what is left of a scan, which the gateway keeps: the last ones of all its clients, each for any number of uses. Redis keeps
//! nothing, since its cursors are places in its table; here a place is a key, which is no number. One that was forgotten, or is another gateway's, is
//! refused as invalid.

use crate::answered::Answered;
use crate::asking::Asking;
use crate::error::CommandError;
use crate::reply::ReplyWriter;
use nicekv_client::{Request, Scan};
use nicekv_proto::glob;
use nicekv_proto::scan::{ScanWants, Scanned};
use nicekv_proto::{Form, KeyspaceId, Operation};
use nicekv_runtime::now;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Cursors that are remembered.
const CURSORS_MAX: usize = 4_096;
/// Pieces that KEYS and DBSIZE ask for at a time.
const PIECES_MAX: usize = 8;
/// Keys that FLUSHDB deletes at a time.
const DELETES_MAX: usize = 64;
/// The part that every delete is: no piece has that number.
const DELETE: u32 = u32::MAX;

/// The cursors of a gateway; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cursors(Arc<Mutex<Remembered>>);

#[derive(Debug, Default)]
struct Remembered {
    /// Oldest first, by their numbers, which are consecutive.
    scans: VecDeque<(KeyspaceId, Scan)>,
    /// The number of the first; 0, which is for the beginning of a scan: there has been none yet.
    first: u64,
}

impl Cursors {
    fn remember(&self, keyspace: KeyspaceId, scan: Scan) -> u64 {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.first == 0 {
            // Those of another gateway, or of one before, are others. Clients take them for 64-bit numbers, some for signed ones.
            remembered.first = (now().unix_ms << 20) & (u64::MAX >> 1) | 1;
        }
        if remembered.scans.len() == CURSORS_MAX {
            remembered.scans.pop_front();
            remembered.first += 1;
        }
        remembered.scans.push_back((keyspace, scan));
        remembered.first + remembered.scans.len() as u64 - 1
    }

    /// What is left at a cursor of a keyspace.
    pub(crate) fn at(&self, cursor: u64, keyspace: KeyspaceId) -> Option<Scan> {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = usize::try_from(cursor.checked_sub(remembered.first)?).ok()?;
        let (of, scan) = remembered.scans.get(place)?;
        (*of == keyspace).then(|| scan.clone())
    }
}

/// What a command makes of the keys.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// SCAN: so many are enough.
    Some { count: usize, cursors: Cursors },
    /// KEYS.
    All,
    /// DBSIZE.
    Size,
    /// FLUSHDB, FLUSHALL.
    Flush {
        /// What is flushed afterwards, the last one first.
        rest: Vec<KeyspaceId>,
    },
}

/// Which keys are listed.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) pattern: Option<Box<[u8]>>,
    /// Only hashes, or only what is none.
    pub(crate) is_hash: Option<bool>,
}

impl Filter {
    fn lets(&self, found: &Scanned<'_>) -> bool {
        self.is_hash.is_none_or(|is_hash| is_hash == (found.form == Form::Hash))
            && self.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, found.key))
    }
}

/// A command on all keys, under way.
#[derive(Debug)]
pub(crate) struct Scanning {
    keyspace: KeyspaceId,
    scan: Scan,
    purpose: Purpose,
    filter: Filter,
    /// Keys that were looked at.
    looked_at: u64,
    /// Keys that are listed, or are to be deleted.
    found: Vec<Box<[u8]>>,
    found_bytes: usize,
    /// Deletes that are not answered yet, and the key of the last one.
    deletes: usize,
    deleted: Box<[u8]>,
    error: Option<CommandError>,
}

impl Scanning {
    pub(crate) fn new(keyspace: KeyspaceId, scan: Scan, purpose: Purpose, filter: Filter) -> Self {
        Self {
            keyspace,
            scan,
            purpose,
            filter,
            looked_at: 0,
            found: Vec::new(),
            found_bytes: 0,
            deletes: 0,
            deleted: Box::default(),
            error: None,
        }
    }

    /// Of everything that a keyspace holds.
    pub(crate) fn of_all(keyspace: KeyspaceId, purpose: Purpose, filter: Filter) -> Self {
        let wants = if matches!(purpose, Purpose::Size) { ScanWants::Count } else { ScanWants::Keys };
        Self::new(keyspace, Scan::new(wants, None), purpose, filter)
    }

    fn next_delete(&mut self) -> Option<(KeyspaceId, u32, Request<'_>)> {
        if self.deletes == DELETES_MAX {
            return None;
        }
        self.deleted = self.found.pop()?;
        self.found_bytes -= self.deleted.len();
        self.deletes += 1;
        Some((self.keyspace, DELETE, Request::update(&self.deleted, Operation::Delete)))
    }

    /// Goes on with the next keyspace that is to be flushed, if nothing is left of this one.
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
                Purpose::Some { count, .. } => self.looked_at >= *count as u64 || self.scan.is_done(),
                Purpose::All | Purpose::Size => self.scan.is_done(),
                Purpose::Flush { rest } => rest.is_empty() && self.found.is_empty() && self.scan.is_done(),
            }
    }

    fn note(&mut self, found: Scanned<'_>) {
        if self.filter.lets(&found) {
            self.found_bytes += found.key.len();
            self.found.push(found.key.into());
        }
    }
}

impl Asking for Scanning {
    fn next(&mut self) -> Option<(KeyspaceId, u32, Request<'_>)> {
        if self.has_enough() {
            return None;
        }
        if matches!(self.purpose, Purpose::Flush { .. }) && !self.found.is_empty() {
            return self.next_delete();
        }
        self.begin_next();
        let at_once = if matches!(self.purpose, Purpose::Some { .. }) { 1 } else { PIECES_MAX };
        if self.scan.asked() >= at_once {
            return None;
        }
        let part = self.scan.unasked()?;
        Some((self.keyspace, part, self.scan.ask(part)))
    }

    fn take(&mut self, part: u32, answered: Answered<'_>) -> bool {
        match answered.result {
            Ok(_) if part == DELETE => self.deletes -= 1,
            Ok(answer) => {
                let mut taken = Vec::new();
                self.scan.take(part, answer.pieces(), |piece| taken.push(*piece));
                for piece in taken {
                    self.looked_at += u64::from(piece.count);
                    piece.entries().for_each(|entry| self.note(entry));
                }
            }
            Err(error) => self.fail(part, error.into()),
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

    fn is_over(&self) -> bool {
        self.has_enough() && self.scan.asked() == 0 && self.deletes == 0
    }

    fn write(self: Box<Self>, reply: &mut ReplyWriter<'_>) {
        if let Some(error) = &self.error {
            return reply.error(error.as_bytes());
        }
        match self.purpose {
            Purpose::Size => return reply.integer(self.looked_at as i64),
            Purpose::Flush { .. } => return reply.simple("OK"),
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
    }

    fn memory(&self) -> usize {
        self.scan.memory() + self.found.capacity() * size_of::<Box<[u8]>>() + self.found_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_for_its_keyspace_and_the_oldest_are_forgotten() {
        let cursors = Cursors::default();
        let scan = |after: &[u8]| Scan::new(ScanWants::Keys, Some(after));
        let (keyspace, other) = (KeyspaceId(0), KeyspaceId(1));
        let first = cursors.remember(keyspace, scan(b"a"));
        let second = cursors.remember(other, scan(b"b"));
        assert!(first > 0 && first < second && second < 1 << 63);
        assert_eq!(cursors.at(first, keyspace), Some(scan(b"a")));
        assert_eq!(cursors.at(first, keyspace), Some(scan(b"a")), "as often as one likes");
        assert_eq!((cursors.at(second, keyspace), cursors.at(second, other)), (None, Some(scan(b"b"))));
        assert_eq!((cursors.at(0, keyspace), cursors.at(second + 1, keyspace)), (None, None));
        for _ in 0..CURSORS_MAX - 1 {
            cursors.remember(keyspace, scan(b"c"));
        }
        assert_eq!((cursors.at(first, keyspace), cursors.at(second, other)), (None, Some(scan(b"b"))));
    }
}
