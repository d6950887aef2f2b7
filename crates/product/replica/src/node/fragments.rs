//! Reassembles messages that arrive in fragments.

use crate::node::Replica;
use core::net::SocketAddrV4;
use nicekv_proto::fragment::Fragment;
use nicekv_proto::route::Room;
use nicekv_proto::{HeaderLayout, Now, Opcode, stamp_reply_to};
use nicekv_transport::{Malformed, Part};

impl Replica {
    /// A fragment of a message has arrived. Once all fragments are here, the message is handled.
    pub(crate) fn on_fragment(
        &mut self,
        now: Now,
        from: SocketAddrV4,
        fragment: &Fragment<'_>,
        room: Option<&Room>,
    ) {
        let Fragment { name, count, index, bytes, sender, reply_to, .. } = *fragment;
        let part = Part { name, count, index, bytes };
        let mut message = match self.assembler.take(now.boot_ns, from, &part) {
            Ok(Some(message)) => message,
            Ok(None) => return,
            Err(Malformed) => return self.host.counters.malformed += 1,
        };
        let header = HeaderLayout::peek(&message);
        // Switches forward plain fragments from any sender, but only these requests may arrive that
        // way. Fragments of all other messages must name a node as their sender.
        let is_allowed = match header.and_then(HeaderLayout::opcode) {
            Some(Opcode::Fragment | Opcode::PeerFragment) | None => false,
            Some(Opcode::Update | Opcode::Directed | Opcode::Publish) => true,
            Some(_) => sender.is_some(),
        };
        if !is_allowed {
            self.host.counters.refused += 1;
            return;
        }
        if let (Some(reply_to), None) = (reply_to, header.and_then(HeaderLayout::reply_to)) {
            stamp_reply_to(&mut message, reply_to);
        }
        self.host.counters.assembled += 1;
        self.handle_plain(now, from, &message, room);
    }
}
