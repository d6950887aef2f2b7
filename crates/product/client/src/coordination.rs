//! Coordination: who finds the node for a request to a chain. Switch coordination is the product's; the others exist to be
//! compared with it (TurboKV §8).
//!
//! ```text
//!   switch   ──▶ vring ──▶ the switch finds the node
//!   server   ──▶ a random node, which forwards the request
//!   client   ──▶ the node itself, by a directory; if it refuses (Misdirected) or is silent, the directory is fetched again
//! ```
//!
//! While the directory lacks a key, the client asks a random node.

use crate::random::Jitter;
use alloc::vec::Vec;
use core::mem::take;
use core::net::SocketAddrV4;
use nicekv_proto::directory::{Directed, DirectoryPage};
use nicekv_proto::placement::DirectoryFetch;
use nicekv_proto::{HeaderLayout, KeyDigest, KeyspaceId, OpId, Opcode};

/// The component that finds the node for a request to a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coordination {
    /// The switch: the client knows no nodes.
    #[default]
    Switch,
    /// Any node, which forwards the request.
    Server,
    /// The client, with a directory that it fetches from nodes.
    Client,
}

/// How often a page is requested, and a doubtful directory checked.
const QUERY_INTERVAL_NS: u64 = 20_000_000;

/// Finds the nodes for a client's requests.
#[derive(Clone, Debug)]
pub(crate) struct Coordinator {
    coordination: Coordination,
    nodes: Vec<SocketAddrV4>,
    random: Jitter,
    fetch: DirectoryFetch,
    /// When to query the directory; `None`: it is not in doubt.
    query_at_ns: Option<u64>,
    /// No query is sent earlier, unless an answer says that there are more pages.
    not_before_ns: u64,
    is_querying: bool,
    /// Refused requests, to be sent again by the next version of the directory.
    refused: Vec<(u32, OpId)>,
    wrapped: Vec<u8>,
}

impl Coordinator {
    /// If `nodes` is empty, the switch coordinates.
    pub(crate) fn new(coordination: Coordination, nodes: &[SocketAddrV4], seed: u64) -> Self {
        let coordination = if nodes.is_empty() { Coordination::Switch } else { coordination };
        Self {
            coordination,
            nodes: nodes.to_vec(),
            random: Jitter(seed),
            fetch: DirectoryFetch::default(),
            query_at_ns: (coordination == Coordination::Client).then_some(0),
            not_before_ns: 0,
            is_querying: false,
            refused: Vec::new(),
            wrapped: Vec::new(),
        }
    }

    pub(crate) fn is_switch(&self) -> bool {
        self.coordination == Coordination::Switch
    }

    fn any_node(&mut self) -> SocketAddrV4 {
        self.nodes[self.random.below(self.nodes.len())]
    }

    /// Returns the address for the request in `out`. If it is sent directly to its node, the
    /// request is wrapped.
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

    /// Marks the directory as possibly out of date, so that it is queried.
    pub(crate) fn doubt(&mut self, now_ns: u64) {
        if self.coordination == Coordination::Client && self.query_at_ns.is_none() {
            self.query_at_ns = Some(now_ns.max(self.not_before_ns));
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.query_at_ns
    }

    pub(crate) fn on_deadline(&mut self, now_ns: u64) {
        if self.query_at_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            (self.is_querying, self.not_before_ns) = (true, now_ns + QUERY_INTERVAL_NS);
            self.query_at_ns = Some(self.not_before_ns);
        }
    }

    /// Writes a query to `out`, if one is due.
    pub(crate) fn poll_query(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        if !take(&mut self.is_querying) {
            return None;
        }
        self.fetch.query().encode(out);
        Some(self.any_node())
    }

    /// A slot's request was refused; `slots` bounds how many are remembered.
    pub(crate) fn refused(&mut self, index: u32, op: OpId, slots: usize) {
        if self.refused.len() < slots {
            self.refused.push((index, op));
        }
    }

    /// A page has arrived. Returns the refused requests if they are to be sent again now.
    pub(crate) fn on_page(&mut self, from: SocketAddrV4, page: &DirectoryPage<'_>) -> Vec<(u32, OpId)> {
        if !self.nodes.contains(&from) {
            return Vec::new();
        }
        let before = self.fetch.directory().version();
        self.is_querying |= self.fetch.on_page(page);
        let version = self.fetch.directory().version();
        if !self.is_querying && !self.fetch.is_open() && version > 0 {
            self.query_at_ns = None;
        }
        if version == before { Vec::new() } else { take(&mut self.refused) }
    }
}
