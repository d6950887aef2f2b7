//! Large values at a node: how they come, where they are, and how they are read.
//!
//! ```text
//!   client ──Update, SetLarge──▶ protocol: new? ─▶ is the value here? ──yes──▶ prepared, as any op
//!                                                       │ no
//!          ──Chunk …──▶ transfer ─▶ disk ─▶ whole? ─────┘ the update goes to the protocol once more
//!          ◀──TransferReport──
//!   entry or op of another member speaks of what is not here ─▶ lacking ──ValueRequest──▶ member ──ValuePart──▶ disk
//!   client ──ReadChunks, token──▶ disk ──Chunk …──▶ client
//! ```
//!
//! A protocol sees ops and entries that are short. What they speak of is on the disk before a member acknowledges an op (R1), and before a joiner is complete (R7); in between, an
//! entry may speak of what is still being fetched. A value has one content for ever, so who has it may give it, whatever its partition's epoch.
//!
//! * `index`: what is on the disk, and who speaks of it; `transfer`: one that comes from a client;
//! * `incoming`: from clients; `fetch`: from members; `making`: made here of others; `reading`: to clients and members; `pass`: after a restart; `scrub`, `progress`: what nobody
//!   reads.

mod fetch;
mod incoming;
mod index;
mod making;
mod makings;
mod pass;
mod progress;
mod reading;
mod scrub;
mod transfer;

pub(crate) use index::ValueIndex;
pub(crate) use making::Recipe;
pub(crate) use making::ValuePart;
pub(crate) use transfer::LargePut;

use crate::kinds::{Map, StreamPeer};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use making::Making;
use nicekv_proto::large::Reference;
use nicekv_proto::{KeyspaceId, OpId, PartitionId};
use transfer::Transfer;

/// Transfers from clients that may be under way at once.
pub(crate) const TRANSFERS_MAX: usize = 256;
/// Chunks of a transfer that may be under way: fewer than the queues between sender and process have room for (a veth's has 256), and more than are sent while a report is on its way.
const ROOM: u32 = 128;
/// A client that has sent nothing of a value for so long may not go on: longer than it waits before it asks, shorter than others are to wait for its op.
const PAUSE_NS: u64 = 100_000_000;
/// Values that may be fetched at once.
const FETCHES_MAX: usize = 4;
/// Requests that wait for values that are fetched; more are dropped, and clients retry.
const WAITING_MAX: usize = 256;
/// Reads of large values that may be under way at once.
const READS_MAX: usize = 256;

/// Who has asked for a part of a value.
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
    /// What is made of it.
    Making {
        name: OpId,
    },
    /// What nobody reads is looked at.
    Scrub,
}

/// A value that is being fetched from a member.
#[derive(Clone, Copy, Debug)]
struct Fetching {
    reference: Reference,
    partition: PartitionId,
    from: SocketAddrV4,
    /// All before is here.
    offset: u32,
    asked_ns: u64,
    /// How many members were asked, beside one that was known to have it.
    asked: usize,
    /// How many have said that they have it not, or given what is not right.
    refusals: usize,
    /// All is here, and the disk has to say whether it is right.
    is_ending: bool,
}

/// How far the pass after a restart is.
#[derive(Clone, Debug, Default)]
struct Pass {
    partition: PartitionId,
    /// The last key that was read.
    after: Option<Vec<u8>>,
    pending: Option<u64>,
}

/// What a node knows of large values, beside what its disk holds.
#[derive(Clone, Default)]
pub(crate) struct Values {
    transfers: Map<OpId, Transfer>,
    fetches: BTreeMap<OpId, Fetching>,
    makings: BTreeMap<OpId, Making>,
    /// The value whose update is looked at just now although there is no room for it.
    without_room: Option<OpId>,
    /// Something is lacking that was not asked for.
    is_wanting: bool,
    /// Requests that are to be looked at once more when a value is here: from where, and as they came.
    waiting: BTreeMap<OpId, Vec<(SocketAddrV4, Vec<u8>)>>,
    /// The last that was begun, and how many tries all of them took: another member is asked each time.
    last_fetch: Option<OpId>,
    tries: usize,
    /// In the order in which the disk answers.
    reads: VecDeque<(u64, OpId, Reader)>,
    pass: Pass,
    scrub: progress::ValueScrub,
    /// From it come tokens.
    secret: [u8; 32],
    /// For operators.
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
    /// What came was not what its op had said.
    pub wrong: u64,
    pub fetched: u64,
    pub made: u64,
    pub chunks_sent: u64,
    pub reads_refused: u64,
    pub removed: u64,
    /// Values on the disk were damaged.
    pub damaged: u64,
    /// Read through by the scrub, and its finished passes.
    pub scrubbed_bytes: u64,
    pub scrubs: u64,
}

impl Values {
    /// Of this start of a process.
    pub(crate) fn new(incarnation: u64, storage: u128, hash_seed: u64) -> Self {
        let mut seed = Vec::new();
        seed.extend_from_slice(&incarnation.to_be_bytes());
        seed.extend_from_slice(&storage.to_be_bytes());
        seed.extend_from_slice(&hash_seed.to_be_bytes());
        Self { secret: blake3::derive_key("nicekv tokens of reads", &seed), ..Self::default() }
    }

    /// What a client there has to show before it is sent more than it has sent.
    pub(crate) fn token(&self, client: SocketAddrV4) -> u64 {
        let mut address = [0; 6];
        address[..4].copy_from_slice(&client.ip().octets());
        address[4..].copy_from_slice(&client.port().to_be_bytes());
        let hash = blake3::keyed_hash(&self.secret, &address);
        u64::from_be_bytes(*hash.as_bytes().first_chunk().expect("it is longer"))
    }

    /// When something is to be done.
    pub(crate) fn next_deadline(&self) -> u64 {
        self.transfers.values().map(Transfer::next_deadline).min().unwrap_or(u64::MAX)
    }
}
