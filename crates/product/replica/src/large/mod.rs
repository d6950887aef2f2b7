//! Large values at a node: how they arrive, where they are stored, and how they are read.
//!
//! ```text
//!   client ──Update, SetLarge──▶ partition: new? ─▶ is the value on disk? ──yes──▶ prepared, as any op
//!                                                       │ no
//!          ──Chunk …──▶ transfer ─▶ disk ─▶ whole? ─────┘ the update goes to the partition again
//!          ◀──TransferReport──
//!   an entry or op names a value that is not on disk ─▶ missing ──ValueRequest──▶ member ──ValuePart──▶ disk
//!   client ──ReadChunks, token──▶ disk ──Chunk …──▶ client
//! ```
//!
//! Partitions handle only short ops and entries that name values. A member has the value on disk
//! before it acknowledges the op (R1, L1), and a joiner has all values before it is complete (R7,
//! L3). An entry that is copied or repaired may arrive before its value, which is fetched then. A
//! name has one content for ever, so any node that has the value may send it, whatever the epoch.
//!
//! * `index`: the values on disk, and what uses them.
//! * `transfer`: one value that arrives from a client. `incoming`: all that clients send.
//! * `fetch`: values from other members. `making`: values built here. `reading`: values sent to
//!   clients and members.
//! * `restart_scan`: the pass over entries after a restart. `scrub`, `progress`: checks of values
//!   at rest.

mod fetch;
mod incoming;
mod index;
mod making;
mod makings;
mod progress;
mod reading;
mod restart_scan;
mod scrub;
mod transfer;

pub(crate) use index::ValueIndex;
pub(crate) use making::Recipe;
pub(crate) use making::ValuePart;
pub(crate) use transfer::LargePut;

use crate::types::{Map, StreamPeer};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use making::Making;
use nicekv_proto::large::Reference;
use nicekv_proto::{KeyspaceId, OpId, PartitionId};
use transfer::Transfer;

/// How many transfers from clients may be under way at once.
pub(crate) const TRANSFERS_MAX: usize = 256;
/// How many chunks of a transfer may be in flight: fewer than the queues between sender and process
/// hold (a veth's holds 256), and more than are sent while a report is on its way.
const ROOM: u32 = 128;
/// A client that has sent nothing of a value for this long may have stopped. The time is longer
/// than a client waits before it asks, and shorter than other clients should wait for its op.
const PAUSE_NS: u64 = 100_000_000;
/// Values that arrive or are built here count as stalled when none of them has advanced for this
/// long. The last steps take longest: the disk syncs the value, then the op that names it.
const STALLED_NS: u64 = 2_000_000_000;
/// How many values are fetched at once.
const FETCHES_MAX: usize = 4;
/// How many requests may wait for values that are being fetched. Further ones are dropped, and
/// their clients retry.
const WAITING_MAX: usize = 256;
/// How many reads of large values may be under way at once.
const READS_MAX: usize = 256;

/// The component that reads a value from disk.
#[derive(Clone, Copy, Debug)]
enum Reader {
    Client {
        to: SocketAddrV4,
        keyspace: KeyspaceId,
        op: OpId,
        first: u32,
    },
    Member {
        peer: StreamPeer,
        offset: u32,
    },
    /// A value that is being built, of which the one read is a part.
    Making {
        name: OpId,
    },
    /// The scrub.
    Scrub,
}

/// A value that this node is fetching from another member.
#[derive(Clone, Copy, Debug)]
struct Fetching {
    reference: Reference,
    partition: PartitionId,
    from: SocketAddrV4,
    /// All bytes before this offset are on disk.
    offset: u32,
    asked_ns: u64,
    /// How many members were asked, not counting one that was known to have the value.
    asked: usize,
    /// How many members did not have the value, or have sent wrong content.
    refusals: usize,
    /// All bytes have arrived; the disk is checking the digest.
    is_ending: bool,
}

/// Progress of the pass after a restart.
#[derive(Clone, Debug, Default)]
struct Pass {
    partition: PartitionId,
    /// The last key that was read.
    after: Option<Vec<u8>>,
    pending: Option<u64>,
}

/// A node's state of large values, except for the index of those on disk.
#[derive(Clone, Default)]
pub(crate) struct Values {
    transfers: Map<OpId, Transfer>,
    fetches: BTreeMap<OpId, Fetching>,
    makings: BTreeMap<OpId, Making>,
    /// When a value that arrives or is built here has last advanced.
    advanced_ns: u64,
    /// The value whose update is just being handled although the disk has no room for it.
    without_room: Option<OpId>,
    /// A value is missing and not requested yet.
    is_wanting: bool,
    /// For each missing value the datagrams to handle again when it is on disk, with their senders.
    waiting: BTreeMap<OpId, Vec<(SocketAddrV4, Vec<u8>)>>,
    /// The value of the last fetch, and the number of fetches started so far: each fetch asks
    /// another member first.
    last_fetch: Option<OpId>,
    tries: usize,
    /// Reads under way, in the order in which the disk answers them.
    reads: VecDeque<(u64, OpId, Reader)>,
    pass: Pass,
    scrub: progress::ValueScrub,
    /// The secret key from which tokens are computed.
    secret: [u8; 32],
    pub counters: ValueCounters,
}

/// Counters of large values since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueCounters {
    pub transfers: u64,
    pub transfers_refused: u64,
    pub transfers_abandoned: u64,
    pub chunks: u64,
    pub chunks_known: u64,
    pub chunks_refused: u64,
    /// Values whose content did not match the digest that their op had named.
    pub wrong: u64,
    pub fetched: u64,
    pub made: u64,
    pub chunks_sent: u64,
    pub reads_refused: u64,
    pub removed: u64,
    /// Damaged values found on disk.
    pub damaged: u64,
    /// Bytes read by the scrub, and how many passes it has finished.
    pub scrubbed_bytes: u64,
    pub scrubs: u64,
}

impl Values {
    /// State of a process that has just started.
    pub(crate) fn new(incarnation: u64, storage: u128, hash_seed: u64) -> Self {
        let mut seed = Vec::new();
        seed.extend_from_slice(&incarnation.to_be_bytes());
        seed.extend_from_slice(&storage.to_be_bytes());
        seed.extend_from_slice(&hash_seed.to_be_bytes());
        Self { secret: blake3::derive_key("nicekv tokens of reads", &seed), ..Self::default() }
    }

    /// The token that a client at this address must show before the node sends it more bytes than
    /// it has received from it (L5).
    pub(crate) fn token(&self, client: SocketAddrV4) -> u64 {
        let mut address = [0; 6];
        address[..4].copy_from_slice(&client.ip().octets());
        address[4..].copy_from_slice(&client.port().to_be_bytes());
        let hash = blake3::keyed_hash(&self.secret, &address);
        u64::from_be_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
    }

    /// Whether a value for this partition is arriving here.
    pub(crate) fn arrive_in(&self, partition: PartitionId) -> bool {
        let mut sent = self.transfers.values().map(|transfer| transfer.partition);
        sent.any(|of| of == partition)
            || self.fetches.values().any(|fetching| fetching.partition == partition)
    }

    /// When the next transfer report or timeout is due.
    pub(crate) fn next_deadline(&self) -> u64 {
        self.transfers.values().map(Transfer::next_deadline).min().unwrap_or(u64::MAX)
    }
}
