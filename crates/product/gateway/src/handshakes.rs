//! Bounds on unfinished TLS handshakes of one thread. A peer that begins a handshake and stops
//! holds memory, and a handshake costs more than thousands of commands. So handshakes are bounded
//! in time, in number (a new one displaces the oldest, so silent peers cannot lock others out), and
//! in work per turn.

use crate::limits::HANDSHAKES_MAX;
use nicekv_proto::Duration;
use std::collections::VecDeque;

/// How long a handshake may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum handshake steps in a turn; each may compute a signature.
const STEPS_MAX: usize = 8;
/// Finished handshakes stay in the list until it has this many entries per handshake that may be
/// open.
const LISTED_PER_OPEN: usize = 4;

/// A connection with a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handshaking {
    since_ns: u64,
    pub(crate) slot: usize,
    /// Id of the connection.
    pub(crate) id: u64,
}

#[derive(Debug)]
pub(crate) struct Handshakes {
    /// Oldest first; some of them are finished.
    listed: VecDeque<Handshaking>,
    open: usize,
    open_max: usize,
    steps_left: usize,
}

impl Handshakes {
    /// Bounds for one of `threads` threads.
    pub(crate) fn new(threads: usize) -> Self {
        let open_max = HANDSHAKES_MAX.div_ceil(threads);
        Self { listed: VecDeque::new(), open: 0, open_max, steps_left: 0 }
    }

    /// When the oldest handshake expires.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.listed.front().map(|oldest| oldest.since_ns + TIMEOUT.as_nanos() as u64)
    }

    pub(crate) fn begin(&mut self, slot: usize, id: u64, now_ns: u64) {
        self.listed.push_back(Handshaking { since_ns: now_ns, slot, id });
        self.open += 1;
    }

    /// A handshake has ended, successfully or not.
    pub(crate) fn end(&mut self) {
        self.open -= 1;
    }

    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Whether the oldest handshake has to be closed to make room.
    pub(crate) fn has_too_many(&self) -> bool {
        self.open > self.open_max
    }

    /// Removes the oldest entry of the list; its handshake may be finished.
    pub(crate) fn pop_oldest(&mut self) -> Option<Handshaking> {
        self.listed.pop_front()
    }

    /// Removes the oldest entry of the list if its time is over; its handshake may be finished.
    pub(crate) fn pop_expired(&mut self, now_ns: u64) -> Option<Handshaking> {
        if self.next_deadline()? > now_ns { None } else { self.listed.pop_front() }
    }

    /// Removes finished handshakes if the list has become long.
    pub(crate) fn prune(&mut self, is_open: impl Fn(&Handshaking) -> bool) {
        if self.listed.len() > LISTED_PER_OPEN * self.open_max {
            self.listed.retain(is_open);
        }
    }

    /// Allows [`STEPS_MAX`] steps in the new turn.
    pub(crate) fn begin_turn(&mut self) {
        self.steps_left = STEPS_MAX;
    }

    /// Uses one of the steps of this turn; false if none is left.
    pub(crate) fn take_step(&mut self) -> bool {
        let has_step = self.steps_left > 0;
        self.steps_left = self.steps_left.saturating_sub(1);
        has_step
    }
}
