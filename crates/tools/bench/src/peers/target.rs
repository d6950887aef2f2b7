//! The targets of `bench peers`: what is compared, and which ratios to reach.

use crate::lab::Engine;
use crate::load::Measured;
use crate::load::large::{LARGE_BYTES, LARGE_KEYS};
use crate::report::Goal;
use crate::workload::{KEYS, Sequence, VALUE_BYTES, Work};

/// Number of hot keys, all of whose values are in the switch.
const HOT_KEYS: u32 = 16;

/// The compared stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Experiment {
    /// Gets, beside echoed datagrams.
    Echo,
    /// Gets, beside one Redis server.
    Get,
    /// Puts to three replicas, beside SETs that two Redis replicas acknowledge.
    Put,
    /// Puts to three replicas, beside puts to three members of etcd.
    Etcd,
    /// Gets of large values, beside one Redis server.
    LargeGet,
    /// The same with puts of large values; on which network the Redis servers are.
    LargePut(Place),
}

/// The network between the hosts of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The same as NICEKV's.
    Lab,
    /// A bridge, on which TCP keeps its offloads.
    Bridge,
}

/// The figure taken from a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    Throughput,
    MeanTime,
}

/// One ratio to reach.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) experiment: Experiment,
    pub(super) engine: Engine,
    pub(super) callers: usize,
    /// Ops that each caller sends at once.
    pub(super) at_once: usize,
    /// It gets a few keys whose values are in the switch.
    pub(super) is_in_switch: bool,
    pub(super) quantity: Quantity,
    pub(super) goal: Goal,
    pub(super) peer: &'static str,
}

/// A target for values that fit a datagram. One caller's figure is a time, that of several a rate.
const fn target(
    (id, title): (&'static str, &'static str),
    (experiment, peer): (Experiment, &'static str),
    engine: Engine,
    callers: usize,
    goal: Goal,
) -> Target {
    let quantity = if callers == 1 { Quantity::MeanTime } else { Quantity::Throughput };
    Target { id, title, experiment, engine, callers, at_once: 1, is_in_switch: false, quantity, goal, peer }
}

/// A target for gets that a node's kernel or the switch answers.
const fn kernel(
    id: &'static str,
    (title, is_in_switch): (&'static str, bool),
    peer: (Experiment, &'static str),
    callers: usize,
    goal: Goal,
) -> Target {
    Target { is_in_switch, ..target((id, title), peer, Engine::Memory, callers, goal) }
}

/// A target for values of [`LARGE_BYTES`], one in flight.
const fn large(
    id: &'static str,
    title: &'static str,
    experiment: Experiment,
    (engine, peer): (Engine, &'static str),
    at_least: f64,
) -> Target {
    let quantity = Quantity::Throughput;
    Target { quantity, ..target((id, title), (experiment, peer), engine, 1, Goal::AtLeast(at_least)) }
}

const WAIT: (Engine, &str) = (Engine::Memory, "redis-wait-2");
const ALWAYS: (Engine, &str) = (Engine::Durable, "redis-always-wait-2");
const NODE: (&str, bool) = ("get answered in the node's kernel", false);
const SWITCH: (&str, bool) = ("get answered in the switch", true);
const ECHO: (Experiment, &str) = (Experiment::Echo, "udp-echo");
const REDIS: (Experiment, &str) = (Experiment::Get, "redis");

const PUT: (Experiment, &str) = (Experiment::Put, WAIT.1);
const DURABLE_PUT: (Experiment, &str) = (Experiment::Put, ALWAYS.1);
const PIPELINE: (Experiment, &str) = (Experiment::Get, "redis-pipeline-16");
const ETCD: (Experiment, &str) = (Experiment::Etcd, "etcd");
const MEMORY: Engine = Engine::Memory;
const DURABLE: Engine = Engine::Durable;

pub(super) const TARGETS: [Target; 18] = [
    target(("P1", "get, round trip"), ECHO, MEMORY, 1, Goal::AtMost(1.3)),
    target(("P2", "get, 64 callers"), REDIS, MEMORY, 64, Goal::AtLeast(1.5)),
    Target {
        at_once: 16,
        ..target(("P3", "get, 64 callers, 16 at once"), PIPELINE, MEMORY, 64, Goal::AtLeast(1.0))
    },
    target(("P4a", "put, 64 callers"), PUT, MEMORY, 64, Goal::AtLeast(1.5)),
    target(("P4b", "put, one caller"), PUT, MEMORY, 1, Goal::AtMost(0.6)),
    target(("P5a", "durable put, 64 callers"), DURABLE_PUT, DURABLE, 64, Goal::AtLeast(1.5)),
    target(("P5b", "durable put, one caller"), DURABLE_PUT, DURABLE, 1, Goal::AtMost(0.5)),
    target(("P6", "durable put, 64 callers"), ETCD, DURABLE, 64, Goal::AtLeast(6.0)),
    large("P11", "1 MB put", Experiment::LargePut(Place::Lab), WAIT, 1.5),
    large("P11b", "1 MB put, redis over a bridge", Experiment::LargePut(Place::Bridge), WAIT, 1.0),
    large("L1", "1 MB durable put", Experiment::LargePut(Place::Lab), ALWAYS, 1.8),
    large("L2", "1 MB get", Experiment::LargeGet, (Engine::Memory, "redis"), 1.0),
    kernel("K1", NODE, ECHO, 1, Goal::AtMost(0.7)),
    kernel("K2", SWITCH, ECHO, 1, Goal::AtMost(0.4)),
    kernel("K3a", NODE, ECHO, 64, Goal::AtLeast(1.3)),
    kernel("K3b", SWITCH, ECHO, 64, Goal::AtLeast(1.3)),
    kernel("K4a", NODE, REDIS, 64, Goal::AtLeast(2.0)),
    kernel("K4b", SWITCH, REDIS, 64, Goal::AtLeast(3.5)),
];

impl Target {
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.id.eq_ignore_ascii_case(name) || self.id.trim_end_matches(['a', 'b']).eq_ignore_ascii_case(name)
    }

    /// Whether its values are sent in chunks.
    pub(super) fn is_large(&self) -> bool {
        matches!(self.experiment, Experiment::LargeGet | Experiment::LargePut(_))
    }

    pub(super) fn value_bytes(&self) -> usize {
        if self.is_large() { LARGE_BYTES } else { VALUE_BYTES }
    }

    /// Number of keys.
    pub(super) fn keys(&self) -> u32 {
        match (self.is_in_switch, self.is_large()) {
            (true, _) => HOT_KEYS,
            (_, true) => LARGE_KEYS,
            _ => KEYS,
        }
    }

    /// The ops of a seed.
    pub(super) fn sequence(&self, seed: u64) -> Sequence {
        Sequence::of_first(self.keys(), self.work(), seed)
    }

    /// The puts before a run of gets.
    pub(super) fn preload(&self) -> Sequence {
        Sequence::of_first(self.keys(), Work::Preload, 0)
    }

    pub(super) fn work(&self) -> Work {
        match self.experiment {
            Experiment::Echo | Experiment::Get | Experiment::LargeGet => Work::Get,
            Experiment::Put | Experiment::Etcd | Experiment::LargePut(_) => Work::Put,
        }
    }

    pub(super) fn figure(&self, measured: Measured) -> f64 {
        match self.quantity {
            Quantity::Throughput => measured.throughput(),
            Quantity::MeanTime => measured.mean_us(),
        }
    }

    pub(super) fn metric(&self) -> (&'static str, &'static str) {
        match (self.quantity, self.experiment) {
            (Quantity::Throughput, _) => ("throughput", "op/s"),
            (Quantity::MeanTime, Experiment::Echo) => ("round_trip", "us"),
            (Quantity::MeanTime, _) => ("mean_time", "us"),
        }
    }
}

/// Checks the name of a target.
pub(super) fn parse(name: &str) -> std::result::Result<String, String> {
    if TARGETS.iter().any(|target| target.is_named(name)) {
        return Ok(name.to_owned());
    }
    let ids = TARGETS.map(|target| target.id).join(", ");
    Err(format!("the targets are {ids}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_chosen_by_its_id_or_its_number() {
        let chosen = |name: &str| -> Vec<&str> {
            TARGETS.iter().filter(|target| target.is_named(name)).map(|target| target.id).collect()
        };
        assert_eq!(chosen("P4"), ["P4a", "P4b"]);
        assert_eq!(chosen("p5B"), ["P5b"]);
        assert_eq!((chosen("P1"), chosen("p11")), (vec!["P1"], vec!["P11", "P11b"]));
        assert_eq!(parse("P2"), Ok("P2".into()));
        assert!(parse("P7").unwrap_err().contains("P4a"));
        assert!(parse("a").is_err());
    }
}
