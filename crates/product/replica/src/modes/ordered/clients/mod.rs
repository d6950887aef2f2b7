//! Client records: results of ops, so that an op id takes effect at most once (R10).
//!
//! A result is kept until the client's *watermark* has passed it: with every op the client names a
//! sequence below which it has all its answers. One op that hangs in another partition holds the
//! watermark back everywhere, so memory is bounded:
//! * per client, in bytes ([`CLIENT_BYTES_MAX`]): beyond it the oldest results go, and the
//!   watermark is raised over them here;
//! * for all clients, in bytes ([`CLIENTS_BYTES_MAX`](crate::modes::CLIENTS_BYTES_MAX)): beyond it
//!   the clients with the oldest last decision are forgotten, whatever their age, and the *horizon*
//!   is raised to the newest id among them.
//!
//! ```text
//!   id, by time of creation ──▶   a    b    c    d    e    f    g    h
//!   remembered                    yes            yes            yes   (a is old, and busy here)
//!   forgotten                          x              x
//!   horizon                                          ─┘
//!   unknown: refused                        c                         (maybe never seen here: it takes a new id)
//!   unknown: taken in                                      f         h
//! ```
//!
//! A forgotten client stays forgotten, even though ops of it that others took in are still decided;
//! otherwise it would seem to be known completely. Nothing else is forgotten. So an op was never
//! decided here if it is not remembered, not below its client's watermark, and not of an unknown
//! client up to the horizon. Other ops are refused as "expired, outcome unknown", and not executed.
//! That hits a client that was idle on this partition while thousands of others were active: its
//! library goes on under a new id, which is above every horizon. The node's own client does the
//! same (`Host::renew_internal_client`).
//!
//! A joiner imports the primary's records in several pieces. The last piece carries the horizon;
//! clients below it that were in none of the pieces are forgotten here, too.
//!
//! Age is counted in decisions, so members forget about the same clients, also after joining.
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

/// What is known of an op that is not open.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lookup<'a> {
    /// It was not decided here.
    New,
    /// It was decided.
    Finished(&'a StoredResult),
    /// It is older than the records: it must not be executed, and its outcome is unknown.
    Expired,
}

/// About how much memory a client takes besides its results.
const CLIENT_FIXED_BYTES: usize = 64;
/// When memory is full, one in this many clients is forgotten at once.
const FORGOTTEN_PART: usize = 8;

#[derive(Clone)]
struct ClientRecord {
    /// Ops with smaller sequences are finished, or forgotten.
    watermark: u64,
    results: NumberMap<StoredResult>,
    /// Memory that it takes.
    bytes: usize,
    /// Its last decision here.
    last_used: u64,
    /// It was in a piece of the current import.
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

    /// Forgets the oldest result; returns its sequence.
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
    /// Memory that they take.
    bytes: usize,
    bytes_max: usize,
    /// Clients up to this one may have been forgotten.
    horizon: ClientId,
    /// Large values that results name.
    named: Named,
}

impl Clients {
    /// Empty records, with a bound on their memory.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { table: BTreeMap::new(), bytes: 0, bytes_max, horizon: ClientId(0), named: Named::default() }
    }

    /// Changes since the last call in which large values results name, in order; true: one more
    /// result names it.
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

    /// Removes everything without raising the horizon.
    pub(crate) fn clear(&mut self) {
        let mut named = core::mem::take(&mut self.named);
        self.table.values().for_each(|record| named.forget(record));
        *self = Self { named, ..Self::new(self.bytes_max) };
    }

    /// The newest client that may have been forgotten, if `client` is not above it.
    pub(crate) fn horizon_over(&self, client: ClientId) -> Option<ClientId> {
        (!self.table.contains_key(&client) && client <= self.horizon).then_some(self.horizon)
    }

    /// Takes note of the watermark that an op carries: older results are not asked for again. Only
    /// a decision makes a client known.
    pub(crate) fn advance(&mut self, client: ClientId, watermark: u64) {
        if let Some(record) = self.table.get_mut(&client) {
            let before = record.bytes;
            record.advance(watermark, &mut self.named);
            self.bytes = self.bytes - before + record.bytes;
        }
    }

    /// Remembers the result of the op that decision `index` decides. A first result stands for
    /// ever, except "expired", which a joiner may see before the result.
    pub(crate) fn remember(&mut self, op: OpId, index: u64, result: StoredResult) {
        self.use_client(op.client, index, |record, named| {
            record.remember(op.sequence, result, named);
        });
        self.make_room(op.client);
    }

    /// Changes the record of a client that is not forgotten.
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

    /// If memory is full, forgets the least recently used clients, but not `used`; many at once, so
    /// that it is rare.
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
