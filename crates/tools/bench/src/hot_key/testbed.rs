//! The cases, and the lab of each.

use super::puts;
use crate::error::Result;
use crate::hot_keys;
use crate::keyspace;
use crate::lab::{Engine, Lab, LabPlan, Size};
use crate::latencies::Latencies;
use crate::load::native::{Callers, NativeLoad};
use crate::load::{Limits, Measured};
use crate::session::Session;
use crate::workload::{KEYS, Sequence, Step, Work};
use nicekv_client::Keyspace;
use nicekv_lab::topology::Host;
use nicekv_proto::placement::key_digest;
use nicekv_runtime::Stop;
use serde_json::Value;
use std::time::Duration;

/// One owner, and three nodes that may hold copies.
const SIZE: Size = Size { nodes: 4, replicas: 1 };
const PARTITIONS: u32 = 4;
const KEYSPACE: &str = "hot=id=1,replicas=1,partitions=4,balancing=hot";
/// Client hosts, and callers of each.
pub(super) const CLIENTS: u8 = 2;
pub(super) const CALLERS: usize = 8;
/// Default period of the policy for hot keys.
pub(super) const PERIOD: Duration = Duration::from_secs(1);
/// Time limit of loads: longer than any round.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Number of the hot key.
const HOT: u32 = 0;
/// Burst of a node's link.
const BURST: &str = "16k";

/// Where copies of the hot key may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) holders_max: u32,
    pub(super) values_max: u32,
}

const fn case(name: &'static str, holders_max: u32, values_max: u32) -> Case {
    Case { name, holders_max, values_max }
}

/// The others are compared with the first one.
pub(super) const CASES: [Case; 6] = [
    case("owner alone", 0, 0),
    case("owner, 1 holder", 1, 0),
    case("owner, 2 holders", 2, 0),
    case("owner, 3 holders", 3, 0),
    case("owner, switch (NetCache)", 0, 64),
    case("owner, 3 holders, switch", 3, 64),
];

/// The lab of a case, and its clients.
pub(super) struct Testbed {
    case: &'static Case,
    keyspace: Keyspace,
    loads: Vec<NativeLoad>,
    lab: Lab,
}

impl Testbed {
    pub(super) fn start(
        case: &'static Case,
        place: usize,
        node_mbit: u32,
        session: &Session,
    ) -> Result<Self> {
        let [holders, values] = [case.holders_max, case.values_max].map(|number| number.to_string());
        let hot = ["--hot-holders", &holders, "--hot-values", &values];
        let options = [&["--keyspace", KEYSPACE, "--kernel-get-mib", "0"][..], &hot].concat();
        let suffix = format!("hot-{place}");
        let plan = session.plan(SIZE, Engine::Memory);
        let plan = LabPlan { options: &options, suffix: Some(&suffix), clients: CLIENTS, ..plan };
        eprintln!("starting a lab: {}", case.name);
        let lab = Lab::up(&plan)?;
        let keyspace = keyspace::known(KEYSPACE, SIZE, PARTITIONS)?;
        let bind = |client| lab.client(Host::Client(client), |address| NativeLoad::bind(address, keyspace));
        let mut loads = (0..CLIENTS).map(bind).collect::<Result<Vec<_>>>()?;
        loads[0].preload(session.limits(TIMEOUT))?;
        if node_mbit > 0 {
            (0..SIZE.nodes).try_for_each(|node| lab.hosts().limit(Host::Node(node), node_mbit, BURST))?;
        }
        hot_keys::wait_for(&lab, &session.stop, case.name, is_cold)?;
        Ok(Self { case, keyspace, loads, lab })
    }

    /// Gets the key until it is spread as the case says, and for one more period, in which copies
    /// are made. Returns how many periods that took; `None` if the case has no copies.
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
        let took = hot_keys::wait_under_load((&self.lab, stop), &mut self.loads, get, name, is_spread)?;
        self.gets(PERIOD, stop)?;
        Ok((holders_max + values_max > 0).then_some(took))
    }

    /// Measures gets of all clients.
    pub(super) fn gets(&mut self, duration: Duration, stop: &Stop) -> Result<Vec<Measured>> {
        let limits = Limits { duration, stop };
        std::thread::scope(|scope| {
            let runs: Vec<_> =
                self.loads.iter_mut().map(|load| scope.spawn(move || get(load, limits))).collect();
            let joined = runs.into_iter().map(|run| run.join().expect("a load does not panic"));
            joined.collect()
        })
    }

    /// Latencies of one client's puts of the hot key, then of another key of the same owner, while
    /// the other clients get the hot one.
    pub(super) fn puts(&mut self, duration: Duration, stop: &Stop) -> Result<(Latencies, Latencies)> {
        let hot = step(HOT);
        let part = |step: &Step| key_digest(&step.key()).match_value() >> (128 - PARTITIONS.ilog2());
        let other = (0..KEYS).map(step).find(|other| *other != hot && part(other) == part(&hot));
        let other = other.expect("a key of every partition");
        let (client, enough) = (Host::Client(CLIENTS - 1), Stop::new());
        let limits = Limits { duration: TIMEOUT, stop: &enough };
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

    /// Waits until no trace of the key is in the switch; returns how many periods that took.
    pub(super) fn cool(&self, stop: &Stop) -> Result<u64> {
        hot_keys::wait_for(&self.lab, stop, self.case.name, is_cold)
    }
}

/// The op that stored the key with this number.
fn step(number: u32) -> Step {
    Sequence::new(Work::Preload, 0).nth(number as usize).expect("one of all keys")
}

fn get(load: &mut NativeLoad, limits: Limits<'_>) -> Result<Measured> {
    load.run(Sequence::of_first(HOT + 1, Work::Get, 0), Callers::single(CALLERS), limits)
}

fn is_cold(switch: &Value) -> bool {
    switch["entries"] == 0
}

/// A match value as the status prints it.
fn value_of(value: &u128) -> String {
    format!("{value:032x}")
}
