//! The node's log: replays it at the start, reports to partitions what is synced, and trims it.

use crate::modes::Partition;
use crate::node::Replica;
use crate::node::records::NodeRecord;
use crate::split::formations::Stage;
use nicekv_proto::bytes::Reader;
use nicekv_proto::{DecodeError, Now, PartitionId};

impl Replica {
    /// Replays a record of the log. Must be called for all records in log order, before anything
    /// else is handled.
    ///
    /// # Errors
    /// The record is not in the format of this release.
    pub fn replay(&mut self, now: Now, payload: &[u8]) -> Result<(), DecodeError> {
        let number = self.host.storage.count_replayed();
        let mut reader = Reader::new(payload);
        let id = PartitionId(u32::from_be_bytes(reader.layout("partition of record")?));
        let record = reader.rest();
        if let Some(record) = NodeRecord::decode(record)? {
            return self.replay_own(id, record);
        }
        let host = &self.host;
        let Some(slot) = self.partitions.get_or_insert(id, || Partition::of_record(id, record, host)) else {
            return Err(DecodeError::UnknownValue { field: "record kind", value: 0 });
        };
        self.partitions[slot].replay(&mut self.host, now, number, record)
    }

    fn replay_own(&mut self, id: PartitionId, record: NodeRecord<'_>) -> Result<(), DecodeError> {
        match record {
            NodeRecord::Discarded => self.replay_discarded(id),
            NodeRecord::Forming(children) => self.take_forming(id, &children, Stage::Left),
            NodeRecord::Forms(children, formed) => self.take_forms(id, &children, formed),
            NodeRecord::Formed => {
                if let Some(formation) = self.formations.by_parent.get_mut(&id) {
                    formation.stage = Stage::Formed;
                }
            }
            NodeRecord::Filled(entries) => self.take_filled(id, entries)?,
            NodeRecord::Void => self.void(id),
            NodeRecord::TookOver(parents) => self.apply_takeover(id, &parents, None),
        }
        Ok(())
    }

    /// The log is synced up to this record.
    pub(crate) fn on_synced(&mut self, now: Now, through: u64) {
        while let Some((record, id)) = self.host.waits.pop_synced(through) {
            self.partitions.by_id(id).on_synced(&mut self.host, now, record);
        }
        self.tell_discarded(through);
        self.tell_formed(through);
        self.tell_takeovers(through);
        if let Some((before, _)) = self.trim_when_synced.take_if(|(_, needed)| *needed <= through) {
            self.host.storage.trim(before);
        }
    }

    /// The log has begun a new segment: appends the open state again, so that earlier segments can
    /// be trimmed.
    pub fn checkpoint(&mut self) {
        let before = self.host.storage.appended() + 1;
        // Before the partitions' own records: when later records of a parent are replayed, their
        // writes must also go to the children, so these must be known by then.
        self.checkpoint_forming();
        let host = &mut self.host;
        self.partitions.for_each(|partition| partition.checkpoint(host));
        self.trim_when_synced = Some((before, self.host.storage.appended()));
        self.host.storage.want_sync();
        self.host.storage.end_batch();
    }
}
