//! Bounds of a replica's queues and tables. A bound named `_MAX` without a unit counts items of one
//! partition.

/// Open ops. At the bound further prepares are dropped, and clients retry.
pub(crate) const OPEN_OPS_MAX: usize = 8192;
/// Decisions that not every member has acknowledged. At the bound the primary stops deciding.
pub(crate) const UNRELEASED_MAX: usize = 65_536;
/// Decisions that arrived before earlier ones and are kept until the gap is filled. Further ones
/// are dropped and sent again.
pub(crate) const EARLY_DECISIONS_MAX: usize = 256;
/// Scans that read the engine at the same time. Further ones are dropped, and clients retry.
pub(crate) const SCANS_MAX: usize = 16;
/// About how many bytes are read for a piece of a scan that returns keys without values.
pub(crate) const SCAN_PAGE_BYTES: usize = 16 << 10;
/// Entries sent to a chain's successor that it has not logged yet. Further ones wait.
pub(crate) const CHAIN_ENTRIES_IN_FLIGHT_MAX: u64 = 512;
/// Ops that arrived along a chain before their entries and are kept. Beyond the bound the oldest
/// are dropped and sent again.
pub(crate) const CHAIN_OPS_EARLY_MAX: usize = 64;
/// Gets of one key that wait for the outcome of an op. Further ones are dropped, and clients retry.
pub(crate) const WAITING_GETS_MAX: usize = 1024;
/// Damaged keys under repair at the same time. Others are repaired when they are next read.
pub(crate) const REPAIRS_MAX: usize = 256;
/// About how many bytes the records and results of all clients may take. Beyond the bound clients
/// are forgotten (R10).
pub const CLIENTS_BYTES_MAX: usize = 4 << 20;
/// Bytes for the results of one client. Beyond the bound its oldest results are forgotten (R10).
/// Enough for all ops that a client may have in flight.
pub const CLIENT_BYTES_MAX: usize = 2 << 20;
/// Pages received from other members that wait to be compared with local entries. Further ones are
/// dropped; the next pass of the scrub sends them again.
pub(crate) const COMPARES_MAX: usize = 64;
/// Keys with an expiry that are remembered. Beyond the bound, those that expire last are left for
/// the scrub to find.
pub(crate) const EXPIRING_KEYS_MAX: usize = 8192;
/// Deletes of overdue values that are open at a node. At the bound it starts no further ones in the
/// background.
pub(crate) const EXPIRY_DELETES_OPEN_MAX: usize = 256;
/// Datagrams of decisions sent in answer to one request for missing decisions.
pub(crate) const CATCH_UP_DATAGRAMS_MAX: usize = 32;
/// Tombstones remembered to be dropped later. Those beyond the bound are left for the scrub to
/// find.
pub(crate) const TOMBSTONES_MAX: usize = 65_536;
/// Latest decisions whose keys are remembered. A joiner that missed no more than these is sent just
/// their entries, without a scan of the partition. Each takes 32 bytes, plus twice the key's length
/// if that is above 24.
pub(crate) const RECENT_DECISIONS_MAX: usize = 65_536;
/// Keys looked up for one frame of a copy of recent decisions.
pub(crate) const COPY_KEYS_MAX: usize = 256;
/// Engine pages read for one frame of a copy, if few of their entries are new.
pub const COPY_PAGES_MAX: usize = 16;
/// Bytes of entries in one frame of a copy.
pub(crate) const COPY_CHUNK_BYTES: usize = 128 << 10;
