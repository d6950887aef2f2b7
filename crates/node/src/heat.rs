//! Where a partition's load lies: a sample of the match values that clients ask for, for the metadata service, which splits by it (TurboKV §5.1).
//!
//! ```text
//!   request ─▶ reservoir of its partition        heartbeat ─▶ once an interval: cut and most asked value of each, the hottest first
//!              (of all requests, evenly)                    └─▶ at each: a datagram of them, until all are told
//! ```

use crate::node_core::NodeCore;
use crate::protocol::Protocol;
use crate::samples::{PARTITIONS_MAX, Reservoir, cut, top};
use nicekv_wire::heat::{HEAT_PARTITIONS_MAX, Heat, PartitionHeat};
use nicekv_wire::{Now, PartitionId};

impl<P: Protocol> NodeCore<P> {
    /// A client has asked this node for a key of this match value.
    pub(crate) fn note_heat(&mut self, partition: PartitionId, value: u128) {
        let reservoirs = &mut self.heat.reservoirs;
        if self.host.config.timing.heat_interval.is_zero() {
            return;
        }
        if let Some(reservoir) = reservoirs.get_mut(&partition) {
            reservoir.note(value);
        } else if reservoirs.len() < PARTITIONS_MAX {
            reservoirs.entry(partition).or_default().note(value);
        }
    }

    /// To be called at every heartbeat.
    pub(crate) fn tell_heat(&mut self, now: Now) {
        let interval = self.host.config.timing.heat_interval;
        if interval.is_zero() {
            return;
        }
        if now.boot_ns >= self.heat.report_at_ns {
            self.heat.report_at_ns = now.after(interval);
            self.turn_heat();
        }
        let rest = self.heat.untold.len().saturating_sub(HEAT_PARTITIONS_MAX);
        let partitions = self.heat.untold.split_off(rest);
        if partitions.is_empty() {
            return;
        }
        let (node, incarnation, sent_ns) = (self.host.config.node, self.host.config.incarnation, now.boot_ns);
        let heat = Heat { node, partitions, incarnation, sent_ns };
        self.host.tell_metadata(|out| heat.encode(out));
    }

    /// An interval ends. What is still untold is of the past.
    fn turn_heat(&mut self) {
        let mut reservoirs = core::mem::take(&mut self.heat.reservoirs);
        self.heat.untold.clear();
        for membership in self.partitions.iter().map(P::membership) {
            let id = membership.partition;
            let Reservoir { seen, mut values } = reservoirs.remove(&id).unwrap_or_default();
            let (keys, bytes, middle) = self.usage.size_of(&self.host, membership);
            if seen == 0 && keys == 0 {
                continue;
            }
            values.sort_unstable();
            let (cut, below_cut) = cut(&values, membership.range, membership.order).unwrap_or_default();
            let (top, for_top) = top(&values).unwrap_or_default();
            let requests = seen;
            self.heat.untold.push(PartitionHeat {
                partition: id,
                requests,
                keys,
                bytes,
                cut,
                middle,
                top,
                below_cut,
                for_top,
            });
        }
        self.heat.untold.sort_unstable_by_key(|heat| (heat.requests, heat.partition));
    }
}
