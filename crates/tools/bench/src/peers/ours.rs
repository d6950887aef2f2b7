//! Our side of a comparison.

use super::{Bench, CLIENT, KEPT, KEPT_PARTITIONS, NODES, PRELOAD_TIMEOUT, PRELOADERS, Target};
use crate::error::{BenchError, Result};
use crate::heat;
use crate::keyspace;
use crate::lab::{Lab, Size};
use crate::load::large::LargeLoad;
use crate::load::native::{Callers, NativeLoad};
use crate::load::{Limits, Measured};
use crate::workload::Work;
use nicekv_client::Keyspace;
use nicekv_lab::topology::WIRE_PORT;
use nicekv_proto::placement::{Vrings, partitions_for};
use std::net::SocketAddrV4;

/// A client.
pub(super) enum Ours {
    /// Of values that fit a datagram.
    Small(Box<NativeLoad>),
    /// Of values that do not.
    Large(Box<LargeLoad>),
}

impl Ours {
    /// In a lab, where what is to be got is stored.
    pub(super) fn start(bench: &Bench<'_>, target: &Target, lab: &Lab) -> Result<Self> {
        let mut ours = client(lab, target)?;
        if target.work() == Work::Get {
            let (preload, limits) = (target.preload(), bench.limits(PRELOAD_TIMEOUT));
            match &mut ours {
                Self::Small(load) => load.run(preload, PRELOADERS, limits)?,
                Self::Large(load) => load.run(preload, limits)?,
            };
        }
        Ok(ours)
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
                    heat(load, (target, lab), limits)?;
                }
                ask(load, target, seed, limits)
            }
            Self::Large(load) => load.run(target.sequence(seed), limits),
        }
    }
}

/// Until the switch has all values: between two turns they may have gone.
fn heat(load: &mut NativeLoad, (target, lab): (&Target, &Lab), limits: Limits<'_>) -> Result<()> {
    let (stop, what) = (limits.stop, "the switch does not keep all values");
    let ask = |load: &mut NativeLoad, limits: Limits<'_>| ask(load, target, 0, limits);
    let loads = std::slice::from_mut(load);
    heat::until((lab, stop), loads, ask, what, |switch| switch["values"] == target.keys()).map(drop)
}

fn ask(load: &mut NativeLoad, target: &Target, seed: u64, limits: Limits<'_>) -> Result<Measured> {
    let callers = Callers { count: target.callers, at_once: target.at_once };
    load.run(target.sequence(seed), callers, limits)
}

/// Callers with several ops at once may have those of a partition in one datagram.
fn client(lab: &Lab, target: &Target) -> Result<Ours> {
    let address = SocketAddrV4::new(CLIENT.address(), 0);
    let partition_bits = (target.at_once > 1).then(|| partitions_for(NODES.into()).ilog2());
    let size = Size { nodes: NODES, replicas: NODES };
    let keyspace = match target.is_in_switch {
        true => keyspace::known(KEPT, size, KEPT_PARTITIONS)?,
        false => Keyspace { partition_bits, ..Vrings::on_network(WIRE_PORT).into() },
    };
    let bind = || match target.is_large() {
        true => LargeLoad::bind(address, keyspace, target.value_bytes()).map(Box::new).map(Ours::Large),
        false => NativeLoad::bind(address, keyspace).map(Box::new).map(Ours::Small),
    };
    lab.inside(CLIENT, bind)?.map_err(BenchError::system("make a client's socket"))
}
