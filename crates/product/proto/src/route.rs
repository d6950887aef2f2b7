//! Room in requests that a switch fills in: with a chain header (TurboKV §4.2; rule C5) or a stamp
//! ([`crate::hot`]).
//!
//! ```text
//!   client   header │ room = 1 │  48 bytes of zeros                                  │ body
//!   switch                      │ partition, epoch, CLength, addresses of the nodes  │
//!   node     header │ room = 0 │  body                 and the chain header beside it
//! ```
//!
//! The client reserves the room, so that a datagram never grows on its way: nothing is fragmented,
//! and a switch writes at a fixed place and updates one checksum. The switch overwrites whatever
//! the client wrote there. A node removes the room before it does anything else, so that logged and
//! forwarded requests are those of the client.

use crate::bytes::Reader;
pub use crate::chain_header::ChainHeader;
use crate::header::{HeaderLayout, ROOM_CHAIN, ROOM_STAMP};
use crate::limits::DATAGRAM_BYTES_MAX;
use crate::stamp::Stamp;
use crate::{DecodeError, Opcode};
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use zerocopy::{FromBytes, IntoBytes};

/// A switch's entry in the room of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The chain of the request.
    Chain(ChainHeader),
    /// The switch's stamp of the key ([`Stamp::NONE`] if the key has no hot entry there).
    Stamp(Stamp),
}

impl Room {
    /// Size in bytes of the room of this kind.
    fn bytes(room: u8) -> usize {
        if room == ROOM_STAMP { Stamp::BYTES } else { ChainHeader::BYTES }
    }
}

/// Reserves room for a chain header in an encoded request. Does nothing if the datagram is no
/// request, has room already, or would become too long: a longer message is sent in fragments, each
/// with a header of its own.
pub fn leave_room(datagram: &mut Vec<u8>) {
    leave(datagram, ROOM_CHAIN);
}

/// Reserves room for a stamp in an encoded get or update, likewise. A request without it is never
/// redirected.
pub fn leave_room_for_stamp(datagram: &mut Vec<u8>) {
    leave(datagram, ROOM_STAMP);
}

fn leave(datagram: &mut Vec<u8>, room: u8) {
    let whole = datagram.len();
    let Ok((header, _)) = HeaderLayout::mut_from_prefix(datagram) else { return };
    if header.room != 0 || !may_have_room(header, room) {
        return;
    }
    let bytes = Room::bytes(room);
    if whole + bytes > DATAGRAM_BYTES_MAX {
        return;
    }
    header.room = room;
    let length = header.body_length.get() + bytes as u16;
    header.body_length = length.into();
    let at = size_of::<HeaderLayout>();
    datagram.splice(at..at, core::iter::repeat_n(0, bytes));
}

/// The room for a chain header, if the datagram has one; a switch writes it.
pub fn room_of(datagram: &mut [u8]) -> Option<&mut [u8; ChainHeader::BYTES]> {
    let has_room = HeaderLayout::peek(datagram)?.room == ROOM_CHAIN;
    datagram.get_mut(size_of::<HeaderLayout>()..)?.first_chunk_mut().filter(|_| has_room)
}

/// The room for a stamp, if the datagram has one; a switch writes it.
pub fn room_for_stamp(datagram: &mut [u8]) -> Option<&mut [u8; Stamp::BYTES]> {
    let has_room = HeaderLayout::peek(datagram)?.room == ROOM_STAMP;
    datagram.get_mut(size_of::<HeaderLayout>()..)?.first_chunk_mut().filter(|_| has_room)
}

/// Copies a datagram without its room to `out`, which is cleared, and returns the content of the
/// room. `None`, with `out` unchanged: it has no room.
pub fn take_room(datagram: &[u8], out: &mut Vec<u8>) -> Option<Result<Room, DecodeError>> {
    let header = *HeaderLayout::peek(datagram).filter(|header| header.room != 0)?;
    Some(without_room(header, &datagram[size_of::<HeaderLayout>()..], out))
}

fn without_room(mut header: HeaderLayout, rest: &[u8], out: &mut Vec<u8>) -> Result<Room, DecodeError> {
    let room = header.room;
    if !may_have_room(&header, room) {
        return Err(DecodeError::UnknownValue { field: "room", value: room.into() });
    }
    let mut reader = Reader::new(rest);
    let left = match room {
        ROOM_STAMP => Room::Stamp(Stamp::decode(reader.layout_ref("stamp")?)?),
        _ => Room::Chain(ChainHeader::decode(reader.layout_ref("chain header")?)?),
    };
    let stated = usize::from(header.body_length.get());
    let length = stated.checked_sub(Room::bytes(room));
    let length = length.ok_or(DecodeError::TooShort { field: "body_length" })?;
    header.room = 0;
    header.body_length = (length as u16).into();
    out.clear();
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(reader.rest());
    Ok(left)
}

/// Only requests to a ring have room; only those for one key have stamps.
fn may_have_room(header: &HeaderLayout, room: u8) -> bool {
    match header.opcode() {
        Some(Opcode::Get | Opcode::Update) => true,
        Some(Opcode::Scan | Opcode::Bundle | Opcode::Fragment) => room == ROOM_CHAIN,
        _ => false,
    }
}

/// Offset of the header field that says which room there is, for programs that read bytes.
pub const ROOM_AT: usize = offset_of!(HeaderLayout, room);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{MEMBERS_MAX, PAIR_BYTES_MAX};
    use crate::{ClientId, Datagram, Epoch, Get, KeyDigest, KeyspaceId, OpId, PartitionId, Update};
    use core::net::Ipv4Addr;

    fn get() -> Vec<u8> {
        let op = OpId { client: ClientId(7), sequence: 9 };
        let (keyspace, digest) = (KeyspaceId(3), KeyDigest([5; 16]));
        let mut bytes = Vec::new();
        Get { keyspace, op, digest, reply_to: None, forwarded: None, key: b"key", padding: 0 }
            .encode(&mut bytes);
        bytes
    }

    fn chain(nodes: u8) -> ChainHeader {
        let nodes = (0..nodes).map(|node| Ipv4Addr::new(10, 0, 0, node));
        ChainHeader::new(PartitionId(0x0102_0304), Epoch(0x0506_0708), nodes)
    }

    #[test]
    fn chain_header_round_trips_through_its_room() {
        for nodes in 0..=MEMBERS_MAX as u8 {
            let mut sent = get();
            leave_room(&mut sent);
            assert_eq!(sent.len(), get().len() + ChainHeader::BYTES);
            assert!(Datagram::decode(&sent).is_err(), "a datagram whose room was not removed is refused");
            *room_of(&mut sent).unwrap() = chain(nodes).to_bytes();
            let mut left = b"left over".to_vec();
            assert_eq!(take_room(&sent, &mut left), Some(Ok(Room::Chain(chain(nodes)))));
            assert_eq!(left, get());
        }
    }

    #[test]
    fn datagram_without_room_is_unchanged() {
        let (mut plain, mut out) = (get(), b"as it was".to_vec());
        assert_eq!(room_of(&mut plain), None);
        assert_eq!(take_room(&plain, &mut out), None);
        assert_eq!(out, b"as it was");
        let mut once = get();
        leave_room(&mut once);
        let mut twice = once.clone();
        leave_room(&mut twice);
        assert_eq!(once, twice);
        let mut other = Vec::new();
        crate::control::Probe { term: crate::Term(1), nonce: 1 }.encode(&mut other);
        let before = other.clone();
        leave_room(&mut other);
        assert_eq!(other, before, "no request");
        other[ROOM_AT] = 1;
        other.resize(200, 0);
        assert!(take_room(&other, &mut out).unwrap().is_err(), "only clients' requests may have room");
    }

    #[test]
    fn inconsistent_room_is_refused() {
        let refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = get();
            leave_room(&mut bytes);
            *room_of(&mut bytes).unwrap() = chain(3).to_bytes();
            change(&mut bytes);
            let taken = take_room(&bytes, &mut Vec::new());
            assert!(taken.is_none_or(|taken| taken.is_err()), "{bytes:?}");
        };
        refused(&|bytes| bytes[48 + 8] = 10);
        refused(&|bytes| bytes[48 + 9] = 1);
        refused(&|bytes| bytes[48 + 12 + 12] = 1);
        refused(&|bytes| bytes.truncate(95));
        refused(&|bytes| bytes[5] = 1);
        refused(&|bytes| bytes[ROOM_AT] = 3);
    }

    #[test]
    fn stamp_round_trips_through_its_room() {
        for stamp in [Stamp::NONE, Stamp { instance: 7 << 40, seen: u64::MAX }] {
            let mut sent = get();
            leave_room_for_stamp(&mut sent);
            assert_eq!(sent.len(), get().len() + Stamp::BYTES);
            assert_eq!((Datagram::decode(&sent).is_ok(), room_of(&mut sent)), (false, None));
            *room_for_stamp(&mut sent).unwrap() = stamp.to_bytes();
            let (again, mut left) = (sent.clone(), Vec::new());
            leave_room(&mut sent);
            assert_eq!(sent, again, "one room is enough");
            assert_eq!(take_room(&sent, &mut left), Some(Ok(Room::Stamp(stamp))));
            assert_eq!(left, get());
            sent.truncate(48 + Stamp::BYTES - 1);
            assert_eq!((take_room(&sent, &mut left), room_for_stamp(&mut sent)), (None, None));
        }
    }

    #[test]
    fn inconsistent_stamp_is_refused() {
        let refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = get();
            leave_room_for_stamp(&mut bytes);
            change(&mut bytes);
            take_room(&bytes, &mut Vec::new()).unwrap().unwrap_err()
        };
        let no_instance = DecodeError::UnknownValue { field: "seen", value: 1 };
        assert_eq!(refused(&|bytes| bytes[48 + 15] = 1), no_instance);
        let no_request = DecodeError::UnknownValue { field: "room", value: 2 };
        for opcode in [Opcode::Scan, Opcode::Bundle, Opcode::ForwardedGet, Opcode::HotClose] {
            assert_eq!(refused(&|bytes| bytes[3] = opcode as u8), no_request);
        }
        refused(&|bytes| bytes[5] = 1);
    }

    #[test]
    fn fragmented_messages_have_no_room() {
        let leave =
            [(leave_room as fn(&mut Vec<u8>), ChainHeader::BYTES), (leave_room_for_stamp, Stamp::BYTES)];
        for (leave, bytes) in leave {
            for (spare, has_room) in [(bytes, true), (bytes - 1, false)] {
                let mut message = get();
                message.resize(DATAGRAM_BYTES_MAX - spare, 0);
                leave(&mut message);
                assert_eq!(take_room(&message, &mut Vec::new()).is_some(), has_room, "{spare} spare");
            }
        }
    }

    /// The largest request with room still fits a datagram.
    const _: () = assert!(Update::FIXED_BYTES + PAIR_BYTES_MAX + ChainHeader::BYTES <= DATAGRAM_BYTES_MAX);
}
