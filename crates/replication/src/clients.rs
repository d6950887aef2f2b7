//! What a partition remembers of its clients, so that an op id takes effect at most once (R10).
//!
//! A result is remembered until the client's *watermark* has passed it: the client says with every op below which sequence it has all its
//! answers. One op that hangs in some other partition holds a client's watermark back everywhere, so what is remembered is bounded:
//! * of one client in bytes ([`CLIENT_BYTES_MAX`]): beyond it the oldest results go, and the watermark is raised over them here;
//! * of all in bytes ([`CLIENTS_BYTES_MAX`]): beyond it whole clients go, and the *horizon* is raised over them.
//!
//! Nothing is forgotten otherwise, so an op that is neither remembered, nor below its client's watermark, nor of an unknown client up to
//! the horizon was never decided here. An op that is, is refused as "expired, outcome unknown"; it is not executed. Members need not
//! forget alike: what one of them calls expired the other may still know the result of, and both answers are true.

use crate::config::{CLIENT_BYTES_MAX, CLIENTS_BYTES_MAX};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
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
}

impl Default for ClientRecord {
    fn default() -> Self {
        Self { watermark: 0, results: BTreeMap::new(), bytes: CLIENT_FIXED_BYTES }
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
#[derive(Clone, Default)]
pub(crate) struct Clients {
    table: BTreeMap<ClientId, ClientRecord>,
    /// What they take.
    bytes: usize,
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

    /// Takes note of the watermark that an op carries; older results are not asked for again.
    pub(crate) fn advance(&mut self, client: ClientId, watermark: u64) {
        self.change(client, |record| record.advance(watermark));
    }

    /// Remembers the result of a decided op. A first result stands for ever, but "expired" is none: a joiner may be told so before
    /// it is told the result.
    pub(crate) fn remember(&mut self, op: OpId, result: StoredResult) {
        self.change(op.client, |record| record.remember(op.sequence, result));
    }

    fn change(&mut self, client: ClientId, change: impl FnOnce(&mut ClientRecord)) {
        let known = self.table.get(&client).map_or(0, |record| record.bytes);
        let record = self.table.entry(client).or_default();
        change(record);
        self.bytes = self.bytes - known + record.bytes;
        while self.bytes > CLIENTS_BYTES_MAX {
            let oldest = self.table.keys().copied().find(|other| *other != client);
            self.forget(oldest.expect("one client takes less"));
        }
    }

    fn forget(&mut self, client: ClientId) {
        let record = self.table.remove(&client).expect("it is known");
        self.bytes -= record.bytes;
        self.horizon = self.horizon.max(client);
    }

    /// The records after `cursor`, up to about `bytes_max`; where they end; and whether there are more. A client's results may fall
    /// into several pieces.
    pub(crate) fn export(&self, cursor: ExportCursor, bytes_max: usize) -> (Vec<u8>, ExportCursor, bool) {
        let mut piece = self.horizon.0.to_be_bytes().to_vec();
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
        (piece, end, false)
    }

    /// Merges a piece of an export; returns where it ends.
    pub(crate) fn import(&mut self, piece: &[u8]) -> Result<ExportCursor, DecodeError> {
        let mut reader = Reader::new(piece);
        let horizon = u64::from_be_bytes(reader.layout("horizon")?);
        self.horizon = self.horizon.max(ClientId(horizon));
        let mut end = ExportCursor::START;
        while !reader.is_empty() {
            let client: ClientLayout = reader.layout("client")?;
            let id = ClientId(client.client.get());
            end = ExportCursor { client: id, sequence: 0 };
            for _ in 0..client.result_count.get() {
                let (sequence, result) = read_result(&mut reader)?;
                self.remember(OpId { client: id, sequence }, result);
                end.sequence = sequence;
            }
            self.advance(id, client.watermark.get());
        }
        Ok(end)
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ClientLayout {
    client: U64,
    watermark: U64,
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
    let mut layout =
        ClientLayout { client: client.0.into(), watermark: record.watermark.into(), result_count: 0.into() };
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

/// Where an op's answer goes.
pub(crate) fn reply_address(datagram: &[u8]) -> Option<SocketAddrV4> {
    nicekv_wire::Header::decode(datagram).ok().and_then(|(header, _)| header.reply_to)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        clients.remember(op(5, 1), result(1));
        clients.remember(op(5, 1), result(2));
        assert_eq!(clients.lookup(op(5, 1)), Lookup::Finished(&result(1)));
        clients.advance(ClientId(5), 2);
        assert_eq!(clients.lookup(op(5, 1)), Lookup::Expired);
        assert_eq!(clients.lookup(op(5, 2)), Lookup::New);
    }

    #[test]
    fn a_forgotten_client_is_expired_and_a_newer_one_is_not() {
        let mut clients = Clients::default();
        let room = (CLIENTS_BYTES_MAX / CLIENT_FIXED_BYTES) as u64;
        (1..=room).for_each(|client| clients.advance(ClientId(client), 0));
        assert_eq!(clients.lookup(op(1, 9)), Lookup::New);
        clients.advance(ClientId(room + 1), 0);
        assert_eq!(clients.lookup(op(1, 9)), Lookup::Expired);
        assert_eq!(clients.lookup(op(2, 9)), Lookup::New);
        assert_eq!(clients.lookup(op(room + 2, 1)), Lookup::New);
    }

    /// A client of which one op hangs elsewhere goes on for long.
    #[test]
    fn a_client_that_never_moves_on_is_remembered_up_to_a_bound() {
        let mut clients = Clients::default();
        let value: Box<[u8]> = vec![7; 1000].into();
        let last = 3 * (CLIENT_BYTES_MAX / value.len()) as u64;
        for sequence in 1..=last {
            clients.advance(ClientId(5), 1);
            clients.remember(op(5, sequence), StoredResult { value: Some(value.clone()), ..result(1) });
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
        clients.remember(op(5, 1), StoredResult { status: Status::Expired, value: None, ..result(0) });
        clients.remember(op(5, 1), result(1));
        clients.remember(op(5, 1), result(2));
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
            clients.remember(op(client, client), result(client as i64));
            clients.advance(ClientId(client), 5);
        }
        assert!(check_export(&clients, 200) > 3);
        assert_eq!(check_export(&clients, usize::MAX), 1);
        assert_eq!(check_export(&Clients::default(), 200), 1);
    }

    #[test]
    fn one_client_with_many_results_is_exported_in_pieces() {
        let mut clients = Clients::default();
        (1..500).for_each(|sequence| clients.remember(op(5, sequence), result(1)));
        clients.advance(ClientId(5), 20);
        clients.remember(op(6, 1), result(6));
        for bytes_max in [1, 50, 200, 10_000] {
            let pieces = check_export(&clients, bytes_max);
            assert!(pieces >= 480 * 47 / (bytes_max + 100), "{pieces}");
        }
    }

    /// What a copier has is asked for again from where it ended, though the source has changed meanwhile.
    #[test]
    fn an_export_goes_on_though_clients_move_on() {
        let mut clients = Clients::default();
        (1..100).for_each(|sequence| clients.remember(op(5, sequence), result(1)));
        clients.remember(op(6, 1), result(6));
        let (_, cursor, more) = clients.export(ExportCursor::START, 500);
        assert!(more && cursor.client == ClientId(5));
        clients.advance(ClientId(5), 100);
        let (piece, cursor, more) = clients.export(cursor, 500);
        let mut copy = Clients::default();
        assert_eq!((copy.import(&piece).unwrap(), more), (cursor, false));
        assert_eq!(copy.lookup(op(6, 1)), Lookup::Finished(&result(6)));
    }
}
