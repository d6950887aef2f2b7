//! 1 MB to any k of seven replicas (R14), three of which have links of 5 Mbit/s for a while (NICE's
//! Fig. 8).

use super::{BURST, MBIT, OP_TIMEOUT, PARTITIONS};
use crate::bar_chart::{Bar, Panel};
use crate::error::Result;
use crate::keyspace;
use crate::lab::{CLIENT, Engine, Lab, LabPlan, Size};
use crate::load::large::{LARGE_BYTES, LARGE_KEYS, LargeLoad};
use crate::report::{Goal, NICEKV, Report, Row};
use crate::session::Session;
use crate::statistics::Rounds;
use crate::workload::{Sequence, Work};
use nicekv_lab::topology::Host;
use serde_json::{Value, json};
use std::time::Duration;

const NODES: u8 = 7;
const SIZE: Size = Size { nodes: NODES, replicas: NODES };
/// The nodes whose links are slow for a while.
const SLOW: std::ops::Range<u8> = 4..7;
const SLOW_MBIT: u32 = 5;
/// Write quorum sizes (k).
const WRITE_SETS: [u8; 2] = [1, 3];
const OPERATIONS: usize = 16;
const OPERATIONS_QUICK: usize = 8;
/// Pause after a change of links: a replica that lacks a value fetches it after five seconds
/// without receiving any part of it.
const SETTLING: Duration = Duration::from_secs(8);
/// With slow replicas ÷ without.
const SLOW_TO_ALIKE: Goal = Goal::AtMost(1.2);

pub(super) fn run(session: &Session, rounds: u32, report: &mut Report) -> Result<()> {
    let keyspaces = WRITE_SETS.map(keyspace_option);
    let options: Vec<&str> = keyspaces.iter().flat_map(|text| ["--keyspace", text.as_str()]).collect();
    let plan = session.plan(SIZE, Engine::Memory);
    let lab = Lab::up(&LabPlan { options: &options, suffix: Some("any-k"), ..plan })?;
    let mut loads = Vec::new();
    for text in &keyspaces {
        let keyspace = keyspace::known(text, SIZE, PARTITIONS)?;
        loads.push(lab.client(CLIENT, |address| LargeLoad::bind(address, keyspace, LARGE_BYTES))?);
    }
    lab.hosts().limit(CLIENT, MBIT, BURST)?;
    for node in 0..NODES {
        lab.hosts().limit(Host::Node(node), MBIT, BURST)?;
        lab.hosts().limit_ingress(Host::Node(node), MBIT, BURST)?;
    }
    let operations = session.few_or(OPERATIONS_QUICK, OPERATIONS);
    let mut measured = WRITE_SETS.map(|write_set| (write_set, Rounds::default()));
    for round in 1..=rounds {
        let mut means = [[0.0; 2]; WRITE_SETS.len()];
        // Slow links come first in one round, and second in the next.
        for turn in 0..2 {
            let is_slow = (round + turn) % 2 == 0;
            let mbit = if is_slow { SLOW_MBIT } else { MBIT };
            SLOW.clone().try_for_each(|node| lab.hosts().change_ingress(Host::Node(node), mbit, BURST))?;
            for (load, means) in loads.iter_mut().zip(&mut means) {
                std::thread::sleep(SETTLING);
                let steps =
                    Sequence::of_first(LARGE_KEYS, Work::Put, (2 * round + turn).into()).take(operations);
                let run = load.run(steps, session.limits(OP_TIMEOUT))?;
                means[usize::from(!is_slow)] = run.mean_us() / 1e3;
            }
        }
        for ((write_set, rounds), [slow_ms, alike_ms]) in measured.iter_mut().zip(means) {
            eprintln!(
                "{round}: put to any {write_set} of 7: {slow_ms:.1} ms with three slow ones, {alike_ms:.1} without"
            );
            rounds.push(slow_ms, alike_ms);
        }
    }
    let parameters = |write_set: u8| {
        json!({
            "network": session.network.name(), "mbit": MBIT, "slow_mbit": SLOW_MBIT, "replicas": NODES, "write_set": write_set,
            "value_bytes": LARGE_BYTES, "operations": operations,
        })
    };
    report.rows(&rows(&measured, parameters));
    for (write_set, Rounds { ours: slow, peers: alike }) in &measured {
        let bars = vec![Bar::ours("three slow links", slow), Bar::peers("all alike", alike)];
        report.panel(Panel { title: format!("1 MB put to any {write_set} of 7 replicas, ms"), bars });
    }
    let status = lab.status()?;
    let is_live = |node: &&Value| node["state"] == "live";
    let live = status["nodes"].as_array().map_or(0, |nodes| nodes.iter().filter(is_live).count());
    report.note(format_args!("{live} of {NODES} nodes are live at the end"));
    Ok(())
}

fn keyspace_option(write_set: u8) -> String {
    let id = write_set;
    format!(
        "k{write_set}=id={id},replication=quorum,replicas={NODES},write-set={write_set},partitions={PARTITIONS}"
    )
}

/// Puts with three slow links beside those with all links alike.
fn rows(measured: &[(u8, Rounds)], parameters: impl Fn(u8) -> Value) -> Vec<Row> {
    let row = |(write_set, rounds): &(u8, Rounds)| {
        let workload = format!("1 MB put to any {write_set} of 7, 3 of them at {SLOW_MBIT} Mbit/s");
        Row::new(workload, NICEKV, ("mean_time_with_slow_links", "ms"), rounds.ours.clone())
            .beside("all alike", &rounds.peers)
            .goal(SLOW_TO_ALIKE)
            .parameters(parameters(*write_set))
    };
    measured.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_links_may_cost_a_fifth() {
        let is_met = |slow: f64| {
            let rounds = Rounds { ours: vec![slow; 5], peers: vec![100.0; 5] };
            rows(&[(1, rounds)], |_| json!({}))[0].is_met()
        };
        assert_eq!((is_met(119.0), is_met(121.0)), (Some(true), Some(false)));
    }
}
