//! Installing, replacing and refusing tables in the kernel.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nicekv_proto::Opcode;
use nicekv_switch::control::{ControlReply, ControlRequest, SwitchAgent};
use nicekv_switch::{
    Backend as _, BackendError, DivisionEntry, HostId, MemberSet, Pipeline, Prefix, RecordEntry, Table,
    TableError, TableSet, TableUpdate, UnicastEntry,
};
use nicekv_switch_fixtures::{
    self as fixtures, PORTS, RECORD_KEYSPACE, RECORD_VRINGS, ROUTER_MAC, VRINGS, frames, host, tables, vrings,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::namespaces::as_root;
use super::{FRAME_BYTES_MIN, Lab, at_both, groups};
use crate::{Hook, KernelSwitch, OBJECT, Port, XdpError};

/// Valid tables: hosts at shuffled ports, some of them behind trunks, and entries from /20 to /28.
fn any_tables() -> impl Strategy<Value = TableSet> {
    let ports = (Just(PORTS.collect::<Vec<u16>>()).prop_shuffle(), 0u16..=3);
    let entry = || (0u8..4, 20u8..=28, 1u16..=3);
    let groups =
        prop::collection::vec((0u8..4, 20u8..=28, prop::collection::btree_set(1u16..=3, 1..=3)), 0..4);
    let members = prop::collection::btree_set(1u16..=3, 1..=3);
    let records = prop::collection::btree_map(0u8..CELLS, (1u16..=3, members), 0..6);
    let entries = || prop::collection::vec(entry(), 0..6);
    (ports, entries(), entries(), (groups, groups::any_entries()), records).prop_map(
        |((ports, remote), unicast, division, (multicast, of_groups), records)| {
            // The last `remote` hosts are behind two trunks, alternately.
            let host = |id: u16| match id > 3 - remote {
                true => fixtures_host(id, ports[usize::from(4 + id % 2)], true),
                false => fixtures_host(id, ports[usize::from(id)], false),
            };
            let mut tables = TableSet {
                hosts: (1..=3).map(host).collect(),
                unicast: unicast
                    .into_iter()
                    .map(|(net, length, id)| UnicastEntry {
                        destination: Prefix::new([10, 10, net << 4, 0], length),
                        partition: u32::from(net % 2),
                        host: HostId(id),
                        chain: None,
                    })
                    .collect(),
                division: division
                    .into_iter()
                    .map(|(net, length, id)| DivisionEntry {
                        partition: u32::from(net % 2),
                        source: Prefix::new([10, 0, net << 4, 0], length),
                        host: HostId(id),
                    })
                    .collect(),
                multicast: multicast
                    .into_iter()
                    .map(|(net, length, members)| {
                        groups::to_vnodes(Prefix::new([10, 11, net << 4, 0], length), members)
                    })
                    .chain(of_groups)
                    .collect(),
                record: records.into_iter().map(|(cell, (id, members))| in_cell(cell, id, members)).collect(),
                ..TableSet::default()
            };
            tables.unicast.sort_by_key(|entry| entry.destination);
            tables.unicast.dedup_by_key(|entry| entry.destination);
            tables.division.sort_by_key(|entry| (entry.partition, entry.source));
            tables.division.dedup_by_key(|entry| (entry.partition, entry.source));
            tables.multicast.sort_by_key(|entry| entry.destination);
            tables.multicast.dedup_by_key(|entry| entry.destination);
            tables
        },
    )
}

/// Number of equal parts of all match values. A record of [`any_tables`] covers one part.
const CELLS: u8 = 8;

fn in_cell(cell: u8, id: u16, members: BTreeSet<u16>) -> RecordEntry {
    let first = u128::from(cell) << 125;
    RecordEntry {
        first,
        last: first + ((1 << 125) - 1),
        host: HostId(id),
        members: MemberSet::new(members.into_iter().map(HostId)),
        ..record(u32::from(cell % 2), 0)
    }
}

fn fixtures_host(id: u16, port: u16, is_remote: bool) -> nicekv_switch::Host {
    nicekv_switch::Host { port, is_remote, ..host(id) }
}

fn probes() -> Vec<Vec<u8>> {
    let nets = [0u8, 1, 16, 32, 48, 49];
    let to = |ring: u8, net: u8, from: u8| {
        frames::Udp { source: [10, 0, from, 1], ..frames::Udp::request([10, ring, net, 1]) }.build()
    };
    let borders = (0..CELLS).map(|cell| u128::from(cell) << 125);
    let values = borders.flat_map(|first| [first, first.wrapping_sub(1)]);
    let of_records = values
        .flat_map(|value| [fixtures::records::probe(value).build(), fixtures::records::put(value).build()]);
    let to_vnodes = nets.iter().flat_map(|&net| [to(10, net, 0), to(10, net, 16), to(11, net, 0)]);
    to_vnodes.chain(of_records).chain(groups::probes()).collect()
}

#[test]
fn successive_generations_route_like_the_model() {
    at_both("successive_generations_route_like_the_model", |hook| {
        let mut lab = Lab::new(OBJECT, hook);
        let mut model = Pipeline::new(vrings(), ROUTER_MAC, PORTS).unwrap();
        let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = TestRunner::new_with_rng(Config::default(), random);
        let mut updates = 0;
        for generation in 1..=40 {
            let tables = TableSet { generation, ..any_tables().new_tree(&mut runner).unwrap().current() };
            // Some generations change all tables, others only one.
            let before = model.tables().cloned().unwrap_or_default();
            let changed = match generation % 5 {
                4 => TableSet { generation, record: tables.record.clone(), ..before.clone() },
                0 => TableSet { generation, unicast: tables.unicast.clone(), ..before.clone() },
                2 => TableSet { generation, division: tables.division.clone(), ..before.clone() },
                3 => TableSet { generation, multicast: tables.multicast.clone(), ..before.clone() },
                _ => tables,
            };
            match TableUpdate::between(&before, &changed) {
                Some(update) => {
                    updates += 1;
                    model.update(&update).unwrap();
                    lab.xdp.update(&update).unwrap();
                }
                None => {
                    model.install(&changed).unwrap();
                    lab.xdp.install(&changed).unwrap();
                }
            }
            let tables = changed;
            for probe in probes() {
                assert!(probe.len() >= FRAME_BYTES_MIN);
                let ingress = generation as u16 % 5;
                assert_eq!(lab.send(ingress, &probe), model.process(ingress, &probe), "{tables:#?}");
            }
            for table in Table::ALL {
                assert_eq!(lab.xdp.entry_hits(table), model.entry_hits(table), "hits of {table}");
            }
            let entries =
                |status: Vec<nicekv_switch::TableStatus>| status.into_iter().map(|s| (s.entries, s.hits));
            let (kernel, model) = (lab.xdp.table_status().unwrap(), model.table_status().unwrap());
            assert!(entries(kernel).eq(entries(model)));
        }
        assert!(updates > 10, "{updates} updates");
    });
}

#[test]
fn flip_under_traffic_loses_and_mixes_no_packets() {
    at_both("flip_under_traffic_loses_and_mixes_no_packets", |hook| {
        let mut lab = Lab::new(OBJECT, hook);
        let group = |members: [u16; 2]| TableSet {
            multicast: vec![groups::to_vnodes(VRINGS.multicast, members)],
            ..tables()
        };
        lab.xdp.install(&group([1, 2])).unwrap();
        let done = AtomicBool::new(false);
        let stations = &lab.network.stations;
        let xdp = &mut lab.xdp;
        let datagram = |number: u32| frames::Udp {
            payload: frames::message(Opcode::Update, &number.to_be_bytes()),
            ..frames::Udp::request([10, 11, 0, 1])
        };
        let number_of = |frame: &[u8]| u32::from_be_bytes(frame[90..94].try_into().unwrap());
        let end =
            |stations: &[super::namespaces::Station]| stations[0].send(&[[0xff; 12], [0x88; 12]].concat());
        std::thread::scope(|scope| {
            // The sender waits for each datagram to reach host 1, which is always a member, before
            // it sends the next.
            let sender = scope.spawn(|| {
                let mut sent = 0;
                while !done.load(Ordering::Relaxed) {
                    stations[0].send(&datagram(sent).build());
                    assert_eq!(number_of(&stations[1].receive()), sent);
                    sent += 1;
                }
                end(stations);
                sent
            });
            let receivers = [2, 3].map(|port: usize| {
                scope.spawn(move || {
                    let frames = std::iter::repeat_with(|| stations[port].receive());
                    let datagrams = frames.take_while(|frame| frame[..6] != [0xff; 6]);
                    datagrams.map(|frame| number_of(&frame)).collect::<Vec<_>>()
                })
            });
            for flip in 0..20 {
                let members = if flip % 2 == 0 { [1, 3] } else { [1, 2] };
                xdp.install(&TableSet { generation: 2 + flip, ..group(members) }).unwrap();
            }
            done.store(true, Ordering::Relaxed);
            let sent = sender.join().unwrap();
            let [second, third] = receivers.map(|receiver| receiver.join().unwrap());
            assert!(!second.is_empty() && !third.is_empty(), "each of hosts 2 and 3 is a member at times");
            let mut received = [second, third].concat();
            received.sort_unstable();
            let first_wrong = (0..sent).zip(&received).find(|(expected, found)| expected != *found);
            let is_all = first_wrong.is_none() && received.len() == sent as usize;
            assert!(is_all, "exactly one of hosts 2 and 3 gets each datagram: {first_wrong:?} of {sent}");
        });
    });
}

#[test]
fn after_install_no_packet_uses_the_old_tables() {
    at_both("after_install_no_packet_uses_the_old_tables", |hook| {
        let mut lab = Lab::new(OBJECT, hook);
        lab.xdp.install(&tables()).unwrap();
        let probe = frames::Udp::request([10, 10, 0, 1]).build();
        for round in 0..10 {
            for id in [2, 1] {
                let mut next = tables();
                next.unicast[0].host = HostId(id);
                lab.xdp.install(&next).unwrap();
                let output = lab.send(0, &probe);
                assert_eq!(output.frames[0].0, id, "round {round}");
            }
        }
        lab.xdp.install(&TableSet { generation: 99, ..TableSet::default() }).unwrap();
        assert_eq!(lab.send(0, &probe).frames, [], "empty tables drop the datagram");
    });
}

#[test]
fn admitted_sender_is_checked_again_by_the_next_generation() {
    at_both("admitted_sender_is_checked_again_by_the_next_generation", |hook| {
        let mut lab = Lab::new(OBJECT, hook);
        lab.xdp.install(&tables()).unwrap();
        let owned = |ip, mac, generation| {
            let mut tables = TableSet { generation, ..tables() };
            tables.hosts[2] = nicekv_switch::Host { ip, mac, ..tables.hosts[2] };
            tables
        };
        let client = frames::Udp::request([10, 10, 0, 1]);
        let (ip, mac) = (client.source, client.source_mac);
        // The client's IP address becomes the address of a server at another port, then its MAC
        // does. In between both are unused.
        for (tables, passed) in [
            (tables(), 1),
            (owned(ip, host(3).mac, 2), 0),
            (owned(host(3).ip, host(3).mac, 3), 1),
            (owned(host(3).ip, mac, 4), 0),
            (owned(host(3).ip, host(3).mac, 5), 1),
        ] {
            lab.xdp.install(&tables).unwrap();
            for _ in 0..2 {
                assert_eq!(
                    lab.send(0, &client.build()).frames.len(),
                    passed,
                    "generation {}",
                    tables.generation
                );
            }
        }
    });
}

#[test]
fn refused_or_failed_install_keeps_the_old_tables() {
    as_root("refused_or_failed_install_keeps_the_old_tables", || {
        // XDP only: to tc, a port whose interface is gone is like an unplugged link, and the
        // install succeeds.
        let lab = Lab::new(OBJECT, Hook::Xdp);
        let (mut network, xdp) = (lab.network, lab.xdp);
        let mut agent = SwitchAgent::new(xdp, 0);
        let install = |tables| ControlRequest::Install { term: 1, tables };
        assert_eq!(agent.handle(install(tables())), ControlReply::Installed { term: 1, generation: 1 });
        let mut elsewhere = TableSet { generation: 2, ..tables() };
        elsewhere.hosts[0].port = 9;
        assert!(matches!(
            agent.backend_mut().install(&elsewhere),
            Err(BackendError::Refused(TableError::UnknownPort { port: 9, .. }))
        ));
        let unknown = TableSet { generation: 2, unicast: vec![], ..tables() };
        let mut update = TableUpdate::between(&tables(), &unknown).unwrap();
        update.base = 7;
        assert!(matches!(
            agent.backend_mut().update(&update),
            Err(BackendError::Refused(TableError::OtherBase { base: 7, installed: Some(1) }))
        ));
        assert!(matches!(agent.handle(install(elsewhere)), ControlReply::Failed { generation: 2, .. }));
        // The kernel cannot create a group with a port whose interface is gone.
        network.remove_port(3);
        let mut gone = TableSet { generation: 3, ..tables() };
        gone.unicast[0].host = HostId(2);
        gone.multicast[1].members = MemberSet::new([HostId(2), HostId(3)]);
        let reply = agent.handle(install(gone.clone()));
        let ControlReply::Failed { generation: 3, reason } = reply else { panic!("{reply:?}") };
        assert!(reason.contains("multicast group"), "{reason}");
        let status = agent.handle(ControlRequest::Status { term: 1 });
        assert!(matches!(status, ControlReply::Status { generation: Some(1), .. }), "{status:?}");
        let probe = frames::Udp::request([10, 10, 0, 1]).build();
        network.stations[0].send(&probe);
        assert_eq!(network.stations[1].receive()[..6], host(1).mac, "the old tables are in force");
        // Tables that do not use the port can be installed.
        gone.multicast.clear();
        gone.generation = 4;
        assert_eq!(agent.handle(install(gone)), ControlReply::Installed { term: 1, generation: 4 });
        network.stations[0].send(&probe);
        assert_eq!(network.stations[2].receive()[..6], host(2).mac);
    });
}

#[test]
fn unicasts_and_copies_in_one_queue_flush_are_told_apart() {
    at_both("unicasts_and_copies_in_one_queue_flush_are_told_apart", |hook| {
        /// Half the capacity of a port's queue.
        const PAIRS: usize = 60;
        const BURSTS: usize = 20;
        let mut lab = Lab::new(OBJECT, hook);
        lab.xdp.install(&tables()).unwrap();
        let to = |ring| frames::Udp::request([10, ring, 0, 1]).build();
        let once = [to(10), to(11)].map(|frame| lab.send(0, &frame).frames);
        let mut expected: Vec<_> = std::iter::repeat_n(once.concat(), PAIRS).flatten().collect();
        expected.sort_unstable();
        if hook == Hook::Xdp {
            lab.network.batch_port(0);
        }
        for burst in 0..BURSTS {
            for _ in 0..PAIRS {
                lab.network.stations[0].send(&to(10));
                lab.network.stations[0].send(&to(11));
            }
            let mut arrived = lab.collect(0, |port| port != 0);
            arrived.sort_unstable();
            assert_eq!(arrived.len(), expected.len(), "burst {burst}");
            assert!(arrived == expected, "burst {burst}: a frame is not rewritten correctly");
        }
    });
}

#[test]
fn drop_detaches_all_programs() {
    at_both("drop_detaches_all_programs", |hook| {
        let Lab { network, xdp, .. } = Lab::new(OBJECT, hook);
        assert_eq!(network.attached(hook), network.ports.len());
        drop(xdp);
        // A child process that another test starts holds all file descriptors between its fork and
        // its exec. The kernel detaches the programs only when these copies are closed, too.
        let deadline = Instant::now() + Duration::from_secs(5);
        while network.attached(hook) != 0 {
            assert!(Instant::now() < deadline, "{} ports are still attached", network.attached(hook));
            std::thread::sleep(Duration::from_millis(10));
        }
    });
}

#[test]
fn failed_start_names_the_reason() {
    as_root("failed_start_names_the_reason", || {
        let hook = Hook::Auto;
        let load = |ports: &[Port]| KernelSwitch::load(vrings(), ROUTER_MAC, ports).err().expect("must fail");
        let missing = load(&[Port { index: 7, ifindex: 999_999, hook, is_trunk: false }]).to_string();
        assert!(missing.contains("port 7") && missing.contains("network namespace"), "{missing}");
        let twice = [1, 2].map(|index| Port { index, ifindex: 2, hook, is_trunk: false });
        assert!(matches!(load(&twice), XdpError::DuplicatePort { index: 2, ifindex: 2 }));
        let many: Vec<Port> =
            (0..257).map(|index| Port { index, ifindex: index.into(), hook, is_trunk: false }).collect();
        assert!(matches!(load(&many), XdpError::TooManyPorts { ports: 257 }));
        super::namespaces::become_nobody();
        let denied = load(&[]);
        assert!(matches!(denied, XdpError::Denied { .. }), "{denied}");
        assert!(denied.to_string().contains("sudo"), "{denied}");
    });
}

/// One of a sequence of adjacent records, each of 2^113 values.
fn record(index: u32, shift: u32) -> RecordEntry {
    let first = (u128::from(index) + u128::from(shift)) << 113;
    RecordEntry {
        ring: RECORD_VRINGS.unicast,
        keyspace: RECORD_KEYSPACE,
        first,
        last: first + ((1 << 113) - 1),
        partition: index % 4096,
        host: HostId(1 + (index % 3) as u16),
        members: MemberSet::new([HostId(1 + (index % 3) as u16)]),
        chain: None,
    }
}

#[test]
fn tables_at_capacity_fit() {
    at_both("tables_at_capacity_fit", |hook| {
        let mut lab = Lab::new(OBJECT, hook);
        let vnode = |ring: u32, index: u32| Prefix::new((ring + index).to_be_bytes(), 32);
        let full = |generation: u64, shift: u32| TableSet {
            generation,
            unicast: (0..4096)
                .map(|index| UnicastEntry {
                    destination: vnode(0x0a0a_0000, index + shift),
                    partition: index,
                    host: HostId(1),
                    chain: None,
                })
                .collect(),
            division: (0..16384)
                .map(|index| DivisionEntry {
                    partition: index % 4096,
                    source: vnode(0x0a00_0000, index + shift),
                    host: HostId(2),
                })
                .collect(),
            multicast: (0..4096)
                .map(|index| groups::to_vnodes(vnode(0x0a0b_0000, index + shift), [1 + (index % 3) as u16]))
                .collect(),
            record: (0..10240).map(|index| record(index, shift)).collect(),
            ..fixtures::tables()
        };
        // Alternate generations have no entry in common, so that both need all their slots at once.
        for generation in 0..4 {
            let shift = if generation % 2 == 0 { 0 } else { 20_000 };
            lab.xdp.install(&full(generation, shift)).unwrap();
            let [_, _, c, d] = (0x0a0a_0000 + shift + 4095).to_be_bytes();
            let probe = frames::Udp {
                source: [10, 0, 200, 1],
                destination: [10, 10, c, d],
                ..frames::Udp::default()
            };
            assert_eq!(lab.send(0, &probe.build()).frames.len(), 1, "generation {generation}");
            assert_eq!(
                lab.xdp.entry_hits(Table::Unicast).unwrap().iter().sum::<u64>(),
                1,
                "counters start at zero"
            );
            for index in [0, 1, 5119, 5120, 10_238, 10_239] {
                let RecordEntry { first, last, .. } = record(index, shift);
                for value in [first, last] {
                    let sent = lab.send(0, &fixtures::records::probe(value).build()).frames;
                    let ports: Vec<u16> = sent.iter().map(|(port, _)| *port).collect();
                    assert_eq!(ports, [1 + (index % 3) as u16], "record {index}, generation {generation}");
                }
            }
            let (before, behind) = (record(0, shift).first.checked_sub(1), record(10_239, shift).last + 1);
            for value in before.into_iter().chain([behind]) {
                assert!(lab.send(0, &fixtures::records::probe(value).build()).frames.is_empty());
            }
        }
    });
}
