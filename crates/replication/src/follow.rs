//! Decisions at the other members, and how the primary serves one that missed some.

use crate::config::{CATCH_UP_DATAGRAMS_MAX, UNRELEASED_MAX};
use crate::partition::{Decided, Partition};
use nicekv_node::{Host, Standing};
use nicekv_wire::Now;
use nicekv_wire::limits::DATAGRAM_BYTES_MAX;
use nicekv_wire::replication::{Decision, Watermark};

impl Partition {
    /// A decision of this epoch from its primary.
    pub(crate) fn on_decision(&mut self, host: &mut Host, now: Now, decision: &Decision<'_>) {
        let keeps_too_much = self.join.as_ref().is_some_and(|join| join.kept_back() >= UNRELEASED_MAX);
        if (self.membership.standing == Standing::Joining && self.base.is_none()) || keeps_too_much {
            self.report_gap(host, now);
        } else if decision.index == self.logged + 1 {
            self.log_decision(host, now, Decided::from_wire(decision));
            self.tell_progress_within(host, now, host.config.timing.progress_delay.as_nanos() as u64);
        } else if decision.index > self.logged {
            self.report_gap(host, now);
        }
    }

    /// What the primary allows to be shown.
    pub(crate) fn on_watermark(&mut self, host: &mut Host, now: Now, watermark: &Watermark) {
        if self.base.is_none() {
            self.base = Some(watermark.base);
            if self.membership.standing == Standing::Joining {
                self.start_after(host, now, watermark.base);
            }
        }
        if watermark.released > self.released {
            self.release(host, now, watermark.released);
        }
    }

    /// Asks the primary for what this member missed, at most once per quarter of a resend timeout.
    pub(crate) fn report_gap(&mut self, host: &mut Host, now: Now) {
        let pause_ns = host.config.timing.resend.as_nanos() as u64 / 4;
        if now.boot_ns >= self.gap_ns + pause_ns {
            self.gap_ns = now.boot_ns;
            self.tell_progress(host, true);
        }
    }

    /// Primary: sends a member the decisions after `logged`, and the watermark in any case.
    pub(crate) fn catch_up(&mut self, host: &mut Host, now: Now, position: usize, logged: u64) {
        let Some(lead) = &mut self.lead else { return };
        if !lead.is_ready() {
            return;
        }
        lead.peers[position].heard_ns = now.boot_ns;
        let address = self.membership.members[position].address;
        let watermark = self.watermark();
        host.outbox.unicast_decision(address, None, watermark);
        let skip = logged.saturating_sub(self.released) as usize;
        let mut bytes = 0;
        for decided in self.decisions.iter().skip(skip) {
            let decision = decided.wire(self.id(), self.membership.epoch);
            bytes += decision.bytes();
            if bytes > CATCH_UP_DATAGRAMS_MAX * DATAGRAM_BYTES_MAX {
                break;
            }
            host.outbox.unicast_decision(address, Some(&decision), watermark);
        }
    }
}
