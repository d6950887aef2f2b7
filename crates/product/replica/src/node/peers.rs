//! What members of a partition say to each other alone, one partition a message.

use crate::modes::messages::Message;
use crate::node::Replica;
use core::net::SocketAddrV4;
use nicekv_proto::{Datagram, Now};

impl Replica {
    /// Passes it on to the partition, if it is of the current epoch and from a member (R4).
    pub(crate) fn on_peer(&mut self, now: Now, from: SocketAddrV4, datagram: &Datagram<'_>) {
        let (id, epoch, sender, message) = match datagram {
            Datagram::RecoverRequest(m) => (m.partition, m.epoch, m.sender, Message::RecoverRequest(m)),
            Datagram::RecoverReply(m) => (m.partition, m.epoch, m.sender, Message::RecoverReply(m)),
            Datagram::Fetch(m) => (m.partition, m.epoch, m.sender, Message::Fetch(m.wanted)),
            Datagram::RepairRequest(m) => (m.partition, m.epoch, m.sender, Message::RepairRequest(m)),
            Datagram::RepairReply(m) => (m.partition, m.epoch, m.sender, Message::RepairReply(m)),
            Datagram::ScrubPage(m) => (m.partition, m.epoch, m.sender, Message::ScrubPage(m)),
            Datagram::Tombstones(m) => (m.partition, m.epoch, m.sender, Message::Tombstones(m)),
            Datagram::TombstonesAck(m) => (m.partition, m.epoch, m.sender, Message::TombstonesAck(m.round)),
            Datagram::Entrust(m) => (m.partition, m.epoch, m.sender, Message::Entrust(m)),
            Datagram::Entrusted(m) => (m.partition, m.epoch, m.sender, Message::Entrusted(m.serial)),
            _ => unreachable!("no message between members alone"),
        };
        self.hear(now, from, id, epoch, sender, message);
    }
}
