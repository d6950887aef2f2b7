//! The NICEKV side of a comparison.

use super::{Bench, NODES, SWITCH_KEYSPACE, SWITCH_KEYSPACE_PARTITIONS, Target};
use crate::error::Result;
use crate::hot_keys;
use crate::keyspace;
use crate::lab::{CLIENT, Lab, Size};
use crate::load::large::LargeLoad;
use crate::load::native::{Callers, NativeLoad, PRELOAD_TIMEOUT, PRELOADERS};
use crate::load::{Limits, Measured};
use crate::workload::Work;
use nicekv_client::Keyspace;
use nicekv_lab::topology::WIRE_PORT;
use nicekv_proto::placement::{Vrings, partitions_for};

/// A client.
pub(super) enum NicekvLoad {
    /// Values fit a datagram.
    Small(Box<NativeLoad>),
    /// Values are sent in chunks.
    Large(Box<LargeLoad>),
}

impl NicekvLoad {
    /// Starts it in a lab, and stores the values of gets.
    pub(super) fn start(bench: &Bench<'_>, target: &Target, lab: &Lab) -> Result<Self> {
        let mut load = client(lab, target)?;
        if target.work() == Work::Get {
            let (preload, limits) = (target.preload(), bench.session.limits(PRELOAD_TIMEOUT));
            match &mut load {
                Self::Small(load) => load.run(preload, PRELOADERS, limits)?,
                Self::Large(load) => load.run(preload, limits)?,
            };
        }
        Ok(load)
    }

    /// Runs the ops of a seed.
    pub(super) fn run(
        &mut self,
        (target, lab): (&Target, &Lab),
        seed: u64,
        limits: Limits<'_>,
    ) -> Result<Measured> {
        match self {
            Self::Small(load) => {
                if target.is_in_switch {
                    wait_until_in_switch(load, (target, lab), limits)?;
                }
                ask(load, target, seed, limits)
            }
            Self::Large(load) => load.run(target.sequence(seed), limits),
        }
    }
}

/// Gets all keys until the switch has all values: between two turns it may have dropped them.
fn wait_until_in_switch(
    load: &mut NativeLoad,
    (target, lab): (&Target, &Lab),
    limits: Limits<'_>,
) -> Result<()> {
    let (stop, what) = (limits.stop, "the switch does not keep all values");
    let ask = |load: &mut NativeLoad, limits: Limits<'_>| ask(load, target, 0, limits);
    let loads = std::slice::from_mut(load);
    hot_keys::wait_under_load((lab, stop), loads, ask, what, |switch| switch["values"] == target.keys())
        .map(drop)
}

fn ask(load: &mut NativeLoad, target: &Target, seed: u64, limits: Limits<'_>) -> Result<Measured> {
    let callers = Callers { count: target.callers, at_once: target.at_once };
    load.run(target.sequence(seed), callers, limits)
}

/// Callers with several ops at once may batch those of a partition in one datagram.
fn client(lab: &Lab, target: &Target) -> Result<NicekvLoad> {
    let partition_bits = (target.at_once > 1).then(|| partitions_for(NODES.into()).ilog2());
    let size = Size { nodes: NODES, replicas: NODES };
    let keyspace = match target.is_in_switch {
        true => keyspace::known(SWITCH_KEYSPACE, size, SWITCH_KEYSPACE_PARTITIONS)?,
        false => Keyspace { partition_bits, ..Vrings::on_network(WIRE_PORT).into() },
    };
    lab.client(CLIENT, |address| match target.is_large() {
        true => LargeLoad::bind(address, keyspace, target.value_bytes()).map(Box::new).map(NicekvLoad::Large),
        false => NativeLoad::bind(address, keyspace).map(Box::new).map(NicekvLoad::Small),
    })
}
