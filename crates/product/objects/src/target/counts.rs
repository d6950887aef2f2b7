//! What a target tells operators: what it has counted since it began, and what is promised now.

use super::Target;
use nicekv_proto::chunk::Round;

/// Since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetCounters {
    /// Of puts and gets.
    pub requests: u64,
    /// Puts that were answered by a bid, …
    pub bids: u64,
    /// … as there was no time or memory for them now, …
    pub not_now: u64,
    /// … as the disk had no room, …
    pub no_space: u64,
    /// … as the chunk was there already, without a transfer (deduplication), …
    pub confirmed: u64,
    /// … or as it was coming.
    pub arriving: u64,
    /// Bids that others were preferred to, or that were overtaken by a new map.
    pub cancelled: u64,
    /// Bids of which nobody has said anything in time.
    pub lapsed: u64,
    /// Bids that were accepted.
    pub transfers: u64,
    /// Transfers that ended with the chunk on the disk, …
    pub stored: u64,
    /// … that did not come, …
    pub transfers_lapsed: u64,
    /// … that brought something else than their id says, …
    pub wrong: u64,
    /// … for which the disk had no room after all, …
    pub disk_full: u64,
    /// … or whose chunk is another group's by a new map.
    pub given_up: u64,
    /// Frames of transfers, …
    pub frames: u64,
    /// … of these those that were here, …
    pub frames_known: u64,
    /// … those that no transfer expects, …
    pub frames_refused: u64,
    /// … and those that were asked for again, each time.
    pub frames_missing: u64,
    /// Requests of gets.
    pub gets: u64,
    /// Of these, of chunks that are not held.
    pub not_found: u64,
    /// Reads that went to the disk.
    pub reads: u64,
    /// Reads without the token of their address (P10).
    pub reads_unproven: u64,
    /// Reads of frames that the chunk has not.
    pub reads_refused: u64,
    /// Reads that were dropped, as too many waited.
    pub reads_dropped: u64,
    /// To readers.
    pub frames_sent: u64,
    /// Of chunks, to readers.
    pub bytes_sent: u64,
    /// Chunks that were not any more what their ids say.
    pub damaged: u64,
    /// Chunks that no name needs, deleted.
    pub collected: u64,
    /// Chunks that were read through, to see whether they are what they were.
    pub scrubbed: u64,
    /// Of those that too few held, or that were to go to another group: put.
    pub put_again: u64,
    /// Copies that were dropped because enough others hold the chunk.
    pub surplus: u64,
    /// By those who go by another map.
    pub other_map: u64,
    /// For chunks that are not of its group, or by somebody else than a negotiation's initiator.
    pub refused: u64,
    /// What is no message to a target.
    pub malformed: u64,
}

/// What is promised now, and how garbage collection stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetUsage {
    /// What the disk has room for, what is promised included.
    pub disk_free_bytes: u64,
    /// Of these, promised to chunks that have a bid, or come.
    pub disk_promised_bytes: u64,
    /// Promised to chunks, or full of those that the disk does not have yet.
    pub memory_promised_bytes: u64,
    /// What may be at most.
    pub memory_bytes_max: u64,
    /// Bids that are open.
    pub bids: usize,
    /// Chunks that come.
    pub transfers: usize,
    /// Reads that wait for the disk.
    pub reads: usize,
    /// The newest round that it was told.
    pub round: Round,
    /// The last round of which all names were listed to it.
    pub listed: Round,
    /// The last round in which it has deleted all that no name needs.
    pub swept: Round,
}

impl Target {
    /// See [`TargetUsage`].
    pub fn usage(&self) -> TargetUsage {
        TargetUsage {
            disk_free_bytes: self.disk.free_bytes,
            disk_promised_bytes: self.promised_disk(),
            memory_promised_bytes: self.promised_memory(),
            memory_bytes_max: self.config.reservation.bytes_max,
            bids: self.negotiations.len(),
            transfers: self.transfers.len(),
            reads: self.readings.len(),
            round: self.round.unwrap_or_default(),
            listed: self.listed(),
            swept: self.swept(),
        }
    }
}
