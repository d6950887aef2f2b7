//! The cases, and a lab for each.

use super::puts;
use crate::error::{BenchError, Result};
use crate::heat;
use crate::keyspace;
use crate::lab::{Engine, Lab, LabPlan, Network, Size};
use crate::latencies::Latencies;
use crate::load::native::{Callers, NativeLoad};
use crate::load::{Limits, Measured};
use crate::workload::{KEYS, Sequence, Step, Work};
use nicekv_client::Keyspace;
use nicekv_lab::topology::Host;
use nicekv_proto::placement::key_digest;
use nicekv_runtime::Stop;
use serde_json::Value;
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::Duration;

/// An owner, and those that may hold copies.
const SIZE: Size = Size { nodes: 4, replicas: 1 };
const PARTITIONS: u32 = 4;
const KEYSPACE: &str = "hot=id=1,replicas=1,partitions=4,balancing=hot";
/// Hosts that ask, and callers of each.
pub(super) const CLIENTS: u8 = 2;
pub(super) const CALLERS: usize = 8;
/// Of the policy, by default.
pub(super) const PERIOD: Duration = Duration::from_secs(1);
/// Until all is stored, and longer than any round.
const PATIENCE: Duration = Duration::from_secs(30);
/// The key, the first one.
const HOT: u32 = 0;
/// Datagrams that a node may have waiting for its link.
const BURST: &str = "16k";

/// Where copies of the key may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) holders_max: u32,
    pub(super) values_max: u32,
}

const fn case(name: &'static str, holders_max: u32, values_max: u32) -> Case {
    Case { name, holders_max, values_max }
}

/// The first one is what the others are compared with.
pub(super) const CASES: [Case; 6] = [
    case("owner alone", 0, 0),
    case("owner, 1 holder", 1, 0),
    case("owner, 2 holders", 2, 0),
    case("owner, 3 holders", 3, 0),
    case("owner, switch (NetCache)", 0, 64),
    case("owner, 3 holders, switch", 3, 64),
];

/// A lab of a case, and its clients.
pub(super) struct Field {
    case: &'static Case,
    keyspace: Keyspace,
    loads: Vec<NativeLoad>,
    lab: Lab,
}

impl Field {
    pub(super) fn new(
        case: &'static Case,
        (place, network): (usize, Network),
        node_mbit: u32,
        directory: &Path,
        stop: &Stop,
    ) -> Result<Self> {
        let [holders, values] = [case.holders_max, case.values_max].map(|number| number.to_string());
        let hot = ["--hot-holders", &holders, "--hot-values", &values];
        let further = [&["--keyspace", KEYSPACE, "--kernel-get-mib", "0"][..], &hot].concat();
        let apart = format!("hot-{place}");
        let plan = LabPlan::new(SIZE, Engine::Memory, network, directory);
        let plan = LabPlan { further: &further, apart: Some(&apart), clients: CLIENTS, ..plan };
        eprintln!("starting a lab: {}", case.name);
        let lab = Lab::up(&plan)?;
        let keyspace = keyspace::known(KEYSPACE, SIZE, PARTITIONS)?;
        let bind = |client| {
            let address = SocketAddrV4::new(Host::Client(client).address(), 0);
            let load = lab.inside(Host::Client(client), || NativeLoad::bind(address, keyspace))?;
            load.map_err(BenchError::system("make a client's socket"))
        };
        let mut loads = (0..CLIENTS).map(bind).collect::<Result<Vec<_>>>()?;
        let limits = Limits { duration: PATIENCE, stop };
        loads[0].run(Sequence::new(Work::Preload, 0), Callers::single(CALLERS), limits)?;
        if node_mbit > 0 {
            (0..SIZE.nodes).try_for_each(|node| lab.hosts().limit(Host::Node(node), node_mbit, BURST))?;
        }
        heat::wait_for(&lab, stop, case.name, is_cold)?;
        Ok(Self { case, keyspace, loads, lab })
    }

    /// Gets of the key until it is where the case says, and for a period more, in which copies come; how many periods it took. None: it is where it always is.
    pub(super) fn heat(&mut self, stop: &Stop) -> Result<Option<u64>> {
        let Case { holders_max, values_max, .. } = *self.case;
        let hot = value_of(&key_digest(&step(HOT).key()).match_value());
        let is_spread = |switch: &Value| {
            let mut keys = switch["keys"].as_array().into_iter().flatten();
            let Some(key) = keys.find(|key| key["value"] == hot) else { return false };
            let holders = key["holders"].as_array().map_or(0, Vec::len);
            holders == holders_max as usize && (values_max == 0 || key["in_switch"] == true)
        };
        let name = self.case.name;
        let took = heat::until((&self.lab, stop), &mut self.loads, get, name, is_spread)?;
        self.gets(PERIOD, stop)?;
        Ok((holders_max + values_max > 0).then_some(took))
    }

    /// Of all clients, while the key is as it has been left.
    pub(super) fn gets(&mut self, duration: Duration, stop: &Stop) -> Result<Vec<Measured>> {
        let limits = Limits { duration, stop };
        std::thread::scope(|scope| {
            let runs: Vec<_> =
                self.loads.iter_mut().map(|load| scope.spawn(move || get(load, limits))).collect();
            let joined = runs.into_iter().map(|run| run.join().expect("a load does not panic"));
            joined.collect()
        })
    }

    /// How long puts take of one client, of the hot key and then of another one of the same owner, while the others get the hot one.
    pub(super) fn puts(&mut self, duration: Duration, stop: &Stop) -> Result<(Latencies, Latencies)> {
        let hot = step(HOT);
        let part = |step: &Step| key_digest(&step.key()).match_value() >> (128 - PARTITIONS.ilog2());
        let other = (0..KEYS).map(step).find(|other| *other != hot && part(other) == part(&hot));
        let other = other.expect("a key of every partition");
        let (client, enough) = (Host::Client(CLIENTS - 1), Stop::new());
        let limits = Limits { duration: PATIENCE, stop: &enough };
        let (lab, keyspace, loads) = (&self.lab, &self.keyspace, &mut self.loads[..usize::from(CLIENTS - 1)]);
        std::thread::scope(|scope| {
            for load in loads {
                scope.spawn(move || get(load, limits));
            }
            let put =
                |step| lab.inside(client, || puts::run(client, keyspace, step, Limits { duration, stop }))?;
            let measured = put(hot).and_then(|hot| Ok((hot, put(other)?)));
            enough.stop();
            measured
        })
    }

    /// Leaves the key alone until nothing of it is in the switch; how many periods that took.
    pub(super) fn cool(&self, stop: &Stop) -> Result<u64> {
        heat::wait_for(&self.lab, stop, self.case.name, is_cold)
    }
}

/// The key of this number, as it was stored.
fn step(number: u32) -> Step {
    Sequence::new(Work::Preload, 0).nth(number as usize).expect("one of all keys")
}

fn get(load: &mut NativeLoad, limits: Limits<'_>) -> Result<Measured> {
    load.run(Sequence::of_first(HOT + 1, Work::Get, 0), Callers::single(CALLERS), limits)
}

fn is_cold(switch: &Value) -> bool {
    switch["entries"] == 0
}

/// As status tells it.
fn value_of(value: &u128) -> String {
    format!("{value:032x}")
}
