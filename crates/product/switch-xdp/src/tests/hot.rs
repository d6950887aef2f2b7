//! Hot keys in the kernel: the model's runs with live frames, and random runs compared with the
//! model.

use std::cell::RefCell;
use std::mem::offset_of;
use std::time::Duration;

use nicekv_proto::hot::Stamp;
use nicekv_proto::route::leave_room_for_stamp;
use nicekv_proto::{HeaderLayout, Opcode};
use nicekv_switch::{
    Backend as _, Counter, HostId, HostRole, HotConfig, HotEntry, Output, Pipeline, Table, TableSet,
};
use nicekv_switch_fixtures::hot::{self, KEYSPACE, Plane};
use nicekv_switch_fixtures::{PORTS, ROUTER_MAC, frames, host, tables, trunks, verdict_of, vrings};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use super::namespaces::as_root;
use super::{Lab, assert_none, at_both, compare_test_run};
use crate::{Hook, KernelSwitch, OBJECT};

impl Plane for Lab {
    type Backend = KernelSwitch;

    fn backend(&mut self) -> &mut KernelSwitch {
        &mut self.xdp
    }

    fn send(&mut self, ingress: u16, frame: &[u8]) -> Output {
        Lab::send(self, ingress, frame)
    }
}

/// The runs that a switch built from `object` fails.
pub(super) fn live_failures(object: &[u8], hook: Hook) -> Vec<String> {
    let mut lab = Lab::new(object, hook);
    hot::all().iter().flat_map(|run| run.failures(&mut lab)).collect()
}

#[test]
fn hot_runs_with_live_frames() {
    at_both("hot_runs_with_live_frames", |hook| assert_none(&live_failures(OBJECT, hook)));
}

#[test]
fn hot_runs_with_live_frames_through_ports_of_both_kinds() {
    as_root("hot_runs_with_live_frames_through_ports_of_both_kinds", || {
        let mut lab = Lab::mixed();
        let failures: Vec<String> = hot::all().iter().flat_map(|run| run.failures(&mut lab)).collect();
        assert_none(&failures);
    });
}

/// A random step. Only the first three keys have entries at the start; steps may change the
/// entries.
#[derive(Clone, Debug)]
enum Next {
    Request { is_update: bool, keyspace: u16, key: u8, has_room: bool, vnode: [u8; 2], ingress: u16 },
    Said { node: u16, key: u8, opcode: Opcode, instance: u64, seen: u64 },
    Asked { key: u8, name: u8, padding: usize, ingress: u16 },
    Offered { node: u16, key: u8, name: u8, behind: u64, serial: u64, bytes: usize },
    Leased { node: u16, serial: u64, is_over: bool, other_life: u8 },
    Change { removed: Option<u64>, key: u8, owner_turns: u8, holders: u8 },
}

fn next() -> impl Strategy<Value = Next> {
    let vnode = prop_oneof![Just([0, 7]), Just([1, 7]), Just([2, 7]), Just([4, 7]), Just([200, 1])];
    let is_update = prop_oneof![12 => Just(false), 1 => Just(true)];
    let keyspace = prop_oneof![4 => Just(KEYSPACE), 1 => 4u16..6];
    let key = prop_oneof![0u8..4, 0u8..24];
    let ingress = prop_oneof![3 => Just(0u16), 1 => 0u16..6];
    let has_room = prop_oneof![3 => Just(true), 1 => Just(false)];
    let request = (is_update, keyspace, key, has_room, vnode, ingress);
    let request = request.prop_map(|(is_update, keyspace, key, has_room, vnode, ingress)| Next::Request {
        is_update,
        keyspace,
        key,
        has_room,
        vnode,
        ingress,
    });
    let opcode = prop_oneof![20 => Just(Opcode::HotConfirm), 1 => Just(Opcode::HotClose), 1 => Just(Opcode::HotClosed)];
    // Most instances and numbers are current ones.
    let node = prop_oneof![3 => 1u16..4, 1 => 0u16..6];
    let (instance, seen) = (prop_oneof![8 => Just(1), 1 => 0u64..3], prop_oneof![8 => Just(1), 1 => 0u64..4]);
    let said = (node, 0u8..4, opcode, instance, seen);
    let said =
        said.prop_map(|(node, key, opcode, instance, seen)| Next::Said { node, key, opcode, instance, seen });
    let change = (prop::option::of(0u64..4), 0u8..4, 1u8..4, any::<u8>());
    let change = change.prop_map(|(removed, key, owner_turns, holders)| Next::Change {
        removed,
        key,
        owner_turns,
        holders,
    });
    let ingress = prop_oneof![4 => Just(0u16), 1 => 0u16..6];
    let asked = (0u8..4, prop_oneof![8 => Just(0u8), 1 => 0u8..3], 0usize..400, ingress);
    let asked = asked.prop_map(|(key, name, padding, ingress)| Next::Asked { key, name, padding, ingress });
    let behind = prop_oneof![8 => Just(0u64), 1 => 0u64..3];
    let offered =
        (node_that_owns(), 0u8..4, prop_oneof![8 => Just(0u8), 1 => 0u8..3], behind, 0u64..2, 0usize..300);
    let offered = offered.prop_map(|(node, key, name, behind, serial, bytes)| Next::Offered {
        node,
        key,
        name,
        behind,
        serial,
        bytes,
    });
    let leased = (node_that_owns(), 0u64..2, prop_oneof![4 => Just(false), 1 => Just(true)], 0u8..8);
    let leased = leased.prop_map(|(node, serial, is_over, other_life)| Next::Leased {
        node,
        serial,
        is_over,
        other_life,
    });
    prop_oneof![60 => request, 30 => said, 1 => change, 40 => asked, 20 => offered, 10 => leased]
}

fn node_that_owns() -> impl Strategy<Value = u16> {
    prop_oneof![6 => Just(1u16), 1 => 0u16..6]
}

fn digest(key: u8) -> [u8; 16] {
    core::array::from_fn(|at| key.wrapping_mul(at as u8 + 1))
}

pub(super) fn of_key(mut payload: Vec<u8>, keyspace: u16, digest: [u8; 16]) -> Vec<u8> {
    payload[offset_of!(HeaderLayout, keyspace)..][..2].copy_from_slice(&keyspace.to_be_bytes());
    payload[offset_of!(HeaderLayout, digest)..][..16].copy_from_slice(&digest);
    payload
}

/// The model and the kernel, which process the same steps.
struct Both {
    lab: Lab,
    model: Pipeline,
    /// For each key, the newest instance of its entry.
    instances: [u64; 4],
    newest: u64,
    /// The nonce of the incarnation, the same in both.
    nonce: u64,
}

impl Both {
    fn new(hook: Hook, tables: &TableSet) -> Self {
        let mut both = Self {
            lab: Lab::new(OBJECT, hook),
            model: Pipeline::new(vrings(), ROUTER_MAC, PORTS).unwrap(),
            instances: [0; 4],
            newest: 0,
            nonce: 5,
        };
        both.lab.xdp.hot.begin_incarnation(both.nonce).unwrap();
        both.model.begin_incarnation(both.nonce);
        // A lease has either ended or lasts longer than any clock, so the clocks of model and
        // kernel may differ.
        both.model.set_clock(1 << 40);
        let config = HotConfig { keyspaces: vec![KEYSPACE, 4], keys_max: 12, stages: 3, seed: 11 };
        both.lab.xdp.install(tables).unwrap();
        both.model.install(tables).unwrap();
        both.lab.xdp.set_hot(&config).unwrap();
        both.model.set_hot(&config).unwrap();
        (0..3).for_each(|key| both.change(None, key, 1, 0xff));
        both
    }

    fn change(&mut self, removed: Option<u64>, key: u8, owner_turns: u8, holders: u8) {
        let tables = self.model.tables().unwrap();
        let here = tables.hosts.iter().filter(|host| !host.is_remote && host.role == HostRole::Node);
        let holders: Vec<HostId> = here.map(|host| host.id).filter(|id| holders >> id.0 & 1 == 1).collect();
        self.newest += 1;
        self.instances[usize::from(key)] = self.newest;
        let (digest, instance) = (digest(key), self.newest);
        let in_switch = key != 1;
        let set = [HotEntry { keyspace: KEYSPACE, digest, instance, owner_turns, holders, in_switch }];
        let removed: Vec<u64> = removed.map(|back| self.newest.saturating_sub(back)).into_iter().collect();
        // The new instance must not be among the removed ones.
        let removed: Vec<u64> = removed.into_iter().filter(|instance| *instance != self.newest).collect();
        let changed = self.model.change_hot(false, &removed, &set);
        assert_eq!(self.lab.xdp.change_hot(false, &removed, &set), changed);
        changed.unwrap();
    }

    /// Processes a frame in both, and checks that verdicts, frames and counters are equal.
    fn send(&mut self, ingress: u16, frame: &[u8]) -> Result<(), TestCaseError> {
        self.lab.forget_stations();
        let model_before = self.model.counters().unwrap();
        let expected = self.model.process(ingress, frame);
        let before = self.lab.xdp.counters().unwrap();
        let (code, out) = self.lab.test_run(ingress, frame);
        let counted = self.lab.xdp.counters().unwrap().since(&before);
        let modelled = self.model.counters().unwrap().since(&model_before);
        let verdict = verdict_of(&counted, frame);
        compare_test_run(self.lab.hook, &expected, frame, verdict, code, &out)
            .map_err(TestCaseError::fail)?;
        for counter in Counter::ALL.into_iter().filter(|counter| *counter != Counter::MulticastCopies) {
            prop_assert_eq!(counted.get(counter), modelled.get(counter), "{}", counter.name());
        }
        Ok(())
    }

    /// Sends a message from a node to the switch.
    fn say(&mut self, node: u16, payload: Vec<u8>) -> Result<(), TestCaseError> {
        self.send(node, &said_by(node, payload))
    }

    /// Sends a lease message to the switch. Replies are compared without their clock, which
    /// differs.
    fn lease(&mut self, node: u16, payload: Vec<u8>) -> Result<(), TestCaseError> {
        let frame = said_by(node, payload);
        let before = (self.lab.xdp.counters().unwrap(), self.model.counters().unwrap());
        let (_, out) = self.lab.test_run(node, &frame);
        let expected = self.model.process(node, &frame);
        let counted = self.lab.xdp.counters().unwrap().since(&before.0);
        prop_assert_eq!(counted, self.model.counters().unwrap().since(&before.1));
        if let Some((_, expected)) = expected.frames.first() {
            // Compares everything except the clock and the checksum that depends on it.
            prop_assert_eq!((&out[..40], &out[42..98]), (&expected[..40], &expected[42..98]));
        }
        Ok(())
    }

    fn step(&mut self, next: &Next) -> Result<(), TestCaseError> {
        match *next {
            Next::Request { is_update, keyspace, key, has_room, vnode: [c, d], ingress } => {
                let (ring, opcode) = if is_update { (11, Opcode::Update) } else { (10, Opcode::Get) };
                let mut payload =
                    of_key(frames::message(opcode, b"and something behind"), keyspace, digest(key));
                if has_room {
                    leave_room_for_stamp(&mut payload);
                }
                let sent = frames::Udp { payload, ..frames::Udp::request([10, ring, c, d]) };
                self.send(ingress, &sent.build())
            }
            Next::Said { node, key, opcode, instance, seen } => {
                let current = self.instances[usize::from(key)];
                let instance = (current + 1).saturating_sub(instance);
                let model = self.model.hot().seen(current).unwrap_or(1);
                let told = Stamp { instance, seen: (model + 1).saturating_sub(seen) };
                let payload = of_key(frames::message(opcode, &told.to_bytes()), KEYSPACE, digest(key));
                self.say(node, payload)
            }
            Next::Asked { key, name, padding, ingress } => {
                let name = vec![b'k'; 4 + usize::from(name)];
                let length = (name.len() as u16).to_be_bytes();
                let body = [&[0; 10][..], &length, &name, &vec![0; padding]].concat();
                let mut payload = of_key(frames::message(Opcode::Get, &body), KEYSPACE, digest(key));
                leave_room_for_stamp(&mut payload);
                self.send(ingress, &frames::Udp { payload, ..frames::Udp::request([10, 10, 0, 7]) }.build())
            }
            Next::Offered { node, key, name, behind, serial, bytes } => {
                let instance = self.instances[usize::from(key)];
                let seen = self.model.hot().seen(instance).unwrap_or(1).saturating_sub(behind);
                let name = vec![b'k'; 4 + usize::from(name)];
                let words = [instance, seen, serial].map(u64::to_be_bytes).concat();
                let reply = vec![instance as u8 ^ 0x5a; bytes];
                let length = (name.len() as u16).to_be_bytes();
                let body = [&words[..], &length, &[0; 6], &name, &reply].concat();
                self.say(node, of_key(frames::message(Opcode::HotValue, &body), KEYSPACE, digest(key)))
            }
            Next::Leased { node, serial, is_over, other_life } => {
                let nonce = if other_life == 0 { self.nonce ^ 1 } else { self.nonce };
                let until = if is_over { 1 } else { u64::MAX };
                let body = [nonce, until, serial].map(u64::to_be_bytes).concat();
                self.lease(node, of_key(frames::message(Opcode::HotLease, &body), KEYSPACE, digest(0)))
            }
            Next::Change { removed, key, owner_turns, holders } => {
                self.change(removed, key, owner_turns, holders);
                Ok(())
            }
        }
    }
}

pub(super) fn said_by(node: u16, payload: Vec<u8>) -> Vec<u8> {
    let (source, source_mac) = (host(node).ip, host(node).mac);
    let source_port = frames::STORE_PORT;
    frames::Udp { source, source_mac, source_port, payload, ..frames::Udp::default() }.build()
}

/// Pins this thread to one CPU. Then the kernel counts in one CPU's part of the HashPipe, like the
/// model, which has only one.
fn on_one_processor() {
    let mut processors = CpuSet::new();
    processors.set(sched_getcpu());
    sched_setaffinity(None, &processors).unwrap();
}

#[test]
fn model_and_kernel_agree_on_hot_keys() {
    at_both("model_and_kernel_agree_on_hot_keys", |hook| {
        on_one_processor();
        for tables in [tables(), trunks::tables()] {
            let both = RefCell::new(Both::new(hook, &tables));
            let config = Config { cases: 30, failure_persistence: None, ..Config::default() };
            let property = |steps: Vec<Next>| {
                let both = &mut *both.borrow_mut();
                steps.iter().try_for_each(|next| both.step(next))?;
                prop_assert_eq!(both.lab.xdp.read_hot().unwrap(), both.model.read_hot().unwrap());
                Ok(())
            };
            let steps = prop::collection::vec(next(), 100..300);
            TestRunner::new(config).run(&steps, property).unwrap();
            let counted = both.borrow().model.counters().unwrap();
            for counter in hot::COUNTERS {
                assert!(counted.get(counter) > 10, "{} is {}", counter.name(), counted.get(counter));
            }
        }
    });
}

/// Two ports send on up to two CPUs, while the banks are switched all the time.
#[test]
fn no_count_is_lost_while_it_is_read() {
    const SENT: u16 = 30_000;
    at_both("no_count_is_lost_while_it_is_read", |hook| {
        let mut lab = Lab::new(OBJECT, hook);
        lab.xdp.install(&tables()).unwrap();
        let config = HotConfig { keyspaces: vec![KEYSPACE], keys_max: 24, stages: 3, seed: 11 };
        lab.xdp.set_hot(&config).unwrap();
        let entry = HotEntry {
            keyspace: KEYSPACE,
            digest: digest(0),
            instance: 1,
            owner_turns: 1,
            holders: vec![],
            in_switch: false,
        };
        lab.xdp.change_hot(false, &[], &[entry]).unwrap();
        let Lab { network, xdp, .. } = &mut lab;
        let routed = |xdp: &KernelSwitch| xdp.counters().unwrap().get(Counter::Hits(Table::Unicast));
        let (mut counted, mut readings) = (0, 0);
        let mut read = |xdp: &mut KernelSwitch| {
            let reading = xdp.read_hot().unwrap();
            counted +=
                reading.dropped + reading.candidates.iter().map(|candidate| candidate.count).sum::<u64>();
            readings += 1;
            (reading, counted)
        };
        std::thread::scope(|scope| {
            let sends = |port: u16| {
                let station = &network.stations[usize::from(port)];
                move || {
                    for number in 0..SENT {
                        let payload = frames::message(Opcode::Get, b"and something behind");
                        let payload = of_key(payload, KEYSPACE, digest((number % 40) as u8));
                        let sent = frames::Udp { payload, ..frames::Udp::request([10, 10, 0, 7]) };
                        station.send(&frames::Udp { source: [10, 0, 20, port as u8], ..sent }.build());
                    }
                }
            };
            let senders = [0, 4].map(|port| scope.spawn(sends(port)));
            while senders.iter().any(|sender| !sender.is_finished()) {
                read(xdp);
            }
        });
        // Wait until no frame is in progress any more.
        let mut before = 0;
        while before != routed(xdp) {
            before = routed(xdp);
            std::thread::sleep(Duration::from_millis(50));
        }
        let (reading, candidates) = read(xdp);
        let loads: u64 = reading.loads.iter().map(|(_, load)| load).sum();
        assert_eq!((reading.entries[0].requests + candidates, loads), (before, before));
        assert!(before > u64::from(SENT) / 10 && readings > 2, "{before} were routed, {readings} readings");
    });
}
