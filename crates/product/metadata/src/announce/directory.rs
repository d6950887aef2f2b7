//! The directory for nodes that coordinate requests to chains themselves (TurboKV §1). Like the
//! switches' records, it is a function of the persisted state.

use nicekv_proto::directory::DirectoryRecord;
use nicekv_proto::placement::Directory;

use crate::policy::Policy;
use crate::state::State;

/// The directory of all partitions whose members form a chain.
pub(crate) fn compile(state: &State) -> Directory {
    let address = |node| {
        let known = state.nodes.iter().find(|known| known.config.id == node);
        known.map(|known| known.config.address)
    };
    let record = |(id, partition): (_, &crate::state::Partition)| {
        let keyspace = state.keyspace(partition);
        if !Policy::of(keyspace).is_chain {
            return None;
        }
        Some(DirectoryRecord {
            keyspace: keyspace.id,
            partition: id,
            epoch: nicekv_proto::Epoch(partition.epoch),
            head: address(partition.primary)?,
            tail: address(partition.tail())?,
            range: partition.range,
        })
    };
    Directory::new(state.version, state.partitions().filter_map(record).collect())
}
