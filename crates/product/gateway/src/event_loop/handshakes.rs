//! TLS handshakes that are not done. A peer that begins one and does not go on holds memory, and one costs more work than thousands of commands: so they are bounded in time,
//! in number (the oldest gives way to one that comes, so that nobody is kept out by those who do not go on) and in what is done of them in a turn.

use super::Gateway;
use crate::connection::Connection;
use crate::limits::HANDSHAKES_MAX;
use crate::shared::Handshake;
use nicekv_proto::{Duration, Now};
use std::collections::VecDeque;

/// What a handshake may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Steps of handshakes in a turn; each may sign something.
const STEPS_MAX: usize = 8;
/// Those that are done stay listed until so many are, for each that may be under way.
const LISTED_PER_OPEN: usize = 4;

/// Of one thread.
#[derive(Debug)]
pub(super) struct Handshakes {
    /// In the order in which they began, with some that are over: when, the connection's slot and id.
    listed: VecDeque<(u64, usize, u64)>,
    open: usize,
    open_max: usize,
    steps_left: usize,
}

impl Handshakes {
    /// Of one of so many threads.
    pub(super) fn new(threads: usize) -> Self {
        let open_max = HANDSHAKES_MAX.div_ceil(threads);
        Self { listed: VecDeque::new(), open: 0, open_max, steps_left: 0 }
    }

    /// When one is to be given up.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.listed.front().map(|(since_ns, ..)| since_ns + TIMEOUT.as_nanos() as u64)
    }
}

impl Gateway {
    /// A connection has come that begins with one.
    pub(super) fn begin_handshake(&mut self, slot: usize, id: u64, now: Now) {
        self.handshakes.listed.push_back((now.boot_ns, slot, id));
        self.handshakes.open += 1;
        self.tell_handshakes();
        if self.handshakes.open > self.handshakes.open_max {
            while let Some((_, slot, id)) = self.handshakes.listed.pop_front() {
                if self.is_handshaking(slot, id) {
                    self.close_as(slot, Handshake::Displaced);
                    break;
                }
            }
        }
        if self.handshakes.listed.len() > LISTED_PER_OPEN * self.handshakes.open_max {
            let mut listed = std::mem::take(&mut self.handshakes.listed);
            listed.retain(|(_, slot, id)| self.is_handshaking(*slot, *id));
            self.handshakes.listed = listed;
        }
    }

    fn is_handshaking(&self, slot: usize, id: u64) -> bool {
        let is_it =
            |connection: &Connection| connection.session.id == id && connection.stream.is_handshaking();
        self.connections.get(slot).is_some_and(is_it)
    }

    /// Gives up those that take too long.
    pub(super) fn give_up_handshakes(&mut self, now: Now) {
        while self.handshakes.next_deadline().is_some_and(|deadline_ns| deadline_ns <= now.boot_ns) {
            let Some((_, slot, id)) = self.handshakes.listed.pop_front() else { return };
            if self.is_handshaking(slot, id) {
                self.close_as(slot, Handshake::TimedOut);
            }
        }
    }

    /// A turn begins.
    pub(super) fn allow_handshakes(&mut self) {
        self.handshakes.steps_left = STEPS_MAX;
    }

    /// Whether a connection has to wait for the next turn, as others have done so much of their handshakes in this one.
    pub(super) fn is_put_off(&mut self, slot: usize) -> bool {
        let Some(connection) = self.connections.get(slot) else { return false };
        if !connection.stream.is_handshaking() || !connection.wants_read() {
            return false;
        }
        let is_put_off = self.handshakes.steps_left == 0;
        self.handshakes.steps_left = self.handshakes.steps_left.saturating_sub(1);
        is_put_off
    }

    /// A connection was read from; before that its handshake was not done.
    pub(super) fn after_handshake_step(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.stream.is_handshaking() {
            return;
        }
        let refusal = connection.refusal.take();
        self.end_handshake(Handshake::Done);
        if let Some(refusal) = refusal {
            self.connections[slot].dismiss(&refusal);
            self.close(slot);
        }
    }

    /// One is over, in this way.
    pub(super) fn end_handshake(&mut self, how: Handshake) {
        self.handshakes.open -= 1;
        self.member.own().handshakes[how as usize].add(1);
        self.tell_handshakes();
    }

    fn tell_handshakes(&self) {
        self.member.own().handshakes_open.set(self.handshakes.open as u64);
    }
}
