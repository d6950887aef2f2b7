//! `nicekv bench chains`: what it costs a durable put that replicas hear of it one after the other instead of all at once.
//!
//! Both keyspaces are in one lab, on the same three nodes; rounds ask one and the other in turn.

use crate::arguments::{FileArguments, LengthArguments, NetworkArguments, RoundsArguments};
use crate::error::{BenchError, Result};
use crate::keyspace::Replicated;
use crate::lab::{Engine, Lab, LabPlan, Size};
use crate::load::native::{Callers, NativeLoad};
use crate::load::{Limits, Measured};
use crate::report::{self, Comparison, Goal};
use crate::statistics::{Rounds, in_turn};
use crate::workload::{Sequence, VALUE_BYTES, Work};
use nicekv_client::Keyspace;
use nicekv_lab::topology::Host;
use nicekv_runtime::Stop;
use serde_json::{Map, json};
use std::net::SocketAddrV4;
use std::time::Duration;

const SIZE: Size = Size { nodes: 3, replicas: 3 };
const CALLERS: [usize; 2] = [64, 1];
/// A put along a chain is to have so much of the throughput of one by multicast.
const KEPT_MIN: f64 = 0.9;
const WARM_UP: Duration = Duration::from_millis(300);

/// Arguments of `nicekv bench chains`.
#[derive(Clone, Debug, clap::Args)]
pub struct ChainsArguments {
    #[command(flatten)]
    length: LengthArguments,
    #[command(flatten)]
    rounds: RoundsArguments,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    files: FileArguments,
}

pub(crate) fn run(arguments: &ChainsArguments) -> Result<()> {
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    let directory = arguments.files.directory()?;
    let chains = Replicated::Chain.keyspace().expect("it is not there unless the lab is told");
    let network = arguments.network.network();
    let plan = LabPlan::new(SIZE, Engine::Durable, network, directory.path());
    let lab = Lab::up(&LabPlan { further: &["--keyspace", &chains], ..plan })?;
    let client = |replicated: Replicated| client(&lab, replicated.known(SIZE)?);
    let mut loads = [client(Replicated::Chain)?, client(Replicated::Multicast)?];
    let mut comparisons = Vec::new();
    for callers in CALLERS {
        let (mut rates, mut costs) = (Rounds::default(), Rounds::default());
        for round in 1..=arguments.rounds.rounds {
            let time = arguments.length.round_time();
            let measure = |side: usize| puts(&mut loads[side], callers, u64::from(round), (time, &stop));
            let [chain, multicast] = in_turn(round, measure)?;
            eprintln!("{callers} in flight: {:.0}/s, {:.0}/s", chain.throughput(), multicast.throughput());
            rates.pairs.push((chain.throughput(), multicast.throughput()));
            costs.pairs.push((chain.cost_us(), multicast.cost_us()));
        }
        let seconds = json!(arguments.length.round_time().as_secs_f64());
        let parameters = [
            ("network", network.name().into()),
            ("callers", callers.into()),
            ("value_bytes", VALUE_BYTES.into()),
            ("seconds", seconds),
        ];
        let parameters: Map<_, _> =
            parameters.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
        comparisons.push(Comparison {
            bench: "chains",
            target: None,
            goal: (callers > 1).then_some(Goal::AtLeast(KEPT_MIN)),
            title: format!("durable put along a chain of three, {callers} in flight"),
            network: Some(network.name()),
            metric: "throughput",
            unit: "1/s",
            peer: "by multicast",
            parameters,
            rounds: rates,
            costs,
        });
    }
    print!("{}", report::table(&comparisons));
    arguments.files.write("chains", &report::json(&comparisons), &report::panels(&comparisons))
}

fn client(lab: &Lab, keyspace: Keyspace) -> Result<NativeLoad> {
    let address = SocketAddrV4::new(Host::Client(0).address(), 0);
    let bind = || NativeLoad::bind(address, keyspace);
    lab.inside(Host::Client(0), bind)?.map_err(BenchError::system("make a client's socket"))
}

fn puts(
    load: &mut NativeLoad,
    callers: usize,
    round: u64,
    (time, stop): (Duration, &Stop),
) -> Result<Measured> {
    let mut run = |seed, duration| {
        load.run(Sequence::new(Work::Put, seed), Callers::single(callers), Limits { duration, stop })
    };
    run(2 * round, WARM_UP)?;
    run(2 * round + 1, time)
}
