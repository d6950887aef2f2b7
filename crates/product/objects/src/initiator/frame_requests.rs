//! Which frames a get requests from a target, and when it requests them again.
//!
//! ```text
//!   ▓▓▓▓▓▓▓▓ ▓▓▓░▓▓▓▓ ░░░░░░░░ ········ ········      ▓ here   ░ requested   · not yet
//!             a few ranges at once, so that the answers fit into a socket buffer; lost frames are requested again after
//!             a timeout
//! ```

use alloc::vec::Vec;
use nicekv_proto::chunk::READ_FRAMES_MAX;
use nicekv_transport::ChunkSet;

/// Maximum number of ranges that are requested at once.
const RANGES_MAX: usize = 3;
/// Maximum number of requests for one range.
const TRIES_MAX: u32 = 6;
/// The timeout of a range doubles with each request, this many times at most.
const DOUBLINGS_MAX: u32 = 3;

#[derive(Clone, Copy, Debug)]
struct Range {
    first: u32,
    end: u32,
    again_ns: u64,
    tries: u32,
}

/// The frames of one chunk that a get requests from one target.
#[derive(Clone, Debug)]
pub(super) struct FrameRequests {
    count: u32,
    here: ChunkSet,
    next: u32,
    open: Vec<Range>,
    timeout_ns: u64,
}

impl FrameRequests {
    /// A chunk of `count` frames.
    pub(super) fn new(count: u32, timeout_ns: u64) -> Self {
        Self { count, here: ChunkSet::default(), next: 0, open: Vec::new(), timeout_ns }
    }

    /// Notes that a frame arrived. Returns whether it is new.
    pub(super) fn take(&mut self, now_ns: u64, number: u32) -> bool {
        if number >= self.count || !self.here.insert(number) {
            return false;
        }
        let here = &self.here;
        self.open.retain_mut(|range| {
            if (range.first..range.end).contains(&number) {
                // The range is arriving, so it is not requested again soon.
                range.again_ns = now_ns.saturating_add(self.timeout_ns);
            }
            (range.first..range.end).any(|number| !here.has(number))
        });
        true
    }

    pub(super) fn is_complete(&self) -> bool {
        self.here.prefix() == self.count
    }

    /// The next frames to request: the number of the first, and how many.
    pub(super) fn poll(&mut self, now_ns: u64) -> Option<(u32, u16)> {
        let (here, timeout_ns) = (&self.here, self.timeout_ns);
        if let Some(range) = self.open.iter_mut().find(|range| range.again_ns <= now_ns) {
            range.tries += 1;
            range.again_ns = now_ns.saturating_add(timeout_ns << range.tries.min(DOUBLINGS_MAX));
            // From the first missing frame to the last.
            let mut lacking = (range.first..range.end).filter(|number| !here.has(*number));
            let first = lacking.next()?;
            let last = lacking.next_back().unwrap_or(first);
            return Some((first, (last - first + 1) as u16));
        }
        if self.open.len() >= RANGES_MAX || self.next >= self.count {
            return None;
        }
        let (first, end) = (self.next, self.count.min(self.next + u32::from(READ_FRAMES_MAX)));
        self.next = end;
        self.open.push(Range { first, end, again_ns: now_ns.saturating_add(timeout_ns), tries: 1 });
        Some((first, (end - first) as u16))
    }

    /// Whether a range was requested too often without success.
    pub(super) fn has_failed(&self, now_ns: u64) -> bool {
        self.open.iter().any(|range| range.tries >= TRIES_MAX && range.again_ns <= now_ns)
    }

    pub(super) fn next_deadline(&self) -> u64 {
        self.open.iter().map(|range| range.again_ns).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn few_ranges_are_open_and_lost_frames_are_requested_again() {
        let mut requests = FrameRequests::new(300, MS);
        let asked: Vec<_> = core::iter::from_fn(|| requests.poll(0)).collect();
        assert_eq!(asked, [(0, 64), (64, 64), (128, 64)]);
        (0..64).for_each(|number| assert!(requests.take(10, number)));
        assert_eq!((requests.poll(10), requests.poll(10)), (Some((192, 64)), None));
        assert!(!requests.take(10, 3) && !requests.take(10, 300));
        (64..256)
            .filter(|number| ![70, 75].contains(number))
            .for_each(|number| assert!(requests.take(20, number)));
        assert_eq!((requests.poll(20), requests.poll(20)), (Some((256, 44)), None));
        assert_eq!(requests.next_deadline(), 20 + MS);
        assert_eq!(requests.poll(20 + MS), Some((70, 6)), "from the first missing frame to the last");
        (256..300).chain([70, 75]).for_each(|number| assert!(requests.take(30, number)));
        assert!(requests.is_complete());
        assert_eq!((requests.poll(u64::MAX), requests.next_deadline()), (None, u64::MAX));
    }

    #[test]
    fn range_fails_after_a_few_requests() {
        let mut requests = FrameRequests::new(10, MS);
        let mut now_ns = 0;
        let mut asked = 0;
        while !requests.has_failed(now_ns) {
            asked += u32::from(requests.poll(now_ns).is_some());
            now_ns = requests.next_deadline();
            assert!(now_ns < 100 * MS);
        }
        assert_eq!(asked, TRIES_MAX);
    }
}
