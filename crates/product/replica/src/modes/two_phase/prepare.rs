//! The first half of a put: every member logs the client's datagram, syncs the log, and
//! acknowledges to the primary (NICE §4.3, R1).

use super::TwoPhase;
use crate::modes::bounds::OPEN_OPS_MAX;
use crate::modes::ordered::OrderedPartition;
use crate::modes::ordered::clients::Lookup;
use crate::modes::ordered::record::Record;
use crate::modes::ordered::waits::AwaitedSync;
use crate::{Host, LargePut, Standing, Step};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::large::Reference;
use nicekv_proto::recovery::{Fetch, Wanted};
use nicekv_proto::replication::{PrepareAck, Resend};
use nicekv_proto::{NodeId, Now, OpId, Reply, Status, StoredUpdate, Update};

/// The sender of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A client at this address, or behind a switch at this address that hides it.
    Client(SocketAddrV4),
    /// This node's own client.
    Own,
    /// A member that passes on an op which is open there: none of its decisions up to `logged` is
    /// about it.
    Member { sender: NodeId, logged: u64 },
}

impl Source {
    pub(crate) fn address(self) -> Option<SocketAddrV4> {
        match self {
            Self::Client(address) => Some(address),
            Self::Own | Self::Member { .. } => None,
        }
    }
}

impl OrderedPartition<TwoPhase> {
    /// An update arrives.
    pub(crate) fn on_update(
        &mut self,
        host: &mut Host,
        now: Now,
        update: &Update<'_>,
        datagram: &[u8],
        source: Source,
    ) {
        if self.membership.standing == Standing::Outside {
            host.counters.dropped += 1;
            return;
        }
        let op = update.op;
        if self.locks.holds(op) {
            self.tell_held(host, update, source);
            let is_unsynced = self.locks.op(op).is_some_and(|state| !state.is_synced);
            if is_unsynced && update.operation.reference().is_some() {
                self.tell_receiving(host, now, op);
            }
            return self.acknowledge(host, op);
        }
        self.look_for_proof(host, now);
        // Until this process is proven (R18), the primary accepts only ops that others hold, and
        // the other members accept no op that may be newer than what the disk has forgotten.
        let awaits_proof = self.membership.standing.serves() && !self.is_proven;
        match self.clients.lookup(op) {
            Lookup::New => {}
            Lookup::Finished(result) => {
                if self.is_primary() && !self.is_refusal_unreleased(op, result.status) {
                    host.trace.note(now, op, Step::Answered(result.status));
                    host.reply(update.reply_to.or(source.address()), &result.reply(op));
                }
                return;
            }
            // The client has given the op up, but it is open at the primary, which waits for this
            // ack. That is certain only if this member has not logged more than the sender had:
            // otherwise the op may have been decided since, and its result forgotten here.
            Lookup::Expired if !self.is_primary() && self.is_open_elsewhere(source) => {}
            Lookup::Expired => {
                if self.is_primary() {
                    host.reply(update.reply_to.or(source.address()), &Reply::bare(op, Status::Expired));
                }
                return;
            }
        }
        let is_new = !matches!(source, Source::Member { .. });
        if self.is_closed_to(source) || (awaits_proof && is_new) {
            // No reply: the client retries, and reaches this partition when it is ready, or the
            // child.
            host.counters.dropped += 1;
            return;
        }
        if self.is_beyond_reach(update) {
            if self.is_primary() {
                let reply = Reply::bare(op, Status::CrossPartition);
                host.reply(update.reply_to.or(source.address()), &reply);
            }
            return;
        }
        if self.refuses(host, now, update, source) {
            return;
        }
        if self.locks.count() >= OPEN_OPS_MAX && !Self::is_hold_of_member(update, source) {
            // Drop it without a refusal: if another member has accepted the op, it will be
            // executed.
            host.counters.dropped += 1;
            return;
        }
        let carries = update.operation.reference().map(Reference::checked);
        if carries.is_some_and(|carried| !self.has_value(host, now, (update, datagram), source, carried)) {
            return;
        }
        let spare = self.locks.take_spare();
        self.log_prepare(host, now, StoredUpdate::new(update, datagram, source.address(), spare));
    }

    /// Whether an op that is not open here is not accepted: in a sealed epoch clients start no op,
    /// and once the partition is drained nothing is decided.
    pub(crate) fn is_closed_to(&self, source: Source) -> bool {
        let is_open_elsewhere = matches!(source, Source::Member { .. }) && !self.is_drained();
        self.membership.sealed && !is_open_elsewhere
    }

    /// A client asks how much of a large value has arrived. Its op is open here, so all of it has.
    fn tell_held(&self, host: &mut Host, update: &Update<'_>, source: Source) {
        if let (Some(reference), Some(from)) = (update.operation.reference(), source.address()) {
            let reference = Reference::checked(reference);
            let to = (update.reply_to.unwrap_or(from), true);
            host.report_value(&self.membership, &reference, to, Status::Ok);
        }
    }

    /// Whether the large value that an op carries is on disk, so that the op can be prepared (L1).
    /// If not, the client may send it from now on, or it is fetched from a member; then the op is
    /// handled again.
    fn has_value(
        &mut self,
        host: &mut Host,
        now: Now,
        (update, datagram): (&Update<'_>, &[u8]),
        source: Source,
        reference: Reference,
    ) -> bool {
        if host.storage.holds_value(reference.name) {
            return true;
        }
        match source.address() {
            Some(from) => {
                let (reply_to, has_primary) = (update.reply_to.unwrap_or(from), true);
                let put = LargePut { reference, request: Some(datagram), from, reply_to, has_primary };
                host.expect_value(now, &self.membership, &put);
            }
            None => {
                self.tell_receiving(host, now, update.op);
                // A client that is sending the value sends it to this node, too.
                if !host.is_receiving(now, reference.name) {
                    self.fetch_for(host, datagram, source, reference);
                }
            }
        }
        false
    }

    /// An op cannot be acknowledged yet, because its value is still arriving here, or being synced:
    /// reports that to the primary, unless values have stalled here.
    fn tell_receiving(&self, host: &mut Host, now: Now, op: OpId) {
        if self.is_primary() || !host.values_advance(now) {
            return;
        }
        let (partition, epoch) = (self.id(), self.membership.epoch);
        let ack = PrepareAck { partition, epoch, op, contended: false, refused: false, receiving: true };
        host.outbox.ack_prepare(self.membership.primary_address(), ack);
    }

    /// A member passed on an op, and has the op's value. Fetches the value; then the op is handled
    /// again.
    fn fetch_for(&self, host: &mut Host, datagram: &[u8], source: Source, reference: Reference) {
        let Source::Member { sender, logged } = source else { return };
        let Some(address) = self.membership.address(sender) else { return };
        let (partition, epoch) = (self.id(), self.membership.epoch);
        let mut resend = Vec::new();
        Resend { sender, partition, epoch, logged, datagram }.encode(&mut resend);
        host.await_value(partition, reference, (address, &resend));
    }

    /// Whether an op from this source is certainly undecided.
    fn is_open_elsewhere(&self, source: Source) -> bool {
        matches!(source, Source::Member { logged, .. } if self.sequence.logged() <= logged)
    }

    pub(crate) fn log_prepare(&mut self, host: &mut Host, now: Now, stored: StoredUpdate) {
        let op = stored.head().op;
        let meets = self.locks.meets_undecided(&stored);
        let contended = meets || self.membership.standing == Standing::Joining;
        let record = Record::Prepare { contended, datagram: stored.datagram() };
        let order = host.append_awaited(self.id(), |out| record.append(out));
        host.storage.want_sync();
        self.waits.sync(order, AwaitedSync::Prepare(op));
        self.insert_op(host, now, order, contended, stored);
        if let Some(early) = self.lead.as_mut().and_then(|lead| lead.have(op)) {
            // Other members prepared the op earlier, because a large value arrives at each member
            // at a different time. This node's own ack is still missing.
            self.locks.count_acks(op, early.acks, early.is_contended, false);
            self.finish_fetching(host, now);
        }
        host.arm_sweep(now);
    }

    pub(crate) fn on_prepare_synced(&mut self, host: &mut Host, now: Now, op: OpId) {
        let Some(since_ns) = self.locks.mark_synced(op) else { return };
        host.puts.synced.count_ns(now.boot_ns.saturating_sub(since_ns));
        host.trace.note(now, op, Step::Synced);
        if let Some(lead) = &self.lead {
            self.count_ack(host, now, lead.me(), op, false, false);
        } else {
            self.acknowledge(host, op);
        }
    }

    /// Acknowledges an op to the primary if its prepare is synced and it is undecided.
    pub(crate) fn acknowledge(&mut self, host: &mut Host, op: OpId) {
        let Some(state) = self.locks.op(op) else { return };
        if self.is_primary()
            || self.membership.standing == Standing::Outside
            || !state.is_synced
            || state.is_decided
        {
            return;
        }
        let ack = PrepareAck {
            partition: self.id(),
            epoch: self.membership.epoch,
            op,
            contended: state.is_contended,
            refused: false,
            receiving: false,
        };
        host.outbox.ack_prepare(self.membership.primary_address(), ack);
    }

    /// Primary: a member acknowledges an op.
    pub(crate) fn on_prepare_ack(&mut self, host: &mut Host, now: Now, sender: NodeId, ack: &PrepareAck) {
        let Some(position) = self.membership.position(sender) else { return };
        if ack.receiving {
            self.locks.calm(ack.op);
        } else if self.locks.holds(ack.op) {
            if ack.refused && self.is_refusal_void(ack.op) {
                return;
            }
            self.count_ack(host, now, position, ack.op, ack.contended, ack.refused);
        } else if self.clients.lookup(ack.op) == Lookup::New && !ack.refused && !self.is_drained() {
            self.want_op(host, now, (sender, position), ack);
        }
    }

    /// Primary: another member holds an op that this node lacks: fetches it, so that it is
    /// completed (R15).
    fn want_op(&mut self, host: &mut Host, now: Now, (holder, position): (NodeId, usize), ack: &PrepareAck) {
        let op = ack.op;
        let Some(address) = self.membership.address(holder) else { return };
        host.trace.note(now, op, Step::Acknowledged(holder));
        let fetch = Fetch {
            sender: host.config.node,
            partition: self.id(),
            epoch: self.membership.epoch,
            wanted: Wanted::Op(op),
        };
        let lead = self.lead.as_mut().expect("only a primary wants ops");
        let is_new = lead.wanted().len() < OPEN_OPS_MAX && lead.want(op, holder);
        let is_new_ack = lead.keep_ack(op, position, ack.contended);
        if is_new || is_new_ack {
            // The client's own datagram may still arrive, so fetch at the next sweep and not now.
            host.arm_sweep(now);
        } else {
            host.outbox.send(address, |out| fetch.encode(out));
        }
    }

    fn count_ack(
        &mut self,
        host: &mut Host,
        now: Now,
        position: usize,
        op: OpId,
        contended: bool,
        refused: bool,
    ) {
        host.trace.note(now, op, Step::Acknowledged(self.membership.members[position].node));
        let all_acks = (1u16 << self.membership.members.len()) - 1;
        let votes = self.locks.count_acks(op, 1 << position, contended, refused);
        if votes.acks != all_acks {
            return;
        }
        let state = self.locks.op(op).expect("as before");
        if !state.is_decided {
            let key = state.stored.stored_key();
            // For a transaction, any of its keys leads to the op.
            self.decide_key(host, now, &key);
        }
    }

    /// Another member asks for the prepare of an op.
    pub(crate) fn on_fetch_op(&mut self, host: &mut Host, op: OpId, to: NodeId) {
        let (Some(state), Some(address)) = (self.locks.op(op), self.membership.address(to)) else { return };
        self.resend(host, state.stored.datagram(), address);
    }
}
