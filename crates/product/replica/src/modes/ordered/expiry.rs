//! Expiry: a value expires only by a delete that the primary decides (R11). Until then conditions
//! treat it as present.
//!
//! If a get or the next op of a key meets an overdue value, the value is deleted first. Other
//! overdue values are deleted in the background: a few keys of the `agenda` at every heartbeat of
//! the primary.

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
    /// Primary: starts the delete of an overdue value that a get has met. The get waits for the
    /// delete.
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

    /// Primary: starts a delete of `version` of a key, as an op of the node's own client that runs
    /// like any other.
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

    /// The id of a new op of the node's own client, and that client's watermark. If this partition
    /// has forgotten the client (R10), the client takes a new id first.
    pub(crate) fn own_op(&self, host: &mut Host, now: Now) -> (OpId, u64) {
        if let Some(horizon) = self.clients.horizon_over(host.config.internal_client) {
            host.renew_internal_client(now, horizon);
        }
        host.internal_op()
    }

    /// Primary: like `order_delete`, for a key without open ops.
    pub(crate) fn order_alone(&mut self, host: &mut Host, now: Now, key: &[u8], version: OpId) {
        self.order_delete(host, now, key, version);
        if Self::DECIDES_AT_ONCE {
            self.decide_key(host, now, key);
        }
    }

    /// Primary: the next op of `key` meets an overdue value, which has to be deleted first. Returns
    /// whether the delete is under way.
    ///
    /// The delete is decided before ops that precede it in the log. Because these are undecided,
    /// the delete is contended: every member syncs its decision before anything that follows is
    /// shown, so recovery keeps the order.
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

    /// Primary: starts deletes of at most `deletes_max` overdue values; returns how many.
    pub(crate) fn expire_overdue(&mut self, host: &mut Host, now: Now, deletes_max: usize) -> usize {
        let mut deletes = 0;
        while deletes < deletes_max
            && self.may_decide()
            && !self.membership.sealed
            && host.internal_ops() < EXPIRY_DELETES_OPEN_MAX
        {
            let Some((key, version)) = self.contents.agenda_mut().take_due(now) else { break };
            // A locked key's next op deletes the overdue value.
            if !self.locks.is_locked(&key) {
                self.order_alone(host, now, &key, version);
                deletes += 1;
            }
        }
        deletes
    }
}
