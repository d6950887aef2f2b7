//! The head of a chain adopts entries that it lost, takes in each op once (C4), and decides ops at
//! once in its own order (C1).

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
    /// An update from a client at `from`, or without an address from this node's own client. Only
    /// the head takes it in.
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
            // The tail answers it later, and no entry held here is lost on the way (C3, C6).
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
            // No reply: the client retries, and reaches the partition that takes over.
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
            // Chains carry an entry in one datagram, so there are no large values.
            return host.reply(reply_to, &Reply::bare(op, Status::ValueTooLong));
        }
        let stored = StoredUpdate::new(update, datagram, from, self.locks.take_spare());
        let key = stored.stored_key();
        self.log_op(host, now, stored);
        host.arm_sweep(now);
        // An op of this node's own client may have to go before others, so its caller decides.
        if from.is_some() {
            self.decide_key(host, now, &key);
        }
    }

    /// Whether an update is refused because some disk from here to the end of the chain is full, or
    /// its stamp is too old (P8).
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

    /// At the start of an epoch: adopts an entry that another member has and this head lost before
    /// syncing it.
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

    /// Head, when a disk is full: the refusal is an entry like any other, with only the op's name
    /// (docs/FAULTS.md row 9).
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
