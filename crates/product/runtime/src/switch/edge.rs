//! Edges: senders in the switch's own process run its pipeline themselves, which saves one hop and
//! two system calls.
//!
//! ```text
//!   metadata ──tables──▶ agent ─▶ EdgeRouters ─┬─▶ the switch's router ◀── datagrams of all other senders
//!            ◀──acknowledged── (all have them) └─▶ the router of each Edge ◀── its sender, straight to the nodes
//! ```
//!
//! An edge is part of its switch: the switch's agent installs tables in the routers of all edges,
//! and acknowledges them once the last router has them. Nodes in the same process are reached in
//! memory (`inbox`). A sender locks its router from matching a datagram until the kernel has taken
//! it, so no datagram leaves by old tables after they were replaced (R6). When the switch stops,
//! its edges lose their tables, and drop all datagrams (R12).
//!
//! Edges do not handle hot keys, because a hot key must be counted in one place (H8). Requests with
//! room for a stamp, and messages about hot keys, go to the switch's own socket unchanged.

use super::route;
use crate::UdpEndpoint;
use crate::inbox::LocalNetwork;
use nicekv_proto::route::ROOM_AT;
use nicekv_proto::{HeaderLayout, Opcode, ROOM_STAMP};
use nicekv_switch::{
    Backend, BackendError, Counters, EntryRequests, HotConfig, HotEntry, HotReading, Register, Router, Table,
    TableError, TableSet, TableStatus, TableUpdate, VringSet,
};
use std::io;
use std::net::SocketAddrV4;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// Most edges during a switch's lifetime: enough for the nodes that `nicekv up` starts, and the
/// threads of a gateway.
const EDGES_MAX: usize = 128;
/// Most datagrams that are matched before they are sent.
const ROUTED_MAX: usize = 512;

/// Lets senders of the switch's process become its edges; clones are equivalent.
#[derive(Clone, Debug)]
pub struct Edges {
    shared: Arc<Mutex<Shared>>,
    pub(crate) network: LocalNetwork,
}

#[derive(Debug)]
struct Shared {
    vrings: VringSet,
    /// Installed tables; `None` once the switch has stopped.
    tables: Option<TableSet>,
    /// Routers of all edges. Those of dropped edges remain, because their counters still count.
    routers: Vec<Arc<Mutex<Router>>>,
}

impl Edges {
    /// Creates an edge for `endpoint`, which must be bound to a specific address.
    pub(crate) fn attach(&self, endpoint: &UdpEndpoint) -> io::Result<Edge> {
        let from = endpoint.local_address();
        let mut shared = locked(&self.shared);
        if from.ip().is_unspecified() || shared.routers.len() >= EDGES_MAX {
            let line = format!(
                "no edge of the switch for {from}: of {EDGES_MAX} there are {}",
                shared.routers.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, line));
        }
        let mut router = Router::new(shared.vrings.clone()).map_err(io::Error::other)?;
        if let Some(tables) = &shared.tables {
            router.install(tables).map_err(io::Error::other)?;
        }
        let router = Arc::new(Mutex::new(router));
        shared.routers.push(router.clone());
        let network = self.network.clone();
        Ok(Edge { from, router, network, datagram: Vec::new(), bytes: Vec::new(), copies: Vec::new() })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

/// The pipeline of one sender.
#[derive(Debug)]
pub(crate) struct Edge {
    from: SocketAddrV4,
    router: Arc<Mutex<Router>>,
    network: LocalNetwork,
    datagram: Vec<u8>,
    /// Matched datagrams, and the destination and range of each copy.
    bytes: Vec<u8>,
    copies: Vec<Copy>,
}

impl Edge {
    /// Sends datagrams until `fill` returns `None`. `fill` writes each one to an empty buffer and
    /// returns its destination; a datagram for a vring goes to the hosts in the tables.
    pub(crate) fn send_with(
        &mut self,
        endpoint: &mut UdpEndpoint,
        mut fill: impl FnMut(&mut Vec<u8>) -> Option<SocketAddrV4>,
    ) -> io::Result<()> {
        let mut to = fill(&mut self.datagram);
        if to.is_none() {
            return Ok(());
        }
        let router = self.router.clone();
        let mut router = locked(&router);
        while to.is_some() {
            self.bytes.clear();
            self.copies.clear();
            for _ in 0..ROUTED_MAX {
                let Some(address) = to else { break };
                self.pass(&mut router, address);
                to = fill(&mut self.datagram);
            }
            self.send(endpoint)?;
        }
        Ok(())
    }

    /// Runs the pipeline on the datagram if it is for a vring.
    fn pass(&mut self, router: &mut Router, to: SocketAddrV4) {
        let Self { from, datagram, bytes, copies, .. } = self;
        let length = datagram.len();
        let is_for_vring = router.vrings().ring_of(to.ip().octets()).is_some();
        if is_for_vring && !is_of_hot_keys(datagram) {
            route(router, *from, to, datagram, &mut |receiver, piece| {
                // Copies of the whole datagram come after all pieces; its bytes are appended below.
                copies.push((receiver, bytes.len()..bytes.len() + length));
                bytes.extend_from_slice(piece.unwrap_or_default());
            });
        } else {
            copies.push((to, bytes.len()..bytes.len() + length));
        }
        // Copied after the pipeline has stamped the sender's address into it.
        bytes.extend_from_slice(datagram);
    }

    /// Sends all matched datagrams. Those for the same host are sent together, so that its thread
    /// is woken once, or the kernel can form a GSO batch.
    fn send(&mut self, endpoint: &mut UdpEndpoint) -> io::Result<()> {
        let Self { from, network, bytes, copies, .. } = self;
        copies.sort_by_key(|(to, _)| *to);
        let is_remote = |copies: &[Copy]| {
            let datagrams = copies.iter().map(|(_, range)| &bytes[range.clone()]);
            network.deliver(*from, copies[0].0, datagrams).is_none()
        };
        let remote = copies.chunk_by(|one, other| one.0 == other.0).filter(|copies| is_remote(copies));
        let mut remote = remote.flatten();
        endpoint.send_with(|out| {
            let (to, range) = remote.next()?;
            out.extend_from_slice(&bytes[range.clone()]);
            Some(*to)
        })
    }
}

/// Whether a datagram for a vring must pass the switch's own router, which has the registers of hot
/// keys.
pub(super) fn is_of_hot_keys(datagram: &[u8]) -> bool {
    let opcode = HeaderLayout::peek(datagram).and_then(HeaderLayout::opcode);
    datagram.get(ROOM_AT) == Some(&ROOM_STAMP)
        || matches!(opcode, Some(Opcode::HotConfirm | Opcode::HotClose | Opcode::HotValue | Opcode::HotLease))
}

/// Destination and range of a copy.
type Copy = (SocketAddrV4, Range<usize>);

/// The routers of a switch and of its edges. Tables are installed in all of them or in none.
#[derive(Debug)]
pub(super) struct EdgeRouters {
    /// The switch's own router.
    pub(super) own: Router,
    edges: Edges,
}

impl EdgeRouters {
    pub(super) fn new(own: Router) -> Self {
        let shared = Shared { vrings: own.vrings().clone(), tables: None, routers: Vec::new() };
        let shared = Arc::new(Mutex::new(shared));
        Self { own, edges: Edges { shared, network: LocalNetwork::default() } }
    }

    pub(super) fn edges(&self) -> Edges {
        self.edges.clone()
    }

    /// Changes the tables of all routers. No edge can be added meanwhile. The lock of each router
    /// is free only when the kernel has taken that edge's datagrams.
    fn change(
        &mut self,
        mut change: impl FnMut(&mut Router) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let mut shared = locked(&self.edges.shared);
        change(&mut self.own)?;
        for router in &shared.routers {
            change(&mut locked(router))
                .expect("the edges have the switch's tables, which accepted the change");
        }
        shared.tables = self.own.tables().cloned();
        Ok(())
    }

    /// Adds up a statistic over all routers.
    fn gather<T>(
        &self,
        ask: impl Fn(&Router) -> Result<T, BackendError>,
        mut add: impl FnMut(&mut T, T),
    ) -> Result<T, BackendError> {
        let mut total = ask(&self.own)?;
        for router in &locked(&self.edges.shared).routers {
            add(&mut total, ask(&locked(router))?);
        }
        Ok(total)
    }
}

impl Drop for EdgeRouters {
    /// Empties the tables of all edges: a stopped switch acknowledges no newer tables, so nothing
    /// may be sent by its old ones.
    fn drop(&mut self) {
        let mut shared = locked(&self.edges.shared);
        shared.tables = None;
        for router in &shared.routers {
            let empty = Router::new(shared.vrings.clone()).map_err(|error: TableError| error.to_string());
            *locked(router) = empty.expect("the switch was created with these vrings");
        }
    }
}

fn add_each(total: &mut [u64], values: &[u64]) {
    total.iter_mut().zip(values).for_each(|(total, value)| *total += value);
}

impl Backend for EdgeRouters {
    fn install(&mut self, tables: &TableSet) -> Result<(), BackendError> {
        self.change(|router| router.install(tables))
    }

    fn update(&mut self, update: &TableUpdate) -> Result<(), BackendError> {
        self.change(|router| router.update(update))
    }

    fn table_status(&self) -> Result<Vec<TableStatus>, BackendError> {
        Ok(TableStatus::list(self.own.tables(), &self.counters()?))
    }

    fn entry_hits(&self, table: Table) -> Result<Vec<u64>, BackendError> {
        self.gather(|router| router.entry_hits(table), |total, hits| add_each(total, &hits))
    }

    fn entry_requests(&self, table: Table) -> Result<Vec<EntryRequests>, BackendError> {
        let add = |total: &mut Vec<EntryRequests>, requests: Vec<EntryRequests>| {
            total.iter_mut().zip(requests).for_each(|(total, more)| {
                total.reads += more.reads;
                total.updates += more.updates;
            });
        };
        self.gather(|router| router.entry_requests(table), add)
    }

    fn read_register(&self, register: Register) -> Result<Vec<u64>, BackendError> {
        self.own.read_register(register)
    }

    fn write_register(&mut self, register: Register, cell: u32, value: u64) -> Result<(), BackendError> {
        self.own.write_register(register, cell, value)
    }

    fn reset_register(&mut self, register: Register) -> Result<(), BackendError> {
        self.own.reset_register(register)
    }

    fn set_hot(&mut self, config: &HotConfig) -> Result<(), BackendError> {
        self.own.set_hot(config)
    }

    fn change_hot(&mut self, clear: bool, removed: &[u64], set: &[HotEntry]) -> Result<(), BackendError> {
        self.own.change_hot(clear, removed, set)
    }

    fn read_hot(&mut self) -> Result<HotReading, BackendError> {
        self.own.read_hot()
    }

    fn counters(&self) -> Result<Counters, BackendError> {
        self.gather(
            |router| router.counters(),
            |total, counters| counters.iter().for_each(|(counter, count)| total.add(counter, count)),
        )
    }
}

#[cfg(test)]
#[path = "edge_tests.rs"]
mod tests;
