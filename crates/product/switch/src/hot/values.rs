//! Values of hot keys in the switch itself: replies that it has ready, and until when it may show them (rule H9).
//!
//! ```text
//!   owner  ──HotValue (i, n), serial, key, reply──▶ switch       kept, if its entry of instance i wants one, and has seen just n
//!   owner  ──HotLease (life, until, serial)──▶ switch ──HotLeased (life, clock)──▶ owner
//!   client ──Get, room──▶ switch ──Reply──▶ client               of just n still, of the whole key, within the lease, no longer than the get
//! ```
//!
//! Invariants:
//! - A value belongs to the instance whose slot it is in, and goes with it.
//! - A lease is an owner's, for copies of one serial; what is granted later takes the place of what was granted before.
//! - Leases and values are of one life of the switch, which its nonce names. A pulse for another life grants nothing: it tells what this one is, and what time it is.

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
/// Of a get, in front of the key's length: who has forwarded it.
const FORWARDED_BYTES: usize = Get::FIXED_BYTES - Header::BYTES - size_of::<u16>();

/// A copy, of the instance in whose slot it is.
#[derive(Clone, Debug)]
pub(super) struct Value {
    seen: u64,
    serial: u64,
    owner: HostId,
    key: Vec<u8>,
    /// Less its header.
    reply: Vec<u8>,
}

/// Until when values of an owner may be shown.
#[derive(Clone, Copy, Debug)]
struct Lease {
    serial: u64,
    until_ns: u64,
}

/// The leases of a life; 0: it has not begun, and nothing is granted.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    life: u64,
    /// At most as many as there are names of hosts.
    granted: BTreeMap<HostId, Lease>,
}

/// A `HotValue` that nobody has decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offered<'a> {
    stamp: Stamp,
    serial: u64,
    key: &'a [u8],
    reply: &'a [u8],
}

/// A `HotLease`, likewise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse {
    nonce: u64,
    until_ns: u64,
    serial: u64,
}

/// A get that the switch may answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    key: &'a [u8],
    /// Of the datagram.
    bytes: usize,
}

impl<'a> Offered<'a> {
    /// Of what is behind the header.
    pub(crate) fn of(body: &'a [u8]) -> Option<Self> {
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

impl Pulse {
    /// Of what is behind the header, which is nothing else.
    pub(crate) fn of(body: &[u8]) -> Option<Self> {
        const BYTES: usize = HotLease::FIXED_BYTES - Header::BYTES;
        let body: &[u8; BYTES] = body.try_into().ok()?;
        const {
            assert!(offset_of!(HotLeaseLayout, time_ns) == 8 && offset_of!(HotLeaseLayout, serial) == 16);
        }
        Some(Self { nonce: word(body, 0), until_ns: word(body, 8), serial: word(body, 16) })
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(*bytes[at..].first_chunk().expect("within what is fixed"))
}

impl<'a> Asked<'a> {
    /// Looks at a get with room for a stamp that nobody has decoded, from `from`. What asks for anything unusual, or is no whole message, is left to nodes.
    pub(crate) fn of(payload: &'a [u8], from: SocketAddrV4) -> Option<Self> {
        let header = HeaderLayout::peek(payload).filter(|header| header.room == ROOM_STAMP)?;
        let body = &payload[HEADER_BYTES..];
        let names_nobody = header.reply_to_ip == [0; 4] && header.reply_to_port.get() == 0;
        let is_whole = usize::from(header.body_length.get()) == body.len();
        let goes_back = from.port() != 0 && (names_nobody || header.reply_to() == Some(from));
        let is_plain = header.opcode == Opcode::Get as u8
            && header.reserved == 0
            && is_whole
            && goes_back
            && payload.len() <= DATAGRAM_BYTES_MAX;
        let asked = body.get(Stamp::BYTES..).filter(|_| is_plain)?;
        let (forwarded, asked) = asked.split_at_checked(FORWARDED_BYTES)?;
        let (length, asked) = asked.split_first_chunk()?;
        let (key, padding) = asked.split_at_checked(u16::from_be_bytes(*length).into())?;
        let is_zeros = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let is_sound =
            (1..=KERNEL_KEY_BYTES_MAX).contains(&key.len()) && is_zeros(forwarded) && is_zeros(padding);
        is_sound.then_some(Self { key, bytes: payload.len() })
    }
}

/// Turns a get into its reply, which is no longer: so many bytes.
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
    /// A life begins, with nothing: `nonce` names it, and is no other's; 0 is none.
    pub(crate) fn begin_life(&mut self, nonce: u64) {
        self.leases = Leases { life: nonce, ..Leases::default() };
        self.slots.values_mut().for_each(|slot| slot.value = None);
    }

    /// A node offers a value. Whether it was taken in: its entry is of this instance, wants one, and has seen just this number.
    pub(crate) fn keep(&mut self, key: &Key, sender: HostId, offered: Offered<'_>) -> bool {
        let Some(slot) = self.slots.get_mut(key) else { return false };
        if !slot.entry.in_switch || slot.stamp() != offered.stamp {
            return false;
        }
        // What is there is of no greater number: nothing falls.
        let Offered { stamp, serial, key, reply } = offered;
        slot.value =
            Some(Value { seen: stamp.seen, serial, owner: sender, key: key.into(), reply: reply.into() });
        true
    }

    /// An owner prolongs its leases, or asks what time it is: the name of this life. `None`: it has not begun.
    pub(crate) fn lease(&mut self, owner: HostId, Pulse { nonce, until_ns, serial }: Pulse) -> Option<u64> {
        let Leases { life, granted } = &mut self.leases;
        if *life == 0 {
            return None;
        }
        if *life == nonce {
            granted.insert(owner, Lease { serial, until_ns });
        }
        Some(*life)
    }

    /// Whether there is something to look at.
    pub(crate) fn has_value_of(&self, key: &Key) -> bool {
        self.slots.get(key).is_some_and(|slot| slot.value.is_some())
    }

    /// Whether the switch answers a get of the key.
    pub(crate) fn answers(&self, key: &Key, asked: Asked<'_>, now_ns: u64) -> bool {
        let slot = self.slots.get(key);
        slot.and_then(|slot| Some((slot, slot.value.as_ref()?))).is_some_and(|(slot, value)| {
            HEADER_BYTES + value.reply.len() <= asked.bytes && self.may_show(slot, value, asked, now_ns)
        })
    }

    fn may_show(&self, slot: &Slot, value: &Value, asked: Asked<'_>, now_ns: u64) -> bool {
        let lease = self.leases.granted.get(&value.owner);
        let is_leased = lease.is_some_and(|lease| lease.serial == value.serial && lease.until_ns > now_ns);
        slot.seen == value.seen && value.key == asked.key && is_leased
    }

    /// The switch answers a get of the key: the reply, less its header.
    pub(crate) fn answer(&mut self, key: &Key) -> Option<&[u8]> {
        let slot = self.slots.get_mut(key)?;
        slot.requests += 1;
        slot.answered += 1;
        slot.value.as_ref().map(|value| &*value.reply)
    }

    /// Whether the switch has a value of an instance.
    pub fn has_value(&self, instance: u64) -> bool {
        self.slots.values().any(|slot| slot.entry.instance == instance && slot.value.is_some())
    }
}

#[cfg(test)]
mod tests;
