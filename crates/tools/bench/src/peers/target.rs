//! The targets of `bench peers`: what is compared, and which ratios are due.

use crate::lab::Engine;
use crate::load::Measured;
use crate::load::large::{LARGE_BYTES, LARGE_KEYS};
use crate::report::Goal;
use crate::workload::{KEYS, Sequence, VALUE_BYTES, Work};

/// Keys that are hot, all of which a switch keeps.
const KEPT: u32 = 16;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Experiment {
    /// A get, and a datagram that is just sent back.
    Echo,
    /// Gets from one Redis server.
    Get,
    /// Puts to three replicas, and SETs that two Redis replicas have acknowledged.
    Put,
    /// Puts to three replicas, and puts to three members of etcd.
    Etcd,
    /// Gets of large values from one Redis server.
    LargeGet,
    /// Puts of large values to three replicas, and SETs that two Redis replicas have acknowledged; where the servers are.
    LargePut(Place),
}

/// What is between the hosts of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// What is between ours.
    Lab,
    /// A bridge, on which TCP keeps its offloads.
    Bridge,
}

/// What is taken from a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    Throughput,
    MeanTime,
}

/// One figure to reach.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) experiment: Experiment,
    pub(super) engine: Engine,
    pub(super) callers: usize,
    /// Ops of each caller at once.
    pub(super) at_once: usize,
    /// Of a few keys whose values are in the switch.
    pub(super) is_in_switch: bool,
    pub(super) quantity: Quantity,
    pub(super) goal: Goal,
    pub(super) peer: &'static str,
}

/// Of gets that a node's kernel or the switch answers.
const fn kernel(
    id: &'static str,
    (title, is_in_switch): (&'static str, bool),
    (experiment, peer): (Experiment, &'static str),
    callers: usize,
    goal: Goal,
) -> Target {
    let quantity = if callers == 1 { Quantity::MeanTime } else { Quantity::Throughput };
    let engine = Engine::Memory;
    Target { id, title, experiment, engine, callers, at_once: 1, is_in_switch, quantity, goal, peer }
}

/// Of values of [`LARGE_BYTES`], one in flight.
const fn large(
    id: &'static str,
    title: &'static str,
    experiment: Experiment,
    (engine, peer): (Engine, &'static str),
    at_least: f64,
) -> Target {
    let goal = Goal::AtLeast(at_least);
    let quantity = Quantity::Throughput;
    Target {
        id,
        title,
        experiment,
        engine,
        callers: 1,
        at_once: 1,
        is_in_switch: false,
        quantity,
        goal,
        peer,
    }
}

const WAIT: (Engine, &str) = (Engine::Memory, "redis-wait-2");
const ALWAYS: (Engine, &str) = (Engine::Durable, "redis-always-wait-2");
const NODE: (&str, bool) = ("get answered in the node's kernel", false);
const SWITCH: (&str, bool) = ("get answered in the switch", true);
const ECHO: (Experiment, &str) = (Experiment::Echo, "udp-echo");
const REDIS: (Experiment, &str) = (Experiment::Get, "redis");

pub(super) const TARGETS: [Target; 18] = [
    Target {
        id: "P1",
        title: "get, round trip",
        experiment: Experiment::Echo,
        engine: Engine::Memory,
        callers: 1,
        at_once: 1,
        is_in_switch: false,
        quantity: Quantity::MeanTime,
        goal: Goal::AtMost(1.3),
        peer: "udp-echo",
    },
    Target {
        id: "P2",
        title: "get, 64 callers",
        experiment: Experiment::Get,
        engine: Engine::Memory,
        callers: 64,
        at_once: 1,
        is_in_switch: false,
        quantity: Quantity::Throughput,
        goal: Goal::AtLeast(1.5),
        peer: "redis",
    },
    Target {
        id: "P3",
        title: "get, 64 callers, 16 at once",
        experiment: Experiment::Get,
        engine: Engine::Memory,
        callers: 64,
        at_once: 16,
        is_in_switch: false,
        quantity: Quantity::Throughput,
        goal: Goal::AtLeast(1.0),
        peer: "redis-pipeline-16",
    },
    Target {
        id: "P4a",
        title: "put, 64 callers",
        experiment: Experiment::Put,
        engine: Engine::Memory,
        callers: 64,
        at_once: 1,
        is_in_switch: false,
        quantity: Quantity::Throughput,
        goal: Goal::AtLeast(1.5),
        peer: "redis-wait-2",
    },
    Target {
        id: "P4b",
        title: "put, one caller",
        experiment: Experiment::Put,
        engine: Engine::Memory,
        callers: 1,
        at_once: 1,
        is_in_switch: false,
        quantity: Quantity::MeanTime,
        goal: Goal::AtMost(0.6),
        peer: "redis-wait-2",
    },
    Target {
        id: "P5a",
        title: "durable put, 64 callers",
        experiment: Experiment::Put,
        engine: Engine::Durable,
        callers: 64,
        at_once: 1,
        is_in_switch: false,
        quantity: Quantity::Throughput,
        goal: Goal::AtLeast(1.5),
        peer: "redis-always-wait-2",
    },
    Target {
        id: "P5b",
        title: "durable put, one caller",
        experiment: Experiment::Put,
        engine: Engine::Durable,
        callers: 1,
        at_once: 1,
        is_in_switch: false,
        quantity: Quantity::MeanTime,
        goal: Goal::AtMost(0.5),
        peer: "redis-always-wait-2",
    },
    Target {
        id: "P6",
        title: "durable put, 64 callers",
        experiment: Experiment::Etcd,
        engine: Engine::Durable,
        callers: 64,
        at_once: 1,
        is_in_switch: false,
        quantity: Quantity::Throughput,
        goal: Goal::AtLeast(6.0),
        peer: "etcd",
    },
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

    /// Whether its values go in chunks.
    pub(super) fn is_large(&self) -> bool {
        matches!(self.experiment, Experiment::LargeGet | Experiment::LargePut(_))
    }

    pub(super) fn value_bytes(&self) -> usize {
        if self.is_large() { LARGE_BYTES } else { VALUE_BYTES }
    }

    /// The keys that are asked for.
    pub(super) fn keys(&self) -> u32 {
        match (self.is_in_switch, self.is_large()) {
            (true, _) => KEPT,
            (_, true) => LARGE_KEYS,
            _ => KEYS,
        }
    }

    /// The ops of a seed.
    pub(super) fn sequence(&self, seed: u64) -> Sequence {
        Sequence::of_first(self.keys(), self.work(), seed)
    }

    /// What is stored before it is got.
    pub(super) fn preload(&self) -> Sequence {
        Sequence::of_first(self.keys(), Work::Preload, 0)
    }

    /// What callers do.
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
