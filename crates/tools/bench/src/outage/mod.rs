//! `nicekv bench outage`: how long clients of a partition wait when one of its nodes is killed, and
//! while an operator splits, merges and moves the partition.
//!
//! ```text
//!   puts succeed   | | | | | | | |              | | | | | | |
//!   SIGKILL                      ▲
//!                                 ◀── outage ──▶               of the primary; or of a secondary, as all three must acknowledge
//! ```
//!
//! The outage is the longest time in which no put of the partition succeeded, when one is sent
//! every [`PACE`]. It has no peer: the target is a time. The cluster is ready again before each
//! fault.

mod fault;

use crate::bar_chart::{Bar, Panel};
use crate::error::{BenchError, Result};
use crate::keyspace::Replicated;
use crate::lab::{CLIENT, Engine, Lab, LabPlan, Size};
use crate::load::paced;
use crate::report::{Goal, NICEKV, Report, Row};
use crate::session::SessionArguments;
use fault::{Fault, Partition};
use nicekv_client::Keyspace;
use nicekv_proto::placement::key_digest;
use nicekv_runtime::{Stop, now};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SIZE: Size = Size { nodes: 5, replicas: 3 };
/// Between two puts.
const PACE: Duration = Duration::from_millis(2);
/// Time of successful puts before the fault.
const BEFORE: Duration = Duration::from_millis(300);
/// Time that puts are observed after the fault.
const AFTER: Duration = Duration::from_secs(2);
/// Keys of the partition, put in turn.
const KEYS: usize = 100;
/// Arguments of `nicekv bench outage`.
#[derive(Clone, Debug, clap::Args)]
pub struct OutageArguments {
    /// How often each fault is injected; 20, or 5 with --quick, unless given
    #[arg(long, conflicts_with = "quick", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// How the partition is replicated
    #[arg(long, value_enum, default_value_t)]
    replication: Replicated,
    #[command(flatten)]
    session: SessionArguments,
}

pub(crate) fn run(arguments: &OutageArguments) -> Result<()> {
    let session = arguments.session.start()?;
    let rounds = arguments.rounds.unwrap_or(session.few_or(5, 20));
    let replication = arguments.replication;
    let keyspace = replication.keyspace();
    let options: Vec<&str> = keyspace.iter().flat_map(|text| ["--keyspace", text]).collect();
    let lab = Lab::up(&LabPlan { options: &options, ..session.plan(SIZE, Engine::Durable) })?;
    let mut bench =
        Bench { lab: &lab, keyspace: replication.known(SIZE)?, stop: &session.stop, drained: None };
    let faults = Fault::all(replication == Replicated::Chain);
    let mut outages_ms = vec![Vec::new(); faults.len()];
    for round in 1..=rounds {
        for (fault, outages_ms) in faults.iter().zip(&mut outages_ms) {
            let outage_ms = bench.measure(*fault)?;
            eprintln!("{round}/{rounds} {}: {outage_ms:.0} ms without a put", fault.name());
            outages_ms.push(outage_ms);
        }
    }
    let bars = faults.iter().zip(&outages_ms).map(|(fault, outages_ms)| Bar::ours(fault.name(), outages_ms));
    let panel =
        Panel { title: format!("time without a put, ms, {}", replication.name()), bars: bars.collect() };
    let rows: Vec<Row> = faults
        .iter()
        .zip(outages_ms)
        .map(|(fault, outages_ms)| row(*fault, replication, outages_ms))
        .collect();
    let mut report = Report::new("outage");
    report.rows(&rows);
    report.panel(panel);
    session.finish(report)
}

fn row(fault: Fault, replication: Replicated, outages_ms: Vec<f64>) -> Row {
    let parameters = json!({
        "mishap": fault.name(), "replication": replication.name(), "nodes": SIZE.nodes, "replicas": SIZE.replicas,
    });
    Row::new(fault.name(), NICEKV, ("put_outage", "ms"), outages_ms)
        .parameters(parameters)
        .target((replication == Replicated::Multicast).then_some("P9"))
        .goal(Goal::AtMost(fault.target_ms()))
}

struct Bench<'a> {
    lab: &'a Lab,
    keyspace: Keyspace,
    stop: &'a Stop,
    /// The node that a member was moved away from.
    drained: Option<String>,
}

impl Bench<'_> {
    /// Injects a fault into the keyspace's first partition under load, and undoes it. Returns the
    /// milliseconds without a put.
    fn measure(&mut self, fault: Fault) -> Result<f64> {
        let status = self.lab.wait_until_ready(self.stop)?;
        let partition = Partition::first_of(self.keyspace.id.0, &status)?;
        let is_in =
            |key: &Vec<u8>| (partition.range.0..=partition.range.1).contains(&key_digest(key).match_value());
        let keys = (0u64..).map(|number| format!("outage-{number}").into_bytes()).filter(is_in);
        let keys: Vec<_> = keys.take(KEYS).collect();
        let (lab, keyspace, stopped) = (self.lab, self.keyspace, AtomicBool::new(false));
        let (begun, successes_ns) = std::thread::scope(|scope| {
            let load = scope.spawn(|| {
                let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
                lab.inside(CLIENT, || paced::put(address, keyspace, &keys, PACE.as_nanos() as u64, &stopped))
            });
            std::thread::sleep(BEFORE);
            let begun_ns = now().boot_ns;
            let begun = fault.inject(lab, &partition, &mut self.drained).map(|()| begun_ns);
            std::thread::sleep(AFTER);
            stopped.store(true, Ordering::Relaxed);
            (begun, load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let outage_ns = longest_gap_ns(&successes_ns??, begun?).ok_or_else(|| {
            let name = fault.name();
            BenchError::Failed(format!("no put succeeded before or after the {name}, in {AFTER:?}"))
        })?;
        fault.undo(self.lab, &partition)?;
        Ok(outage_ns as f64 / 1e6)
    }
}

/// The longest time between two successes of which the later one is after the fault.
fn longest_gap_ns(successes_ns: &[u64], begun_ns: u64) -> Option<u64> {
    let gaps = successes_ns.windows(2).filter(|pair| pair[1] > begun_ns).map(|pair| pair[1] - pair[0]);
    gaps.max()
}

fn unreadable(status: &Value) -> BenchError {
    BenchError::Failed(format!("the metadata service reports no partitions: {status}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::Replication;

    #[test]
    fn a_gap_counts_if_it_ends_after_the_fault() {
        assert_eq!(longest_gap_ns(&[10, 60, 70, 95, 99], 70), Some(25));
        assert_eq!(longest_gap_ns(&[10, 60, 70, 95, 99], 65), Some(25), "the gap of 50 was before");
        assert_eq!(longest_gap_ns(&[10, 20], 30), None, "no put succeeded after the fault");
    }

    #[test]
    fn clients_know_the_replication() {
        let known =
            [Replicated::Multicast, Replicated::Chain].map(|replicated| replicated.known(SIZE).unwrap());
        let known = known.map(|keyspace| (keyspace.id.0, keyspace.replication));
        assert_eq!(known, [(0, Replication::Multicast), (1, Replication::Chain)]);
    }
}
