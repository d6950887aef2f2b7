//! Builders of expected results, and the stations that most fixtures use.

use std::mem::offset_of;

use nicekv_proto::{HeaderLayout, Opcode};

use crate::frames::{self, Udp};
use crate::{Fixture, PORTS, ROUTER_MAC, host};
use nicekv_switch::{Counter, EntryRequests, Output, Table, Verdict};

pub(super) const BROADCAST: [u8; 6] = [0xff; 6];
/// A station at port 0, the default sender.
pub(super) const CLIENT: [u8; 6] = [0x02, 0, 0, 0, 0x09, 0x01];
/// A station at port 4.
pub(super) const OTHER_CLIENT: [u8; 6] = [0x02, 0, 0, 0, 0x08, 0x01];

/// Expected result of vring traffic: `(verdict, frames)` for hosts, rewritten from scratch.
pub(super) fn rewritten(sent: &Udp, receivers: &[u16]) -> Vec<(u16, Vec<u8>)> {
    let copy = |&id: &u16| {
        let host = host(id);
        let copy =
            Udp { destination_mac: host.mac, source_mac: ROUTER_MAC, destination: host.ip, ..sent.clone() };
        (host.port, copy.build())
    };
    receivers.iter().map(copy).collect()
}

pub(super) fn fixture(name: impl Into<String>, ingress: u16, frame: Vec<u8>) -> Fixture {
    Fixture {
        name: name.into(),
        installed: true,
        learned: vec![],
        ingress,
        frame,
        expected: Output { verdict: Verdict::Dropped, frames: vec![] },
        counters: vec![],
        hits: vec![],
        counted_as: EntryRequests::default(),
    }
}

/// Expected hits of an entry that forwards a get to a host.
pub(super) const READ: EntryRequests = EntryRequests { reads: 1, updates: 0 };

/// Expected hits of an entry that forwards this to a group.
pub(super) fn counted_as(sent: &Udp) -> EntryRequests {
    let opcode = sent.payload[offset_of!(HeaderLayout, opcode)];
    let is = |opcodes: &[Opcode]| opcodes.iter().any(|known| *known as u8 == opcode);
    if is(&[Opcode::Update, Opcode::QuorumStore, Opcode::Bundle]) {
        return EntryRequests { reads: 0, updates: 1 };
    }
    if is(&[Opcode::QuorumQuery]) { READ } else { EntryRequests::default() }
}

pub(super) fn dropped(name: impl Into<String>, frame: Vec<u8>, counter: Counter) -> Fixture {
    Fixture { counters: vec![(counter, 1)], ..fixture(name, 0, frame) }
}

pub(super) fn flooded(name: impl Into<String>, frame: Vec<u8>) -> Fixture {
    let frames = PORTS.filter(|&port| port != 0).map(|port| (port, frame.clone())).collect();
    Fixture {
        expected: Output { verdict: Verdict::Flooded, frames },
        counters: vec![(Counter::Flooded, 1)],
        ..fixture(name, 0, frame)
    }
}

/// A fixture that is forwarded to port 4, where its destination was learned.
pub(super) fn forwarded(name: impl Into<String>, frame: Vec<u8>) -> Fixture {
    Fixture {
        learned: vec![(4, OTHER_CLIENT)],
        expected: Output { verdict: Verdict::Forwarded, frames: vec![(4, frame.clone())] },
        counters: vec![(Counter::LearnedForwarded, 1)],
        ..fixture(name, 0, frame)
    }
}

/// A fixture that is routed to a host. `entry`: position in `unicast_vring`; `division`: position
/// in `division`, if one matches.
pub(super) fn routed(
    name: &str,
    ingress: u16,
    sent: &Udp,
    receiver: u16,
    entry: usize,
    division: Option<usize>,
) -> Fixture {
    let mut counters = vec![(Counter::Hits(Table::Unicast), 1)];
    counters.extend(division.map(|_| (Counter::Hits(Table::Division), 1)));
    let mut hits = vec![(Table::Unicast, entry)];
    hits.extend(division.map(|index| (Table::Division, index)));
    Fixture {
        expected: Output { verdict: Verdict::Routed, frames: rewritten(sent, &[receiver]) },
        counters,
        hits,
        counted_as: READ,
        ..fixture(name, ingress, sent.build())
    }
}

pub(super) fn copied(name: &str, ingress: u16, sent: &Udp, receivers: &[u16], entry: usize) -> Fixture {
    Fixture {
        expected: Output { verdict: Verdict::Multicast, frames: rewritten(sent, receivers) },
        counters: vec![
            (Counter::Hits(Table::Multicast), 1),
            (Counter::MulticastCopies, receivers.len() as u64),
        ],
        hits: vec![(Table::Multicast, entry)],
        counted_as: counted_as(sent),
        ..fixture(name, ingress, sent.build())
    }
}

pub(super) fn to(destination: [u8; 4]) -> Udp {
    Udp::request(destination)
}

/// A client behind the trunk at port 4.
pub(super) fn far_client(destination: [u8; 4]) -> Udp {
    Udp { source_mac: OTHER_CLIENT, source: [10, 0, 8, 1], ..to(destination) }
}

/// A fixture that is routed over a trunk. `entry`: position in `unicast_vring`; `trunk`: the port
/// by which the frame leaves unchanged.
pub(super) fn passed(name: &str, ingress: u16, sent: &Udp, trunk: Option<u16>, entry: usize) -> Fixture {
    let frames = trunk.into_iter().map(|port| (port, sent.build())).collect();
    let mut counters = vec![(Counter::Hits(Table::Unicast), 1)];
    counters.extend(trunk.is_none().then_some((Counter::SamePortDropped, 1)));
    Fixture {
        expected: Output { verdict: Verdict::Routed, frames },
        counters,
        hits: vec![(Table::Unicast, entry)],
        counted_as: READ,
        ..fixture(name, ingress, sent.build())
    }
}

pub(super) fn clear_udp_checksum(frame: &mut [u8]) {
    frame[frames::ETHERNET_BYTES + 26..][..2].fill(0);
}
