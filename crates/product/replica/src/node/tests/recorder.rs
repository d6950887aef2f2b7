//! A partition that records its calls, and a node that hosts such partitions.

use crate::{
    CopyChunk, CopyRequest, Host, Membership, Message, NodeConfig, Page, PartitionStatus, Replica, Request,
    Timing,
};
use nicekv_proto::chunk::Round;
use nicekv_proto::control::{Assign, HeartbeatReply, Member, MemberRole, MemberState};
use nicekv_proto::{
    ClientId, Datagram, DecodeError, Epoch, KeyspaceId, MatchRange, NodeId, Now, PartitionId, Replication,
    Term,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

pub(crate) const fn address(host: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), 7400)
}

pub(crate) const METADATA: SocketAddrV4 = address(100);
pub(crate) const CLIENT: SocketAddrV4 = address(200);
pub(crate) const SWITCH: SocketAddrV4 = address(50);
pub(crate) const INCARNATION: u64 = 77;
pub(crate) const TERM: Term = Term(3);
pub(crate) const EPOCH: Epoch = Epoch(5);
/// The partition that holds all keys.
pub(crate) const PARTITION: PartitionId = PartitionId(4);

/// An action that a partition performs.
pub(crate) type Act = Box<dyn FnOnce(&mut Host, Now)>;

/// The recorded calls of a partition, and its scripted behaviour.
#[derive(Default)]
pub(crate) struct Book {
    told: Vec<String>,
    /// How many overdue values the partition claims to have.
    pub(crate) overdue: usize,
    pub(crate) wants_scrub: bool,
    /// Whether the partition refuses to be scrubbed at present.
    pub(crate) puts_off_scrub: bool,
    pub(crate) is_work_left: bool,
    /// Whether the partition requests a sync when it gets a part of a copy.
    pub(crate) syncs_copies: bool,
    /// Whether the node had a lease when the partition was last assigned an epoch.
    pub(crate) has_lease: bool,
}

thread_local! {
    static BOOKS: RefCell<BTreeMap<PartitionId, Book>> = RefCell::default();
    /// The effect of the next request on its partition.
    static ACT: Cell<Option<Act>> = Cell::default();
    static IS_RECORDING: Cell<bool> = Cell::default();
}

/// Whether the partitions of this test are recorders.
pub(crate) fn is_recording() -> bool {
    IS_RECORDING.get()
}

/// Accesses the book of a partition of this test.
pub(crate) fn book<T>(partition: PartitionId, with: impl FnOnce(&mut Book) -> T) -> T {
    BOOKS.with_borrow_mut(|books| with(books.entry(partition).or_default()))
}

/// A partition that records its calls.
#[derive(Clone)]
pub(crate) struct Recorder {
    replication: Replication,
    pub(crate) membership: Membership,
}

impl Recorder {
    fn tell(&mut self, what: String) {
        self.book(|book| book.told.push(what));
    }

    fn book<T>(&self, with: impl FnOnce(&mut Book) -> T) -> T {
        book(self.membership.partition, with)
    }
}

impl Recorder {
    pub(crate) fn new(partition: PartitionId, replication: Replication) -> Self {
        Self { replication, membership: Membership::outside(partition) }
    }

    pub(crate) fn of_record(partition: PartitionId, record: &[u8]) -> Option<Self> {
        (record.first() == Some(&b'r')).then(|| Self::new(partition, Replication::Multicast))
    }

    pub(crate) fn is(&self, replication: Replication) -> bool {
        self.replication == replication
    }

    pub(crate) fn replication(&self) -> Replication {
        self.replication
    }

    pub(crate) fn on_assign(&mut self, host: &mut Host, now: Now, assign: &Assign) -> bool {
        self.book(|book| book.has_lease = host.has_lease(now));
        self.membership = Membership::of(assign, host.config.node);
        true
    }

    pub(crate) fn replay(
        &mut self,
        _: &mut Host,
        _: Now,
        number: u64,
        record: &[u8],
    ) -> Result<(), DecodeError> {
        self.tell(format!("replay {number} {}", record.len()));
        Ok(())
    }

    pub(crate) fn on_request(&mut self, host: &mut Host, now: Now, from: SocketAddrV4, request: Request<'_>) {
        let what = match request {
            Request::Get(get) => ("get", get.key),
            Request::Scan(scan) => ("scan", scan.after.unwrap_or_default()),
            Request::Update(update, datagram) => {
                assert!(
                    matches!(Datagram::decode(datagram), Ok((_, Datagram::Update(same))) if same == *update)
                );
                ("update", update.key)
            }
            Request::Query(query) => ("query", query.key),
            Request::Store(store, _) => ("store", store.key),
        };
        if let Some(act) = ACT.take() {
            act(host, now);
        }
        self.tell(format!("{} {} from {}", what.0, String::from_utf8_lossy(what.1), from.ip()));
    }

    pub(crate) fn on_message(&mut self, _: &mut Host, _: Now, sender: NodeId, message: Message<'_>) {
        let what = match message {
            Message::PrepareAck(ack) => format!("prepare ack {}", ack.op.sequence),
            Message::Progress(progress, prepares) => {
                format!("progress {} with {}", progress.logged, prepares.len())
            }
            Message::Watermark(watermark) => format!("watermark {}", watermark.synced),
            Message::Decision(decision) => format!("decision {}", decision.index),
            Message::Forwarded(decision, op) => format!("entry {} {}", decision.index, op.is_some()),
            Message::Resent { logged, update, .. } => format!("resent {logged} {}", update.op.sequence),
            Message::RecoverRequest(request) => format!("recover request {}", request.cursor),
            Message::RecoverReply(reply) => format!("recover reply {}", reply.cursor),
            Message::Fetch(wanted) => format!("fetch {wanted:?}"),
            Message::RepairRequest(request) => format!("repair request {}", request.logged),
            Message::RepairReply(reply) => format!("repair reply {}", reply.through),
            Message::ScrubPage(page) => format!("scrub page {}", page.logged),
            Message::Tombstones(told) => format!("tombstones {}", told.round),
            Message::TombstonesAck(round) => format!("tombstones done {round}"),
            Message::Entrust(entrust) => format!("entrust {}", entrust.serial),
            Message::Entrusted(serial) => format!("entrusted {serial}"),
        };
        self.tell(format!("{what} of {}", sender.0));
    }

    pub(crate) fn on_copy_request(&mut self, _: &mut Host, _: Now, request: CopyRequest<'_>) {
        self.tell(format!("copy request {:?} since {}", request.peer, request.since));
    }

    pub(crate) fn on_copy_chunk(&mut self, host: &mut Host, _: Now, chunk: CopyChunk<'_>) {
        if self.book(|book| book.syncs_copies) {
            host.storage.want_sync();
        }
        self.tell(format!("copy chunk {:?} of {} bytes", chunk.peer, chunk.payload.len()));
    }

    pub(crate) fn on_synced(&mut self, _: &mut Host, _: Now, record: u64) {
        self.tell(format!("forced {record}"));
    }

    pub(crate) fn on_read(&mut self, host: &mut Host, _: Now, token: u64, entry: Option<&[u8]>) {
        self.tell(format!("read {token} {entry:?}"));
        host.storage.want_sync();
    }

    pub(crate) fn on_read_corrupt(&mut self, _: &mut Host, _: Now, token: u64) {
        self.tell(format!("read {token} corrupt"));
    }

    pub(crate) fn on_scanned(&mut self, _: &mut Host, _: Now, token: u64, page: Page<'_>) {
        self.tell(format!("scanned {token} {} {}", page.entries.len(), page.more));
    }

    pub(crate) fn wants_scrub(&self) -> bool {
        self.book(|book| book.wants_scrub)
    }

    pub(crate) fn before_scrub(&mut self, is_first: bool) -> bool {
        let goes_on = self.book(|book| !book.puts_off_scrub);
        if is_first && goes_on {
            self.tell("scrub begins".into());
        }
        goes_on
    }

    pub(crate) fn on_scrub_lost(&mut self) {
        self.tell("scrub lost".into());
    }

    pub(crate) fn expire(&mut self, deletes_max: usize) -> usize {
        self.book(|book| {
            let deleted = book.overdue.min(deletes_max);
            book.overdue -= deleted;
            deleted
        })
    }

    pub(crate) fn on_scrubbed(&mut self, host: &mut Host, _: Now, after: Option<&[u8]>, page: Page<'_>) {
        let written: Vec<_> =
            ["a", "b"].into_iter().filter(|key| host.storage.is_written_since_scan(key.as_bytes())).collect();
        let after = after.map(String::from_utf8_lossy);
        self.tell(format!(
            "scrubbed after {after:?}, {} bytes, written since {written:?}",
            page.entries.len()
        ));
    }

    pub(crate) fn sweep(&mut self, _: &mut Host, _: Now) -> bool {
        self.tell("sweep".into());
        self.book(|book| book.is_work_left)
    }

    pub(crate) fn checkpoint(&self, host: &mut Host) {
        host.append(self.membership.partition, |out| out.extend_from_slice(b"open"));
    }

    pub(crate) fn status(&self) -> PartitionStatus {
        PartitionStatus {
            partition: self.membership.partition,
            epoch: self.membership.epoch,
            standing: self.membership.standing,
            primary: self.membership.primary,
            leads: false,
            open_ops: 0,
            logged: 0,
            released: 0,
            proven: true,
        }
    }
}

/// Node 1 with its partitions.
pub(crate) struct Node {
    pub(crate) core: Replica,
    pub(crate) now: Now,
}

impl Node {
    /// A node that has just started.
    pub(crate) fn started(timing: Timing) -> Self {
        IS_RECORDING.set(true);
        let core = Replica::new(NodeConfig {
            node: NodeId(1),
            metadata: vec![METADATA],
            switch: Some(SWITCH),
            coordinates: false,
            incarnation: INCARNATION,
            storage: 9,
            internal_client: ClientId::new(1, 1),
            value_bytes_max: nicekv_proto::limits::LARGE_VALUE_BYTES_MAX,
            hash_seed: 1,
            tells_visibility: false,
            timing,
        });
        Self { core, now: Now { boot_ns: 10_000_000_000, unix_ms: 1_000_000 } }
    }

    /// A node that is in an epoch of [`PARTITION`] with nodes 2 and 3.
    pub(crate) fn member() -> Self {
        let mut node = Self::started(quiet());
        node.receive(METADATA, |out| assign(PARTITION, MatchRange::ALL).encode(out));
        node.sent();
        node
    }

    pub(crate) fn receive(&mut self, from: SocketAddrV4, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        self.core.handle_datagram(self.now, from, &bytes);
        self.core.handle_batch_end(self.now);
    }

    /// Makes a partition perform this action, when it handles a request.
    pub(crate) fn act(&mut self, act: impl FnOnce(&mut Host, Now) + 'static) {
        ACT.set(Some(Box::new(act)));
        self.receive(CLIENT, crate::node::tests::dispatch::some_get);
        self.told();
    }

    /// Takes all datagrams that the node sends.
    pub(crate) fn sent(&mut self) -> Vec<(SocketAddrV4, Vec<u8>)> {
        let mut out = Vec::new();
        std::iter::from_fn(|| Some((self.core.poll_transmit(&mut out)?, out.clone()))).collect()
    }

    /// Takes the requests to the disk, formatted as text.
    pub(crate) fn asked(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.core.poll_storage().map(|request| format!("{request:?}"))).collect()
    }

    /// Takes the calls of the node's partitions that were recorded since the last time.
    pub(crate) fn told(&mut self) -> Vec<String> {
        BOOKS.with_borrow_mut(|books| {
            books.values_mut().flat_map(|book| std::mem::take(&mut book.told)).collect()
        })
    }

    /// How many messages were refused, malformed, or dropped since the start.
    pub(crate) fn turned_away(&self) -> (u64, u64, u64) {
        let counters = self.core.status().counters;
        (counters.refused, counters.malformed, counters.dropped)
    }

    pub(crate) fn grant(&mut self, term: Term) {
        let sent_ns = self.now.boot_ns;
        let reply = HeartbeatReply { term, incarnation: INCARNATION, sent_ns, lease_ns: 1_000_000 };
        self.receive(METADATA, |out| reply.encode(out));
    }
}

/// With this timing nothing happens by itself except heartbeats.
pub(crate) fn quiet() -> Timing {
    let zero = std::time::Duration::ZERO;
    Timing {
        scrub_interval: zero,
        usage_interval: zero,
        sources_interval: zero,
        heat_interval: zero,
        ..Timing::default()
    }
}

pub(crate) fn member(node: u16) -> Member {
    Member {
        node: NodeId(node),
        state: MemberState::Consistent,
        role: MemberRole::Original,
        address: address(node as u8),
    }
}

/// An epoch in which nodes 1, 2 and 3 hold this range, and node 2 leads.
pub(crate) fn assign(partition: PartitionId, range: MatchRange) -> Assign {
    Assign {
        term: TERM,
        incarnation: INCARNATION,
        partition,
        keyspace: KeyspaceId::DEFAULT,
        range,
        order: nicekv_proto::KeyOrder::Hash,
        replication: Replication::Multicast,
        multicast: SocketAddrV4::new(Ipv4Addr::new(10, 11, 0, 0), 7400),
        epoch: EPOCH,
        activated: true,
        primary: NodeId(2),
        replicas: 3,
        members: vec![member(1), member(2), member(3)],
        discard: false,
        children: Vec::new(),
        sealed: false,
        parents: Vec::new(),
        stamp_min: Round::default(),
    }
}
