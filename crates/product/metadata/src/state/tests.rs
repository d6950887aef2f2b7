use super::*;
use crate::decide::epochs;
use nicekv_proto::MatchRange;
use nicekv_proto::placement::{KeyspaceDefaults, RingsBase};

fn spec(id: u16, partitions: u32) -> KeyspaceSpec {
    let (id, rings) = (KeyspaceId(id), RingsBase::Network);
    let defaults = KeyspaceDefaults { id, replicas: 1, partitions, rings };
    KeyspaceSpec { name: format!("k{id}"), ..KeyspaceSpec::of(&defaults) }
}

fn add(state: &mut State, keyspace: u16, range: MatchRange) -> PartitionId {
    let process = |_| Process { incarnation: 1, storage: 1 };
    state.add(epochs::first(KeyspaceId(keyspace), range, vec![NodeId(1)], process))
}

/// A state with two nodes and two keyspaces. The first node holds both keyspaces, which have one
/// and two partitions.
fn state() -> State {
    let address = core::net::SocketAddrV4::new([10, 0, 0, 1].into(), 7400);
    let config =
        NodeConfig { id: NodeId(1), name: "n".into(), address, mac: [2; 6], switch_port: 1, home: Some(1) };
    let second = NodeConfig { id: NodeId(2), ..config.clone() };
    let mut state = State {
        version: 1,
        cluster: 7,
        term: 1,
        nodes: [config, second]
            .map(|config| Node { config, desired: DesiredState::Holds, added: false })
            .into(),
        next_node: 3,
        keyspaces: vec![spec(0, 1), spec(1, 2)],
        next_keyspace: 16,
        retired: Vec::new(),
        dropped: Vec::new(),
        partitions: BTreeMap::new(),
        next_partition: 0,
        reshapings: Vec::new(),
        reshaped: BTreeMap::new(),
        placed: BTreeMap::new(),
        chunks: None,
        storages: Default::default(),
        contradiction: None,
    };
    for keyspace in 0..2 {
        for range in spec(keyspace, 1 << keyspace).ranges() {
            add(&mut state, keyspace, range);
        }
    }
    state
}

#[test]
fn placed_partitions_move_to_existing_nodes() {
    let place = |nodes: &[u16]| {
        let nodes = nodes.iter().copied().map(NodeId).collect::<Vec<_>>();
        move |state: &mut State| state.place(PartitionId(0), nodes)
    };
    let mut state = state();
    place(&[1])(&mut state);
    assert_eq!(State::decode(&state.encode()), Ok(state));
    let why = "a partition is placed on nodes that cannot hold it";
    refused(place(&[]), why);
    refused(place(&[1, 1]), why);
    refused(|state| state.place(PartitionId(99), vec![NodeId(1)]), why);
}

#[track_caller]
fn refused(change: impl FnOnce(&mut State), why: &'static str) {
    let mut state = state();
    change(&mut state);
    assert_eq!(State::decode(&state.encode()), Err(StateError::Damaged(why)));
}

#[test]
fn state_round_trips() {
    let state = state();
    assert_eq!(State::decode(&state.encode()), Ok(state.clone()));
    assert!(state.partitions().map(|(id, _)| id.0).eq(0..3));
}

#[test]
fn ids_are_not_reused() {
    let mut state = state();
    let whole = state.partitions.remove(&PartitionId(0)).unwrap().range;
    assert_eq!(add(&mut state, 0, whole), PartitionId(3));
    assert_eq!(State::decode(&state.encode()), Ok(state));
}

/// Ranges of any length, under ids in any order, as splits and merges leave them.
#[test]
fn partitions_may_be_of_different_length() {
    let mut state = state();
    state.partitions.remove(&PartitionId(0));
    let cut = 3 << 112;
    add(&mut state, 0, MatchRange::new(cut, u128::MAX).unwrap());
    add(&mut state, 0, MatchRange::new(0, cut - 1).unwrap());
    assert_eq!(State::decode(&state.encode()), Ok(state));
}

#[test]
fn a_state_that_contradicts_itself_is_damaged() {
    let gap = "the partitions of a keyspace leave a gap, or overlap";
    refused(|state| drop(state.partitions.remove(&PartitionId(2))), gap);
    refused(|state| _ = add(state, 0, MatchRange::ALL), gap);
    refused(|state| _ = add(state, 2, MatchRange::ALL), "a partition belongs to an unknown keyspace");
    refused(|state| state.next_partition = 2, "a partition has an id that is not assigned yet");
    refused(|state| state.keyspaces[1].id = KeyspaceId(0), "its keyspaces are invalid");
    refused(|state| state.keyspaces[1].partitions = 3, "it cannot be decoded");
    let within = |state: &mut State| {
        state.partitions.remove(&PartitionId(0));
        add(state, 0, MatchRange::new(0, 5).unwrap());
        add(state, 0, MatchRange::new(6, u128::MAX).unwrap());
    };
    refused(within, "a partition begins or ends within a vnode");
    let other = "a replica set has the wrong size or names an unknown node";
    refused(|state| drop(state.nodes.remove(0)), other);
}

fn child(partition: u32, first: u128, last: u128) -> Child {
    Child { partition: PartitionId(partition), range: MatchRange::new(first, last).unwrap() }
}

/// A state in which partition 0 will be split, and the merge of partitions 1 and 2 has begun.
fn reshaping() -> State {
    let mut state = state();
    let reshaping =
        |parents: &[u32], at| Reshaping { parents: parents.iter().copied().map(PartitionId).collect(), at };
    state.reshapings = vec![reshaping(&[0], Some(1)), reshaping(&[1, 2], None)];
    let forming = Forming { children: vec![child(3, 0, u128::MAX)], sealed: true };
    for id in [1, 2] {
        state.partitions.get_mut(&PartitionId(id)).unwrap().forming = Some(forming.clone());
    }
    state.next_partition = 4;
    state
}

/// The state after partitions 1 and 2 have been merged.
fn reshaped() -> State {
    let mut state = reshaping();
    let reshaping = state.reshapings[1].clone();
    let parents = [1, 2].map(|id| Parent { partition: PartitionId(id), index: 7 }).into();
    let first = state.partitions[&PartitionId(1)].clone();
    let born =
        Partition { epoch: 2, activated: false, range: MatchRange::ALL, forming: None, parents, ..first };
    state.succeed(&reshaping, vec![(PartitionId(3), born)]);
    state
}

#[test]
fn state_with_reshapings_round_trips() {
    for state in [reshaping(), reshaped()] {
        assert_eq!(State::decode(&state.encode()), Ok(state));
    }
    let state = reshaped();
    assert!(state.is_young(PartitionId(3)) && state.reshapings.len() == 1);
    let gone: Vec<_> = state.gone().map(|(id, _, gone)| (id.0, gone.epoch, gone.quiet)).collect();
    assert_eq!(gone, [(1, 2, false), (2, 2, false)]);
    assert!(state.removed().next().is_none(), "members of children get leases");
}

#[test]
fn splits_and_merges_that_contradict_themselves_are_damaged() {
    #[track_caller]
    fn refused(mut state: State, change: impl FnOnce(&mut State), why: &'static str) {
        change(&mut state);
        assert_eq!(State::decode(&state.encode()), Err(StateError::Damaged(why)));
    }
    fn forming(state: &mut State, id: u32) -> &mut Option<Forming> {
        &mut state.partitions.get_mut(&PartitionId(id)).unwrap().forming
    }
    let cannot = "a requested split or merge is impossible";
    refused(reshaping(), |state| state.reshapings[0].at = Some(0), cannot);
    refused(reshaping(), |state| state.reshapings[0].at = None, cannot);
    refused(reshaping(), |state| state.reshapings[1].parents.reverse(), cannot);
    refused(reshaping(), |state| state.reshapings.push(state.reshapings[0].clone()), cannot);
    let one = "only one of two parents forms the children of a merge";
    refused(reshaping(), |state| *forming(state, 1) = None, one);
    let other = "a parent forms other children than requested";
    refused(reshaping(), |state| forming(state, 2).as_mut().unwrap().sealed = false, other);
    refused(reshaping(), |state| state.next_partition = 3, other);
    let more = "children are formed without a request, or for too many";
    refused(reshaping(), |state| drop(state.reshapings.remove(1)), more);
    let place = "a split or merged partition still exists, or has no children";
    refused(reshaped(), |state| state.reshaped.get_mut(&PartitionId(1)).unwrap().children.clear(), place);
    let from = "a partition replaces one that is not its parent";
    refused(reshaped(), |state| drop(state.reshaped.remove(&PartitionId(1))), from);
    refused(reshaped(), |state| state.partitions.get_mut(&PartitionId(3)).unwrap().activated = true, from);
}

#[test]
fn target_is_in_one_group() {
    let groups = |groups: Vec<Vec<Option<u16>>>| {
        let layout = Layout { groups, slots: vec![0; 256] };
        move |state: &mut State| {
            state.chunks = Some(ChunkGroups { version: 1, round: 2, layout, before: None });
        }
    };
    let mut state = state();
    groups(vec![vec![Some(1), None, Some(2)]])(&mut state);
    assert_eq!(State::decode(&state.encode()), Ok(state));
    let why = "its groups of storage targets are invalid";
    refused(groups(vec![vec![Some(1)], vec![Some(2), Some(1)]]), why);
    refused(groups(vec![vec![Some(9)]]), why);
    refused(groups(vec![vec![]]), why);
    refused(groups(vec![vec![None; 13]]), why);
}
