//! Reports where within a partition its load lies: from samples of the match values that clients
//! request. The metadata service uses them to split partitions (TurboKV §5.1).
//!
//! ```text
//!   request ─▶ reservoir of its partition        heartbeat ─▶ once an interval: cut and most requested value of each, the hottest first
//!              (of all requests, evenly)                    └─▶ at each: a datagram of them, until all are sent
//! ```

use crate::modes::Partition;
use crate::node::Replica;
use crate::node::samples::{PARTITIONS_MAX, Reservoir, cut, top};
use alloc::vec::Vec;
use nicekv_proto::heat::{HEAT_PARTITIONS_MAX, Heat, PartitionHeat};
use nicekv_proto::{Now, PartitionId};

impl Replica {
    /// A client has requested a key with this match value: adds it to the sample.
    pub(crate) fn note_heat(&mut self, partition: PartitionId, value: u128) {
        if self.host.config.timing.heat_interval.is_zero() {
            return;
        }
        let Some(weight) = self.heat.weight(value) else { return };
        let reservoirs = &mut self.heat.reservoirs;
        if let Some(reservoir) = reservoirs.get_mut(&partition) {
            reservoir.note(value, weight);
        } else if reservoirs.len() < PARTITIONS_MAX {
            reservoirs.entry(partition).or_default().note(value, weight);
        }
    }

    /// Sends the reports that are due. Called at every heartbeat.
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
        let untold = self.heat.untold.split_off(rest);
        let partitions: Vec<_> =
            untold.into_iter().filter_map(|(id, asked)| self.heat_of(id, asked)).collect();
        if partitions.is_empty() {
            return;
        }
        let (node, incarnation, sent_ns) = (self.host.config.node, self.host.config.incarnation, now.boot_ns);
        let heat = Heat { node, partitions, incarnation, sent_ns };
        self.host.tell_metadata(|out| heat.encode(out));
    }

    /// An interval has ended: prepares its reports. Reports that were not sent yet are dropped.
    fn turn_heat(&mut self) {
        let mut reservoirs = self.heat.turn();
        for membership in self.partitions.iter().map(Partition::membership) {
            let id = membership.partition;
            let asked = reservoirs.remove(&id).unwrap_or_default();
            if asked.seen > 0 || self.usage.size_of(&self.host, membership).0 > 0 {
                self.heat.untold.push((id, asked));
            }
        }
        self.heat.untold.sort_unstable_by_key(|(id, asked)| (asked.seen, *id));
    }

    /// Evaluates the sample of a partition; `None` if the partition is gone. Sorting here is cheap
    /// enough, because each heartbeat evaluates only a few samples.
    fn heat_of(&self, id: PartitionId, Reservoir { seen, mut values }: Reservoir) -> Option<PartitionHeat> {
        let membership = self.partitions.get(id)?.membership();
        let (keys, bytes, middle) = self.usage.size_of(&self.host, membership);
        values.sort_unstable();
        let (cut, below_cut) = cut(&values, membership.range, membership.order).unwrap_or_default();
        let (top, for_top) = top(&values).unwrap_or_default();
        Some(PartitionHeat {
            partition: id,
            requests: seen,
            keys,
            bytes,
            cut,
            middle,
            top,
            below_cut,
            for_top,
        })
    }
}
