//! Coordination (TurboKV §1): a node that coordinates holds a directory of all chains, and forwards
//! requests to the node that the directory names.
//!
//! ```text
//!   client ──request──▶ this node ──Directed──▶ head, or tail ─▶ … ─▶ answer from the tail to the client
//!                           ▲────Misdirected────┘ not of my epoch: fetch the directory again
//! ```
//!
//! * What the node knows of its own partitions takes precedence over the directory: it handles
//!   requests for its own chains itself.
//! * A request that names a reply address was forwarded before, and is not forwarded again, so
//!   there are no loops.
//! * Only nodes in the directory may send a request whose answer goes to another address.

use crate::modes::Partition;
use crate::node::Replica;
use crate::node::directory::Coordination;
use crate::node::membership::Membership;
use core::net::SocketAddrV4;
use nicekv_proto::directory::{Directed, DirectoryPage, DirectoryQuery, Misdirected};
use nicekv_proto::{Datagram, Epoch, Header, Now, Opcode, stamp_reply_to};

/// Heartbeats between two checks for a newer directory.
const LOOK_HEARTBEATS: u32 = 5;
/// After a refusal the directory is fetched again, but at most once in this many heartbeats.
const DOUBT_HEARTBEATS: u32 = 1;

/// Whether a client may send this request.
fn is_request(datagram: &Datagram<'_>) -> bool {
    match datagram {
        Datagram::Get(get) => get.forwarded.is_none(),
        Datagram::Scan(scan) => scan.forwarded.is_none(),
        Datagram::Update(_) => true,
        _ => false,
    }
}

impl Replica {
    /// Handles messages about directories.
    pub(crate) fn on_coordination(&mut self, now: Now, from: SocketAddrV4, datagram: &Datagram<'_>) {
        match datagram {
            Datagram::Directed(directed) => self.on_directed(now, from, directed),
            Datagram::DirectoryQuery(query) => self.on_directory_query(from, query),
            Datagram::DirectoryPage(page) => self.on_directory_page(from, page),
            // A node has refused a request that this node forwarded. The client will ask again.
            _ => self.coordination.is_in_doubt = true,
        }
    }

    /// Forwards a request that is for another node. Returns whether it did.
    pub(crate) fn passes_on(&mut self, from: SocketAddrV4, header: &Header, bytes: &[u8]) -> bool {
        let may_pass = self.host.config.coordinates && header.reply_to.is_none();
        let is_update = header.opcode == Opcode::Update;
        if !may_pass || !(is_update || matches!(header.opcode, Opcode::Get | Opcode::Scan)) {
            return false;
        }
        let (keyspace, value) = (header.keyspace, header.digest.match_value());
        if let Some(slot) = self.partitions.find(keyspace, value) {
            let membership = self.partitions[slot].membership();
            if !membership.is_chain || self.is_asked(membership, is_update) {
                return false;
            }
        }
        let Self { coordination: Coordination { fetch, request, .. }, host, .. } = self;
        let Some(record) = fetch.directory().find(keyspace, value) else { return false };
        request.clear();
        request.extend_from_slice(bytes);
        stamp_reply_to(request, from);
        let directed =
            Directed { keyspace, op: header.op, partition: record.partition, epoch: record.epoch, request };
        host.counters.coordinated += 1;
        host.outbox.send(if is_update { record.head } else { record.tail }, |out| directed.encode(out));
        true
    }

    /// Whether this node handles such requests for a chain: updates at the head, others at the
    /// tail.
    fn is_asked(&self, membership: &Membership, is_update: bool) -> bool {
        let node = self.host.config.node;
        if is_update { membership.primary == node } else { membership.tail() == Some(node) }
    }

    /// Handles a request that a client or node has sent by its directory.
    fn on_directed(&mut self, now: Now, from: SocketAddrV4, directed: &Directed<'_>) {
        let Ok((header, datagram)) = Datagram::decode(directed.request) else {
            self.host.counters.malformed += 1;
            return;
        };
        if !is_request(&datagram) || (header.op, header.keyspace) != (directed.op, directed.keyspace) {
            self.host.counters.malformed += 1;
            return;
        }
        if header.reply_to.is_some_and(|to| to != from) && !self.is_node(from) {
            self.host.counters.refused += 1;
            return;
        }
        let slot = self.partitions.slot(directed.partition).filter(|slot| {
            let membership = self.partitions[*slot].membership();
            let holds = membership.range.contains(header.digest.match_value());
            membership.keyspace == header.keyspace && holds
        });
        let epoch = slot.map_or(Epoch(0), |slot| self.partitions[slot].membership().epoch);
        if epoch != directed.epoch {
            self.host.counters.misdirected += 1;
            let &Directed { keyspace, op, partition, .. } = directed;
            let refusal = Misdirected { keyspace, op, partition, epoch };
            return self.host.outbox.send(from, |out| refusal.encode(out));
        }
        if self.may_answer_directly(now, &datagram) {
            self.on_request(now, from, &header, &datagram, (directed.request, None));
        }
    }

    /// Whether a request that may have bypassed the switches may be answered (R12).
    pub(crate) fn may_answer_directly(&mut self, now: Now, request: &Datagram<'_>) -> bool {
        let is_read = matches!(request, Datagram::Get(_) | Datagram::Scan(_) | Datagram::QuorumQuery(_));
        let may = !is_read || self.host.has_direct_lease(now);
        self.host.counters.dropped += u64::from(!may);
        may
    }

    /// Whether the directory, or a partition here, has a node at this address.
    fn is_node(&self, address: SocketAddrV4) -> bool {
        let is_member = |partition: &Partition| {
            partition.membership().members.iter().any(|member| member.address == address)
        };
        self.coordination.fetch.directory().names(address) || self.partitions.iter().any(is_member)
    }

    /// A client or another node requests a part of the directory.
    fn on_directory_query(&mut self, from: SocketAddrV4, query: &DirectoryQuery) {
        let directory = self.coordination.fetch.directory();
        self.host.outbox.send(from, |out| directory.answer(query, out));
    }

    /// The metadata service has sent a page of the directory.
    fn on_directory_page(&mut self, from: SocketAddrV4, page: &DirectoryPage<'_>) {
        if !self.host.config.metadata.contains(&from) {
            self.host.counters.refused += 1;
        } else if self.coordination.fetch.on_page(page) {
            self.query_directory();
        }
    }

    /// Fetches the directory if that is due, or if an answer is missing. Called at every heartbeat.
    pub(crate) fn follow_directory(&mut self) {
        if !self.host.config.coordinates {
            return;
        }
        let Coordination { fetch, waited, is_in_doubt, .. } = &mut self.coordination;
        *waited += 1;
        let is_wanted = *is_in_doubt || fetch.is_open() || fetch.directory().version() == 0;
        if *waited >= if is_wanted { DOUBT_HEARTBEATS } else { LOOK_HEARTBEATS } {
            (*waited, *is_in_doubt) = (0, false);
            self.query_directory();
        }
    }

    fn query_directory(&mut self) {
        let query = self.coordination.fetch.query();
        let leader = self.host.session.leader();
        let to = leader.as_ref().map_or(self.host.config.metadata.as_slice(), core::slice::from_ref);
        for instance in to {
            self.host.outbox.send(*instance, |out| query.encode(out));
        }
    }
}
