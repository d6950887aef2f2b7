//! Before and after migration (TurboKV §5.1): keys of which the first are the most popular, so that a record, and with it a node, has most to do.
//!
//! Two keyspaces are on the same nodes and begin alike. One is left as it is; records of the other are split and moved while it is asked, until no node has
//! much more to do than the others. Then both are asked in turn.

use super::field::{self, RECORDS, REPLICAS};
use super::load::MixedLoad;
use super::workload::{KEYS, Mix, Ops, Popularity, Skew};
use super::{CALLERS_MANY, Figure};
use crate::error::{BenchError, Result};
use crate::keyspace;
use crate::lab::{Engine, Lab, LabPlan, Network, Size};
use crate::load::Limits;
use crate::report::{self, Comparison};
use crate::statistics::{Rounds, in_turn};
use nicekv_client::Config;
use nicekv_lab::topology::Host;
use nicekv_runtime::{Stop, new_client_id};
use serde_json::{Value, json};
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::{Duration, Instant};

/// So few that a node can have all that the most popular key is asked.
const NODES: u8 = 6;
const SKEW: Skew = Skew::Zipf(0.99);
const WRITES: f64 = 0.25;
/// What balancing is content with, of the mean.
const EVEN_PERCENT: u64 = 130;
/// A dozen of its periods.
const EVEN_TIMEOUT: Duration = Duration::from_secs(120);
/// Between two looks whether it is.
const ASKED: Duration = Duration::from_secs(2);

/// What came of it.
pub(crate) struct Migration {
    pub(crate) comparison: Comparison,
    /// What the most loaded node had to do, percent of the mean: at worst, and in the end.
    pub(crate) hottest: [u64; 2],
}

impl Migration {
    /// Lines for people.
    pub(crate) fn text(&self) -> String {
        let [worst, last] = self.hottest;
        let table = report::table(std::slice::from_ref(&self.comparison));
        format!("{table}  the most loaded node had {worst} % of the mean to do, {last} % in the end\n")
    }

    /// Lines for programs.
    pub(crate) fn json(&self) -> String {
        let parameters = Value::Object(self.comparison.parameters.clone());
        let row = |(metric, percent): (&str, u64)| {
            report::row(Figure::Fig13.name(), &parameters, (metric, "% of the mean"), &[percent as f64], None)
        };
        let [worst, last] = self.hottest;
        let rows = [("hottest_node_at_worst", worst), ("hottest_node_in_the_end", last)].map(row).concat();
        report::json(std::slice::from_ref(&self.comparison)) + &rows
    }
}

pub(crate) fn measure(
    (engine, network, directory): (Engine, Network, &Path),
    (rounds, duration): (u32, Duration),
    stop: &Stop,
) -> Result<Migration> {
    let size = Size { nodes: NODES, replicas: REPLICAS };
    let keyspaces = [("still", 1, "none"), ("moved", 2, "migrate")].map(|(name, id, balancing)| {
        format!(
            "{name}=id={id},partitioning=range,replication=chain,replicas={REPLICAS},partitions={RECORDS},balancing={balancing}"
        )
    });
    let further = ["--keyspace", &keyspaces[0], "--keyspace", &keyspaces[1]];
    eprintln!("starting a lab of {NODES} nodes, of which one has most to do");
    let lab = Lab::up(&LabPlan { further: &further, ..LabPlan::new(size, engine, network, directory) })?;
    field::wait_until_ready(&lab, stop)?;
    let mut loads = [client(&lab, &keyspaces[1], size)?, client(&lab, &keyspaces[0], size)?];
    for load in &mut loads {
        load.preload(field::PRELOADERS, Limits { duration: field::PRELOAD_TIMEOUT, stop })?;
    }
    let popularity = Popularity::in_order(SKEW);
    let hottest = migrate(&lab, &mut loads[0], &popularity, stop)?;
    let (mut rates, mut costs) = (Rounds::default(), Rounds::default());
    for round in 1..=rounds {
        let ask = |side: usize| {
            let ops = Ops::new(&popularity, Mix::Writes(WRITES), u64::from(round));
            loads[side].run(ops, CALLERS_MANY, Limits { duration, stop }).map(|(measured, _)| measured)
        };
        let [after, before] = in_turn(round, ask)?;
        rates.pairs.push((after.throughput(), before.throughput()));
        costs.pairs.push((after.cost_us(), before.cost_us()));
    }
    let parameters = json!({
        "skew": SKEW.name(), "write_ratio": WRITES, "callers": CALLERS_MANY, "nodes": NODES, "replicas": REPLICAS,
        "records": RECORDS, "keys": KEYS, "engine": engine.name(), "round_seconds": duration.as_secs_f64(),
    });
    let Value::Object(parameters) = parameters else { unreachable!("made above") };
    let comparison = Comparison {
        bench: Figure::Fig13.name(),
        target: None,
        goal: None,
        title: format!("{:.0} % puts, keys in the order of {}, after migration", WRITES * 100.0, SKEW.name()),
        network: Some(network.name()),
        metric: "throughput",
        unit: "1/s",
        peer: "before",
        parameters,
        rounds: rates,
        costs,
    };
    Ok(Migration { comparison, hottest })
}

fn client(lab: &Lab, keyspace: &str, size: Size) -> Result<MixedLoad> {
    let keyspace = keyspace::known(keyspace, size, RECORDS)?;
    let address = SocketAddrV4::new(Host::Client(0).address(), 0);
    let bind = || MixedLoad::bind(address, Config::new(new_client_id()?, keyspace));
    lab.inside(Host::Client(0), bind)?.map_err(BenchError::system("make a client's socket"))
}

/// Asks until no node has much more to do than the others. What the most loaded one had at worst, and in the end.
fn migrate(lab: &Lab, load: &mut MixedLoad, popularity: &Popularity, stop: &Stop) -> Result<[u64; 2]> {
    let (deadline, mut seen) = (Instant::now() + EVEN_TIMEOUT, None::<[u64; 2]>);
    for seed in 1000.. {
        let ops = Ops::new(popularity, Mix::Writes(WRITES), seed);
        load.run(ops, CALLERS_MANY, Limits { duration: ASKED, stop })?;
        let status = field::status(lab)?;
        let hottest = status["migrations"][0]["hottest"][1].as_u64();
        if let Some(percent) = hottest {
            let [worst, last] = seen.unwrap_or_default();
            if last != percent {
                eprintln!("the most loaded node has {percent} % of the mean to do");
            }
            seen = Some([worst.max(percent), percent]);
            if percent <= EVEN_PERCENT {
                break;
            }
        }
        if Instant::now() > deadline {
            break;
        }
    }
    seen.ok_or_else(|| BenchError::Failed("nothing was counted in the time of a dozen periods".into()))
}
