//! Client records: remembered results of ops, so that an op id takes effect at most once (R10).
//!
//! A result is kept until the client's *watermark* has passed it. With every op a client sends the
//! sequence number below which it has received all its answers. One op that hangs in another
//! partition keeps the watermark from rising everywhere, so memory needs bounds:
//! * per client, in bytes ([`CLIENT_BYTES_MAX`]): beyond it the client's oldest results are
//!   forgotten, and the watermark kept here is raised over them;
//! * for all clients, in bytes ([`CLIENTS_BYTES_MAX`](crate::modes::CLIENTS_BYTES_MAX)): beyond it
//!   the clients whose last decision is oldest are forgotten, however old their ids are, and the
//!   *horizon* is raised to the newest id among them.
//!
//! ```text
//!   id, by time of creation ──▶   a    b    c    d    e    f    g    h
//!   remembered                    yes            yes            yes   (a is old, and active here)
//!   forgotten                          x              x
//!   horizon                                          ─┘
//!   unknown: refused                        c                         (maybe never seen here: it takes a new id)
//!   unknown: accepted                                      f         h
//! ```
//!
//! A forgotten client stays forgotten even if later ops of it are decided, which other members
//! accepted; otherwise its record would seem complete. So an op was certainly not decided here if
//! all of this holds: its result is not remembered, it is not below its client's watermark, and its
//! client is known or above the horizon. All other ops without a result are refused as "expired,
//! outcome unknown", and not executed. That happens to a client that was idle on this partition
//! while thousands of others were active: its library continues with a new id, which is above every
//! horizon. The node's own client does the same (`Host::renew_internal_client`).
//!
//! A joiner imports the primary's records in several pieces. The last piece carries the horizon;
//! clients up to the horizon that were in none of the pieces are forgotten at the joiner, too.
//!
//! Age is counted in decisions, so members forget about the same clients, even after a join.
//! Correctness does not depend on that: one member may call an op expired while another still knows
//! its result, and both answers are true.

mod export;
mod named;
mod result;

use crate::modes::bounds::CLIENT_BYTES_MAX;
use crate::modes::ordered::number_map::NumberMap;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
pub(crate) use export::ExportCursor;
use named::Named;
use nicekv_proto::{ClientId, OpId, Status};
pub(crate) use result::StoredResult;

/// The result of looking up an op that is not open.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lookup<'a> {
    /// It was certainly not decided here.
    New,
    /// It was decided, with this result.
    Finished(&'a StoredResult),
    /// It is older than the records. It must not be executed, and its outcome is unknown.
    Expired,
}

/// About how many bytes a client record takes without its results.
const CLIENT_FIXED_BYTES: usize = 64;
/// When memory is full, 1/8 of it is freed at once.
const FORGOTTEN_PART: usize = 8;

#[derive(Clone)]
struct ClientRecord {
    /// Ops with smaller sequence numbers are finished or forgotten.
    watermark: u64,
    results: NumberMap<StoredResult>,
    /// Bytes that this record takes.
    bytes: usize,
    /// Index of the client's last decision in this partition.
    last_used: u64,
    /// A piece of the current import contained this client.
    is_imported: bool,
}

impl Default for ClientRecord {
    fn default() -> Self {
        let (watermark, results, bytes) = (0, NumberMap::default(), CLIENT_FIXED_BYTES);
        Self { watermark, results, bytes, last_used: 0, is_imported: false }
    }
}

impl ClientRecord {
    fn advance(&mut self, watermark: u64, named: &mut Named) {
        self.watermark = self.watermark.max(watermark);
        while self.results.first().is_some_and(|sequence| sequence < self.watermark) {
            self.pop_oldest(named);
        }
    }

    fn remember(&mut self, sequence: u64, result: StoredResult, named: &mut Named) {
        let known = self.results.get(sequence);
        if sequence < self.watermark || known.is_some_and(|known| known.status != Status::Expired) {
            return;
        }
        self.bytes += result.bytes();
        named.add(&result);
        if let Some(replaced) = self.results.insert(sequence, result) {
            self.bytes -= replaced.bytes();
        }
        while self.bytes > CLIENT_BYTES_MAX {
            self.watermark = self.pop_oldest(named) + 1;
        }
    }

    /// Forgets the client's oldest result; returns its sequence number.
    fn pop_oldest(&mut self, named: &mut Named) -> u64 {
        let (sequence, result) = self.results.pop_first().expect("there is one");
        self.bytes -= result.bytes();
        named.remove(&result);
        sequence
    }
}

/// The client records of one partition.
#[derive(Clone)]
pub(crate) struct Clients {
    table: BTreeMap<ClientId, ClientRecord>,
    /// Bytes that all records take.
    bytes: usize,
    bytes_max: usize,
    /// The newest id among forgotten clients: clients with an id up to this one may have been
    /// forgotten.
    horizon: ClientId,
    /// Changes in which large values results name.
    named: Named,
}

impl Clients {
    /// Empty records, with a bound on their memory.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { table: BTreeMap::new(), bytes: 0, bytes_max, horizon: ClientId(0), named: Named::default() }
    }

    /// Takes the changes since the last call, in order: a large value, and true if one more result
    /// names it, false if one less does.
    pub(crate) fn take_named(&mut self) -> impl Iterator<Item = (OpId, bool)> {
        self.named.take()
    }

    pub(crate) fn lookup(&self, op: OpId) -> Lookup<'_> {
        match self.table.get(&op.client) {
            None if op.client <= self.horizon => Lookup::Expired,
            None => Lookup::New,
            Some(record) => match record.results.get(op.sequence) {
                Some(result) => Lookup::Finished(result),
                None if op.sequence < record.watermark => Lookup::Expired,
                None => Lookup::New,
            },
        }
    }

    /// Removes all records without raising the horizon.
    pub(crate) fn clear(&mut self) {
        let mut named = core::mem::take(&mut self.named);
        self.table.values().for_each(|record| named.forget(record));
        *self = Self { named, ..Self::new(self.bytes_max) };
    }

    /// The horizon, if `client` is unknown and not above it.
    pub(crate) fn horizon_over(&self, client: ClientId) -> Option<ClientId> {
        (!self.table.contains_key(&client) && client <= self.horizon).then_some(self.horizon)
    }

    /// An op carries its client's watermark: forgets the results below it. This creates no record;
    /// only a decision makes a client known.
    pub(crate) fn advance(&mut self, client: ClientId, watermark: u64) {
        if let Some(record) = self.table.get_mut(&client) {
            let before = record.bytes;
            record.advance(watermark, &mut self.named);
            self.bytes = self.bytes - before + record.bytes;
        }
    }

    /// Remembers the result of an op that decision `index` has decided. The first result is never
    /// replaced, except "expired", which a joiner may receive before the true result.
    pub(crate) fn remember(&mut self, op: OpId, index: u64, result: StoredResult) {
        self.use_client(op.client, index, |record, named| {
            record.remember(op.sequence, result, named);
        });
        self.make_room(op.client);
    }

    /// Changes a client's record, or creates it. A client that may have been forgotten gets none.
    fn use_client(
        &mut self,
        client: ClientId,
        index: u64,
        change: impl FnOnce(&mut ClientRecord, &mut Named),
    ) {
        let (record, known) = match self.table.entry(client) {
            Entry::Occupied(entry) => {
                let record = entry.into_mut();
                let known = record.bytes;
                (record, known)
            }
            Entry::Vacant(_) if client <= self.horizon => return,
            Entry::Vacant(entry) => (entry.insert(ClientRecord::default()), 0),
        };
        record.last_used = record.last_used.max(index);
        change(record, &mut self.named);
        self.bytes = self.bytes - known + record.bytes;
    }

    /// If memory is full, forgets the least recently used clients except `used`. It forgets many at
    /// once, so that this happens rarely.
    fn make_room(&mut self, used: ClientId) {
        if self.bytes <= self.bytes_max {
            return;
        }
        let mut by_use: Vec<(u64, ClientId)> =
            self.table.iter().map(|(client, record)| (record.last_used, *client)).collect();
        by_use.sort_unstable();
        for (_, client) in by_use.into_iter().filter(|(_, client)| *client != used) {
            if self.bytes <= self.bytes_max / FORGOTTEN_PART * (FORGOTTEN_PART - 1) {
                return;
            }
            let record = self.table.remove(&client).expect("listed");
            self.bytes -= record.bytes;
            self.named.forget(&record);
            self.horizon = self.horizon.max(client);
        }
    }
}

#[cfg(test)]
mod tests;
