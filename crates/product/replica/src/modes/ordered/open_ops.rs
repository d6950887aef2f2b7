//! Adds open ops, and drops them.

use super::clients::StoredResult;
use super::contents::{is_large, reference};
use super::decide::is_refusal;
use super::locks::Op;
use super::partition::{Agreement, OrderedPartition};
use super::sequence::Decided;
use crate::{Host, Map};
use core::net::SocketAddrV4;
use nicekv_proto::replication::Resend;
use nicekv_proto::{ClientId, Now, OpId, Status, StoredUpdate};

impl<A> OrderedPartition<A>
where
    Self: Agreement,
{
    /// Adds an op: from now on it is undecided, and locks its keys.
    pub(crate) fn insert_op(
        &mut self,
        host: &mut Host,
        now: Now,
        order: u64,
        contended: bool,
        stored: StoredUpdate,
    ) {
        self.advance_client(stored.head().op.client, stored.head().watermark);
        self.keep_named(host);
        if let Some(reference) = reference(&stored) {
            host.storage.keep_value(reference, self.id());
        }
        self.locks.take_in(&mut host.visibility, now, order, contended, stored);
    }

    /// An op carries its client's watermark: forgets the results below it.
    ///
    /// An op below its client's watermark must be one that this replica has decided, or holds. A
    /// process that has not been proven may have lost ops that its clients know to be complete
    /// (R18), so it keeps all results. The log is replayed by a process that is not proven, too. In
    /// a chain every op arrives with its decision, and after all earlier ones.
    pub(crate) fn advance_client(&mut self, client: ClientId, watermark: u64) {
        if Self::DECIDES_AT_ONCE || self.is_proven {
            self.clients.advance(client, watermark);
        }
    }

    /// Pins and unpins the large values that remembered results name. Their keys no longer have
    /// them, but clients may still be reading them (L4).
    pub(crate) fn keep_named(&mut self, host: &mut Host) {
        for (name, is_named) in self.clients.take_named() {
            match is_named {
                true => host.storage.pin_value(name),
                false => host.storage.unpin_value(name),
            }
        }
    }

    /// Drops all open ops, and returns them.
    pub(crate) fn give_up_ops(&mut self, host: &mut Host) -> Map<OpId, Op> {
        let none = host.map();
        let ops = self.locks.give_up(&mut host.visibility, none);
        let large = ops.iter().filter(|(_, op)| is_large(&op.stored));
        large.for_each(|(op, _)| host.storage.let_go_value(*op, self.id()));
        ops
    }

    /// Primary: a decision takes effect whose op was not prepared here. If it is a refusal, its
    /// client is answered now.
    pub(crate) fn answer_refused(&mut self, host: &mut Host, decided: &Decided, result: &StoredResult) {
        let reply_to = self.lead.as_mut().and_then(|lead| lead.take_refused(decided.index));
        host.reply(reply_to, &result.reply(decided.op));
    }

    /// Whether an unreleased decision refuses this op. A member that lacks the decision would
    /// execute the op if it became the primary, so the client must not be answered yet.
    pub(crate) fn is_refusal_unreleased(&self, op: OpId, status: Status) -> bool {
        is_refusal(status) && self.sequence.unreleased().any(|decided| decided.op == op)
    }

    pub(crate) fn resend(&self, host: &mut Host, datagram: &[u8], to: SocketAddrV4) {
        let resend = Resend {
            sender: host.config.node,
            partition: self.id(),
            epoch: self.membership.epoch,
            logged: self.sequence.logged(),
            datagram,
        };
        host.counters.resent += 1;
        host.outbox.send(to, |out| resend.encode(out));
    }
}
