//! A target's counters for operators: counts since it started, and present usage.

use nicekv_proto::chunk::Round;

/// Counts since the target started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetCounters {
    /// Requests of puts and gets.
    pub requests: u64,
    /// Puts answered by a bid, …
    pub bids: u64,
    /// … refused because there was no time or memory now, …
    pub not_now: u64,
    /// … refused because the disk is full, …
    pub no_space: u64,
    /// … answered without a transfer because the chunk was there (deduplication), …
    pub confirmed: u64,
    /// … or because it was already arriving.
    pub arriving: u64,
    /// Bids that were not chosen, or were cancelled by a new map.
    pub cancelled: u64,
    /// Bids that expired without an answer.
    pub lapsed: u64,
    /// Bids accepted.
    pub transfers: u64,
    /// Transfers that ended with the chunk on disk, …
    pub stored: u64,
    /// … that expired, …
    pub transfers_lapsed: u64,
    /// … whose chunk did not match its id, …
    pub wrong: u64,
    /// … for which the disk had no room in the end, …
    pub disk_full: u64,
    /// … or whose chunk belongs to another group by a new map.
    pub given_up: u64,
    /// Frames received, …
    pub frames: u64,
    /// … duplicates among them, …
    pub frames_known: u64,
    /// … frames that no transfer expects, …
    pub frames_refused: u64,
    /// … and frames reported as missing, each time.
    pub frames_missing: u64,
    /// Requests of gets, …
    pub gets: u64,
    /// … and those for chunks that are not held.
    pub not_found: u64,
    /// Reads that went to the disk.
    pub reads: u64,
    /// Reads without the right token (P10).
    pub reads_unproven: u64,
    /// Reads beyond the chunk.
    pub reads_refused: u64,
    /// Reads dropped because too many were waiting.
    pub reads_dropped: u64,
    /// Frames sent to readers.
    pub frames_sent: u64,
    /// Bytes of chunks sent to readers.
    pub bytes_sent: u64,
    /// Chunks found damaged.
    pub damaged: u64,
    /// Chunks deleted as garbage.
    pub collected: u64,
    /// Chunks read and verified by maintenance.
    pub scrubbed: u64,
    /// Chunks put again because they had too few holders, or belong to another group.
    pub put_again: u64,
    /// Copies dropped because the chunk has enough other holders.
    pub surplus: u64,
    /// Messages that name another version of the map.
    pub other_map: u64,
    /// Messages about chunks of other groups, or from another initiator than the negotiation's.
    pub refused: u64,
    /// Datagrams that are no messages to a target.
    pub malformed: u64,
}

/// Resources that are promised now, and the rounds of garbage collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetUsage {
    /// Free bytes of the disk, including those that are promised.
    pub disk_free_bytes: u64,
    /// Bytes of the disk promised to bids and transfers.
    pub disk_promised_bytes: u64,
    /// Bytes of memory promised to bids and transfers, or waiting for the disk.
    pub memory_promised_bytes: u64,
    /// Limit of these.
    pub memory_bytes_max: u64,
    /// Open bids.
    pub bids: usize,
    /// Transfers.
    pub transfers: usize,
    /// Reads that wait for the disk.
    pub reads: usize,
    /// The present round of garbage collection.
    pub round: Round,
    /// The last round whose names were all listed.
    pub listed: Round,
    /// The last round whose garbage was all deleted.
    pub swept: Round,
}
