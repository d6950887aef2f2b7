//! Decisions at the other members: what they make of them, and what they tell the primary.

use super::partition::OrderedPartition;
use super::sequence::Decided;
use crate::modes::bounds::UNRELEASED_MAX;
use crate::{Host, Standing, Step};
use nicekv_proto::Now;
use nicekv_proto::replication::{Decision, Progress, Watermark};

impl OrderedPartition {
    /// A decision of this epoch from its primary. One that has overtaken another waits for it, whether that is late or lost.
    pub(super) fn on_decision(&mut self, host: &mut Host, now: Now, decision: &Decision<'_>) {
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

    /// Whether a copy must come before further decisions.
    pub(super) fn keeps_too_much(&self) -> bool {
        self.join.as_ref().is_some_and(|join| join.kept_back() >= UNRELEASED_MAX)
    }

    /// What the primary allows to be shown.
    pub(super) fn on_watermark(&mut self, host: &mut Host, now: Now, watermark: &Watermark) {
        if self.sequence.base().is_none() {
            self.sequence.begin_at(watermark.base);
            if self.membership.standing == Standing::Joining {
                self.start_after(host, now, watermark.base);
            }
        }
        if watermark.forced > self.sequence.released() {
            self.release(host, now, watermark.forced);
        }
        // What all have made durable this member has, too.
        self.is_proven |= watermark.recovered && self.membership.standing.serves();
    }

    /// Another member says what all hold. The primary may have told nobody yet, if it was uncontended.
    pub(super) fn learn_released(&mut self, host: &mut Host, now: Now, released: u64) {
        if !self.is_primary() && !self.is_chain() && released > self.sequence.released() {
            self.release(host, now, released);
        }
    }

    /// Asks the primary for what this member missed, at most once per quarter of a resend timeout.
    pub(super) fn report_gap(&mut self, host: &mut Host, now: Now) {
        let pause_ns = host.config.timing.resend.as_nanos() as u64 / 4;
        if self.reporting.take_gap(now, pause_ns) {
            self.tell_progress(host, true);
        }
    }

    /// Tells the primary what is logged and forced, with the next acks or after `delay_ns`.
    pub(super) fn tell_progress_within(&mut self, host: &mut Host, now: Now, delay_ns: u64) {
        if self.membership.standing == Standing::Outside {
            return;
        }
        if delay_ns == 0 {
            self.tell_progress(host, false);
        } else {
            self.reporting.be_due(now.boot_ns + delay_ns);
            host.arm_sweep(now);
        }
    }

    pub(super) fn tell_progress(&mut self, host: &mut Host, gap: bool) {
        self.reporting.tell();
        if self.is_chain() {
            return self.chain_progress(host, gap);
        }
        let progress = Progress {
            partition: self.id(),
            epoch: self.membership.epoch,
            logged: self.sequence.logged(),
            forced: self.sequence.forced(),
            gap,
            space: host.disk_space,
        };
        host.outbox.ack_progress(self.membership.primary_address(), progress);
    }
}
