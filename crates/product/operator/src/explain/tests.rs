use super::*;
use nicekv_metadata::{Health, MemberStanding, MemberStatusState, PartitionState};
use nicekv_runtime::control_plane::NodePartition;
use nicekv_switch::control::{Found, Met};
use nicekv_switch::{DivisionEntry, MemberSet, MulticastEntry, UnicastEntry};

/// A healthy node's report on the partition.
fn known_to(node: u16) -> NodePartition {
    NodePartition {
        epoch: 4,
        standing: "consistent".into(),
        primary: 1,
        leads: node == 1,
        open_ops: 0,
        logged: 12,
        released: 12,
    }
}

/// A healthy partition of nodes 1, 2 and 3, with one switch.
fn healthy() -> Explanation {
    let member = |node: u16| MemberStatus {
        node,
        name: format!("node-{node}"),
        state: MemberStatusState::Consistent,
        standing: MemberStanding::Serving,
        handoff: false,
        leaving: false,
    };
    let answer = |node: u16| Some(NodeAnswer { node, term: 3, partition: Some(known_to(node)) });
    let ring = |address| Prefix::new(address, 16);
    let unicast =
        UnicastEntry { destination: ring([127, 10, 0, 0]), partition: 9, host: HostId(1), chain: None };
    let source = Prefix::new([10, 20, 2, 0], 24);
    let division = DivisionEntry { partition: 9, source, host: HostId(2) };
    let members = MemberSet::new([HostId(1), HostId(2), HostId(3)]);
    let multicast = MulticastEntry { destination: ring([127, 11, 0, 0]), members, chain: None, places: None };
    let found = Found {
        unicast: Some(Met { entry: unicast, hits: Some(5), native: None }),
        divisions: vec![Met { entry: division, hits: None, native: None }],
        multicast: Some(Met { entry: multicast, hits: Some(6), native: Some("table=5".into()) }),
        record: None,
        hosts: vec![],
        hot: None,
        client_trace: None,
    };
    Explanation {
        key: "color".into(),
        keyspace: "default".into(),
        digest: "0".repeat(32),
        vnode: 0,
        by_range: false,
        unicast: "127.10.0.0:7400".parse().unwrap(),
        multicast: "127.11.0.0:7400".parse().unwrap(),
        term: 3,
        has_primary: true,
        partition: PartitionStatus {
            id: 9,
            keyspace: 0,
            first: "0".repeat(32),
            last: "f".repeat(32),
            epoch: 4,
            primary: 1,
            tail: None,
            state: PartitionState::Active,
            health: Health::Whole,
            members: [1, 2, 3].map(member).to_vec(),
            away: vec![],
            gets_per_second: None,
            asked_per_second: None,
        },
        switches: vec![SwitchAnswer { switch: "s".into(), term: 3, generation: Some(7), found: Some(found) }],
        nodes: [1, 2, 3].map(|node| (format!("node-{node}"), answer(node))).to_vec(),
        differences: vec![],
    }
}

fn found(told: &mut Explanation) -> &mut Found {
    told.switches[0].found.as_mut().unwrap()
}

fn own(told: &mut Explanation, node: usize) -> &mut NodePartition {
    told.nodes[node - 1].1.as_mut().unwrap().partition.as_mut().unwrap()
}

#[test]
fn agreement_is_stated_and_every_hop_shown() {
    let told = healthy();
    assert_eq!(differences::find(&told), [""; 0]);
    let lines = describe(&told, &[], None);
    for part in [
        "vnode 0x0000",
        "  node-1: primary, Serving; reports epoch 4, consistent, leads, log at decision 12",
        "  get: unicast_vring 127.10.0.0/16 to host 1 (5 packets)",
        "       from division 10.20.2.0/24 to host 2",
        "  put: multicast_vring 127.11.0.0/16 to host 1, host 2, host 3 (6 packets), flow table=5",
        "agree",
    ] {
        assert!(lines.iter().any(|line| line.contains(part)), "{part}: {lines:#?}");
    }
    let of_others = describe(&told, &[], Some(Ipv4Addr::new(10, 20, 3, 1))).join("\n");
    assert!(of_others.contains("to host 1 (5") && !of_others.contains("division"), "{of_others}");
    let of_division = describe(&told, &[], Some(Ipv4Addr::new(10, 20, 2, 1))).join("\n");
    assert!(of_division.contains("to its divisions") && of_division.contains("to host 2"), "{of_division}");
}

#[test]
fn hot_entries_name_the_holders_of_copies() {
    let mut told = healthy();
    let holders = vec![HostId(5), HostId(6)];
    let entry = HotEntry {
        keyspace: 0,
        digest: [0; 16],
        instance: 0x30_0000_0002,
        owner_turns: 3,
        holders,
        in_switch: false,
    };
    let by_switch = "gets answered by the switch while its copy is current, otherwise";
    let (turns, to) = ("round-robin: 3 as above, one each to", "host 5, host 6");
    let in_switch = HotEntry { in_switch: true, ..entry.clone() };
    for (entry, line) in [
        (entry.clone(), format!(", gets {turns} {to}")),
        (in_switch.clone(), format!(", {by_switch} {turns} {to}")),
        (HotEntry { holders: vec![], ..in_switch }, format!(", {by_switch} as above")),
        (HotEntry { holders: vec![], ..entry }, " counts requests, no copies".into()),
    ] {
        found(&mut told).hot = Some(entry);
        let lines = describe(&told, &[], None);
        assert!(lines.contains(&format!("  hot: entry 0x3000000002{line}")), "{lines:?}");
    }
}

#[test]
fn every_difference_has_its_own_line() {
    type Break = fn(&mut Explanation);
    let breaks: [(Break, &str); 15] = [
        (|told| told.switches[0].found = None, "switch s: does not answer"),
        (|told| told.switches[0].generation = None, "switch s: has no tables"),
        (|told| told.switches[0].term = 2, "switch s: obeys term 2, the metadata service is in term 3"),
        (|told| found(told).unicast = None, "switch s: has no entry for gets"),
        (|told| found(told).multicast = None, "switch s: has no entry for puts"),
        (
            |told| found(told).unicast.as_mut().unwrap().entry.partition = 8,
            "routes gets to partition 8, not 9",
        ),
        (|told| found(told).unicast.as_mut().unwrap().entry.host = HostId(4), "sends gets to node 4"),
        (|told| found(told).divisions[0].entry.host = HostId(5), "sends gets to node 5"),
        (
            |told| found(told).multicast.as_mut().unwrap().entry.members = MemberSet::new([HostId(1)]),
            "sends puts to nodes {1}, the members are {1, 2, 3}",
        ),
        (|told| told.nodes[1].1 = None, "node-2: does not answer"),
        (|told| told.nodes[1].1.as_mut().unwrap().partition = None, "node-2: does not know the partition"),
        (|told| own(told, 3).epoch = 3, "node-3: is in epoch 3, the partition in epoch 4"),
        (|told| own(told, 3).primary = 2, "node-3: believes node 2 is the primary, not 1"),
        (|told| own(told, 1).leads = false, "node-1: is the primary but has not recovered"),
        (
            |told| own(told, 2).standing = "joining".into(),
            "node-2: should have all data but reports that it is joining",
        ),
    ];
    for (broken, part) in breaks {
        let mut told = healthy();
        broken(&mut told);
        let lines = differences::find(&told);
        assert!(lines.len() == 1 && lines[0].contains(part), "{part}: {lines:?}");
    }
    let mut told = healthy();
    let other = SwitchAnswer { switch: "t".into(), generation: Some(6), ..told.switches[0].clone() };
    told.switches.push(other);
    assert_eq!(differences::find(&told), ["switches have tables of different generations: {6, 7}"]);
}
