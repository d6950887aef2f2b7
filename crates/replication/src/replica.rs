//! A node: takes events, gives each to the partition that it concerns.

use crate::config::ReplicaConfig;
use crate::evaluate::KeyValue;
use crate::get::{WaitingGet, decode_entry};
use crate::join::StreamPeer;
use crate::partition::{Partition, Standing};
use crate::plant::Plant;
use crate::prepare::Source;
use crate::record::Record;
use crate::scrub::Scrub;
use crate::shared::{Counters, PendingRead, Shared};
use crate::storage::{StorageCompletion, StorageRequest};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_wire::control::{Assign, AssignAck};
use nicekv_wire::recovery::{CopyFrame, Wanted};
use nicekv_wire::repair::KeyState;
use nicekv_wire::replication::{Acks, Decisions, Resend};
use nicekv_wire::{
    Datagram, DecodeError, Epoch, KeyDigest, KeyspaceId, NodeId, Now, PartitionId, Reply, Status, Term,
};

/// What a replica says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// The highest term of a metadata leader that it has seen.
    pub term: Term,
    /// Its counters.
    pub counters: Counters,
    /// Its partitions.
    pub partitions: Vec<PartitionStatus>,
}

/// A partition, as one replica sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionStatus {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch that it is in.
    pub epoch: Epoch,
    /// Its standing.
    pub standing: Standing,
    /// The primary.
    pub primary: NodeId,
    /// Whether it is the primary and has recovered.
    pub leads: bool,
    /// Ops that are prepared and have not taken effect.
    pub open_ops: usize,
    /// The last decision logged.
    pub logged: u64,
    /// The last decision that every member holds.
    pub released: u64,
}

/// One node, as a pure state machine (DESIGN §2). After any `handle_*`, poll until everything returns `None`.
#[derive(Clone)]
pub struct Replica {
    pub(crate) shared: Shared,
    pub(crate) partitions: Vec<Partition>,
    heartbeat_at_ns: u64,
    /// Trim the log before `.0` when it is durable through `.1`.
    trim_when_forced: Option<(u64, u64)>,
    pub(crate) scrub: Scrub,
}

impl Replica {
    /// A node that has just started: it answers nothing before it is admitted in a new epoch (R9).
    pub fn new(config: ReplicaConfig) -> Self {
        let shared = Shared::new(config);
        let partitions = shared.config.partitioning.all().map(|id| Partition::new(id, &shared)).collect();
        Self { shared, partitions, heartbeat_at_ns: 0, trim_when_forced: None, scrub: Scrub::default() }
    }

    /// Takes up a record that was read back from the log, in the log's order, before anything else is handled.
    ///
    /// # Errors
    /// The record is not one of this release's.
    pub fn replay(&mut self, now: Now, payload: &[u8]) -> Result<(), DecodeError> {
        let number = self.shared.storage.count_replayed();
        let record = Record::decode(payload)?;
        let id = record.partition();
        let Some(partition) = self.partitions.get_mut(id.position()) else {
            return Err(DecodeError::UnknownValue { field: "partition of record", value: id.0.into() });
        };
        partition.replay(&mut self.shared, now, number, &record)
    }

    /// A datagram arrived at the node's address.
    pub fn handle_datagram(&mut self, now: Now, from: SocketAddrV4, bytes: &[u8]) {
        let Ok((header, datagram)) = Datagram::decode(bytes) else {
            self.shared.counters.malformed += 1;
            return;
        };
        if header.keyspace != KeyspaceId::DEFAULT {
            let reply_to = header.reply_to.unwrap_or(from);
            if matches!(datagram, Datagram::Get(_) | Datagram::Update(_)) {
                self.shared.reply(Some(reply_to), &Reply::bare(header.op, Status::NoSuchKeyspace));
            }
            return;
        }
        match datagram {
            Datagram::Get(get) => {
                let id = get.forwarded.map(|(partition, ..)| partition);
                if let Some(index) = self.requested(get.key, &get.digest, id) {
                    self.partitions[index].on_get(&mut self.shared, now, &get, from);
                }
            }
            Datagram::Update(update) => {
                if let Some(index) = self.requested(update.key, &update.digest, None) {
                    self.partitions[index].on_update(
                        &mut self.shared,
                        now,
                        &update,
                        bytes,
                        Source::Client(from),
                    );
                }
            }
            Datagram::Acks(acks) => self.on_acks(now, &acks),
            Datagram::Decisions(decisions) => self.on_decisions(now, &decisions),
            Datagram::Resend(resend) => self.on_resend(now, &resend),
            Datagram::RecoverRequest(request) => {
                if let Some(partition) = self.partition(request.partition) {
                    let index = partition.position();
                    self.partitions[index].on_recover_request(&mut self.shared, &request);
                }
            }
            Datagram::RecoverReply(reply) => {
                if let Some(partition) = self.partition(reply.partition) {
                    let index = partition.position();
                    self.partitions[index].on_recover_reply(&mut self.shared, now, &reply);
                }
            }
            Datagram::Fetch(fetch) => {
                if let Some(index) = self.heard(fetch.partition, fetch.epoch, fetch.sender) {
                    let partition = &mut self.partitions[index];
                    match fetch.wanted {
                        Wanted::Op(op) => partition.on_fetch_op(&mut self.shared, op, fetch.sender),
                        Wanted::DecisionsAfter(after) => {
                            partition.on_fetch_decisions(&mut self.shared, fetch.sender, after);
                        }
                    }
                }
            }
            Datagram::RepairRequest(request) => {
                if let Some(index) = self.heard(request.partition, request.epoch, request.sender) {
                    self.partitions[index].on_repair_request(&mut self.shared, now, &request);
                }
            }
            Datagram::RepairReply(reply) => {
                if let Some(index) = self.heard(reply.partition, reply.epoch, reply.sender) {
                    self.partitions[index].on_repair_reply(&mut self.shared, now, &reply);
                }
            }
            // Of a quorum keyspace.
            Datagram::QuorumQuery(_) | Datagram::QuorumStore(_) => {
                let reply_to = header.reply_to.unwrap_or(from);
                self.shared.reply(Some(reply_to), &Reply::bare(header.op, Status::NoSuchKeyspace));
            }
            Datagram::HeartbeatReply(reply) => self.shared.on_heartbeat_reply(&reply),
            Datagram::Assign(assign) => self.on_assign(now, &assign),
            Datagram::Probe(probe) => self.shared.on_probe(&probe),
            // Not for nodes.
            Datagram::Reply(_)
            | Datagram::QuorumHeld(_)
            | Datagram::Heartbeat(_)
            | Datagram::AssignAck(_)
            | Datagram::Report(_)
            | Datagram::ProbeReply(_) => self.shared.counters.refused += 1,
        }
    }

    /// The partition of a request, if its digest is right (a switch routes by it; a lie must not store a key in the wrong place).
    fn requested(&mut self, key: &[u8], digest: &KeyDigest, forwarded: Option<PartitionId>) -> Option<usize> {
        let partition = self.shared.config.partitioning.partition(digest);
        if nicekv_placement::key_digest(key) != *digest || forwarded.is_some_and(|named| named != partition) {
            self.shared.counters.malformed += 1;
            return None;
        }
        Some(partition.position())
    }

    fn partition(&mut self, id: PartitionId) -> Option<PartitionId> {
        if id.position() < self.partitions.len() {
            return Some(id);
        }
        self.shared.counters.malformed += 1;
        None
    }

    /// The partition that a message between nodes is about, if it is of the current epoch and from a member (R4).
    fn heard(&mut self, id: PartitionId, epoch: Epoch, sender: NodeId) -> Option<usize> {
        let index = self.partition(id)?.position();
        let partition = &self.partitions[index];
        let is_member = || partition.standing != Standing::Outside && partition.position(sender).is_some();
        if partition.accepts(epoch, sender) || (self.shared.has(Plant::EpochUnchecked) && is_member()) {
            return Some(index);
        }
        self.shared.counters.refused += 1;
        None
    }

    fn on_acks(&mut self, now: Now, acks: &Acks) {
        for ack in &acks.prepares {
            if let Some(index) = self.heard(ack.partition, ack.epoch, acks.sender)
                && self.partitions[index].is_primary()
            {
                self.partitions[index].on_prepare_ack(&mut self.shared, now, acks.sender, ack);
            }
        }
        for progress in &acks.progress {
            let Some(index) = self.heard(progress.partition, progress.epoch, acks.sender) else { continue };
            let partition = &mut self.partitions[index];
            partition.on_progress(&mut self.shared, now, acks.sender, progress);
            // It holds every decision, and still these ops: they are past remembering.
            if progress.gap && progress.logged == partition.logged && partition.is_primary() {
                for ack in acks.prepares.iter().filter(|ack| ack.partition == progress.partition) {
                    partition.decide_expired(&mut self.shared, now, ack.op);
                }
            }
        }
    }

    fn on_decisions(&mut self, now: Now, decisions: &Decisions<'_>) {
        for watermark in decisions.watermarks() {
            if let Some(index) = self.heard(watermark.partition, watermark.epoch, decisions.sender)
                && self.partitions[index].primary == decisions.sender
            {
                self.partitions[index].on_watermark(&mut self.shared, now, &watermark);
            }
        }
        for decision in decisions.decisions() {
            let Some(index) = self.heard(decision.partition, decision.epoch, decisions.sender) else {
                continue;
            };
            let partition = &mut self.partitions[index];
            if partition.is_primary() {
                partition.on_adopted(&mut self.shared, now, decisions.sender, &decision);
            } else if partition.primary == decisions.sender {
                partition.on_decision(&mut self.shared, now, &decision);
            }
        }
    }

    fn on_resend(&mut self, now: Now, resend: &Resend<'_>) {
        let Some(index) = self.heard(resend.partition, resend.epoch, resend.sender) else { return };
        let Ok((_, Datagram::Update(update))) = Datagram::decode(resend.datagram) else { return };
        if self.requested(update.key, &update.digest, Some(resend.partition)).is_some() {
            let source = Source::Member { logged: resend.logged };
            self.partitions[index].on_update(&mut self.shared, now, &update, resend.datagram, source);
        }
    }

    fn on_assign(&mut self, now: Now, assign: &Assign) {
        if !self.shared.accepts_assign(assign) {
            self.shared.counters.refused += 1;
            return;
        }
        let Some(id) = self.partition(assign.partition) else { return };
        let partition = &mut self.partitions[id.position()];
        if partition.on_assign(&mut self.shared, now, assign) {
            let ack = AssignAck {
                node: self.shared.config.node,
                incarnation: self.shared.config.incarnation,
                partition: id,
                epoch: partition.epoch,
                activated: partition.activated,
            };
            let metadata = self.shared.config.metadata;
            self.shared.outbox.send(metadata, |out| ack.encode(out));
        }
    }

    /// A storage request has been completed.
    pub fn handle_storage(&mut self, now: Now, completion: StorageCompletion<'_>) {
        match completion {
            StorageCompletion::Forced { through } => self.on_forced(now, through),
            StorageCompletion::Read { token, entry } => {
                let read = self.finished_read(token);
                match read {
                    PendingRead::Get { partition, op, reply_to, key } => {
                        let get = WaitingGet { op, reply_to };
                        self.partitions[partition.position()].on_get_read(
                            &mut self.shared,
                            now,
                            get,
                            &key,
                            entry.map(decode_entry),
                        );
                    }
                    PendingRead::Evaluate { partition, key } => {
                        let value = entry.map(decode_entry).as_ref().and_then(KeyValue::from_entry);
                        let partition = &mut self.partitions[partition.position()];
                        partition.on_state_read(&mut self.shared, now, token, &key, value);
                    }
                    PendingRead::Repair { partition, epoch, to, asked, key } => {
                        let state = entry.map_or(KeyState::Absent, KeyState::Stored);
                        let partition = &mut self.partitions[partition.position()];
                        partition.on_repair_read(&mut self.shared, now, (epoch, to, asked), &key, state);
                    }
                }
            }
            StorageCompletion::ReadCorrupt { token } => self.on_corrupt(now, token),
            StorageCompletion::Scan { token, entries, corrupt, more } if self.is_scrub(token) => {
                self.on_scrubbed(now, entries, corrupt, more);
            }
            StorageCompletion::Scan { token, entries, corrupt, more } => {
                let scan = self.shared.scans.pop_front().expect("a scan is pending");
                assert_eq!(token, scan.token, "scans complete in order");
                let partition = &mut self.partitions[scan.partition().position()];
                // A copy must not go without them: the joiner asks again.
                partition.begin_repairs(&mut self.shared, now, corrupt);
                if corrupt.is_empty() {
                    partition.on_scanned(&mut self.shared, scan, entries, more);
                }
            }
        }
        // What the completion led to is a batch of its own.
        self.shared.storage.end_batch();
    }

    fn finished_read(&mut self, token: u64) -> PendingRead {
        let (expected, read) = self.shared.reads.pop_front().expect("a read is pending");
        assert_eq!(token, expected, "reads complete in order");
        read
    }

    /// A value is damaged.
    fn on_corrupt(&mut self, now: Now, token: u64) {
        match self.finished_read(token) {
            PendingRead::Get { partition, op, reply_to, key } => {
                let get = WaitingGet { op, reply_to };
                let partition = &mut self.partitions[partition.position()];
                partition.on_get_corrupt(&mut self.shared, now, get, &key);
            }
            PendingRead::Evaluate { partition, key } => {
                let partition = &mut self.partitions[partition.position()];
                partition.on_state_corrupt(&mut self.shared, now, token, &key);
            }
            PendingRead::Repair { partition, epoch, to, asked, key } => {
                let partition = &mut self.partitions[partition.position()];
                let asker = (epoch, to, asked);
                partition.on_repair_read(&mut self.shared, now, asker, &key, KeyState::Corrupt);
            }
        }
    }

    fn on_forced(&mut self, now: Now, through: u64) {
        while self.shared.unforced.front().is_some_and(|unforced| unforced.record <= through) {
            let unforced = self.shared.unforced.pop_front().expect("checked");
            let partition = &mut self.partitions[unforced.partition.position()];
            partition.on_forced(&mut self.shared, now, &unforced);
        }
        if let Some((before, _)) = self.trim_when_forced.take_if(|(_, needed)| *needed <= through) {
            self.shared.storage.trim(before);
        }
    }

    /// The deadline that [`Self::next_deadline`] named has passed (or not: then nothing happens).
    pub fn handle_deadline(&mut self, now: Now) {
        if now.boot_ns >= self.heartbeat_at_ns {
            self.heartbeat_at_ns = now.after(self.shared.config.timing.heartbeat);
            self.shared.send_heartbeat(now);
            self.scrub(now);
        }
        if self.shared.sweep_at_ns.is_some_and(|at_ns| now.boot_ns >= at_ns) {
            self.shared.sweep_at_ns = None;
            let mut work_left = false;
            for partition in &mut self.partitions {
                work_left |= partition.sweep(&mut self.shared, now);
                work_left |= partition.sweep_repairs(&mut self.shared, now);
            }
            if work_left {
                self.shared.arm_sweep(now);
            }
        }
    }

    /// The driver has no more input right now.
    pub fn handle_batch_end(&mut self, _now: Now) {
        self.shared.storage.end_batch();
    }

    /// A frame arrived on a copying stream.
    pub fn handle_stream(&mut self, now: Now, peer: StreamPeer, frame: &[u8]) {
        let Ok(frame) = CopyFrame::decode(frame) else {
            self.shared.counters.malformed += 1;
            return;
        };
        match frame {
            CopyFrame::Request { joiner, partition, epoch, section, since, after } => {
                if let Some(index) = self.heard(partition, epoch, joiner) {
                    let partition = &mut self.partitions[index];
                    partition.on_copy_request(&mut self.shared, peer, joiner, section, since, after);
                }
            }
            CopyFrame::Chunk { partition, epoch, section, more, payload } => {
                if let Some(id) = self.partition(partition) {
                    let partition = &mut self.partitions[id.position()];
                    partition.on_copy_chunk(&mut self.shared, now, epoch, section, more, payload);
                }
            }
        }
        self.shared.storage.end_batch();
    }

    /// The log has begun a new segment: writes the open state again, then lets go of what was before.
    pub fn checkpoint(&mut self) {
        let before = self.shared.storage.appended() + 1;
        for partition in &self.partitions {
            partition.checkpoint(&mut self.shared);
        }
        self.trim_when_forced = Some((before, self.shared.storage.appended()));
        self.shared.storage.want_force();
        self.shared.storage.end_batch();
    }

    /// Writes the next datagram to `out`; returns where it goes.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        self.shared.outbox.poll(out)
    }

    /// The next storage request; to be executed before the next one is polled.
    pub fn poll_storage(&mut self) -> Option<StorageRequest<'_>> {
        self.shared.storage.poll()
    }

    /// The next frame for a copying stream.
    pub fn poll_stream(&mut self) -> Option<(StreamPeer, Vec<u8>)> {
        self.shared.streams.pop_front()
    }

    /// When to call [`Self::handle_deadline`], on the boot-time clock.
    pub fn next_deadline(&self) -> u64 {
        self.heartbeat_at_ns.min(self.shared.sweep_at_ns.unwrap_or(u64::MAX))
    }

    /// For operators and tests.
    pub fn status(&self) -> ReplicaStatus {
        let partitions = self.partitions.iter().map(|partition| PartitionStatus {
            partition: partition.id,
            epoch: partition.epoch,
            standing: partition.standing,
            primary: partition.primary,
            leads: partition.lead.as_ref().is_some_and(|lead| lead.is_ready()),
            open_ops: partition.ops.len(),
            logged: partition.logged,
            released: partition.released,
        });
        ReplicaStatus {
            term: self.shared.term,
            counters: self.shared.counters,
            partitions: partitions.collect(),
        }
    }
}
