//! What a partition remembers of its clients, so that an op id takes effect at most once (R10).

use crate::config::CLIENTS_MAX;
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

#[derive(Clone, Default)]
struct ClientRecord {
    /// Ops with a smaller sequence are finished.
    watermark: u64,
    results: BTreeMap<u64, StoredResult>,
}

/// The deduplication records of one partition.
#[derive(Clone, Default)]
pub(crate) struct Clients {
    table: BTreeMap<ClientId, ClientRecord>,
    /// Clients up to this one may have been forgotten.
    horizon: ClientId,
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
        self.make_room(client);
        let record = self.table.entry(client).or_default();
        record.watermark = record.watermark.max(watermark);
        while record.results.first_key_value().is_some_and(|(sequence, _)| *sequence < record.watermark) {
            record.results.pop_first();
        }
    }

    /// Remembers the result of a decided op. A first result stands for ever, but "expired" is none: a joiner may be told so before
    /// it is told the result.
    pub(crate) fn remember(&mut self, op: OpId, result: StoredResult) {
        self.make_room(op.client);
        let record = self.table.entry(op.client).or_default();
        if op.sequence >= record.watermark {
            let known = record.results.get(&op.sequence);
            if known.is_none_or(|known| known.status == Status::Expired) {
                record.results.insert(op.sequence, result);
            }
        }
    }

    fn make_room(&mut self, client: ClientId) {
        if self.table.len() >= CLIENTS_MAX && !self.table.contains_key(&client) {
            let (oldest, _) = self.table.pop_first().expect("not empty");
            self.horizon = self.horizon.max(oldest);
        }
    }

    /// The records of the clients after `after`, up to about `bytes_max`; the last of these; and whether there are more.
    pub(crate) fn export(&self, after: ClientId, bytes_max: usize) -> (Vec<u8>, ClientId, bool) {
        let mut piece = self.horizon.0.to_be_bytes().to_vec();
        let mut rest = self.table.range((Bound::Excluded(after), Bound::Unbounded)).peekable();
        let mut last = after;
        while piece.len() < bytes_max
            && let Some((client, record)) = rest.next()
        {
            append_client(&mut piece, *client, record);
            last = *client;
        }
        (piece, last, rest.peek().is_some())
    }

    /// Merges a piece of an export; returns the last client in it.
    pub(crate) fn import(&mut self, piece: &[u8]) -> Result<ClientId, DecodeError> {
        let mut reader = Reader::new(piece);
        let horizon = u64::from_be_bytes(reader.layout("horizon")?);
        self.horizon = self.horizon.max(ClientId(horizon));
        let mut last = ClientId(0);
        while !reader.is_empty() {
            let client: ClientLayout = reader.layout("client")?;
            let id = ClientId(client.client.get());
            last = id;
            for _ in 0..client.result_count.get() {
                let (sequence, result) = read_result(&mut reader)?;
                self.remember(OpId { client: id, sequence }, result);
            }
            self.advance(id, client.watermark.get());
        }
        Ok(last)
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

fn append_client(out: &mut Vec<u8>, client: ClientId, record: &ClientRecord) {
    let layout = ClientLayout {
        client: client.0.into(),
        watermark: record.watermark.into(),
        result_count: (record.results.len() as u32).into(),
    };
    nicekv_wire::bytes::put(out, &layout);
    for (sequence, result) in &record.results {
        let value = result.value.as_deref().unwrap_or_default();
        let layout = ResultLayout {
            sequence: (*sequence).into(),
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
        for client in 1..=CLIENTS_MAX as u64 + 1 {
            clients.advance(ClientId(client), 0);
        }
        assert_eq!(clients.lookup(op(1, 9)), Lookup::Expired);
        assert_eq!(clients.lookup(op(CLIENTS_MAX as u64 + 2, 1)), Lookup::New);
    }

    #[test]
    fn an_export_in_pieces_is_the_table() {
        let mut clients = Clients { horizon: ClientId(3), ..Clients::default() };
        for client in 10..40 {
            clients.remember(op(client, client), result(client as i64));
            clients.advance(ClientId(client), 5);
        }
        let mut copy = Clients::default();
        let (mut after, mut more, mut pieces) = (ClientId(0), true, 0);
        while more {
            let piece;
            (piece, _, more) = clients.export(after, 200);
            after = copy.import(&piece).unwrap();
            pieces += 1;
        }
        assert!(pieces > 3);
        assert_eq!(copy.export(ClientId(0), usize::MAX), clients.export(ClientId(0), usize::MAX));
    }
}
