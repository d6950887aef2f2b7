//! The two sides of a comparison between the hosts of one lab. Pairs on several networks take
//! turns.
//!
//! ```text
//!   round 1:  xdp: nicekv, peer   tc: nicekv, peer        round 2:  tc: peer, nicekv   xdp: peer, nicekv        …
//! ```
//!
//! All of them are up all the time. Those without a turn have no load, and sleep.

use super::nicekv::NicekvLoad;
use super::{Bench, NODES, Target};
use crate::error::Result;
use crate::lab::{Lab, Network};
use crate::load::native::WARM_UP;
use crate::load::{Limits, Measured};
use crate::report::Comparison;
use crate::statistics::Rounds;
use serde_json::{Map, Value, json};

/// A peer, whose servers run until it is dropped.
pub(super) trait Peer {
    /// Runs the ops of a seed.
    fn run(&mut self, seed: u64, limits: Limits<'_>) -> Result<Measured>;
}

/// NICEKV and a peer, between the same hosts.
pub(super) struct Pair<'a> {
    target: &'static Target,
    network: Network,
    lab: &'a Lab,
    ours: NicekvLoad,
    peer: Box<dyn Peer + 'a>,
    parameters: Map<String, Value>,
    rounds: Rounds,
    costs: Rounds,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Ours,
    Peers,
}

impl<'a> Pair<'a> {
    /// Starts both in a lab.
    pub(super) fn start(
        bench: &'a Bench<'_>,
        target: &'static Target,
        network: Network,
        lab: &'a Lab,
    ) -> Result<Self> {
        let ours = NicekvLoad::start(bench, target, lab)?;
        let mut parameters = parameters(bench, target, network);
        let peer = bench.start_peer(target, lab, &mut parameters)?;
        let (rounds, costs) = Default::default();
        Ok(Self { target, network, lab, ours, peer, parameters, rounds, costs })
    }

    fn run(&mut self, side: Side, seed: u64, limits: Limits<'_>) -> Result<Measured> {
        match side {
            Side::Peers => self.peer.run(seed, limits),
            Side::Ours => self.ours.run((self.target, self.lab), seed, limits),
        }
    }

    /// Keeps the results of a round.
    fn keep(&mut self, round: u64, rounds: u32, ours: Measured, peers: Measured) {
        let Target { id, peer, .. } = *self.target;
        let (our, their) = (self.target.figure(ours), self.target.figure(peers));
        let ((_, unit), network, retries) = (self.target.metric(), self.network.name(), ours.retries);
        let ratio = our / their;
        eprintln!(
            "{id} {round}/{rounds}, {network}: nicekv {our:.1} {unit} ({retries} retries), {peer} {their:.1}, ratio {ratio:.2}"
        );
        self.rounds.push(our, their);
        self.costs.push(ours.cost_us(), peers.cost_us());
    }

    fn comparison(self) -> Comparison {
        let Target { id, goal, peer, title, .. } = *self.target;
        let (metric, unit) = self.target.metric();
        Comparison {
            target: Some(id),
            goal: Some(goal),
            title: title.into(),
            network: Some(self.network.name()),
            metric,
            unit,
            peer,
            parameters: self.parameters.into(),
            rounds: self.rounds,
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
        "round_seconds": bench.session.round_time().as_secs_f64(),
    });
    let Value::Object(parameters) = parameters else { unreachable!("an object above") };
    parameters
}

/// Runs every pair in every round, in alternating order: no network and no side always comes first.
pub(super) fn alternate(bench: &Bench<'_>, mut pairs: Vec<Pair<'_>>) -> Result<Vec<Comparison>> {
    for pair in &mut pairs {
        for side in [Side::Ours, Side::Peers] {
            pair.run(side, 0, bench.session.limits(WARM_UP))?;
        }
    }
    let rounds = bench.arguments.rounds;
    for round in 1..=u64::from(rounds) {
        let mut measured: Vec<[Option<Measured>; 2]> = vec![[None; 2]; pairs.len()];
        for (index, side) in turns(round, pairs.len()) {
            let run = pairs[index].run(side, round, bench.session.limits(bench.session.round_time()))?;
            measured[index][side as usize] = Some(run);
        }
        for (pair, both) in pairs.iter_mut().zip(measured) {
            let [Some(ours), Some(peers)] = both else { unreachable!("both sides had their turn") };
            pair.keep(round, rounds, ours, peers);
        }
    }
    Ok(pairs.into_iter().map(Pair::comparison).collect())
}

/// The order of turns: pair after pair, one side after the other; in every second round in reverse.
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
    fn every_second_round_is_reversed() {
        use Side::{Ours, Peers};
        assert_eq!(turns(1, 2), [(0, Ours), (0, Peers), (1, Ours), (1, Peers)]);
        assert_eq!(turns(2, 2), [(1, Peers), (1, Ours), (0, Peers), (0, Ours)]);
    }
}
