//! Succession: a member's place goes to another node (R14). C leaves, D succeeds it, and A and B
//! stay.
//!
//! ```text
//!   epoch e'   A B C count     C                                        D, silent
//!                              │ ◀──Request(after)────────────────────── │ begins empty
//!                              │ ──Chunk (versions, floor)─────────────▶ │ logged, synced
//!        ──Store──────────────▶│ synced                                  │
//!                              │ ──Entrust(version)────────────────────▶ │ takes it in, like a store
//!                              │ ◀─Entrusted──────────────────────────── │ synced
//!        ◀─Held────────────────│ written to the engine, acknowledged     │
//!                                                                        │──CopyDone──▶ metadata
//!   epoch e''  A B D count     │ may not know it yet                     │ logs that it counts
//!              activated: C can answer no query any more ──────────────▶ │ answers
//! ```
//!
//! Invariants:
//! * Whatever C has acknowledged is in D's storage, or on a page of C's engine that D has yet to
//!   merge. What was there when e' began is on the pages, because D reads no page earlier. What
//!   came later D holds, because the engine of a departing member takes a version only after the
//!   successor has acknowledged it. A query reads the engine, so until then it returns the previous
//!   version, as if the store had not arrived.
//! * So when D has merged all pages of C, it holds whatever C has acknowledged, and continues to do
//!   so: one source is enough, whatever k is. That holds across epochs while both processes live. A
//!   restarted process has versions in its engine that it had not acknowledged. Therefore the
//!   metadata service aborts the succession when a process restarts, and D is notified before it
//!   may begin again. After that C answers with everything that it holds, as A and B do.
//! * D is silent in e', because C counts there. In e'' it is silent until the epoch is activated.
//!   Before that, C might still answer a query in e', together with others that have not received
//!   e'' yet, and C does not know what D acknowledges in e''. A process of D that restarts has to
//!   wait for the activation as well.
//! * What a newcomer holds from an earlier time is void, because deletions that it has not seen may
//!   have been forgotten since. So it begins empty, logs that, and ignores the results of requests
//!   under way.
//!
//! If C is gone for good, and k > 1, D takes its place as new storage (`merge`), and is silent
//! until an epoch assigns it as counting.

use super::QuorumPartition;
use super::entrusting::{Entrusting, Synced, has_room};
use super::parts::{Forgetting, Merge, Repairs};
use super::version::{AwaitedSync, ReadFor, Record, Unsynced, Version, Waiter};
use crate::{Host, Standing};
use alloc::boxed::Box;
use alloc::vec::Vec;
use nicekv_proto::control::{MemberRole, ReportKind};
use nicekv_proto::quorum::{Entrust, Entrusted};
use nicekv_proto::{NodeId, Now};

/// How many times the interval between two requests doubles at most.
const DOUBLINGS_MAX: u32 = 5;
/// How many versions are resent at once.
const RESENT_MAX: usize = 256;

impl QuorumPartition {
    /// A new epoch begins, in which this node may be the successor of another one, or may be
    /// leaving.
    pub(super) fn enter_succession(&mut self, host: &mut Host, now: Now) {
        let me = host.config.node;
        let is_newcomer = self.membership.standing == Standing::Joining
            && self.membership.role(me) == Some(MemberRole::Newcomer);
        let newcomer = is_newcomer.then(|| self.member_in_role(MemberRole::Leaving));
        if newcomer.is_some() && newcomer != self.newcomer {
            self.begin_empty(host);
        }
        self.newcomer = newcomer;
        let leaves = self.membership.role(me) == Some(MemberRole::Leaving);
        self.entrusting.successor = self.member_in_role(MemberRole::Newcomer).filter(|_| leaves);
        if self.membership.standing == Standing::Outside {
            // This node is out: the clients that wait will ask other members.
            self.give_up_entrusted(host);
        } else if self.entrusting.successor.is_none() {
            self.settle_entrusted(host, now);
        } else if !self.entrusting.held.is_empty() {
            self.entrusting.held.values_mut().for_each(|synced| (synced.asked_ns, synced.tries) = (0, 0));
            host.arm_sweep(now);
        }
    }

    fn member_in_role(&self, role: MemberRole) -> Option<NodeId> {
        self.membership.members.iter().find(|member| member.role == role).map(|member| member.node)
    }

    /// Determines whether this process's answers count, provided that its storage is counted.
    pub(super) fn admit(&mut self) {
        self.admitted = match self.membership.standing {
            Standing::Outside | Standing::Handoff => false,
            Standing::Joining => self.newcomer.is_none(),
            Standing::Consistent => self.admitted || self.membership.activated,
        };
    }

    // --- The successor.

    fn begin_empty(&mut self, host: &mut Host) {
        self.merge = None;
        self.counting = false;
        self.keys.clear();
        self.repairs = Repairs::new();
        self.forgetting = Forgetting::default();
        self.let_go_values(host);
        self.entrusting = Entrusting::default();
        // Results of disk requests that are under way must be ignored.
        self.reads.iter_mut().for_each(|(_, read)| read.what = ReadFor::Void);
        self.unsynced.iter_mut().for_each(|unsynced| unsynced.what = AwaitedSync::Void);
        host.append(self.id(), |out| Record::Emptied.append(out));
        self.forget_everything(host);
    }

    /// Versions on their way to the engine are dropped, so they no longer keep their large values.
    fn let_go_values(&self, host: &mut Host) {
        let unsynced = self.unsynced.iter().filter_map(|unsynced| match &unsynced.what {
            AwaitedSync::Version { version, .. } => Some(version),
            _ => None,
        });
        let entrusted = self.entrusting.held.values().map(|synced| &synced.version);
        unsynced.chain(entrusted).for_each(|version| self.let_go_value(host, version));
    }

    /// Drops everything that this replica holds.
    pub(super) fn forget_everything(&mut self, host: &mut Host) {
        (self.counted, self.floor) = (false, 0);
        host.storage.discard_writes(self.id());
        host.storage.clear(self.id());
    }

    /// Newcomer: all merged versions are synced here. Logs the floor, which must be synced, too.
    pub(super) fn finish_merge(&mut self, host: &mut Host) {
        if self.merge.as_mut().is_some_and(Merge::begin_end) {
            let floor = self.floor;
            let record = host.append_awaited(self.id(), |out| Record::Floor { floor }.append(out));
            host.storage.want_sync();
            self.unsynced.push_back(Unsynced { record, what: AwaitedSync::Merged });
        }
    }

    /// Successor: the departing member sends a version that this node has to hold.
    pub(super) fn on_entrust(&mut self, host: &mut Host, now: Now, entrust: &Entrust<'_>) {
        let Entrust { sender, serial, timestamp, key, value, is_large, .. } = *entrust;
        let is_successor = self.newcomer == Some(Some(sender));
        if !is_successor || self.is_full() || !has_room(host.disk_space, value.is_none()) {
            host.counters.dropped += 1;
            return;
        }
        let version = Version { timestamp, value: value.map(Box::from), is_large };
        self.take(host, now, key, version, Waiter::Predecessor { node: sender, serial });
    }

    /// Successor: confirms to the departing member that this version, or a newer one, is synced
    /// here.
    pub(super) fn tell_entrusted(&self, host: &mut Host, to: NodeId, serial: u64) {
        let Some(address) = self.membership.address(to) else { return };
        let (sender, partition, epoch) = (host.config.node, self.id(), self.membership.epoch);
        host.outbox.send(address, |out| Entrusted { partition, epoch, sender, serial }.encode(out));
    }

    // --- The departing member.

    /// A version is synced. It goes to the engine and is acknowledged, unless a successor has to
    /// hold it first.
    pub(super) fn on_version_synced(&mut self, host: &mut Host, now: Now, mut synced: Synced) {
        if self.entrusting.successor.is_none() {
            return self.write_synced(host, now, synced);
        }
        self.entrusting.serial += 1;
        let serial = self.entrusting.serial;
        synced.asked_ns = now.boot_ns;
        self.keys.get_mut(&synced.key).expect("work on the key is under way").entrusted.push(serial);
        self.entrusting.held.insert(serial, synced);
        self.send_entrust(host, serial);
        host.arm_sweep(now);
    }

    fn send_entrust(&self, host: &mut Host, serial: u64) {
        let Some(address) = self.entrusting.successor.and_then(|node| self.membership.address(node)) else {
            return;
        };
        let Synced { key, version, .. } = &self.entrusting.held[&serial];
        let (sender, partition, epoch) = (host.config.node, self.id(), self.membership.epoch);
        let (timestamp, value, is_large) = (version.timestamp, version.value.as_deref(), version.is_large);
        let entrust = Entrust { partition, epoch, sender, serial, timestamp, key, value, is_large };
        host.outbox.send(address, |out| entrust.encode(out));
    }

    /// Departing member: the successor holds this version, or a newer one, and hence the earlier
    /// ones of its key.
    pub(super) fn on_entrusted(&mut self, host: &mut Host, now: Now, sender: NodeId, serial: u64) {
        if self.entrusting.successor != Some(sender) {
            return;
        }
        let Some(mut synced) = self.entrusting.held.remove(&serial) else { return };
        let state = self.keys.get_mut(&synced.key).expect("work on the key is under way");
        let earlier: Vec<u64> = state.entrusted.extract_if(.., |other| *other <= serial).collect();
        for earlier in earlier {
            let Some(earlier) = self.entrusting.held.remove(&earlier) else { continue };
            self.let_go_value(host, &earlier.version);
            synced.waiters.extend(earlier.waiters);
        }
        self.write_synced(host, now, synced);
    }

    /// The succession has ended: versions that waited for the successor are acknowledged now.
    fn settle_entrusted(&mut self, host: &mut Host, now: Now) {
        for (_, synced) in core::mem::take(&mut self.entrusting.held) {
            self.keys.get_mut(&synced.key).expect("work on the key is under way").entrusted.clear();
            self.write_synced(host, now, synced);
        }
    }

    fn give_up_entrusted(&mut self, host: &mut Host) {
        for (_, synced) in core::mem::take(&mut self.entrusting.held) {
            self.let_go_value(host, &synced.version);
            let state = self.keys.get_mut(&synced.key).expect("work on the key is under way");
            state.entrusted.clear();
            state.newest.take_if(|(_, record)| *record == synced.record);
            if state.newest.is_none() && state.waiting.is_empty() {
                self.keys.remove(&synced.key);
            }
        }
    }

    /// Those who wait for a version that is synced, but not yet confirmed by the successor.
    pub(super) fn waiters_of_entrusted(&mut self, key: &[u8]) -> &mut Vec<Waiter> {
        let serial = self.keys[key].entrusted.last().expect("its record is synced");
        &mut self.entrusting.held.get_mut(serial).expect("not yet confirmed").waiters
    }

    /// Resends what the successor has not confirmed. Returns whether anything is left.
    pub(super) fn sweep_entrusted(&mut self, host: &mut Host, now: Now) -> bool {
        let Some(successor) = self.entrusting.successor else { return false };
        let resend_ns = host.config.timing.resend.as_nanos() as u64;
        let is_due =
            |synced: &Synced| now.boot_ns >= synced.asked_ns + (resend_ns << synced.tries.min(DOUBLINGS_MAX));
        let due = self.entrusting.held.iter_mut().filter(|(_, synced)| is_due(synced)).take(RESENT_MAX);
        let mut is_silent = false;
        let due: Vec<u64> = due
            .map(|(serial, synced)| {
                (synced.asked_ns, synced.tries) = (now.boot_ns, synced.tries + 1);
                // The successor confirms a version only after it has fetched its large value, so
                // such a delay does not count as silence.
                is_silent |=
                    synced.tries >= host.config.timing.accuse_after_resends && !synced.version.is_large;
                *serial
            })
            .collect();
        due.iter().for_each(|serial| self.send_entrust(host, *serial));
        if is_silent {
            // Let the metadata service abort the succession (R15); otherwise this replica's clients
            // would wait for as long as the two nodes cannot communicate.
            host.report(self.id(), self.membership.epoch, ReportKind::Accuse(successor));
        }
        !self.entrusting.held.is_empty()
    }

    /// After a checkpoint, logs again the versions that wait for the successor, in the same order:
    /// they are not in the engine, and their earlier records will be trimmed.
    pub(super) fn log_entrusted_again(&self, host: &mut Host) {
        if self.entrusting.successor.is_none() {
            return;
        }
        let held = self.entrusting.held.values().map(|synced| (&synced.key, &synced.version));
        let unsynced = self.unsynced.iter().filter_map(|unsynced| match &unsynced.what {
            AwaitedSync::Version { key, version, .. } => Some((key, version)),
            _ => None,
        });
        for (key, version) in held.chain(unsynced) {
            let mut entry = Vec::new();
            version.entry().append(&mut entry);
            host.append(self.id(), |out| Record::Version { key, entry: &entry }.append(out));
        }
    }
}
