//! Requests to a target's book, and bids.

use crate::reservation::config::{Config, Widths};
use crate::reservation::window::Offsets;

/// Identifies a bid of one book; never reused. A restarted process must begin with other ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BidId(pub u64);

/// A request for a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Length of the chunk in bytes.
    pub bytes: u32,
    /// When the initiator can begin, from the receipt on; 0: at once.
    pub earliest_ns: u64,
    /// The queue of the target's disk.
    pub backlog: Backlog,
    /// A random number of the target: decides whether an idle target bids a longer window.
    pub random: u64,
}

/// A disk's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Time until everything queued is written.
    pub queued_ns: u64,
    /// Time to write this chunk.
    pub write_ns: u64,
}

/// A promised window, until it is accepted, cancelled or expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bid {
    /// Its id, for accept and cancel.
    pub id: BidId,
    /// When data may be sent.
    pub window: Offsets,
    /// Estimated time from the end of the window until the chunk is durable. A missing acknowledgement is no failure before.
    pub disk_ns: u64,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// All windows of the book are promised.
    #[error("{bids_max} windows are promised already")]
    Full {
        /// The limit.
        bids_max: usize,
    },
    /// There is no memory for the chunk.
    #[error("{bytes} bytes and those already promised exceed the limit of {bytes_max} bytes")]
    Memory {
        /// Length of the chunk.
        bytes: u32,
        /// The limit.
        bytes_max: u64,
    },
    /// The window would begin beyond the horizon.
    #[error("no window before {after_ns} ns from now; none is promised beyond {horizon_ns} ns")]
    TooLate {
        /// Time until the window could begin.
        after_ns: u64,
        /// The limit.
        horizon_ns: u64,
    },
}

/// Why a bid cannot be accepted, cancelled or finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BidError {
    /// There was no bid with this id.
    #[error("bid {} was never made", .0.0)]
    NeverMade(BidId),
    /// It was cancelled, has expired, or its chunk has arrived.
    #[error("bid {} is over", .0.0)]
    Over(BidId),
    /// It was accepted before, which is final.
    #[error("bid {} is accepted already", .0.0)]
    Accepted(BidId),
    /// It was not accepted, so its chunk cannot have arrived.
    #[error("bid {} is not accepted", .0.0)]
    Tentative(BidId),
    /// The chosen window is not within the bid.
    #[error("{chosen:?} is not within bid {}", .id.0)]
    Outside {
        /// The bid.
        id: BidId,
        /// The chosen window.
        chosen: Offsets,
    },
}

impl Config {
    /// By how much the disk delays a bid: not at all if its queue is short, or is written before the chunk arrives; until there
    /// is room in the queue if it is just full; until the queue is empty if it is longer.
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
    fn long_disk_queue_delays_the_bid() {
        let delay = |bytes: u32, queued_ns: u64, write_ns: u64| {
            Config::MULTICAST.disk_delay_ns(bytes, Backlog { queued_ns, write_ns })
        };
        // 128 KiB at 400 MiB/s take 312.5 us each; at most two chunks may be queued.
        let write = 312_500;
        assert_eq!(delay(128 << 10, 0, write), 0);
        assert_eq!(delay(128 << 10, 468_749, write), 0, "almost one and a half chunks are queued");
        assert_eq!(delay(128 << 10, 468_750, write), 468_750 - 117_685, "two, rounded");
        assert_eq!(
            delay(128 << 10, 781_250, write),
            781_250,
            "more than two are queued: the delay is the whole queue"
        );
        // For chunks of 16 KiB, sixteen may be queued.
        assert_eq!(delay(16 << 10, 15 * 39_062, 39_062), 0);
        assert_eq!(delay(16 << 10, 16 * 39_062, 39_062), 16 * 39_062 - 14_710);
        assert_eq!(delay(16 << 10, 1_000, 1), 0, "the queue is written before the chunk arrives");
        assert_eq!(delay(0, 1, 0), 0, "an empty chunk has no delay");
    }
}
