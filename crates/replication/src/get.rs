//! Gets (R2, R4, R11, R12).
//!
//! A consistent replica within its lease answers by itself unless the key is locked; then a secondary asks the primary, and the primary
//! answers what is visible. The value is read as of the datagram's arrival, which lies within the client's call however late the answer
//! leaves.

use crate::config::WAITING_GETS_MAX;
use crate::decide::is_overdue;
use crate::partition::Partition;
use crate::prepare::Source;
use crate::waits::PendingRead;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_node::{Host, Plant, Standing};
use nicekv_wire::recovery::Entry;
use nicekv_wire::{Condition, Datagram, Get, Now, OpId, Operation, Reply, Status, Update};

/// A get that waits for an op of its key.
#[derive(Clone)]
pub(crate) struct WaitingGet {
    pub(crate) op: OpId,
    pub(crate) reply_to: SocketAddrV4,
}

impl Partition {
    /// A get arrived, from a client or passed on by a member.
    pub(crate) fn on_get(&mut self, host: &mut Host, now: Now, get: &Get<'_>, from: SocketAddrV4) {
        let unadmitted = self.membership.standing == Standing::Outside && !self.keys.contains_key(get.key);
        let serves = self.membership.standing.serves() || (unadmitted && host.has(Plant::AnswerUnadmitted));
        let may_serve = serves && host.has_lease(now);
        let heard = match get.forwarded {
            Some((_, epoch, node)) => self.is_primary() && self.membership.accepts(epoch, node),
            None => true,
        };
        if !may_serve || !heard {
            host.counters.dropped += 1;
            return;
        }
        let waiting = WaitingGet { op: get.op, reply_to: get.reply_to.unwrap_or(from) };
        let serves_stale = !self.is_primary() && host.has(Plant::StaleGetAtLockedSecondary);
        if !self.keys.contains_key(get.key) || serves_stale {
            self.serve_get(host, now, waiting, get.key);
        } else if !self.is_primary() {
            self.forward_get(host, waiting, get.key);
        } else if !self.is_recovering(get.key) || host.has(Plant::GetDuringRecovery) {
            self.serve_get(host, now, waiting, get.key);
        } else {
            self.wait_for_outcome(host, waiting, get.key);
        }
    }

    /// Primary: whether a locked key may have an op from before this epoch, which the old primary may have shown: undecided, or decided
    /// and not yet released (R4).
    pub(crate) fn is_recovering(&self, key: &[u8]) -> bool {
        let Some(lead) = &self.lead else { return false };
        let key = &self.keys[key];
        let undecided = |op: &OpId| self.ops[op].order <= lead.recovered_through;
        !lead.is_ready()
            || key.queue.iter().any(undecided)
            || (key.unreleased > 0 && self.released < lead.recovery_end)
    }

    fn wait_for_outcome(&mut self, host: &mut Host, get: WaitingGet, key: &[u8]) {
        match self.keys.get_mut(key) {
            Some(state) if state.waiting.len() < WAITING_GETS_MAX => state.waiting.push(get),
            _ => host.counters.dropped += 1,
        }
    }

    pub(crate) fn serve_gets(&mut self, host: &mut Host, now: Now, gets: Vec<WaitingGet>, key: &[u8]) {
        for get in gets {
            self.serve_get(host, now, get, key);
        }
    }

    pub(crate) fn forward_get(&mut self, host: &mut Host, get: WaitingGet, key: &[u8]) {
        host.counters.gets_forwarded += 1;
        let forwarded = Get {
            keyspace: self.membership.keyspace,
            op: get.op,
            digest: nicekv_placement::key_digest(key),
            reply_to: Some(get.reply_to),
            forwarded: Some((self.id(), self.membership.epoch, host.config.node)),
            key,
        };
        host.outbox.send(self.membership.primary_address(), |out| forwarded.encode(out));
    }

    /// Reads the visible value for a get.
    pub(crate) fn serve_get(&mut self, host: &mut Host, now: Now, get: WaitingGet, key: &[u8]) {
        if !host.has_lease(now) {
            host.counters.dropped += 1;
            return;
        }
        let token = host.read(self.id(), key);
        let read = PendingRead::Get { op: get.op, reply_to: get.reply_to, key: key.into() };
        self.waits.reads.push_back((token, read));
    }

    /// The visible value has been read: answer.
    pub(crate) fn on_get_read(
        &mut self,
        host: &mut Host,
        now: Now,
        get: WaitingGet,
        key: &[u8],
        entry: Option<Entry<'_>>,
    ) {
        let overdue = entry.filter(|entry| is_overdue(entry.expiry_ms, now));
        if let Some(entry) = overdue
            && !host.has(Plant::ExpiryByLocalClock)
        {
            // It expires by a delete that the primary orders, and by nothing else (R11).
            match self.membership.standing {
                Standing::Consistent if self.is_primary() => {
                    self.expire(host, now, key, entry.version, get);
                }
                Standing::Consistent | Standing::Handoff => self.forward_get(host, get, key),
                Standing::Outside | Standing::Joining => {}
            }
            return;
        }
        if entry.is_none()
            && self.membership.standing == Standing::Handoff
            && !host.has(Plant::HandoffDeniesMissing)
        {
            // It holds no more than what was decided since it joined (R8).
            self.forward_get(host, get, key);
            return;
        }
        host.counters.gets += 1;
        let reply = match entry {
            _ if overdue.is_some() => Reply::bare(get.op, Status::NotFound),
            Some(Entry { value: Some(value), version, expiry_ms, .. }) => {
                Reply { version, expiry_ms, value: Some(value), ..Reply::bare(get.op, Status::Ok) }
            }
            _ => Reply::bare(get.op, Status::NotFound),
        };
        host.reply(Some(get.reply_to), &reply);
    }

    /// Primary: deletes an overdue value and lets the get wait for that.
    fn expire(&mut self, host: &mut Host, now: Now, key: &[u8], version: OpId, get: WaitingGet) {
        if !self.keys.contains_key(key) {
            self.order_delete(host, now, key, version);
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
        if let Some(horizon) = self.clients.horizon_over(host.config.internal_client) {
            host.renew_internal_client(now, horizon);
        }
        let (op, watermark) = host.internal_op();
        let delete = Update {
            keyspace: self.membership.keyspace,
            op,
            digest: nicekv_placement::key_digest(key),
            reply_to: None,
            watermark,
            condition: Condition::IfVersion(version),
            return_old: false,
            operation: Operation::Delete,
            key,
        };
        host.outbox.send(self.membership.multicast, |out| delete.encode(out));
        let mut datagram = Vec::new();
        delete.encode(&mut datagram);
        let Ok((_, Datagram::Update(own))) = Datagram::decode(&datagram) else {
            unreachable!("just encoded")
        };
        self.on_update(host, now, &own, &datagram, Source::Own);
        if self.ops.contains_key(&op) {
            return Some(op);
        }
        host.finish_internal(op);
        None
    }

    /// Primary: the next op of `key` meets an overdue value; have it deleted first. Whether that is under way.
    ///
    /// The delete goes before ops that the log has first. It is contended (they are undecided), so it is forced everywhere before any
    /// effect of this order is shown, and recovery keeps it.
    pub(crate) fn expire_first(&mut self, host: &mut Host, now: Now, key: &[u8], version: OpId) -> bool {
        let is_internal = |op: &OpId| op.client == host.config.internal_client;
        let queue = &self.keys[key].queue;
        if queue.front().is_some_and(is_internal) {
            return false;
        }
        match queue.iter().copied().find(is_internal) {
            Some(op) => self.move_to_front(key, op),
            None => match self.order_delete(host, now, key, version) {
                Some(op) => self.move_to_front(key, op),
                None => return false,
            },
        }
        true
    }

    fn move_to_front(&mut self, key: &[u8], op: OpId) {
        let queue = &mut self.keys.get_mut(key).expect("locked").queue;
        queue.retain(|queued| *queued != op);
        queue.push_front(op);
    }
}

/// Decodes a stored entry; the engine checked its checksum, so anything else is a broken invariant.
pub(crate) fn decode_entry(bytes: &[u8]) -> Entry<'_> {
    Entry::decode(bytes).expect("the engine returns what was stored")
}
