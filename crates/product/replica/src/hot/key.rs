//! One hot key, at its owner.
//!
//! ```text
//!            HotClosed, a stamp                unlocked, shown
//!   assigned ────────────────▶ number known ──────────────────▶ open (i, n): copies may be shown
//!    ▲                              ▲                                  │ another op of the key is to be decided
//!    └── HotAssign                  │   a number of i above n, or i is gone, or the leases are over
//!                                   └──────────────────────────────────┘
//! ```

use super::bounds::{Name, REFRESH_DOUBLINGS_MAX, REFRESH_NS};
use alloc::boxed::Box;
use nicekv_proto::Now;
use nicekv_proto::hot::Stamp;

/// Between two copies of a key: one that changes faster gains nothing from more.
const COPY_NS: u64 = 500_000;
/// A switch is asked again after this for evidence that an op waits for; for other evidence with
/// backoff.
const ASK_NS: u64 = 1_000_000;
const DOUBLINGS_MAX: u32 = 8;
/// After this many questions for an op all copies are revoked …
const ASKS_MAX: u32 = 4;
/// … and after this many, a second later, if only newer copies wait: the others have to be made
/// again.
const PATIENT_ASKS_MAX: u32 = 10;
/// Between two looks at a key that may have no copies by this node.
const IDLE_NS: u64 = 10_000_000;
/// Between two looks at a key without news.
const LOOK_NS: u64 = 100_000;

/// Copies that may be shown.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// The label of the newest copy.
    label: Stamp,
    /// After this time none is shown, whatever the switch counts. `None`: their leases may be
    /// renewed.
    until_ns: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct HotKey {
    pub(super) name: Name,
    /// What the switch has counted of the newest instance, at least; `seen` is 0 if unknown.
    counted: Stamp,
    open: Option<Open>,
    /// The shown entry, if it is known and may have copies.
    entry: Option<Box<[u8]>>,
    is_locked: bool,
    /// Copies have to be made.
    is_due: bool,
    copied_ns: u64,
    /// Renewals since the copies were first made or last wanted.
    repeats: u32,
    /// When the switch was asked last, and how often without an answer.
    asked_ns: u64,
    asks: u32,
    /// An op waits for evidence.
    is_awaited: bool,
    /// When to look at it next.
    pub(super) look_ns: u64,
}

/// The next actions for a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    /// Send copies with this label.
    pub(super) copy: Option<Stamp>,
    /// Ask the switch what it counts, and to count beyond this.
    pub(super) ask: Option<Stamp>,
    /// There is no evidence: revoke its copies.
    pub(super) takes_back: bool,
    /// Nothing depends on it any more.
    pub(super) is_over: bool,
}

impl HotKey {
    pub(super) fn new(name: Name, instance: u64) -> Self {
        Self {
            name,
            counted: Stamp { instance, seen: 0 },
            open: None,
            entry: None,
            is_locked: false,
            is_due: true,
            copied_ns: 0,
            repeats: 0,
            asked_ns: 0,
            asks: 0,
            is_awaited: false,
            look_ns: 0,
        }
    }

    /// Copies have to be made, of this instance if it is newer.
    pub(super) fn renew(&mut self, instance: u64) {
        if self.counted.instance < instance {
            (self.counted, self.asks) = (Stamp { instance, seen: 0 }, 0);
        }
        (self.is_due, self.repeats) = (true, 0);
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether leases of its copies may be renewed without a known end.
    pub(super) fn is_renewed(&self) -> bool {
        self.open.is_some_and(|open| open.until_ns.is_none())
    }

    /// No holder of revoked copies shows them any more.
    pub(super) fn end(&mut self) {
        self.open = self.open.filter(|open| open.until_ns.is_none());
    }

    /// A switch stamps with this, or a greater number, from now on. A newer instance replaces
    /// earlier ones for ever (H1).
    pub(super) fn note(&mut self, stamp: Stamp) {
        if self.counted.instance == stamp.instance {
            self.counted = self.counted.max(stamp);
        }
        self.open = self.open.filter(|open| open.label >= stamp);
    }

    /// The same for one instance; at the greatest number it is gone.
    pub(super) fn closed(&mut self, stamp: Stamp) {
        if self.counted.instance == stamp.instance && stamp.seen < u64::MAX {
            // Copies with an older label are shown no more, and others may have been lost.
            (self.counted, self.asks, self.is_due) = (self.counted.max(stamp), 0, true);
        }
        let is_of = |open: &Open| open.label.instance == stamp.instance && open.label < stamp;
        self.open = self.open.filter(|open| !is_of(open));
    }

    /// The leases have ended.
    pub(super) fn lapse(&mut self, now: Now) {
        let is_over = |open: &Open| open.until_ns.is_some_and(|until_ns| until_ns <= now.boot_ns);
        self.open = self.open.filter(|open| !is_over(open));
    }

    /// Revokes the copies: no lease is longer than this, and none is renewed. New copies are made.
    pub(super) fn take_back(&mut self, until_ns: u64) {
        if let Some(open) = &mut self.open {
            open.until_ns.get_or_insert(until_ns);
            self.is_due = true;
        }
    }

    /// An op waits. Whether none did before.
    pub(super) fn await_evidence(&mut self) -> bool {
        if self.is_awaited {
            return false;
        }
        (self.is_awaited, self.asks, self.asked_ns) = (true, 0, 0);
        true
    }

    /// Whether an op has waited, and need not any longer.
    pub(super) fn take_awaited(&mut self) -> bool {
        !self.is_open() && core::mem::take(&mut self.is_awaited)
    }

    pub(super) fn lock(&mut self) {
        self.is_locked = true;
    }

    pub(super) fn unlock(&mut self) {
        (self.is_locked, self.is_due) = (false, true);
    }

    /// Sets the shown entry, unless it may have no copies.
    pub(super) fn set_entry(&mut self, entry: Option<Box<[u8]>>) {
        if self.entry != entry {
            (self.entry, self.is_due) = (entry, true);
        }
    }

    pub(super) fn entry(&self) -> Option<&[u8]> {
        self.entry.as_deref()
    }

    /// The next actions. `wanted`: the instance that copies are wanted of; `may_copy`: whether this
    /// node may let others show them.
    pub(super) fn step(&mut self, now: Now, wanted: Option<u64>, may_copy: bool) -> Step {
        self.lapse(now);
        let copy = wanted.filter(|_| may_copy).and_then(|instance| self.copy(now, instance));
        let ask = self.ask(now, wanted, may_copy);
        let asks_max = if self.is_awaited { ASKS_MAX } else { PATIENT_ASKS_MAX };
        let in_vain = (self.is_awaited || self.is_stray(wanted)) && self.asks > asks_max;
        let takes_back = self.is_renewed() && (in_vain || !may_copy);
        Step { copy, ask, takes_back, is_over: wanted.is_none() && !self.is_open() && !self.is_awaited }
    }

    /// Whether copies may be shown that are no longer wanted. The switch is asked to close them;
    /// otherwise all would be revoked with them.
    fn is_stray(&self, wanted: Option<u64>) -> bool {
        self.open.is_some_and(|open| wanted.is_none() || open.label.instance != self.counted.instance)
    }

    fn may_have_copies(&self, wanted: Option<u64>, may_copy: bool) -> bool {
        wanted.is_some() && may_copy && self.entry.is_some()
    }

    fn copy(&mut self, now: Now, instance: u64) -> Option<Stamp> {
        let is_counted = self.counted.instance == instance && self.counted.seen > 0;
        // Copies of an older instance are closed first.
        let is_free = self.open.is_none_or(|open| open.label.instance == instance);
        let is_shown = self.entry.is_some() && !self.is_locked && !self.is_awaited;
        if !(self.is_due && is_counted && is_free && is_shown && now.boot_ns >= self.copied_ns + COPY_NS) {
            return None;
        }
        let is_same = self.open.is_some_and(|open| open.label == self.counted && open.until_ns.is_none());
        self.repeats = if is_same { self.repeats.saturating_add(1) } else { 0 };
        (self.is_due, self.copied_ns) = (false, now.boot_ns);
        self.open = Some(Open { label: self.counted, until_ns: None });
        Some(self.counted)
    }

    /// What to ask the switch: about copies that are in the way, an unknown number, or one that has
    /// not changed for long.
    fn ask(&mut self, now: Now, wanted: Option<u64>, may_copy: bool) -> Option<Stamp> {
        let Stamp { instance, seen } = self.counted;
        let is_in_the_way = self.is_awaited || self.is_stray(wanted);
        let in_the_way = self.open.filter(|_| is_in_the_way).map(|open| open.label);
        let may_have = self.may_have_copies(wanted, may_copy);
        // If the number is unknown, so are the copies: they are closed, whatever it is.
        let is_unknown = may_have && seen == 0;
        let is_stale = may_have && !self.is_due && now.boot_ns >= self.stale_ns();
        let least = if is_unknown { Some(u64::MAX) } else { is_stale.then_some(0) };
        let asked = in_the_way.or(least.map(|seen| Stamp { instance, seen }))?;
        if now.boot_ns < self.ask_ns() {
            return None;
        }
        (self.asked_ns, self.asks) = (now.boot_ns, self.asks.saturating_add(1));
        Some(asked)
    }

    fn stale_ns(&self) -> u64 {
        self.copied_ns + (REFRESH_NS << self.repeats.min(REFRESH_DOUBLINGS_MAX))
    }

    fn ask_ns(&self) -> u64 {
        let doublings = if self.is_awaited { 0 } else { self.asks.min(DOUBLINGS_MAX) };
        if self.asked_ns == 0 { 0 } else { self.asked_ns + (ASK_NS << doublings) }
    }

    /// When to look again without news.
    pub(super) fn next_ns(&self, now: Now, wanted: Option<u64>, may_copy: bool) -> u64 {
        let is_stray = self.is_stray(wanted);
        let is_counted = self.counted.seen > 0;
        let may_have = self.may_have_copies(wanted, may_copy);
        let may_be_due = self.is_due && is_counted && !is_stray && !self.is_locked && !self.is_awaited;
        let times = [
            self.open.and_then(|open| open.until_ns),
            (self.is_awaited || is_stray || (may_have && !is_counted)).then(|| self.ask_ns()),
            (may_have && may_be_due).then_some(self.copied_ns + COPY_NS),
            (may_have && is_counted && !self.is_due).then(|| self.ask_ns().max(self.stale_ns())),
            // There is no news when it may.
            (!may_copy && wanted.is_some()).then_some(now.boot_ns + IDLE_NS),
        ];
        let next_ns = times.into_iter().flatten().min().unwrap_or(u64::MAX);
        next_ns.max(now.boot_ns + LOOK_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::{KeyDigest, KeyspaceId};

    const MS: u64 = 1_000_000;
    const INSTANCE: u64 = 4;

    fn at(after_ms: u64) -> Now {
        Now { boot_ns: 1_000 * MS + after_ms * MS, unix_ms: 0 }
    }

    fn seen(seen: u64) -> Stamp {
        Stamp { instance: INSTANCE, seen }
    }

    fn step(hot: &mut HotKey, after_ms: u64) -> (Option<Stamp>, Option<Stamp>) {
        let Step { copy, ask, .. } = hot.step(at(after_ms), Some(INSTANCE), true);
        (copy, ask)
    }

    /// With copies of label 7, made at 2 ms.
    fn open() -> HotKey {
        let mut hot = HotKey::new((KeyspaceId(1), KeyDigest([7; 16])), INSTANCE);
        hot.set_entry(Some([1].into()));
        assert_eq!(step(&mut hot, 0), (None, Some(seen(u64::MAX))), "nothing is known");
        hot.closed(seen(7));
        assert_eq!(step(&mut hot, 2), (Some(seen(7)), None));
        hot
    }

    #[test]
    fn copies_are_renewed_once_the_switch_reports_its_count() {
        let mut hot = open();
        assert_eq!(step(&mut hot, 1001), (None, None));
        assert_eq!(step(&mut hot, 1002), (None, Some(seen(0))), "which shuts nobody out");
        assert_eq!(step(&mut hot, 1003), (None, None), "nothing is made for a number that may be old");
        assert_eq!(step(&mut hot, 1004), (None, Some(seen(0))), "it may have been lost");
        hot.closed(seen(7));
        assert!(hot.is_open(), "what is there stays in force");
        assert_eq!(step(&mut hot, 1200), (Some(seen(7)), None));
        hot.closed(seen(9));
        assert!(!hot.is_open());
        assert_eq!(step(&mut hot, 1201), (Some(seen(9)), None), "by an answer that comes late");
    }

    #[test]
    fn unchanged_copies_are_renewed_with_backoff() {
        let mut hot = open();
        let mut copied_ms = 2;
        for after_ms in [1000, 2000, 4000, 8000, 16_000, 16_000] {
            let look_ns = hot.next_ns(at(copied_ms), Some(INSTANCE), true);
            assert_eq!(look_ns, at(copied_ms + after_ms).boot_ns);
            copied_ms += after_ms;
            assert_eq!(step(&mut hot, copied_ms), (None, Some(seen(0))));
            hot.closed(seen(7));
            assert_eq!(step(&mut hot, copied_ms), (Some(seen(7)), None));
        }
        hot.renew(INSTANCE);
        assert_eq!(step(&mut hot, copied_ms + 1), (Some(seen(7)), None), "somebody else is to have one");
        hot.closed(seen(8));
        assert_eq!(step(&mut hot, copied_ms + 2), (Some(seen(8)), None));
        assert_eq!(hot.next_ns(at(copied_ms + 2), Some(INSTANCE), true), at(copied_ms + 1002).boot_ns);
    }

    #[test]
    fn switch_is_asked_beyond_the_label_and_copies_follow_the_op() {
        let mut hot = open();
        hot.lock();
        assert!(hot.await_evidence());
        assert_eq!(step(&mut hot, 3), (None, Some(seen(7))));
        assert_eq!(step(&mut hot, 5), (None, Some(seen(7))));
        hot.closed(seen(7));
        assert!(!hot.take_awaited(), "as much was counted before");
        hot.closed(seen(8));
        assert!(hot.take_awaited());
        assert_eq!(step(&mut hot, 6), (None, None), "the op locks the key");
        hot.set_entry(Some([2].into()));
        hot.unlock();
        assert_eq!(step(&mut hot, 7), (Some(seen(8)), None));
    }
}
