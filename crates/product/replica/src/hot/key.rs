//! The state machine of one hot key at its owner. Label (i, n): instance i of the hot entry, number
//! n.
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

/// Shortest time between two copies of a key. A key that changes faster gains nothing from more
/// copies.
const COPY_NS: u64 = 500_000;
/// Interval at which the owner asks the switch again for evidence (H4) that an op waits for. For
/// other questions the interval doubles with each one.
const ASK_NS: u64 = 1_000_000;
const DOUBLINGS_MAX: u32 = 8;
/// After this many unanswered questions on behalf of a waiting op the owner revokes all copies.
const ASKS_MAX: u32 = 4;
/// The same bound if no op waits and the question only holds up newer copies. It is reached after
/// about a second; the owner is patient here because revoking affects the copies of all keys.
const PATIENT_ASKS_MAX: u32 = 10;
/// How often the owner checks a key for which it may not send copies at present.
const IDLE_NS: u64 = 10_000_000;
/// Shortest time between two checks of a key for which no event has arrived.
const LOOK_NS: u64 = 100_000;

/// Copies that holders may be showing.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// The label of the newest copy.
    label: Stamp,
    /// When the last lease of these copies ends, whatever the switch counts. `None`: not revoked,
    /// so leases may still be renewed.
    until_ns: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct HotKey {
    pub(super) name: Name,
    /// The greatest count of the newest instance that the switch is known to have reached; `seen`
    /// is 0 if no count is known.
    counted: Stamp,
    open: Option<Open>,
    /// The key's shown entry, if it is known and may have copies.
    entry: Option<Box<[u8]>>,
    is_locked: bool,
    /// New copies have to be sent.
    is_due: bool,
    copied_ns: u64,
    /// How often the copies were renewed unchanged since they were first sent or newly assigned.
    repeats: u32,
    /// When the owner last asked the switch, and how many questions are unanswered.
    asked_ns: u64,
    asks: u32,
    /// Whether an op waits for evidence (H4).
    is_awaited: bool,
    /// When the owner has to check this key next.
    pub(super) look_ns: u64,
}

/// The owner's next action for a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    /// Send copies with this label.
    pub(super) copy: Option<Stamp>,
    /// Send the switch a `HotClose` with this stamp: it reports its count, and first counts one
    /// more unless it is above the stamp already.
    pub(super) ask: Option<Stamp>,
    /// The switch has not answered: revoke the copies.
    pub(super) takes_back: bool,
    /// The key's state can be dropped: no copies are wanted, none may be shown, and no op waits.
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

    /// New copies are wanted; of this instance, if it is newer than the known one.
    pub(super) fn renew(&mut self, instance: u64) {
        if self.counted.instance < instance {
            (self.counted, self.asks) = (Stamp { instance, seen: 0 }, 0);
        }
        (self.is_due, self.repeats) = (true, 0);
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether there are copies that are not revoked, so that their leases may be renewed.
    pub(super) fn is_renewed(&self) -> bool {
        self.open.is_some_and(|open| open.until_ns.is_none())
    }

    /// All holders have confirmed the revocation: revoked copies are shown nowhere any more.
    pub(super) fn end(&mut self) {
        self.open = self.open.filter(|open| open.until_ns.is_none());
    }

    /// An update carried this stamp, so from now on the switch stamps with this number or a greater
    /// one. A newer instance replaces all earlier ones for good (H1).
    pub(super) fn note(&mut self, stamp: Stamp) {
        if self.counted.instance == stamp.instance {
            self.counted = self.counted.max(stamp);
        }
        self.open = self.open.filter(|open| open.label >= stamp);
    }

    /// The switch reports its count of one instance by `HotClosed`. The greatest possible number
    /// means that the instance is gone.
    pub(super) fn closed(&mut self, stamp: Stamp) {
        if self.counted.instance == stamp.instance && stamp.seen < u64::MAX {
            // Copies with an older label are not shown any more, and newer ones may have been lost.
            (self.counted, self.asks, self.is_due) = (self.counted.max(stamp), 0, true);
        }
        let is_of = |open: &Open| open.label.instance == stamp.instance && open.label < stamp;
        self.open = self.open.filter(|open| !is_of(open));
    }

    /// Forgets copies whose leases have ended.
    pub(super) fn lapse(&mut self, now: Now) {
        let is_over = |open: &Open| open.until_ns.is_some_and(|until_ns| until_ns <= now.boot_ns);
        self.open = self.open.filter(|open| !is_over(open));
    }

    /// Revokes the copies: their leases are not renewed, and the last one ends at `until_ns`. New
    /// copies are due.
    pub(super) fn take_back(&mut self, until_ns: u64) {
        if let Some(open) = &mut self.open {
            open.until_ns.get_or_insert(until_ns);
            self.is_due = true;
        }
    }

    /// An op starts to wait for evidence. Returns whether it is the first that waits.
    pub(super) fn await_evidence(&mut self) -> bool {
        if self.is_awaited {
            return false;
        }
        (self.is_awaited, self.asks, self.asked_ns) = (true, 0, 0);
        true
    }

    /// Returns true once when an op has waited and may be decided now.
    pub(super) fn take_awaited(&mut self) -> bool {
        !self.is_open() && core::mem::take(&mut self.is_awaited)
    }

    pub(super) fn lock(&mut self) {
        self.is_locked = true;
    }

    pub(super) fn unlock(&mut self) {
        (self.is_locked, self.is_due) = (false, true);
    }

    /// Sets the shown entry. `None`: it is unknown or may not have copies.
    pub(super) fn set_entry(&mut self, entry: Option<Box<[u8]>>) {
        if self.entry != entry {
            (self.entry, self.is_due) = (entry, true);
        }
    }

    pub(super) fn entry(&self) -> Option<&[u8]> {
        self.entry.as_deref()
    }

    /// The next actions. `wanted`: the instance for which copies are assigned; `may_copy`: whether
    /// this node's own lease allows it to grant leases for copies.
    pub(super) fn step(&mut self, now: Now, wanted: Option<u64>, may_copy: bool) -> Step {
        self.lapse(now);
        let copy = wanted.filter(|_| may_copy).and_then(|instance| self.copy(now, instance));
        let ask = self.ask(now, wanted, may_copy);
        let asks_max = if self.is_awaited { ASKS_MAX } else { PATIENT_ASKS_MAX };
        let in_vain = (self.is_awaited || self.is_stray(wanted)) && self.asks > asks_max;
        let takes_back = self.is_renewed() && (in_vain || !may_copy);
        Step { copy, ask, takes_back, is_over: wanted.is_none() && !self.is_open() && !self.is_awaited }
    }

    /// Whether copies that are no longer wanted may still be shown. The owner asks the switch to
    /// close them, because revoking would hit the copies of all other keys, too.
    fn is_stray(&self, wanted: Option<u64>) -> bool {
        self.open.is_some_and(|open| wanted.is_none() || open.label.instance != self.counted.instance)
    }

    fn may_have_copies(&self, wanted: Option<u64>, may_copy: bool) -> bool {
        wanted.is_some() && may_copy && self.entry.is_some()
    }

    fn copy(&mut self, now: Now, instance: u64) -> Option<Stamp> {
        let is_counted = self.counted.instance == instance && self.counted.seen > 0;
        // Copies of an older instance have to be closed first.
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

    /// The question for the switch, if one is due: to close copies that block an op or newer
    /// copies, to learn an unknown count, or to refresh a count that is old.
    fn ask(&mut self, now: Now, wanted: Option<u64>, may_copy: bool) -> Option<Stamp> {
        let Stamp { instance, seen } = self.counted;
        let is_in_the_way = self.is_awaited || self.is_stray(wanted);
        let in_the_way = self.open.filter(|_| is_in_the_way).map(|open| open.label);
        let may_have = self.may_have_copies(wanted, may_copy);
        // With an unknown count, the labels of existing copies are unknown, too: close them all.
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

    /// When to check this key again if no event arrives.
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
            // No event announces that copies are allowed again, so check periodically.
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

    /// A key with copies labelled 7, sent at 2 ms.
    fn open() -> HotKey {
        let mut hot = HotKey::new((KeyspaceId(1), KeyDigest([7; 16])), INSTANCE);
        hot.set_entry(Some([1].into()));
        assert_eq!(step(&mut hot, 0), (None, Some(seen(u64::MAX))), "the count is unknown: the owner asks");
        hot.closed(seen(7));
        assert_eq!(step(&mut hot, 2), (Some(seen(7)), None));
        hot
    }

    #[test]
    fn copies_are_renewed_once_the_switch_reports_its_count() {
        let mut hot = open();
        assert_eq!(step(&mut hot, 1001), (None, None));
        assert_eq!(step(&mut hot, 1002), (None, Some(seen(0))), "a question with 0 closes no copies");
        assert_eq!(step(&mut hot, 1003), (None, None), "no copies with a count that may be old");
        assert_eq!(
            step(&mut hot, 1004),
            (None, Some(seen(0))),
            "asked again: the question may have been lost"
        );
        hot.closed(seen(7));
        assert!(hot.is_open(), "current copies stay valid");
        assert_eq!(step(&mut hot, 1200), (Some(seen(7)), None));
        hot.closed(seen(9));
        assert!(!hot.is_open());
        assert_eq!(step(&mut hot, 1201), (Some(seen(9)), None), "a late answer leads to new copies, too");
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
        assert_eq!(step(&mut hot, copied_ms + 1), (Some(seen(7)), None), "another holder was assigned");
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
        assert!(!hot.take_awaited(), "the count has not risen above the label");
        hot.closed(seen(8));
        assert!(hot.take_awaited());
        assert_eq!(step(&mut hot, 6), (None, None), "no copies while the op locks the key");
        hot.set_entry(Some([2].into()));
        hot.unlock();
        assert_eq!(step(&mut hot, 7), (Some(seen(8)), None));
    }
}
