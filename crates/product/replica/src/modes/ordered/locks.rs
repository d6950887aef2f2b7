//! The open ops of a partition, and the keys that they lock.
//!
//! ```text
//!   take_in ──▶ undecided, in the queue of its key ──decide──▶ decided, not released ──remove, unlock──▶ gone
//! ```
//!
//! Invariants: an open op locks its keys (only a transaction has several); a key without open ops
//! is not locked; a key's undecided ops are queued in the order of this replica's log, except
//! deletes by expiry (`expiry`).
//!
//! `Locks` reports to [`Visibility`] when a key is locked and unlocked; `contents` reports the
//! changes in between.

use crate::modes::bounds::WAITING_GETS_MAX;
use crate::modes::ordered::evaluate::KeyValue;
use crate::modes::ordered::number_map::NumberMap;
use crate::{Map, Visibility};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use hashbrown::hash_map::EntryRef;
use nicekv_proto::{Now, OpId, Operation, PartitionId, StoredBytes, StoredKey, StoredUpdate};
use smallvec::SmallVec;

/// How many buffers of removed ops are kept for reuse: as many as a batch of datagrams needs.
const SPARE_MAX: usize = 16;

/// How many times a timeout doubles at most.
const DOUBLINGS_MAX: u32 = 3;

/// An op that is prepared here and has not taken effect yet.
#[derive(Clone)]
pub(crate) struct Op {
    /// The number of its log record; ops of a key are ordered by it.
    pub(crate) order: u64,
    /// The client's datagram.
    pub(crate) stored: StoredUpdate,
    pub(crate) is_synced: bool,
    /// Whether it was contended when it was logged (R2).
    pub(crate) is_contended: bool,
    /// Set while the op is decided but not released.
    pub(crate) is_decided: bool,
    pub(crate) votes: Votes,
    /// When the op was accepted.
    pub(crate) since_ns: u64,
    /// When the op was last sent or acknowledged by this node, and how often.
    sent_ns: u64,
    pub(crate) tries: u32,
}

impl Op {
    /// Whether the op deletes its key.
    pub(crate) fn is_delete(&self) -> bool {
        matches!(self.stored.head().operation, Operation::Delete)
    }
}

/// The primary's view of an op, from the acks of this epoch.
#[derive(Clone, Copy, Default, Hash)]
pub(crate) struct Votes {
    /// Bit set of the positions of members that have acknowledged the op.
    pub(crate) acks: u16,
    /// Whether some member has acknowledged it as contended.
    pub(crate) any_contended: bool,
    /// Whether some member could not store it.
    pub(crate) any_refused: bool,
}

/// The newest decided state of a key, as far as the primary knows it.
#[derive(Clone)]
pub(crate) enum Latest {
    Unknown,
    /// Being read. Only the result for this token counts; earlier reads return an older state.
    Reading {
        token: u64,
    },
    Known(Option<KeyValue>),
}

/// A get that waits for an op of its key.
#[derive(Clone)]
pub(crate) struct WaitingGet {
    pub(crate) op: OpId,
    pub(crate) reply_to: SocketAddrV4,
    /// Chains: whether the head has already judged if the value has expired (R11).
    pub(crate) is_judged: bool,
}

#[derive(Clone)]
pub(crate) struct Key {
    /// The key's undecided ops, in the order of this replica's log.
    queue: SmallVec<[OpId; 1]>,
    /// How many ops of the key are decided and not released.
    unreleased: u32,
    latest: Latest,
    /// Gets that wait for the outcome of these ops.
    waiting: Vec<WaitingGet>,
}

impl Key {
    fn new() -> Self {
        Self { queue: SmallVec::new(), unreleased: 0, latest: Latest::Unknown, waiting: Vec::new() }
    }

    /// The key's undecided ops, in the order in which they will be decided.
    pub(crate) fn undecided(&self) -> impl Iterator<Item = OpId> {
        self.queue.iter().copied()
    }

    pub(crate) fn unreleased(&self) -> u32 {
        self.unreleased
    }

    pub(crate) fn latest(&self) -> &Latest {
        &self.latest
    }
}

#[derive(Clone)]
pub(crate) struct Locks {
    partition: PartitionId,
    ops: Map<OpId, Op>,
    /// Undecided ops by the number of their log record.
    undecided: NumberMap<OpId>,
    keys: Map<StoredKey, Key>,
    /// Buffers of removed ops, for reuse.
    spare: Vec<StoredBytes>,
}

impl Locks {
    /// State without open ops; `ops` and `keys` are empty maps.
    pub(crate) fn new(partition: PartitionId, ops: Map<OpId, Op>, keys: Map<StoredKey, Key>) -> Self {
        Self { partition, ops, undecided: NumberMap::default(), keys, spare: Vec::new() }
    }

    pub(crate) fn op(&self, op: OpId) -> Option<&Op> {
        self.ops.get(&op)
    }

    /// Whether an op is open.
    pub(crate) fn holds(&self, op: OpId) -> bool {
        self.ops.contains_key(&op)
    }

    pub(crate) fn count(&self) -> usize {
        self.ops.len()
    }

    /// Whether any op is decided and not released.
    pub(crate) fn has_unreleased(&self) -> bool {
        self.ops.len() > self.undecided.len()
    }

    /// The state of a key, if it is locked.
    pub(crate) fn key(&self, key: &[u8]) -> Option<&Key> {
        self.keys.get(key)
    }

    /// Whether a key is locked.
    pub(crate) fn is_locked(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key)
    }

    /// The undecided ops logged after record `after`, in log order.
    pub(crate) fn undecided_after(&self, after: u64) -> impl Iterator<Item = (OpId, &Op)> {
        self.undecided.after(after).map(|(_, op)| (*op, &self.ops[op]))
    }

    /// The log record of the oldest undecided op; `u64::MAX` if there is none.
    pub(crate) fn oldest_undecided(&self) -> u64 {
        self.undecided.first().unwrap_or(u64::MAX)
    }

    /// All open ops, in log order.
    pub(crate) fn in_log_order(&self) -> Vec<&Op> {
        let mut ops: Vec<&Op> = self.ops.values().collect();
        ops.sort_unstable_by_key(|op| op.order);
        ops
    }

    /// Adds an op: it is undecided, and locks its keys.
    pub(crate) fn take_in(
        &mut self,
        visibility: &mut Visibility,
        now: Now,
        order: u64,
        is_contended: bool,
        stored: StoredUpdate,
    ) {
        let op = stored.head().op;
        for key in stored.stored_keys() {
            let key = self.keys.entry(key).or_insert_with_key(|key| {
                visibility.locked(self.partition, key);
                Key::new()
            });
            key.queue.push(op);
        }
        self.undecided.insert(order, op);
        let state = Op {
            order,
            stored,
            is_synced: false,
            is_contended,
            is_decided: false,
            votes: Votes::default(),
            since_ns: now.boot_ns,
            sent_ns: now.boot_ns,
            tries: 0,
        };
        let before = self.ops.insert(op, state);
        debug_assert!(before.is_none());
    }

    /// The log record of an op is synced. If the op is still open, returns when it was accepted.
    pub(crate) fn mark_synced(&mut self, op: OpId) -> Option<u64> {
        let state = self.ops.get_mut(&op)?;
        state.is_synced = true;
        Some(state.since_ns)
    }

    /// Primary: the members at these positions have acknowledged an open op. Returns its votes.
    pub(crate) fn count_acks(&mut self, op: OpId, acks: u16, is_contended: bool, is_refused: bool) -> Votes {
        let state = self.ops.get_mut(&op).expect("an open op");
        state.votes.acks |= acks;
        state.votes.any_contended |= is_contended || state.is_contended;
        state.votes.any_refused |= is_refused;
        state.votes
    }

    /// A member that the op waits for is not silent: keeps the timeout short.
    pub(crate) fn calm(&mut self, op: OpId) {
        if let Some(state) = self.ops.get_mut(&op) {
            state.tries = state.tries.min(1);
        }
    }

    /// The primary is not silent: calms the `count` oldest undecided ops.
    pub(crate) fn calm_oldest(&mut self, count: usize) {
        for (_, op) in self.undecided.after(None).take(count) {
            let state = self.ops.get_mut(op).expect("an undecided op is open");
            state.tries = state.tries.min(1);
        }
    }

    /// Of the `count` oldest undecided ops, those whose timeout has passed. Counts one more try for
    /// each.
    pub(crate) fn take_overdue(&mut self, now: Now, timeout_ns: u64, count: usize) -> Vec<OpId> {
        let mut overdue = Vec::new();
        for (_, op) in self.undecided.after(None).take(count) {
            let state = self.ops.get_mut(op).expect("an undecided op is open");
            if now.boot_ns >= state.sent_ns + (timeout_ns << state.tries.min(DOUBLINGS_MAX)) {
                (state.sent_ns, state.tries) = (now.boot_ns, state.tries + 1);
                overdue.push(*op);
            }
        }
        overdue
    }

    /// Marks an op as decided, possibly not for the first time. Returns how many ops of its key are
    /// decided and not released, this one included (for a transaction, the maximum over its keys).
    /// `None`: the op is not open.
    pub(crate) fn decide(&mut self, op: OpId) -> Option<u32> {
        let state = self.ops.get_mut(&op)?;
        let is_first = !core::mem::replace(&mut state.is_decided, true);
        if is_first {
            self.undecided.remove(state.order);
        }
        let mut most = 0;
        state.stored.each_key(|key| {
            let key = self.keys.get_mut(key).expect("an open op locks its keys");
            if is_first {
                key.queue.retain(|queued| *queued != op);
                key.unreleased += 1;
            }
            most = most.max(key.unreleased);
        });
        Some(most)
    }

    /// Whether an undecided op is the next one of each of its keys (T2).
    pub(crate) fn is_next(&self, op: OpId) -> bool {
        let Some(state) = self.ops.get(&op) else { return false };
        let mut is_next = true;
        state.stored.each_key(|key| is_next &= self.keys[key].queue.first() == Some(&op));
        is_next
    }

    /// Whether an op that is not open yet shares a key with an undecided one. It is contended then
    /// (T3).
    pub(crate) fn meets_undecided(&self, stored: &StoredUpdate) -> bool {
        let mut meets = false;
        stored.each_key(|key| meets |= self.keys.get(key).is_some_and(|key| !key.queue.is_empty()));
        meets
    }

    /// Removes a decided op that takes effect. The caller unlocks its keys next.
    pub(crate) fn remove(&mut self, op: OpId) -> Option<Op> {
        self.ops.remove(&op)
    }

    /// Takes a buffer for an op that will be added.
    pub(crate) fn take_spare(&mut self) -> StoredBytes {
        self.spare.pop().unwrap_or_default()
    }

    /// Keeps the buffer of a removed op for reuse.
    pub(crate) fn let_go(&mut self, op: Op) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(op.stored.into_bytes());
        }
    }

    /// A decided op of this key has taken effect. If no other op locks the key, unlocks it and
    /// returns the gets that have waited.
    pub(crate) fn unlock(&mut self, visibility: &mut Visibility, key: &[u8]) -> Option<Vec<WaitingGet>> {
        let EntryRef::Occupied(mut entry) = self.keys.entry_ref(key) else {
            panic!("an open op locks its key")
        };
        let state = entry.get_mut();
        state.unreleased -= 1;
        if !state.queue.is_empty() || state.unreleased > 0 {
            return None;
        }
        visibility.unlocked(self.partition, key);
        Some(entry.remove().waiting)
    }

    fn key_mut(&mut self, key: &[u8]) -> &mut Key {
        self.keys.get_mut(key).expect("an open op locks its key")
    }

    /// Makes a get wait for the outcome of a locked key. Returns whether there was room.
    pub(crate) fn wait(&mut self, get: WaitingGet, key: &[u8]) -> bool {
        match self.keys.get_mut(key) {
            Some(state) if state.waiting.len() < WAITING_GETS_MAX => {
                state.waiting.push(get);
                true
            }
            _ => false,
        }
    }

    /// Takes the gets that wait for a locked key.
    pub(crate) fn take_waiting(&mut self, key: &[u8]) -> Vec<WaitingGet> {
        core::mem::take(&mut self.key_mut(key).waiting)
    }

    /// Primary: sets the newest decided state of a locked key.
    pub(crate) fn set_latest(&mut self, key: &[u8], latest: Latest) {
        self.key_mut(key).latest = latest;
    }

    /// A read with this token has returned `latest`. Returns whether that is the read that counts.
    pub(crate) fn end_reading(&mut self, key: &[u8], token: u64, latest: Latest) -> bool {
        let Some(state) = self.keys.get_mut(key) else { return false };
        let is_newest = matches!(state.latest, Latest::Reading { token: newest } if newest == token);
        if is_newest {
            state.latest = latest;
        }
        is_newest
    }

    /// Makes an undecided op the next one of its key.
    pub(crate) fn move_to_front(&mut self, key: &[u8], op: OpId) {
        let queue = &mut self.key_mut(key).queue;
        queue.retain(|queued| *queued != op);
        queue.insert(0, op);
    }

    /// A new epoch begins: the new primary's decisions are unknown, and the acks of the last epoch
    /// are void (R4).
    pub(crate) fn enter_epoch(&mut self, now: Now) {
        for key in self.keys.values_mut() {
            key.waiting.clear();
            key.latest = Latest::Unknown;
        }
        for op in self.ops.values_mut() {
            op.votes = Votes::default();
            (op.sent_ns, op.tries) = (now.boot_ns, 0);
        }
    }

    /// Chains: drops the undecided ops, which no other node has. Returns them.
    pub(crate) fn drop_undecided(&mut self, visibility: &mut Visibility) -> Vec<OpId> {
        let mut dropped = Vec::new();
        while let Some((_, op)) = self.undecided.pop_first() {
            let state = self.ops.remove(&op).expect("an undecided op is open");
            state.stored.each_key(|name| {
                let EntryRef::Occupied(mut entry) = self.keys.entry_ref(name) else {
                    panic!("an open op locks its keys")
                };
                let key = entry.get_mut();
                key.queue.retain(|queued| *queued != op);
                if key.queue.is_empty() && key.unreleased == 0 {
                    visibility.unlocked(self.partition, name);
                    entry.remove();
                }
            });
            dropped.push(op);
        }
        dropped
    }

    /// Drops all ops: unlocks their keys, and returns the ops. `ops` is an empty map that takes
    /// their place.
    pub(crate) fn give_up(&mut self, visibility: &mut Visibility, ops: Map<OpId, Op>) -> Map<OpId, Op> {
        for (key, _) in self.keys.drain() {
            visibility.unlocked(self.partition, &key);
        }
        self.undecided.clear();
        core::mem::replace(&mut self.ops, ops)
    }
}

mod fingerprint {
    use super::*;
    use core::hash::{Hash, Hasher};

    impl Locks {
        pub(crate) fn fingerprint(&self, recovered_through: u64, state: &mut impl Hasher) {
            for op in self.in_log_order() {
                (op.stored.head().op, op.is_synced, op.is_contended, op.is_decided).hash(state);
                (op.votes, op.order <= recovered_through).hash(state);
            }
            let mut keys: Vec<(&[u8], &Key)> = self.keys.iter().map(|(name, key)| (&**name, key)).collect();
            keys.sort_unstable_by_key(|(name, _)| *name);
            for (name, key) in keys {
                (name, &key.queue, key.unreleased).hash(state);
                match &key.latest {
                    Latest::Unknown => 0.hash(state),
                    Latest::Reading { .. } => 1.hash(state),
                    Latest::Known(value) => {
                        let value =
                            value.as_ref().map(|value| (value.version, value.expiry_ms, &value.value));
                        value.hash(state);
                    }
                }
                key.waiting.iter().for_each(|get| get.op.hash(state));
            }
        }

        pub(crate) fn check_invariants(&self) -> Result<(), &'static str> {
            let holds = |condition: bool, what| if condition { Ok(()) } else { Err(what) };
            let undecided = self.ops.values().filter(|op| !op.is_decided).count();
            holds(self.undecided.len() == undecided, "the list of undecided ops is complete")?;
            for (name, key) in &self.keys {
                let open = self.ops.values().filter(|op| op.stored.has_key(name)).count();
                holds(open == key.queue.len() + key.unreleased as usize, "an open op locks its key")?;
                holds(open > 0, "a key without open ops is not locked")?;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
