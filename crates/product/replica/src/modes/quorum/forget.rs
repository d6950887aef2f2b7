//! How deletions are forgotten: versions without a value, which would otherwise be kept for ever.
//!
//! ```text
//!   a member, epoch e, all R counted          metadata service         each other member
//!     │ its scrub has found tombstones
//!     │──Hold(tombstones)─────────────────────────────────────────────▶│ takes them in, as a store
//!     │◀─Ack───────────────────────────────────────────────────────────│ forced, in e
//!     │──Fence──────────────────────────────────▶│
//!     │◀─────────────Assign e' > e───────────────│──────Assign e'──────▶│
//!     │──Forget(tombstones)───────────────────────────────────────────▶│ as here:
//!     │ log the floor, remove those that are still held exactly so
//! ```
//!
//! The *floor* is the greatest counter of a tombstone that a replica has forgotten, of whichever key; it is in the log, and in every
//! answer. Why nothing comes back that was deleted:
//!
//! 1. From e + 1 on, every counted replica holds t, or something newer, or has a floor of at least t's counter: they held it when they
//!    answered in e, and only newer versions, or this procedure, replace it. New storage merges versions and floors of such replicas,
//!    a damaged key is got back with both from such replicas, all after e.
//! 2. So whoever asks in an epoch after e chooses a timestamp above t. A put that had chosen an older one before stores it again only if a
//!    replica shows that 1. is not the case for any newer t (`nicekv_client`'s quorum exchange). A get that asks after e reads nothing
//!    older than t. Hence a store of something older than t names epoch e or an earlier one,
//! 3. and is taken by nobody who has forgotten t, which is done in later epochs only: replicas take stores of their present epoch.
//! 4. Versions are not hidden by floors. A put that is newer than t is read wherever it is held, and one of a key that was never deleted
//!    is not touched by the floor that others have left.
//!
//! A tombstone that is forgotten may be stored again, by a get that has read it in the same epoch at a replica that still has it, or by the
//! delete itself. It hides nothing that 1. to 3. do not exclude, and is forgotten again. That a member holds *no* entry and has a
//! high floor is no answer to Hold: its floor may be other keys', and it might take an older version before the epoch ends.
//!
//! The primary begins, at any time; another member, which has what the primary does not, only when the epoch has been quiet for a while:
//! else each would give the other back what it has just forgotten.

use super::QuorumPartition;
use super::version::{PendingRead, ReadFor, Record, Unforced, UnforcedWhat, Version, Waiter, timestamp_of};
use crate::modes::entry::decode_entry;
use crate::{Host, Page, stored_entries};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use nicekv_proto::control::DiskSpace;
use nicekv_proto::quorum::{Timestamp, Tombstone, TombstoneStage, Tombstones, TombstonesAck};
use nicekv_proto::recovery::Entry;
use nicekv_proto::{Epoch, NodeId, Now};

/// Most tombstones of one partition that are forgotten together; the scrub waits with more.
const BATCH_MAX: usize = 4096;
/// A step that so many requests have not brought about is given up; the next pass of the scrub begins anew.
const TRIES_MAX: u32 = 30;
/// The time between two requests doubles at most this often.
const DOUBLINGS_MAX: u32 = 5;
/// An epoch in which nothing is forgotten lasts longer than this.
const QUIET_NS: u64 = 3_000_000_000;

/// A member's part in forgetting.
#[derive(Clone, Default)]
pub(super) struct Forgetting {
    /// Found by the scrub, and not yet under way.
    found: Vec<Found>,
    under_way: Option<Batch>,
    /// What other members have asked to be held, the newest of each.
    asked: Vec<Asked>,
    /// Names messages and what is asked.
    serial: u64,
    /// Keys that are being read to be forgotten, and that were not written since.
    reading: BTreeSet<Box<[u8]>>,
}

type Found = (Box<[u8]>, Timestamp);

#[derive(Clone)]
struct Batch {
    tombstones: Vec<Found>,
    stage: Stage,
    /// Place of the first one of the part that others have been told of.
    from: usize,
    /// Of the part's message.
    round: u64,
    done: Vec<NodeId>,
    asked_ns: u64,
    tries: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Others are to hold them.
    Holding,
    /// They do, in this epoch.
    Fencing,
    /// They are to forget them.
    Telling,
}

/// What another member wants to be held.
#[derive(Clone)]
struct Asked {
    by: NodeId,
    epoch: Epoch,
    round: u64,
    serial: u64,
    /// So many are not yet durable.
    pending: usize,
}

impl QuorumPartition {
    /// The scrub has read a page.
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
            let (stage, from, round, done) = (Stage::Holding, 0, 0, Vec::new());
            let batch = Batch { tombstones, stage, from, round, done, asked_ns: 0, tries: 0 };
            self.forgetting.under_way = Some(batch);
            self.tell_part(host, now);
        }
    }

    /// Whether the scrub is not to go on yet.
    pub(super) fn has_tombstones_enough(&self) -> bool {
        self.forgetting.found.len() >= BATCH_MAX && self.forgetting.under_way.is_some()
    }

    fn may_forget(&self, host: &Host, now: Now) -> bool {
        let is_quiet = now.boot_ns >= self.epoch_began_ns + QUIET_NS;
        let begins = self.membership.primary == host.config.node || is_quiet;
        begins && self.answers() && self.membership.is_whole() && self.has_only_originals()
    }

    /// Another epoch has begun.
    pub(super) fn on_epoch_while_forgetting(&mut self, host: &mut Host, now: Now) {
        let answers = self.answers();
        let Some(batch) = &mut self.forgetting.under_way else { return };
        match batch.stage {
            _ if !answers => self.forgetting.under_way = None,
            // Who has answered did so in an epoch that not all others have answered in.
            Stage::Holding => self.forgetting.under_way = None,
            Stage::Fencing => {
                (batch.stage, batch.from) = (Stage::Telling, 0);
                self.begin_part(host, now);
            }
            Stage::Telling => self.begin_part(host, now),
        }
    }

    /// A part of the batch is next: others are told, and what is to be forgotten here is.
    fn begin_part(&mut self, host: &mut Host, now: Now) {
        let Some(batch) = &self.forgetting.under_way else { return };
        if batch.stage == Stage::Telling {
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

    /// Tells those who have not answered.
    fn send_part(&self, host: &mut Host) {
        let Some(batch) = &self.forgetting.under_way else { return };
        let stage = match batch.stage {
            Stage::Holding => TombstoneStage::Hold,
            Stage::Fencing => return,
            Stage::Telling => TombstoneStage::Forget,
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

    /// Another member has done what the part asks for.
    pub(super) fn on_tombstones_ack(&mut self, host: &mut Host, now: Now, sender: NodeId, round: u64) {
        let Some(batch) = &mut self.forgetting.under_way else { return };
        if batch.round == round && batch.stage != Stage::Fencing && !batch.done.contains(&sender) {
            batch.done.push(sender);
            self.go_on(host, now);
        }
    }

    /// Goes on to the next part, or step, if all others have done the present one.
    fn go_on(&mut self, host: &mut Host, now: Now) {
        let others = self.membership.members.iter().filter(|member| member.node != host.config.node);
        let Some(batch) = &mut self.forgetting.under_way else { return };
        let is_done = others.count() == batch.done.len();
        if batch.stage == Stage::Fencing || !is_done {
            return;
        }
        batch.from = batch.part_end();
        if batch.from < batch.tombstones.len() {
            return self.begin_part(host, now);
        }
        match batch.stage {
            Stage::Holding => {
                (batch.stage, batch.tries) = (Stage::Fencing, 0);
                self.want_fence(host, now);
            }
            Stage::Fencing | Stage::Telling => self.forgetting.under_way = None,
        }
    }

    /// Asks again; whether there is anything left to wait for.
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
            Stage::Fencing => self.want_fence(host, now),
            Stage::Holding | Stage::Telling => self.send_part(host),
        }
        true
    }

    /// Another member has tombstones.
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

    /// While a member's place goes to another node, what all originals hold is not yet what all hold that are to count: nothing is forgotten anew.
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
        // One more than there are, so that they cannot be done before all are counted.
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

    /// A tombstone of these, or something newer, is durable.
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

    /// A version of a key goes to the engine: what is being read there may be the one before.
    pub(super) fn note_written(&mut self, key: &[u8]) {
        self.forgetting.reading.remove(key);
    }

    /// What is to be forgotten, unless something else is there, has come there since it was read, or is on its way.
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

    /// From here on there is nothing to hold of this key, and the floor is at least this.
    pub(super) fn log_forgotten(&mut self, host: &mut Host, key: &[u8], floor: u64) {
        self.floor = self.floor.max(floor);
        let record = host.append_awaited(self.id(), |out| Record::Forgotten { key, floor }.append(out));
        host.storage.want_force();
        self.unforced.push_back(Unforced { record, what: UnforcedWhat::Forgotten { key: key.into() } });
    }

    /// Others have forgotten deletions up to here. A floor that is higher than it need be does no harm.
    pub(super) fn raise_floor(&mut self, host: &mut Host, floor: u64) {
        if floor > self.floor {
            self.floor = floor;
            host.append(self.id(), |out| Record::Floor { floor }.append(out));
        }
    }
}

impl Batch {
    /// The part that begins at `from` ends before this place: what fits one message.
    fn part_end(&self) -> usize {
        let mut bytes = 0;
        let fits = |(key, timestamp): &&Found| {
            bytes += Tombstone { timestamp: *timestamp, key }.bytes();
            bytes <= Tombstones::LISTED_BYTES_MAX
        };
        self.from + self.tombstones[self.from..].iter().take_while(fits).count()
    }
}
