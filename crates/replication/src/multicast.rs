//! The partition as the node that hosts it sees it: which event goes where.

use crate::get::{WaitingGet, decode_entry};
use crate::partition::Partition;
use crate::prepare::Source;
use crate::record::Record;
use crate::waits::{PendingRead, UnforcedWhat};
use core::net::SocketAddrV4;
use nicekv_node::{
    CopyChunk, CopyRequest, Host, Membership, Message, Page, PartitionStatus, Protocol, Request, Standing,
};
use nicekv_wire::bytes::Reader;
use nicekv_wire::control::Assign;
use nicekv_wire::recovery::{Entry, Wanted, read_keyed_entry};
use nicekv_wire::repair::KeyState;
use nicekv_wire::replication::{PrepareAck, Progress};
use nicekv_wire::{DecodeError, Entries, NodeId, Now, PartitionId, Replication};

impl Protocol for Partition {
    fn new(partition: PartitionId, _: Replication, host: &Host) -> Self {
        Self::outside(partition, host)
    }

    fn of_record(partition: PartitionId, record: &[u8], host: &Host) -> Option<Self> {
        Record::decode(record).is_ok().then(|| Self::outside(partition, host))
    }

    fn is(&self, replication: Replication) -> bool {
        replication == Replication::Multicast
    }

    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn on_assign(&mut self, host: &mut Host, now: Now, assign: &Assign) -> bool {
        self.take_assign(host, now, assign)
    }

    fn replay(&mut self, host: &mut Host, now: Now, number: u64, record: &[u8]) -> Result<(), DecodeError> {
        self.take_record(host, now, number, &Record::decode(record)?)
    }

    fn on_request(&mut self, host: &mut Host, now: Now, from: SocketAddrV4, request: Request<'_>) {
        match request {
            Request::Get(get) => self.on_get(host, now, get, from),
            Request::Update(update, datagram) => {
                self.on_update(host, now, update, datagram, Source::Client(from));
            }
            Request::Query(query) => host.refuse(query.op, query.reply_to.or(Some(from))),
            Request::Store(store) => host.refuse(store.op, store.reply_to.or(Some(from))),
        }
    }

    fn on_message(&mut self, host: &mut Host, now: Now, sender: NodeId, message: Message<'_>) {
        match message {
            Message::PrepareAck(ack) if self.is_primary() => self.on_prepare_ack(host, now, sender, ack),
            Message::PrepareAck(_) => {}
            Message::Progress(progress, prepares) => {
                self.on_progress(host, now, sender, progress);
                self.release_expired(host, now, progress, prepares);
            }
            Message::Watermark(watermark) => {
                if self.membership.primary == sender {
                    self.on_watermark(host, now, watermark);
                }
            }
            Message::Decision(decision) => {
                if self.is_primary() {
                    self.on_adopted(host, now, sender, decision);
                } else if self.membership.primary == sender {
                    self.on_decision(host, now, decision);
                }
            }
            Message::Resent { logged, update, datagram } => {
                self.on_update(host, now, update, datagram, Source::Member { logged });
            }
            Message::RecoverRequest(request) => self.on_recover_request(host, request),
            Message::RecoverReply(reply) => self.on_recover_reply(host, now, reply),
            Message::Fetch(Wanted::Op(op)) => self.on_fetch_op(host, op, sender),
            Message::Fetch(Wanted::DecisionsAfter(after)) => self.on_fetch_decisions(host, sender, after),
            Message::RepairRequest(request) => self.on_repair_request(host, now, request),
            Message::RepairReply(reply) => self.on_repair_reply(host, now, reply),
            Message::ScrubPage(page) => self.on_scrub_page(host, now, page),
        }
    }

    fn on_copy_request(&mut self, host: &mut Host, _: Now, request: CopyRequest<'_>) {
        let CopyRequest { peer, joiner, section, since, after } = request;
        self.serve_copy(host, peer, joiner, section, since, after);
    }

    fn on_copy_chunk(&mut self, host: &mut Host, now: Now, chunk: CopyChunk<'_>) {
        self.take_copy_chunk(host, now, chunk.epoch, chunk.section, chunk.more, chunk.payload);
    }

    fn on_forced(&mut self, host: &mut Host, now: Now, record: u64) {
        let unforced = self.waits.finish_force(record);
        if unforced.resets != self.resets {
            return;
        }
        match unforced.what {
            UnforcedWhat::Prepare(op) => self.on_prepare_forced(host, now, op),
            UnforcedWhat::Decision(index) => self.on_decision_forced(host, now, index),
            UnforcedWhat::Copy => self.on_copy_forced(host, now),
        }
    }

    fn on_read(&mut self, host: &mut Host, now: Now, token: u64, entry: Option<&[u8]>) {
        match self.waits.finish_read(token) {
            PendingRead::Get { op, reply_to, key } => {
                let get = WaitingGet { op, reply_to };
                self.on_get_read(host, now, get, &key, entry.map(decode_entry));
            }
            PendingRead::Evaluate { key } => {
                let value = entry.map(decode_entry).as_ref().and_then(crate::evaluate::KeyValue::from_entry);
                self.on_state_read(host, now, token, &key, value);
            }
            PendingRead::Repair { epoch, to, asked, key } => {
                let state = entry.map_or(KeyState::Absent, KeyState::Stored);
                self.on_repair_read(host, now, (epoch, to, asked), &key, state);
            }
        }
    }

    fn on_read_corrupt(&mut self, host: &mut Host, now: Now, token: u64) {
        match self.waits.finish_read(token) {
            PendingRead::Get { op, reply_to, key } => {
                self.on_get_corrupt(host, now, WaitingGet { op, reply_to }, &key);
            }
            PendingRead::Evaluate { key } => self.on_state_corrupt(host, now, token, &key),
            PendingRead::Repair { epoch, to, asked, key } => {
                self.on_repair_read(host, now, (epoch, to, asked), &key, KeyState::Corrupt);
            }
        }
    }

    fn on_scanned(&mut self, host: &mut Host, now: Now, token: u64, page: Page<'_>) {
        let scan = self.waits.finish_scan(token);
        // A copy must not go without them: the joiner asks again.
        self.begin_repairs(host, now, page.corrupt);
        if page.corrupt.is_empty() {
            self.take_page(host, now, scan, page.entries, page.more);
        }
    }

    fn wants_scrub(&self, now: Now) -> bool {
        self.is_primary() && self.agenda.needs_pass(now)
    }

    fn before_scrub(&mut self, now: Now, is_first: bool) -> bool {
        if self.is_primary() && self.agenda.is_saturated(now) {
            return false;
        }
        if is_first {
            self.agenda.begin_pass();
        }
        true
    }

    fn on_scrubbed(&mut self, host: &mut Host, now: Now, after: &[u8], page: Page<'_>) {
        self.begin_repairs(host, now, page.corrupt);
        if self.membership.standing == Standing::Consistent {
            self.list(host, after, &page);
        }
        let may_drop = host.disk_space != nicekv_node::DiskSpace::Exhausted;
        let mut reader = Reader::new(page.entries);
        while !reader.is_empty() {
            let (key, entry) = read_keyed_entry(&mut reader).expect("the engine returns what was stored");
            let entry: Entry<'_> = decode_entry(entry);
            if !host.storage.is_written_since_scan(key) {
                self.agenda.note_found(key, &entry);
            }
            if may_drop && entry.value.is_none() {
                self.drop_old_tombstone(host, key, entry.index);
            }
        }
    }

    fn on_scrub_lost(&mut self) {
        self.agenda.break_pass();
    }

    fn expire(&mut self, host: &mut Host, now: Now, deletes_max: usize) -> usize {
        self.expire_overdue(host, now, deletes_max)
    }

    fn sweep(&mut self, host: &mut Host, now: Now) -> bool {
        let is_work_left = self.look_over(host, now);
        self.sweep_repairs(host, now) || is_work_left
    }

    fn checkpoint(&self, host: &mut Host) {
        self.append_open(host);
    }

    fn status(&self) -> PartitionStatus {
        PartitionStatus {
            partition: self.id(),
            epoch: self.membership.epoch,
            standing: self.membership.standing,
            primary: self.membership.primary,
            leads: self.lead.as_ref().is_some_and(|lead| lead.is_ready()),
            open_ops: self.ops.len(),
            logged: self.logged,
            released: self.released,
        }
    }
}

impl Partition {
    /// A member that holds every decision, and still these ops, holds ops that are past remembering.
    fn release_expired(
        &mut self,
        host: &mut Host,
        now: Now,
        progress: &Progress,
        prepares: Entries<'_, PrepareAck>,
    ) {
        if progress.gap && progress.logged == self.logged && self.is_primary() {
            for ack in prepares.iter().filter(|ack| ack.partition == progress.partition) {
                self.decide_expired(host, now, ack.op);
            }
        }
    }

    /// Drops a tombstone that the scrub has found, if every original member holds the deletion.
    fn drop_old_tombstone(&self, host: &mut Host, key: &[u8], index: u64) {
        let is_held = self.membership.is_whole() && index <= self.released;
        if is_held && !host.storage.is_written_since_scan(key) {
            host.storage.remove(self.id(), key);
        }
    }
}
