//! What a node of a chain knows of its predecessor and successor in one epoch, and whether it may
//! answer as the tail.

use crate::modes::bounds::CHAIN_OPS_EARLY_MAX;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nicekv_proto::control::DiskSpace;
use nicekv_proto::replication::Progress;
use nicekv_proto::{Now, OpId};

/// How many times the resend timeout doubles at most.
const DOUBLINGS_MAX: u32 = 3;

#[derive(Clone, Default)]
pub(crate) struct Neighbours {
    /// Whether this node may answer as the tail. It keeps that right if it is the tail of the next
    /// epoch, too (C7).
    pub(crate) is_entitled: bool,
    /// The successor has reported its progress in this epoch.
    is_heard: bool,
    /// The last entry sent to the successor.
    sent: u64,
    /// The last entry that the successor has logged.
    logged: u64,
    /// The last entry that the successor and every node behind it have synced.
    held: u64,
    /// The last entry that the predecessor and every node before it have synced.
    before: u64,
    /// The last entry reported to the successor as synced by every node up to this one.
    told_on: u64,
    /// When the successor last reported, or when an entry was sent to it after all earlier ones had
    /// been acknowledged. Its timeout counts from then.
    heard_ns: u64,
    /// How often entries were resent since the successor's last report.
    tries: u32,
    /// The last entry reported to the predecessor as held from here on.
    pub(crate) told: u64,
    /// The least disk space of the successor and the nodes behind it.
    space: DiskSpace,
    /// The disk space last reported to the predecessor.
    pub(crate) told_space: DiskSpace,
    /// Ops that the predecessor sent ahead of their entries.
    early: VecDeque<(OpId, Vec<u8>)>,
}

impl Neighbours {
    /// State at the start of an epoch.
    pub(crate) fn new(now: Now, is_entitled: bool) -> Self {
        Self { is_entitled, heard_ns: now.boot_ns, ..Self::default() }
    }

    /// Whether this node may answer gets as the tail.
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

    /// Whether the successor has not yet received a report that every node up to this one has
    /// synced up to `held`. If so, the caller sends one now, and that is recorded.
    pub(crate) fn take_news(&mut self, held: u64) -> bool {
        let is_news = self.is_heard && held > self.told_on;
        if is_news {
            self.told_on = held;
        }
        is_news
    }

    /// The least disk space of the nodes behind this one.
    pub(crate) fn space(&self) -> DiskSpace {
        self.space
    }

    /// Number of entries that were sent to the successor and not reported as logged.
    pub(crate) fn in_flight(&self) -> u64 {
        self.sent.saturating_sub(self.logged)
    }

    /// Records that an entry is being sent to the successor.
    pub(crate) fn note_sent(&mut self, now: Now, index: u64) {
        if self.in_flight() == 0 && self.held >= self.sent {
            self.heard_ns = now.boot_ns;
        }
        self.sent = self.sent.max(index);
    }

    /// The successor reports its progress. If it lacks entries, sending resumes after its last one.
    pub(crate) fn take_progress(&mut self, now: Now, progress: &Progress) {
        let is_first = !core::mem::replace(&mut self.is_heard, true);
        self.logged = self.logged.max(progress.logged);
        self.held = self.held.max(progress.synced);
        (self.heard_ns, self.tries, self.space) = (now.boot_ns, 0, progress.space);
        if is_first || progress.gap {
            self.sent = self.logged;
        }
        self.sent = self.sent.max(self.logged);
    }

    /// If the successor has not reported within the timeout: how many timeouts have passed in a
    /// row. Everything that it has not logged is then sent again.
    pub(crate) fn take_silent(&mut self, now: Now, timeout_ns: u64) -> Option<u32> {
        let timeout_ns = timeout_ns << self.tries.min(DOUBLINGS_MAX);
        if now.boot_ns < self.heard_ns + timeout_ns {
            return None;
        }
        (self.heard_ns, self.tries) = (now.boot_ns, self.tries + 1);
        self.sent = self.logged;
        Some(self.tries)
    }

    /// Keeps an op until its entry arrives.
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
