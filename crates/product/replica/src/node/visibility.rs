//! Reports changes of keys to code outside of the core that answers gets, such as the node's kernel
//! program.
//!
//! A partition answers a get by itself while the key is not *locked*: then its newest shown entry
//! is what every member has shown. A *listener* keeps entries outside of the core to answer gets
//! without asking it. The listener is notified of a change before any other node learns of it:
//!
//! ```text
//!   get:      Read(k, entry) ──▶ reply leaves
//!   put:      Locked(k) ──▶ ack leaves … Changed(k, entry) ─▶ Unlocked(k) ──▶ reply, decision leave
//!   removal:  Unknown ──▶ acknowledgement of the epoch leaves
//! ```
//!
//! Rules for a listener. It creates an entry on `Read`, which is reported when no op locks the key;
//! it ignores other changes of keys for which it has no entry. An entry is *open*, and may answer
//! gets, if it is the last one reported for its key since `Unknown` and the key is not locked. A
//! key is never locked twice in a row. The listener must apply all changes before the next datagram
//! is sent (`Replica::poll_visibility` before `poll_transmit`). An answer also needs what every get
//! needs: this node must be a serving member with a lease (R12). Entries that expire are left to
//! the primary (R11).

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
    /// The change.
    pub kind: ShiftKind,
}

/// The kind of change; see [`Shift`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShiftKind {
    /// An op has locked the key, so its entry may not be shown.
    Locked(Box<[u8]>),
    /// The key has another entry, encoded as [`Entry`], or none. It may be shown when the key is
    /// not locked.
    Changed(Box<[u8]>, Option<Vec<u8>>),
    /// A get was answered with this entry of the key, and no op locks the key.
    Read(Box<[u8]>, Vec<u8>),
    /// No op locks the key any more.
    Unlocked(Box<[u8]>),
    /// All entries reported so far are void; locks stay.
    Unknown,
}

/// Size of the table of counters of changes; keys with the same hash share a counter.
const CHANGES: usize = 1024;
/// Size of the table of recently reported reads; keys with the same hash share an element.
const TOLD: usize = 8192;
/// Size, in bits, of the table of keys that gets have asked for; keys with the same hash share a
/// bit.
const ASKED: usize = 1 << 16;
/// Of reads that were reported before, one in this many is reported again, because the listener may
/// have dropped the entry.
const TOLD_AGAIN: u32 = 64;

/// Records changes for the listeners; see the module. Without a listener nothing is recorded.
#[derive(Clone, Default)]
pub struct Visibility {
    shifts: VecDeque<Shift>,
    /// Whether the driver polls `shifts`.
    is_heard: bool,
    /// Partitions whose changes are also reported to the owner of hot keys, and the changes that it
    /// has not taken yet.
    hot: BTreeSet<PartitionId>,
    hot_shifts: VecDeque<Shift>,
    /// How often keys have changed, by their hash; empty if nobody listens.
    changes: Vec<u64>,
    /// How often all keys of a partition may have changed at once.
    unknowns: u64,
    /// By the hash of a key: a hash of the entry last reported for it.
    told: Vec<u64>,
    reads: u32,
    /// One bit by the hash of a key: set once a get was answered with the key's entry.
    asked: Vec<u64>,
    /// How many assignments of epochs the node has received.
    pub(crate) epochs: u64,
}

/// An upper bound on how often a key has changed. If it is still the same after a read, the entry
/// that was read is current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changes(u64);

impl Visibility {
    /// Starts to record changes for the driver, which must take all of them.
    pub(crate) fn tell(&mut self) {
        self.is_heard = true;
        self.begin();
    }

    /// Starts to record changes of this partition for the owner of hot keys.
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

    /// How often this key has changed so far; to be passed to [`Self::read`] later.
    pub fn changes(&self, partition: PartitionId, key: &[u8]) -> Changes {
        match self.is_told() {
            true => Changes(self.changes[Self::hash(partition, key) % CHANGES] + self.unknowns),
            false => Changes(0),
        }
    }

    fn is_told(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Whether the driver takes changes, and so may answer gets itself.
    pub(crate) fn is_heard(&self) -> bool {
        self.is_heard
    }

    fn count(&mut self, partition: PartitionId, key: &[u8]) {
        if self.is_told() {
            self.changes[Self::hash(partition, key) % CHANGES] += 1;
        }
    }

    /// Reports an entry that was read for a key which no op locks, unless the key has changed since
    /// `after` or the entry was reported recently.
    pub fn read(&mut self, partition: PartitionId, key: &[u8], entry: &Entry<'_>, after: Changes) {
        if self.is_told() && self.changes(partition, key) == after && !self.was_told(partition, key, entry) {
            let bit = Self::hash(partition, key) % ASKED;
            self.asked[bit / 64] |= 1 << (bit % 64);
            self.push(partition, || ShiftKind::Read(key.into(), encoded(entry)));
        }
    }

    /// Makes sure that the next read of the key is reported even if it was reported before.
    pub(crate) fn tell_again(&mut self, partition: PartitionId, key: &[u8]) {
        if let Some(place) = self.told.get_mut(Self::hash(partition, key) % TOLD) {
            *place = 0;
        }
    }

    /// Whether this entry of the key (or one with the same hash) was reported recently.
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

    /// Records a change only if a get has asked for the key before, so that puts of other keys cost
    /// almost nothing.
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

/// The reply to a get with this entry, without its header, for the kernel or the switch, which only
/// have to send it (G8, H9). The reply's integer is its length.
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
