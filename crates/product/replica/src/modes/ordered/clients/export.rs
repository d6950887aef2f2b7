//! Encodes client records for a joiner and for the log.
//!
//! ```text
//!   piece:  [horizon, is it the last?] ([client, watermark, last use, results] ([sequence, result] value)*)*
//! ```

use super::{ClientRecord, Clients, StoredResult};
use alloc::vec::Vec;
use nicekv_proto::bytes::Reader;
use nicekv_proto::{ClientId, DecodeError, Form, OpId, Status};
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How far an export has come: it contains all clients before `client`, and of `client` the results
/// up to `sequence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExportCursor {
    pub(crate) client: ClientId,
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

    /// Decodes [`Self::to_bytes`]. Bytes of another length mean the start.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let Ok(bytes) = <[u8; 16]>::try_from(bytes) else { return Self::START };
        let bits = u128::from_be_bytes(bytes);
        Self { client: ClientId((bits >> 64) as u64), sequence: bits as u64 }
    }
}

impl Clients {
    /// Encodes the records after `cursor`, up to about `bytes_max` bytes. Returns the piece, the
    /// cursor after it, and whether records are left. One client's results may be spread over
    /// several pieces.
    pub(crate) fn export(&self, cursor: ExportCursor, bytes_max: usize) -> (Vec<u8>, ExportCursor, bool) {
        let mut piece = Vec::new();
        nicekv_proto::bytes::put(&mut piece, &PieceLayout { horizon: 0.into(), is_last: 0 });
        let mut end = cursor;
        for (client, record) in self.table.range(cursor.client..) {
            let after = (*client == cursor.client).then_some(cursor.sequence);
            if after.is_some_and(|after| record.results.after(after).len() == 0) {
                continue;
            }
            if piece.len() >= bytes_max && end != cursor {
                return (piece, end, true);
            }
            end = append_client(&mut piece, *client, record, after, bytes_max);
            if record.results.last().is_some_and(|last| last > end.sequence) {
                return (piece, end, true);
            }
        }
        let head = PieceLayout { horizon: self.horizon.0.into(), is_last: 1 };
        piece[..size_of::<PieceLayout>()].copy_from_slice(head.as_bytes());
        (piece, end, false)
    }

    /// Merges a piece of an export into these records; returns the cursor after it.
    pub(crate) fn import(&mut self, piece: &[u8]) -> Result<ExportCursor, DecodeError> {
        let mut reader = Reader::new(piece);
        let head: PieceLayout = reader.layout("head of client records")?;
        let mut end = ExportCursor::START;
        while !reader.is_empty() {
            let client: ClientLayout = reader.layout("client")?;
            let id = ClientId(client.client.get());
            end = ExportCursor { client: id, sequence: 0 };
            let last_used = client.last_used.get();
            self.use_client(id, last_used, |record, named| {
                record.is_imported = true;
                record.advance(client.watermark.get(), named);
            });
            for _ in 0..client.result_count.get() {
                let (sequence, result) = read_result(&mut reader)?;
                self.use_client(id, last_used, |record, named| record.remember(sequence, result, named));
                end.sequence = sequence;
            }
            self.make_room(id);
        }
        if head.is_last != 0 {
            self.end_import(ClientId(head.horizon.get()));
        }
        Ok(end)
    }

    /// After the last piece: forgets the clients that the source has forgotten, because these
    /// records may not have all of their results.
    fn end_import(&mut self, horizon: ClientId) {
        self.horizon = self.horizon.max(horizon);
        let named = &mut self.named;
        self.table.retain(|client, record| {
            let stays = *client > horizon || record.is_imported;
            if !stays {
                named.forget(record);
            }
            stays
        });
        self.table.values_mut().for_each(|record| record.is_imported = false);
        self.bytes = self.table.values().map(|record| record.bytes).sum();
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PieceLayout {
    /// The source's horizon in the last piece, 0 in others.
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

/// Appends a client with as many of its results after `after` as fit; returns the cursor after
/// them.
fn append_client(
    out: &mut Vec<u8>,
    client: ClientId,
    record: &ClientRecord,
    after: Option<u64>,
    bytes_max: usize,
) -> ExportCursor {
    let start = out.len();
    let mut layout = ClientLayout {
        client: client.0.into(),
        watermark: record.watermark.into(),
        last_used: record.last_used.into(),
        result_count: 0.into(),
    };
    nicekv_proto::bytes::put(out, &layout);
    let (mut count, mut end) = (0u32, ExportCursor { client, sequence: 0 });
    for (sequence, result) in record.results.after(after) {
        append_result(out, sequence, result);
        (count, end.sequence) = (count + 1, sequence);
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
        // 0: no value; otherwise the value's form plus 1.
        has_value: result.value.as_ref().map_or(0, |_| 1 + result.form as u8),
        value_length: (value.len() as u16).into(),
    };
    nicekv_proto::bytes::put(out, &layout);
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
        form: if layout.has_value == 0 { Form::Plain } else { Form::decode(layout.has_value - 1)? },
    };
    Ok((layout.sequence.get(), result))
}
