//! The header of every datagram.

use crate::bytes::{Reader, put, reserved};
use crate::c_layout::{c_type, layout_for_c};
use crate::chain_header::ChainHeader;
use crate::limits::{DATAGRAM_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::stamp::Stamp;
use crate::{ClientId, DecodeError, KeyDigest, KeyspaceId, OpId, Opcode};
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use core::net::{Ipv4Addr, SocketAddrV4};
use zerocopy::network_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// "NK".
pub(crate) const MAGIC: u16 = 0x4e4b;
/// Version of all layouts in this crate.
pub(crate) const VERSION: u8 = 3;
/// Room for a chain header ([`ChainHeader`]).
pub const ROOM_CHAIN: u8 = 1;
/// Room for a stamp ([`Stamp`]).
pub const ROOM_STAMP: u8 = 2;

layout_for_c! {
    /// The 48 bytes of the header. Fields that switches need come first; the digest is aligned to
    /// 16 bytes so that a pipeline can match it (TurboKV's 128-bit matching value).
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
    #[repr(C)]
    pub struct HeaderLayout {
        /// [`MAGIC`].
        pub magic: U16,
        /// [`VERSION`].
        pub version: u8,
        /// An [`Opcode`].
        pub opcode: u8,
        /// Bytes after the header.
        pub body_length: U16,
        /// The keyspace; 0 is the default one.
        pub keyspace: U16,
        /// Reply address: 0 if the switch keeps the client's source address, else written by the
        /// first hop.
        pub reply_to_ip: [u8; 4],
        /// Reply port.
        pub reply_to_port: U16,
        /// Kind of room behind this header: 0 none, [`ROOM_CHAIN`], [`ROOM_STAMP`].
        pub room: u8,
        /// Zero.
        pub reserved: u8,
        /// The client half of the op id.
        pub client: U64,
        /// The sequence half of the op id.
        pub sequence: U64,
        /// Digest of the key.
        pub digest: [u8; 16],
    }
}

const _: () = assert!(size_of::<HeaderLayout>() == 48);
const _: () = assert!(offset_of!(HeaderLayout, reply_to_ip) == 8);
const _: () = assert!(offset_of!(HeaderLayout, digest) == 32);

impl HeaderLayout {
    /// Magic number of every datagram.
    pub const MAGIC: u16 = MAGIC;
    /// Version of all layouts.
    pub const VERSION: u8 = VERSION;

    /// The header of an undecoded datagram, as a switch reads it: `Some` if it has this version and
    /// is complete, including its room.
    pub fn peek(datagram: &[u8]) -> Option<&Self> {
        let (header, rest) = Self::ref_from_prefix(datagram).ok()?;
        let is_whole = match header.room {
            0 => true,
            ROOM_CHAIN => rest.len() >= ChainHeader::BYTES,
            ROOM_STAMP => rest.len() >= Stamp::BYTES,
            _ => false,
        };
        (header.magic.get() == MAGIC && header.version == VERSION && is_whole).then_some(header)
    }

    /// Version of a datagram of another release.
    pub fn other_version(datagram: &[u8]) -> Option<u8> {
        let &[first, second, version, ..] = datagram else { return None };
        (u16::from_be_bytes([first, second]) == MAGIC && version != VERSION).then_some(version)
    }

    /// Opcode, if known.
    pub fn opcode(&self) -> Option<Opcode> {
        Opcode::decode(self.opcode).ok()
    }

    /// Reply address, if set.
    pub fn reply_to(&self) -> Option<SocketAddrV4> {
        let address = SocketAddrV4::new(Ipv4Addr::from(self.reply_to_ip), self.reply_to_port.get());
        (address.port() != 0).then_some(address)
    }
}

/// The decoded header without constant and derived fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type of the body.
    pub opcode: Opcode,
    /// The keyspace; [`KeyspaceId::DEFAULT`] in messages without a key.
    pub keyspace: KeyspaceId,
    /// Reply address, if not the sender.
    pub reply_to: Option<SocketAddrV4>,
    /// The op; [`OpId::NONE`] in messages without an op.
    pub op: OpId,
    /// Digest of the key; zero in messages without a key.
    pub digest: KeyDigest,
}

impl Header {
    /// Length in bytes.
    pub const BYTES: usize = size_of::<HeaderLayout>();

    /// Header of a message between servers, which has no op.
    pub fn internal(opcode: Opcode) -> Self {
        Self {
            opcode,
            keyspace: KeyspaceId::DEFAULT,
            reply_to: None,
            op: OpId::NONE,
            digest: KeyDigest::default(),
        }
    }

    /// Splits a datagram into header and body.
    pub fn decode(datagram: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let mut reader = Reader::new(datagram);
        let layout: HeaderLayout = reader.layout("header")?;
        if layout.magic.get() != MAGIC {
            return Err(DecodeError::BadMagic(layout.magic.get()));
        }
        if layout.version != VERSION {
            return Err(DecodeError::UnsupportedVersion(layout.version));
        }
        let opcode = Opcode::decode(layout.opcode)?;
        // Receivers remove the room before they decode.
        reserved("room", layout.room.into())?;
        reserved("reserved", layout.reserved.into())?;
        let body = reader.rest();
        let stated = usize::from(layout.body_length.get());
        if stated != body.len() || datagram.len() > MESSAGE_BYTES_MAX {
            return Err(DecodeError::LengthMismatch { field: "body_length", stated, actual: body.len() });
        }
        let reply_to = SocketAddrV4::new(Ipv4Addr::from(layout.reply_to_ip), layout.reply_to_port.get());
        if reply_to.port() == 0 {
            reserved("reply_to_ip", u32::from(*reply_to.ip()).into())?;
        }
        let header = Self {
            opcode,
            keyspace: KeyspaceId(layout.keyspace.get()),
            reply_to: (reply_to.port() != 0).then_some(reply_to),
            op: OpId { client: ClientId(layout.client.get()), sequence: layout.sequence.get() },
            digest: KeyDigest(layout.digest),
        };
        Ok((header, body))
    }

    /// Refuses a header with fields that its message does not use; `expected` is the message's own
    /// header. Any message may have a reply address, since switches write it without decoding.
    pub(crate) fn is_as(&self, expected: &Self) -> Result<(), DecodeError> {
        if self.opcode != expected.opcode {
            return Err(DecodeError::UnknownOpcode(self.opcode as u8));
        }
        let refused = |field, value| Err(DecodeError::UnknownValue { field, value });
        if self.keyspace != expected.keyspace {
            return refused("keyspace", self.keyspace.0.into());
        }
        if self.op != expected.op {
            return refused("op", self.op.sequence);
        }
        if self.digest != expected.digest {
            return refused("digest", self.digest.vnode().into());
        }
        Ok(())
    }

    /// Writes a datagram with this header and body to `out`, which is cleared.
    pub fn with_body(&self, body: &[u8], out: &mut Vec<u8>) {
        self.encode(out, |out| out.extend_from_slice(body));
    }

    /// Writes the header to `out`, which is cleared, lets `body` append the body, and then sets the
    /// length.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
        out.clear();
        let reply_to = self.reply_to.unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let layout = HeaderLayout {
            magic: MAGIC.into(),
            version: VERSION,
            opcode: self.opcode as u8,
            body_length: 0.into(),
            keyspace: self.keyspace.0.into(),
            reply_to_ip: reply_to.ip().octets(),
            reply_to_port: reply_to.port().into(),
            room: 0,
            reserved: 0,
            client: self.op.client.0.into(),
            sequence: self.op.sequence.into(),
            digest: self.digest.0,
        };
        put(out, &layout);
        body(out);
        assert!(out.len() <= MESSAGE_BYTES_MAX, "{:?} of {} bytes", self.opcode, out.len());
        let length = (out.len() - Self::BYTES) as u16;
        let at = offset_of!(HeaderLayout, body_length);
        out[at..at + 2].copy_from_slice(&length.to_be_bytes());
    }
}

/// Pads an encoded datagram with zeros to at least `bytes` bytes.
pub fn lengthen(datagram: &mut Vec<u8>, bytes: usize) {
    let bytes = bytes.min(DATAGRAM_BYTES_MAX - ChainHeader::BYTES);
    if datagram.len() < bytes {
        datagram.resize(bytes, 0);
        let length = (bytes - Header::BYTES) as u16;
        let at = offset_of!(HeaderLayout, body_length);
        datagram[at..at + 2].copy_from_slice(&length.to_be_bytes());
    }
}

/// Writes `address` as the reply address into an encoded datagram without one: the first hop that
/// hides the client's source address does so (the user-space switch), and a replica before it
/// forwards a request.
pub fn stamp_reply_to(datagram: &mut [u8], address: SocketAddrV4) {
    let Ok((layout, _)) = HeaderLayout::mut_from_prefix(datagram) else { return };
    if layout.reply_to_port.get() == 0 {
        layout.reply_to_ip = address.ip().octets();
        layout.reply_to_port = address.port().into();
    }
}
