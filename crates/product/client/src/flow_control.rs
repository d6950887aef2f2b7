//! Flow control: which requests are sent now, and which wait in the client.
//!
//! Requests of one kind to one keyspace take about the same time, so they share a *lane*: a round-trip estimate, a
//! congestion window and a queue. Within a lane, a 256th of the ring is a *destination*, which stands for a partition:
//! the client does not know where partitions end.
//!
//! ```text
//!                     ┌─ the window has room ──────────────────▶ counted ──┐ timeout, destination silent
//!   enqueue ──▶ queue ┤                                                    ▼
//!                 ▲   ├─ destination silent, few probes under way ──▶ probe: sent, and not counted
//!                 │   └─ destination silent ──▶ parked
//!                 └── the destination answers, or has room for a probe ──┘
//! ```
//!
//! * Requests of a lane are sent in order. One whose deadline would pass before an answer is refused instead
//!   ([`OperationError::Busy`](crate::OperationError::Busy), decided by the caller): with more requests than replicas
//!   can serve, all of them would wait just too long.
//! * A request that was sent once never returns to the queue. It is retried until it is answered or given up.
//!
//! [`FlowControl`] knows requests by the index of their slot, and nothing else of them: the caller sends what it admits.

mod congestion_window;
mod destinations;
mod queue;
mod round_trip;

use crate::Config;
use crate::exchange::Round;
use alloc::vec::Vec;
use congestion_window::CongestionWindow;
use destinations::Destinations;
use nicekv_proto::fragment::FRAGMENT_BYTES;
use nicekv_proto::limits::{DATAGRAM_BYTES_MAX, MESSAGE_BYTES_MAX};
use queue::{Links, Queue};
use round_trip::RoundTrip;

/// Lanes of a keyspace: one for each [`Round`].
const ROUNDS: usize = 2;

/// Whether the caller sends a request or queues it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Send it now.
    Send,
    /// Queue it until [`FlowControl::next_ready`] returns it, or its deadline passes.
    Wait,
}

/// The times of a request that was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// When the first datagram left, and the last one, and how many there were.
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    pub(crate) copies: u32,
}

/// How flow control treats a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The request is not in a lane.
    None,
    Queued,
    /// It waits until its destination answers anything.
    Parked,
    /// In flight, and counted in the window.
    Counted,
    /// In flight, and not counted, because its destination is silent.
    Probe,
    /// In flight, and not counted, because it puts a large value, which determines how long it
    /// takes.
    Exempt,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    lane: u32,
    standing: Standing,
    destination: u8,
    /// Number of datagrams of the request or of its likely answer.
    datagrams: u16,
}

/// The lanes of all keyspaces.
#[derive(Clone, Debug)]
pub(crate) struct FlowControl {
    /// By keyspace index and round.
    lanes: Vec<Lane>,
    /// By slot.
    requests: Vec<Request>,
    links: Links,
    /// Requests in the queues of all lanes.
    queued: usize,
}

#[derive(Clone, Debug)]
struct Lane {
    round_trip: RoundTrip,
    window: CongestionWindow,
    queue: Queue,
    destinations: Destinations,
    answer_size: AnswerSize,
}

/// The mean number of datagrams in an answer. The length of the next answer is unknown, and many
/// long answers at once overrun the same socket buffers as long requests do.
#[derive(Clone, Copy, Debug, Default)]
struct AnswerSize {
    /// In 256ths of a datagram; 0 if no answer was longer than one.
    datagrams: u16,
}

impl AnswerSize {
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
    fn new(config: &Config) -> Self {
        Self {
            round_trip: RoundTrip::new(config.retry),
            window: CongestionWindow::new(config.in_flight_max),
            queue: Queue::EMPTY,
            destinations: Destinations::new(),
            answer_size: AnswerSize::default(),
        }
    }

    fn measured(&mut self, sample_ns: u64, destination: u8) {
        self.round_trip.measured(sample_ns);
        self.destinations.measured(destination, sample_ns, &self.round_trip);
    }

    /// The larger of two times: by the lane's estimate, and by the destination's own estimate if it
    /// has one.
    fn of_slowest(&self, destination: u8, time_ns: impl Fn(&RoundTrip) -> u64) -> u64 {
        time_ns(&self.round_trip).max(self.destinations.slow(destination).map_or(0, &time_ns))
    }

    fn standing(&self, destination: u8) -> Standing {
        match self.destinations.is_silent(destination) {
            true if self.destinations.takes_probe(destination) => Standing::Probe,
            true => Standing::Parked,
            false if self.window.has_room() => Standing::Counted,
            false => Standing::Queued,
        }
    }
}

impl FlowControl {
    pub(crate) fn new(config: &Config) -> Self {
        let lanes = (0..config.keyspaces.len() * ROUNDS).map(|_| Lane::new(config)).collect();
        Self { lanes, requests: Vec::new(), links: Links::default(), queued: 0 }
    }

    /// Resets the lanes of a keyspace index. No request to that keyspace may be in flight.
    pub(crate) fn reset_keyspace(&mut self, keyspace: usize, config: &Config) {
        let first = keyspace * ROUNDS;
        self.lanes.resize_with(self.lanes.len().max(first + ROUNDS), || Lane::new(config));
        self.lanes[first..first + ROUNDS].iter_mut().for_each(|lane| *lane = Lane::new(config));
    }

    /// Makes room for the state of the slot with this index, the next new one.
    pub(crate) fn add_slot(&mut self) {
        self.requests.push(Request { lane: 0, standing: Standing::None, destination: 0, datagrams: 1 });
    }

    /// A request of `bytes` to `vnode` is ready to be sent. It must be [released](Self::release).
    pub(crate) fn enqueue(
        &mut self,
        slot: u32,
        (keyspace, round): (usize, Round),
        vnode: u16,
        bytes: usize,
    ) -> Admission {
        let index = keyspace * ROUNDS + round as usize;
        let lane = &self.lanes[index];
        let [destination, _] = vnode.to_be_bytes();
        let datagrams = datagrams_of(bytes).max(lane.answer_size.datagrams());
        let is_behind_others = !lane.queue.is_empty() && !lane.destinations.is_silent(destination);
        let standing = if is_behind_others { Standing::Queued } else { lane.standing(destination) };
        self.requests[slot as usize] = Request { lane: index as u32, standing, destination, datagrams };
        self.enter(slot)
    }

    /// Decides about a request that was queued and has been released.
    pub(crate) fn admit(&mut self, slot: u32) -> Admission {
        let Request { lane, destination, .. } = self.requests[slot as usize];
        let standing = self.lanes[lane as usize].standing(destination);
        self.requests[slot as usize].standing = standing;
        self.enter(slot)
    }

    fn enter(&mut self, slot: u32) -> Admission {
        let Request { lane, standing, destination, datagrams } = self.requests[slot as usize];
        let lane = &mut self.lanes[lane as usize];
        match standing {
            Standing::Queued => {
                self.links.push_back(&mut lane.queue, slot);
                self.queued += 1;
                return Admission::Wait;
            }
            Standing::Parked => {
                self.links.push_back(lane.destinations.parked(destination), slot);
                return Admission::Wait;
            }
            Standing::Counted => lane.window.entered(datagrams),
            Standing::Probe | Standing::Exempt | Standing::None => {}
        }
        lane.destinations.entered(destination);
        Admission::Send
    }

    /// Lanes to pass to [`Self::next_ready`]: 0 if nothing is queued.
    pub(crate) fn lanes_to_serve(&self) -> usize {
        if self.queued == 0 { 0 } else { self.lanes.len() }
    }

    /// The first request in a lane's queue, if it need not wait any longer. The caller releases it.
    pub(crate) fn next_ready(&self, lane: usize) -> Option<u32> {
        let lane = &self.lanes[lane];
        let first = lane.queue.front()?;
        let destination = self.requests[first as usize].destination;
        (lane.standing(destination) != Standing::Queued).then_some(first)
    }

    /// How long an answer in this lane takes, as a moving average, in nanoseconds; 0 before the first.
    pub(crate) fn smoothed_ns(&self, lane: usize) -> u64 {
        self.lanes[lane].round_trip.smoothed_ns()
    }

    /// Removes the request from its lane: it is answered, ended or paused, or flow control decides
    /// about it again.
    pub(crate) fn release(&mut self, slot: u32) {
        let request = &mut self.requests[slot as usize];
        let Request { lane, standing, destination, datagrams } = *request;
        request.standing = Standing::None;
        let state = &mut self.lanes[lane as usize];
        match standing {
            Standing::None => {}
            Standing::Queued => {
                self.links.remove(&mut state.queue, slot);
                self.queued -= 1;
            }
            Standing::Parked => self.links.remove(state.destinations.parked(destination), slot),
            Standing::Counted | Standing::Probe | Standing::Exempt => {
                if standing == Standing::Counted {
                    state.window.left(datagrams);
                }
                state.destinations.left(destination);
                if state.destinations.takes_probe(destination) {
                    self.unpark(lane, destination);
                }
            }
        }
    }

    /// Moves the first request that is parked at a destination back to the queue. Returns whether
    /// there was one.
    fn unpark(&mut self, lane: u32, destination: u8) -> bool {
        let lane = &mut self.lanes[lane as usize];
        let Some(first) = lane.destinations.parked(destination).front() else { return false };
        self.links.remove(lane.destinations.parked(destination), first);
        self.links.push_back(&mut lane.queue, first);
        self.queued += 1;
        self.requests[first as usize].standing = Standing::Queued;
        true
    }

    /// A message has arrived from the request's destination.
    pub(crate) fn on_contact(&mut self, slot: u32, now_ns: u64) {
        let Request { lane, destination, .. } = self.requests[slot as usize];
        if self.lanes[lane as usize].destinations.heard(destination, now_ns) {
            while self.unpark(lane, destination) {}
        }
    }

    /// The request was answered with a value of `value_bytes`. Called before it is released.
    pub(crate) fn on_answer(&mut self, slot: u32, now_ns: u64, sent: Sent, value_bytes: usize) {
        let Request { lane, standing, destination, datagrams } = self.requests[slot as usize];
        let lane = &mut self.lanes[lane as usize];
        let took_ns = now_ns.saturating_sub(sent.last_ns);
        match sent.copies {
            // The time of an exempt request depends on its value, not on the replicas.
            _ if standing == Standing::Exempt => {}
            1 => {
                lane.answer_size.note(value_bytes);
                lane.measured(took_ns, destination);
                lane.window.answered(now_ns, sent.last_ns, lane.round_trip.smoothed_ns(), datagrams);
            }
            // The answer came sooner after the retry than any answer ever did, so it answers the
            // first datagram.
            2 if took_ns < lane.window.base_ns() => {
                lane.measured(now_ns.saturating_sub(sent.first_ns), destination);
            }
            _ => {}
        }
        self.on_contact(slot, now_ns);
    }

    /// The datagram that left at `sent_ns` was not answered in time.
    pub(crate) fn on_timeout(&mut self, slot: u32, now_ns: u64, sent_ns: u64) {
        let request = &mut self.requests[slot as usize];
        if request.standing == Standing::Exempt {
            return;
        }
        let lane = &mut self.lanes[request.lane as usize];
        let is_lost = lane.destinations.timed_out(now_ns, request.destination, sent_ns, &lane.round_trip);
        lane.round_trip.timed_out(now_ns);
        if is_lost {
            lane.window.lost(now_ns, sent_ns);
        } else if request.standing == Standing::Counted {
            lane.window.left(request.datagrams);
            request.standing = Standing::Probe;
        }
    }

    /// The request's replicas have reported on the large value that it puts: from now on it takes
    /// no room in the window, and its answer is no measurement.
    pub(crate) fn exempt(&mut self, slot: u32) {
        let request = &mut self.requests[slot as usize];
        let standing = core::mem::replace(&mut request.standing, Standing::Exempt);
        assert!(matches!(standing, Standing::Counted | Standing::Probe | Standing::Exempt), "{standing:?}");
        if standing == Standing::Counted {
            self.lanes[request.lane as usize].window.left(request.datagrams);
        }
    }

    /// How long to wait for an answer after try number `attempt` (from 0), in nanoseconds.
    pub(crate) fn timeout_ns(&self, slot: u32, attempt: u32) -> u64 {
        let Request { lane, destination, .. } = self.requests[slot as usize];
        let lane = &self.lanes[lane as usize];
        let is_heard = !lane.destinations.is_silent(destination);
        lane.of_slowest(destination, |times| times.timeout_ns(attempt, is_heard))
    }

    /// Until when to wait for the answer to a datagram that was sent once, at `sent_ns`, as far as
    /// is known now.
    pub(crate) fn wait_until_ns(&self, slot: u32, sent_ns: u64) -> u64 {
        let Request { lane, destination, .. } = self.requests[slot as usize];
        self.lanes[lane as usize].of_slowest(destination, |times| times.wait_until_ns(sent_ns))
    }

    /// Requests in the queues of all lanes.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }
}
