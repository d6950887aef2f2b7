//! Refusals because of a full disk (docs/FAULTS.md row 9): a member that cannot store an op refuses
//! it, and the primary decides the refusal.
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
//! A large value may find no room although there was room when its op arrived. The member then
//! refuses the op in the same way. A report to the client that sends the value does not end the
//! put, because other members may have the value and the op.
//!
//! Decisions need space, too, so the driver reserves some; while the reserve lasts, deletes are
//! also accepted. Gets need none.
//!
//! Updates of object names whose stamps are older than the epoch allows are refused in the same way
//! (P8). No member logs them: if one were found open at the start of an epoch, nobody could know
//! whether it was executed.
//!
//! Why a client can rely on "disk full":
//! * The refusal is a decision in the sequence. It is contended, so every member has synced it
//!   before the client receives it. A member that holds the prepare drops it, whichever node is the
//!   primary by then.
//! * An op that was open when the primary's epoch began may have been executed and answered already
//!   (R3). Refusals do not count for it: the primary resends it until the member can store it. An
//!   op that the primary itself lacks was never decided, because this node, as a member, would have
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
    /// Refuses an update that this member does not hold, if the disk is full or the stamp is too
    /// old. Returns whether it did.
    pub(crate) fn refuses(&mut self, host: &mut Host, now: Now, update: &Update<'_>, source: Source) -> bool {
        let is_full = !host.disk_space.admits(&update.operation) || host.has_no_room_for(update);
        // The stamp of an op that a member passes on is not checked, because the op may have been
        // open when the epoch began.
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
            let ack = PrepareAck { partition, epoch, op, contended: false, refused: true, receiving: false };
            host.outbox.ack_prepare(self.membership.primary_address(), ack);
        }
        true
    }

    /// Primary: decides to refuse an op without logging its prepare. While it may not decide it
    /// does not reply, and clients retry.
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
        self.advance_client(update.op.client, update.watermark);
        self.keep_named(host);
        self.publish(host, now, update.op, true, Verdict::unchanged(status, None));
    }

    /// Primary: whether a refusal of this op must be ignored. If so, the member is still not
    /// accused, because it is not silent.
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
