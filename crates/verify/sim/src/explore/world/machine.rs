//! A node and its disk. Time stands still.

use super::{METADATA, NOW};
use crate::disk::{Busy, Disk};
use nicekv_proto::limits::PORT_DEFAULT;
use nicekv_proto::{ClientId, Duration, Epoch, NodeId, PartitionId};
use nicekv_replica::Replica;
use nicekv_replica::{NodeConfig, PartitionStatus, Standing, Timing};
use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::{Ipv4Addr, SocketAddrV4};

/// An interval that never elapses: turns off periodic work.
const FOREVER: Duration = Duration::from_secs(1 << 30);

#[derive(Clone)]
pub(in crate::explore) struct Machine {
    pub(in crate::explore) core: Option<Replica>,
    pub(in crate::explore) disk: Disk,
    pub(in crate::explore) busy: VecDeque<Busy>,
    pub(in crate::explore) process: u64,
    /// Of the core and of the disk's operations in progress.
    pub(in crate::explore) fingerprint: u64,
    pub(in crate::explore) status: Option<PartitionStatus>,
}

/// The status of a node that does not know the partition.
const UNTOLD: PartitionStatus = PartitionStatus {
    partition: PartitionId(0),
    epoch: Epoch(0),
    standing: Standing::Outside,
    primary: NodeId(0),
    leads: false,
    open_ops: 0,
    logged: 0,
    released: 0,
    proven: false,
};

impl Machine {
    pub(in crate::explore) fn start(index: usize, process: u64, disk: Disk) -> Self {
        let zero = Duration::ZERO;
        let timing = Timing {
            heartbeat: FOREVER,
            resend: zero,
            accuse_after_resends: u32::MAX,
            progress_delay: FOREVER,
            copy_retry: FOREVER,
            copy_bytes_per_second: 0,
            scrub_interval: zero,
            scrub_bytes_per_second: 0,
            usage_interval: zero,
            usage_bytes_per_second: 0,
            sources_interval: zero,
            heat_interval: zero,
            discard_bytes_per_second: 0,
            expiry_deletes_per_second: 0,
        };
        let mut core = Replica::new(NodeConfig {
            node: NodeId(index as u16 + 1),
            metadata: vec![METADATA],
            switch: Some(METADATA),
            coordinates: false,
            incarnation: process,
            storage: 1,
            internal_client: ClientId(index as u64 + 1),
            value_bytes_max: nicekv_proto::limits::LARGE_VALUE_BYTES_MAX,
            hash_seed: 7,
            tells_visibility: false,
            timing,
        });
        let mut machine =
            Self { core: None, disk, busy: VecDeque::new(), process, fingerprint: 0, status: None };
        machine.disk.replay(NOW, &mut core);
        // Sends the only heartbeat. All later deadlines are retries of the core.
        core.handle_deadline(NOW);
        machine.core = Some(core);
        machine
    }

    pub(in crate::explore) fn summarize(&mut self) {
        let mut state = DefaultHasher::new();
        if let Some(core) = &self.core {
            core.fingerprint(&mut state);
        }
        for busy in &self.busy {
            match busy {
                Busy::Force { through, .. } => (self.disk.appended() - through).hash(&mut state),
                Busy::Sync { .. } => unreachable!("nobody joins"),
            }
        }
        self.disk.entries().hash(&mut state);
        self.fingerprint = state.finish();
        let status = |core: &Replica| core.status().partitions.first().copied().unwrap_or(UNTOLD);
        self.status = self.core.as_ref().map(status);
    }
}

pub(in crate::explore) fn node_address(index: usize) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 20, 1, index as u8 + 1), PORT_DEFAULT)
}
