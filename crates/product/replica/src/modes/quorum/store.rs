//! A client asks a replica to hold a version, whose value may have to come first.

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
    /// Hold this version, if that was asked in this epoch. A newcomer takes it in, too, and keeps silent. A store of an epoch before might
    /// bring back what was deleted and is forgotten: it is answered as a question, so that the client asks again.
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

    /// The large value of a version that is to be held is not here: who puts it sends it. What a get writes back another member has, or is being sent.
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
            // What is held may be newer: then nobody may have this value any more.
            self.answer_as_question(node, now, store, from);
        }
    }

    /// Tells what is held of the key that a version is to be stored of.
    fn answer_as_question(&mut self, node: &mut Host, now: Now, store: &QuorumStore<'_>, from: SocketAddrV4) {
        let QuorumStore { keyspace, op, digest, reply_to, quorum, key, .. } = *store;
        let (wants_value, announced) = (false, None);
        let query = QuorumQuery { keyspace, op, digest, reply_to, quorum, wants_value, key, announced };
        self.on_query(node, now, query, from);
    }

    /// Its client may send this large value: with the store that names it, or before.
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
