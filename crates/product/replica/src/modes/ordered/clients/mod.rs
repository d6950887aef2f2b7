//! What a partition remembers of its clients, so that an op id takes effect at most once (R10).
//!
//! A result is remembered until the client's *watermark* has passed it: the client says with every op below which sequence it has all its
//! answers. One op that hangs in some other partition holds a client's watermark back everywhere, so what is remembered is bounded:
//! * of one client in bytes ([`CLIENT_BYTES_MAX`]): beyond it the oldest results go, and the watermark is raised over them here;
//! * of all in bytes ([`CLIENTS_BYTES_MAX`](crate::modes::CLIENTS_BYTES_MAX)): beyond it the clients go whose last decision here is the longest ago, however old or
//!   young they are, and the *horizon* is raised to the newest id among them.
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
//! A forgotten client stays forgotten, though ops of it that others took in are still decided: else it would seem to be known wholly.
//! Nothing is forgotten otherwise, so an op that is neither remembered, nor below its client's watermark, nor of an unknown client up to
//! the horizon was never decided here. An op that is, is refused as "expired, outcome unknown"; it is not executed. That hits a client
//! that was idle on this partition for so long that thousands of others were heard since: its library goes on under a new id, which is
//! above every horizon. The node's own client does the same (`Host::renew_internal_client`).
//!
//! A joiner knows little of clients until it has imported what the primary knows, which takes several pieces; the last one tells the
//! horizon, and whoever is below it and was in none of them is forgotten here, too.
//!
//! Use is counted in decisions, so members forget about alike, also after joining; but nothing depends on that: what one of them calls
//! expired another may still know the result of, and both answers are true.

mod export;
mod named;
mod result;

use crate::modes::bounds::CLIENT_BYTES_MAX;
use crate::modes::ordered::ordered::Ordered;
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
    /// It has not been decided here.
    New,
    /// It was decided.
    Finished(&'a StoredResult),
    /// It is older than what is remembered: it must not be executed, and its outcome is not known.
    Expired,
}

/// What a client takes in memory besides its results, about.
const CLIENT_FIXED_BYTES: usize = 64;
/// One of so many parts of what is remembered goes when there is too much.
const FORGOTTEN_PART: usize = 8;

#[derive(Clone)]
struct ClientRecord {
    /// Ops with a smaller sequence are finished, or forgotten.
    watermark: u64,
    results: Ordered<StoredResult>,
    /// What it takes.
    bytes: usize,
    /// Its last decision here.
    last_used: u64,
    /// It was in a piece of the import that is under way.
    is_imported: bool,
}

impl Default for ClientRecord {
    fn default() -> Self {
        let (watermark, results, bytes) = (0, Ordered::default(), CLIENT_FIXED_BYTES);
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

/// The deduplication records of one partition.
#[derive(Clone)]
pub(crate) struct Clients {
    table: BTreeMap<ClientId, ClientRecord>,
    /// What they take.
    bytes: usize,
    bytes_max: usize,
    /// Clients up to this one may have been forgotten.
    horizon: ClientId,
    /// Large values that results name.
    named: Named,
}

impl Clients {
    /// Of a partition that has not heard of any, and may take so much for them.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { table: BTreeMap::new(), bytes: 0, bytes_max, horizon: ClientId(0), named: Named::default() }
    }

    /// Large values that results have come to name, or name no more, since this was asked last: in their order.
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

    /// Forgets everything, without a trace.
    pub(crate) fn clear(&mut self) {
        let mut named = core::mem::take(&mut self.named);
        self.table.values().for_each(|record| named.forget(record));
        *self = Self { named, ..Self::new(self.bytes_max) };
    }

    /// The newest client that may have been forgotten, if `client` is such a one.
    pub(crate) fn horizon_over(&self, client: ClientId) -> Option<ClientId> {
        (!self.table.contains_key(&client) && client <= self.horizon).then_some(self.horizon)
    }

    /// Takes note of the watermark that an op carries; older results are not asked for again. A client becomes known by a decision.
    pub(crate) fn advance(&mut self, client: ClientId, watermark: u64) {
        if let Some(record) = self.table.get_mut(&client) {
            let before = record.bytes;
            record.advance(watermark, &mut self.named);
            self.bytes = self.bytes - before + record.bytes;
        }
    }

    /// Remembers the result of an op that was decided at `index`. A first result stands for ever, but "expired" is none: a joiner may
    /// be told so before it is told the result.
    pub(crate) fn remember(&mut self, op: OpId, index: u64, result: StoredResult) {
        self.use_client(op.client, index, |record, named| {
            record.remember(op.sequence, result, named);
        });
        self.make_room(op.client);
    }

    /// Changes what is known of a client that is not forgotten.
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

    /// Forgets those that were not used for the longest time, if all take too much; not `used`. So many at once that it is rare.
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
