//! Before and after migration (TurboKV §5.1). The first keys are the most popular, so that one
//! record, and with it one node, has most of the load.
//!
//! Two keyspaces are on the same nodes and begin alike. One stays as it is. Records of the other
//! are split and moved under load, until no node has much more load than the others. Then both are
//! measured in turn.

use super::CALLERS_MANY;
use super::load::MixedLoad;
use super::testbed::{PRELOAD_TIMEOUT, PRELOADERS, RECORDS, REPLICAS};
use super::workload::{KEYS, Mix, Ops, Popularity, Skew};
use crate::error::{BenchError, Result};
use crate::keyspace;
use crate::lab::{CLIENT, Engine, Lab, LabPlan, Size};
use crate::load::measure_rounds;
use crate::report::{Comparison, NICEKV, Report, Row};
use crate::session::Session;
use nicekv_client::Config;
use nicekv_runtime::new_client_id;
use serde_json::json;
use std::time::{Duration, Instant};

/// Few enough that the most popular key is a fair share of a node's load.
const NODES: u8 = 6;
const SKEW: Skew = Skew::Zipf(0.99);
const WRITES: f64 = 0.25;
/// Load of the most loaded node, in percent of the mean, at which balancing stops.
const EVEN_PERCENT: u64 = 130;
/// A dozen periods of balancing.
const EVEN_TIMEOUT: Duration = Duration::from_secs(120);
/// Time of load between two checks.
const LOAD_TIME: Duration = Duration::from_secs(2);

pub(crate) fn measure(
    engine: Engine,
    (rounds, duration): (u32, Duration),
    session: &Session,
    report: &mut Report,
) -> Result<()> {
    let size = Size { nodes: NODES, replicas: REPLICAS };
    let keyspaces = [("still", 1, "none"), ("moved", 2, "migrate")].map(|(name, id, balancing)| {
        format!(
            "{name}=id={id},partitioning=range,replication=chain,replicas={REPLICAS},partitions={RECORDS},balancing={balancing}"
        )
    });
    let options = ["--keyspace", &keyspaces[0], "--keyspace", &keyspaces[1]];
    eprintln!("starting a lab of {NODES} nodes, of which one has most of the load");
    let lab = Lab::up(&LabPlan { options: &options, ..session.plan(size, engine) })?;
    lab.wait_until_ready(&session.stop)?;
    let client = |keyspace: &str| -> Result<MixedLoad> {
        let keyspace = keyspace::known(keyspace, size, RECORDS)?;
        let mut load =
            lab.client(CLIENT, |address| MixedLoad::bind(address, Config::new(new_client_id()?, keyspace)))?;
        load.preload(PRELOADERS, session.limits(PRELOAD_TIMEOUT))?;
        Ok(load)
    };
    let [still, moved] = [client(&keyspaces[0]), client(&keyspaces[1])];
    let mut loads = [moved?, still?];
    let popularity = Popularity::in_order(SKEW);
    let [worst, last] = migrate(&lab, &mut loads[0], &popularity, session)?;
    let title =
        format!("{:.0} % puts, keys in the order of {}, after migration", WRITES * 100.0, SKEW.name());
    let (rounds, costs) = measure_rounds(&title, rounds, |side, round| {
        let ops = Ops::new(&popularity, Mix::Writes(WRITES), round);
        loads[side].run(ops, CALLERS_MANY, session.limits(duration)).map(|(measured, _)| measured)
    })?;
    let parameters = json!({
        "skew": SKEW.name(), "write_ratio": WRITES, "callers": CALLERS_MANY, "nodes": NODES, "replicas": REPLICAS,
        "records": RECORDS, "keys": KEYS, "engine": engine.name(), "round_seconds": duration.as_secs_f64(),
    });
    report.comparisons(&[Comparison {
        target: None,
        goal: None,
        title,
        network: Some(session.network.name()),
        metric: "throughput",
        unit: "1/s",
        peer: "before",
        parameters: parameters.clone(),
        rounds,
        costs,
    }]);
    report.note(format_args!("  the most loaded node had {worst} % of the mean load, {last} % in the end"));
    for (metric, percent) in [("hottest_node_at_worst", worst), ("hottest_node_in_the_end", last)] {
        let row = Row::new("", NICEKV, (metric, "% of the mean"), vec![percent as f64]);
        report.record(&row.parameters(parameters.clone()));
    }
    Ok(())
}

/// Runs the load until no node has much more load than the others. Returns the load of the most
/// loaded node in percent of the mean: at worst, and in the end.
fn migrate(lab: &Lab, load: &mut MixedLoad, popularity: &Popularity, session: &Session) -> Result<[u64; 2]> {
    let (deadline, mut seen) = (Instant::now() + EVEN_TIMEOUT, None::<[u64; 2]>);
    for seed in 1000.. {
        let ops = Ops::new(popularity, Mix::Writes(WRITES), seed);
        load.run(ops, CALLERS_MANY, session.limits(LOAD_TIME))?;
        let status = lab.cluster_status()?;
        let hottest = status["migrations"][0]["hottest"][1].as_u64();
        if let Some(percent) = hottest {
            let [worst, last] = seen.unwrap_or_default();
            if last != percent {
                eprintln!("the most loaded node has {percent} % of the mean load");
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
    seen.ok_or_else(|| {
        BenchError::Failed("the metadata service has reported no load in a dozen periods".into())
    })
}
