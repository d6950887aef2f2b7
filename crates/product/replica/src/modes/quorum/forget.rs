//! Forgets deletions (versions without a value), which would otherwise be kept for ever.
//!
//! ```text
//!   a member, epoch e, all R counted          metadata service         each other member
//!     │ its scrub has found tombstones
//!     │──Hold(tombstones)─────────────────────────────────────────────▶│ takes them in, like a store
//!     │◀─Ack───────────────────────────────────────────────────────────│ synced, in e
//!     │──Fence──────────────────────────────────▶│
//!     │◀─────────────Assign e' > e───────────────│──────Assign e'──────▶│
//!     │──Forget(tombstones)───────────────────────────────────────────▶│ as here:
//!     │ log the floor, remove tombstones that are still the newest version
//! ```
//!
//! The *floor* of a replica is the greatest counter of all tombstones that it has forgotten, of any
//! key. It is in the log, and in every answer. Why no deleted value comes back:
//!
//! 1. From epoch e + 1 on, every counted replica holds the tombstone t or a newer version, or has a
//!    floor of at least t's counter. The reason: it held t when it answered in e, and only newer
//!    versions, or this procedure, replace t. New storage merges versions and floors of such
//!    replicas after e, and a repair of a damaged key uses both, also after e.
//! 2. So a put that queries in an epoch after e chooses a timestamp above t. A put that had chosen
//!    an older timestamp stores it again only if a replica shows that no newer t exists for which
//!    point 1 holds (`nicekv_client`'s quorum exchange). A get that queries after e reads nothing
//!    older than t. Hence a store of anything older than t names epoch e or an earlier one.
//! 3. No replica that has forgotten t accepts such a store: t is forgotten only in later epochs,
//!    and replicas accept only stores of their present epoch.
//! 4. Floors hide no versions. A put newer than t is read wherever it is held, and a key that was
//!    never deleted is unaffected by floors that come from other keys.
//!
//! A forgotten tombstone may be stored again: by a get that has read it in the same epoch at a
//! replica that still has it, or by the delete itself. That does no harm: it hides only what points
//! 1 to 3 exclude anyway, and is forgotten again. A member that holds *no* entry and has a high
//! floor does not acknowledge Hold at once: its floor may come from other keys, and it might accept
//! an older version before the epoch ends.
//!
//! The primary may begin at any time. Another member, with tombstones that the primary does not
//! have, begins only after a quiet period; otherwise each could give the other back what it has
//! just forgotten.

use super::QuorumPartition;
use super::parts::{Asked, Batch, ForgetStage};
use super::version::{AwaitedSync, PendingRead, ReadFor, Record, Unsynced, Version, Waiter, timestamp_of};
use crate::modes::entry::decode_entry;
use crate::{Host, Page, stored_entries};
use alloc::vec::Vec;
use nicekv_proto::control::DiskSpace;
use nicekv_proto::quorum::{Timestamp, Tombstone, TombstoneStage, Tombstones, TombstonesAck};
use nicekv_proto::recovery::Entry;
use nicekv_proto::{NodeId, Now};

/// How many tombstones are forgotten together. At the bound the scrub waits.
const BATCH_MAX: usize = 4096;
/// A step without all answers after this many requests is given up; the next pass of the scrub
/// begins again.
const TRIES_MAX: u32 = 30;
/// How many times the interval between two requests doubles at most.
const DOUBLINGS_MAX: u32 = 5;
/// Length of the quiet period: a member other than the primary begins only when the epoch is at
/// least this old.
const QUIET_NS: u64 = 3_000_000_000;

impl QuorumPartition {
    /// Takes the tombstones of a page that the scrub has read.
    pub(super) fn note_tombstones(&mut self, host: &mut Host, now: Now, page: Page<'_>) {
        if !self.may_forget(host, now) {
            self.forgetting.found.clear();
            return;
        }
        let found = &mut self.forgetting.found;
        let room = BATCH_MAX.saturating_sub(found.len());
        let decoded = stored_entries(page.entries).map(|(key, entry)| (key, decode_entry(entry)));
        let tombstones = decoded.filter(|(_, entry)| entry.value.is_none());
        found.extend(tombstones.take(room).map(|(key, entry)| (key.into(), timestamp_of(&entry))));
        let is_enough = !page.more || self.forgetting.found.len() >= BATCH_MAX;
        if is_enough && !self.forgetting.found.is_empty() && self.forgetting.under_way.is_none() {
            let tombstones = core::mem::take(&mut self.forgetting.found);
            let (stage, from, round, done) = (ForgetStage::Holding, 0, 0, Vec::new());
            let batch = Batch { tombstones, stage, from, round, done, asked_ns: 0, tries: 0 };
            self.forgetting.under_way = Some(batch);
            self.tell_part(host, now);
        }
    }

    /// Whether so many tombstones were found that the scrub has to wait.
    pub(super) fn has_tombstones_enough(&self) -> bool {
        self.forgetting.found.len() >= BATCH_MAX && self.forgetting.under_way.is_some()
    }

    fn may_forget(&self, host: &Host, now: Now) -> bool {
        let is_quiet = now.boot_ns >= self.epoch_began_ns + QUIET_NS;
        let begins = self.membership.primary == host.config.node || is_quiet;
        begins && self.answers() && self.membership.is_whole() && self.has_only_originals()
    }

    /// A new epoch has begun: continues, or starts over.
    pub(super) fn on_epoch_while_forgetting(&mut self, host: &mut Host, now: Now) {
        let answers = self.answers();
        let Some(batch) = &mut self.forgetting.under_way else { return };
        match batch.stage {
            _ if !answers => self.forgetting.under_way = None,
            // All members must answer in the same epoch, so the answers so far are useless.
            ForgetStage::Holding => self.forgetting.under_way = None,
            ForgetStage::Fencing => {
                (batch.stage, batch.from) = (ForgetStage::Telling, 0);
                self.begin_part(host, now);
            }
            ForgetStage::Telling => self.begin_part(host, now),
        }
    }

    /// Begins the next part of the batch: sends it to the others. If it is to be forgotten, it is
    /// forgotten here, too.
    fn begin_part(&mut self, host: &mut Host, now: Now) {
        let Some(batch) = &self.forgetting.under_way else { return };
        if batch.stage == ForgetStage::Telling {
            let part = batch.tombstones[batch.from..batch.part_end()].to_vec();
            part.iter().for_each(|(key, timestamp)| self.read_to_forget(host, key, *timestamp));
        }
        self.tell_part(host, now);
    }

    fn tell_part(&mut self, host: &mut Host, now: Now) {
        let Some(batch) = &mut self.forgetting.under_way else { return };
        self.forgetting.serial += 1;
        (batch.round, batch.tries, batch.asked_ns) = (self.forgetting.serial, 0, now.boot_ns);
        batch.done.clear();
        self.send_part(host);
        host.arm_sweep(now);
        self.go_on(host, now);
    }

    /// Sends the part to the members that have not answered.
    fn send_part(&self, host: &mut Host) {
        let Some(batch) = &self.forgetting.under_way else { return };
        let stage = match batch.stage {
            ForgetStage::Holding => TombstoneStage::Hold,
            ForgetStage::Fencing => return,
            ForgetStage::Telling => TombstoneStage::Forget,
        };
        let mut listed = Vec::new();
        for (key, timestamp) in &batch.tombstones[batch.from..batch.part_end()] {
            Tombstone { timestamp: *timestamp, key }.append(&mut listed);
        }
        let (sender, partition, epoch) = (host.config.node, self.id(), self.membership.epoch);
        let message = Tombstones { sender, partition, epoch, stage, round: batch.round, listed: &listed };
        for member in &self.membership.members {
            if member.node != sender && !batch.done.contains(&member.node) {
                host.outbox.send(member.address, |out| message.encode(out));
            }
        }
    }

    /// A member has done what the part asks for.
    pub(super) fn on_tombstones_ack(&mut self, host: &mut Host, now: Now, sender: NodeId, round: u64) {
        let Some(batch) = &mut self.forgetting.under_way else { return };
        if batch.round == round && batch.stage != ForgetStage::Fencing && !batch.done.contains(&sender) {
            batch.done.push(sender);
            self.go_on(host, now);
        }
    }

    /// When all others have done this part, continues with the next part or stage.
    fn go_on(&mut self, host: &mut Host, now: Now) {
        let others = self.membership.members.iter().filter(|member| member.node != host.config.node);
        let Some(batch) = &mut self.forgetting.under_way else { return };
        let is_done = others.count() == batch.done.len();
        if batch.stage == ForgetStage::Fencing || !is_done {
            return;
        }
        batch.from = batch.part_end();
        if batch.from < batch.tombstones.len() {
            return self.begin_part(host, now);
        }
        match batch.stage {
            ForgetStage::Holding => {
                (batch.stage, batch.tries) = (ForgetStage::Fencing, 0);
                self.want_fence(host, now);
            }
            ForgetStage::Fencing | ForgetStage::Telling => self.forgetting.under_way = None,
        }
    }

    /// Repeats requests that are overdue. Returns whether a batch is still under way.
    pub(super) fn sweep_forgetting(&mut self, host: &mut Host, now: Now) -> bool {
        let resend_ns = host.config.timing.resend.as_nanos() as u64;
        let Some(batch) = &mut self.forgetting.under_way else { return false };
        if now.boot_ns < batch.asked_ns + (resend_ns << batch.tries.min(DOUBLINGS_MAX)) {
            return true;
        }
        (batch.tries, batch.asked_ns) = (batch.tries + 1, now.boot_ns);
        if batch.tries > TRIES_MAX {
            self.forgetting.under_way = None;
            return false;
        }
        match batch.stage {
            ForgetStage::Fencing => self.want_fence(host, now),
            ForgetStage::Holding | ForgetStage::Telling => self.send_part(host),
        }
        true
    }

    /// Another member sends tombstones to hold or to forget.
    pub(super) fn on_tombstones(&mut self, host: &mut Host, now: Now, told: &Tombstones<'_>) {
        if !self.answers() || self.is_full() {
            host.counters.dropped += 1;
            return;
        }
        match told.stage {
            TombstoneStage::Hold => self.hold(host, now, told),
            TombstoneStage::Forget => {
                told.entries().for_each(|it| self.read_to_forget(host, it.key, it.timestamp));
                self.acknowledge(host, told.sender, told.round);
            }
        }
    }

    /// Whether no member's place is going to another node. While one is, a future member may lack
    /// what the originals hold, so no deletion may be forgotten.
    fn has_only_originals(&self) -> bool {
        self.membership.members.len() <= self.membership.replicas
    }

    fn hold(&mut self, host: &mut Host, now: Now, told: &Tombstones<'_>) {
        if !self.has_only_originals() || host.disk_space == DiskSpace::Exhausted {
            host.counters.dropped += 1;
            return;
        }
        self.forgetting.serial += 1;
        let (by, epoch, round, serial) = (told.sender, told.epoch, told.round, self.forgetting.serial);
        self.forgetting.asked.retain(|asked| asked.by != by);
        // One more than there are, so that the count cannot reach 0 before all have been passed to
        // `take`.
        let pending = told.entries().count() + 1;
        self.forgetting.asked.push(Asked { by, epoch, round, serial, pending });
        for Tombstone { timestamp, key } in told.entries() {
            self.take(
                host,
                now,
                key,
                Version { timestamp, value: None, is_large: false },
                Waiter::Tombstone { serial },
            );
        }
        self.on_tombstone_held(host, serial);
    }

    /// A tombstone of this message, or a newer version of its key, is synced here.
    pub(super) fn on_tombstone_held(&mut self, host: &mut Host, serial: u64) {
        let Some(place) = self.forgetting.asked.iter().position(|asked| asked.serial == serial) else {
            return;
        };
        let asked = &mut self.forgetting.asked[place];
        asked.pending -= 1;
        if asked.pending == 0 {
            let Asked { by, epoch, round, .. } = self.forgetting.asked.swap_remove(place);
            if epoch == self.membership.epoch {
                self.acknowledge(host, by, round);
            }
        }
    }

    fn acknowledge(&self, host: &mut Host, to: NodeId, round: u64) {
        let Some(address) = self.membership.address(to).filter(|_| self.answers()) else { return };
        let (sender, partition, epoch) = (host.config.node, self.id(), self.membership.epoch);
        let ack = TombstonesAck { partition, epoch, sender, round };
        host.outbox.send(address, |out| ack.encode(out));
    }

    fn read_to_forget(&mut self, host: &mut Host, key: &[u8], timestamp: Timestamp) {
        let token = host.read(self.id(), key);
        self.forgetting.reading.insert(key.into());
        self.reads
            .push_back((token, PendingRead { key: key.into(), what: ReadFor::Forgetting { timestamp } }));
    }

    /// A version of the key is being written to the engine, so a read that is under way may return
    /// the version before.
    pub(super) fn note_written(&mut self, key: &[u8]) {
        self.forgetting.reading.remove(key);
    }

    /// A key was read in order to forget its tombstone. Forgets it, unless the key has another
    /// version, was written since the read, or is being written.
    pub(super) fn on_forgetting_read(
        &mut self,
        host: &mut Host,
        key: &[u8],
        timestamp: Timestamp,
        entry: Option<Entry<'_>>,
    ) {
        let is_it = entry.is_some_and(|it| it.value.is_none() && timestamp_of(&it) == timestamp);
        let is_unwritten = self.forgetting.reading.remove(key);
        if is_it && is_unwritten && !self.keys.contains_key(key) {
            host.counters.forgotten += 1;
            self.log_forgotten(host, key, timestamp.counter);
        }
    }

    /// Logs that nothing is held of this key any more, and that the floor is at least `floor`.
    pub(super) fn log_forgotten(&mut self, host: &mut Host, key: &[u8], floor: u64) {
        self.floor = self.floor.max(floor);
        let record = host.append_awaited(self.id(), |out| Record::Forgotten { key, floor }.append(out));
        host.storage.want_sync();
        self.unsynced.push_back(Unsynced { record, what: AwaitedSync::Forgotten { key: key.into() } });
    }

    /// Other members have forgotten deletions up to this floor. A floor that is too high does no
    /// harm.
    pub(super) fn raise_floor(&mut self, host: &mut Host, floor: u64) {
        if floor > self.floor {
            self.floor = floor;
            host.append(self.id(), |out| Record::Floor { floor }.append(out));
        }
    }
}
