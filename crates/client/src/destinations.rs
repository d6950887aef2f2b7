//! Which parts of a vring answer: requests to a node that has died must not fill the window that the others share.
//!
//! ```text
//!   answers ──▶ heard ◀─────────────── any answer ───────────────┐
//!                 │ a timeout, and no answer since what was sent │
//!                 └──────────────────────▶ silent ───────────────┘
//! ```
//!
//! A client knows nothing of partitions. They are blocks of vnodes, so a 256th of the ring stands for one: a *destination*. To a silent one a few
//! datagrams go, so that its return is noticed, and they do not count as under way; all others wait until it is heard.

use crate::line::Line;
use alloc::vec;
use alloc::vec::Vec;

/// Requests that a silent destination is asked again and again at a time.
pub(crate) const PROBES_MAX: u32 = 8;
const DESTINATIONS: usize = 256;

/// A part of a vring.
#[derive(Clone, Copy, Debug)]
struct Destination {
    heard_ns: u64,
    is_silent: bool,
    /// Requests that were sent and are not finished.
    open: u32,
    /// Requests that wait until it is heard.
    parked: Line,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Destinations(Vec<Destination>);

impl Destinations {
    pub(crate) fn new() -> Self {
        Self(vec![Destination { heard_ns: 0, is_silent: false, open: 0, parked: Line::EMPTY }; DESTINATIONS])
    }

    pub(crate) fn is_silent(&self, destination: u8) -> bool {
        self.0[usize::from(destination)].is_silent
    }

    /// Whether one more request may be sent to a silent one.
    pub(crate) fn takes_probe(&self, destination: u8) -> bool {
        self.0[usize::from(destination)].open < PROBES_MAX
    }

    pub(crate) fn entered(&mut self, destination: u8) {
        self.0[usize::from(destination)].open += 1;
    }

    pub(crate) fn left(&mut self, destination: u8) {
        self.0[usize::from(destination)].open -= 1;
    }

    pub(crate) fn parked(&mut self, destination: u8) -> &mut Line {
        &mut self.0[usize::from(destination)].parked
    }

    /// It answers; whether that is news.
    pub(crate) fn heard(&mut self, destination: u8, now_ns: u64) -> bool {
        let found = &mut self.0[usize::from(destination)];
        found.heard_ns = now_ns;
        core::mem::take(&mut found.is_silent)
    }

    /// What was sent at `sent_ns` is not answered in time: whether it alone is lost.
    pub(crate) fn timed_out(&mut self, destination: u8, sent_ns: u64) -> bool {
        let found = &mut self.0[usize::from(destination)];
        found.is_silent |= found.heard_ns < sent_ns;
        !found.is_silent
    }
}
