//! Two sides of a comparison, between the hosts of one lab, and several of these that take turns.
//!
//! ```text
//!   round 1:  xdp: nicekv, peer   tc: nicekv, peer        round 2:  tc: peer, nicekv   xdp: peer, nicekv        …
//! ```
//!
//! All of them are up all the time. Whoever has no turn has no load, and sleeps.

use super::{Bench, CLIENT, KEPT, KEPT_PARTITIONS, NODES, Target, WARM_UP};
use crate::error::{BenchError, Result};
use crate::heat;
use crate::keyspace;
use crate::lab::{Lab, Network, Size};
use crate::load::native::{Callers, NativeLoad};
use crate::load::{Limits, Measured};
use crate::report::Comparison;
use crate::statistics::Rounds;
use crate::workload::{Sequence, VALUE_BYTES};
use nicekv_client::Keyspace;
use nicekv_lab::topology::WIRE_PORT;
use nicekv_placement::{Vrings, partitions_for};
use nicekv_runtime::Stop;
use serde_json::{Map, Value, json};
use std::net::SocketAddrV4;

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
    native: NativeLoad,
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
        let mut native = client(lab, target)?;
        let mut parameters = parameters(bench, target, network);
        let peer = bench.start_peer(target, lab, &mut native, &mut parameters)?;
        let (figures, costs) = Default::default();
        Ok(Self { target, network, lab, native, peer, parameters, figures, costs })
    }

    fn run(&mut self, side: Side, seed: u64, limits: Limits<'_>) -> Result<Measured> {
        let target = self.target;
        match side {
            Side::Peers => self.peer.run(seed, limits),
            Side::Ours => {
                if target.is_in_switch {
                    self.heat(limits.stop)?;
                }
                ask(&mut self.native, target, seed, limits)
            }
        }
    }

    /// Until the switch has all values: between two turns they may have gone.
    fn heat(&mut self, stop: &Stop) -> Result<()> {
        let (target, what) = (self.target, "the switch does not keep all values");
        let ask = |native: &mut NativeLoad, limits: Limits<'_>| ask(native, target, 0, limits);
        let loads = std::slice::from_mut(&mut self.native);
        heat::until((self.lab, stop), loads, ask, what, |switch| switch["values"] == target.keys()).map(drop)
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

fn ask(native: &mut NativeLoad, target: &Target, seed: u64, limits: Limits<'_>) -> Result<Measured> {
    let callers = Callers { count: target.callers, at_once: target.at_once };
    native.run(Sequence::of_first(target.keys(), target.work(), seed), callers, limits)
}

/// Callers with several ops at once may have those of a partition in one datagram.
fn client(lab: &Lab, target: &Target) -> Result<NativeLoad> {
    let address = SocketAddrV4::new(CLIENT.address(), 0);
    let partition_bits = (target.at_once > 1).then(|| partitions_for(NODES.into()).ilog2());
    let size = Size { nodes: NODES, replicas: NODES };
    let keyspace = match target.is_in_switch {
        true => keyspace::known(KEPT, size, KEPT_PARTITIONS)?,
        false => Keyspace { partition_bits, ..Vrings::on_network(WIRE_PORT).into() },
    };
    lab.inside(CLIENT, || NativeLoad::bind(address, keyspace))?
        .map_err(BenchError::system("make a client's socket"))
}

fn parameters(bench: &Bench<'_>, target: &Target, network: Network) -> Map<String, Value> {
    let parameters = json!({
        "callers": target.callers,
        "at_once": target.at_once,
        "value_bytes": VALUE_BYTES,
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
