//! One lab, and three clients that take turns in it.
//!
//! ```text
//!   round 1:  switch, client, server      round 2:  client, server, switch      round 3:  server, switch, client      …
//! ```
//!
//! All three meet the same nodes, chains and records, and send the same ops. Nodes hold the directory all the time, as the switch holds its tables.

use super::load::MixedLoad;
use super::workload::{Mix, Ops, Popularity};
use crate::error::{BenchError, Result};
use crate::keyspace;
use crate::lab::{Engine, Lab, LabPlan, Network, Size};
use crate::latencies::Latencies;
use crate::load::{Limits, Measured};
use nicekv_client::{Config, Coordination};
use nicekv_lab::topology::{Host, METADATA, WIRE_PORT};
use nicekv_runtime::control_plane::AdminRequest;
use nicekv_runtime::{Stop, admin, new_client_id};
use serde_json::Value;
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) const NODES: u8 = 16;
pub(crate) const REPLICAS: u8 = 3;
pub(crate) const RECORDS: u32 = 128;
const CLIENT: Host = Host::Client(0);
pub(crate) const PRELOAD_TIMEOUT: Duration = Duration::from_secs(120);
pub(crate) const PRELOADERS: usize = 64;
const READY_TIMEOUT: Duration = Duration::from_secs(120);
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Who finds the node for a request, and how many of the rounds' figures are whose.
pub(crate) const SYSTEMS: [(Coordination, &str); 3] = [
    (Coordination::Switch, "switch-driven"),
    (Coordination::Client, "client-driven"),
    (Coordination::Server, "server-driven"),
];

/// What one of them did in one round.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) measured: Measured,
    pub(crate) latencies: Latencies,
}

/// Of each round, in the order of [`SYSTEMS`].
pub(crate) type Rounds = Vec<[Turn; 3]>;

pub(crate) struct Field<'a> {
    /// Taken down with this.
    _lab: Lab,
    loads: Vec<MixedLoad>,
    stop: &'a Stop,
}

impl<'a> Field<'a> {
    pub(crate) fn up(engine: Engine, network: Network, directory: &Path, stop: &'a Stop) -> Result<Self> {
        let keyspace = format!(
            "turbokv=id=1,partitioning=range,replication=chain,replicas={REPLICAS},partitions={RECORDS}"
        );
        let size = Size { nodes: NODES, replicas: REPLICAS };
        eprintln!("starting a lab of {NODES} nodes, {} engine, {}", engine.name(), network.name());
        let further = ["--keyspace", &keyspace, "--nodes-coordinate"];
        let lab = Lab::up(&LabPlan { further: &further, ..LabPlan::new(size, engine, network, directory) })?;
        let keyspace = keyspace::known(&keyspace, size, RECORDS)?;
        let bind = || -> std::io::Result<Vec<MixedLoad>> {
            let load = |(coordination, _)| {
                let nodes = (0..NODES).map(|node| SocketAddrV4::new(Host::Node(node).address(), WIRE_PORT));
                let config = Config::new(new_client_id()?, keyspace);
                let config = Config { coordination, nodes: nodes.collect(), ..config };
                MixedLoad::bind(SocketAddrV4::new(CLIENT.address(), 0), config)
            };
            SYSTEMS.into_iter().map(load).collect()
        };
        let loads = lab.inside(CLIENT, bind)?.map_err(BenchError::system("make a client's socket"))?;
        // The paper has each node at the head of 8 chains, in the middle of 8, and at the tail of 8; here the ring decides, which bounds the first and the sum.
        eprintln!("of {RECORDS} records, a node {}", shares(&wait_until_ready(&lab, stop)?));
        let mut field = Self { _lab: lab, loads, stop };
        let limits = Limits { duration: PRELOAD_TIMEOUT, stop };
        field.loads[0].preload(PRELOADERS, limits)?;
        Ok(field)
    }

    /// All three in so many rounds, after a turn of each that does not count.
    pub(crate) fn measure(
        &mut self,
        popularity: &Popularity,
        mix: Mix,
        callers: usize,
        (rounds, duration): (u32, Duration),
    ) -> Result<Rounds> {
        let limits = |duration| Limits { duration, stop: self.stop };
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
            all.push(turns.map(|turn| turn.expect("each had its turn")));
        }
        Ok(all)
    }
}

/// What the metadata service says; nothing if it does not answer.
pub(crate) fn status(lab: &Lab) -> Result<Value> {
    let ask = || admin::ask(&[METADATA], &AdminRequest::Status, ASK_TIMEOUT);
    let answer = lab.inside(CLIENT, ask)?.unwrap_or_default();
    Ok(serde_json::from_slice(&answer).unwrap_or_default())
}

/// What it says when all are ready.
pub(crate) fn wait_until_ready(lab: &Lab, stop: &Stop) -> Result<Value> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        let status = status(lab)?;
        if status["ready"] == true {
            return Ok(status);
        }
        if stop.is_stopped() || Instant::now() > deadline {
            return Err(BenchError::Failed(format!("not ready: {}", status["why_not_ready"])));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// In how many records of the keyspace a node is first, and last; least and most of all nodes.
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
