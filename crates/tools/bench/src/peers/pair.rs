//! Two sides of a comparison, between the hosts of one lab, and several of these that take turns.
//!
//! ```text
//!   round 1:  xdp: nicekv, peer   tc: nicekv, peer        round 2:  tc: peer, nicekv   xdp: peer, nicekv        …
//! ```
//!
//! All of them are up all the time. Whoever has no turn has no load, and sleeps.

use super::ours::Ours;
use super::{Bench, NODES, Target, WARM_UP};
use crate::error::Result;
use crate::lab::{Lab, Network};
use crate::load::{Limits, Measured};
use crate::report::Comparison;
use crate::statistics::Rounds;
use serde_json::{Map, Value, json};

/// A peer whose servers run, until it is dropped.
pub(super) trait Peer {
    /// Runs the ops of a seed.
    fn run(&mut self, seed: u64, limits: Limits<'_>) -> Result<Measured>;
}

/// Ours and a peer, between the same hosts.
pub(super) struct Pair<'a> {
    target: &'static Target,
    network: Network,
    lab: &'a Lab,
    ours: Ours,
    peer: Box<dyn Peer + 'a>,
    /// How they are measured.
    parameters: Map<String, Value>,
    figures: Rounds,
    /// Processor time of an op.
    costs: Rounds,
}

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Ours,
    Peers,
}

impl<'a> Pair<'a> {
    /// Starts the peer in a lab of ours.
    pub(super) fn start(
        bench: &'a Bench<'_>,
        target: &'static Target,
        network: Network,
        lab: &'a Lab,
    ) -> Result<Self> {
        let ours = Ours::start(bench, target, lab)?;
        let mut parameters = parameters(bench, target, network);
        let peer = bench.start_peer(target, lab, &mut parameters)?;
        let (figures, costs) = Default::default();
        Ok(Self { target, network, lab, ours, peer, parameters, figures, costs })
    }

    fn run(&mut self, side: Side, seed: u64, limits: Limits<'_>) -> Result<Measured> {
        match side {
            Side::Peers => self.peer.run(seed, limits),
            Side::Ours => self.ours.run((self.target, self.lab), seed, limits),
        }
    }

    /// Notes what both have done in a round.
    fn note(&mut self, round: u64, rounds: u32, ours: Measured, peers: Measured) {
        let Target { id, peer, .. } = *self.target;
        let (our, their) = (self.target.figure(ours), self.target.figure(peers));
        let ((_, unit), network, retries) = (self.target.metric(), self.network.name(), ours.retries);
        let ratio = our / their;
        eprintln!(
            "{id} {round}/{rounds}, {network}: nicekv {our:.1} {unit} ({retries} retries), {peer} {their:.1}, ratio {ratio:.2}"
        );
        self.figures.pairs.push((our, their));
        self.costs.pairs.push((ours.cost_us(), peers.cost_us()));
    }

    /// What all rounds have shown.
    fn comparison(self) -> Comparison {
        let Target { id, goal, peer, title, .. } = *self.target;
        let (metric, unit) = self.target.metric();
        Comparison {
            bench: "peers",
            target: Some(id),
            goal: Some(goal),
            title: title.into(),
            network: Some(self.network.name()),
            metric,
            unit,
            peer,
            parameters: self.parameters,
            rounds: self.figures,
            costs: self.costs,
        }
    }
}

fn parameters(bench: &Bench<'_>, target: &Target, network: Network) -> Map<String, Value> {
    let parameters = json!({
        "callers": target.callers,
        "at_once": target.at_once,
        "value_bytes": target.value_bytes(),
        "keys": target.keys(),
        "nodes": NODES,
        "replicas": NODES,
        "engine": target.engine.name(),
        "switch": network.name(),
        "round_seconds": bench.round_time().as_secs_f64(),
    });
    let Value::Object(parameters) = parameters else { unreachable!("an object above") };
    parameters
}

/// Every pair's turn in every round: no network, and no side, has the better part of the rounds.
pub(super) fn alternate(bench: &Bench<'_>, mut pairs: Vec<Pair<'_>>) -> Result<Vec<Comparison>> {
    for pair in &mut pairs {
        for side in [Side::Ours, Side::Peers] {
            pair.run(side, 0, bench.limits(WARM_UP))?;
        }
    }
    let rounds = bench.arguments.rounds;
    for round in 1..=u64::from(rounds) {
        let mut measured: Vec<[Option<Measured>; 2]> = vec![[None; 2]; pairs.len()];
        for (index, side) in turns(round, pairs.len()) {
            let run = pairs[index].run(side, round, bench.limits(bench.round_time()))?;
            measured[index][side as usize] = Some(run);
        }
        for (pair, both) in pairs.iter_mut().zip(measured) {
            let [Some(ours), Some(peers)] = both else { unreachable!("both sides had their turn") };
            pair.note(round, rounds, ours, peers);
        }
    }
    Ok(pairs.into_iter().map(Pair::comparison).collect())
}

/// Pair after pair, one side after the other; in every second round in reverse.
fn turns(round: u64, pairs: usize) -> Vec<(usize, Side)> {
    let turn = |index| [(index, Side::Ours), (index, Side::Peers)];
    let mut turns: Vec<_> = (0..pairs).flat_map(turn).collect();
    if round.is_multiple_of(2) {
        turns.reverse();
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_side_of_every_pair_has_its_turn_and_rounds_are_reversed() {
        use Side::{Ours, Peers};
        assert_eq!(turns(1, 2), [(0, Ours), (0, Peers), (1, Ours), (1, Peers)]);
        assert_eq!(turns(2, 2), [(1, Peers), (1, Ours), (0, Peers), (0, Ours)]);
    }
}
