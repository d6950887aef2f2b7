//! The head of a chain: adopts entries that it has lost, accepts each op once (C4), and decides ops
//! at once, in the order of arrival (C1).

use super::Chain;
use crate::modes::bounds::{OPEN_OPS_MAX, UNRELEASED_MAX};
use crate::modes::ordered::OrderedPartition;
use crate::modes::ordered::clients::Lookup;
use crate::modes::ordered::evaluate::Verdict;
use crate::modes::ordered::sequence::Decided;
use crate::{Host, Standing, Step};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::replication::Decision;
use nicekv_proto::{Condition, Datagram, NodeId, Now, Operation, Reply, Status, StoredUpdate, Update};

impl OrderedPartition<Chain> {
    /// An update from a client at address `from`; `None`: from this node's own client. Only the
    /// head accepts it.
    pub(crate) fn on_update(
        &mut self,
        host: &mut Host,
        now: Now,
        update: &Update<'_>,
        datagram: &[u8],
        from: Option<SocketAddrV4>,
    ) {
        if self.membership.standing == Standing::Outside || !self.is_primary() {
            host.counters.dropped += 1;
            return;
        }
        let op = update.op;
        if self.locks.holds(op) {
            // The op is known. The tail answers it later, and entries held here are resent until
            // they are acknowledged (C3, C6).
            return;
        }
        self.look_for_proof();
        let reply_to = update.reply_to.or(from);
        match self.clients.lookup(op) {
            Lookup::New => {}
            Lookup::Finished(result) => {
                if !self.is_refusal_unreleased(op, result.status) {
                    host.trace.note(now, op, Step::Answered(result.status));
                    host.reply(reply_to, &result.reply(op));
                }
                return;
            }
            Lookup::Expired => return host.reply(reply_to, &Reply::bare(op, Status::Expired)),
        }
        if self.membership.sealed {
            // The partition is sealed (R17): no reply, so the client retries and reaches a child.
            host.counters.dropped += 1;
            return;
        }
        if self.is_beyond_reach(update) {
            return host.reply(reply_to, &Reply::bare(op, Status::CrossPartition));
        }
        if self.refuses(host, now, update, from) {
            return;
        }
        if self.locks.count() >= OPEN_OPS_MAX {
            host.counters.dropped += 1;
            return;
        }
        if update.operation.reference().is_some() {
            // An entry travels along a chain in one datagram, so chains have no large values.
            return host.reply(reply_to, &Reply::bare(op, Status::ValueTooLong));
        }
        let stored = StoredUpdate::new(update, datagram, from, self.locks.take_spare());
        let key = stored.stored_key();
        self.log_op(host, now, stored);
        host.arm_sweep(now);
        // An op of this node's own client may have to precede other ops of the key, so its caller
        // decides it.
        if from.is_some() {
            self.decide_key(host, now, &key);
        }
    }

    /// Whether an update is refused: a disk from here to the end of the chain is full, or the
    /// update's stamp is too old (P8).
    fn refuses(
        &mut self,
        host: &mut Host,
        now: Now,
        update: &Update<'_>,
        from: Option<SocketAddrV4>,
    ) -> bool {
        let is_full = !self.space_from_here(host).admits(&update.operation) || host.has_no_room_for(update);
        let is_stale = from.is_some() && self.is_stale(update);
        if !is_full && !is_stale {
            return false;
        }
        if is_full {
            host.count_refused_for_space(self.id(), self.membership.epoch, update.op);
        }
        if from.is_some() {
            self.refuse_full(host, now, update, from);
        }
        true
    }

    /// At the start of an epoch: adopts an entry that another member has logged, and that this head
    /// had lost before it was synced.
    pub(crate) fn adopt_entry(
        &mut self,
        host: &mut Host,
        now: Now,
        sender: NodeId,
        decision: &Decision<'_>,
        op: Option<(&Update<'_>, &[u8])>,
    ) {
        if self.adopts(sender, decision) && self.take_op(host, now, decision, op) {
            self.adopt(host, now, Decided { contended: true, ..Decided::from_wire(decision) });
        }
    }

    /// Head, when a disk is full: refuses the op by an entry like any other, which contains only
    /// the op's id (docs/FAULTS.md row 9).
    fn refuse_full(&mut self, host: &mut Host, now: Now, update: &Update<'_>, from: Option<SocketAddrV4>) {
        if !self.may_decide() || self.sequence.unreleased().len() >= UNRELEASED_MAX {
            return;
        }
        let (operation, condition) = (Operation::Delete, Condition::Always);
        let reply_to = update.reply_to.or(from);
        let named = Update { operation, condition, return_old: false, reply_to, ..*update };
        let mut datagram = Vec::new();
        named.encode(&mut datagram);
        let Ok((_, Datagram::Update(named))) = Datagram::decode(&datagram) else {
            unreachable!("just encoded")
        };
        let op = StoredUpdate::new(&named, &datagram, None, self.locks.take_spare());
        self.log_op(host, now, op);
        self.publish(host, now, update.op, true, Verdict::unchanged(Status::DiskFull, None));
    }
}
