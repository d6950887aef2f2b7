//! The steps that follow from constructed loads.

use super::*;

const NODES: u16 = 6;

fn rules() -> Rules {
    Rules {
        is_chain: false,
        partitions_min: 1,
        partitions_max: 96,
        per_node_max: 512,
        keys_max: None,
        bytes_max: None,
        requests_min: 100,
    }
}

fn nodes(count: u16) -> Vec<NodeId> {
    (0..count).map(NodeId).collect()
}

fn rooms(count: u16) -> Vec<Room> {
    (0..count).map(|node| Room { node: NodeId(node), has_space: true, held: 0 }).collect()
}

/// A partition whose match values begin at a thousand times its number. The first of its nodes
/// answers `reads` reads.
fn load(number: u32, nodes: &[u16], reads: u64) -> Load {
    let first = u128::from(number) * 1000;
    Load {
        id: PartitionId(number),
        range: MatchRange::new(first, first + 999).unwrap(),
        nodes: nodes.iter().copied().map(NodeId).collect(),
        reads: [(NodeId(nodes[0]), reads)].into(),
        updates: 0,
        keys: 10,
        bytes: 1000,
        cut: Some((first + 500, 500)),
        top: Some((first + 500, 10)),
        middle: Some(first + 400),
        rests: false,
        is_young: false,
    }
}

fn steps(rules: &Rules, count: u16, partitions: &[Load]) -> Vec<Step> {
    judge(rules, &rooms(count), partitions).steps
}

fn given(id: u32, from: u16, to: u16, at: &[u16]) -> Step {
    let nodes = at.iter().copied().map(NodeId).collect();
    Step::Move { id: PartitionId(id), from: NodeId(from), to: NodeId(to), nodes }
}

fn split(id: u32, at: u128, because: Because) -> Step {
    Step::Split { id: PartitionId(id), at, because }
}

#[test]
fn hot_node_gives_its_hottest_fitting_partition_to_the_least_utilised() {
    // The mean is 400. Node 0 has 700; one of its partitions with 350 would raise node 3 to 450,
    // which is below the limit of 520.
    let partitions = [
        load(0, &[0, 1], 350),
        load(1, &[0, 2], 350),
        load(2, &[1, 2], 400),
        load(3, &[2, 3], 400),
        load(4, &[3, 1], 100),
    ];
    assert_eq!(steps(&rules(), 4, &partitions), [given(0, 0, 3, &[3, 1])]);
    // The hottest partition does not fit, but the next one does.
    let mut uneven = partitions.clone();
    uneven[0].reads = [(NodeId(0), 450)].into();
    uneven[1].reads = [(NodeId(0), 250)].into();
    assert_eq!(steps(&rules(), 4, &uneven), [given(1, 0, 3, &[3, 2])]);
    // A receiver that already holds the partition becomes its leader.
    let mut held = partitions.clone();
    held[0].nodes = vec![NodeId(0), NodeId(3)];
    assert_eq!(steps(&rules(), 4, &held), [given(0, 0, 3, &[3, 0])]);
    // In a chain, members cannot swap their roles.
    let chain = Rules { is_chain: true, ..rules() };
    assert_eq!(steps(&chain, 4, &held), [given(1, 0, 3, &[3, 2])]);
    // A resting partition is not moved.
    held[0].rests = true;
    assert_eq!(steps(&rules(), 4, &held), [given(1, 0, 3, &[3, 2])]);
}

#[test]
fn full_node_gets_no_partition() {
    let partitions = [load(0, &[0], 200), load(1, &[0], 200), load(2, &[1], 200), load(3, &[2], 50)];
    assert_eq!(steps(&rules(), 3, &partitions), [given(0, 0, 2, &[2])]);
    let mut nodes = rooms(3);
    nodes[2].has_space = false;
    let next_best = [split(0, 500, Because::Hot)];
    assert_eq!(judge(&rules(), &nodes, &partitions).steps, next_best, "the disk of node 2 is full");
    nodes[2] = Room { node: NodeId(2), has_space: true, held: 4 };
    let few = Rules { per_node_max: 5, ..rules() };
    assert_eq!(
        judge(&few, &nodes, &partitions).steps,
        next_best,
        "node 2 has too many replicas of other keyspaces"
    );
    nodes[2].held = 3;
    assert_eq!(judge(&few, &nodes, &partitions).steps, [given(0, 0, 2, &[2])]);
}

#[test]
fn taker_in_a_chain_takes_over_the_tails_reads() {
    let mut chain = [load(0, &[0, 1], 0), load(1, &[0, 3], 0), load(2, &[2, 3], 0), load(3, &[1], 60)];
    (chain[0].reads, chain[0].updates) = ([(NodeId(1), 150)].into(), 300);
    chain[1].updates = 290;
    // Loads 590, 510, 0 and 290; the mean is 347. The first partition's head is replaced. Its tail,
    // which is also hot, loses the reads and is then not overloaded any more.
    assert_eq!(steps(&Rules { is_chain: true, ..rules() }, 4, &chain), [given(0, 0, 2, &[2, 1])]);
}

#[test]
fn even_or_low_load_causes_no_steps() {
    let even = [0, 1, 2].map(|number| load(number, &[number as u16], 400));
    assert_eq!(steps(&rules(), 3, &even), []);
    let little = [load(0, &[0], 90), load(1, &[1], 0), load(2, &[2], 0)];
    assert_eq!(steps(&rules(), 3, &little), []);
    assert_eq!(steps(&rules(), 3, &[]), []);
    // A load of 1.3 times the mean is within the limit.
    let near = [load(0, &[0], 390), load(1, &[1], 300), load(2, &[2], 210)];
    assert_eq!(steps(&rules(), 3, &near), []);
}

#[test]
fn updates_are_load_of_every_member() {
    let mut partitions =
        [load(0, &[0, 1], 0), load(1, &[0, 2], 0), load(2, &[1, 0], 0), load(3, &[3, 2], 100)];
    partitions[..3].iter_mut().for_each(|load| load.updates = 100);
    // Loads 300, 200, 100 and 100; the mean is 175. Moving reads to another member would not help.
    assert_eq!(steps(&rules(), 4, &partitions), [given(0, 0, 2, &[2, 1])]);
}

#[test]
fn too_hot_partition_is_split_at_the_median_load() {
    let mut partitions = [load(0, &[0], 900), load(1, &[1], 50), load(2, &[2], 50)];
    assert_eq!(steps(&rules(), 3, &partitions), [split(0, 500, Because::Hot)]);
    // If a single key has the load, it is reported and not moved.
    partitions[0].cut = Some((1, 980));
    partitions[0].top = Some((7, 970));
    let verdict = judge(&rules(), &rooms(3), &partitions);
    assert_eq!(verdict.steps, []);
    assert_eq!(verdict.hot_keys, [HotKey { id: PartitionId(0), value: 7, percent: 261 }]);
    assert_eq!(verdict.hottest(), Some((NodeId(0), 270)));
    // No partition is split at the upper bounds of partitions.
    partitions[0] = load(0, &[0], 900);
    assert_eq!(steps(&Rules { partitions_max: 3, ..rules() }, 3, &partitions), []);
    assert_eq!(steps(&Rules { per_node_max: 1, ..rules() }, 3, &partitions), []);
    // Without a known value to split at, no step follows.
    partitions[0].cut = None;
    assert_eq!(steps(&rules(), 3, &partitions), []);
}

#[test]
fn cold_neighbours_are_merged_unless_they_would_be_split_again() {
    let cold = |number| load(number, &[0], 1);
    let mut partitions =
        vec![load(0, &[0], 400), cold(1), cold(2), load(3, &[1], 400), cold(4), load(5, &[2], 400)];
    let merged = |one, other| vec![Step::Merge { ids: [PartitionId(one), PartitionId(other)] }];
    assert_eq!(steps(&rules(), 3, &partitions), merged(1, 2));
    assert_eq!(steps(&Rules { partitions_min: 6, ..rules() }, 3, &partitions), []);
    let small = Rules { keys_max: Some(39), ..rules() };
    assert_eq!(steps(&small, 3, &partitions), [], "the merged partition would be too large");
    partitions[2].is_young = true;
    assert_eq!(steps(&rules(), 3, &partitions), []);
    partitions[2] = load(2, &[0], 60);
    assert_eq!(steps(&rules(), 3, &partitions), [], "a neighbour is hot");
}

#[test]
fn full_partition_is_split_at_the_median_key() {
    let partitions = [load(0, &[0], 0), load(1, &[1], 0)];
    let full = |number: u32| split(number, u128::from(number) * 1000 + 400, Because::Full);
    assert_eq!(steps(&Rules { keys_max: Some(9), ..rules() }, 2, &partitions), [full(0), full(1)]);
    assert_eq!(steps(&Rules { bytes_max: Some(999), ..rules() }, 2, &partitions), [full(0), full(1)]);
    let roomy = Rules { keys_max: Some(10), bytes_max: Some(1000), ..rules() };
    assert_eq!(steps(&roomy, 2, &partitions), []);
    // Each partition has at most one change.
    let hot = [load(0, &[0], 1000), load(1, &[1], 10)];
    let both = steps(&Rules { keys_max: Some(9), ..rules() }, 2, &hot);
    assert_eq!(both, [split(0, 500, Because::Hot), full(1)]);
}

/// The shares of keys in their order. The first keys are the most requested, by Zipf's law with a
/// given exponent.
struct Keys(Vec<f64>);

impl Keys {
    fn zipf(count: u32, exponent: f64) -> Self {
        Self((1..=count).map(|rank| 1e6 / f64::from(rank).powf(exponent)).collect())
    }

    fn within(&self, range: MatchRange) -> &[f64] {
        let last = (range.last() as usize).min(self.0.len() - 1);
        self.0.get(range.first() as usize..=last).unwrap_or_default()
    }

    /// A partition's load as switches would count it and its node would sample it.
    fn load(&self, number: u32, range: MatchRange, nodes: Vec<NodeId>, rests: bool) -> Load {
        let keys = self.within(range);
        let total: f64 = keys.iter().sum();
        let mut below = 0.0;
        let mut cut = None::<(u128, u16)>;
        for (place, weight) in keys.iter().enumerate() {
            let share = (1000.0 * below / total.max(1.0)) as u16;
            let better = |(_, other): &(u128, u16)| share.min(1000 - share) > (*other).min(1000 - other);
            if place > 0 && cut.as_ref().is_none_or(better) {
                cut = Some((range.first() + place as u128, share));
            }
            below += weight;
        }
        let top = keys.first().map(|weight| (range.first(), (1000.0 * weight / total.max(1.0)) as u16));
        Load { range, cut, top, nodes: nodes.clone(), rests, ..load(number, &[nodes[0].0], total as u64) }
    }
}

/// For each period, the load of the most loaded node in percent of the mean. At first one partition
/// on R nodes has all keys.
fn periods(keys: &Keys, replicas: u16, periods: u64) -> Vec<u64> {
    let mut partitions = vec![(0, MatchRange::ALL, nodes(replicas))];
    let (mut next, mut moved, mut percents) = (1, BTreeMap::<u32, u64>::new(), Vec::new());
    for period in 0..=periods {
        let resting: BTreeSet<u32> =
            moved.iter().filter(|(_, at)| period < **at + 10).map(|(id, _)| *id).collect();
        let rests = |id: &u32| resting.contains(id);
        let loads: Vec<Load> = partitions
            .iter()
            .map(|(id, range, nodes)| keys.load(*id, *range, nodes.clone(), rests(id)))
            .collect();
        let verdict = judge(&rules(), &rooms(NODES), &loads);
        percents.push(verdict.hottest().unwrap().1);
        for step in verdict.steps {
            match step {
                Step::Move { id, nodes, .. } => {
                    assert!(!rests(&id.0), "partition {id} moves again in period {period}");
                    moved.insert(id.0, period);
                    partitions.iter_mut().find(|(known, ..)| *known == id.0).unwrap().2 = nodes;
                }
                Step::Split { id, at, .. } => {
                    let place = partitions.iter().position(|(known, ..)| *known == id.0).unwrap();
                    let (_, range, nodes) = partitions.remove(place);
                    let low = MatchRange::new(range.first(), at - 1).unwrap();
                    let high = MatchRange::new(at, range.last()).unwrap();
                    partitions.insert(place, (next, low, nodes.clone()));
                    partitions.insert(place + 1, (next + 1, high, nodes));
                    next += 2;
                }
                Step::Merge { ids } => panic!("{ids:?} are merged although they have load"),
            }
        }
    }
    percents
}

#[test]
fn ordered_keys_by_zipf_are_spread_within_ten_periods() {
    for replicas in [1, 3] {
        let percents = periods(&Keys::zipf(1000, 0.99), replicas, 10);
        assert!(percents[0] >= 300 && percents[10] <= 130, "R = {replicas}: {percents:?}");
        let later = periods(&Keys::zipf(1000, 0.99), replicas, 30);
        assert!(later[10..].iter().all(|percent| *percent <= 130), "the load stays even: {later:?}");
    }
}

#[test]
fn too_hot_key_ends_alone_on_a_node_and_stays() {
    let mut keys = Keys::zipf(200, 0.99);
    keys.0[100] = keys.0.iter().sum();
    let percents = periods(&keys, 1, 40);
    // Half of all requests are for this key: three times the mean of six nodes.
    assert!(percents[30..].iter().all(|percent| (300..=330).contains(percent)), "{percents:?}");
}
