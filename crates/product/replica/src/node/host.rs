//! The services that a node offers to its partitions: the disk, the network, the lease, and a
//! client of its own.

use crate::hot::Hot;
use crate::large::Values;
use crate::node::config::NodeConfig;
use crate::node::op_marks::OpMarks;
use crate::node::outbox::Outbox;
use crate::node::rate_limit::RateLimit;
use crate::node::scripts::Scripts;
use crate::node::session::Session;
use crate::node::status::{Counters, Latest, OtherRelease, Place, PutStages};
use crate::node::storage::StorageQueue;
use crate::node::trace::Trace;
use crate::node::visibility::Visibility;
use crate::node::waits::Waits;
use crate::types::{Map, StreamPeer};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use foldhash::fast::FixedState;
use nicekv_proto::control::DiskSpace;
use nicekv_proto::control::{Report, ReportKind};
use nicekv_proto::recovery::CopyFrame;
use nicekv_proto::{ClientId, DecodeError, Epoch, Form, Now, OpId, PartitionId, Reply, Status};

#[derive(Clone)]
pub(crate) struct Host {
    /// Configuration of this start of the process.
    pub config: NodeConfig,
    /// Requests to the disk.
    pub storage: StorageQueue,
    /// Datagrams to send.
    pub outbox: Outbox,
    /// Changes of what may be shown outside of the core.
    pub visibility: Visibility,
    /// Copies of hot keys.
    pub hot: Hot,
    /// Large values.
    pub values: Values,
    /// The session with the metadata service.
    pub session: Session,
    /// Counters for operators.
    pub counters: Counters,
    /// Durations of the stages of puts.
    pub puts: PutStages,
    /// Where the events that counters count last happened.
    pub latest: Latest,
    /// Rate limit of this node's copies as a joiner.
    pub copies: RateLimit,
    /// The client whose requests an operator traces.
    pub trace: Trace,
    /// How much space is left on the disk.
    pub disk_space: DiskSpace,
    /// Runs clients' scripts.
    pub scripts: Scripts,
    /// The mark of the op that is being evaluated, and the ops that must not be evaluated any more.
    pub op_marks: OpMarks,
    pub(crate) waits: Waits,
    pub(crate) streams: VecDeque<(StreamPeer, Vec<u8>)>,
    /// When partitions next look for lost messages.
    pub(crate) sweep_at_ns: Option<u64>,
    /// Bound on client records; set by tests only.
    pub(crate) clients_bytes_max: Option<usize>,
    /// Bound on remembered decisions; set by tests only.
    pub(crate) recent_decisions_max: Option<usize>,
    internal_sequence: u64,
    internal_open: BTreeSet<u64>,
}

impl Host {
    /// State of a process that has just started.
    pub(crate) fn new(config: NodeConfig) -> Self {
        Self {
            storage: StorageQueue::default(),
            outbox: Outbox::new(config.node),
            visibility: Visibility::default(),
            hot: Hot::new(config.incarnation),
            values: Values::new(config.incarnation, config.storage, config.hash_seed),
            session: Session::default(),
            counters: Counters::default(),
            puts: PutStages::default(),
            latest: Latest::default(),
            copies: RateLimit::default(),
            trace: Trace::default(),
            disk_space: DiskSpace::default(),
            scripts: Scripts::default(),
            op_marks: OpMarks::default(),
            waits: Waits::default(),
            streams: VecDeque::new(),
            sweep_at_ns: None,
            clients_bytes_max: None,
            recent_decisions_max: None,
            internal_sequence: 0,
            internal_open: BTreeSet::new(),
            config,
        }
    }

    /// Counts a datagram that is not a valid message of this release.
    pub(crate) fn on_malformed(&mut self, from: SocketAddrV4, error: DecodeError) {
        self.counters.malformed += 1;
        if let DecodeError::UnsupportedVersion(version) = error {
            self.counters.other_version += 1;
            self.latest.other_release = Some(OtherRelease { from, version });
        }
    }

    /// Counts a value of this partition that was found damaged.
    pub(crate) fn count_corrupt(&mut self, partition: PartitionId, epoch: Epoch) {
        self.counters.corrupt += 1;
        self.latest.corrupt = Some(Place { partition, epoch, op: OpId::NONE });
    }

    /// Counts a damaged value of this partition that was repaired.
    pub(crate) fn count_repaired(&mut self, partition: PartitionId, epoch: Epoch) {
        self.counters.repaired += 1;
        self.latest.repaired = Some(Place { partition, epoch, op: OpId::NONE });
    }

    /// Counts a key of this partition whose entry here differed from the majority's.
    pub(crate) fn count_differing(&mut self, partition: PartitionId, epoch: Epoch) {
        self.counters.differing += 1;
        self.latest.differing = Some(Place { partition, epoch, op: OpId::NONE });
    }

    /// Counts an op for which the disk has no room.
    pub(crate) fn count_refused_for_space(&mut self, partition: PartitionId, epoch: Epoch, op: OpId) {
        self.counters.refused_for_space += 1;
        self.latest.refused_for_space = Some(Place { partition, epoch, op });
    }

    /// Counts an op that has ended this node's process too often to be evaluated again.
    pub(crate) fn count_barred(&mut self, partition: PartitionId, epoch: Epoch, op: OpId) {
        self.counters.barred += 1;
        self.latest.barred = Some(Place { partition, epoch, op });
    }

    /// Bound on a partition's client records: the default, or what a test has set.
    pub(crate) fn clients_bytes_max(&self, usual: usize) -> usize {
        self.clients_bytes_max.unwrap_or(usual)
    }

    /// Bound on the decisions whose keys a partition remembers: the default, or what a test has
    /// set.
    pub(crate) fn recent_decisions_max(&self, usual: usize) -> usize {
        self.recent_decisions_max.unwrap_or(usual)
    }

    pub(crate) fn map<K, V>(&self) -> Map<K, V> {
        Map::with_hasher(FixedState::with_seed(self.config.hash_seed))
    }

    /// Makes sure that a sweep happens within half a resend timeout.
    pub(crate) fn arm_sweep(&mut self, now: Now) {
        self.arm_sweep_at(now.after(self.config.timing.resend / 2));
    }

    /// Makes sure that a sweep happens at `at_ns` or earlier.
    pub(crate) fn arm_sweep_at(&mut self, at_ns: u64) {
        self.sweep_at_ns.get_or_insert(at_ns);
    }

    /// Whether this node's lease allows it to answer gets (R12).
    pub(crate) fn has_lease(&self, now: Now) -> bool {
        self.session.has_lease(now)
    }

    /// Whether this node's direct lease allows it to answer requests that may have bypassed the
    /// switches. This lease is shorter, because nobody waits for the whole lease once the switches
    /// no longer lead to this node (R6, R12).
    pub(crate) fn has_direct_lease(&self, now: Now) -> bool {
        self.session.has_direct_lease(now)
    }

    /// Sends a client a reply.
    pub(crate) fn reply(&mut self, to: Option<SocketAddrV4>, reply: &Reply<'_>) {
        if let Some(to) = to {
            // The reply to a large value carries the token that allows its client to read it.
            let integer =
                if reply.form == Form::Large { self.values.token(to) as i64 } else { reply.integer };
            self.outbox.send(to, |out| Reply { integer, ..*reply }.encode(out));
        }
    }

    /// Refuses a request because its keyspace has another mode.
    pub(crate) fn refuse(&mut self, op: OpId, to: Option<SocketAddrV4>) {
        self.reply(to, &Reply::bare(op, Status::NoSuchKeyspace));
    }

    /// Requests an entry from the engine. The partition gets the result with the returned token.
    pub(crate) fn read(&mut self, partition: PartitionId, key: &[u8]) -> u64 {
        let token = self.storage.read(partition, key);
        self.waits.reads.push_back((token, partition));
        token
    }

    /// Requests a page of entries from the engine. The partition gets it with the returned token.
    pub(crate) fn scan(&mut self, partition: PartitionId, after: Option<&[u8]>, bytes_max: usize) -> u64 {
        let token = self.storage.scan(partition, after, bytes_max);
        self.waits.scans.push_back((token, partition));
        token
    }

    /// Requests the entries of these keys as one page. The partition gets it with the returned
    /// token.
    pub(crate) fn gather<'a>(
        &mut self,
        partition: PartitionId,
        keys: impl Iterator<Item = &'a [u8]>,
        bytes_max: usize,
    ) -> u64 {
        let token = self.storage.gather(partition, keys, bytes_max);
        self.waits.scans.push_back((token, partition));
        token
    }

    /// Appends a record to the log; returns the record's number.
    pub(crate) fn append(&mut self, partition: PartitionId, write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        self.storage.append(|out| {
            out.extend_from_slice(&partition.0.to_be_bytes());
            write(out);
        })
    }

    /// Appends a record; the partition is notified when it is synced. This does not request the
    /// sync.
    pub(crate) fn append_awaited(&mut self, partition: PartitionId, write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let record = self.append(partition, write);
        self.waits.records.push_back((record, partition));
        record
    }

    /// Queues a frame for a copying stream.
    pub(crate) fn send_frame(&mut self, peer: StreamPeer, frame: &CopyFrame<'_>) {
        let mut bytes = Vec::new();
        frame.append(&mut bytes);
        self.streams.push_back((peer, bytes));
    }

    /// Sends a report to the metadata service.
    pub(crate) fn report(&mut self, partition: PartitionId, epoch: Epoch, kind: ReportKind) {
        let (node, incarnation) = (self.config.node, self.config.incarnation);
        let report = Report { node, incarnation, partition, epoch, kind };
        self.tell_metadata(|out| report.encode(out));
    }

    /// Sends a message to the leader of the metadata service, or to all instances while it is
    /// unknown which one leads.
    pub(crate) fn tell_metadata(&mut self, write: impl Fn(&mut Vec<u8>)) {
        let leader = self.session.leader();
        let to = leader.as_ref().map_or(self.config.metadata.as_slice(), core::slice::from_ref);
        for instance in to {
            self.outbox.send(*instance, &write);
        }
    }

    /// The node's own client continues with a new id above `horizon`, because a partition may have
    /// forgotten the old one (R10).
    pub(crate) fn renew_internal_client(&mut self, now: Now, horizon: ClientId) {
        let client = &mut self.config.internal_client;
        let after = horizon.max(*client).created_ms() + 1;
        *client = ClientId::new(now.unix_ms.max(after), client.0);
        self.internal_open.clear();
    }

    /// A new op id of the node's own client, and that client's watermark.
    pub(crate) fn internal_op(&mut self) -> (OpId, u64) {
        self.internal_sequence += 1;
        self.internal_open.insert(self.internal_sequence);
        let watermark = *self.internal_open.first().expect("just inserted");
        (OpId { client: self.config.internal_client, sequence: self.internal_sequence }, watermark)
    }

    /// Number of open ops of the node's own client.
    pub(crate) fn internal_ops(&self) -> usize {
        self.internal_open.len()
    }

    /// An op is finished. If it is of the node's own client, that client's watermark may rise.
    pub(crate) fn finish_internal(&mut self, op: OpId) {
        if op.client == self.config.internal_client {
            self.internal_open.remove(&op.sequence);
        }
    }
}
