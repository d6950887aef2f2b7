//! The holders that the metadata service has assigned to a hot name.

use super::leases::{Leases, Peer};
use crate::node::outbox::Outbox;
use crate::node::status::HotCounters;
use crate::node::visibility::reply_body;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::Now;
use nicekv_proto::hot::{HotAssign, HotCopy, HotValue, REPLY_BODY_BYTES_MAX};
use nicekv_proto::limits::KERNEL_KEY_BYTES_MAX;
use nicekv_proto::recovery::Entry;

/// An assignment of the metadata service.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    pub(super) instance: u64,
    pub(super) holders: Vec<SocketAddrV4>,
    pub(super) in_switch: bool,
    /// When this member, which does not lead, last passed a get of this name on to the primary.
    pub(super) shown_ns: u64,
}

impl Spread {
    pub(super) fn new(assign: &HotAssign) -> Self {
        let HotAssign { instance, in_switch, .. } = *assign;
        Self { instance, holders: assign.holders.clone(), in_switch, shown_ns: 0 }
    }

    /// The holders that should have copies.
    pub(super) fn peers(&self) -> impl Iterator<Item = Peer> {
        let nodes = self.holders.iter().map(|holder| Peer::Node(*holder));
        nodes.chain(self.in_switch.then_some(Peer::Switch))
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.holders == other.holders && self.in_switch == other.in_switch
    }

    /// Sends the same copy to all holders. The switch gets it in the form of a complete reply.
    pub(super) fn send(
        &self,
        now: Now,
        copy: &HotCopy<'_>,
        leases: &mut Leases,
        outbox: &mut Outbox,
        counters: &mut HotCounters,
    ) {
        let HotCopy { keyspace, digest, stamp, serial, vring, key, entry } = *copy;
        for holder in &self.holders {
            counters.copies += 1;
            leases.note_copy(now, Peer::Node(*holder));
            outbox.send(*holder, |out| copy.encode(out));
        }
        // Switches store neither longer keys nor the empty key.
        if self.in_switch
            && (1..=KERNEL_KEY_BYTES_MAX).contains(&key.len())
            && let Ok(entry) = Entry::decode(entry)
        {
            let reply = reply_body(&entry);
            if reply.len() <= REPLY_BODY_BYTES_MAX {
                counters.values += 1;
                leases.note_value(now, vring, (keyspace, digest));
                let value = HotValue { keyspace, digest, stamp, serial, key, reply: &reply };
                outbox.send(vring, |out| value.encode(out));
            }
        }
    }
}
