//! Which parts of a vring answer: requests to a dead node must not fill the window that all others share.
//!
//! ```text
//!   answers ──▶ heard ◀────────────── any answer ────────────────┐
//!                 │ a timeout, and no answer since that was sent │
//!                 └─────────────────────▶ silent ────────────────┘
//! ```
//!
//! A client does not know partitions. They are blocks of vnodes, so a 256th of the ring stands for one: a *destination*.
//! A silent destination gets a few datagrams, so that its return is noticed. They do not count as under way. All other
//! requests to it wait until it answers.
//!
//! A destination that answers later than the others has a round-trip estimate of its own. Retrying it as early as the
//! others would have each answer sent many times, and keep a long queue long.

use super::queue::Queue;
use super::round_trip::RoundTrip;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Maximum requests in flight to a silent destination.
pub(crate) const PROBES_MAX: u32 = 8;
const DESTINATIONS: usize = 256;

/// A part of a vring.
#[derive(Clone, Debug)]
struct Destination {
    heard_ns: u64,
    is_silent: bool,
    /// Number of requests in flight.
    open: u32,
    /// Requests that wait until it answers.
    parked: Queue,
    /// The destination's own estimate, while it is slower than others: it exists from the first
    /// timeout by the lane's estimate.
    slow: Option<Box<RoundTrip>>,
}

/// The state of the 256 destinations of a lane.
#[derive(Clone, Debug)]
pub(crate) struct Destinations(Vec<Destination>);

impl Destinations {
    pub(crate) fn new() -> Self {
        let unknown =
            Destination { heard_ns: 0, is_silent: false, open: 0, parked: Queue::EMPTY, slow: None };
        Self(vec![unknown; DESTINATIONS])
    }

    pub(crate) fn is_silent(&self, destination: u8) -> bool {
        self.0[usize::from(destination)].is_silent
    }

    /// Whether a further request may be sent to the destination while it is silent.
    pub(crate) fn takes_probe(&self, destination: u8) -> bool {
        self.0[usize::from(destination)].open < PROBES_MAX
    }

    pub(crate) fn entered(&mut self, destination: u8) {
        self.0[usize::from(destination)].open += 1;
    }

    pub(crate) fn left(&mut self, destination: u8) {
        self.0[usize::from(destination)].open -= 1;
    }

    pub(crate) fn parked(&mut self, destination: u8) -> &mut Queue {
        &mut self.0[usize::from(destination)].parked
    }

    /// The own estimate of a destination that is slower than the others.
    pub(crate) fn slow(&self, destination: u8) -> Option<&RoundTrip> {
        self.0[usize::from(destination)].slow.as_deref()
    }

    /// A request that was sent once was answered after `sample_ns`; `all` is the lane's estimate.
    pub(crate) fn measured(&mut self, destination: u8, sample_ns: u64, all: &RoundTrip) {
        let slow = &mut self.0[usize::from(destination)].slow;
        if let Some(round_trip) = slow {
            round_trip.measured(sample_ns);
            if !round_trip.is_slower_than(all) {
                *slow = None;
            }
        }
    }

    /// The destination has answered. Returns whether it was silent before.
    pub(crate) fn heard(&mut self, destination: u8, now_ns: u64) -> bool {
        let found = &mut self.0[usize::from(destination)];
        found.heard_ns = now_ns;
        core::mem::take(&mut found.is_silent)
    }

    /// A datagram that was sent at `sent_ns` was not answered in time; `all` is the lane's
    /// estimate. Returns true if that is a single loss, because the destination has answered
    /// something since.
    pub(crate) fn timed_out(&mut self, now_ns: u64, destination: u8, sent_ns: u64, all: &RoundTrip) -> bool {
        let found = &mut self.0[usize::from(destination)];
        found.slow.get_or_insert_with(|| all.clone().into()).timed_out(now_ns);
        found.is_silent |= found.heard_ns < sent_ns;
        !found.is_silent
    }
}
