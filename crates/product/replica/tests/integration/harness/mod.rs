//! One node under test: its disk is a map, its clock advances only when the test says so, and the
//! test inspects its datagrams.

pub(crate) mod pair;
pub(crate) mod reshaped;

use nicekv_proto::Duration;
use nicekv_proto::chunk::Round;
use nicekv_proto::control::{Assign, HeartbeatReply, Member, MemberRole, MemberState};
use nicekv_proto::placement::{Vrings, key_digest};
use nicekv_proto::recovery::{CopyFrame, Entry, put_keyed_entry};
use nicekv_proto::transaction::Step;
use nicekv_proto::{
    ClientId, Condition, Datagram, Epoch, Expiry, Get, KeyspaceId, MatchRange, NodeId, Now, OpId, Operation,
    PartitionId, Replication, Status, Term, Update,
};
use nicekv_replica::Replica;
use nicekv_replica::{
    NodeConfig, ShiftKind, StorageCompletion, StorageRequest, StreamPeer, Timing, ValueEnd, gathered_keys,
};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Bound;

pub(crate) const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 9), 900);
pub(crate) const METADATA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 7400);
pub(crate) const NODE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7400);
pub(crate) const INCARNATION: u64 = 77;
pub(crate) const LEASE_NS: u64 = 150_000_000;
/// In the engine, stands for an entry that does not match its checksum.
pub(crate) const DAMAGED: &[u8] = &[];

pub(crate) struct Node {
    pub(crate) core: Replica,
    pub(crate) engine: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) log: Vec<Vec<u8>>,
    pub(crate) now: Now,
    pub(crate) sequence: u64,
    /// Number of original members of a partition (R).
    pub(crate) replicas: u8,
    /// Replication mode of the keyspace.
    pub(crate) replication: Replication,
    /// Range of match values of the partition.
    pub(crate) range: MatchRange,
    /// Whether the disk ignores requests to sync the log.
    pub(crate) syncs_nothing: bool,
    /// Oldest stamp allowed, as the assigned epochs name it.
    pub(crate) stamp_min: Round,
    /// Number of pages that the engine has read.
    pub(crate) scans: usize,
}

/// A node's configuration with this timing; usage, sources and load are not counted.
fn config(timing: Timing) -> NodeConfig {
    NodeConfig {
        node: NodeId(1),
        metadata: vec![METADATA],
        switch: None,
        coordinates: false,
        incarnation: INCARNATION,
        storage: 1,
        internal_client: ClientId::new(1, 1),
        value_bytes_max: nicekv_proto::limits::LARGE_VALUE_BYTES_MAX,
        hash_seed: 1,
        tells_visibility: false,
        timing: Timing { usage_interval: Duration::ZERO, sources_interval: Duration::ZERO, ..timing },
    }
}

impl Node {
    /// A node that has just started.
    pub(crate) fn started() -> Self {
        Self::started_with(Timing { scrub_interval: Duration::ZERO, ..Timing::default() })
    }

    /// A node that has just started, with this timing.
    pub(crate) fn started_with(timing: Timing) -> Self {
        let now = Now { boot_ns: 1_000_000_000, unix_ms: 1_000_000 };
        Self {
            core: Replica::new(config(timing)),
            engine: BTreeMap::new(),
            log: Vec::new(),
            now,
            sequence: 0,
            replicas: 1,
            replication: Replication::Multicast,
            range: MatchRange::ALL,
            syncs_nothing: false,
            stamp_min: Round::default(),
            scans: 0,
        }
    }

    /// A node that leads its partition and has a lease.
    pub(crate) fn serving() -> Self {
        let mut node = Self::started();
        node.grant_lease(Term(3));
        node.assign(Term(3), Epoch(5));
        node
    }

    pub(crate) fn grant_lease(&mut self, term: Term) {
        let reply =
            HeartbeatReply { term, incarnation: INCARNATION, sent_ns: self.now.boot_ns, lease_ns: LEASE_NS };
        self.receive(METADATA, |out| reply.encode(out));
    }

    /// The node under test as a full member.
    pub(crate) fn me() -> Member {
        Member { node: NodeId(1), state: MemberState::Consistent, role: MemberRole::Original, address: NODE }
    }

    /// Assigns an epoch of which the node is the only member; returns the datagrams that it sends.
    pub(crate) fn assign(&mut self, term: Term, epoch: Epoch) -> Vec<(SocketAddrV4, Vec<u8>)> {
        self.assign_with(term, epoch, &[])
    }

    /// Assigns an epoch that the node leads, with these other members.
    pub(crate) fn assign_with(
        &mut self,
        term: Term,
        epoch: Epoch,
        others: &[Member],
    ) -> Vec<(SocketAddrV4, Vec<u8>)> {
        self.assign_under(term, epoch, NodeId(1), others)
    }

    /// Assigns an epoch in which this node is the primary.
    pub(crate) fn assign_under(
        &mut self,
        term: Term,
        epoch: Epoch,
        primary: NodeId,
        others: &[Member],
    ) -> Vec<(SocketAddrV4, Vec<u8>)> {
        self.assign_members(term, epoch, primary, [&[Self::me()], others].concat())
    }

    /// Assigns an activated epoch with these members.
    pub(crate) fn assign_members(
        &mut self,
        term: Term,
        epoch: Epoch,
        primary: NodeId,
        members: Vec<Member>,
    ) -> Vec<(SocketAddrV4, Vec<u8>)> {
        self.assign_as(true, term, epoch, primary, members)
    }

    /// Assigns an epoch with these members, activated or not.
    pub(crate) fn assign_as(
        &mut self,
        activated: bool,
        term: Term,
        epoch: Epoch,
        primary: NodeId,
        members: Vec<Member>,
    ) -> Vec<(SocketAddrV4, Vec<u8>)> {
        let assign = Assign {
            term,
            incarnation: INCARNATION,
            partition: PartitionId(0),
            keyspace: KeyspaceId::DEFAULT,
            range: self.range,
            order: nicekv_proto::KeyOrder::Hash,
            replication: self.replication,
            multicast: Vrings::on_network(7400).multicast_vnode(0),
            epoch,
            activated,
            primary,
            replicas: self.replicas,
            members,
            discard: false,
            children: Vec::new(),
            sealed: false,
            parents: Vec::new(),
            stamp_min: self.stamp_min,
        };
        self.receive(METADATA, |out| assign.encode(out))
    }

    pub(crate) fn receive(
        &mut self,
        from: SocketAddrV4,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Vec<(SocketAddrV4, Vec<u8>)> {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        self.core.handle_datagram(self.now, from, &bytes);
        self.core.handle_batch_end(self.now);
        self.run_storage();
        self.sent()
    }

    /// A frame arrives; returns the frames that the node sends.
    pub(crate) fn receive_frame(&mut self, peer: StreamPeer, frame: &CopyFrame<'_>) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        frame.append(&mut bytes);
        self.core.handle_stream(self.now, peer, &bytes);
        self.run_storage();
        self.frames()
    }

    /// Takes the frames that the node sends.
    pub(crate) fn frames(&mut self) -> Vec<Vec<u8>> {
        core::iter::from_fn(|| self.core.poll_stream()).map(|(_, frame)| frame).collect()
    }

    /// The process has died and another one starts, with this part of the log and an empty engine.
    pub(crate) fn restarted_with(log: &[Vec<u8>]) -> Self {
        Self::restarted_on(BTreeMap::new(), log)
    }

    /// The process has died and another one starts, with this engine and this part of the log.
    pub(crate) fn restarted_on(engine: BTreeMap<Vec<u8>, Vec<u8>>, log: &[Vec<u8>]) -> Self {
        let mut node = Self { engine, ..Self::started() };
        for record in log {
            node.core.replay(node.now, record).expect("the node wrote it");
            node.log.push(record.clone());
        }
        node.run_storage();
        node
    }

    /// Takes the datagrams that the node sends.
    pub(crate) fn sent(&mut self) -> Vec<(SocketAddrV4, Vec<u8>)> {
        let (mut sent, mut out) = (Vec::new(), Vec::new());
        while let Some(to) = self.core.poll_transmit(&mut out) {
            sent.push((to, out.clone()));
        }
        sent
    }

    /// Takes the changes of what may be shown since the last time.
    pub(crate) fn shifts(&mut self) -> Vec<ShiftKind> {
        core::iter::from_fn(|| self.core.poll_visibility()).map(|shift| shift.kind).collect()
    }

    /// Advances the clock, and lets the node handle its deadlines.
    pub(crate) fn pass(&mut self, duration: Duration) {
        self.now.boot_ns += duration.as_nanos() as u64;
        self.core.handle_deadline(self.now);
        self.core.handle_batch_end(self.now);
        self.run_storage();
    }

    pub(crate) fn run_storage(&mut self) {
        while let Some(request) = self.core.poll_storage() {
            match request {
                StorageRequest::Append { payload } => self.log.push(payload.to_vec()),
                StorageRequest::Write { key, entry, .. } => {
                    self.engine.insert(key.to_vec(), entry.to_vec());
                }
                StorageRequest::Remove { key, .. } => {
                    self.engine.remove(key);
                }
                StorageRequest::Sync if self.syncs_nothing => {}
                StorageRequest::Sync => {
                    let through = self.log.len() as u64;
                    self.core.handle_storage(self.now, StorageCompletion::Synced { through });
                }
                StorageRequest::Read { token, key, .. } => {
                    let entry = self.engine.get(key).map(Vec::as_slice);
                    let completion = match entry {
                        Some(DAMAGED) => StorageCompletion::ReadCorrupt { token },
                        entry => StorageCompletion::Read { token, entry },
                    };
                    self.core.handle_storage(self.now, completion);
                }
                StorageRequest::Trim { .. } => {}
                StorageRequest::Scan { token, after, bytes_max, .. } => {
                    let mut entries = Vec::new();
                    let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.to_vec()));
                    let from = (from, Bound::Unbounded);
                    let mut rest = self.engine.range::<Vec<u8>, _>(from);
                    while entries.len() < bytes_max
                        && let Some((key, entry)) = rest.next()
                    {
                        put_keyed_entry(&mut entries, key, entry);
                    }
                    let more = rest.next().is_some();
                    self.scans += 1;
                    let completion = StorageCompletion::Scan { token, entries: &entries, corrupt: &[], more };
                    self.core.handle_storage(self.now, completion);
                }
                StorageRequest::Gather { token, keys, .. } => {
                    let mut entries = Vec::new();
                    for key in gathered_keys(keys) {
                        if let Some(entry) = self.engine.get(key) {
                            put_keyed_entry(&mut entries, key, entry);
                        }
                    }
                    let completion =
                        StorageCompletion::Scan { token, entries: &entries, corrupt: &[], more: false };
                    self.core.handle_storage(self.now, completion);
                }
                StorageRequest::Clear { .. } => self.engine.clear(),
                StorageRequest::MarkValues | StorageRequest::WriteValue { .. } => {}
                StorageRequest::EndValue { reference } => {
                    let ended = StorageCompletion::ValueEnded { name: reference.name, end: ValueEnd::Whole };
                    self.core.handle_storage(self.now, ended);
                }
                other => unreachable!("no other request about large values is expected: {other:?}"),
            }
        }
    }

    pub(crate) fn op(&mut self) -> OpId {
        self.sequence += 1;
        OpId { client: ClientId::new(2, 2), sequence: self.sequence }
    }

    /// A client asks for a transaction; returns the datagrams that the node sends.
    pub(crate) fn transact(&mut self, op: OpId, steps: &[Step<'_>]) -> Vec<(SocketAddrV4, Vec<u8>)> {
        let mut bytes = Vec::new();
        steps.iter().for_each(|step| step.append(&mut bytes));
        let update = update(op, steps[0].key, Operation::Transaction(&bytes));
        self.receive(CLIENT, |out| update.encode(out))
    }

    /// A client sets a key; returns the status of the reply, if there is one.
    pub(crate) fn set(&mut self, key: &[u8], value: &[u8], expiry: Expiry) -> Option<Status> {
        let op = self.op();
        let update = update(op, key, Operation::Set { value, expiry });
        let sent = self.receive(CLIENT, |out| update.encode(out));
        answer(&sent).map(|(status, _)| status)
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Option<(Status, Option<Vec<u8>>)> {
        let op = self.op();
        let get = Get {
            keyspace: KeyspaceId::DEFAULT,
            op,
            digest: key_digest(key),
            reply_to: None,
            forwarded: None,
            key,
            padding: 0,
        };
        answer(&self.receive(CLIENT, |out| get.encode(out)))
    }
}

pub(crate) fn is_value(entry: &[u8]) -> bool {
    Entry::decode(entry).unwrap().value.is_some()
}

pub(crate) fn update<'a>(op: OpId, key: &'a [u8], operation: Operation<'a>) -> Update<'a> {
    Update {
        keyspace: KeyspaceId::DEFAULT,
        op,
        digest: key_digest(key),
        reply_to: None,
        watermark: 0,
        condition: Condition::Always,
        return_old: false,
        operation,
        key,
    }
}

pub(crate) fn answer(sent: &[(SocketAddrV4, Vec<u8>)]) -> Option<(Status, Option<Vec<u8>>)> {
    sent.iter().filter(|(to, _)| *to == CLIENT).find_map(|(_, bytes)| {
        match Datagram::decode(bytes).unwrap().1 {
            Datagram::Reply(reply) => Some((reply.status, reply.value.map(Into::into))),
            _ => None,
        }
    })
}
