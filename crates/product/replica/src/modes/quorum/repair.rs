//! Repairs a damaged value (docs/FAULTS.md row 10): how the replica learns again what it has
//! promised to hold.
//!
//! ```text
//!   replica, epoch d        metadata service            each other member, epoch f > d
//!     │ cannot read key: does not answer about it from here on
//!     │──Fence──────────────────▶│
//!     │◀─────Assign f > d────────│──────Assign f──────────▶│
//!     │──RepairRequest(key)────────────────────────────────▶│ reads its engine
//!     │◀─RepairReply(version)───────────────────────────────│
//!     │ R − k + 1 of them have answered in f: the newest version is logged, synced, written
//! ```
//!
//! The replica counts for all its other keys. For the damaged key it neither answers queries nor
//! accepts stores, because the damaged version may be newer. It is like new storage for that key,
//! and comes to count in the same way (see the head of the module `quorum`). Clients count the
//! answers of one epoch only, so every write set that contains this replica's ack of the damaged
//! version is of epoch d or earlier. The k − 1 other members of such a write set hold the version
//! when they answer in f, and R − k + 1 of the R − 1 others include at least one of them. In epoch
//! d that argument would fail: another member could answer this replica first and acknowledge the
//! version later, still in d, so that both acks are counted together.
//!
//! With k = 1 there are no k − 1 others, and the key stays unavailable. A version that was on its
//! way to the engine when the damage was found is newer than the damaged one, and ends the repair
//! when it gets there. So does an entry that can be read after all.

use super::QuorumPartition;
use super::parts::{Offer, Repair};
use super::version::{PendingRead, ReadFor, Version, Waiter};
use crate::modes::bounds::REPAIRS_MAX;
use crate::{Host, Standing};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use nicekv_proto::control::ReportKind;
use nicekv_proto::recovery::Entry;
use nicekv_proto::repair::{KeyState, RepairReply, RepairRequest};
use nicekv_proto::{Epoch, NodeId, Now};

/// How many times the interval between two requests doubles at most.
const DOUBLINGS_MAX: u32 = 5;

impl QuorumPartition {
    /// A key cannot be read: starts its repair.
    pub(super) fn begin_repair(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        if self.repairs.contains_key(key) || self.is_being_written(key) {
            return;
        }
        host.count_corrupt(self.id(), self.membership.epoch);
        let is_hopeless = self.quorum.is_none_or(|quorum| quorum.write_set() == 1);
        if is_hopeless || self.membership.standing == Standing::Outside || self.repairs.len() >= REPAIRS_MAX {
            return;
        }
        let found = self.membership.epoch;
        let repair =
            Repair { found, answers: BTreeMap::new(), asked_ns: now.boot_ns, tries: 0, is_logged: false };
        self.repairs.insert(key.into(), repair);
        host.arm_sweep(now);
        self.want_fence(host, now);
    }

    /// A scan has found that these keys are damaged.
    pub(super) fn begin_repairs(&mut self, host: &mut Host, now: Now, keys: &[Vec<u8>]) {
        keys.iter().for_each(|key| self.begin_repair(host, now, key));
    }

    /// Requests a fence: an epoch after this one.
    pub(super) fn want_fence(&mut self, host: &mut Host, now: Now) {
        if now.boot_ns >= self.fence_asked_ns + host.config.timing.heartbeat.as_nanos() as u64 {
            self.fence_asked_ns = now.boot_ns;
            host.report(self.id(), self.membership.epoch, ReportKind::Fence);
        }
    }

    /// An entry could be read. Returns whether it counts; it does not if the repair has already
    /// logged a replacement.
    pub(super) fn is_believed(&mut self, key: &[u8]) -> bool {
        let is_replaced = self.repairs.get(key).is_some_and(|repair| repair.is_logged);
        if !is_replaced {
            self.repairs.remove(key);
        }
        !is_replaced
    }

    /// A key was written or removed, which ends its repair.
    pub(super) fn finish_repair(&mut self, host: &mut Host, key: &[u8]) {
        if self.repairs.remove(key).is_some() {
            host.count_repaired(self.id(), self.membership.epoch);
        }
    }

    /// A new epoch begins: answers of earlier epochs no longer count.
    pub(super) fn restart_repairs(&mut self) {
        for repair in self.repairs.values_mut().filter(|repair| !repair.is_logged) {
            repair.answers.clear();
            (repair.asked_ns, repair.tries) = (0, 0);
        }
    }

    /// Repeats requests that are overdue. Returns whether repairs are left.
    pub(super) fn sweep_repairs(&mut self, host: &mut Host, now: Now) -> bool {
        let resend_ns = host.config.timing.resend.as_nanos() as u64;
        let epoch = self.membership.epoch;
        let is_fenced = |repair: &Repair| repair.found < epoch;
        if self.repairs.values().any(|repair| !is_fenced(repair)) {
            self.want_fence(host, now);
        }
        let is_due = |repair: &Repair| {
            let after_ns = resend_ns << repair.tries.min(DOUBLINGS_MAX);
            is_fenced(repair) && !repair.is_logged && now.boot_ns >= repair.asked_ns + after_ns
        };
        let due: Vec<_> =
            self.repairs.iter().filter(|(_, repair)| is_due(repair)).map(|(key, _)| key.clone()).collect();
        due.iter().for_each(|key| self.ask_others(host, now, key));
        !self.repairs.is_empty()
    }

    /// Asks the members that have not answered in this epoch.
    fn ask_others(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        let Some(repair) = self.repairs.get_mut(key) else { return };
        (repair.asked_ns, repair.tries) = (now.boot_ns, repair.tries + 1);
        let (sender, partition, epoch) = (host.config.node, self.membership.partition, self.membership.epoch);
        let request = RepairRequest { sender, partition, epoch, key, logged: 0, released: 0 };
        let is_asked = |node: NodeId| node != sender && !repair.answers.contains_key(&node);
        for member in self.membership.members.iter().filter(|member| is_asked(member.node)) {
            host.outbox.send(member.address, |out| request.encode(out));
        }
    }

    /// Another member asks for a key that it cannot read.
    pub(super) fn on_repair_request(&mut self, host: &mut Host, request: &RepairRequest<'_>) {
        if !self.answers() || self.is_full() {
            host.counters.dropped += 1;
            return;
        }
        self.read_for_repair(host, request.sender, request.key);
    }

    /// The engine has read a key that another member asked for.
    pub(super) fn on_repair_read(
        &mut self,
        host: &mut Host,
        (epoch, to): (Epoch, NodeId),
        key: &[u8],
        entry: Option<&[u8]>,
    ) {
        let Some(address) = self.membership.address(to).filter(|_| epoch == self.membership.epoch) else {
            return;
        };
        let (sender, partition) = (host.config.node, self.id());
        let state = entry.map_or(KeyState::Absent, KeyState::Stored).told_of(key);
        let reply = RepairReply { sender, partition, epoch, key, state, asked: (0, 0), through: self.floor };
        host.outbox.send(address, |out| reply.encode(out));
    }

    /// A member answers in the present epoch.
    pub(super) fn on_repair_reply(&mut self, host: &mut Host, reply: &RepairReply<'_>) {
        let epoch = self.membership.epoch;
        let is_fenced = |repair: &Repair| repair.found < epoch;
        let repair = self.repairs.get_mut(reply.key);
        let Some(repair) = repair.filter(|repair| is_fenced(repair) && !repair.is_logged) else { return };
        let version = match reply.state {
            KeyState::Stored(stored) => {
                let entry = Entry::decode(stored).expect("checked when it was decoded");
                Some(Version::of_entry(&entry))
            }
            KeyState::Absent => None,
            KeyState::Corrupt => return,
        };
        repair.answers.insert(reply.sender, (version, reply.through));
        let read_set = self.quorum.map_or(usize::MAX, |quorum| quorum.read_set());
        if repair.answers.len() >= read_set {
            let answers = core::mem::take(&mut repair.answers);
            self.install(host, reply.key, answers.into_values().collect());
        }
    }

    /// Replaces the damaged version by the newest one of the other members. If none of them has a
    /// version, they have forgotten it, and it is forgotten here.
    fn install(&mut self, host: &mut Host, key: &[u8], offers: Vec<Offer>) {
        let floor = offers.iter().map(|(_, floor)| *floor).max().unwrap_or(0);
        let versions = offers.into_iter().filter_map(|(version, _)| version);
        let newest = versions.max_by_key(|version| version.timestamp);
        if newest.as_ref().is_some_and(|version| !self.has_value(host, version)) {
            // The version's large value has to be fetched first; the sweep asks again until it is
            // here.
            return;
        }
        self.repairs.get_mut(key).expect("the repair is under way").is_logged = true;
        match newest {
            Some(version) => {
                self.raise_floor(host, floor);
                self.keys.entry(key.into()).or_default();
                self.log(host, key, version, Waiter::Nobody);
            }
            None => self.log_forgotten(host, key, floor),
        }
    }

    fn read_for_repair(&mut self, host: &mut Host, to: NodeId, key: &[u8]) {
        let token = host.read(self.id(), key);
        let read =
            PendingRead { key: key.into(), what: ReadFor::Repair { epoch: self.membership.epoch, to } };
        self.reads.push_back((token, read));
    }
}
