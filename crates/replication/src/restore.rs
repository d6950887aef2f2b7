//! From the log and back: replaying it at the start, and writing its open part again so that the rest can be trimmed.

use crate::clients::Lookup;
use crate::partition::{Decided, Partition};
use crate::record::Record;
use crate::shared::Shared;
use alloc::vec::Vec;
use nicekv_wire::replication::Decision;
use nicekv_wire::{ClientId, Datagram, DecodeError, Now};

/// Bytes of deduplication records per log record.
const CLIENTS_RECORD_BYTES: usize = 128 << 10;

impl Partition {
    /// Takes up one record of the log. It is durable, and its effects go to the engine once more, in the order of the log.
    pub(crate) fn replay(
        &mut self,
        shared: &mut Shared,
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
                    self.insert_op(number, contended, datagram.into(), now);
                    self.ops.get_mut(&op).expect("just inserted").forced = true;
                }
            }
            Record::Decision(decision) => self.replay_decision(shared, now, &decision)?,
            Record::Released { through, .. } => {
                self.release(shared, now, through);
                if through > self.logged {
                    (self.logged, self.released) = (through, through);
                }
            }
            Record::Reset { .. } => {
                self.reset();
                shared.storage.discard_writes(self.id);
            }
            Record::Clients { payload, .. } => {
                self.clients.import(payload)?;
            }
        }
        self.forced = self.logged;
        Ok(())
    }

    fn replay_decision(
        &mut self,
        shared: &mut Shared,
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
        self.settle(shared, now, Decided::from_wire(decision));
        Ok(())
    }

    /// Appends what is open, so that earlier records are no longer needed once the engine is durable.
    pub(crate) fn checkpoint(&self, shared: &mut Shared) {
        let partition = self.id;
        let mut append = |record: Record<'_>| {
            shared.storage.append(|out| record.append(out));
        };
        append(Record::Released { partition, through: self.released });
        let mut ops: Vec<_> = self.ops.values().collect();
        ops.sort_unstable_by_key(|op| op.order);
        for op in ops {
            append(Record::Prepare { partition, contended: op.contended, datagram: &op.datagram });
        }
        for decided in &self.decisions {
            append(Record::Decision(decided.wire(partition, self.epoch)));
        }
        let (mut after, mut more) = (ClientId(0), true);
        while more {
            let (piece, last);
            (piece, last, more) = self.clients.export(after, CLIENTS_RECORD_BYTES);
            append(Record::Clients { partition, payload: &piece });
            after = last;
        }
    }
}
