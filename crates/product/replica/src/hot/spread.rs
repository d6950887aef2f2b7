//! Where copies of a hot name should be.

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

/// As the metadata service assigns it.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    pub(super) instance: u64,
    pub(super) holders: Vec<SocketAddrV4>,
    pub(super) in_switch: bool,
    /// When a member that does not lead last passed on a get.
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

    /// Sends all of them the same copy; the switch gets it as a ready reply.
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
        // Switches do not keep longer keys, nor the empty one.
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
