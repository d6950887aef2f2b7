//! Stores: a client asks a replica to hold a version. If the version has a large value, that may
//! have to arrive first.

use super::entrusting::has_room;
use super::partition::QuorumPartition;
use super::version::{Version, Waiter};
use crate::{Host, LargePut, Standing};
use alloc::boxed::Box;
use core::net::SocketAddrV4;
use nicekv_proto::large::Reference;
use nicekv_proto::quorum::{QuorumQuery, QuorumStore};
use nicekv_proto::{Now, Status};

impl QuorumPartition {
    /// Stores a version if the request is of this epoch. A newcomer stores it, too, but does not
    /// answer. A store of an earlier epoch could bring back a version that was deleted and
    /// forgotten, so it is answered like a query, and the client asks again.
    pub(super) fn on_store(
        &mut self,
        node: &mut Host,
        now: Now,
        (store, datagram): (&QuorumStore<'_>, &[u8]),
        from: SocketAddrV4,
    ) {
        let reply_to = store.reply_to.unwrap_or(from);
        let epoch = self.membership.epoch;
        if store.epoch < epoch {
            return self.answer_as_question(node, now, store, from);
        }
        let has_room = has_room(node.disk_space, store.value.is_none());
        let is_early = store.epoch > epoch;
        if self.membership.standing == Standing::Outside || self.is_full() || !has_room || is_early {
            node.counters.dropped += 1;
            return;
        }
        let QuorumStore { timestamp, is_large, .. } = *store;
        let version = Version { timestamp, value: store.value.map(Box::from), is_large };
        if let Some(reference) = version.lacking(node) {
            return self.await_value(node, now, reference, (store, datagram), from);
        }
        self.take(node, now, store.key, version, Waiter::Client { op: store.op, reply_to });
    }

    /// The large value of a version is not on disk. If this store is the put's own, its client
    /// sends the value. If a get writes the version back, the value is at another member, or on its
    /// way to one.
    fn await_value(
        &mut self,
        node: &mut Host,
        now: Now,
        reference: Reference,
        (store, datagram): (&QuorumStore<'_>, &[u8]),
        from: SocketAddrV4,
    ) {
        if store.op == reference.name {
            let reply_to = store.reply_to.unwrap_or(from);
            self.expect_value(node, now, reference, (Some(datagram), from), reply_to);
        } else {
            node.await_value(self.id(), reference, (from, datagram));
            // A newer version may be here; in that case possibly no member has the value any more.
            self.answer_as_question(node, now, store, from);
        }
    }

    /// Answers a store as if it were a query for its key.
    fn answer_as_question(&mut self, node: &mut Host, now: Now, store: &QuorumStore<'_>, from: SocketAddrV4) {
        let QuorumStore { keyspace, op, digest, reply_to, quorum, key, .. } = *store;
        let (wants_value, announced) = (false, None);
        let query = QuorumQuery { keyspace, op, digest, reply_to, quorum, wants_value, key, announced };
        self.on_query(node, now, query, from);
    }

    /// Allows a client to send this large value, together with the store that names it, or before.
    pub(super) fn expect_value(
        &self,
        node: &mut Host,
        now: Now,
        reference: Reference,
        (request, from): (Option<&[u8]>, SocketAddrV4),
        reply_to: SocketAddrV4,
    ) {
        if node.storage.holds_value(reference.name) {
            node.report_value(&self.membership, &reference, (reply_to, false), Status::Ok);
        } else if has_room(node.disk_space, false) {
            let put = LargePut { reference, request, from, reply_to, has_primary: false };
            node.expect_value(now, &self.membership, &put);
        }
    }
}
