//! The second half of a put, at the primary: it alone orders the ops of a key, in its own log order (R1, R2).
//!
//! ```text
//! client   primary   secondary                      client   primary   secondary
//!   │──Update─▶│─────────▶│                           │──Update─▶│─────────▶│
//!   │          │ force    │ force                     │          │ force    │ force
//!   │          │◀──Acks───│                           │◀ ─ ─ ─ ─ │◀──Acks───│ (contended)
//!   │◀──Reply──│─Decisions▶ apply, unlock             │          │─Decisions▶ force, stay locked
//!          uncontended                                │          │◀──Acks───│ (progress)
//!                                                     │◀──Reply──│─Decisions▶ (released) apply, unlock
//!                                                              contended
//! ```

use crate::clients::Lookup;
use crate::config::UNRELEASED_MAX;
use crate::evaluate::{KeyValue, Verdict, evaluate, needs_state};
use crate::partition::{Decided, Latest, Partition};
use crate::waits::PendingRead;
use nicekv_node::{Host, Plant};
use nicekv_wire::replication::{Decision, Effect, Progress};
use nicekv_wire::{NodeId, Now, OpId, Status};

impl Partition {
    /// Decides what can be decided of a key: its oldest undecided op, if all have acknowledged it, and then the next.
    pub(crate) fn decide_key(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        while let Some(op) = self.next_decidable(key) {
            let update = self.ops[&op].stored.update();
            let (refused, recovered) = (self.ops[&op].any_refused, self.is_recovered(op));
            let state = self.keys.get_mut(key).expect("a key with an op is locked");
            let verdict = if refused {
                Verdict::unchanged(Status::DiskFull, None)
            } else if needs_state(&update) {
                match &state.latest {
                    Latest::Known(value) => {
                        // Not before an op that the last primary may have answered on the value as it was (R3).
                        if let Some(overdue) = value.as_ref().filter(|value| is_overdue(value.expiry_ms, now))
                            && !recovered
                        {
                            let version = overdue.version;
                            if self.expire_first(host, now, key, version) {
                                return;
                            }
                        }
                        let Latest::Known(value) = &self.keys[key].latest else { unreachable!("as before") };
                        evaluate(&self.ops[&op].stored.update(), value.as_ref())
                    }
                    // What is decided but not released is in no engine: its release comes back here.
                    Latest::Unknown if state.unreleased > 0 => return,
                    Latest::Unknown => {
                        let token = host.read(self.membership.partition, key);
                        state.latest = Latest::Reading { token };
                        let read = PendingRead::Evaluate { key: key.into() };
                        self.waits.reads.push_back((token, read));
                        return;
                    }
                    Latest::Reading { .. } => return,
                }
            } else {
                evaluate(&update, None)
            };
            self.decide(host, now, key, op, verdict);
        }
    }

    /// The key's oldest undecided op, if every member has acknowledged it and decisions may be made.
    fn next_decidable(&self, key: &[u8]) -> Option<OpId> {
        if !self.may_decide() || self.decisions.len() >= UNRELEASED_MAX {
            return None;
        }
        let op = *self.keys.get(key)?.queue.front()?;
        let all_acks = (1u16 << self.membership.members.len()) - 1;
        (self.ops[&op].acks == all_acks).then_some(op)
    }

    /// Whether this is a primary that has recovered, in an epoch that is in force and has members enough (R3, R6).
    pub(crate) fn may_decide(&self) -> bool {
        let is_ready = self.lead.as_ref().is_some_and(|lead| lead.is_ready());
        is_ready && self.membership.activated && self.membership.has_members_enough()
    }

    /// Primary: whether an op was open when the epoch began.
    pub(crate) fn is_recovered(&self, op: OpId) -> bool {
        self.lead.as_ref().is_some_and(|lead| lead.recovered_through >= self.ops[&op].order)
    }

    fn decide(&mut self, host: &mut Host, now: Now, key: &[u8], op: OpId, verdict: Verdict) {
        let recovered = self.is_recovered(op);
        let state = self.keys.get_mut(key).expect("a key with an op is locked");
        if recovered {
            self.lead.as_mut().expect("a primary").recovery_end = self.logged + 1;
        }
        let any_contended = self.ops[&op].any_contended;
        let refused = verdict.status == Status::DiskFull;
        let aborts = recovered && host.has(Plant::RecoveryAborts);
        let verdict = if aborts { Verdict::unchanged(Status::ConditionFailed, None) } else { verdict };
        let contended = (any_contended || state.unreleased > 0 || recovered || refused)
            && !host.has(Plant::IgnoreContention);
        let update = self.ops[&op].stored.update();
        match verdict.effect {
            Effect::None => {}
            Effect::Remove => state.latest = Latest::Known(None),
            Effect::Store | Effect::StorePrepared => {
                let value = match verdict.effect {
                    Effect::Store => &verdict.value,
                    _ => update.operation.value(),
                };
                // Only worth keeping if somebody is waiting for it.
                if contended || state.queue.len() > 1 {
                    let (version, expiry_ms, value) = (verdict.version, verdict.expiry_ms, value.into());
                    state.latest = Latest::Known(Some(KeyValue { version, expiry_ms, value }));
                }
            }
        }
        self.publish(host, now, op, contended, verdict);
    }

    /// Makes a verdict the next decision: sends it to the members, logs it, and lets it take effect if it is uncontended.
    pub(crate) fn publish(&mut self, host: &mut Host, now: Now, op: OpId, contended: bool, verdict: Verdict) {
        let decided = Decided {
            index: self.logged + 1,
            origin: self.membership.epoch,
            op,
            contended,
            effect: verdict.effect,
            status: verdict.status,
            version: if host.has(Plant::VersionIsTimestamp) && verdict.version == op {
                OpId { sequence: self.logged + 1, ..op }
            } else {
                verdict.version
            },
            expiry_ms: verdict.expiry_ms,
            integer: verdict.integer,
            value: verdict.value.into(),
            value_is_result: verdict.value_is_result,
        };
        host.counters.decided += 1;
        host.counters.decided_contended += u64::from(decided.contended);
        self.tell_members(host, Some(&decided.wire(self.id(), self.membership.epoch)));
        self.log_decision(host, now, decided);
        let lead = self.lead.as_mut().expect("a primary");
        lead.decided_ns = now.boot_ns;
        host.arm_sweep(now);
    }

    /// Multicasts the watermark, and a decision if there is one.
    fn tell_members(&self, host: &mut Host, decision: Option<&Decision<'_>>) {
        if self.membership.members.len() > 1 {
            let vnode = self.membership.multicast;
            let members = self.membership.members.iter().map(|member| member.node);
            host.outbox.multicast_decision(vnode, members, decision, self.watermark());
        }
    }

    /// A member holds an op that is past remembering, and every decision: tell it to let go (R10, R15).
    pub(crate) fn decide_expired(&mut self, host: &mut Host, now: Now, op: OpId) {
        if !self.may_decide() || self.ops.contains_key(&op) || self.clients.lookup(op) == Lookup::New {
            return;
        }
        self.publish(host, now, op, true, Verdict::unchanged(Status::Expired, None));
    }

    /// The engine's state of a key has been read for its next op.
    pub(crate) fn on_state_read(
        &mut self,
        host: &mut Host,
        now: Now,
        token: u64,
        key: &[u8],
        value: Option<KeyValue>,
    ) {
        let Some(state) = self.keys.get_mut(key) else { return };
        if matches!(state.latest, Latest::Reading { token: newest } if newest == token) {
            state.latest = Latest::Known(value);
            self.decide_key(host, now, key);
        }
    }

    /// Primary: a member tells how far it is.
    pub(crate) fn on_progress(&mut self, host: &mut Host, now: Now, sender: NodeId, progress: &Progress) {
        let Some(position) = self.membership.position(sender) else { return };
        let Some(lead) = &mut self.lead else { return };
        let peer = &mut lead.peers[position];
        if !peer.recovered {
            return;
        }
        if progress.logged > peer.logged || progress.forced > peer.forced {
            peer.heard_ns = now.boot_ns;
            peer.tries = 0;
        }
        peer.logged = peer.logged.max(progress.logged);
        peer.forced = peer.forced.max(progress.forced);
        let logged = peer.logged;
        self.advance_release(host, now);
        if progress.gap {
            self.catch_up(host, now, position, logged);
        }
    }

    /// Primary: releases what every member of the epoch has forced, and tells them if they wait for it.
    pub(crate) fn advance_release(&mut self, host: &mut Host, now: Now) {
        let Some(lead) = &self.lead else { return };
        if !lead.is_ready() || !self.membership.activated {
            return;
        }
        let me = self.membership.position(host.config.node).expect("the primary is a member");
        let forced_by_peers = lead
            .peers
            .iter()
            .enumerate()
            .filter(|(position, _)| *position != me)
            .map(|(_, peer)| peer.forced);
        let through = forced_by_peers.fold(self.forced, u64::min).min(self.logged);
        if through <= self.released {
            return;
        }
        let newly = (through - self.released) as usize;
        let contended: alloc::vec::Vec<_> = (self.decisions.iter().take(newly))
            .filter(|decided| decided.contended)
            .filter_map(|decided| Some(self.ops.get(&decided.op)?.stored.key().into()))
            .collect();
        let any_contended = self.decisions.iter().take(newly).any(|decided| decided.contended);
        self.release(host, now, through);
        if any_contended {
            self.tell_members(host, None);
        }
        for key in contended {
            let key: alloc::boxed::Box<[u8]> = key;
            self.decide_key(host, now, &key);
        }
    }
}

/// Whether an expiry time has passed on this node's wall clock.
pub(crate) fn is_overdue(expiry_ms: u64, now: Now) -> bool {
    expiry_ms != 0 && expiry_ms <= now.unix_ms
}
