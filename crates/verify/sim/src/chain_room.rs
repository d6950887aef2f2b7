//! The space for a route header in requests to chains (C5). A switch overwrites whatever a client
//! put there, and a node rejects requests that were routed by another epoch.

use nicekv_proto::hot::Stamp;
use nicekv_proto::route::{ChainHeader, Room, room_for_stamp, room_of, take_room};
use nicekv_proto::{ClientId, Epoch, HeaderLayout, Opcode, PartitionId};
use nicekv_replica::Replica;
use nicekv_switch::TableSet;
use std::borrow::Cow;
use std::net::Ipv4Addr;

/// The datagram without the space for a stamp or a chain header.
pub(crate) fn plain(bytes: &[u8]) -> Cow<'_, [u8]> {
    let mut plain = Vec::new();
    match take_room(bytes, &mut plain) {
        Some(Ok(_)) => plain.into(),
        Some(Err(_)) | None => bytes.into(),
    }
}

/// Whether a switch has written a hot-key stamp into the datagram.
pub(crate) fn is_stamped(bytes: &[u8]) -> bool {
    let is_some = |room| matches!(room, Room::Stamp(stamp) if stamp.is_some());
    take_room(bytes, &mut Vec::new()).is_some_and(|room| room.is_ok_and(is_some))
}

fn written(bytes: &[u8]) -> Option<ChainHeader> {
    match take_room(bytes, &mut Vec::new())? {
        Ok(Room::Chain(header)) => Some(header),
        Ok(Room::Stamp(_)) | Err(_) => None,
    }
}

/// Overwrites the space with forged content if the client's id is even: nine hops to one node, a
/// loop, or a chain with an epoch that may be wrong.
pub(crate) fn forge(client: ClientId, bytes: &mut [u8]) {
    let length = bytes.len();
    if let Some(room) = room_for_stamp(bytes).filter(|_| client.0.is_multiple_of(2)) {
        // The forged instance may exist; the forged count is lower than any real count, or higher.
        let (instance, seen) = (length as u64 % 11, if length.is_multiple_of(2) { 1 } else { u64::MAX - 1 });
        *room = Stamp { instance, seen: seen * instance.min(1) }.to_bytes();
        return;
    }
    let Some(room) = room_of(bytes).filter(|_| client.0.is_multiple_of(2)) else { return };
    let node = |node: u8| Ipv4Addr::new(127, 20, 0, node);
    let header = |nodes: &[u8]| {
        let (partition, epoch) = (PartitionId(length as u32 % 3), Epoch(length as u32 % 5));
        ChainHeader::new(partition, epoch, nodes.iter().map(|&one| node(one)))
    };
    *room = match length % 4 {
        0 => [0xff; ChainHeader::BYTES],
        1 => header(&[1; 9]).to_bytes(),
        2 => header(&[1, 2, 1, 2]).to_bytes(),
        _ => header(&[1, 2, 3]).to_bytes(),
    };
}

/// What is wrong with a chain header that a switch passes to a host: the switch's tables have no
/// such chain and epoch. `None` if the header is right.
pub(crate) fn foreign_to(tables: &TableSet, bytes: &[u8]) -> Option<String> {
    let mut room = bytes.to_vec();
    room_of(&mut room)?;
    let header = written(bytes);
    let of_vnodes = tables.unicast.iter().filter_map(|entry| entry.chain);
    let mut chains = of_vnodes.chain(tables.record.iter().filter_map(|record| record.chain));
    let is_its = |header: &ChainHeader| {
        chains.any(|chain| (chain.partition, chain.epoch) == (header.partition.0, header.epoch.0))
    };
    let is_right = header.as_ref().is_some_and(is_its);
    (!is_right).then(|| format!("a switch passes on a chain header that is not in its tables: {header:?}"))
}

/// Counters that show whether a node has accepted a datagram.
#[derive(Clone, Copy)]
pub(crate) struct TakenIn {
    refused: u64,
    assembled: u64,
}

impl TakenIn {
    fn of(core: &Replica) -> Self {
        let counters = core.status().counters;
        let refused = counters.refused + counters.dropped + counters.malformed;
        Self { refused, assembled: counters.assembled }
    }

    /// Whether the node has accepted the datagram since `self` was counted. A fragment counts as
    /// accepted only if it completed its message.
    pub(crate) fn has_more(self, core: &Replica, bytes: &[u8]) -> bool {
        let now = Self::of(core);
        let is_part = HeaderLayout::peek(bytes).and_then(HeaderLayout::opcode) == Some(Opcode::Fragment);
        now.refused == self.refused && (!is_part || now.assembled > self.assembled)
    }
}

/// The node's counters before it handles a datagram that it must refuse: one whose chain header has
/// another epoch than the node's. `None` if the node may accept it.
pub(crate) fn to_be_refused(core: &Replica, bytes: &[u8]) -> Option<TakenIn> {
    let header = written(bytes)?;
    let status = core.status();
    let mut known = status.partitions.iter().filter(|known| known.partition == header.partition);
    known.any(|known| known.epoch != header.epoch).then(|| TakenIn::of(core))
}
