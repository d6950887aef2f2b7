//! A full disk (docs/FAULTS.md row 9): what a member says when it cannot store an op, and what the primary makes of that.
//!
//! ```text
//! client   primary   full member                    client   full primary   member
//!   │──Update─▶│─────────▶│                            │──Update─▶│─────────▶│ force
//!   │          │ force    │ logs nothing                │          │ logs no prepare
//!   │          │◀──Acks───│ (refused)                   │          │ decides without one
//!   │          │─Decisions▶ force                       │          │─Decisions▶ force, drop the op
//!   │◀DiskFull─│◀──Acks───│ (progress)                  │◀DiskFull─│◀──Acks───│ (progress)
//! ```
//!
//! Along a chain each node tells its predecessor the least room that it, or anybody behind it, has; the head refuses what that does not admit.
//!
//! A large value may find no room although there was some when its op came. Its member then refuses the op in the same way: what it has told the client who sends the value
//! ends nothing, as the others may have the value, and the op.
//!
//! A decision needs space too, so the driver sets some aside; from that also deletes are taken in, as long as it lasts. Gets need none.
//!
//! The same is said of updates of objects' names whose stamps are older than the epoch takes them (P8): nobody logs them, as whoever finds one open when an epoch begins cannot
//! know whether it was executed.
//!
//! Why a client that is told "disk full" can rely on it:
//! * The refusal is a decision like any other, in the sequence. It is contended, so every member has forced it before the client hears
//!   of it, and a member that holds the prepare drops it, whoever is the primary then.
//! * An op that was open when the primary's epoch began may have been executed and answered already (R3). No refusal counts for it: the
//!   primary sends it again until the member can store it. An op that the primary itself lacks was never decided: all members, of which
//!   it was one, would have had to force it (R1).

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
    /// Whether an update that this member does not hold yet was refused because of a full disk, or of stamps that are too old.
    pub(crate) fn refuses(&mut self, host: &mut Host, now: Now, update: &Update<'_>, source: Source) -> bool {
        let is_full = !host.disk_space.admits(&update.operation) || host.has_no_room_for(update);
        // What a member passes on may have been open when the epoch began.
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

    /// Primary: refuses an op whose prepare it does not log. Until it may decide it is silent, and clients try again.
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

    /// Primary: whether a refusal of this op must not count. Its holder is not silent, so it is not accused.
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
