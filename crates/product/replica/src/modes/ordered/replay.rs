//! The log: replays it when the process starts, and appends the open state again so that earlier
//! records can be trimmed.

use super::contents::{is_large, reference};
use super::history::History;
use super::joiner::Former;
use super::locks::Op;
use super::partition::{Agreement, OrderedPartition};
use super::record::{Position, Record};
use super::sequence::Decided;
use crate::Host;
use crate::modes::ordered::clients::Lookup;
use alloc::vec::Vec;
use nicekv_proto::bytes::Reader;
use nicekv_proto::replication::Decision;
use nicekv_proto::{Datagram, DecodeError, Now, OpId, StoredUpdate};

/// About how many bytes of client records go into one log record.
pub(crate) const CLIENTS_RECORD_BYTES: usize = 128 << 10;

impl<A> OrderedPartition<A>
where
    Self: Agreement,
{
    /// Replays a record, which is synced by definition. Its effects are applied to the engine
    /// again, in log order.
    pub(crate) fn take_record(
        &mut self,
        host: &mut Host,
        now: Now,
        number: u64,
        record: &Record<'_>,
    ) -> Result<(), DecodeError> {
        match *record {
            Record::Prepare { contended, datagram, .. } => {
                let Datagram::Update(update) = Datagram::decode(datagram)?.1 else {
                    return Err(DecodeError::UnknownValue { field: "prepare record", value: 0 });
                };
                let op = update.op;
                // A prepare that is written again at the end of the log keeps its place.
                let held = self.locks.op(op);
                let keeps = held.is_some_and(|op| op.is_decided || op.stored.datagram() == datagram);
                if !keeps && !matches!(self.clients.lookup(op), Lookup::Finished(_)) {
                    // An epoch of a chain drops undecided ops without a record. If such an op was
                    // taken in again, its later prepare counts: the earlier one may be the stub
                    // that a full head logs in place of an op that it refuses.
                    self.drop_undecided_op(host, op);
                    let stored = StoredUpdate::new(&update, datagram, None, self.locks.take_spare());
                    self.insert_op(host, now, number, contended, stored);
                    self.locks.mark_synced(op);
                }
            }
            Record::Decision(decision) => self.replay_decision(host, now, &decision)?,
            Record::Released { through, .. } => {
                self.release(host, now, through);
                self.sequence.replay_released(through);
            }
            Record::Join { afresh } => self.set_aside(host, afresh),
            Record::Clients { payload, .. } => {
                self.clients.import(payload)?;
                self.keep_named(host);
            }
            Record::Begin { since, floor, history, .. } => {
                let history = History::read(&mut Reader::new(history))?;
                self.begin(host, since, floor, history, |_| false);
            }
            Record::Copied { payload, .. } => self.store_copied(host, payload)?,
            Record::Complete => self.former = None,
            Record::TookOver { index } => self.restart_after(host, index),
            Record::Held { through, .. } => self.contents.set_held_by_originals(through),
            Record::Position { position, history, .. } => {
                self.take_position(host, now, position, History::read(&mut Reader::new(history))?);
            }
        }
        self.sequence.sync_all();
        Ok(())
    }

    fn take_position(&mut self, host: &mut Host, now: Now, position: Position, history: History) {
        if position.released > self.sequence.logged() || self.contents.recent().is_unused() {
            // The log begins here. Earlier decisions are in the engine, but which keys they wrote
            // is unknown.
            let through = position.released.max(position.since.unwrap_or(0));
            self.contents.recent_mut().begin_after(through);
        }
        self.release(host, now, position.released);
        self.sequence.replay_released(position.released);
        self.former = position.since.map(|since| Former::through(host, since, history.clone()));
        self.sequence.set_history(history);
        self.contents.set_floor(position.floor);
        self.contents.set_held_by_originals(position.held_by_originals);
    }

    fn replay_decision(
        &mut self,
        host: &mut Host,
        now: Now,
        decision: &Decision<'_>,
    ) -> Result<(), DecodeError> {
        if decision.index <= self.sequence.logged() {
            return Ok(());
        }
        if decision.index != self.sequence.logged() + 1 {
            return Err(DecodeError::UnknownValue {
                field: "index of decision record",
                value: decision.index,
            });
        }
        self.sequence.log(decision.index, decision.origin);
        self.settle(host, now, Decided::from_wire(decision));
        Ok(())
    }

    /// After a restart: drops ops that were logged but whose large value is not on disk. Such an op
    /// was never synced (L2), so it was not acknowledged.
    pub(crate) fn drop_torn(&mut self, host: &mut Host) {
        let lacks_value =
            |op: &Op| reference(&op.stored).is_some_and(|of| !host.storage.holds_value(of.name));
        let torn = self.locks.undecided_after(0).filter(|(_, state)| lacks_value(state));
        let torn: Vec<OpId> = torn.map(|(op, _)| op).collect();
        for op in torn {
            self.drop_undecided_op(host, op);
        }
    }

    /// Drops an op, if it is open, as if it had not been logged.
    fn drop_undecided_op(&mut self, host: &mut Host, op: OpId) {
        self.locks.decide(op);
        let Some(state) = self.locks.remove(op) else { return };
        state.stored.each_key(|key| {
            self.locks.unlock(&mut host.visibility, key);
        });
        if is_large(&state.stored) {
            host.storage.let_go_value(op, self.id());
        }
    }

    /// Appends the open state to the log, so that earlier records can be trimmed once the engine is
    /// durable.
    pub(crate) fn append_open(&self, host: &mut Host) {
        let mut append = |record: Record<'_>| {
            host.append(self.id(), |out| record.append(out));
        };
        let position = Position {
            // State that was set aside and not compared with the primary's is not logged again. The
            // joiner then copies everything.
            since: self.former.as_ref().map(|former| if former.compared { former.logged } else { 0 }),
            floor: self.contents.floor(),
            released: self.sequence.released(),
            held_by_originals: self.contents.held_by_originals(),
        };
        let mut runs = Vec::new();
        self.sequence.history().append(&mut runs);
        append(Record::Position { position, history: &runs });
        for op in self.locks.in_log_order() {
            append(Record::Prepare { contended: op.is_contended, datagram: op.stored.datagram() });
        }
        for decided in self.sequence.unreleased() {
            append(Record::Decision(decided.wire(self.id(), self.membership.epoch)));
        }
        for piece in self.client_records() {
            append(Record::Clients { payload: &piece });
        }
    }
}
