//! Nodes that leave and come back for good while faults go on (`nicekv node add | drain`, NICE §4.4): in each phase one of the first nodes is
//! drained and added again, or the spare is added and drained again, by an operator who asks until he is heard.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nicekv_testkit::Random;
use serde_json::Value;

use super::sleep_until;
use crate::error::{LabError, Result};
use crate::own::{NODES, OwnLab};
use crate::patience::Patience;
use crate::topology::Host;

/// Nodes that the lab has besides those that it begins with. A second one would have to come after it, for its number.
pub(crate) const SPARES: u8 = 1;
/// Between two tries.
pub(super) const PAUSE: Duration = Duration::from_millis(200);
/// After the last fault all has moved within this time.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
/// Of a node of a quorum keyspace, which does not move yet: no later try will be heard.
const BOUND: &str = "by quorum";

/// A node's way out and back, or in and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trip {
    node: u8,
    away: Duration,
    back: Duration,
}

/// How often the operator was heard, and how often he was told no for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) changes: usize,
    pub(crate) refused: usize,
    /// Splits and merges.
    pub(crate) reshapings: usize,
}

/// What the cluster says to a change in the end.
enum Answer {
    Done,
    Never,
}

impl Trip {
    /// In a phase of so many milliseconds.
    pub(crate) fn draw(random: &mut Random, span_ms: u64) -> Self {
        let node = random.below((NODES + SPARES).into()) as u8;
        let away_ms = random.between(0, span_ms / 2);
        let back_ms = random.between(away_ms, span_ms);
        Self { node, away: Duration::from_millis(away_ms), back: Duration::from_millis(back_ms) }
    }

    /// What the operator says, and when.
    fn words(self) -> [(Duration, &'static str); 2] {
        let is_spare = self.node >= NODES;
        let words = if is_spare { ["add", "drain"] } else { ["drain", "add"] };
        [(self.away, words[0]), (self.back, words[1])]
    }

    /// Says it when it is time, and again until there is an answer that will not change.
    pub(crate) fn make(self, lab: &OwnLab, begun: Instant, interrupted: &AtomicBool) -> Result<Heard> {
        let patience = Patience::from(begun + self.back, TIMEOUT, PAUSE);
        let mut heard = Heard::default();
        for (at, word) in self.words() {
            sleep_until(begun + at, interrupted)?;
            match patience.retry(interrupted, || self.ask(lab, word))? {
                Answer::Done => heard.changes += 1,
                Answer::Never => heard.refused += 1,
            }
        }
        Ok(heard)
    }

    /// Otherwise it is to be said again.
    fn ask(self, lab: &OwnLab, word: &str) -> Result<std::result::Result<Answer, String>> {
        let (name, config) = (Host::Node(self.node).to_string(), lab.state()?.config);
        let mut words = vec![word, &name, "--no-wait"];
        let config = config.to_string_lossy();
        if word == "add" {
            words.extend(["--config", &config]);
        }
        let (succeeded, said) = node(lab, &words)?;
        let is_so = ["already holds its share", "already drained"].iter().any(|line| said.contains(line));
        Ok(match succeeded || is_so {
            true => Ok(Answer::Done),
            false if said.contains(BOUND) => Ok(Answer::Never),
            false => Err(said),
        })
    }
}

/// Waits until no replica is on its way.
pub(crate) fn wait_until_moved(lab: &OwnLab, interrupted: &AtomicBool) -> Result<()> {
    Patience::from(Instant::now(), TIMEOUT, PAUSE).retry(interrupted, || {
        let (succeeded, said) = node(lab, &["list", "--json"])?;
        let nodes: Vec<Value> = serde_json::from_str(&said).unwrap_or_default();
        let is_settled = succeeded && nodes.iter().all(is_settled);
        Ok(is_settled.then_some(()).ok_or_else(|| format!("replicas are still on their way: {said}")))
    })
}

fn is_settled(node: &Value) -> bool {
    node["missing"] == 0 && (node["wish"] == "holds" || node["members"] == 0)
}

fn node(lab: &OwnLab, words: &[&str]) -> Result<(bool, String)> {
    nicekv(lab, &[&["node"], words].concat())
}

/// `nicekv WORDS` on a client's host: whether it succeeded, and what it said.
pub(super) fn nicekv(lab: &OwnLab, words: &[&str]) -> Result<(bool, String)> {
    let state = lab.state()?;
    let mut command = Command::new(&state.program);
    command.args(words).args(["--endpoint", &state.endpoints()]);
    let output = lab.scope.namespace(Host::Client(0)).inside(|| command.output())?;
    let output = output.map_err(LabError::system("run `nicekv`"))?;
    let said = if output.status.success() { output.stdout } else { output.stderr };
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_node_leaves_and_comes_back_within_the_phase() {
        let mut nodes = BTreeSet::new();
        for seed in 0..100 {
            let trip = Trip::draw(&mut Random::new(seed), 10_000);
            assert!(trip.away <= trip.back && trip.back <= Duration::from_secs(10));
            let last = trip.words()[1].1;
            assert_eq!(last == "add", trip.node < NODES, "in the end they are where they began");
            nodes.insert(trip.node);
        }
        assert_eq!(nodes.len(), usize::from(NODES + SPARES));
    }
}
