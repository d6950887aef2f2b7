//! From the log and back: replaying it at the start, and writing its open part again so that the rest can be trimmed.

use crate::clients::{ExportCursor, Lookup};
use crate::history::History;
use crate::join::Former;
use crate::partition::{Decided, Partition};
use crate::record::{Position, Record};
use alloc::vec::Vec;
use nicekv_node::Host;
use nicekv_wire::bytes::Reader;
use nicekv_wire::replication::Decision;
use nicekv_wire::{Datagram, DecodeError, Now, StoredUpdate};

/// Bytes of deduplication records per log record.
const CLIENTS_RECORD_BYTES: usize = 128 << 10;

impl Partition {
    /// Takes up one record of the log. It is durable, and its effects go to the engine once more, in the order of the log.
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
                let finished = matches!(self.clients.lookup(update.op), Lookup::Finished(_));
                if !finished && !self.ops.contains_key(&update.op) {
                    let op = update.op;
                    self.insert_op(number, contended, StoredUpdate::new(&update, datagram), now);
                    self.ops.get_mut(&op).expect("just inserted").forced = true;
                }
            }
            Record::Decision(decision) => self.replay_decision(host, now, &decision)?,
            Record::Released { through, .. } => {
                self.release(host, now, through);
                if through > self.logged {
                    (self.logged, self.released) = (through, through);
                }
            }
            Record::Join { handoff, .. } => self.set_aside(host, handoff),
            Record::Clients { payload, .. } => {
                self.clients.import(payload)?;
            }
            Record::Begin { since, floor, history, .. } => {
                let history = History::read(&mut Reader::new(history))?;
                self.begin(host, since, floor, history, |_| false);
            }
            Record::Copied { payload, .. } => self.store_copied(host, payload)?,
            Record::Complete => self.former = None,
            Record::Held { through, .. } => self.held_by_originals = through,
            Record::Position { position, history, .. } => {
                self.take_position(host, now, position, History::read(&mut Reader::new(history))?);
            }
        }
        self.forced = self.logged;
        Ok(())
    }

    fn take_position(&mut self, host: &mut Host, now: Now, position: Position, history: History) {
        self.release(host, now, position.released);
        if position.released > self.logged {
            (self.logged, self.released) = (position.released, position.released);
        }
        self.former = position.since.map(|since| Former::through(host, since, history.clone()));
        self.history = history;
        (self.floor, self.held_by_originals) = (position.floor, position.held_by_originals);
    }

    fn replay_decision(
        &mut self,
        host: &mut Host,
        now: Now,
        decision: &Decision<'_>,
    ) -> Result<(), DecodeError> {
        if decision.index <= self.logged {
            return Ok(());
        }
        if decision.index != self.logged + 1 {
            return Err(DecodeError::UnknownValue {
                field: "index of decision record",
                value: decision.index,
            });
        }
        self.logged = decision.index;
        self.history.note(decision.index, decision.origin);
        self.settle(host, now, Decided::from_wire(decision));
        Ok(())
    }

    /// Appends what is open, so that earlier records are no longer needed once the engine is durable.
    pub(crate) fn append_open(&self, host: &mut Host) {
        let mut append = |record: Record<'_>| {
            host.append(self.id(), |out| record.append(out));
        };
        let position = Position {
            // What was set aside and is not compared with the primary's is too much to write again: it would copy everything.
            since: self.former.as_ref().map(|former| if former.compared { former.logged } else { 0 }),
            floor: self.floor,
            released: self.released,
            held_by_originals: self.held_by_originals,
        };
        let mut runs = Vec::new();
        self.history.append(&mut runs);
        append(Record::Position { position, history: &runs });
        let mut ops: Vec<_> = self.ops.values().collect();
        ops.sort_unstable_by_key(|op| op.order);
        for op in ops {
            append(Record::Prepare { contended: op.contended, datagram: op.stored.datagram() });
        }
        for decided in &self.decisions {
            append(Record::Decision(decided.wire(self.id(), self.membership.epoch)));
        }
        let (mut cursor, mut more) = (ExportCursor::START, true);
        while more {
            let piece;
            (piece, cursor, more) = self.clients.export(cursor, CLIENTS_RECORD_BYTES);
            append(Record::Clients { payload: &piece });
        }
    }
}
