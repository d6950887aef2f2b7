//! Requests that may share a datagram, in one.
//!
//! ```text
//!   next ─▶ by ring and company ─▶ one: as it is; several: a bundle
//! ```
//!
//! A client knows no partitions, only into how many its keyspaces were divided when it was configured, and who has answered of late
//! (`company`). Where that is out of date, a bundle reaches nodes that have not all of its keys; these drop the others, which are sent
//! again as they are.

use crate::company::Company;
use crate::in_flight::InFlight;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::bundle::{BUNDLED_BYTES_MAX, Bundle, Common, append_bundled, bundled_bytes};
use nicekv_proto::route::ChainHeader;
use nicekv_proto::{HeaderLayout, Opcode, lengthen};

/// Most bytes of all in a bundle: that of a chain has room for what the switch writes (C5).
const BYTES_MAX: usize = BUNDLED_BYTES_MAX - ChainHeader::BYTES;
/// Datagrams that are looked at before the first is sent.
const LOOKED_AT_MAX: usize = 256;

/// A request on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    /// Where it goes.
    pub(crate) to: SocketAddrV4,
    /// Whose it is.
    pub(crate) slot: u32,
    /// Who may be with it; `None`: it is sent alone.
    pub(crate) company: Option<Company>,
}

/// Requests that will share a datagram.
#[derive(Clone, Debug, Default)]
struct Group {
    /// The slot of the first, by whose digest the datagram is routed.
    leader: u32,
    /// The leader's.
    datagram: Vec<u8>,
    count: usize,
    bundled: Vec<u8>,
}

/// What requests have in common that may be bundled.
type Kind = (SocketAddrV4, Company, Common);

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bundler {
    groups: VecDeque<(Kind, Group)>,
    /// Buffers to be used again.
    spare: Vec<Group>,
}

impl Bundler {
    /// Writes the next datagram to `out`, of those that are to be sent.
    pub(crate) fn poll(&mut self, out: &mut Vec<u8>, in_flight: &mut InFlight) -> Option<SocketAddrV4> {
        if self.groups.is_empty() {
            for _ in 0..LOOKED_AT_MAX {
                let Some(outgoing) = in_flight.poll_transmit(out) else { break };
                let Some((company, common)) = outgoing.company.zip(Common::of(out)) else {
                    in_flight.led_by(outgoing.slot, outgoing.slot);
                    lengthen_get(in_flight, outgoing.slot, out);
                    return Some(outgoing.to);
                };
                let leader = self.take_in((outgoing.to, company, common), outgoing.slot, out);
                in_flight.led_by(outgoing.slot, leader);
            }
        }
        let ((to, ..), group) = self.groups.pop_front()?;
        if group.count == 1 {
            out.clear();
            out.extend_from_slice(&group.datagram);
            lengthen_get(in_flight, group.leader, out);
        } else {
            Bundle::encode_with(&group.datagram, out, |out| out.extend_from_slice(&group.bundled));
        }
        self.spare.push(group);
        Some(to)
    }

    /// The slot that leads the group which the request is in now.
    fn take_in(&mut self, kind: Kind, slot: u32, datagram: &[u8]) -> u32 {
        let bytes = bundled_bytes(datagram);
        let has_room = |(of, group): &(Kind, Group)| *of == kind && group.bundled.len() + bytes <= BYTES_MAX;
        // Those before are full.
        let known = self.groups.iter().rposition(has_room);
        let index = known.unwrap_or_else(|| {
            let mut group = self.spare.pop().unwrap_or_default();
            group.bundled.clear();
            group.datagram.clear();
            group.datagram.extend_from_slice(datagram);
            self.groups.push_back((kind, Group { leader: slot, count: 0, ..group }));
            self.groups.len() - 1
        });
        let group = &mut self.groups[index].1;
        append_bundled(datagram, &mut group.bundled);
        group.count += 1;
        group.leader
    }
}

/// The datagram of a slot is sent alone: if it is a get, it is made as long as its reply may be. One that is directed is for a process.
fn lengthen_get(in_flight: &InFlight, slot: u32, datagram: &mut Vec<u8>) {
    let slot = &in_flight.slots[slot as usize];
    let bytes = in_flight.get_lengths[slot.keyspace].bytes();
    let is_get = || HeaderLayout::peek(datagram).and_then(HeaderLayout::opcode) == Some(Opcode::Get);
    if datagram.len() < bytes && slot.exchange.may_be_lengthened() && is_get() {
        lengthen(datagram, bytes);
    }
}
