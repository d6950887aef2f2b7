//! A node that is the only member of its partitions, which are split and merged. The test's engine
//! has one map per partition, and may delay pages.

use super::{CLIENT, DAMAGED, INCARNATION, LEASE_NS, METADATA, Node, answer, config, update};
use nicekv_proto::chunk::Round;
use nicekv_proto::control::{Assign, AssignAck, Child, HeartbeatReply, Parent, ReportKind};
use nicekv_proto::placement::{Vrings, key_digest};
use nicekv_proto::recovery::{Entry, put_keyed_entry};
use nicekv_proto::{
    ClientId, Datagram, Duration, Epoch, Expiry, Get, KeyspaceId, MatchRange, NodeId, Now, OpId, Operation,
    PartitionId, Replication, Status, Term,
};
use nicekv_replica::Replica;
use nicekv_replica::{StorageCompletion, StorageRequest, Timing};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddrV4;

pub(crate) type Sent = Vec<(SocketAddrV4, Vec<u8>)>;
pub(crate) type Engine = BTreeMap<(PartitionId, Vec<u8>), Vec<u8>>;

pub(crate) const PARENT: PartitionId = PartitionId(1);
pub(crate) const LOW: PartitionId = PartitionId(2);
pub(crate) const HIGH: PartitionId = PartitionId(3);
pub(crate) const KEYS: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"f"];

pub(crate) struct Member {
    pub(crate) core: Replica,
    pub(crate) engine: Engine,
    pub(crate) log: Vec<Vec<u8>>,
    pub(crate) now: Now,
    pub(crate) sequence: u64,
    /// Whether the disk delays syncs of the log.
    pub(crate) holds_syncs: bool,
    /// Whether the disk delays pages, in `pages`.
    pub(crate) holds_pages: bool,
    pub(crate) pages: VecDeque<(u64, Vec<u8>, Vec<Vec<u8>>)>,
    /// Whether the disk delays reads of single entries, in `reads`.
    pub(crate) holds_reads: bool,
    pub(crate) reads: VecDeque<(u64, Option<Vec<u8>>)>,
    /// How many records were trimmed from the log.
    pub(crate) trimmed: usize,
}

pub(crate) fn half() -> MatchRange {
    MatchRange::new(0, u128::MAX / 2).unwrap()
}

pub(crate) fn other_half() -> MatchRange {
    MatchRange::new(u128::MAX / 2 + 1, u128::MAX).unwrap()
}

pub(crate) fn child(partition: PartitionId, range: MatchRange) -> Child {
    Child { partition, range, order: nicekv_proto::KeyOrder::Hash }
}

pub(crate) fn halves() -> Vec<Child> {
    vec![child(LOW, half()), child(HIGH, other_half())]
}

pub(crate) fn child_of(key: &[u8]) -> PartitionId {
    if half().contains(key_digest(key).match_value()) { LOW } else { HIGH }
}

pub(crate) fn epoch(partition: PartitionId, range: MatchRange, epoch: u32) -> Assign {
    Assign {
        term: Term(3),
        incarnation: INCARNATION,
        partition,
        keyspace: KeyspaceId::DEFAULT,
        range,
        order: nicekv_proto::KeyOrder::Hash,
        replication: Replication::Multicast,
        multicast: Vrings::on_network(7400).multicast_vnode(0),
        epoch: Epoch(epoch),
        activated: true,
        primary: NodeId(1),
        replicas: 1,
        members: vec![Node::me()],
        discard: false,
        children: Vec::new(),
        sealed: false,
        parents: Vec::new(),
        stamp_min: Round::default(),
    }
}

pub(crate) fn acks(sent: &Sent) -> Vec<AssignAck> {
    let ack = |(_, bytes): &(SocketAddrV4, Vec<u8>)| match Datagram::decode(bytes).unwrap().1 {
        Datagram::AssignAck(ack) => Some(ack),
        _ => None,
    };
    sent.iter().filter_map(ack).collect()
}

pub(crate) fn reports(sent: &Sent) -> Vec<(PartitionId, ReportKind)> {
    let report = |(_, bytes): &(SocketAddrV4, Vec<u8>)| match Datagram::decode(bytes).unwrap().1 {
        Datagram::Report(report) => Some((report.partition, report.kind)),
        _ => None,
    };
    sent.iter().filter_map(report).collect()
}

impl Member {
    /// A process that starts with this engine and log.
    pub(crate) fn started(engine: Engine, log: Vec<Vec<u8>>) -> Self {
        let timing = Timing { scrub_interval: Duration::ZERO, copy_bytes_per_second: 0, ..Timing::default() };
        let mut member = Self {
            core: Replica::new(config(timing)),
            engine,
            log: Vec::new(),
            now: Now { boot_ns: 1_000_000_000, unix_ms: 1_000_000 },
            sequence: 0,
            holds_syncs: false,
            holds_pages: false,
            pages: VecDeque::new(),
            holds_reads: false,
            reads: VecDeque::new(),
            trimmed: 0,
        };
        for record in log {
            member.core.replay(member.now, &record).expect("a node wrote it");
            member.log.push(record);
        }
        member.run_storage();
        let (term, sent_ns, lease_ns) = (Term(3), member.now.boot_ns, LEASE_NS);
        let lease = HeartbeatReply { term, incarnation: INCARNATION, sent_ns, lease_ns };
        member.receive(METADATA, |out| lease.encode(out));
        member
    }

    /// A node whose partition has a value for each of `KEYS`.
    pub(crate) fn filled() -> Self {
        let mut member = Self::started(Engine::new(), Vec::new());
        member.assign(&epoch(PARENT, MatchRange::ALL, 5));
        KEYS.iter().for_each(|key| assert_eq!(member.set(key, b"old"), Some(Status::Ok)));
        member
    }

    /// The process dies, and another one starts with what is left of engine and log.
    pub(crate) fn restarted(self) -> Self {
        let log = self.log[self.trimmed..].to_vec();
        // The engine is synced when the log is trimmed. If it never was, all of the engine is lost,
        // and the log restores it.
        let engine = if self.trimmed == 0 { Engine::new() } else { self.engine };
        Self { sequence: self.sequence, ..Self::started(engine, log) }
    }

    pub(crate) fn receive(&mut self, from: SocketAddrV4, encode: impl FnOnce(&mut Vec<u8>)) -> Sent {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        self.core.handle_datagram(self.now, from, &bytes);
        self.core.handle_batch_end(self.now);
        self.run_storage();
        self.sent()
    }

    pub(crate) fn assign(&mut self, assign: &Assign) -> Sent {
        self.receive(METADATA, |out| assign.encode(out))
    }

    pub(crate) fn sent(&mut self) -> Sent {
        let (mut sent, mut out) = (Vec::new(), Vec::new());
        while let Some(to) = self.core.poll_transmit(&mut out) {
            sent.push((to, out.clone()));
        }
        sent
    }

    pub(crate) fn pass(&mut self, duration: Duration) -> Sent {
        self.now.boot_ns += duration.as_nanos() as u64;
        self.core.handle_deadline(self.now);
        self.core.handle_batch_end(self.now);
        self.run_storage();
        self.sent()
    }

    pub(crate) fn run_storage(&mut self) {
        while let Some(request) = self.core.poll_storage() {
            match request {
                StorageRequest::Append { payload } => self.log.push(payload.to_vec()),
                StorageRequest::Write { partition, key, entry } => {
                    self.engine.insert((partition, key.to_vec()), entry.to_vec());
                }
                StorageRequest::Remove { partition, key } => {
                    self.engine.remove(&(partition, key.to_vec()));
                }
                StorageRequest::Clear { partition } => self.engine.retain(|(of, _), _| *of != partition),
                StorageRequest::Sync => self.sync(),
                StorageRequest::Read { token, partition, key } => {
                    let entry = self.engine.get(&(partition, key.to_vec())).cloned();
                    self.reads.push_back((token, entry));
                    self.bring_reads();
                }
                StorageRequest::Scan { token, partition, .. } => {
                    let (mut page, mut corrupt) = (Vec::new(), Vec::new());
                    for ((_, key), entry) in self.engine.iter().filter(|((of, _), _)| *of == partition) {
                        match &entry[..] {
                            DAMAGED => corrupt.push(key.clone()),
                            entry => put_keyed_entry(&mut page, key, entry),
                        }
                    }
                    self.pages.push_back((token, page, corrupt));
                    self.bring_pages();
                }
                StorageRequest::Trim { before } => self.trimmed = before as usize - 1,
                other => unreachable!("the test has no joiners and no large values: {other:?}"),
            }
        }
    }

    pub(crate) fn sync(&mut self) {
        if !self.holds_syncs {
            let through = self.log.len() as u64;
            self.core.handle_storage(self.now, StorageCompletion::Synced { through });
        }
    }

    pub(crate) fn bring_pages(&mut self) {
        while !self.holds_pages
            && let Some((token, page, corrupt)) = self.pages.pop_front()
        {
            let (entries, corrupt) = (&page[..], &corrupt[..]);
            let completion = StorageCompletion::Scan { token, entries, corrupt, more: false };
            self.core.handle_storage(self.now, completion);
        }
    }

    pub(crate) fn bring_reads(&mut self) {
        while !self.holds_reads
            && let Some((token, entry)) = self.reads.pop_front()
        {
            let entry = entry.as_deref();
            self.core.handle_storage(self.now, StorageCompletion::Read { token, entry });
        }
    }

    pub(crate) fn next_op(&mut self) -> OpId {
        self.sequence += 1;
        OpId { client: ClientId::new(2, 2), sequence: self.sequence }
    }

    pub(crate) fn set(&mut self, key: &[u8], value: &[u8]) -> Option<Status> {
        let op = self.next_op();
        self.apply(op, key, Operation::Set { value, expiry: Expiry::Never })
    }

    pub(crate) fn apply(&mut self, op: OpId, key: &[u8], operation: Operation<'_>) -> Option<Status> {
        let update = update(op, key, operation);
        answer(&self.receive(CLIENT, |out| update.encode(out))).map(|(status, _)| status)
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let (op, digest, keyspace) = (self.next_op(), key_digest(key), KeyspaceId::DEFAULT);
        let get = Get { keyspace, op, digest, reply_to: None, forwarded: None, key, padding: 0 };
        answer(&self.receive(CLIENT, |out| get.encode(out)))?.1
    }

    /// The values in a partition's space.
    pub(crate) fn values(&self, partition: PartitionId) -> BTreeMap<&[u8], Vec<u8>> {
        let value = |entry: &[u8]| Entry::decode(entry).unwrap().value.map(<[u8]>::to_vec);
        let own = self.engine.iter().filter(|((of, _), _)| *of == partition);
        own.filter_map(|((_, key), entry)| Some((key.as_slice(), value(entry)?))).collect()
    }

    pub(crate) fn is_formed_as_it_is(&self) -> bool {
        let mut formed = self.values(LOW);
        let is_right = formed.keys().all(|key| child_of(key) == LOW);
        formed.append(&mut self.values(HIGH));
        is_right && formed == self.values(PARENT)
    }

    pub(crate) fn form(&mut self) -> Sent {
        self.assign(&Assign { children: halves(), ..epoch(PARENT, MatchRange::ALL, 6) })
    }

    /// Seals the parent; returns its last decision.
    pub(crate) fn seal(&mut self) -> u64 {
        let sealed = Assign { children: halves(), sealed: true, ..epoch(PARENT, MatchRange::ALL, 7) };
        let sent = self.assign(&sealed);
        match reports(&sent)[..] {
            [(PARENT, ReportKind::Drained(index))] => index,
            ref other => panic!("{other:?}"),
        }
    }

    pub(crate) fn bear(&mut self, child: PartitionId, index: u64) -> Sent {
        let range = if child == LOW { half() } else { other_half() };
        let parents = vec![Parent { partition: PARENT, index }];
        self.assign(&Assign { parents, ..epoch(child, range, 8) })
    }
}
