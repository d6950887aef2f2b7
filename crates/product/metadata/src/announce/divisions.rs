//! From divisions to the table `division` (NICE §4.5).
//!
//! Invariant: what the tables have of divisions is what is said of members that serve in the newest epoch, whatever is persisted: gets go to a
//! replica that has become consistent only after all have acknowledged that (R7), and to none that was removed (R6). What no entry says is the
//! primary's.

use alloc::vec::Vec;

use nicekv_proto::PartitionId;
use nicekv_switch::DivisionEntry;

use crate::config::{Balancing, Config, host_id};
use crate::state::{Division, Partition, Standing, State};

/// What the tables have of them, and how many partitions go without since a table of this capacity has no room for theirs: all their gets go to
/// their primaries. Those with the smallest ids come first.
pub(crate) fn entries(config: &Config, state: &State, capacity: usize) -> (Vec<DivisionEntry>, usize) {
    let (mut entries, mut left_out) = (Vec::new(), 0);
    if config.balancing == Balancing::None {
        return (entries, left_out);
    }
    for (id, partition) in state.partitions() {
        let before = entries.len();
        entries.extend(of_partition(id, partition));
        if entries.len() > capacity {
            entries.truncate(before);
            left_out += 1;
        }
    }
    (entries, left_out)
}

fn of_partition(id: PartitionId, partition: &Partition) -> impl Iterator<Item = DivisionEntry> {
    let serves =
        move |node| partition.member(node).is_some_and(|member| member.standing == Standing::Serving);
    let is_there = move |division: &&Division| division.node != partition.primary && serves(division.node);
    partition.divisions.list.iter().filter(is_there).map(move |division| DivisionEntry {
        partition: id.0,
        source: division.source,
        host: host_id(division.node),
    })
}
