//! 1 MB to any k of seven replicas (R14), three of which have links of 5 Mbit/s for a while (NICE's Fig. 8).

use super::{LargeArguments, NAME, Shown};
use crate::error::{BenchError, Result};
use crate::keyspace;
use crate::lab::{Engine, Lab, LabPlan, Size};
use crate::load::Limits;
use crate::load::large::{LARGE_BYTES, LARGE_KEYS, LargeLoad};
use crate::plot::{Bar, Panel};
use crate::report::{self, Goal};
use crate::statistics::{Rounds, Summary};
use crate::workload::{Sequence, Work};
use nicekv_lab::topology::Host;
use nicekv_runtime::Stop;
use serde_json::json;
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::Duration;

const NODES: u8 = 7;
const CLIENT: Host = Host::Client(0);
/// These have slow links.
const SLOW: std::ops::Range<u8> = 4..7;
const MBIT: u32 = 100;
const SLOW_MBIT: u32 = 5;
const BURST: &str = "32k";
const PARTITIONS: u32 = 16;
const WRITE_SETS: [u8; 2] = [1, 3];
const OPERATIONS: usize = 16;
const OPERATIONS_QUICK: usize = 8;
/// After links have changed: replicas that lack what was put before fetch it once nobody has sent them any of it for five seconds.
const SETTLING: Duration = Duration::from_secs(8);
/// Until one is answered.
const PATIENCE: Duration = Duration::from_secs(30);
/// Slow replicas may cost a put so much.
const SLOW_MAX: f64 = 1.2;

pub(super) fn run(arguments: &LargeArguments, directory: &Path, stop: &Stop) -> Result<Shown> {
    let network = arguments.network.network();
    let size = Size { nodes: NODES, replicas: NODES };
    let keyspaces = WRITE_SETS.map(text_of);
    let further: Vec<&str> = keyspaces.iter().flat_map(|text| ["--keyspace", text.as_str()]).collect();
    let plan = LabPlan::new(size, Engine::Memory, network, directory);
    let lab = Lab::up(&LabPlan { further: &further, apart: Some("any-k"), ..plan })?;
    let mut loads = Vec::new();
    for text in &keyspaces {
        let keyspace = keyspace::known(text, size, PARTITIONS)?;
        let bind = || LargeLoad::bind(SocketAddrV4::new(CLIENT.address(), 0), keyspace, LARGE_BYTES);
        loads.push(lab.inside(CLIENT, bind)?.map_err(BenchError::system("make a client's socket"))?);
    }
    lab.hosts().limit(CLIENT, MBIT, BURST)?;
    for node in 0..NODES {
        lab.hosts().limit(Host::Node(node), MBIT, BURST)?;
        lab.hosts().limit_ingress(Host::Node(node), MBIT, BURST)?;
    }
    let operations = if arguments.quick { OPERATIONS_QUICK } else { OPERATIONS };
    let mut rounds = WRITE_SETS.map(|_| Rounds::default());
    for round in 1..=arguments.rounds.rounds {
        let mut means = [[0.0; 2]; WRITE_SETS.len()];
        // Each turn begins with the other links than the last.
        for turn in 0..2 {
            let is_slow = (round + turn) % 2 == 0;
            let mbit = if is_slow { SLOW_MBIT } else { MBIT };
            SLOW.clone().try_for_each(|node| lab.hosts().change_ingress(Host::Node(node), mbit, BURST))?;
            for (load, of) in loads.iter_mut().zip(&mut means) {
                std::thread::sleep(SETTLING);
                let steps =
                    Sequence::of_first(LARGE_KEYS, Work::Put, (2 * round + turn).into()).take(operations);
                let measured = load.run(steps, Limits { duration: PATIENCE, stop })?;
                of[usize::from(!is_slow)] = measured.mean_us() / 1e3;
            }
        }
        for ((write_set, [slow_ms, alike_ms]), rounds) in WRITE_SETS.iter().zip(means).zip(&mut rounds) {
            eprintln!(
                "{round}: put to any {write_set} of 7: {slow_ms:.1} ms with three slow ones, {alike_ms:.1} without"
            );
            rounds.pairs.push((slow_ms, alike_ms));
        }
    }
    let status = lab.status()?;
    let is_live = |node: &&serde_json::Value| node["state"] == "live";
    let live = status["nodes"].as_array().map_or(0, |nodes| nodes.iter().filter(is_live).count());
    let parameters = |write_set: u8| {
        json!({
            "network": network.name(), "mbit": MBIT, "slow_mbit": SLOW_MBIT, "replicas": NODES, "write_set": write_set,
            "value_bytes": LARGE_BYTES, "operations": operations,
        })
    };
    Ok(show(&rounds, parameters, live))
}

fn text_of(write_set: u8) -> String {
    let id = write_set;
    format!(
        "k{write_set}=id={id},replication=quorum,replicas={NODES},write-set={write_set},partitions={PARTITIONS}"
    )
}

/// `live`: nodes that are members still.
fn show(rounds: &[Rounds], parameters: impl Fn(u8) -> serde_json::Value, live: usize) -> Shown {
    let header = [
        "1 MB put to any k of 7, 100 Mbit/s",
        "3 at 5 Mbit/s, ms",
        "[min .. max]",
        "all alike",
        "ratio",
        "target",
        "met",
    ];
    let mut lines = vec![header.map(String::from)];
    let (mut json, mut panels, goal) = (String::new(), Vec::new(), Goal::AtMost(SLOW_MAX));
    for (write_set, rounds) in WRITE_SETS.into_iter().zip(rounds) {
        let (slow, alike) = (rounds.ours(), rounds.peers());
        let ratio = Summary::of(rounds.pairs.iter().map(|(slow, alike)| slow / alike)).median;
        lines.push([
            format!("k = {write_set}"),
            format!("{:.1}", slow.median),
            format!("[{:.1} .. {:.1}]", slow.min, slow.max),
            format!("{:.1}", alike.median),
            format!("{ratio:.2}"),
            goal.to_string(),
            if goal.is_met(ratio) { "yes" } else { "no" }.into(),
        ]);
        let times = rounds.pairs.iter().map(|(slow, _)| *slow).collect::<Vec<_>>();
        json += &report::row(NAME, &parameters(write_set), ("mean_time_with_slow_links", "ms"), &times, None);
        let bars = vec![
            Bar::ours("three slow links", slow),
            Bar { is_peers: true, ..Bar::ours("all alike", alike) },
        ];
        panels.push(Panel { title: format!("1 MB put to any {write_set} of 7 replicas, ms"), bars });
    }
    let line = format!("{live} of {NODES} nodes are live at the end\n");
    Shown { table: report::aligned(&lines) + &line, json, panels }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_links_may_cost_a_fifth() {
        let rounds =
            |slow| [Rounds { pairs: vec![(slow, 100.0); 5] }, Rounds { pairs: vec![(100.0, 100.0); 5] }];
        let shown = show(&rounds(119.0), |_| json!({}), 7);
        assert!(shown.table.contains("1.19") && !shown.table.contains("no\n"), "{}", shown.table);
        assert!(shown.table.contains("7 of 7 nodes"));
        assert!(show(&rounds(121.0), |_| json!({}), 7).table.contains("no\n"));
    }
}
