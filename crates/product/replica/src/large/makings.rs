//! Runs the building of values (`making`): reads the parts, writes the result, and notifies the
//! partition.

use super::Reader;
use super::making::{MAKINGS_MAX, Making, Recipe, Step};
use crate::node::Replica;
use crate::node::host::Host;
use crate::node::storage::ValueEnd;
use nicekv_proto::recovery::VALUE_PART_BYTES;
use nicekv_proto::{Now, OpId};

impl Host {
    /// Starts building a value. Returns false if too many are being built; then the op has to wait.
    /// `Partition::on_value_made` is called when the value is on disk or could not be built.
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

    /// Appends a piece of a part that the disk has read. Returns false if there was none.
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
    /// The disk has read a piece of a part (`None`: it is damaged or gone).
    pub(super) fn on_piece_read(&mut self, now: Now, name: OpId, bytes: Option<&[u8]>) {
        self.host.values.advanced_ns = now.boot_ns;
        if !self.host.take_piece(name, bytes) {
            self.host.storage.remove_value(name);
            self.on_making_ended(now, name, ValueEnd::Wrong);
        }
    }

    /// A value that was being built is complete, or has failed.
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
