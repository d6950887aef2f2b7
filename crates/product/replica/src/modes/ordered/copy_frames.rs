//! Payloads that a joiner and the source of its copy exchange, inside of the frames of
//! `nicekv_proto::recovery`.

use super::history::History;
use alloc::vec::Vec;
use nicekv_proto::bytes::{Reader, put};
use nicekv_proto::{DecodeError, NodeId};
use zerocopy::network_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The primary's first answer to a joiner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    /// The joiner may keep what it has from decisions up to this one. 0: it must empty its space.
    pub(crate) since: u64,
    /// The joiner needs the entries written after this decision. Greater than `since` only for a
    /// handoff.
    pub(crate) entries_since: u64,
    /// The last decision of the primary.
    pub(crate) covers: u64,
    /// The member that sends the entries.
    pub(crate) source: NodeId,
    /// The epochs in which the decisions before the present epoch were made.
    pub(crate) history: History,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct BegunLayout {
    since: U64,
    entries_since: U64,
    covers: U64,
    source: U16,
}

impl Begun {
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        let layout = BegunLayout {
            since: self.since.into(),
            entries_since: self.entries_since.into(),
            covers: self.covers.into(),
            source: self.source.0.into(),
        };
        put(out, &layout);
        self.history.append(out);
    }

    pub(crate) fn read(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let layout: BegunLayout = reader.layout("begin of a copy")?;
        Ok(Self {
            since: layout.since.get(),
            entries_since: layout.entries_since.get(),
            covers: layout.covers.get(),
            source: NodeId(layout.source.get()),
            history: History::read(&mut reader)?,
        })
    }

    /// The joiner will lack entries written by decisions up to this one. 0 for an original.
    pub(crate) fn floor(&self) -> u64 {
        if self.entries_since > self.since { self.entries_since } else { 0 }
    }
}

/// A part of the entries: the source's last decision, how far the copy has come by decisions and by
/// keys, and entries with their keys.
pub(crate) struct EntriesChunk<'a> {
    pub(crate) covers: u64,
    /// With this part the joiner has everything that decisions up to this one have written.
    pub(crate) through: u64,
    /// The next part begins after this key.
    pub(crate) after: &'a [u8],
    pub(crate) entries: &'a [u8],
}

impl<'a> EntriesChunk<'a> {
    pub(crate) fn append_head(covers: u64, through: u64, after: &[u8], out: &mut Vec<u8>) {
        put(out, &U64::from(covers));
        put(out, &U64::from(through));
        put(out, &U16::from(after.len() as u16));
        out.extend_from_slice(after);
    }

    pub(crate) fn read(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let covers: U64 = reader.layout("last decision of a copy")?;
        let through: U64 = reader.layout("decisions of a copy")?;
        let length: U16 = reader.layout("cursor of a copy")?;
        let after = reader.bytes(length.get().into(), "cursor of a copy")?;
        Ok(Self { covers: covers.get(), through: through.get(), after, entries: reader.rest() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::Epoch;

    fn begun(since: u64, entries_since: u64) -> Begun {
        let mut history = History::default();
        history.note(1, Epoch(2));
        Begun { since, entries_since, covers: 9, source: NodeId(3), history }
    }

    #[test]
    fn handoff_has_a_floor() {
        assert_eq!([begun(5, 5).floor(), begun(0, 7).floor(), begun(0, 0).floor()], [0, 7, 0]);
    }

    #[test]
    fn listed_piece_is_what_is_read() {
        let mut payload = Vec::new();
        begun(4, 7).append(&mut payload);
        assert_eq!(Begun::read(&payload).unwrap(), begun(4, 7));
        let mut payload = Vec::new();
        EntriesChunk::append_head(9, 8, b"key", &mut payload);
        payload.extend(b"entries");
        let chunk = EntriesChunk::read(&payload).unwrap();
        assert_eq!((chunk.covers, chunk.through), (9, 8));
        assert_eq!((chunk.after, chunk.entries), (&b"key"[..], &b"entries"[..]));
    }
}
