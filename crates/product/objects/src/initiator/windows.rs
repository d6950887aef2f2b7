//! Which frames a reader asks a target for, and when again.
//!
//! ```text
//!   ▓▓▓▓▓▓▓▓ ▓▓▓░▓▓▓▓ ░░░░░░░░ ········ ········      ▓ here   ░ asked for   · not yet
//!             a few windows at once: what is asked for has room in a socket, and what was lost is asked for when it has been silent for a while
//! ```

use alloc::vec::Vec;
use nicekv_proto::chunk::READ_FRAMES_MAX;
use nicekv_transport::ChunkSet;

/// Windows that are asked for at once.
const WINDOWS_MAX: usize = 3;
/// Windows are asked for so often.
const TRIES_MAX: u32 = 6;
/// Each time a window is asked for again its patience is doubled, up to so often.
const DOUBLINGS_MAX: u32 = 3;

#[derive(Clone, Copy, Debug)]
struct Window {
    first: u32,
    end: u32,
    again_ns: u64,
    tries: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    count: u32,
    here: ChunkSet,
    next: u32,
    open: Vec<Window>,
    patience_ns: u64,
}

impl Windows {
    /// Of a chunk in so many frames.
    pub(super) fn new(count: u32, patience_ns: u64) -> Self {
        Self { count, here: ChunkSet::default(), next: 0, open: Vec::new(), patience_ns }
    }

    /// A frame has come. Whether it is new.
    pub(super) fn take(&mut self, now_ns: u64, number: u32) -> bool {
        if number >= self.count || !self.here.insert(number) {
            return false;
        }
        let here = &self.here;
        self.open.retain_mut(|window| {
            if (window.first..window.end).contains(&number) {
                // It is coming.
                window.again_ns = now_ns.saturating_add(self.patience_ns);
            }
            (window.first..window.end).any(|number| !here.has(number))
        });
        true
    }

    pub(super) fn is_complete(&self) -> bool {
        self.here.prefix() == self.count
    }

    /// Frames that are to be asked for now: the first, and how many.
    pub(super) fn poll(&mut self, now_ns: u64) -> Option<(u32, u16)> {
        let (here, patience_ns) = (&self.here, self.patience_ns);
        if let Some(window) = self.open.iter_mut().find(|window| window.again_ns <= now_ns) {
            window.tries += 1;
            window.again_ns = now_ns.saturating_add(patience_ns << window.tries.min(DOUBLINGS_MAX));
            // What has come of it needs not come again.
            let mut lacking = (window.first..window.end).filter(|number| !here.has(*number));
            let first = lacking.next()?;
            let last = lacking.next_back().unwrap_or(first);
            return Some((first, (last - first + 1) as u16));
        }
        if self.open.len() >= WINDOWS_MAX || self.next >= self.count {
            return None;
        }
        let (first, end) = (self.next, self.count.min(self.next + u32::from(READ_FRAMES_MAX)));
        self.next = end;
        self.open.push(Window { first, end, again_ns: now_ns.saturating_add(patience_ns), tries: 1 });
        Some((first, (end - first) as u16))
    }

    /// Whether a window was asked for too often.
    pub(super) fn is_in_vain(&self, now_ns: u64) -> bool {
        self.open.iter().any(|window| window.tries >= TRIES_MAX && window.again_ns <= now_ns)
    }

    pub(super) fn next_deadline(&self) -> u64 {
        self.open.iter().map(|window| window.again_ns).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_few_windows_are_open_and_what_is_lost_is_asked_for_again() {
        let mut windows = Windows::new(300, MS);
        let asked: Vec<_> = core::iter::from_fn(|| windows.poll(0)).collect();
        assert_eq!(asked, [(0, 64), (64, 64), (128, 64)]);
        (0..64).for_each(|number| assert!(windows.take(10, number)));
        assert_eq!((windows.poll(10), windows.poll(10)), (Some((192, 64)), None));
        assert!(!windows.take(10, 3) && !windows.take(10, 300));
        (64..256)
            .filter(|number| ![70, 75].contains(number))
            .for_each(|number| assert!(windows.take(20, number)));
        assert_eq!((windows.poll(20), windows.poll(20)), (Some((256, 44)), None));
        assert_eq!(windows.next_deadline(), 20 + MS);
        assert_eq!(windows.poll(20 + MS), Some((70, 6)), "from the first that is lacking to the last");
        (256..300).chain([70, 75]).for_each(|number| assert!(windows.take(30, number)));
        assert!(windows.is_complete());
        assert_eq!((windows.poll(u64::MAX), windows.next_deadline()), (None, u64::MAX));
    }

    #[test]
    fn it_is_in_vain_after_a_few_times() {
        let mut windows = Windows::new(10, MS);
        let mut now_ns = 0;
        let mut asked = 0;
        while !windows.is_in_vain(now_ns) {
            asked += u32::from(windows.poll(now_ns).is_some());
            now_ns = windows.next_deadline();
            assert!(now_ns < 100 * MS);
        }
        assert_eq!(asked, TRIES_MAX);
    }
}
