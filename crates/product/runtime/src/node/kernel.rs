//! Gets answered in the node's kernel: visible values are written to the kernel program's map
//! before any message is sent (G1, G3).

use nicekv_kernel_gets::{Grant, Outcomes, Program, Size, Table};
use nicekv_proto::{Duration, Now};
use nicekv_replica::Replica;

/// Interval between lease checks, much shorter than a lease.
const LEASE_LOOK: Duration = Duration::from_millis(10);
/// Interval between readings of the counts by source, a fraction of the report interval.
const SOURCES_LOOK: Duration = Duration::from_millis(100);

/// Statistics of gets in the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelObservation {
    /// Number of gets for each of [`nicekv_kernel_gets::OUTCOMES`].
    pub outcomes: Outcomes,
    /// Number of keys that have an entry in the map.
    pub entries: usize,
    /// Number of times an open entry was closed.
    pub closes: u64,
}

/// The node's kernel program and its map; see the module documentation.
pub(super) struct Kernel {
    table: Table,
    program: Box<dyn Program + Send>,
    /// Value of [`Replica::epochs_told`] when the grants were last updated.
    epochs: u64,
    look_at_ns: u64,
    sources_at_ns: u64,
}

impl Kernel {
    pub(super) fn new(program: Box<dyn Program + Send>, size: Size) -> Self {
        Self { table: Table::new(size), program, epochs: 0, look_at_ns: 0, sources_at_ns: 0 }
    }

    /// Writes all changes to the map. Call it before a datagram or a frame is sent.
    pub(super) fn catch_up(&mut self, now: Now, core: &mut Replica) {
        while let Some(shift) = core.poll_visibility() {
            self.table.apply(&mut self.program, shift, |partition, key| core.named(partition, key));
        }
        while let Some(shift) = core.poll_copies() {
            self.table.apply_copy(&mut self.program, shift);
        }
        let epochs = core.epochs_told();
        if epochs == self.epochs && now.boot_ns < self.look_at_ns {
            return;
        }
        (self.epochs, self.look_at_ns) = (epochs, now.after(LEASE_LOOK));
        for (partition, gets) in self.table.hits(&self.program) {
            core.count_gets_elsewhere(partition, gets);
        }
        core.count_copies_elsewhere(self.table.hits_of_copies(&self.program));
        if now.boot_ns >= self.sources_at_ns {
            self.sources_at_ns = now.after(SOURCES_LOOK);
            let gates = self.table.gates();
            for (gate, source, gets) in self.program.take_sources() {
                let Some(partition) = gates.get(&gate) else { continue };
                core.count_source_elsewhere(*partition, source, gets);
            }
        }
        let grants: Vec<_> = core
            .served_elsewhere()
            .map(|(partition, until_ns, chain)| Grant { partition, until_ns, chain })
            .collect();
        self.table.grant(&mut self.program, &grants);
    }

    pub(super) fn observe(&self) -> KernelObservation {
        let outcomes = self.program.outcomes().unwrap_or_default();
        KernelObservation { outcomes, entries: self.table.len(), closes: self.table.closes }
    }
}
