//! Compiles divisions to the table `division` (NICE §4.5).
//!
//! Invariant: the table has divisions only for members that serve in the newest epoch, whatever is
//! persisted. So gets go to a newly consistent replica only after all members have acknowledged
//! this (R7), and never to a removed one (R6). The primary answers gets that no entry matches.

use alloc::vec::Vec;

use nicekv_proto::PartitionId;
use nicekv_switch::DivisionEntry;

use crate::config::{Balancing, Config, host_id};
use crate::state::{Division, Partition, Standing, State};

/// The entries, and the number of partitions without entries because `capacity` does not suffice:
/// the primary answers all of their gets. Partitions with the smallest ids come first.
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
