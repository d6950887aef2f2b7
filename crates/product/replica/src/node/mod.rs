//! The node: receives events, makes the checks that every mode needs, and passes each event to its
//! partition.

pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod coordination;
pub(crate) mod directory;
pub(crate) mod discard;
pub(crate) mod discards;
pub(crate) mod fingerprint;
pub(crate) mod fragments;
pub(crate) mod heat;
pub(crate) mod host;
pub(crate) mod log;
pub(crate) mod membership;
pub(crate) mod offload;
pub(crate) mod op_marks;
pub(crate) mod outbox;
pub(crate) mod partitions;
pub(crate) mod publishing;
pub(crate) mod pubsub;
pub(crate) mod rate_limit;
pub(crate) mod records;
pub(crate) mod requests;
pub(crate) mod routes;
pub(crate) mod samples;
pub(crate) mod scripts;
pub(crate) mod scrub;
pub(crate) mod session;
pub(crate) mod sources;
pub(crate) mod status;
pub(crate) mod storage;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod trace;
pub(crate) mod usage;
pub(crate) mod visibility;
pub(crate) mod waits;

use crate::modes::Partition;
use crate::modes::messages::{CopyChunk, CopyRequest, Message};
use crate::node::config::NodeConfig;
use crate::node::directory::Coordination;
use crate::node::discards::Discards;
use crate::node::host::Host;
use crate::node::membership::Membership;
use crate::node::op_marks::OpMarks;
use crate::node::partitions::Partitions;
use crate::node::pubsub::Registry;
use crate::node::samples::HeatWatch;
use crate::node::scripts::Scripts;
use crate::node::scrub::Scrub;
use crate::node::sources::SourceCounts;
use crate::node::status::NodeStatus;
use crate::node::storage::{Page, StorageCompletion, StorageRequest};
use crate::node::trace::Trace;
use crate::node::usage::UsageWatch;
use crate::node::visibility::Shift;
use crate::split::formations::Formations;
use crate::split::takeovers::Takeovers;
use crate::types::StreamPeer;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::chain::{ChainEntry, Forwards};
use nicekv_proto::control::DiskSpace;
use nicekv_proto::fragment::FRAGMENT_BYTES;
use nicekv_proto::recovery::CopyFrame;
use nicekv_proto::replication::{Acks, Decisions, Resend};
use nicekv_proto::route::{Room, take_room};
use nicekv_proto::{Datagram, Epoch, KeyDigest, KeyspaceId, NodeId, Now, PartitionId};
use nicekv_transport::Assembler;

/// Memory for messages of which only some fragments have arrived.
const ASSEMBLED_BYTES_MAX: usize = 16 << 20;

/// One node, as a pure state machine. After any call of `handle_*`, call each `poll_*` until it
/// returns `None`.
#[derive(Clone)]
pub struct Replica {
    pub(crate) host: Host,
    pub(crate) partitions: Partitions,
    pub(crate) scrub: Scrub,
    pub(crate) usage: UsageWatch,
    pub(crate) sources: SourceCounts,
    pub(crate) heat: HeatWatch,
    pub(crate) discards: Discards,
    pub(crate) formations: Formations,
    pub(crate) takeovers: Takeovers,
    pub(crate) coordination: Coordination,
    pub(crate) registry: Registry,
    heartbeat_at_ns: u64,
    /// `(before, through)`: when the log is synced up to `through`, trim it before `before`.
    pub(crate) trim_when_synced: Option<(u64, u64)>,
    /// Buffer for a request taken from a bundle, kept to avoid allocations.
    pub(crate) bundled: Vec<u8>,
    /// Buffer for a request after its room (for the chain header or stamp) is removed, kept to
    /// avoid allocations.
    without_room: Vec<u8>,
    /// Messages of which only some fragments have arrived.
    pub(crate) assembler: Assembler<SocketAddrV4>,
}

impl Replica {
    /// A node that has just started: it answers nothing until it is admitted to a new epoch (R9).
    pub fn new(config: NodeConfig) -> Self {
        let tells_visibility = config.tells_visibility;
        let mut core = Self {
            sources: SourceCounts::new(!config.timing.sources_interval.is_zero()),
            heat: HeatWatch::default(),
            registry: Registry::new(config.hash_seed),
            host: Host::new(config),
            partitions: Partitions::default(),
            scrub: Scrub::default(),
            usage: UsageWatch::default(),
            discards: Discards::default(),
            formations: Formations::default(),
            takeovers: Takeovers::default(),
            coordination: Coordination::default(),
            heartbeat_at_ns: 0,
            trim_when_synced: None,
            bundled: Vec::new(),
            without_room: Vec::new(),
            assembler: Assembler::new(FRAGMENT_BYTES, ASSEMBLED_BYTES_MAX),
        };
        if tells_visibility {
            core.tell_visibility();
        }
        core
    }

    /// Sets the engine that runs scripts.
    pub fn run_scripts(&mut self, scripts: Scripts) {
        self.host.scripts = scripts;
    }

    /// Makes the node mark the op that it evaluates, in case the evaluation ends the process.
    pub fn mark_ops(&mut self, marks: OpMarks) {
        self.host.op_marks = marks;
    }

    /// A datagram has arrived at the node's address.
    pub fn handle_datagram(&mut self, now: Now, from: SocketAddrV4, bytes: &[u8]) {
        let mut plain = core::mem::take(&mut self.without_room);
        match take_room(bytes, &mut plain) {
            None => self.handle_plain(now, from, bytes, None),
            Some(Ok(room)) => self.handle_plain(now, from, &plain, Some(&room)),
            Some(Err(error)) => self.host.on_malformed(from, error),
        }
        self.without_room = plain;
    }

    /// Handles a datagram from which the room was removed; `room` is what a switch had written
    /// there.
    pub(crate) fn handle_plain(&mut self, now: Now, from: SocketAddrV4, bytes: &[u8], room: Option<&Room>) {
        let (header, datagram) = match Datagram::decode(bytes) {
            Ok(decoded) => decoded,
            Err(error) => return self.host.on_malformed(from, error),
        };
        match datagram {
            Datagram::Get(_)
            | Datagram::Scan(_)
            | Datagram::Update(_)
            | Datagram::QuorumQuery(_)
            | Datagram::QuorumStore(_) => {
                if !self.passes_on(from, &header, bytes) {
                    self.on_request(now, from, &header, &datagram, (bytes, room));
                }
            }
            Datagram::Directed(_)
            | Datagram::Misdirected(_)
            | Datagram::DirectoryQuery(_)
            | Datagram::DirectoryPage(_) => self.on_coordination(now, from, &datagram),
            Datagram::Bundle(bundle) => self.on_bundle(now, from, &header, &bundle, room),
            Datagram::Fragment(fragment) => self.on_fragment(now, from, &fragment, room),
            Datagram::HeartbeatReply(_) | Datagram::Assign(_) | Datagram::Probe(_) => {
                self.on_control(now, from, &datagram);
            }
            Datagram::Listen(listen) => self.on_listen(now, from, &listen),
            Datagram::Publish(publish) => self.on_publish(now, from, &publish, room),
            Datagram::Chunk(_) | Datagram::ReadChunks(_) => self.on_large(now, from, &datagram),
            Datagram::Acks(acks) => self.on_acks(now, from, &acks),
            Datagram::Decisions(decisions) => self.on_decisions(now, from, &decisions),
            Datagram::Resend(resend) => self.on_resend(now, from, &resend),
            Datagram::Forwards(forwards) => self.on_forwards(now, from, &forwards),
            Datagram::RecoverRequest(_)
            | Datagram::RecoverReply(_)
            | Datagram::Fetch(_)
            | Datagram::RepairRequest(_)
            | Datagram::RepairReply(_)
            | Datagram::ScrubPage(_)
            | Datagram::Tombstones(_)
            | Datagram::TombstonesAck(_)
            | Datagram::Entrust(_)
            | Datagram::Entrusted(_) => self.on_peer(now, from, &datagram),
            Datagram::HotClosed(_)
            | Datagram::HotAssign(_)
            | Datagram::HotCopy(_)
            | Datagram::HotDrop(_)
            | Datagram::HotPulse(_)
            | Datagram::HotPulsed(_)
            | Datagram::HotLeased(_) => self.on_hot(now, from, &datagram),
            // Messages that are meant for clients, the metadata service, switches, or targets of
            // object chunks.
            _ => self.host.counters.refused += 1,
        }
    }

    /// Checks a message between members. Returns its partition if it is of the current epoch and
    /// from a member, by name and address (R4).
    pub(crate) fn heard(
        &mut self,
        from: SocketAddrV4,
        id: PartitionId,
        epoch: Epoch,
        sender: NodeId,
    ) -> Option<usize> {
        let found = self.partitions.slot(id).filter(|slot| {
            let membership = self.partitions[*slot].membership();
            membership.accepts(epoch, sender) && self.is_from(membership, from, sender)
        });
        self.host.counters.refused += u64::from(found.is_none());
        found
    }

    /// Whether a member may send from this address: it is the member's own, or that of a switch
    /// that hides senders.
    fn is_from(&self, membership: &Membership, from: SocketAddrV4, sender: NodeId) -> bool {
        membership.address(sender) == Some(from) || self.host.config.switch == Some(from)
    }

    pub(crate) fn hear(
        &mut self,
        now: Now,
        from: SocketAddrV4,
        id: PartitionId,
        epoch: Epoch,
        sender: NodeId,
        message: Message<'_>,
    ) {
        if let Some(slot) = self.heard(from, id, epoch, sender) {
            self.partitions[slot].on_message(&mut self.host, now, sender, message);
        }
    }

    fn on_acks(&mut self, now: Now, from: SocketAddrV4, acks: &Acks<'_>) {
        let sender = acks.sender;
        for ack in acks.prepares.iter() {
            self.hear(now, from, ack.partition, ack.epoch, sender, Message::PrepareAck(&ack));
        }
        for progress in acks.progress.iter() {
            let message = Message::Progress(&progress, acks.prepares);
            self.hear(now, from, progress.partition, progress.epoch, sender, message);
        }
    }

    fn on_decisions(&mut self, now: Now, from: SocketAddrV4, decisions: &Decisions<'_>) {
        let sender = decisions.sender;
        for watermark in decisions.watermarks.iter() {
            let message = Message::Watermark(&watermark);
            self.hear(now, from, watermark.partition, watermark.epoch, sender, message);
        }
        for decision in decisions.decisions.iter() {
            let message = Message::Decision(&decision);
            self.hear(now, from, decision.partition, decision.epoch, sender, message);
        }
    }

    fn on_forwards(&mut self, now: Now, from: SocketAddrV4, forwards: &Forwards<'_>) {
        let sender = forwards.sender;
        for watermark in forwards.watermarks.iter() {
            let message = Message::Watermark(&watermark);
            self.hear(now, from, watermark.partition, watermark.epoch, sender, message);
        }
        for ChainEntry { decision, prepare } in forwards.entries.iter() {
            let Some(slot) = self.heard(from, decision.partition, decision.epoch, sender) else { continue };
            let decoded = if prepare.is_empty() { None } else { Some(Datagram::decode(prepare)) };
            let update = match &decoded {
                None => None,
                Some(Ok((_, Datagram::Update(update)))) => Some(update),
                Some(_) => {
                    self.host.counters.malformed += 1;
                    continue;
                }
            };
            if update.is_none_or(|update| self.holds(slot, update.key, &update.digest)) {
                let message = Message::Forwarded(&decision, update.map(|update| (update, prepare)));
                self.partitions[slot].on_message(&mut self.host, now, sender, message);
            }
        }
    }

    fn on_resend(&mut self, now: Now, from: SocketAddrV4, resend: &Resend<'_>) {
        let Some(slot) = self.heard(from, resend.partition, resend.epoch, resend.sender) else { return };
        let Ok((_, Datagram::Update(update))) = Datagram::decode(resend.datagram) else { return };
        if self.holds(slot, update.key, &update.digest) {
            let (logged, datagram) = (resend.logged, resend.datagram);
            let message = Message::Resent { logged, update: &update, datagram };
            self.partitions[slot].on_message(&mut self.host, now, resend.sender, message);
        }
    }

    /// Handles a message between members about one partition.
    pub(crate) fn on_peer(&mut self, now: Now, from: SocketAddrV4, datagram: &Datagram<'_>) {
        let (id, epoch, sender, message) = match datagram {
            Datagram::RecoverRequest(m) => (m.partition, m.epoch, m.sender, Message::RecoverRequest(m)),
            Datagram::RecoverReply(m) => (m.partition, m.epoch, m.sender, Message::RecoverReply(m)),
            Datagram::Fetch(m) => (m.partition, m.epoch, m.sender, Message::Fetch(m.wanted)),
            Datagram::RepairRequest(m) => (m.partition, m.epoch, m.sender, Message::RepairRequest(m)),
            Datagram::RepairReply(m) => (m.partition, m.epoch, m.sender, Message::RepairReply(m)),
            Datagram::ScrubPage(m) => (m.partition, m.epoch, m.sender, Message::ScrubPage(m)),
            Datagram::Tombstones(m) => (m.partition, m.epoch, m.sender, Message::Tombstones(m)),
            Datagram::TombstonesAck(m) => (m.partition, m.epoch, m.sender, Message::TombstonesAck(m.round)),
            Datagram::Entrust(m) => (m.partition, m.epoch, m.sender, Message::Entrust(m)),
            Datagram::Entrusted(m) => (m.partition, m.epoch, m.sender, Message::Entrusted(m.serial)),
            _ => unreachable!("only messages between members come here"),
        };
        self.hear(now, from, id, epoch, sender, message);
    }

    /// Call when the time of [`Self::next_deadline`] has come. Does nothing if called early.
    pub fn handle_deadline(&mut self, now: Now) {
        if now.boot_ns >= self.heartbeat_at_ns {
            let Host { session, config, outbox, disk_space, .. } = &mut self.host;
            self.heartbeat_at_ns = now.after(config.timing.heartbeat);
            let leader = session.leader();
            let heartbeat = session.heartbeat(config, *disk_space, now);
            let to = leader.as_ref().map_or(config.metadata.as_slice(), core::slice::from_ref);
            for instance in to {
                outbox.send(*instance, |out| heartbeat.encode(out));
            }
            self.expire(now);
            self.scrub.read_next(&mut self.host, &mut self.partitions, now);
            self.usage.tick(&mut self.host, &self.partitions, now);
            self.sources.tell(&mut self.host, now);
            self.tell_heat(now);
            self.discard(now);
            self.form(now);
            self.retry_takeovers(now);
            self.follow_directory();
            self.tend_values(now);
        }
        self.go_on_with_scripts(now);
        if self.host.sweep_at_ns.is_some_and(|at_ns| now.boot_ns >= at_ns) {
            self.host.sweep_at_ns = None;
            let mut is_work_left = false;
            let host = &mut self.host;
            self.partitions.for_each(|partition| is_work_left |= partition.sweep(host, now));
            if is_work_left {
                self.host.arm_sweep(now);
            }
            self.form_next(now);
        }
        self.report_transfers(now);
    }

    /// Starts deletes of overdue values, as many as the rate allows per heartbeat.
    fn expire(&mut self, now: Now) {
        let timing = &self.host.config.timing;
        let per_second = u128::from(timing.expiry_deletes_per_second);
        let mut left = (per_second * timing.heartbeat.as_millis()).div_ceil(1000) as usize;
        // Start with another partition each time.
        let count = self.partitions.count();
        let first = (now.boot_ns / (timing.heartbeat.as_nanos() as u64).max(1)) as usize;
        for offset in 0..count {
            left -= self.partitions[(first + offset) % count].expire(&mut self.host, now, left);
        }
    }

    /// Call when the driver has no more input at the moment.
    pub fn handle_batch_end(&mut self, now: Now) {
        self.flush_hot(now);
        self.report_transfers(now);
        self.fetch_wanted_values(now);
        self.tell_drained();
        self.host.scripts.end_turn();
        self.host.storage.end_batch();
    }

    /// Decides ops that have waited for scripts, if these have ended.
    fn go_on_with_scripts(&mut self, now: Now) {
        while let Some(waiting) = self.host.scripts.begin_turn(now) {
            if let Some(slot) = self.partitions.slot(waiting.partition) {
                self.partitions[slot].on_script_turn(&mut self.host, now, &waiting.key);
            }
            if !self.host.scripts.end_one_turn(now) {
                break;
            }
        }
    }

    /// A storage request has completed.
    pub fn handle_storage(&mut self, now: Now, completion: StorageCompletion<'_>) {
        match completion {
            StorageCompletion::Synced { through } => self.on_synced(now, through),
            StorageCompletion::Read { token, entry } => {
                let id = self.host.waits.finish_read(token);
                self.partitions.by_id(id).on_read(&mut self.host, now, token, entry);
            }
            StorageCompletion::ReadCorrupt { token } => {
                let id = self.host.waits.finish_read(token);
                self.partitions.by_id(id).on_read_corrupt(&mut self.host, now, token);
            }
            StorageCompletion::Scan { token, entries, corrupt, more } => {
                let page = Page { entries, corrupt, more };
                if self.scrub.is_reading(token) {
                    self.scrub.on_page(&mut self.host, &mut self.partitions, now, page);
                } else if self.usage.is_reading(token) {
                    self.usage.on_page(&mut self.host, &self.partitions, now, page);
                } else if self.discards.is_reading(token) {
                    self.on_discard_page(page);
                } else if self.formations.is_reading(token) {
                    self.on_parent_page(now, page);
                } else if self.host.values.is_reading(token) {
                    self.on_values_page(page);
                } else {
                    let id = self.host.waits.finish_scan(token);
                    self.partitions.by_id(id).on_scanned(&mut self.host, now, token, page);
                }
            }
            StorageCompletion::ValueEnded { name, end } => self.on_value_ended(now, name, end),
            StorageCompletion::ValueRead { token, bytes, is_damaged } => {
                self.on_value_read(now, token, bytes, is_damaged);
            }
        }
        self.retry_takeovers(now);
        self.tell_drained();
        // The requests that result from this completion form a batch of their own.
        self.host.storage.end_batch();
    }

    /// A frame has arrived on a copying stream.
    pub fn handle_stream(&mut self, now: Now, peer: StreamPeer, frame: &[u8]) {
        match CopyFrame::decode(frame) {
            Ok(CopyFrame::Request { joiner, partition, epoch, section, since, after }) => {
                let request = CopyRequest { peer, joiner, section, since, after };
                let is_accepted = |slot: &usize| {
                    matches!(peer, StreamPeer::Accepted(_))
                        && self.partitions[*slot].membership().accepts(epoch, joiner)
                };
                match self.partitions.slot(partition).filter(is_accepted) {
                    Some(slot) => self.partitions[slot].on_copy_request(&mut self.host, now, request),
                    None => self.host.counters.refused += 1,
                }
            }
            Ok(CopyFrame::Chunk { partition, epoch, section, more, payload }) => {
                let chunk = CopyChunk { peer, epoch, section, more, payload };
                // Accept answers only from members to which this node has opened the stream.
                let is_asked = |slot: &usize| {
                    let membership = self.partitions[*slot].membership();
                    let is_member =
                        |member: &nicekv_proto::control::Member| peer == StreamPeer::Dialed(member.address);
                    membership.epoch == epoch && membership.members.iter().any(is_member)
                };
                match self.partitions.slot(partition).filter(is_asked) {
                    Some(slot) => self.partitions[slot].on_copy_chunk(&mut self.host, now, chunk),
                    None => self.host.counters.refused += 1,
                }
            }
            Ok(CopyFrame::ValueRequest { asker, partition, epoch, reference, offset }) => {
                self.on_value_request(now, peer, (asker, partition, epoch), reference, offset);
            }
            Ok(CopyFrame::ValuePart { name, offset, bytes }) => {
                self.on_value_part(now, peer, name, offset, bytes);
            }
            Err(_) => self.host.counters.malformed += 1,
        }
        self.host.storage.end_batch();
    }

    /// Sets how much space is left on the disk. Without a call it is enough.
    pub fn set_disk_space(&mut self, space: DiskSpace) {
        self.host.disk_space = space;
    }

    /// Reports up to which position the process has found its log synced, counted over the life of
    /// the storage. Call once, after replaying the log. Do not call for a storage that keeps
    /// nothing.
    pub fn begin_durable(&mut self, position: u64) {
        self.host.session.begin_durable(position);
    }

    /// Reports up to which position the log is synced, counted over the life of the storage. The
    /// metadata service remembers it: if a later process finds less, its storage has forgotten
    /// something (R18).
    pub fn set_durable(&mut self, position: u64) {
        self.host.session.set_durable(position);
    }

    /// Turns on [`NodeConfig::tells_visibility`]. Call before anything is handled.
    pub fn tell_visibility(&mut self) {
        self.host.visibility.tell();
        self.host.hot.holder.tell();
    }

    /// The partition from which this node would serve a request.
    pub fn partition_of(&self, keyspace: KeyspaceId, digest: &KeyDigest) -> Option<PartitionId> {
        let slot = self.partitions.find(keyspace, digest.match_value())?;
        Some(self.partitions[slot].membership().partition)
    }

    /// Takes the next change of what may be shown outside of the core. Apply it before polling a
    /// datagram.
    #[inline]
    pub fn poll_visibility(&mut self) -> Option<Shift> {
        self.host.visibility.poll()
    }

    /// Writes the next datagram to `out`; returns its destination. Returns `None` as long as there
    /// are changes of what may be shown that were not polled.
    #[inline]
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        if !self.host.visibility.is_taken() || !self.host.hot.holder.is_taken() {
            return None;
        }
        self.host.outbox.poll(out)
    }

    /// Takes the next storage request. Execute it before polling the next one.
    #[inline]
    pub fn poll_storage(&mut self) -> Option<StorageRequest<'_>> {
        self.host.storage.poll()
    }

    /// Takes the next frame for a copying stream.
    #[inline]
    pub fn poll_stream(&mut self) -> Option<(StreamPeer, Vec<u8>)> {
        self.host.streams.pop_front()
    }

    /// When to call [`Self::handle_deadline`] next, on the boot-time clock.
    #[inline]
    pub fn next_deadline(&self) -> u64 {
        let hot_ns = self.host.hot.next_deadline();
        let values_ns = self.host.values.next_deadline();
        let scripts_ns = self.host.scripts.next_deadline();
        let sweep_ns = self.host.sweep_at_ns.unwrap_or(u64::MAX);
        self.heartbeat_at_ns.min(sweep_ns).min(hot_ns).min(values_ns).min(scripts_ns)
    }

    /// The trace of one client's requests.
    pub fn trace(&mut self) -> &mut Trace {
        &mut self.host.trace
    }

    /// For consistent reads of a partition's engine: its epoch, and the decision up to which the
    /// engine will contain everything, and nothing more, once the pending storage requests are
    /// executed. Everything acknowledged so far is included. `None` if gets could not be answered
    /// now (R12).
    pub fn settled(&self, now: Now, partition: PartitionId) -> Option<(Epoch, u64)> {
        let slot = self.partitions.slot(partition).filter(|_| self.host.has_lease(now))?;
        let partition = &self.partitions[slot];
        Some((partition.membership().epoch, partition.settled()?))
    }

    /// Status for operators and tests.
    pub fn status(&self) -> NodeStatus {
        NodeStatus {
            node: self.host.config.node,
            term: self.host.session.term,
            counters: self.host.counters,
            puts: self.host.puts,
            latest: self.host.latest,
            hot: self.host.hot.counters,
            values: self.host.values.counters,
            partitions: self.partitions.iter().map(Partition::status).collect(),
        }
    }
}
