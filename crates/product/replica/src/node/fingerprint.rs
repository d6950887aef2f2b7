//! Support for tests that visit every state: a hash of the parts of a node's state that can matter
//! later, and invariants that must always hold.

use crate::modes::Partition;
use crate::node::Replica;
use crate::node::host::Host;
use core::hash::{Hash, Hasher};
use nicekv_proto::PartitionId;

impl Replica {
    /// Bounds the memory for client records of new partitions.
    pub fn bound_clients(&mut self, bytes_max: usize) {
        self.host.clients_bytes_max = Some(bytes_max);
    }

    /// Bounds how many recent decisions' keys new partitions remember.
    pub fn bound_recent(&mut self, decisions_max: usize) {
        self.host.recent_decisions_max = Some(decisions_max);
    }
}

impl Replica {
    /// Hashes into `state` everything that can influence later behaviour, provided that time stands
    /// still, every timeout is zero, no copy is under way and everything was polled. Record numbers
    /// count from the end of the log.
    pub fn fingerprint(&self, state: &mut impl Hasher) {
        let Host { session, waits, storage, streams, sweep_at_ns, .. } = &self.host;
        (session.term.0, session.lease_until_ns, session.direct_until_ns, sweep_at_ns.is_some()).hash(state);
        assert!(waits.reads.is_empty() && waits.scans.is_empty() && streams.is_empty());
        for (record, id) in &waits.records {
            (storage.appended() - record).hash(state);
            self.wait(*id, *record, state);
        }
        for partition in self.partitions.iter() {
            partition.fingerprint(state);
        }
    }

    fn wait(&self, id: PartitionId, record: u64, state: &mut impl Hasher) {
        let slot = self.partitions.slot(id).expect("a partition that waits is known");
        self.partitions[slot].fingerprint_wait(record, state);
    }

    /// Checks the invariants of all partitions.
    ///
    /// # Errors
    /// The invariant that is violated.
    pub fn check_invariants(&self) -> Result<(), &'static str> {
        self.partitions.iter().try_for_each(Partition::check_invariants)
    }
}
