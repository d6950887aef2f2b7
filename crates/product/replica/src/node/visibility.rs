//! What a protocol tells of the keys that gets may be answered of elsewhere, such as in the node's kernel.
//!
//! A partition answers a get by itself while the key is not *locked*: then its newest shown entry is what every member has shown. Who keeps
//! entries outside of the core, to answer gets without asking it, is told before anybody else learns of a change:
//!
//! ```text
//!   get:      Read(k, entry) ──▶ reply leaves
//!   put:      Locked(k) ──▶ ack leaves … Changed(k, entry) ─▶ Unlocked(k) ──▶ reply, decision leave
//!   removal:  Unknown ──▶ acknowledgement of the epoch leaves
//! ```
//!
//! The rules of whoever listens: an entry begins with `Read`, when no op locks its key; what is told of keys without one means nothing. An entry is
//! *open* if it is the last one that was told of its key since `Unknown`, and the key is not locked; a key is not locked twice in turn. All effects are
//! taken before the next datagram leaves (`Replica::poll_visibility` before `poll_transmit`). Besides an open entry it takes what any get takes: the
//! standing of a serving member and the lease (R12); and an entry that expires is the primary's business (R11).

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::hash::BuildHasher;
use foldhash::fast::FixedState;
use nicekv_proto::recovery::Entry;
use nicekv_proto::{Header, OpId, PartitionId, Reply, Status};

/// A change of what may be shown of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shift {
    /// The partition.
    pub partition: PartitionId,
    /// What happened.
    pub kind: ShiftKind,
}

/// See [`Shift`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShiftKind {
    /// An op has locked the key: nothing may be shown of it.
    Locked(Box<[u8]>),
    /// The key's entry is another one, encoded as [`Entry`]; `None`: it has none. Shown when the key is not locked.
    Changed(Box<[u8]>, Option<Vec<u8>>),
    /// A get was answered with the key's entry, which is this one, and no op locks the key.
    Read(Box<[u8]>, Vec<u8>),
    /// No op locks the key any more.
    Unlocked(Box<[u8]>),
    /// All entries that were told are void; locks stay.
    Unknown,
}

/// Counters of changes; keys share them.
const CHANGES: usize = 1024;
/// Marks of what was read and told; keys share them.
const TOLD: usize = 8192;
/// Bits of keys that gets have asked for; keys share them.
const ASKED: usize = 1 << 16;
/// Of what was told already, every so manieth read is told again: whoever listens may have dropped it.
const TOLD_AGAIN: u32 = 64;

/// See the module. Nothing is kept unless somebody listens.
#[derive(Clone, Default)]
pub struct Visibility {
    shifts: VecDeque<Shift>,
    /// Whether the driver takes these.
    is_heard: bool,
    /// Partitions of which the owner of hot keys is told, too, and what it has not taken yet.
    hot: BTreeSet<PartitionId>,
    hot_shifts: VecDeque<Shift>,
    /// How often keys have changed, by their hash; empty unless somebody listens.
    changes: Vec<u64>,
    /// How often all may have.
    unknowns: u64,
    /// By the hash of a key: the hash of what was last told of it.
    told: Vec<u64>,
    reads: u32,
    /// A bit by the hash of a key: set once a get was answered with its entry.
    asked: Vec<u64>,
    /// How often the node was told of an epoch.
    pub(crate) epochs: u64,
}

/// How often a key has changed, at most: so what was read of it since is its entry unless it has changed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changes(u64);

impl Visibility {
    /// The driver listens from now on, and takes every effect.
    pub(crate) fn tell(&mut self) {
        self.is_heard = true;
        self.begin();
    }

    /// What happens in this partition is told to the owner of hot keys from now on.
    pub(crate) fn tell_of(&mut self, partition: PartitionId) {
        self.hot.insert(partition);
        self.begin();
    }

    fn begin(&mut self) {
        self.changes.resize(CHANGES, 0);
        self.told.resize(TOLD, 0);
        self.asked.resize(ASKED / 64, 0);
    }

    fn hash(partition: PartitionId, key: &[u8]) -> usize {
        FixedState::with_seed(0).hash_one((partition, key)) as usize
    }

    /// Of this key, so far; to be given to [`Self::read`].
    pub fn changes(&self, partition: PartitionId, key: &[u8]) -> Changes {
        match self.is_told() {
            true => Changes(self.changes[Self::hash(partition, key) % CHANGES] + self.unknowns),
            false => Changes(0),
        }
    }

    fn is_told(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Whether the driver takes what is told, and may answer gets by it.
    pub(crate) fn is_heard(&self) -> bool {
        self.is_heard
    }

    fn count(&mut self, partition: PartitionId, key: &[u8]) {
        if self.is_told() {
            self.changes[Self::hash(partition, key) % CHANGES] += 1;
        }
    }

    /// What was read of the key, which no op locks now, after so many changes, is told unless there was another one since.
    pub fn read(&mut self, partition: PartitionId, key: &[u8], entry: &Entry<'_>, after: Changes) {
        if self.is_told() && self.changes(partition, key) == after && !self.was_told(partition, key, entry) {
            let bit = Self::hash(partition, key) % ASKED;
            self.asked[bit / 64] |= 1 << (bit % 64);
            self.push(partition, || ShiftKind::Read(key.into(), encoded(entry)));
        }
    }

    /// What is read next of the key is told, though it was told already.
    pub(crate) fn tell_again(&mut self, partition: PartitionId, key: &[u8]) {
        if let Some(place) = self.told.get_mut(Self::hash(partition, key) % TOLD) {
            *place = 0;
        }
    }

    /// Whether this entry of the key, or one that cannot be told from it, was told of late.
    fn was_told(&mut self, partition: PartitionId, key: &[u8], entry: &Entry<'_>) -> bool {
        let hash = FixedState::with_seed(1).hash_one((
            partition,
            key,
            entry.version.client.0,
            entry.version.sequence,
            self.unknowns,
        ));
        let place = &mut self.told[Self::hash(partition, key) % TOLD];
        self.reads = self.reads.wrapping_add(1);
        core::mem::replace(place, hash) == hash && !self.reads.is_multiple_of(TOLD_AGAIN)
    }

    fn push(&mut self, partition: PartitionId, kind: impl FnOnce() -> ShiftKind) {
        let is_hot = self.hot.contains(&partition);
        if !is_hot && !self.is_heard {
            return;
        }
        let shift = Shift { partition, kind: kind() };
        if is_hot {
            self.hot_shifts.push_back(shift.clone());
        }
        if self.is_heard {
            self.shifts.push_back(shift);
        }
    }

    /// Of a key that nobody has asked for, nothing is told: puts of such keys are to cost next to nothing.
    fn push_if_asked(&mut self, partition: PartitionId, key: &[u8], kind: impl FnOnce() -> ShiftKind) {
        if self.is_told() {
            let bit = Self::hash(partition, key) % ASKED;
            if self.asked[bit / 64] >> (bit % 64) & 1 == 1 {
                self.push(partition, kind);
            }
        }
    }

    /// See [`ShiftKind::Locked`].
    pub fn locked(&mut self, partition: PartitionId, key: &[u8]) {
        self.push_if_asked(partition, key, || ShiftKind::Locked(key.into()));
    }

    /// See [`ShiftKind::Changed`].
    pub fn changed(&mut self, partition: PartitionId, key: &[u8], entry: Option<&Entry<'_>>) {
        self.count(partition, key);
        self.push_if_asked(partition, key, || ShiftKind::Changed(key.into(), entry.map(encoded)));
    }

    /// See [`ShiftKind::Unlocked`].
    pub fn unlocked(&mut self, partition: PartitionId, key: &[u8]) {
        self.push_if_asked(partition, key, || ShiftKind::Unlocked(key.into()));
    }

    /// See [`ShiftKind::Unknown`].
    pub fn unknown(&mut self, partition: PartitionId) {
        self.unknowns += 1;
        self.push(partition, || ShiftKind::Unknown);
    }

    pub(crate) fn poll(&mut self) -> Option<Shift> {
        self.shifts.pop_front()
    }

    pub(crate) fn poll_hot(&mut self) -> Option<Shift> {
        self.hot_shifts.pop_front()
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.shifts.is_empty()
    }
}

fn encoded(entry: &Entry<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    entry.append(&mut bytes);
    bytes
}

/// The reply to a get of an entry, less its header, for whoever only has to send it: the kernel, or the switch (G8, H9). The integer is its length.
pub fn reply_body(entry: &Entry<'_>) -> Vec<u8> {
    let reply = match entry.value {
        Some(value) => Reply {
            version: entry.version,
            expiry_ms: entry.expiry_ms,
            value: Some(value),
            form: entry.form,
            ..Reply::bare(OpId::NONE, Status::Ok)
        },
        None => Reply::bare(OpId::NONE, Status::NotFound),
    };
    let reply = Reply { integer: reply.length() as i64, ..reply };
    let mut datagram = Vec::new();
    reply.encode(&mut datagram);
    datagram.split_off(Header::BYTES)
}
