//! A full disk (docs/FAULTS.md row 9): a member that cannot store an op refuses it, and the primary
//! decides the refusal.
//!
//! ```text
//! client   primary   full member                    client   full primary   member
//!   │──Update─▶│─────────▶│                            │──Update─▶│─────────▶│ sync
//!   │          │ sync     │ logs nothing                │          │ logs no prepare
//!   │          │◀──Acks───│ (refused)                   │          │ decides without one
//!   │          │─Decisions▶ sync                        │          │─Decisions▶ sync, drop the op
//!   │◀DiskFull─│◀──Acks───│ (progress)                  │◀DiskFull─│◀──Acks───│ (progress)
//! ```
//!
//! A large value may find no room although there was some when its op came. The member then refuses
//! the op in the same way. A report to the client that sends the value does not end the put,
//! because other members may have the value and the op.
//!
//! Decisions need space too, so the driver sets some aside, and while it lasts also takes in
//! deletes. Gets need none.
//!
//! Updates of object names with stamps older than the epoch admits are refused in the same way
//! (P8). No member logs them: whoever finds one open when an epoch begins cannot know whether it
//! was executed.
//!
//! Why a client can rely on "disk full":
//! * The refusal is a decision in the sequence. It is contended, so every member has synced it
//!   before the client hears of it. A member that holds the prepare drops it, whoever is the
//!   primary then.
//! * An op that was open when the primary's epoch began may have been executed and answered already
//!   (R3). Refusals do not count for it: the primary resends it until the member can store it. An
//!   op that the primary itself lacks was never decided, because this node, a member, would have
//!   had to sync it (R1).

use super::TwoPhase;
use super::prepare::Source;
use crate::Host;
use crate::modes::bounds::UNRELEASED_MAX;
use crate::modes::ordered::OrderedPartition;
use crate::modes::ordered::evaluate::Verdict;
use crate::modes::ordered::lead::Lead;
use nicekv_proto::replication::PrepareAck;
use nicekv_proto::{Now, OpId, Status, Update};

impl OrderedPartition<TwoPhase> {
    /// Whether an update that this member does not hold is refused because of a full disk or an old
    /// stamp.
    pub(crate) fn refuses(&mut self, host: &mut Host, now: Now, update: &Update<'_>, source: Source) -> bool {
        let is_full = !host.disk_space.admits(&update.operation) || host.has_no_room_for(update);
        // An op that a member passes on may have been open when the epoch began.
        let is_stale = matches!(source, Source::Client(_)) && self.is_stale(update);
        if !is_full && !is_stale {
            return false;
        }
        if is_full {
            host.count_refused_for_space(self.id(), self.membership.epoch, update.op);
        }
        if self.is_primary() {
            let status = if is_stale { Status::StaleStamp } else { Status::DiskFull };
            self.decide_unlogged(host, now, update, source, status);
        } else {
            let (partition, epoch, op) = (self.id(), self.membership.epoch, update.op);
            let ack = PrepareAck { partition, epoch, op, contended: false, refused: true };
            host.outbox.ack_prepare(self.membership.primary_address(), ack);
        }
        true
    }

    /// Primary: refuses an op without logging its prepare. Until it may decide it does not reply,
    /// and clients retry.
    fn decide_unlogged(
        &mut self,
        host: &mut Host,
        now: Now,
        update: &Update<'_>,
        source: Source,
        status: Status,
    ) {
        let may_decide = self.lead.as_ref().is_some_and(Lead::is_ready)
            && self.membership.activated
            && self.sequence.unreleased().len() < UNRELEASED_MAX;
        if !may_decide || source == Source::Own {
            return;
        }
        if let (Some(reply_to), Some(lead)) = (update.reply_to.or(source.address()), &mut self.lead) {
            lead.refuse(self.sequence.logged() + 1, reply_to);
        }
        self.clients.advance(update.op.client, update.watermark);
        self.keep_named(host);
        self.publish(host, now, update.op, true, Verdict::unchanged(status, None));
    }

    /// Primary: whether a refusal of this op must not count. The refusing member is not silent, so
    /// it is not accused.
    pub(crate) fn is_refusal_void(&mut self, op: OpId) -> bool {
        let is_ready = self.lead.as_ref().is_some_and(Lead::is_ready);
        let is_held_for_recovered = self.mode.makings.is_held_for(op, |target| self.is_recovered(target));
        let is_void = !is_ready || self.is_recovered(op) || is_held_for_recovered;
        if is_void {
            self.locks.calm(op);
        }
        is_void
    }
}
