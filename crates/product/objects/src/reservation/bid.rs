//! What is asked of a target, and what it answers.

use crate::reservation::config::{Config, Widths};
use crate::reservation::window::Offsets;

/// Of one book, never given twice. A process that begins anew must not take the ids of the one before for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BidId(pub u64);

/// What an initiator wants to put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The chunk's length.
    pub bytes: u32,
    /// When the initiator can begin, from the receipt on: 0 if it can at once.
    pub earliest_ns: u64,
    /// What the target's disk has to do.
    pub backlog: Backlog,
    /// Drawn by the target: whether a bid is longer where that is left to chance.
    pub random: u64,
}

/// A disk's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Until all that is queued is written.
    pub queued_ns: u64,
    /// How long this chunk would take to write.
    pub write_ns: u64,
}

/// A window that is promised, until it is accepted, cancelled or lapses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bid {
    /// Which accept and cancel must name.
    pub id: BidId,
    /// When data may be sent.
    pub window: Offsets,
    /// How long after its window the chunk is durable, at most, as far as the target knows: before that, a missing ack is no failure.
    pub disk_ns: u64,
}

/// Why there is no bid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The book's windows are all promised.
    #[error("{bids_max} windows are promised already")]
    Full {
        /// The bound.
        bids_max: usize,
    },
    /// There is no memory for the chunk beside those that are promised some.
    #[error("{bytes} bytes and what is promised are more than {bytes_max}")]
    Memory {
        /// The chunk's length.
        bytes: u32,
        /// The bound.
        bytes_max: u64,
    },
    /// The window would begin later than anything is promised.
    #[error("there is no time before {after_ns} ns from now, and none is promised beyond {horizon_ns}")]
    TooLate {
        /// From now until the window could begin.
        after_ns: u64,
        /// The bound.
        horizon_ns: u64,
    },
}

/// Why a bid cannot be accepted, cancelled or finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BidError {
    /// No bid has had this id yet.
    #[error("bid {} was never made", .0.0)]
    NeverMade(BidId),
    /// It was cancelled, has lapsed, or its chunk has come.
    #[error("bid {} is over", .0.0)]
    Over(BidId),
    /// It was accepted before: once is all, and it cannot be cancelled any more.
    #[error("bid {} is accepted already", .0.0)]
    Accepted(BidId),
    /// It was not accepted, so no chunk can have come in it.
    #[error("bid {} is not accepted", .0.0)]
    Tentative(BidId),
    /// What is to be accepted is not within what was promised.
    #[error("{chosen:?} is not within bid {}", .id.0)]
    Outside {
        /// The bid.
        id: BidId,
        /// What was chosen.
        chosen: Offsets,
    },
}

impl Config {
    /// By how much the disk delays a bid: not at all while its queue is short, or is written by the time that the chunk is there; until its queue has room then; and until it is
    /// empty if there is more than should be.
    pub fn disk_delay_ns(&self, bytes: u32, backlog: Backlog) -> u64 {
        let Backlog { queued_ns, write_ns } = backlog;
        let Widths { chunk_ns, .. } = self.widths(bytes);
        let queued_chunks = (queued_ns + write_ns / 2) / write_ns.max(1);
        let queue_max = (self.disk_queue_bytes / u64::from(bytes.max(1))).max(self.disk_queue_chunks_min);
        if queued_chunks < queue_max || queued_ns <= chunk_ns {
            0
        } else if queued_chunks == queue_max {
            queued_ns - chunk_ns
        } else {
            queued_ns
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_queue_delays() {
        let delay = |bytes: u32, queued_ns: u64, write_ns: u64| {
            Config::MULTICAST.disk_delay_ns(bytes, Backlog { queued_ns, write_ns })
        };
        // 128 KiB at 400 MiB/s: 312.5 us each, two at most.
        let write = 312_500;
        assert_eq!(delay(128 << 10, 0, write), 0);
        assert_eq!(delay(128 << 10, 468_749, write), 0, "one and a bit less than a half");
        assert_eq!(delay(128 << 10, 468_750, write), 468_750 - 117_685, "two, rounded");
        assert_eq!(delay(128 << 10, 781_250, write), 781_250, "three: all of it");
        // 16 KiB: sixteen.
        assert_eq!(delay(16 << 10, 15 * 39_062, 39_062), 0);
        assert_eq!(delay(16 << 10, 16 * 39_062, 39_062), 16 * 39_062 - 14_710);
        assert_eq!(delay(16 << 10, 1_000, 1), 0, "it is written before the chunk is there");
        assert_eq!(delay(0, 1, 0), 0, "nothing to write in no time");
    }
}
