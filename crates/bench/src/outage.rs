//! `nicekv bench outage`: for how long clients of a partition wait when one of its nodes is killed.
//!
//! ```text
//!   puts succeed   | | | | | | | |              | | | | | | |
//!   SIGKILL                      ▲
//!                                 ◀── outage ──▶               of the primary; of a secondary: of three, all must acknowledge
//! ```
//!
//! The outage is the longest time in which no put of the partition succeeded, one being sent every [`PACE`]. It has no peer: the
//! target is a time. The cluster is whole again before each kill.

use crate::arguments::{FileArguments, NetworkArguments};
use crate::error::{BenchError, Result};
use crate::lab::{Engine, Lab, Size};
use crate::load::paced;
use crate::plot::{Bar, Panel};
use crate::report;
use crate::statistics::Summary;
use nicekv_lab::topology::{Host, METADATA, WIRE_PORT};
use nicekv_placement::{Vrings, key_digest};
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
/// Puts succeed for so long before the kill.
const BEFORE: Duration = Duration::from_millis(300);
/// Puts are watched for so long after the kill.
const AFTER: Duration = Duration::from_secs(2);
/// Keys of the partition that are put in turn.
const KEYS: usize = 100;
/// A cluster that is not whole again by then is broken.
const WHOLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two questions whether it is.
const ASK_PAUSE: Duration = Duration::from_millis(50);
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
/// P9, of the median.
const TARGET_MS: f64 = 200.0;
const CLIENT: Host = Host::Client(0);

/// Arguments of `nicekv bench outage`.
#[derive(Clone, Debug, clap::Args)]
pub struct OutageArguments {
    /// Kill each role five times instead of twenty
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// How often each role is killed
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    files: FileArguments,
}

#[derive(Clone, Copy)]
enum Victim {
    Secondary,
    Primary,
}

impl Victim {
    fn name(self) -> &'static str {
        match self {
            Self::Secondary => "secondary",
            Self::Primary => "primary",
        }
    }

    /// The node that has this role in a partition.
    fn of(self, partition: &Value) -> Option<u8> {
        let primary = partition["primary"].as_u64()?;
        let mut members =
            partition["members"].as_array()?.iter().filter_map(|member| member["node"].as_u64());
        let node = match self {
            Self::Primary => primary,
            Self::Secondary => members.find(|node| *node != primary)?,
        };
        u8::try_from(node).ok()
    }
}

pub(crate) fn run(arguments: &OutageArguments) -> Result<()> {
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    let directory = arguments.files.directory()?;
    let rounds = if arguments.quick { 5 } else { arguments.rounds };
    let lab = Lab::up(SIZE, Engine::Durable, arguments.network.network(), directory.path())?;
    let mut outages = [(Victim::Secondary, Vec::new()), (Victim::Primary, Vec::new())];
    for round in 1..=rounds {
        for (victim, figures) in &mut outages {
            let (node, outage_ms) = measure(&lab, *victim, &stop)?;
            eprintln!(
                "{} {round}/{rounds}: node-{node} killed, {outage_ms:.0} ms without a put",
                victim.name()
            );
            figures.push(outage_ms);
        }
    }
    drop(lab);
    for (victim, figures) in &outages {
        let Summary { median, min, max } = Summary::of(figures.iter().copied());
        let met = if median <= TARGET_MS { "met" } else { "missed" };
        println!(
            "P9  put outage after SIGKILL of a {:9}  median {median:.0} ms  [{min:.0} .. {max:.0}]  target ≤ {TARGET_MS:.0} ms {met}",
            victim.name()
        );
    }
    let bar = |(victim, figures): &(Victim, Vec<f64>)| {
        Bar::ours(format!("of a {}", victim.name()), Summary::of(figures.iter().copied()))
    };
    let (title, bars) = ("P9  put outage after SIGKILL, ms".into(), outages.iter().map(bar).collect());
    arguments.files.write("outage", &json_lines(&outages), &[Panel { title, bars }])
}

/// Kills a node of partition 0 under load and starts it again; which, and the outage.
fn measure(lab: &Lab, victim: Victim, stop: &Stop) -> Result<(u8, f64)> {
    let status = wait_until_whole(lab, stop)?;
    let node = victim.of(&status["partitions"][0]).ok_or_else(|| unreadable(&status))?;
    let host = Host::Node(node).to_string();
    let keys = keys_of_partition_0(&status)?;
    let stopped = AtomicBool::new(false);
    let (killed, successes_ns) = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let (address, vrings) =
                (SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), Vrings::on_network(WIRE_PORT));
            lab.inside(CLIENT, || paced::put(address, vrings, &keys, PACE.as_nanos() as u64, &stopped))
        });
        std::thread::sleep(BEFORE);
        let killed_ns = now().boot_ns;
        let killed = lab.command(&["kill", &host]).map(|()| killed_ns);
        std::thread::sleep(AFTER);
        stopped.store(true, Ordering::Relaxed);
        (killed, load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let outage_ns = longest_gap_ns(&successes_ns??, killed?).ok_or_else(|| {
        BenchError::Failed(format!("no put succeeded before or after {host} was killed, in {AFTER:?}"))
    })?;
    lab.command(&["start", &host])?;
    Ok((node, outage_ns as f64 / 1e6))
}

/// The longest time between two successes of which the later one came after the kill.
fn longest_gap_ns(successes_ns: &[u64], killed_ns: u64) -> Option<u64> {
    let gaps = successes_ns.windows(2).filter(|pair| pair[1] > killed_ns).map(|pair| pair[1] - pair[0]);
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

fn keys_of_partition_0(status: &Value) -> Result<Vec<Vec<u8>>> {
    let partitions = status["partitions"].as_array().and_then(|partitions| partitions.first());
    let partition = partitions.ok_or_else(|| unreadable(status))?;
    let end = |name: &str| partition[name].as_str().and_then(|digits| u128::from_str_radix(digits, 16).ok());
    let (first, last) = end("first").zip(end("last")).ok_or_else(|| unreadable(status))?;
    let keys = (0u64..).map(|number| format!("outage-{number}").into_bytes());
    Ok(keys.filter(|key| (first..=last).contains(&key_digest(key).match_value())).take(KEYS).collect())
}

fn unreadable(status: &Value) -> BenchError {
    BenchError::Failed(format!("the metadata service reports no partitions: {status}"))
}

fn json_lines(outages: &[(Victim, Vec<f64>)]) -> String {
    let row = |(victim, figures): &(Victim, Vec<f64>)| {
        let parameters = json!({ "killed": victim.name(), "nodes": SIZE.nodes, "replicas": SIZE.replicas });
        report::row("outage", &parameters, ("put_outage", "ms"), figures, Some("P9"))
    };
    outages.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_counts_if_it_ends_after_the_kill() {
        assert_eq!(longest_gap_ns(&[10, 60, 70, 95, 99], 70), Some(25));
        assert_eq!(longest_gap_ns(&[10, 60, 70, 95, 99], 65), Some(25), "the one of 50 was before");
        assert_eq!(longest_gap_ns(&[10, 20], 30), None, "nothing succeeded any more");
    }

    #[test]
    fn victims_are_read_from_a_status() {
        let partition = json!({ "primary": 2, "members": [{ "node": 2 }, { "node": 4 }, { "node": 0 }] });
        assert_eq!((Victim::Primary.of(&partition), Victim::Secondary.of(&partition)), (Some(2), Some(4)));
        assert_eq!(Victim::Primary.of(&json!({})), None);
    }
}
