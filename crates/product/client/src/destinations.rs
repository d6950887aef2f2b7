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
//!
//! One that answers, but later than others, has times of its own. If it was asked again as soon as they are, each answer would be given many times, and what comes of a queue that was
//! long once is a queue that stays so.

use crate::line::Line;
use crate::round_trip::RoundTrip;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Requests that a silent destination is asked again and again at a time.
pub(crate) const PROBES_MAX: u32 = 8;
const DESTINATIONS: usize = 256;

/// A part of a vring.
#[derive(Clone, Debug)]
struct Destination {
    heard_ns: u64,
    is_silent: bool,
    /// Requests that were sent and are not finished.
    open: u32,
    /// Requests that wait until it is heard.
    parked: Line,
    /// Its own times, since something was not answered in the time of all, until it is as fast as they are.
    slow: Option<Box<RoundTrip>>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Destinations(Vec<Destination>);

impl Destinations {
    pub(crate) fn new() -> Self {
        let unknown = Destination { heard_ns: 0, is_silent: false, open: 0, parked: Line::EMPTY, slow: None };
        Self(vec![unknown; DESTINATIONS])
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

    /// The times of one that is not as fast as all others.
    pub(crate) fn slow(&self, destination: u8) -> Option<&RoundTrip> {
        self.0[usize::from(destination)].slow.as_deref()
    }

    /// What was sent there once was answered after `sample_ns`; `all`: the times of all.
    pub(crate) fn measured(&mut self, destination: u8, sample_ns: u64, all: &RoundTrip) {
        let slow = &mut self.0[usize::from(destination)].slow;
        if let Some(round_trip) = slow {
            round_trip.measured(sample_ns);
            if !round_trip.is_slower_than(all) {
                *slow = None;
            }
        }
    }

    /// It answers; whether that is news.
    pub(crate) fn heard(&mut self, destination: u8, now_ns: u64) -> bool {
        let found = &mut self.0[usize::from(destination)];
        found.heard_ns = now_ns;
        core::mem::take(&mut found.is_silent)
    }

    /// What was sent at `sent_ns` is not answered in time: whether it alone is lost. `all`: the times of all.
    pub(crate) fn timed_out(&mut self, now_ns: u64, destination: u8, sent_ns: u64, all: &RoundTrip) -> bool {
        let found = &mut self.0[usize::from(destination)];
        found.slow.get_or_insert_with(|| all.clone().into()).timed_out(now_ns);
        found.is_silent |= found.heard_ns < sent_ns;
        !found.is_silent
    }
}
