//! An operator who drains and adds nodes during faults (`nicekv node add | drain`, NICE §4.4): in
//! each phase an original node is drained and added again, or the spare node is added and drained
//! again. Commands are retried until they succeed.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nicekv_testkit::Random;
use serde_json::Value;

use crate::error::Result;
use crate::test_lab::{NODES, TestLab};
use crate::topology::Host;
use crate::wait::{Retry, sleep_until};

/// Spare nodes of the lab. A second one could only be added after the first, because of its number.
pub(crate) const SPARES: u8 = 1;
/// Pause between two attempts.
pub(super) const PAUSE: Duration = Duration::from_millis(200);
/// Maximum time until replicas have moved after the last fault.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
/// Part of the error for a node of a quorum keyspace whose partitions cannot move yet. Retrying
/// does not help.
const QUORUM_REFUSAL: &str = "by quorum";

/// Drains a node and adds it again, or the other way round for a spare node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeChange {
    node: u8,
    change_at: Duration,
    revert_at: Duration,
}

/// Counts of operators' changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operations {
    pub(crate) node_changes: usize,
    /// Changes that were refused for good.
    pub(crate) refused: usize,
    /// Splits and merges.
    pub(crate) partition_changes: usize,
}

/// The final answer to a change.
enum Answer {
    Done,
    Refused,
}

impl NodeChange {
    /// Draws a change for a phase of `span_ms`.
    pub(crate) fn draw(random: &mut Random, span_ms: u64) -> Self {
        let node = random.below((NODES + SPARES).into()) as u8;
        let change_ms = random.between(0, span_ms / 2);
        let revert_ms = random.between(change_ms, span_ms);
        let [change_at, revert_at] = [change_ms, revert_ms].map(Duration::from_millis);
        Self { node, change_at, revert_at }
    }

    /// The commands, each with its time since the beginning of the phase.
    fn commands(self) -> [(Duration, &'static str); 2] {
        let is_spare = self.node >= NODES;
        let words = if is_spare { ["add", "drain"] } else { ["drain", "add"] };
        [(self.change_at, words[0]), (self.revert_at, words[1])]
    }

    /// Runs the commands at their times. Repeats each until it gets a final answer.
    pub(crate) fn run(self, lab: &TestLab, begun: Instant, interrupted: &AtomicBool) -> Result<Operations> {
        let retry = Retry::from(begun + self.revert_at, TIMEOUT, PAUSE);
        let mut operations = Operations::default();
        for (at, word) in self.commands() {
            sleep_until(begun + at, interrupted)?;
            match retry.run(interrupted, || self.ask(lab, word))? {
                Answer::Done => operations.node_changes += 1,
                Answer::Refused => operations.refused += 1,
            }
        }
        Ok(operations)
    }

    fn ask(self, lab: &TestLab, word: &str) -> Result<std::result::Result<Answer, String>> {
        let (name, config) = (Host::Node(self.node).to_string(), lab.state()?.config);
        let mut words = vec![word, &name, "--no-wait"];
        let config = config.to_string_lossy();
        if word == "add" {
            words.extend(["--config", &config]);
        }
        let (succeeded, output) = node(lab, &words)?;
        let is_done = ["already holds its share", "already drained"].iter().any(|line| output.contains(line));
        Ok(match succeeded || is_done {
            true => Ok(Answer::Done),
            false if output.contains(QUORUM_REFUSAL) => Ok(Answer::Refused),
            false => Err(output),
        })
    }
}

/// Waits until no replica is moving.
pub(crate) fn wait_until_moved(lab: &TestLab, interrupted: &AtomicBool) -> Result<()> {
    Retry::from(Instant::now(), TIMEOUT, PAUSE).run(interrupted, || {
        let (succeeded, output) = node(lab, &["list", "--json"])?;
        let nodes: Vec<Value> = serde_json::from_str(&output).unwrap_or_default();
        let is_settled = succeeded && nodes.iter().all(is_settled);
        Ok(is_settled.then_some(()).ok_or_else(|| format!("replicas are still moving: {output}")))
    })
}

fn is_settled(node: &Value) -> bool {
    node["missing"] == 0 && (node["desired"] == "holds" || node["members"] == 0)
}

fn node(lab: &TestLab, words: &[&str]) -> Result<(bool, String)> {
    lab.nicekv(&[&["node"], words].concat())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_node_is_changed_and_reverted_within_the_phase() {
        let mut nodes = BTreeSet::new();
        for seed in 0..100 {
            let change = NodeChange::draw(&mut Random::new(seed), 10_000);
            assert!(change.change_at <= change.revert_at && change.revert_at <= Duration::from_secs(10));
            let last = change.commands()[1].1;
            assert_eq!(last == "add", change.node < NODES, "the last command restores the original state");
            nodes.insert(change.node);
        }
        assert_eq!(nodes.len(), usize::from(NODES + SPARES));
    }
}
