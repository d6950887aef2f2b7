//! Whose datagram is sent, and whose waits: lanes, one for each keyspace and [`Round`](crate::exchange::Round).
//!
//! ```text
//!                        ┌─ room in the window ────────────────▶ counted ──┐ timeout, destination silent
//!   line_up ──▶ in line ─┤                                                 ▼
//!                 ▲      ├─ destination silent, few sent to it ─▶ a probe: sent, and not counted
//!                 │      └─ destination silent ────────────────▶ parked
//!                 └─ the destination is heard, or takes another probe ───┘
//! ```
//!
//! * First in line, first sent; but who could not be answered before its deadline is refused instead of sent ([`OperationError::Busy`]):
//!   with more requests than replicas can serve, all would wait just too long.
//! * A request that was sent once is never put back: it is retried until it is answered, or given up.

use crate::congestion::CongestionWindow;
use crate::destinations::Destinations;
use crate::in_flight::InFlight;
use crate::line::Line;
use crate::round_trip::RoundTrip;
use crate::slot::{Standing, State, Turn};
use crate::{Config, OperationError};
use nicekv_proto::fragment::FRAGMENT_BYTES;
use nicekv_proto::limits::{DATAGRAM_BYTES_MAX, MESSAGE_BYTES_MAX};

/// Requests of one kind to one keyspace: they take about the same time.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) round_trip: RoundTrip,
    pub(crate) window: CongestionWindow,
    line: Line,
    destinations: Destinations,
    answers: Answers,
}

/// How long answers are, on the average of late: nobody knows how long the next one is, and many long ones at once overrun the same queues as long requests do.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    /// In a 256th of a datagram; 0: none was longer than one.
    datagrams: u16,
}

impl Answers {
    fn note(&mut self, value_bytes: usize) {
        if self.datagrams == 0 && value_bytes <= DATAGRAM_BYTES_MAX {
            return;
        }
        self.datagrams += datagrams_of(value_bytes) * 256 / 8;
        self.datagrams -= self.datagrams / 8;
    }

    fn datagrams(self) -> u16 {
        self.datagrams.div_ceil(256)
    }
}

fn datagrams_of(bytes: usize) -> u16 {
    if bytes <= DATAGRAM_BYTES_MAX { 1 } else { bytes.min(MESSAGE_BYTES_MAX).div_ceil(FRAGMENT_BYTES) as u16 }
}

impl Lane {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            round_trip: RoundTrip::new(config.retry),
            window: CongestionWindow::new(config.in_flight_max),
            line: Line::EMPTY,
            destinations: Destinations::new(),
            answers: Answers::default(),
        }
    }

    /// What was sent there once, at `sent_ns`, is answered, with a value of so many bytes.
    pub(crate) fn answered(&mut self, now_ns: u64, sent_ns: u64, turn: Turn, value_bytes: usize) {
        self.answers.note(value_bytes);
        self.measured(now_ns.saturating_sub(sent_ns), turn.destination);
        self.window.answered(now_ns, sent_ns, self.round_trip.smoothed_ns(), turn.datagrams);
    }

    /// What was sent there was answered after `sample_ns`.
    pub(crate) fn measured(&mut self, sample_ns: u64, destination: u8) {
        self.round_trip.measured(sample_ns);
        self.destinations.measured(destination, sample_ns, &self.round_trip);
    }

    /// How long to wait for an answer from there after try number `attempt` (from 0).
    pub(crate) fn timeout_ns(&self, attempt: u32, destination: u8) -> u64 {
        let is_heard = !self.destinations.is_silent(destination);
        self.of_slowest(destination, |times| times.timeout_ns(attempt, is_heard))
    }

    /// Until when to wait for what was sent there once, as far as is known by now.
    pub(crate) fn patient_until_ns(&self, sent_ns: u64, destination: u8) -> u64 {
        self.of_slowest(destination, |times| times.patient_until_ns(sent_ns))
    }

    /// By the times of all, and by those of a destination if it has its own.
    fn of_slowest(&self, destination: u8, what: impl Fn(&RoundTrip) -> u64) -> u64 {
        what(&self.round_trip).max(self.destinations.slow(destination).map_or(0, &what))
    }

    /// What becomes of a request to this destination whose turn it is.
    fn standing(&self, destination: u8) -> Standing {
        match self.destinations.is_silent(destination) {
            true if self.destinations.takes_probe(destination) => Standing::Probe,
            true => Standing::Parked,
            false if self.window.has_room() => Standing::Counted,
            false => Standing::InLine,
        }
    }
}

impl InFlight {
    /// The slot's datagram is written, and is sent when its turn comes.
    pub(crate) fn line_up(&mut self, index: u32, now_ns: u64) {
        let slot = &mut self.slots[index as usize];
        let [destination, _] = slot.buffers.vnode.to_be_bytes();
        let sent = datagrams_of(slot.buffers.datagram.len());
        let lane = self.lane(index);
        let datagrams = sent.max(lane.answers.datagrams());
        let turn = Turn { standing: Standing::Out, destination, datagrams };
        let is_last = !lane.line.is_empty() && !lane.destinations.is_silent(turn.destination);
        self.slots[index as usize].turn = turn;
        match is_last {
            true => self.stand(index, Standing::InLine, now_ns),
            false => self.turn_of(index, now_ns),
        }
        self.counters.waited += u64::from(self.slots[index as usize].state == State::Waiting);
    }

    /// Sends those whose turn has come.
    pub(crate) fn give_turns(&mut self, now_ns: u64) {
        if self.in_line == 0 {
            return;
        }
        for keyspace in 0..self.lanes.len() {
            for round in 0..self.lanes[keyspace].len() {
                while let Some(index) = self.next_turn(keyspace, round) {
                    let slot = &self.slots[index as usize];
                    let too_late_ns = now_ns + self.lanes[keyspace][round].round_trip.smoothed_ns();
                    let is_too_late = !slot.was_sent && slot.deadline_ns < too_late_ns;
                    self.leave(index);
                    match is_too_late {
                        true => self.finish(index, Err(OperationError::Busy)),
                        false => self.turn_of(index, now_ns),
                    }
                }
            }
        }
    }

    /// The first in line, if it need not stay there.
    fn next_turn(&self, keyspace: usize, round: usize) -> Option<u32> {
        let lane = &self.lanes[keyspace][round];
        let first = lane.line.front()?;
        let destination = self.slots[first as usize].turn.destination;
        (lane.standing(destination) != Standing::InLine).then_some(first)
    }

    fn turn_of(&mut self, index: u32, now_ns: u64) {
        let destination = self.slots[index as usize].turn.destination;
        let standing = self.lane(index).standing(destination);
        self.stand(index, standing, now_ns);
    }

    fn stand(&mut self, index: u32, standing: Standing, now_ns: u64) {
        let turn = &mut self.slots[index as usize].turn;
        turn.standing = standing;
        let Turn { destination, datagrams, .. } = *turn;
        let (lane, links, in_line) = self.lane_and_links(index);
        match standing {
            Standing::InLine => {
                links.push_back(&mut lane.line, index);
                *in_line += 1;
            }
            Standing::Parked => links.push_back(lane.destinations.parked(destination), index),
            Standing::Counted => lane.window.entered(datagrams),
            Standing::Probe | Standing::Apart | Standing::Out => {}
        }
        match standing {
            Standing::InLine | Standing::Parked => self.wait_for_turn(index, now_ns),
            _ => {
                self.lane(index).destinations.entered(destination);
                self.transmit(index, now_ns);
            }
        }
    }

    /// The slot's datagram needs no turn any more.
    pub(crate) fn leave(&mut self, index: u32) {
        let Turn { standing, destination, datagrams } = self.slots[index as usize].turn;
        self.slots[index as usize].turn.standing = Standing::Out;
        let (lane, links, in_line) = self.lane_and_links(index);
        match standing {
            Standing::Out => {}
            Standing::InLine => {
                links.remove(&mut lane.line, index);
                *in_line -= 1;
            }
            Standing::Parked => links.remove(lane.destinations.parked(destination), index),
            Standing::Counted | Standing::Probe | Standing::Apart => {
                if standing == Standing::Counted {
                    lane.window.left(datagrams);
                }
                lane.destinations.left(destination);
                if lane.destinations.takes_probe(destination) {
                    self.unpark(index, destination);
                }
            }
        }
    }

    /// An answer has come from where the slot's datagram goes.
    pub(crate) fn heard(&mut self, index: u32, now_ns: u64) {
        let destination = self.slots[index as usize].turn.destination;
        if self.lane(index).destinations.heard(destination, now_ns) {
            while self.unpark(index, destination) {}
        }
    }

    /// Puts the first that is parked there, in the lane of this slot, back in line.
    fn unpark(&mut self, index: u32, destination: u8) -> bool {
        let (lane, links, in_line) = self.lane_and_links(index);
        let Some(first) = lane.destinations.parked(destination).front() else { return false };
        links.remove(lane.destinations.parked(destination), first);
        links.push_back(&mut lane.line, first);
        *in_line += 1;
        self.slots[first as usize].turn.standing = Standing::InLine;
        true
    }

    /// What is heard of the slot's op is no answer, but the answer will tell nothing of haste, and takes no room of others.
    pub(crate) fn stand_apart(&mut self, index: u32) {
        let turn = &mut self.slots[index as usize].turn;
        let datagrams = turn.datagrams;
        let standing = core::mem::replace(&mut turn.standing, Standing::Apart);
        assert!(matches!(standing, Standing::Counted | Standing::Probe | Standing::Apart), "{standing:?}");
        if standing == Standing::Counted {
            self.lane(index).window.left(datagrams);
        }
    }

    pub(crate) fn stands_apart(&self, index: u32) -> bool {
        self.slots[index as usize].turn.standing == Standing::Apart
    }

    /// The slot's datagram was not answered in time.
    pub(crate) fn unanswered(&mut self, index: u32, now_ns: u64) {
        let slot = &mut self.slots[index as usize];
        let (sent_ns, Turn { standing, destination, datagrams }) = (slot.sent_ns, slot.turn);
        if standing == Standing::Apart {
            return;
        }
        let lane = self.lane(index);
        let is_lost = lane.destinations.timed_out(now_ns, destination, sent_ns, &lane.round_trip);
        lane.round_trip.timed_out(now_ns);
        if is_lost {
            lane.window.lost(now_ns, sent_ns);
        } else if standing == Standing::Counted {
            lane.window.left(datagrams);
            self.slots[index as usize].turn.standing = Standing::Probe;
        }
    }
}
