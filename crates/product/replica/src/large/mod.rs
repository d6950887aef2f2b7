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
//! Partitions handle short ops and entries that name values. A value is on disk before a member
//! acknowledges its op (R1), and before a joiner is complete (R7); in between, an entry may name a
//! value that is still being fetched. A value has one content for ever, so any node that has it may
//! send it, whatever the epoch.
//!
//! * `index`: the values on disk, and what uses them; `transfer`: one that arrives from a client;
//! * `incoming`: from clients; `fetch`: from members; `making`: built here; `reading`: to clients
//!   and members; `restart_scan`: after a restart; `scrub`, `progress`: checks of values at rest.

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

/// Transfers from clients at once.
pub(crate) const TRANSFERS_MAX: usize = 256;
/// Chunks of a transfer in flight: fewer than the queues between sender and process hold (a veth's
/// holds 256), and more than are sent while a report is on its way.
const ROOM: u32 = 128;
/// A client that has sent nothing of a value for this long may have stopped: longer than it waits
/// before it asks, shorter than others should wait for its op.
const PAUSE_NS: u64 = 100_000_000;
/// Values fetched at once.
const FETCHES_MAX: usize = 4;
/// Requests that wait for values that are fetched. Further ones are dropped, and clients retry.
const WAITING_MAX: usize = 256;
/// Reads of large values at once.
const READS_MAX: usize = 256;

/// The purpose of a read.
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
    /// A value that is built from it.
    Making {
        name: OpId,
    },
    /// The scrub.
    Scrub,
}

/// A value that is fetched from a member.
#[derive(Clone, Copy, Debug)]
struct Fetching {
    reference: Reference,
    partition: PartitionId,
    from: SocketAddrV4,
    /// Everything before is on disk.
    offset: u32,
    asked_ns: u64,
    /// Members asked, besides one that was known to have it.
    asked: usize,
    /// Members that do not have it, or have sent a wrong one.
    refusals: usize,
    /// Everything has arrived, and the disk checks it.
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

/// A node's state of large values, besides what its disk holds.
#[derive(Clone, Default)]
pub(crate) struct Values {
    transfers: Map<OpId, Transfer>,
    fetches: BTreeMap<OpId, Fetching>,
    makings: BTreeMap<OpId, Making>,
    /// The value whose update is being handled without room for it.
    without_room: Option<OpId>,
    /// Something is missing that was not requested yet.
    is_wanting: bool,
    /// Requests to handle again when a value is on disk, with their senders, as they arrived.
    waiting: BTreeMap<OpId, Vec<(SocketAddrV4, Vec<u8>)>>,
    /// The last fetch, and the number of tries over all fetches, to ask another member each time.
    last_fetch: Option<OpId>,
    tries: usize,
    /// In the order in which the disk answers.
    reads: VecDeque<(u64, OpId, Reader)>,
    pass: Pass,
    scrub: progress::ValueScrub,
    /// The key of tokens.
    secret: [u8; 32],
    pub counters: ValueCounters,
}

/// Counts of large values since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueCounters {
    pub transfers: u64,
    pub transfers_refused: u64,
    pub transfers_abandoned: u64,
    pub chunks: u64,
    pub chunks_known: u64,
    pub chunks_refused: u64,
    /// The content was not what its op had named.
    pub wrong: u64,
    pub fetched: u64,
    pub made: u64,
    pub chunks_sent: u64,
    pub reads_refused: u64,
    pub removed: u64,
    /// Damaged values on disk.
    pub damaged: u64,
    /// Bytes read by the scrub, and its finished passes.
    pub scrubbed_bytes: u64,
    pub scrubs: u64,
}

impl Values {
    /// For a process that has just started.
    pub(crate) fn new(incarnation: u64, storage: u128, hash_seed: u64) -> Self {
        let mut seed = Vec::new();
        seed.extend_from_slice(&incarnation.to_be_bytes());
        seed.extend_from_slice(&storage.to_be_bytes());
        seed.extend_from_slice(&hash_seed.to_be_bytes());
        Self { secret: blake3::derive_key("nicekv tokens of reads", &seed), ..Self::default() }
    }

    /// The token that a client must show before it is sent more than it has sent.
    pub(crate) fn token(&self, client: SocketAddrV4) -> u64 {
        let mut address = [0; 6];
        address[..4].copy_from_slice(&client.ip().octets());
        address[4..].copy_from_slice(&client.port().to_be_bytes());
        let hash = blake3::keyed_hash(&self.secret, &address);
        u64::from_be_bytes(*hash.as_bytes().first_chunk().expect("it is longer"))
    }

    /// When something is due.
    pub(crate) fn next_deadline(&self) -> u64 {
        self.transfers.values().map(Transfer::next_deadline).min().unwrap_or(u64::MAX)
    }
}
