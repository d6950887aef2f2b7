//! Bounds of a replica.

/// Most ops of one partition that may be open at once; beyond it prepares are not taken in and clients retry.
pub(crate) const OPEN_OPS_MAX: usize = 8192;
/// Most decisions of one partition that some member has not yet acknowledged; beyond it the primary decides no more.
pub(crate) const UNRELEASED_MAX: usize = 65_536;
/// Most decisions of one partition that are kept although some before them are missing; further ones are sent again.
pub(crate) const EARLY_DECISIONS_MAX: usize = 256;
/// Most scans of one partition that are read at once; further ones are dropped and clients ask again.
pub(crate) const SCANS_MAX: usize = 16;
/// How much is read for a piece of a scan that tells no values, about.
pub(crate) const SCAN_PAGE_BYTES: usize = 16 << 10;
/// Most entries of one partition that are under way to a chain's successor; the others follow as it logs these.
pub(crate) const CHAIN_ENTRIES_IN_FLIGHT_MAX: u64 = 512;
/// Most ops of one partition that are kept because they came before their entries along a chain; beyond it the oldest come again.
pub(crate) const CHAIN_OPS_EARLY_MAX: usize = 64;
/// Most gets that wait for the outcome of an op, per key; further ones are dropped and clients retry.
pub(crate) const WAITING_GETS_MAX: usize = 1024;
/// Most damaged keys of one partition that are got back from other members at once; others when they are read again.
pub(crate) const REPAIRS_MAX: usize = 256;
/// Most memory that a partition takes to remember clients and their results, about; beyond it clients are forgotten (R10).
pub const CLIENTS_BYTES_MAX: usize = 4 << 20;
/// Most memory that a partition takes to remember the results of one client; beyond it the oldest are forgotten (R10). Enough for what
/// a client may have in flight.
pub const CLIENT_BYTES_MAX: usize = 2 << 20;
/// Most pages of other members that a partition has in hand to compare them with its own; further ones are dropped, and come again with
/// the next pass of their scrub.
pub(crate) const COMPARES_MAX: usize = 64;
/// Most keys of one partition of which it is remembered that they expire; beyond it the latest are left to the scrub.
pub(crate) const EXPIRING_KEYS_MAX: usize = 8192;
/// Most deletions of overdue values that a node has under way when it begins another one in the background.
pub(crate) const EXPIRY_DELETES_OPEN_MAX: usize = 256;
/// Most datagrams of decisions that one request for missing ones is answered with.
pub(crate) const CATCH_UP_DATAGRAMS_MAX: usize = 32;
/// Most deletions of one partition that are remembered to be dropped; beyond it they are left to the scrub.
pub(crate) const TOMBSTONES_MAX: usize = 65_536;
/// Latest decisions of one partition of which it is remembered what they wrote: whoever was away for no more of them gets that, and
/// nobody reads the partition for it. Each takes 32 bytes, and twice its key if that is longer than 24.
pub(crate) const RECENT_DECISIONS_MAX: usize = 65_536;
/// Most keys that are looked up for one frame of a copy of what they wrote.
pub(crate) const COPY_KEYS_MAX: usize = 256;
/// Most pages of the engine that are read for one frame of a copy, if little on them is new.
pub const COPY_PAGES_MAX: usize = 16;
/// Bytes of entries that one frame of a copy carries.
pub(crate) const COPY_CHUNK_BYTES: usize = 128 << 10;
