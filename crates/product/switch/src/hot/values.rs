//! Values of hot keys that the switch stores: prepared replies, and the leases within which it may
//! show them (rule H9).
//!
//! ```text
//!   owner  ──HotValue (i, n), serial, key, reply──▶ switch             stored, if its entry of instance i allows it and has seen exactly n
//!   owner  ──HotLease (incarnation, until, serial)──▶ switch ──HotLeased (incarnation, clock)──▶ owner
//!   client ──Get, with room──▶ switch ──Reply──▶ client                if it has still seen n, for the whole key, within the lease, and
//!                                                                      the reply is no longer than the get
//! ```
//!
//! Invariants:
//! - A value belongs to the instance in whose slot it is stored, and is removed with it.
//! - A lease belongs to one owner, and covers its copies of one serial. A later lease of the owner
//!   replaces an earlier one.
//! - Leases and values belong to one incarnation of the switch, which its nonce identifies. A
//!   renewal for another incarnation grants nothing; its reply tells the current incarnation and
//!   the time.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use core::net::SocketAddrV4;

use nicekv_proto::hot::{HotLease, HotLeaseLayout, HotValue, HotValueLayout, REPLY_BODY_BYTES_MAX, Stamp};
use nicekv_proto::limits::{DATAGRAM_BYTES_MAX, KERNEL_KEY_BYTES_MAX};
use nicekv_proto::{Get, Header, HeaderLayout, Opcode, ROOM_STAMP};

use super::{HotTable, Key, Slot};
use crate::HostId;

const HEADER_BYTES: usize = size_of::<HeaderLayout>();
/// Length in bytes of the field between the header of a get and its key's length: the node that has
/// forwarded the get.
const FORWARDED_BYTES: usize = Get::FIXED_BYTES - Header::BYTES - size_of::<u16>();

/// A stored copy.
#[derive(Clone, Debug)]
pub(super) struct Value {
    seen: u64,
    serial: u64,
    owner: HostId,
    key: Vec<u8>,
    /// The reply without its header.
    reply: Vec<u8>,
}

/// The time until which an owner's values may be shown, and the serial of these values.
#[derive(Clone, Copy, Debug)]
struct Lease {
    serial: u64,
    until_ns: u64,
}

/// The leases that one incarnation has granted.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    /// The nonce of the incarnation; 0: none has begun, so no lease is granted.
    incarnation: u64,
    /// The lease of each owner.
    granted: BTreeMap<HostId, Lease>,
}

/// The body of a `HotValue`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfferedValue<'a> {
    stamp: Stamp,
    serial: u64,
    key: &'a [u8],
    reply: &'a [u8],
}

/// The body of a `HotLease`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseRenewal {
    nonce: u64,
    until_ns: u64,
    serial: u64,
}

/// A get that the switch may answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GetRequest<'a> {
    key: &'a [u8],
    /// Length of the datagram in bytes.
    bytes: usize,
}

impl<'a> OfferedValue<'a> {
    /// Parses the part of the message behind its header.
    pub(crate) fn parse(body: &'a [u8]) -> Option<Self> {
        const FIXED: usize = HotValue::FIXED_BYTES - Header::BYTES;
        let (fixed, rest) = body.split_first_chunk::<FIXED>()?;
        let (instance, seen, serial) = (word(fixed, 0), word(fixed, 8), word(fixed, 16));
        let at = offset_of!(HotValueLayout, key_length);
        let (key_length, reserved) = (u16::from_be_bytes([fixed[at], fixed[at + 1]]), &fixed[at + 2..]);
        let (key, reply) = rest.split_at_checked(key_length.into())?;
        let is_sound = (1..=KERNEL_KEY_BYTES_MAX).contains(&key.len())
            && reply.len() <= REPLY_BODY_BYTES_MAX
            && reserved.iter().all(|byte| *byte == 0);
        is_sound.then_some(Self { stamp: Stamp { instance, seen }, serial, key, reply })
    }
}

impl LeaseRenewal {
    /// Parses the part of the message behind its header. Trailing bytes are not allowed.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        const BYTES: usize = HotLease::FIXED_BYTES - Header::BYTES;
        let body: &[u8; BYTES] = body.try_into().ok()?;
        const {
            assert!(offset_of!(HotLeaseLayout, time_ns) == 8 && offset_of!(HotLeaseLayout, serial) == 16);
        }
        Some(Self { nonce: word(body, 0), until_ns: word(body, 8), serial: word(body, 16) })
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(*bytes[at..].first_chunk().expect("within the fixed part"))
}

impl<'a> GetRequest<'a> {
    /// Parses a get with room for a stamp that came from `from`. Returns `None` for incomplete
    /// messages and unusual requests, which nodes handle.
    pub(crate) fn parse(payload: &'a [u8], from: SocketAddrV4) -> Option<Self> {
        let header = HeaderLayout::peek(payload).filter(|header| header.room == ROOM_STAMP)?;
        let body = &payload[HEADER_BYTES..];
        let has_no_reply_to = header.reply_to_ip == [0; 4] && header.reply_to_port.get() == 0;
        let is_whole = usize::from(header.body_length.get()) == body.len();
        let replies_to_sender = from.port() != 0 && (has_no_reply_to || header.reply_to() == Some(from));
        let is_plain = header.opcode == Opcode::Get as u8
            && header.reserved == 0
            && is_whole
            && replies_to_sender
            && payload.len() <= DATAGRAM_BYTES_MAX;
        let rest = body.get(Stamp::BYTES..).filter(|_| is_plain)?;
        let (forwarded, rest) = rest.split_at_checked(FORWARDED_BYTES)?;
        let (length, rest) = rest.split_first_chunk()?;
        let (key, padding) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        let is_zeros = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let is_sound =
            (1..=KERNEL_KEY_BYTES_MAX).contains(&key.len()) && is_zeros(forwarded) && is_zeros(padding);
        is_sound.then_some(Self { key, bytes: payload.len() })
    }
}

/// Turns a get into its reply, which must not be longer than the get. Returns the length of the
/// reply in bytes.
pub(crate) fn write_reply(payload: &mut [u8], body: &[u8]) -> usize {
    let bytes = HEADER_BYTES + body.len();
    let [first, second] = (body.len() as u16).to_be_bytes();
    let of_op = offset_of!(HeaderLayout, client)..offset_of!(HeaderLayout, digest);
    payload[offset_of!(HeaderLayout, opcode)] = Opcode::Reply as u8;
    payload[offset_of!(HeaderLayout, body_length)..][..2].copy_from_slice(&[first, second]);
    payload[offset_of!(HeaderLayout, keyspace)..of_op.start].fill(0);
    payload[of_op.end..HEADER_BYTES].fill(0);
    payload[HEADER_BYTES..bytes].copy_from_slice(body);
    bytes
}

impl HotTable {
    /// Begins an incarnation without values and leases. `nonce` identifies it; an incarnation 0
    /// grants no leases.
    pub(crate) fn begin_incarnation(&mut self, nonce: u64) {
        self.leases = Leases { incarnation: nonce, ..Leases::default() };
        self.slots.values_mut().for_each(|slot| slot.value = None);
    }

    /// Stores an offered value if the key's entry has this instance, allows values, and has seen
    /// exactly this number. Returns whether the value was stored.
    pub(crate) fn store(&mut self, key: &Key, sender: HostId, offered: OfferedValue<'_>) -> bool {
        let Some(slot) = self.slots.get_mut(key) else { return false };
        if !slot.entry.in_switch || slot.stamp() != offered.stamp {
            return false;
        }
        // The stored value, if any, has no greater number than this one.
        let OfferedValue { stamp, serial, key, reply } = offered;
        slot.value =
            Some(Value { seen: stamp.seen, serial, owner: sender, key: key.into(), reply: reply.into() });
        true
    }

    /// Renews the lease of an owner, if the renewal names this incarnation. Returns the
    /// incarnation; `None`: none has begun.
    pub(crate) fn lease(&mut self, owner: HostId, renewal: LeaseRenewal) -> Option<u64> {
        let LeaseRenewal { nonce, until_ns, serial } = renewal;
        let Leases { incarnation, granted } = &mut self.leases;
        if *incarnation == 0 {
            return None;
        }
        if *incarnation == nonce {
            granted.insert(owner, Lease { serial, until_ns });
        }
        Some(*incarnation)
    }

    /// Whether a value is stored for the key.
    pub(crate) fn has_value_of(&self, key: &Key) -> bool {
        self.slots.get(key).is_some_and(|slot| slot.value.is_some())
    }

    /// Whether the switch may answer a get of the key now.
    pub(crate) fn can_answer(&self, key: &Key, get: GetRequest<'_>, now_ns: u64) -> bool {
        let slot = self.slots.get(key);
        slot.and_then(|slot| Some((slot, slot.value.as_ref()?))).is_some_and(|(slot, value)| {
            HEADER_BYTES + value.reply.len() <= get.bytes && self.may_show(slot, value, get, now_ns)
        })
    }

    fn may_show(&self, slot: &Slot, value: &Value, get: GetRequest<'_>, now_ns: u64) -> bool {
        let lease = self.leases.granted.get(&value.owner);
        let is_leased = lease.is_some_and(|lease| lease.serial == value.serial && lease.until_ns > now_ns);
        slot.seen == value.seen && value.key == get.key && is_leased
    }

    /// Counts a get of the key that the switch answers. Returns the reply without its header.
    pub(crate) fn answer(&mut self, key: &Key) -> Option<&[u8]> {
        let slot = self.slots.get_mut(key)?;
        slot.requests += 1;
        slot.answered += 1;
        slot.value.as_ref().map(|value| &*value.reply)
    }

    /// Whether a value is stored for an instance.
    pub fn has_value(&self, instance: u64) -> bool {
        self.slots.values().any(|slot| slot.entry.instance == instance && slot.value.is_some())
    }
}

#[cfg(test)]
mod tests;
