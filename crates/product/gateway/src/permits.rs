//! The memory of large values: nobody holds any that was not granted.
//!
//! ```text
//!   SET key <64 MiB>   header ─▶ claim ─▶ argument is read ─▶ client ─▶ replicas have it ─▶ freed
//!   GET key            name ───▶ claim ─▶ chunks are read ──▶ reply ──▶ the peer has it ──▶ freed
//! ```
//!
//! A [`Claim`] is what a holder was granted, and is given back when it is dropped. The bytes that it is for are kept together with it ([`Kept`]), whoever needs them,
//! so that one cannot end before the other. Who waits for a claim is not read from; nothing else is refused or closed meanwhile (`line`, `pace`).
//!
//! All threads of a gateway share one line. Its lock is held for a few lines, and taken for arguments and values of more than 4 KiB alone.

use crate::line::{Asked, Grant, Line, Place};
use nicekv_runtime::Waker;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Permits {
    line: Mutex<Line>,
    wakers: Vec<Waker>,
    /// As in `line`, for those that only look.
    held: AtomicUsize,
    waiting: AtomicUsize,
    bytes_max: usize,
    claim_max: usize,
}

/// What becomes of a question.
#[derive(Debug)]
pub(crate) enum Answer {
    Granted(Claim),
    /// It waits by this number.
    Waits(u64),
    TooMuch,
}

impl Permits {
    /// For threads that these wake.
    pub(crate) fn new(bytes_max: usize, wakers: Vec<Waker>) -> Self {
        let line = Line::new(bytes_max, wakers.len());
        Self { bytes_max, claim_max: line.claim_max(), line: Mutex::new(line), wakers, ..Self::default() }
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// What one command or reply may take.
    pub(crate) fn claim_max(&self) -> usize {
        self.claim_max
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Line) -> T) -> T {
        // Whatever panicked, it was not the line.
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut line);
        self.held.store(line.held(), Ordering::Relaxed);
        self.waiting.store(line.waiting(), Ordering::Relaxed);
        line.granted_to().for_each(|thread| self.wakers[thread].wake());
        result
    }

    fn claim(self: &Arc<Self>, bytes: usize, dependent: usize) -> Claim {
        Claim { permits: self.clone(), bytes, dependent }
    }

    /// For a plain claim (see `line`); if it is not granted now, `thread` is woken when it is.
    pub(crate) fn ask(self: &Arc<Self>, bytes: usize, place: Place, thread: usize) -> Answer {
        match self.with(|line| line.ask(bytes, place, thread)) {
            Asked::Granted => Answer::Granted(self.claim(bytes, 0)),
            Asked::Waits(number) => Answer::Waits(number),
            Asked::TooMuch => Answer::TooMuch,
        }
    }

    /// For a plain claim, if there is room now.
    pub(crate) fn ask_now(self: &Arc<Self>, bytes: usize) -> Option<Claim> {
        self.with(|line| line.ask_now(bytes)).then(|| self.claim(bytes, 0))
    }

    /// For a dependent one.
    pub(crate) fn ask_dependent(self: &Arc<Self>, bytes: usize) -> Option<Claim> {
        self.with(|line| line.ask_dependent(bytes)).then(|| self.claim(bytes, bytes))
    }

    pub(crate) fn withdraw(&self, number: u64) {
        self.with(|line| line.withdraw(number));
    }

    /// What was granted to those of this thread that waited, by their numbers.
    pub(crate) fn take_granted(self: &Arc<Self>, thread: usize) -> Vec<(u64, Claim)> {
        let granted = self.with(|line| line.take_granted(thread));
        granted.into_iter().map(|Grant { number, bytes }| (number, self.claim(bytes, 0))).collect()
    }
}

/// Bytes that may be held.
#[derive(Debug)]
pub(crate) struct Claim {
    permits: Arc<Permits>,
    bytes: usize,
    /// Of these, those that are dependent.
    dependent: usize,
}

impl Claim {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a part of so many bytes away.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        assert!(bytes <= self.bytes, "{bytes} of {}", self.bytes);
        let dependent = self.dependent.min(bytes);
        (self.bytes, self.dependent) = (self.bytes - bytes, self.dependent - dependent);
        self.permits.claim(bytes, dependent)
    }

    /// Adds another one to it.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
        self.dependent += std::mem::take(&mut other.dependent);
    }

    /// Gives back what is above so many bytes.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if bytes < self.bytes {
            let kept = self.split(bytes);
            *self = kept;
        }
    }

    /// Whether all of it is dependent now: there may be only so much of that.
    pub(crate) fn make_dependent(&mut self) -> bool {
        let plain = self.bytes - self.dependent;
        let is_made = self.permits.with(|line| line.make_dependent(plain));
        self.dependent += if is_made { plain } else { 0 };
        is_made
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.permits.with(|line| line.give_back(self.bytes, self.dependent));
        }
    }
}

/// A large value, and the claim that it is held by. The bytes go first.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) bytes: Vec<u8>,
    /// Given back with them.
    _claim: Claim,
}

impl Kept {
    pub(crate) fn new(bytes: Vec<u8>, claim: Claim) -> Self {
        Self { bytes, _claim: claim }
    }

    /// Where a part of these bytes is in them; `None` if it is none.
    pub(crate) fn place_of(&self, part: &[u8]) -> Option<Range<usize>> {
        let start = part.as_ptr().addr().checked_sub(self.bytes.as_ptr().addr())?;
        let end = start.checked_add(part.len()).filter(|end| *end <= self.bytes.len())?;
        Some(start..end)
    }
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits() -> Arc<Permits> {
        Arc::new(Permits::new(100, vec![Waker::new().unwrap(), Waker::new().unwrap()]))
    }

    #[test]
    fn a_claim_is_given_back_however_it_was_divided() {
        let permits = permits();
        let mut claim = permits.ask_now(50).unwrap();
        let part = claim.split(20);
        assert_eq!((claim.bytes(), part.bytes(), permits.held()), (30, 20, 50));
        claim.shrink_to(10);
        claim.shrink_to(40);
        assert_eq!((claim.bytes(), permits.held()), (10, 30));
        claim.join(part);
        assert_eq!((claim.bytes(), permits.held()), (30, 30));
        assert!(claim.make_dependent());
        claim.shrink_to(29);
        assert!(permits.ask_dependent(22).is_none(), "29 and 22 are more than 50");
        let other = permits.ask_dependent(21).unwrap();
        drop((claim, other));
        assert!(permits.ask_dependent(50).is_some());
        assert_eq!(permits.held(), 0);
    }

    #[test]
    fn who_waits_is_woken_on_its_thread_when_others_end() {
        let permits = permits();
        let held = (permits.ask_now(50), permits.ask_now(50));
        let Answer::Waits(number) = permits.ask(40, Place::Last, 1) else { panic!("there is no room") };
        assert_eq!((permits.waiting(), permits.wakers[1].is_raised()), (1, false));
        drop(held.0);
        assert!(permits.wakers[1].is_raised() && !permits.wakers[0].is_raised());
        let granted = permits.take_granted(1);
        assert_eq!((granted[0].0, granted[0].1.bytes(), permits.held()), (number, 40, 90));
        assert!(matches!(permits.ask(51, Place::Last, 0), Answer::TooMuch));
        drop((granted, held.1));
        assert_eq!(permits.held(), 0);
    }

    #[test]
    fn a_part_is_found_in_what_is_kept() {
        let kept = Kept::new(b"0123456789".to_vec(), permits().ask_now(10).unwrap());
        assert_eq!(kept.place_of(&kept.bytes[3..7]), Some(3..7));
        assert_eq!(kept.place_of(&kept.bytes), Some(0..10));
        assert_eq!(kept.place_of(&[1; 3]), None);
    }
}
