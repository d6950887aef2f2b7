//! A value expires by a delete that the primary orders, and by nothing else (R11): until then conditions see it as present.
//!
//! A get or the next op of a key that meets an overdue value has it deleted first. What nobody asks for is deleted in the background: a few
//! keys of the `agenda` at every heartbeat of the node that leads their partition.

use super::locks::{Key, Op, WaitingGet};
use super::partition::{Agreement, OrderedPartition};
use crate::Host;
use crate::modes::bounds::EXPIRY_DELETES_OPEN_MAX;
use alloc::vec::Vec;
use nicekv_proto::{Condition, Datagram, Now, OpId, Operation, Update};

impl<A> OrderedPartition<A>
where
    Self: Agreement,
{
    /// Primary: deletes an overdue value and lets the get wait for that.
    pub(crate) fn expire_for(
        &mut self,
        host: &mut Host,
        now: Now,
        key: &[u8],
        version: OpId,
        get: WaitingGet,
    ) {
        if !self.locks.is_locked(key) {
            self.order_alone(host, now, key, version);
        }
        self.wait_for_outcome(host, get, key);
    }

    /// Primary: has the node's own client delete `version` of a key. The op takes the way of every other put.
    pub(crate) fn order_delete(
        &mut self,
        host: &mut Host,
        now: Now,
        key: &[u8],
        version: OpId,
    ) -> Option<OpId> {
        if self.membership.sealed {
            return None;
        }
        let (op, watermark) = self.own_op(host, now);
        let delete = Update {
            keyspace: self.membership.keyspace,
            op,
            digest: self.membership.digest(key),
            reply_to: None,
            watermark,
            condition: Condition::IfVersion(version),
            return_old: false,
            operation: Operation::Delete,
            key,
        };
        let mut datagram = Vec::new();
        delete.encode(&mut datagram);
        let Ok((_, Datagram::Update(own))) = Datagram::decode(&datagram) else {
            unreachable!("just encoded")
        };
        self.propose(host, now, &own, &datagram);
        if self.locks.holds(op) {
            return Some(op);
        }
        host.finish_internal(op);
        None
    }

    /// An op of the node's own client, which the partition knows or has not forgotten (R10), and that client's watermark.
    pub(crate) fn own_op(&self, host: &mut Host, now: Now) -> (OpId, u64) {
        if let Some(horizon) = self.clients.horizon_over(host.config.internal_client) {
            host.renew_internal_client(now, horizon);
        }
        host.internal_op()
    }

    /// Primary: the same, where nothing else is open of the key.
    pub(crate) fn order_alone(&mut self, host: &mut Host, now: Now, key: &[u8], version: OpId) {
        self.order_delete(host, now, key, version);
        if Self::DECIDES_AT_ONCE {
            self.decide_key(host, now, key);
        }
    }

    /// Primary: the next op of `key` meets an overdue value; have it deleted first. Whether that is under way.
    ///
    /// The delete goes before ops that the log has first. It is contended (they are undecided), so it is forced everywhere before any
    /// effect of this order is shown, and recovery keeps it.
    pub(crate) fn expire_first(&mut self, host: &mut Host, now: Now, key: &[u8], version: OpId) -> bool {
        let me = host.config.internal_client;
        let is_delete = |op: &OpId| self.locks.op(*op).is_some_and(Op::is_delete);
        let is_internal = |op: &OpId| op.client == me && is_delete(op);
        let undecided: Vec<OpId> = self.locks.key(key).into_iter().flat_map(Key::undecided).collect();
        if undecided.first().is_some_and(is_internal) {
            return false;
        }
        let ordered = undecided.into_iter().find(is_internal);
        let Some(op) = ordered.or_else(|| self.order_delete(host, now, key, version)) else { return false };
        self.locks.move_to_front(key, op);
        true
    }

    /// Primary: orders at most so many deletes; how many it was.
    pub(crate) fn expire_overdue(&mut self, host: &mut Host, now: Now, deletes_max: usize) -> usize {
        let mut deletes = 0;
        while deletes < deletes_max
            && self.may_decide()
            && !self.membership.sealed
            && host.internal_ops() < EXPIRY_DELETES_OPEN_MAX
        {
            let Some((key, version)) = self.contents.agenda_mut().take_due(now) else { break };
            // The next op of a locked key sees to it.
            if !self.locks.is_locked(&key) {
                self.order_alone(host, now, &key, version);
                deletes += 1;
            }
        }
        deletes
    }
}
