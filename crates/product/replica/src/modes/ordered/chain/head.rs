//! The head of a chain: it adopts what others have of its log, takes ops in, once (C4), and decides them at once, in its own order (C1).

use crate::Host;
use crate::modes::bounds::UNRELEASED_MAX;
use crate::modes::ordered::evaluate::Verdict;
use crate::modes::ordered::partition::OrderedPartition;
use crate::modes::ordered::prepare::Source;
use crate::modes::ordered::sequence::Decided;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::replication::Decision;
use nicekv_proto::{Condition, Datagram, NodeId, Now, Operation, Status, StoredUpdate, Update};

impl OrderedPartition {
    /// A new op, at the head: logged, and decided unless something comes first.
    pub(in crate::modes::ordered) fn take_in(
        &mut self,
        host: &mut Host,
        now: Now,
        stored: StoredUpdate,
        source: Source,
    ) {
        let key = stored.stored_key();
        self.log_op(host, now, stored);
        host.arm_sweep(now);
        // One of its own may go before others: who has ordered it decides.
        if source != Source::Own {
            self.decide_key(host, now, &key);
        }
    }

    /// When an epoch begins: what a member has and this head has not, since it lost what it had not forced.
    pub(super) fn adopt_entry(
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

    /// Head with a full disk: the refusal is an entry like any other, and carries of the op what names it (docs/FAULTS.md row 9).
    pub(in crate::modes::ordered) fn refuse_full(
        &mut self,
        host: &mut Host,
        now: Now,
        update: &Update<'_>,
        from: Option<SocketAddrV4>,
    ) {
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
