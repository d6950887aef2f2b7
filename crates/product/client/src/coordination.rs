//! Who finds the node for a request, where that is not the switch: the comparisons of TurboKV §8. Of keyspaces whose members are chains only.
//!
//! ```text
//!   switch   ──▶ vring ─▶ the switch knows
//!   server   ──▶ any node, by chance ─▶ it knows
//!   client   ──▶ the node itself, by a directory; Misdirected, or silence ─▶ the directory is asked for again, of any node
//! ```
//!
//! Who knows nothing yet, or has no record for a key, asks any node.

use crate::random::Jitter;
use alloc::vec::Vec;
use core::mem::take;
use core::net::SocketAddrV4;
use nicekv_proto::directory::{Directed, DirectoryPage};
use nicekv_proto::placement::DirectoryFetch;
use nicekv_proto::{HeaderLayout, KeyDigest, KeyspaceId, OpId, Opcode};

/// Who finds the node for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coordination {
    /// The switch: the client knows nothing of nodes.
    #[default]
    Switch,
    /// Any node, which passes the request on to the one that it is for.
    Server,
    /// The client.
    Client,
}

/// After so long a page is asked for again, and a directory in doubt.
const ASK_INTERVAL_NS: u64 = 20_000_000;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Coordinator {
    coordination: Coordination,
    nodes: Vec<SocketAddrV4>,
    chance: Jitter,
    fetch: DirectoryFetch,
    /// When the directory is asked for; `None`: it is not in doubt.
    ask_at_ns: Option<u64>,
    /// It is not asked for before, unless an answer says that there is more.
    not_before_ns: u64,
    is_asking: bool,
    /// Requests that were refused, to be sent again by the next version.
    refused: Vec<(u32, OpId)>,
    wrapped: Vec<u8>,
}

impl Coordinator {
    /// Without nodes it is the switch that finds one.
    pub(crate) fn new(coordination: Coordination, nodes: &[SocketAddrV4], seed: u64) -> Self {
        let coordination = if nodes.is_empty() { Coordination::Switch } else { coordination };
        Self {
            coordination,
            nodes: nodes.to_vec(),
            chance: Jitter(seed),
            fetch: DirectoryFetch::default(),
            ask_at_ns: (coordination == Coordination::Client).then_some(0),
            not_before_ns: 0,
            is_asking: false,
            refused: Vec::new(),
            wrapped: Vec::new(),
        }
    }

    pub(crate) fn is_switch(&self) -> bool {
        self.coordination == Coordination::Switch
    }

    fn any_node(&mut self) -> SocketAddrV4 {
        self.nodes[self.chance.below(self.nodes.len())]
    }

    /// Where the request in `out` goes, and wraps it if it has to be.
    pub(crate) fn direct(&mut self, out: &mut Vec<u8>) -> SocketAddrV4 {
        let header = HeaderLayout::peek(out).filter(|_| self.coordination == Coordination::Client);
        let found = header.and_then(|header| {
            let value = KeyDigest(header.digest).match_value();
            let record = self.fetch.directory().find(KeyspaceId(header.keyspace.get()), value)?;
            let to = if header.opcode() == Some(Opcode::Update) { record.head } else { record.tail };
            let op =
                OpId { client: nicekv_proto::ClientId(header.client.get()), sequence: header.sequence.get() };
            let (keyspace, partition, epoch) = (record.keyspace, record.partition, record.epoch);
            Directed { keyspace, op, partition, epoch, request: out }.encode(&mut self.wrapped);
            Some(to)
        });
        let Some(to) = found else { return self.any_node() };
        core::mem::swap(out, &mut self.wrapped);
        to
    }

    /// The directory may be out of date.
    pub(crate) fn doubt(&mut self, now_ns: u64) {
        if self.coordination == Coordination::Client && self.ask_at_ns.is_none() {
            self.ask_at_ns = Some(now_ns.max(self.not_before_ns));
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.ask_at_ns
    }

    pub(crate) fn on_deadline(&mut self, now_ns: u64) {
        if self.ask_at_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            (self.is_asking, self.not_before_ns) = (true, now_ns + ASK_INTERVAL_NS);
            self.ask_at_ns = Some(self.not_before_ns);
        }
    }

    /// Writes a question to `out`, if it is time for one.
    pub(crate) fn poll_query(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        if !take(&mut self.is_asking) {
            return None;
        }
        self.fetch.query().encode(out);
        Some(self.any_node())
    }

    /// A request of this slot was refused, one of so many slots.
    pub(crate) fn refused(&mut self, index: u32, op: OpId, slots: usize) {
        if self.refused.len() < slots {
            self.refused.push((index, op));
        }
    }

    /// A page came: the requests that were refused, if they are to be sent again now.
    pub(crate) fn on_page(&mut self, from: SocketAddrV4, page: &DirectoryPage<'_>) -> Vec<(u32, OpId)> {
        if !self.nodes.contains(&from) {
            return Vec::new();
        }
        let before = self.fetch.directory().version();
        self.is_asking |= self.fetch.on_page(page);
        let version = self.fetch.directory().version();
        if !self.is_asking && !self.fetch.is_open() && version > 0 {
            self.ask_at_ns = None;
        }
        if version == before { Vec::new() } else { take(&mut self.refused) }
    }
}
