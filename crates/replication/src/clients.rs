//! What a partition remembers of its clients, so that an op id takes effect at most once (R10).
//!
//! A result is remembered until the client's *watermark* has passed it: the client says with every op below which sequence it has all its
//! answers. One op that hangs in some other partition holds a client's watermark back everywhere, so what is remembered is bounded:
//! * of one client in bytes ([`CLIENT_BYTES_MAX`]): beyond it the oldest results go, and the watermark is raised over them here;
//! * of all in bytes ([`CLIENTS_BYTES_MAX`](crate::CLIENTS_BYTES_MAX)): beyond it the clients go whose last decision here is the longest ago, however old or
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

use crate::config::CLIENT_BYTES_MAX;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;
use nicekv_wire::bytes::Reader;
use nicekv_wire::replication::Decision;
use nicekv_wire::{ClientId, DecodeError, OpId, Reply, Status};
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The remembered result of a decided op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredResult {
    pub(crate) status: Status,
    version: OpId,
    expiry_ms: u64,
    integer: i64,
    value: Option<Box<[u8]>>,
}

impl StoredResult {
    pub(crate) fn of(decision: &Decision<'_>) -> Self {
        Self {
            status: decision.status,
            version: decision.version,
            expiry_ms: decision.expiry_ms,
            integer: decision.integer,
            value: decision.value_is_result.then(|| decision.value.into()),
        }
    }

    pub(crate) fn reply(&self, op: OpId) -> Reply<'_> {
        Reply {
            op,
            status: self.status,
            version: self.version,
            expiry_ms: self.expiry_ms,
            integer: self.integer,
            value: self.value.as_deref(),
        }
    }
}

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
/// What a result takes in memory besides its value, about.
const RESULT_FIXED_BYTES: usize = 96;
/// One of so many parts of what is remembered goes when there is too much.
const FORGOTTEN_PART: usize = 8;

impl StoredResult {
    fn bytes(&self) -> usize {
        RESULT_FIXED_BYTES + self.value.as_ref().map_or(0, |value| value.len())
    }
}

#[derive(Clone)]
struct ClientRecord {
    /// Ops with a smaller sequence are finished, or forgotten.
    watermark: u64,
    results: BTreeMap<u64, StoredResult>,
    /// What it takes.
    bytes: usize,
    /// Its last decision here.
    last_used: u64,
    /// It was in a piece of the import that is under way.
    is_imported: bool,
}

impl Default for ClientRecord {
    fn default() -> Self {
        let (watermark, results, bytes) = (0, BTreeMap::new(), CLIENT_FIXED_BYTES);
        Self { watermark, results, bytes, last_used: 0, is_imported: false }
    }
}

impl ClientRecord {
    fn advance(&mut self, watermark: u64) {
        self.watermark = self.watermark.max(watermark);
        while self.results.first_key_value().is_some_and(|(sequence, _)| *sequence < self.watermark) {
            self.pop_oldest();
        }
    }

    fn remember(&mut self, sequence: u64, result: StoredResult) {
        let known = self.results.get(&sequence);
        if sequence < self.watermark || known.is_some_and(|known| known.status != Status::Expired) {
            return;
        }
        self.bytes += result.bytes();
        if let Some(replaced) = self.results.insert(sequence, result) {
            self.bytes -= replaced.bytes();
        }
        while self.bytes > CLIENT_BYTES_MAX {
            self.watermark = self.pop_oldest() + 1;
        }
    }

    /// Forgets the oldest result; returns its sequence.
    fn pop_oldest(&mut self) -> u64 {
        let (sequence, result) = self.results.pop_first().expect("there is one");
        self.bytes -= result.bytes();
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
}

/// How far an export has got: all clients before this one, and of this one the results up to `sequence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExportCursor {
    client: ClientId,
    sequence: u64,
}

impl ExportCursor {
    pub(crate) const START: Self = Self { client: ClientId(0), sequence: u64::MAX };

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.client.0.to_be_bytes());
        bytes[8..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote; of anything else, and of nothing, the start.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let Ok(bytes) = <[u8; 16]>::try_from(bytes) else { return Self::START };
        let bits = u128::from_be_bytes(bytes);
        Self { client: ClientId((bits >> 64) as u64), sequence: bits as u64 }
    }
}

impl Clients {
    /// Of a partition that has not heard of any, and may take so much for them.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { table: BTreeMap::new(), bytes: 0, bytes_max, horizon: ClientId(0) }
    }

    pub(crate) fn lookup(&self, op: OpId) -> Lookup<'_> {
        match self.table.get(&op.client) {
            None if op.client <= self.horizon => Lookup::Expired,
            None => Lookup::New,
            Some(record) => match record.results.get(&op.sequence) {
                Some(result) => Lookup::Finished(result),
                None if op.sequence < record.watermark => Lookup::Expired,
                None => Lookup::New,
            },
        }
    }

    /// Forgets everything, without a trace.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.bytes_max);
    }

    /// The newest client that may have been forgotten, if `client` is such a one.
    pub(crate) fn horizon_over(&self, client: ClientId) -> Option<ClientId> {
        (!self.table.contains_key(&client) && client <= self.horizon).then_some(self.horizon)
    }

    /// Takes note of the watermark that an op carries; older results are not asked for again. A client becomes known by a decision.
    pub(crate) fn advance(&mut self, client: ClientId, watermark: u64) {
        if let Some(record) = self.table.get_mut(&client) {
            let before = record.bytes;
            record.advance(watermark);
            self.bytes = self.bytes - before + record.bytes;
        }
    }

    /// Remembers the result of an op that was decided at `index`. A first result stands for ever, but "expired" is none: a joiner may
    /// be told so before it is told the result.
    pub(crate) fn remember(&mut self, op: OpId, index: u64, result: StoredResult) {
        self.use_client(op.client, index, |record| record.remember(op.sequence, result));
        self.make_room(op.client);
    }

    /// Changes what is known of a client that is not forgotten.
    fn use_client(&mut self, client: ClientId, index: u64, change: impl FnOnce(&mut ClientRecord)) {
        if self.horizon_over(client).is_some() {
            return;
        }
        let known = self.table.get(&client).map_or(0, |record| record.bytes);
        let record = self.table.entry(client).or_default();
        record.last_used = record.last_used.max(index);
        change(record);
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
            self.horizon = self.horizon.max(client);
        }
    }

    /// The records after `cursor`, up to about `bytes_max`; where they end; and whether there are more. A client's results may fall
    /// into several pieces.
    pub(crate) fn export(&self, cursor: ExportCursor, bytes_max: usize) -> (Vec<u8>, ExportCursor, bool) {
        let mut piece = Vec::new();
        nicekv_wire::bytes::put(&mut piece, &PieceLayout { horizon: 0.into(), is_last: 0 });
        let mut end = cursor;
        for (client, record) in self.table.range(cursor.client..) {
            let mut from = Bound::Unbounded;
            if *client == cursor.client {
                from = Bound::Excluded(cursor.sequence);
                if record.results.range((from, Bound::Unbounded)).next().is_none() {
                    continue;
                }
            }
            if piece.len() >= bytes_max && end != cursor {
                return (piece, end, true);
            }
            end = append_client(&mut piece, *client, record, from, bytes_max);
            if record.results.last_key_value().is_some_and(|(last, _)| *last > end.sequence) {
                return (piece, end, true);
            }
        }
        let head = PieceLayout { horizon: self.horizon.0.into(), is_last: 1 };
        piece[..size_of::<PieceLayout>()].copy_from_slice(head.as_bytes());
        (piece, end, false)
    }

    /// Merges a piece of an export; returns where it ends.
    pub(crate) fn import(&mut self, piece: &[u8]) -> Result<ExportCursor, DecodeError> {
        let mut reader = Reader::new(piece);
        let head: PieceLayout = reader.layout("head of client records")?;
        let mut end = ExportCursor::START;
        while !reader.is_empty() {
            let client: ClientLayout = reader.layout("client")?;
            let id = ClientId(client.client.get());
            end = ExportCursor { client: id, sequence: 0 };
            let last_used = client.last_used.get();
            self.use_client(id, last_used, |record| {
                record.is_imported = true;
                record.advance(client.watermark.get());
            });
            for _ in 0..client.result_count.get() {
                let (sequence, result) = read_result(&mut reader)?;
                self.use_client(id, last_used, |record| record.remember(sequence, result));
                end.sequence = sequence;
            }
            self.make_room(id);
        }
        if head.is_last != 0 {
            self.end_import(ClientId(head.horizon.get()));
        }
        Ok(end)
    }

    /// Forgets whom the source has forgotten: of these not everything may be known here.
    fn end_import(&mut self, horizon: ClientId) {
        self.horizon = self.horizon.max(horizon);
        self.table.retain(|client, record| *client > horizon || record.is_imported);
        self.table.values_mut().for_each(|record| record.is_imported = false);
        self.bytes = self.table.values().map(|record| record.bytes).sum();
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PieceLayout {
    /// In the last piece.
    horizon: U64,
    is_last: u8,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ClientLayout {
    client: U64,
    watermark: U64,
    last_used: U64,
    result_count: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ResultLayout {
    sequence: U64,
    version_client: U64,
    version_sequence: U64,
    expiry_ms: U64,
    integer: U64,
    status: u8,
    has_value: u8,
    value_length: U16,
}

/// Appends a client with its results in `from..`, or as many as fit; returns where that ends.
fn append_client(
    out: &mut Vec<u8>,
    client: ClientId,
    record: &ClientRecord,
    from: Bound<u64>,
    bytes_max: usize,
) -> ExportCursor {
    let start = out.len();
    let mut layout = ClientLayout {
        client: client.0.into(),
        watermark: record.watermark.into(),
        last_used: record.last_used.into(),
        result_count: 0.into(),
    };
    nicekv_wire::bytes::put(out, &layout);
    let (mut count, mut end) = (0u32, ExportCursor { client, sequence: 0 });
    for (sequence, result) in record.results.range((from, Bound::Unbounded)) {
        append_result(out, *sequence, result);
        (count, end.sequence) = (count + 1, *sequence);
        if out.len() >= bytes_max {
            break;
        }
    }
    layout.result_count = count.into();
    out[start..start + size_of::<ClientLayout>()].copy_from_slice(layout.as_bytes());
    end
}

fn append_result(out: &mut Vec<u8>, sequence: u64, result: &StoredResult) {
    let value = result.value.as_deref().unwrap_or_default();
    let layout = ResultLayout {
        sequence: sequence.into(),
        version_client: result.version.client.0.into(),
        version_sequence: result.version.sequence.into(),
        expiry_ms: result.expiry_ms.into(),
        integer: (result.integer as u64).into(),
        status: result.status as u8,
        has_value: result.value.is_some().into(),
        value_length: (value.len() as u16).into(),
    };
    nicekv_wire::bytes::put(out, &layout);
    out.extend_from_slice(value);
}

fn read_result(reader: &mut Reader<'_>) -> Result<(u64, StoredResult), DecodeError> {
    let layout: ResultLayout = reader.layout("result")?;
    let value = reader.bytes(layout.value_length.get().into(), "value_length")?;
    let result = StoredResult {
        status: Status::decode(layout.status)?,
        version: OpId {
            client: ClientId(layout.version_client.get()),
            sequence: layout.version_sequence.get(),
        },
        expiry_ms: layout.expiry_ms.get(),
        integer: layout.integer.get() as i64,
        value: (layout.has_value != 0).then(|| value.into()),
    };
    Ok((layout.sequence.get(), result))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CLIENTS_BYTES_MAX;

    impl Default for Clients {
        fn default() -> Self {
            Self::new(CLIENTS_BYTES_MAX)
        }
    }

    fn op(client: u64, sequence: u64) -> OpId {
        OpId { client: ClientId(client), sequence }
    }

    fn result(integer: i64) -> StoredResult {
        let value = Some(b"old".as_slice().into());
        StoredResult { status: Status::Ok, version: op(1, 1), expiry_ms: 7, integer, value }
    }

    #[test]
    fn a_result_is_kept_until_the_client_has_moved_on() {
        let mut clients = Clients::default();
        assert_eq!(clients.lookup(op(5, 1)), Lookup::New);
        clients.remember(op(5, 1), 1, result(1));
        clients.remember(op(5, 1), 2, result(2));
        assert_eq!(clients.lookup(op(5, 1)), Lookup::Finished(&result(1)));
        clients.advance(ClientId(5), 2);
        assert_eq!(clients.lookup(op(5, 1)), Lookup::Expired);
        assert_eq!(clients.lookup(op(5, 2)), Lookup::New);
    }

    /// Clients that each take as much, up to about `count` of them.
    fn room_for(count: usize) -> Clients {
        let bytes_max = count * (CLIENT_FIXED_BYTES + result(0).bytes());
        Clients::new(bytes_max)
    }

    #[test]
    fn what_is_forgotten_is_what_was_not_used_for_long_however_old() {
        let mut clients = room_for(16);
        // The oldest goes on all the time.
        for round in 0..100 {
            clients.remember(op(1, round), 2 * round, result(1));
            clients.advance(ClientId(1), round);
            clients.remember(op(10 + round, 1), 2 * round + 1, result(2));
            assert!(clients.bytes <= clients.bytes_max);
        }
        assert_eq!(clients.lookup(op(1, 99)), Lookup::Finished(&result(1)));
        assert_eq!(clients.lookup(op(1, 100)), Lookup::New);
        assert_eq!(clients.lookup(op(109, 1)), Lookup::Finished(&result(2)));
        for forgotten in 10..90 {
            assert_eq!(clients.lookup(op(forgotten, 1)), Lookup::Expired, "{forgotten}");
            assert_eq!(clients.lookup(op(forgotten, 2)), Lookup::Expired, "it may have been decided");
        }
        // Older than one that was forgotten, and perhaps never here.
        assert_eq!(clients.lookup(op(5, 1)), Lookup::Expired);
        assert_eq!(clients.horizon_over(ClientId(5)), Some(clients.horizon));
        assert_eq!((clients.horizon_over(ClientId(1)), clients.horizon_over(ClientId(110))), (None, None));
        assert_eq!(clients.lookup(op(110, 1)), Lookup::New);
    }

    #[test]
    fn nothing_is_forgotten_before_the_bound_and_a_part_beyond_it() {
        let mut clients = room_for(16);
        (1..=16).for_each(|client| clients.remember(op(client, 1), client, result(1)));
        assert_eq!((clients.table.len(), clients.horizon), (16, ClientId(0)));
        clients.remember(op(17, 1), 17, result(1));
        assert_eq!((clients.table.len(), clients.horizon), (14, ClientId(3)));
        clients.clear();
        assert_eq!((clients.bytes, clients.horizon, clients.lookup(op(1, 1))), (0, ClientId(0), Lookup::New));
        assert_eq!(clients.bytes_max, room_for(16).bytes_max);
    }

    /// It was decided though this member had forgotten its client: of its other ops it is not known whether they were.
    #[test]
    fn who_is_forgotten_stays_so() {
        let mut clients = room_for(16);
        (1..=17).for_each(|client| clients.remember(op(client, 1), client, result(1)));
        assert_eq!(clients.lookup(op(2, 9)), Lookup::Expired);
        clients.remember(op(2, 9), 18, result(1));
        clients.advance(ClientId(2), 9);
        for sequence in [1, 9, 10] {
            assert_eq!(clients.lookup(op(2, sequence)), Lookup::Expired);
        }
    }

    /// A joiner has seen the newest ops of clients that the source forgets before it tells of them.
    #[test]
    fn who_is_not_in_an_import_is_forgotten_up_to_its_horizon() {
        let mut source = room_for(16);
        (1..=16).for_each(|client| source.remember(op(client, 1), client, result(1)));
        let mut joiner = room_for(100);
        [3, 10, 20].into_iter().for_each(|client| joiner.remember(op(client, 2), 40 + client, result(2)));
        let (piece, cursor, more) = source.export(ExportCursor::START, 400);
        assert!(more && cursor.client > ClientId(3) && cursor.client < ClientId(10));
        joiner.import(&piece).unwrap();
        assert_eq!(joiner.lookup(op(11, 1)), Lookup::New, "the horizon comes last");
        // Now the source forgets 10, among others.
        (17..=28).for_each(|client| source.remember(op(client, 1), client, result(1)));
        assert_eq!(source.horizon, ClientId(12));
        joiner.import(&source.export(cursor, usize::MAX).0).unwrap();
        assert_eq!(joiner.lookup(op(3, 1)), Lookup::Finished(&result(1)));
        assert_eq!(joiner.lookup(op(3, 2)), Lookup::Finished(&result(2)));
        assert_eq!(joiner.lookup(op(10, 1)), Lookup::Expired);
        assert_eq!(joiner.lookup(op(11, 1)), Lookup::Expired);
        assert_eq!(joiner.lookup(op(20, 2)), Lookup::Finished(&result(2)));
        assert_eq!(joiner.lookup(op(20, 1)), Lookup::Finished(&result(1)));
        assert_eq!(joiner.lookup(op(29, 1)), Lookup::New);
    }

    /// An op that is only prepared makes its client not known: whoever is known was decided of.
    #[test]
    fn a_watermark_alone_makes_nobody_known() {
        let mut clients = Clients::default();
        clients.advance(ClientId(5), 9);
        assert_eq!(clients.lookup(op(5, 1)), Lookup::New);
        assert_eq!(clients.bytes, 0);
    }

    #[test]
    fn who_joins_forgets_alike() {
        let mut clients = room_for(16);
        [5, 3, 9, 1, 7].into_iter().zip(1..).for_each(|(client, index)| {
            clients.remember(op(client, 1), index, result(1));
        });
        let mut copy = room_for(16);
        copy.import(&clients.export(ExportCursor::START, usize::MAX).0).unwrap();
        for both in [&mut clients, &mut copy] {
            (20..32).zip(6..).for_each(|(client, index)| both.remember(op(client, 1), index, result(1)));
        }
        assert_eq!(clients.horizon, ClientId(9), "the first three by use");
        let all = |clients: &Clients| clients.export(ExportCursor::START, usize::MAX);
        assert_eq!(all(&copy), all(&clients));
    }

    /// A client of which one op hangs elsewhere goes on for long.
    #[test]
    fn a_client_that_never_moves_on_is_remembered_up_to_a_bound() {
        let mut clients = Clients::default();
        let value: Box<[u8]> = vec![7; 1000].into();
        let last = 3 * (CLIENT_BYTES_MAX / value.len()) as u64;
        for sequence in 1..=last {
            clients.advance(ClientId(5), 1);
            let result = StoredResult { value: Some(value.clone()), ..result(1) };
            clients.remember(op(5, sequence), sequence, result);
            assert!(clients.bytes <= CLIENT_BYTES_MAX);
        }
        assert_eq!(clients.lookup(op(5, 1)), Lookup::Expired);
        assert!(matches!(clients.lookup(op(5, last)), Lookup::Finished(_)));
        assert_eq!(clients.lookup(op(5, last + 1)), Lookup::New);
        clients.advance(ClientId(5), last + 1);
        assert_eq!(clients.bytes, CLIENT_FIXED_BYTES);
        assert_eq!(clients.lookup(op(5, last)), Lookup::Expired);
    }

    #[test]
    fn a_result_that_takes_the_place_of_expired_is_counted_once() {
        let mut clients = Clients::default();
        let expired = StoredResult { status: Status::Expired, value: None, ..result(0) };
        clients.remember(op(5, 1), 1, expired);
        clients.remember(op(5, 1), 2, result(1));
        clients.remember(op(5, 1), 3, result(2));
        assert_eq!(clients.lookup(op(5, 1)), Lookup::Finished(&result(1)));
        assert_eq!(clients.bytes, CLIENT_FIXED_BYTES + result(1).bytes());
    }

    #[track_caller]
    fn check_export(clients: &Clients, bytes_max: usize) -> usize {
        let mut copy = Clients::default();
        let (mut cursor, mut more, mut pieces) = (ExportCursor::START, true, 0);
        while more {
            let (piece, end);
            (piece, end, more) = clients.export(cursor, bytes_max);
            // A head and a result may be begun just below the bound.
            assert!(piece.len() < bytes_max.saturating_add(2 * 1100), "{}", piece.len());
            cursor = ExportCursor::from_bytes(&copy.import(&piece).unwrap().to_bytes());
            assert!(!more || cursor == end);
            pieces += 1;
        }
        let all = |clients: &Clients| clients.export(ExportCursor::START, usize::MAX);
        assert_eq!(all(&copy), all(clients));
        assert_eq!(copy.bytes, clients.bytes);
        pieces
    }

    #[test]
    fn an_export_in_pieces_is_the_table() {
        let mut clients = Clients { horizon: ClientId(3), ..Clients::default() };
        for client in 10..40 {
            clients.remember(op(client, client), client, result(client as i64));
            clients.advance(ClientId(client), 5);
        }
        assert!(check_export(&clients, 200) > 3);
        assert_eq!(check_export(&clients, usize::MAX), 1);
        assert_eq!(check_export(&Clients::default(), 200), 1);
    }

    #[test]
    fn one_client_with_many_results_is_exported_in_pieces() {
        let mut clients = Clients::default();
        (1..500).for_each(|sequence| clients.remember(op(5, sequence), sequence, result(1)));
        clients.advance(ClientId(5), 20);
        clients.remember(op(6, 1), 501, result(6));
        for bytes_max in [1, 50, 200, 10_000] {
            let pieces = check_export(&clients, bytes_max);
            assert!(pieces >= 480 * 47 / (bytes_max + 100), "{pieces}");
        }
    }

    /// What a copier has is asked for again from where it ended, though the source has changed meanwhile.
    #[test]
    fn an_export_goes_on_though_clients_move_on() {
        let mut clients = Clients::default();
        (1..100).for_each(|sequence| clients.remember(op(5, sequence), sequence, result(1)));
        clients.remember(op(6, 1), 501, result(6));
        let (_, cursor, more) = clients.export(ExportCursor::START, 500);
        assert!(more && cursor.client == ClientId(5));
        clients.advance(ClientId(5), 100);
        let (piece, cursor, more) = clients.export(cursor, 500);
        let mut copy = Clients::default();
        assert_eq!((copy.import(&piece).unwrap(), more), (cursor, false));
        assert_eq!(copy.lookup(op(6, 1)), Lookup::Finished(&result(6)));
    }
}
