//! Numbers of client requests from the counts of switches: each request counts once, even if
//! switches or entries restart.

use nicekv_proto::{NodeId, PartitionId};
use nicekv_switch::{
    DivisionEntry, EntryRequests, HostId, MemberSet, MulticastEntry, Prefix, RecordEntry, TableSet, Topology,
    UnicastEntry,
};

use crate::config::SwitchId;
use crate::observe::requests::RequestCounts;

const ONE: SwitchId = SwitchId(0);
const OTHER: SwitchId = SwitchId(1);

/// Partition 4 has hashed keys and two blocks of vnodes; node 1 answers its gets, node 2 those of
/// one division. Partition 5 has a range of keys; node 2 answers its gets.
fn tables() -> TableSet {
    let block = |ring: u8, third: u8| Prefix::new([10, ring, third, 0], 24);
    let members = || MemberSet::new([HostId(1), HostId(2)]);
    let unicast =
        |third| UnicastEntry { destination: block(10, third), partition: 4, host: HostId(1), chain: None };
    let multicast = |third| MulticastEntry {
        destination: block(11, third),
        members: members(),
        chain: None,
        places: None,
    };
    let source = Prefix::new([10, 20, 0, 0], 24);
    TableSet {
        generation: 1,
        unicast: vec![unicast(0), unicast(1)],
        division: vec![DivisionEntry { partition: 4, source, host: HostId(2) }],
        multicast: vec![multicast(0), multicast(1)],
        record: vec![RecordEntry {
            ring: Prefix::new([10, 12, 0, 0], 16),
            keyspace: 1,
            first: 0,
            last: u128::MAX,
            partition: 5,
            host: HostId(2),
            members: members(),
            chain: None,
        }],
        ..TableSet::default()
    }
}

fn count(reads: u64, updates: u64) -> EntryRequests {
    EntryRequests { reads, updates }
}

/// The report of a switch that has counted `times` times: for partition 4, 10 gets and 3 updates in
/// each block, with 5 gets matched by the division; for partition 5, 7 gets and 2 updates.
fn told(times: u64) -> Vec<Vec<EntryRequests>> {
    vec![
        vec![count(10 * times, 0); 2],
        vec![count(5 * times, 0)],
        vec![count(0, 3 * times); 2],
        vec![count(7 * times, 2 * times)],
    ]
}

struct World {
    counts: RequestCounts,
    topology: Topology,
}

impl World {
    fn new(topology: Topology) -> Self {
        Self { counts: RequestCounts::default(), topology }
    }

    fn hear(&mut self, id: SwitchId, matched: u64, told: &[Vec<EntryRequests>]) {
        self.counts.handle(1, id, matched, told, &tables(), &self.topology);
    }

    /// For each partition: reads of nodes 1 and 2, and updates.
    fn sums(&self) -> [(u64, u64, u64); 2] {
        [4, 5].map(|id| {
            let asked = self.counts.window.of(PartitionId(id)).cloned().unwrap_or_default();
            let of = |node| asked.reads.get(&NodeId(node)).copied().unwrap_or(0);
            (of(1), of(2), asked.updates)
        })
    }
}

#[test]
fn first_reading_is_the_baseline() {
    let mut world = World::new(Topology::default());
    world.hear(ONE, 100, &told(3));
    assert_eq!(world.sums(), [(0, 0, 0); 2]);
    for _ in 0..2 {
        world.hear(ONE, 200, &told(5));
        assert_eq!(
            world.sums(),
            [(2 * 15, 2 * 5, 2 * 6), (0, 2 * 7, 2 * 2)],
            "a repeated report adds nothing"
        );
    }
    // Reports that have no counts for some tables add nothing to the partitions of these tables.
    world.hear(ONE, 300, &told(9)[..3]);
    world.hear(ONE, 300, &[]);
    assert_eq!(world.sums()[1], (0, 14, 4));
}

#[test]
fn restarted_switch_counts_from_zero() {
    let mut world = World::new(Topology::default());
    world.hear(ONE, 100, &told(3));
    // After the restart the counts are already larger than before, and all of them are new.
    world.hear(ONE, 99, &told(4));
    assert_eq!(world.sums(), [(60, 20, 24), (0, 28, 8)]);
    // An entry was removed and added again between two reports.
    let mut again = told(4);
    again[3] = vec![count(1, 1)];
    world.hear(ONE, 120, &again);
    assert_eq!(world.sums(), [(60, 20, 24), (0, 29, 9)]);
}

#[test]
fn parallel_switches_add_up_and_serial_ones_count_once() {
    let hear_both = |topology| {
        let mut world = World::new(topology);
        for (times, matched) in [(0, 0), (1, 50)] {
            world.hear(ONE, matched, &told(times));
            world.hear(OTHER, matched, &told(times));
        }
        world.sums()
    };
    assert_eq!(hear_both(Topology::default()), [(30, 10, 12), (0, 14, 4)]);
    // The nodes are attached to different switches, and requests for either pass both switches.
    let mut row = Topology::default();
    row.set_home(HostId(1), ONE.0);
    row.set_home(HostId(2), OTHER.0);
    assert!(row.connect(ONE.0, OTHER.0, 9) && row.connect(OTHER.0, ONE.0, 9));
    assert_eq!(hear_both(row), [(15, 5, 6), (0, 7, 2)]);
}
