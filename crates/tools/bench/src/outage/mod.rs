//! `nicekv bench outage`: for how long clients of a partition wait when one of its nodes is killed, and while it is split, merged and moved.
//!
//! ```text
//!   puts succeed   | | | | | | | |              | | | | | | |
//!   SIGKILL                      ▲
//!                                 ◀── outage ──▶               of the primary; of a secondary: of three, all must acknowledge
//! ```
//!
//! The outage is the longest time in which no put of the partition succeeded, one being sent every [`PACE`]. It has no peer: the
//! target is a time. The cluster is whole again before each of them.

mod mishap;

use crate::arguments::{FileArguments, NetworkArguments};
use crate::error::{BenchError, Result};
use crate::keyspace::Replicated;
use crate::lab::{Engine, Lab, LabPlan, Size};
use crate::load::paced;
use crate::plot::{Bar, Panel};
use crate::report;
use crate::statistics::Summary;
use mishap::{Mishap, Partition};
use nicekv_client::Keyspace;
use nicekv_lab::topology::{Host, METADATA};
use nicekv_proto::placement::key_digest;
use nicekv_runtime::control_plane::AdminRequest;
use nicekv_runtime::{Stop, admin, now};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The lab's own default.
const SIZE: Size = Size { nodes: 5, replicas: 3 };
/// Between two puts.
const PACE: Duration = Duration::from_millis(2);
/// Puts succeed for so long before it happens.
const BEFORE: Duration = Duration::from_millis(300);
/// Puts are watched for so long after it has happened.
const AFTER: Duration = Duration::from_secs(2);
/// Keys of the partition that are put in turn.
const KEYS: usize = 100;
/// A cluster that is not whole again by then is broken.
const WHOLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two questions whether it is.
const ASK_PAUSE: Duration = Duration::from_millis(50);
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
const CLIENT: Host = Host::Client(0);

/// Arguments of `nicekv bench outage`.
#[derive(Clone, Debug, clap::Args)]
pub struct OutageArguments {
    /// Let each thing happen five times instead of twenty
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// How often each thing happens
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How the partition is replicated
    #[arg(long, value_enum, default_value_t)]
    replication: Replicated,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    files: FileArguments,
}

/// Of each round, milliseconds.
type Outages = [(Mishap, Vec<f64>)];

pub(crate) fn run(arguments: &OutageArguments) -> Result<()> {
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    let directory = arguments.files.directory()?;
    let rounds = if arguments.quick { 5 } else { arguments.rounds };
    let keyspace = arguments.replication.keyspace();
    let further: Vec<&str> = keyspace.iter().flat_map(|text| ["--keyspace", text]).collect();
    let plan = LabPlan::new(SIZE, Engine::Durable, arguments.network.network(), directory.path());
    let lab = Lab::up(&LabPlan { further: &further, ..plan })?;
    let mut bench =
        Bench { lab: &lab, keyspace: arguments.replication.known(SIZE)?, stop: &stop, drained: None };
    let all = Mishap::all(arguments.replication == Replicated::Chain);
    let mut outages: Vec<(Mishap, Vec<f64>)> = all.into_iter().map(|one| (one, Vec::new())).collect();
    for round in 1..=rounds {
        for (mishap, figures) in &mut outages {
            let outage_ms = bench.measure(*mishap)?;
            eprintln!("{round}/{rounds} {}: {outage_ms:.0} ms without a put", mishap.name());
            figures.push(outage_ms);
        }
    }
    drop(lab);
    let id = target_id(arguments.replication);
    for (mishap, figures) in &outages {
        let (Summary { median, min, max }, target) =
            (Summary::of(figures.iter().copied()), mishap.target_ms());
        let met = if median <= target { "met" } else { "missed" };
        println!(
            "{:3} no put at {:22}  median {median:.0} ms  [{min:.0} .. {max:.0}]  target ≤ {target:.0} ms {met}",
            id.unwrap_or_default(),
            mishap.name()
        );
    }
    let bar = |(mishap, figures): &(Mishap, Vec<f64>)| {
        Bar::ours(mishap.name(), Summary::of(figures.iter().copied()))
    };
    let title = format!("time without a put, ms, {}", arguments.replication.name());
    let bars = outages.iter().map(bar).collect();
    arguments.files.write("outage", &json_lines(arguments.replication, &outages), &[Panel { title, bars }])
}

/// The target's id in the list of figures to reach.
fn target_id(replicated: Replicated) -> Option<&'static str> {
    (replicated == Replicated::Multicast).then_some("P9")
}

struct Bench<'a> {
    lab: &'a Lab,
    keyspace: Keyspace,
    stop: &'a Stop,
    /// A member was moved away from this node.
    drained: Option<String>,
}

impl Bench<'_> {
    /// Lets it happen to the keyspace's first partition under load, and makes up for it; milliseconds without a put.
    fn measure(&mut self, mishap: Mishap) -> Result<f64> {
        let status = wait_until_whole(self.lab, self.stop)?;
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
            let begun = mishap.befall(lab, &partition, &mut self.drained).map(|()| begun_ns);
            std::thread::sleep(AFTER);
            stopped.store(true, Ordering::Relaxed);
            (begun, load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let outage_ns = longest_gap_ns(&successes_ns??, begun?).ok_or_else(|| {
            let name = mishap.name();
            BenchError::Failed(format!("no put succeeded before or after the {name}, in {AFTER:?}"))
        })?;
        mishap.undo(self.lab, &partition)?;
        Ok(outage_ns as f64 / 1e6)
    }
}

/// The longest time between two successes of which the later one came after the beginning.
fn longest_gap_ns(successes_ns: &[u64], begun_ns: u64) -> Option<u64> {
    let gaps = successes_ns.windows(2).filter(|pair| pair[1] > begun_ns).map(|pair| pair[1] - pair[0]);
    gaps.max()
}

/// The status of a cluster in which every partition has all its replicas, all of them consistent.
fn wait_until_whole(lab: &Lab, stop: &Stop) -> Result<Value> {
    let deadline = Instant::now() + WHOLE_TIMEOUT;
    loop {
        if stop.is_stopped() {
            return Err(BenchError::Interrupted);
        }
        let answer = lab.inside(CLIENT, || admin::ask(&[METADATA], &AdminRequest::Status, ASK_TIMEOUT))?;
        let status: Value =
            answer.ok().and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default();
        if status["ready"] == true {
            return Ok(status);
        }
        if Instant::now() > deadline {
            let reason = &status["why_not_ready"];
            return Err(BenchError::Failed(format!("not whole after {WHOLE_TIMEOUT:?}: {reason}")));
        }
        std::thread::sleep(ASK_PAUSE);
    }
}

fn unreadable(status: &Value) -> BenchError {
    BenchError::Failed(format!("the metadata service reports no partitions: {status}"))
}

fn json_lines(replicated: Replicated, outages: &Outages) -> String {
    let row = |(mishap, figures): &(Mishap, Vec<f64>)| {
        let replication = replicated.name();
        let parameters = json!({
            "mishap": mishap.name(), "replication": replication, "nodes": SIZE.nodes, "replicas": SIZE.replicas,
        });
        report::row("outage", &parameters, ("put_outage", "ms"), figures, target_id(replicated))
    };
    outages.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::Replication;

    #[test]
    fn a_gap_counts_if_it_ends_after_the_beginning() {
        assert_eq!(longest_gap_ns(&[10, 60, 70, 95, 99], 70), Some(25));
        assert_eq!(longest_gap_ns(&[10, 60, 70, 95, 99], 65), Some(25), "the one of 50 was before");
        assert_eq!(longest_gap_ns(&[10, 20], 30), None, "nothing succeeded any more");
    }

    #[test]
    fn clients_know_how_it_is_replicated() {
        let known =
            [Replicated::Multicast, Replicated::Chain].map(|replicated| replicated.known(SIZE).unwrap());
        let told = known.map(|keyspace| (keyspace.id.0, keyspace.replication));
        assert_eq!(told, [(0, Replication::Multicast), (1, Replication::Chain)]);
    }
}
