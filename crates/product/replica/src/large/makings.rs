//! The node's part in building values (`making`): it reads the parts, writes the result, and tells
//! the partition.

use super::Reader;
use super::making::{MAKINGS_MAX, Making, Recipe, Step};
use crate::node::Replica;
use crate::node::host::Host;
use crate::node::storage::ValueEnd;
use nicekv_proto::recovery::VALUE_PART_BYTES;
use nicekv_proto::{Now, OpId};

impl Host {
    /// Starts building a value; false: too many are being built, and it has to wait. When it is on
    /// disk, or cannot be built, the partition is told (`Partition::on_value_made`).
    pub(crate) fn make_value(&mut self, recipe: Recipe) -> bool {
        if self.values.makings.len() >= MAKINGS_MAX {
            return false;
        }
        let name = recipe.name;
        self.values.makings.insert(name, Making::new(recipe));
        self.make_on(name);
        true
    }

    fn make_on(&mut self, name: OpId) {
        while let Some(making) = self.values.makings.get_mut(&name) {
            match making.next_step() {
                Step::Read(part, offset) => {
                    let bytes = VALUE_PART_BYTES.min(part.length - offset);
                    return self.queue_read(part.name, offset, bytes, Reader::Making { name });
                }
                Step::Write(bytes) => {
                    let offset = making.take(&bytes);
                    self.storage.write_value(&making.made, offset, &bytes);
                }
                Step::End => {
                    making.made.checksum = making.checksum.finish();
                    return self.storage.end_value(making.made);
                }
            }
        }
    }

    /// A piece of a part was read. Whether there was one.
    fn take_piece(&mut self, name: OpId, bytes: Option<&[u8]>) -> bool {
        let Some(making) = self.values.makings.get_mut(&name) else { return true };
        let Some(bytes) = bytes else { return false };
        let offset = making.take(bytes);
        making.read += bytes.len() as u32;
        self.storage.write_value(&making.made, offset, bytes);
        self.make_on(name);
        true
    }
}

impl Replica {
    /// A piece of a part was read, or is damaged or gone.
    pub(super) fn on_piece_read(&mut self, now: Now, name: OpId, bytes: Option<&[u8]>) {
        if !self.host.take_piece(name, bytes) {
            self.host.storage.remove_value(name);
            self.on_making_ended(now, name, ValueEnd::Wrong);
        }
    }

    /// A value that was built here is complete, or failed.
    pub(super) fn on_making_ended(&mut self, now: Now, name: OpId, end: ValueEnd) {
        let Some(Making { recipe, made, .. }) = self.host.values.makings.remove(&name) else { return };
        let made = if end == ValueEnd::Whole { Ok(made) } else { Err(end) };
        self.host.values.counters.made += u64::from(made.is_ok());
        match self.partitions.slot(recipe.partition) {
            Some(slot) => self.partitions[slot].on_value_made(&mut self.host, now, &recipe.key, name, made),
            None => self.host.finish_internal(name),
        }
    }
}
