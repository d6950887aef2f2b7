//! What a node of a chain knows of its predecessor and successor, and whether it may answer as the
//! tail.

use crate::modes::bounds::CHAIN_OPS_EARLY_MAX;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nicekv_proto::control::DiskSpace;
use nicekv_proto::replication::Progress;
use nicekv_proto::{Now, OpId};

/// A timeout doubles at most this often.
const DOUBLINGS_MAX: u32 = 3;

/// State of one epoch.
#[derive(Clone, Default)]
pub(crate) struct Neighbours {
    /// This tail may answer, and so may the same tail in the next epoch (C7).
    pub(crate) is_entitled: bool,
    /// The successor has reported its progress in this epoch.
    is_heard: bool,
    /// The last entry sent to it.
    sent: u64,
    /// The last entry it has logged.
    logged: u64,
    /// The last entry that it and every node behind it have synced.
    held: u64,
    /// The last entry that the predecessor and every node before it have synced.
    before: u64,
    /// The last such entry reported to the successor, this node included.
    told_on: u64,
    /// When the successor last reported, or was sent something after a pause.
    heard_ns: u64,
    /// Resends without a report since.
    tries: u32,
    /// The last entry reported to the predecessor as held from here on.
    pub(crate) told: u64,
    /// Disk space of the successor and the nodes behind it: the least of all.
    space: DiskSpace,
    /// The disk space last reported to the predecessor.
    pub(crate) told_space: DiskSpace,
    /// Ops that the predecessor sent ahead of their entries.
    early: VecDeque<(OpId, Vec<u8>)>,
}

impl Neighbours {
    /// At the start of an epoch.
    pub(crate) fn new(now: Now, is_entitled: bool) -> Self {
        Self { is_entitled, heard_ns: now.boot_ns, ..Self::default() }
    }

    /// Whether this is a tail that may answer gets.
    pub(crate) fn has_spoken(&self) -> bool {
        self.is_entitled
    }

    pub(crate) fn is_heard(&self) -> bool {
        self.is_heard
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// The last entry that the successor and every node behind it have synced.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// The last entry that the predecessor and every node before it have synced.
    pub(crate) fn before(&self) -> u64 {
        self.before
    }

    /// The predecessor reports the last entry that it and every node before it have synced.
    pub(crate) fn take_before(&mut self, before: u64) {
        self.before = self.before.max(before);
    }

    /// Whether the successor has yet to hear that every node up to this one has synced through
    /// `held`. Notes that it is being told.
    pub(crate) fn take_news(&mut self, held: u64) -> bool {
        let is_news = self.is_heard && held > self.told_on;
        if is_news {
            self.told_on = held;
        }
        is_news
    }

    /// Disk space of the nodes behind this one: the least of all.
    pub(crate) fn space(&self) -> DiskSpace {
        self.space
    }

    /// Entries sent to the successor and not yet logged there.
    pub(crate) fn in_flight(&self) -> u64 {
        self.sent.saturating_sub(self.logged)
    }

    /// The entry is being sent.
    pub(crate) fn note_sent(&mut self, now: Now, index: u64) {
        if self.in_flight() == 0 && self.held >= self.sent {
            self.heard_ns = now.boot_ns;
        }
        self.sent = self.sent.max(index);
    }

    /// The successor reports its progress. If it lacks entries, sending resumes from there.
    pub(crate) fn take_progress(&mut self, now: Now, progress: &Progress) {
        let is_first = !core::mem::replace(&mut self.is_heard, true);
        self.logged = self.logged.max(progress.logged);
        self.held = self.held.max(progress.forced);
        (self.heard_ns, self.tries, self.space) = (now.boot_ns, 0, progress.space);
        if is_first || progress.gap {
            self.sent = self.logged;
        }
        self.sent = self.sent.max(self.logged);
    }

    /// If the successor has been silent for a timeout: how often in a row. Everything that it has
    /// not logged is then sent again.
    pub(crate) fn take_silent(&mut self, now: Now, timeout_ns: u64) -> Option<u32> {
        let patience_ns = timeout_ns << self.tries.min(DOUBLINGS_MAX);
        if now.boot_ns < self.heard_ns + patience_ns {
            return None;
        }
        (self.heard_ns, self.tries) = (now.boot_ns, self.tries + 1);
        self.sent = self.logged;
        Some(self.tries)
    }

    /// Keeps an op that arrived before its entry.
    pub(crate) fn keep_early(&mut self, op: OpId, datagram: &[u8]) {
        self.early.retain(|(known, _)| *known != op);
        if self.early.len() == CHAIN_OPS_EARLY_MAX {
            self.early.pop_front();
        }
        self.early.push_back((op, datagram.into()));
    }

    /// Takes an op that arrived before its entry.
    pub(crate) fn take_early(&mut self, op: OpId) -> Option<Vec<u8>> {
        let place = self.early.iter().position(|(known, _)| *known == op)?;
        self.early.remove(place).map(|(_, datagram)| datagram)
    }
}

mod fingerprint {
    use super::Neighbours;
    use core::hash::{Hash, Hasher};

    impl Neighbours {
        pub(crate) fn fingerprint(&self, state: &mut impl Hasher) {
            (self.is_entitled, self.is_heard, self.sent, self.logged, self.held, self.told).hash(state);
            (self.before, self.told_on, self.space, self.told_space).hash(state);
            self.early.iter().for_each(|(op, _)| op.hash(state));
        }
    }
}
