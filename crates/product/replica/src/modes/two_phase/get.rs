//! Which member answers gets and scans (R2, R4, R12, R18).

use super::TwoPhase;
use crate::modes::bounds::WAITING_GETS_MAX;
use crate::modes::ordered::OrderedPartition;
use crate::modes::ordered::lead::Lead;
use crate::modes::ordered::locks::WaitingGet;
use crate::modes::ordered::sequence::Decided;
use crate::{Host, Step};
use core::net::SocketAddrV4;
use nicekv_proto::scan::Scan;
use nicekv_proto::{Get, Now, Status};

impl OrderedPartition<TwoPhase> {
    /// A get arrives from a client, or from a member that passes it on.
    pub(crate) fn on_get(&mut self, host: &mut Host, now: Now, get: &Get<'_>, from: SocketAddrV4) {
        let may_serve = self.membership.standing.serves() && host.has_lease(now);
        let heard = match get.forwarded {
            Some((_, epoch, node)) => self.is_primary() && self.membership.accepts(epoch, node),
            None => true,
        };
        if !may_serve || !heard {
            host.counters.dropped += 1;
            return;
        }
        self.look_for_proof(host, now);
        let waiting = WaitingGet { op: get.op, reply_to: get.reply_to.unwrap_or(from), is_judged: false };
        if self.is_proven {
            self.route_get(host, now, waiting, get.key);
        } else if !self.is_primary() {
            self.forward_get(host, now, waiting, get.key);
        } else if self.mode.awaiting_proof.len() < WAITING_GETS_MAX {
            host.trace.note(now, get.op, Step::Waits);
            self.mode.awaiting_proof.push((waiting, get.key.into()));
        } else {
            host.counters.dropped += 1;
        }
    }

    fn route_get(&mut self, host: &mut Host, now: Now, get: WaitingGet, key: &[u8]) {
        if !self.locks.is_locked(key) {
            self.serve_get(host, now, get, key);
        } else if !self.is_primary() {
            self.forward_get(host, now, get, key);
        } else if !self.is_recovering(key) {
            self.serve_get(host, now, get, key);
        } else {
            host.trace.note(now, get.op, Step::Waits);
            self.wait_for_outcome(host, get, key);
        }
    }

    /// Checks whether this process is known to hold everything that was confirmed before it started
    /// (R18): the recovery of an epoch in which it takes part is complete, or it has copied what it
    /// lacked. Until then a key that is not locked may have an op that this disk has forgotten. A
    /// primary announces the end of its recovery once per epoch.
    pub(crate) fn look_for_proof(&mut self, host: &mut Host, now: Now) {
        if self.is_proven && self.lead.as_ref().is_none_or(Lead::is_complete) {
            return;
        }
        let is_complete = self.is_recovered_wholly();
        if is_complete && self.lead.as_mut().is_some_and(Lead::complete) {
            self.tell_members(host, None);
        }
        if !self.is_proven && is_complete {
            self.is_proven = true;
            for (get, key) in core::mem::take(&mut self.mode.awaiting_proof) {
                self.route_get(host, now, get, &key);
            }
        }
    }

    /// A scan arrives. The primary answers it: other members may lack decisions, and their locks
    /// show that for single keys only.
    pub(crate) fn on_scan(&mut self, host: &mut Host, now: Now, scan: &Scan<'_>, from: SocketAddrV4) {
        let reply_to = scan.reply_to.unwrap_or(from);
        if self.membership.standing.serves() && !self.is_primary() {
            return self.forward_scan(host, scan, reply_to, self.membership.primary);
        }
        let may_read = self.is_recovered_wholly() && !self.may_execute_stale();
        self.read_piece(host, now, scan, reply_to, may_read);
    }

    /// Primary of object names: whether a later primary may execute an op whose stamp is too old
    /// (P8). It takes ops that are open when its epoch begins for ops that may have been answered.
    /// So none may be open, at any member, when names are listed.
    fn may_execute_stale(&self) -> bool {
        if !self.membership.has_stamps() {
            return false;
        }
        let is_refusal = |decided: &Decided| decided.status == Status::StaleStamp;
        self.lead.as_ref().is_some_and(|lead| !lead.wanted().is_empty())
            || self.locks.undecided_after(0).any(|(_, op)| self.is_stale(op.stored.head()))
            || self.sequence.unreleased().any(is_refusal)
    }
}
