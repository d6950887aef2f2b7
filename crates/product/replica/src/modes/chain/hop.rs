//! What a node of a chain knows of its neighbours, and whether it may speak as the tail.

use crate::modes::bounds::CHAIN_OPS_EARLY_MAX;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nicekv_proto::control::DiskSpace;
use nicekv_proto::replication::Progress;
use nicekv_proto::{Now, OpId};

/// A timeout doubles at most this often.
const DOUBLINGS_MAX: u32 = 3;

/// See the module. All of it is of one epoch.
#[derive(Clone, Default)]
pub(crate) struct Hop {
    /// As the tail it may speak, and so may those that follow it in the next epoch (C7).
    pub(crate) is_entitled: bool,
    /// The successor has said how far it is.
    is_heard: bool,
    /// The last entry that was sent to it.
    sent: u64,
    /// The last one that it has logged.
    logged: u64,
    /// The last one that it and all behind it have forced.
    held: u64,
    /// The last entry that the predecessor, and all before it, have forced.
    before: u64,
    /// What the successor was told of that, and of this node.
    told_on: u64,
    /// When it was last heard, or sent something after a pause.
    heard_ns: u64,
    /// How often it was sent the same in vain.
    tries: u32,
    /// What the predecessor was told to be held from here on.
    pub(crate) told: u64,
    /// What the successor's disk, and those behind it, have room for.
    space: DiskSpace,
    /// What the predecessor was told of that.
    pub(crate) told_space: DiskSpace,
    /// Ops that the predecessor has sent before their entries.
    early: VecDeque<(OpId, Vec<u8>)>,
}

impl Hop {
    /// Of an epoch that begins.
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

    /// The last entry that the successor and all behind it have forced.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// The last entry that the predecessor, and all before it, have forced.
    pub(crate) fn before(&self) -> u64 {
        self.before
    }

    /// The predecessor says how far it, and all before it, have forced.
    pub(crate) fn take_before(&mut self, before: u64) {
        self.before = self.before.max(before);
    }

    /// Whether the successor is to be told that all up to this node have forced `held`. Then it is told.
    pub(crate) fn take_news(&mut self, held: u64) -> bool {
        let is_news = self.is_heard && held > self.told_on;
        if is_news {
            self.told_on = held;
        }
        is_news
    }

    /// What the disks behind this node have room for: the least of all.
    pub(crate) fn space(&self) -> DiskSpace {
        self.space
    }

    /// How many entries are under way to it.
    pub(crate) fn in_flight(&self) -> u64 {
        self.sent.saturating_sub(self.logged)
    }

    /// This entry is being sent.
    pub(crate) fn note_sent(&mut self, now: Now, index: u64) {
        if self.in_flight() == 0 && self.held >= self.sent {
            self.heard_ns = now.boot_ns;
        }
        self.sent = self.sent.max(index);
    }

    /// The successor says how far it is: entries are to go on from there, if it lacks some.
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

    /// If it has let a timeout pass: how often. Then everything that it has not logged is to be sent again.
    pub(crate) fn take_silent(&mut self, now: Now, timeout_ns: u64) -> Option<u32> {
        let patience_ns = timeout_ns << self.tries.min(DOUBLINGS_MAX);
        if now.boot_ns < self.heard_ns + patience_ns {
            return None;
        }
        (self.heard_ns, self.tries) = (now.boot_ns, self.tries + 1);
        self.sent = self.logged;
        Some(self.tries)
    }

    /// An op has come before its entry.
    pub(crate) fn keep_early(&mut self, op: OpId, datagram: &[u8]) {
        self.early.retain(|(known, _)| *known != op);
        if self.early.len() == CHAIN_OPS_EARLY_MAX {
            self.early.pop_front();
        }
        self.early.push_back((op, datagram.into()));
    }

    /// An op that has come before its entry.
    pub(crate) fn take_early(&mut self, op: OpId) -> Option<Vec<u8>> {
        let place = self.early.iter().position(|(known, _)| *known == op)?;
        self.early.remove(place).map(|(_, datagram)| datagram)
    }
}

mod exploration {
    use super::Hop;
    use core::hash::{Hash, Hasher};

    impl Hop {
        pub(crate) fn fingerprint(&self, state: &mut impl Hasher) {
            (self.is_entitled, self.is_heard, self.sent, self.logged, self.held, self.told).hash(state);
            (self.before, self.told_on, self.space, self.told_space).hash(state);
            self.early.iter().for_each(|(op, _)| op.hash(state));
        }
    }
}
