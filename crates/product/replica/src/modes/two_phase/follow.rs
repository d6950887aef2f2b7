//! How the members other than the primary handle decisions: they log them, and report progress to
//! the primary.

use super::TwoPhase;
use crate::modes::ordered::OrderedPartition;
use crate::modes::ordered::clients::Lookup;
use crate::modes::ordered::epoch::SWEPT_OPS_MAX;
use crate::modes::ordered::sequence::Decided;
use crate::{Host, Standing, Step};
use nicekv_proto::control::ReportKind;
use nicekv_proto::replication::{Decision, Effect, Progress, Watermark};
use nicekv_proto::{NodeId, Now};

impl OrderedPartition<TwoPhase> {
    /// A decision of this epoch arrives from the primary. If earlier ones are missing, it is kept
    /// until they arrive.
    pub(crate) fn on_decision(&mut self, host: &mut Host, now: Now, decision: &Decision<'_>) {
        let begins = self.membership.standing == Standing::Joining && self.sequence.base().is_none();
        if begins || self.keeps_too_much() {
            return self.report_gap(host, now);
        }
        let next = self.sequence.logged() + 1;
        if decision.index > next {
            self.sequence.keep_early(Decided::from_wire(decision));
            return self.report_gap(host, now);
        }
        if decision.index == next {
            let mut next = Some(Decided::from_wire(decision));
            while let Some(decided) = next {
                if self.has_forgotten(&decided) {
                    return self.report_forgotten(host);
                }
                self.log_learned(host, now, decided);
                next = if self.keeps_too_much() { None } else { self.sequence.take_early() };
            }
            self.tell_progress_within(host, now, host.config.timing.progress_delay.as_nanos() as u64);
        }
    }

    fn log_learned(&mut self, host: &mut Host, now: Now, decided: Decided) {
        host.trace.note(now, decided.op, Step::Learned { contended: decided.contended });
        self.log_decision(host, now, decided);
    }

    /// The primary reports what every member has synced, and thus what may be shown.
    pub(crate) fn on_watermark(&mut self, host: &mut Host, now: Now, watermark: &Watermark) {
        if self.sequence.base().is_none() {
            self.sequence.begin_at(watermark.base);
            if self.membership.standing == Standing::Joining {
                self.start_after(host, now, watermark.base);
            }
        }
        if watermark.synced > self.sequence.released() {
            self.release(host, now, watermark.synced);
        }
        if watermark.working {
            self.locks.calm_oldest(SWEPT_OPS_MAX);
        }
        // Recovery is complete, so this member has everything that all members have synced.
        self.is_proven |= watermark.recovered && self.membership.standing.serves();
    }

    /// Another member's message names the last decision that all have synced. The primary may not
    /// have reported it to this member, because it does so at once only for contended decisions.
    pub(crate) fn learn_released(&mut self, host: &mut Host, now: Now, released: u64) {
        if !self.is_primary() && released > self.sequence.released() {
            self.release(host, now, released);
        }
    }

    /// Reports to the primary what is logged and synced: with the next acks, or after `delay_ns`.
    pub(crate) fn tell_progress_within(&mut self, host: &mut Host, now: Now, delay_ns: u64) {
        if self.membership.standing == Standing::Outside {
            return;
        }
        if delay_ns == 0 {
            self.tell_primary(host, false);
        } else {
            self.reporting.be_due(now.boot_ns + delay_ns);
            host.arm_sweep(now);
        }
    }

    pub(crate) fn tell_primary(&mut self, host: &mut Host, gap: bool) {
        self.reporting.tell();
        let progress = Progress {
            partition: self.id(),
            epoch: self.membership.epoch,
            logged: self.sequence.logged(),
            synced: self.sequence.synced(),
            gap,
            space: host.disk_space,
        };
        host.outbox.ack_progress(self.membership.primary_address(), progress);
    }

    /// Recovery: the primary adopts a decision from another member.
    pub(crate) fn on_adopted(&mut self, host: &mut Host, now: Now, sender: NodeId, decision: &Decision<'_>) {
        if self.adopts(sender, decision) {
            let decided = Decided::from_wire(decision);
            if self.has_forgotten(&decided) {
                return self.report_forgotten(host);
            }
            self.adopt(host, now, decided);
        }
    }

    /// Whether this member must have held an op that was decided, but does not: then its disk has
    /// forgotten it (R18).
    pub(crate) fn has_forgotten(&self, decided: &Decided) -> bool {
        self.membership.standing == Standing::Consistent
            && decided.effect != Effect::None
            && !self.locks.holds(decided.op)
            && !matches!(self.clients.lookup(decided.op), Lookup::Finished(_))
    }

    pub(crate) fn report_forgotten(&self, host: &mut Host) {
        host.report(self.id(), self.membership.epoch, ReportKind::Forgot(host.config.node));
    }
}
