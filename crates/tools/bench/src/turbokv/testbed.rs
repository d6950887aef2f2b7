//! One lab, and three clients that take turns in it.
//!
//! ```text
//!   round 1:  switch, client, server      round 2:  client, server, switch      round 3:  server, switch, client      …
//! ```
//!
//! All three use the same nodes, chains and records, and send the same ops. Nodes always hold the
//! directory, as the switch holds its tables.

use super::load::MixedLoad;
use super::workload::{Mix, Ops, Popularity};
use crate::error::Result;
use crate::keyspace;
use crate::lab::{CLIENT, Engine, Lab, LabPlan, Size};
use crate::latencies::Latencies;
use crate::load::Measured;
use crate::session::Session;
use nicekv_client::{Config, Coordination};
use nicekv_lab::topology::{Host, WIRE_PORT};
use nicekv_runtime::new_client_id;
use serde_json::Value;
use std::net::SocketAddrV4;
use std::time::Duration;

pub(crate) const NODES: u8 = 16;
pub(crate) const REPLICAS: u8 = 3;
pub(crate) const RECORDS: u32 = 128;
pub(crate) const PRELOAD_TIMEOUT: Duration = Duration::from_secs(120);
pub(crate) const PRELOADERS: usize = 64;

/// The component that finds the node for a request.
pub(crate) const SYSTEMS: [(Coordination, &str); 3] = [
    (Coordination::Switch, "switch-driven"),
    (Coordination::Client, "client-driven"),
    (Coordination::Server, "server-driven"),
];

/// The result of one system in one round.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) measured: Measured,
    pub(crate) latencies: Latencies,
}

/// The turns of each round, in the order of [`SYSTEMS`].
pub(crate) type Rounds = Vec<[Turn; 3]>;

pub(crate) struct Testbed<'a> {
    /// Taken down with this.
    _lab: Lab,
    loads: Vec<MixedLoad>,
    session: &'a Session,
}

impl<'a> Testbed<'a> {
    pub(crate) fn start(engine: Engine, session: &'a Session) -> Result<Self> {
        let keyspace = format!(
            "turbokv=id=1,partitioning=range,replication=chain,replicas={REPLICAS},partitions={RECORDS}"
        );
        let size = Size { nodes: NODES, replicas: REPLICAS };
        eprintln!("starting a lab of {NODES} nodes, {} engine, {}", engine.name(), session.network.name());
        let options = ["--keyspace", &keyspace, "--nodes-coordinate"];
        let lab = Lab::up(&LabPlan { options: &options, ..session.plan(size, engine) })?;
        let keyspace = keyspace::known(&keyspace, size, RECORDS)?;
        let load = |(coordination, _)| {
            let nodes = (0..NODES).map(|node| SocketAddrV4::new(Host::Node(node).address(), WIRE_PORT));
            lab.client(CLIENT, |address| {
                let config = Config::new(new_client_id()?, keyspace);
                MixedLoad::bind(address, Config { coordination, nodes: nodes.collect(), ..config })
            })
        };
        let loads = SYSTEMS.into_iter().map(load).collect::<Result<Vec<_>>>()?;
        // In the paper each node is the head of 8 chains, in the middle of 8, and the tail of 8.
        // Here the ring decides: it bounds the number of chains that a node heads, and of all its
        // chains.
        eprintln!("of {RECORDS} records, a node {}", shares(&lab.wait_until_ready(&session.stop)?));
        let mut testbed = Self { _lab: lab, loads, session };
        testbed.loads[0].preload(PRELOADERS, session.limits(PRELOAD_TIMEOUT))?;
        Ok(testbed)
    }

    /// Measures all three in each round, after a turn of each that does not count.
    pub(crate) fn measure(
        &mut self,
        popularity: &Popularity,
        mix: Mix,
        callers: usize,
        (rounds, duration): (u32, Duration),
    ) -> Result<Rounds> {
        let limits = |duration| self.session.limits(duration);
        for load in &mut self.loads {
            load.run(Ops::new(popularity, mix, 0), callers, limits(duration / 2))?;
        }
        let mut all = Vec::new();
        for round in 0..rounds as usize {
            let mut turns: [Option<Turn>; 3] = [const { None }; 3];
            for place in 0..SYSTEMS.len() {
                let system = (round + place) % SYSTEMS.len();
                let ops = Ops::new(popularity, mix, 1 + round as u64);
                let (measured, latencies) = self.loads[system].run(ops, callers, limits(duration))?;
                turns[system] = Some(Turn { measured, latencies });
            }
            all.push(turns.map(|turn| turn.expect("each system had its turn")));
        }
        Ok(all)
    }
}

/// The number of records whose chain a node is the head of, and the tail of: least and most of all
/// nodes.
fn shares(status: &Value) -> String {
    let records = || {
        let partitions = status["partitions"].as_array().into_iter().flatten();
        partitions.filter(|partition| partition["keyspace"] == 1)
    };
    let count = |role: &str| {
        let of = |node: u8| records().filter(|record| record[role] == node).count();
        let counts: Vec<usize> = (0..NODES).map(of).collect();
        format!("{} to {}", counts.iter().min().unwrap_or(&0), counts.iter().max().unwrap_or(&0))
    };
    format!("is head of {}, tail of {}", count("primary"), count("tail"))
}
