//! Rates and durations of random faults, as named options.

use nicekv_testkit::Random;
use std::fmt;
use thiserror::Error;

/// The unit of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 0 to 1; held in millionths.
    Probability,
    /// With a suffix: `ns`, `us`, `ms` or `s`; held in nanoseconds.
    Time,
    /// A multiplier.
    Factor,
}

/// A field of [`Faults`] as an option of the command line.
pub struct FaultOption {
    pub name: &'static str,
    pub unit: Unit,
    /// The help text.
    pub help: &'static str,
    field: fn(&mut Faults) -> &mut u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FaultError {
    #[error("a fault is given as NAME=VALUE, not {given:?}")]
    NoValue { given: String },
    #[error("there is no fault {name:?}; `--fault list` prints all faults")]
    Unknown { name: String },
    #[error("{name} takes {expected}, not {given:?}")]
    Value { name: &'static str, expected: &'static str, given: String },
}

/// These faults are drawn from a separate random sequence, so that adding them did not change the
/// runs of existing seeds.
const DRAWN_APART: [&str; 3] = ["deadly", "disk-lost", "disk-older"];

macro_rules! faults {
    ($($(#[doc = $help:literal])+ $field:ident $name:literal $unit:ident $none:literal, $rare:literal, $frequent:literal;)+) => {
        /// Rates and durations of faults. Probabilities are per million of the events that a fault
        /// may hit; times are in nanoseconds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Faults {
            $($(#[doc = $help])+ pub $field: u64,)+
        }

        impl Faults {
            /// No faults.
            pub const NONE: Self = Self { $($field: $none,)+ };

            /// Draws each kind of fault as absent, rare or frequent. Those of [`DRAWN_APART`] are
            /// absent.
            pub fn draw(random: &mut Random) -> Self {
                Self { $($field: if DRAWN_APART.contains(&$name) { $none } else { random.pick(&[$none, $rare, $frequent]) },)+ }
            }
        }

        /// All faults, as options of the command line.
        pub const OPTIONS: &[FaultOption] = &[$(FaultOption {
            name: $name,
            unit: Unit::$unit,
            help: concat!($($help),+),
            field: |faults| &mut faults.$field,
        }),+];
    };
}

faults! {
    /// A datagram is lost.
    loss "loss" Probability 0, 10_000, 150_000;
    /// A datagram arrives twice.
    duplication "duplication" Probability 0, 10_000, 300_000;
    /// A datagram is delayed, so that others overtake it.
    delay "delay" Probability 0, 10_000, 200_000;
    /// Maximum of `delay`.
    delay_max_ns "delay-max" Time 1, 2_000_001, 100_000_001;
    /// A copying stream breaks at a frame.
    stream_break "stream-break" Probability 0, 10_000, 200_000;
    /// A node's process is killed at one of its events, and loses any part of its log that was not synced.
    crash "crash" Probability 0, 200, 2_000;
    /// At an event of any host, all nodes, switches and the metadata service lose power at once.
    power_loss "power-loss" Probability 0, 0, 40;
    /// The metadata service is killed at one of its events, and restarts.
    metadata_crash "metadata-crash" Probability 0, 0, 2_000;
    /// The metadata service is paused at one of its events; after up to `downtime-max` another leader takes over, and then the old one resumes.
    metadata_pause "metadata-pause" Probability 0, 0, 2_000;
    /// A switch restarts with empty tables when its agent receives a request.
    switch_crash "switch-crash" Probability 0, 0, 20_000;
    /// A switch's agent loses its connection to the metadata service for up to `downtime-max`, before or after it has executed a request.
    agent_cut "agent-cut" Probability 0, 0, 20_000;
    /// Maximum time until a killed process restarts.
    downtime_max_ns "downtime-max" Time 1, 20_000_001, 800_000_001;
    /// A node is paused at one of its events.
    pause "pause" Probability 0, 100, 1_000;
    /// Maximum of `pause`, also for the metadata service.
    pause_max_ns "pause-max" Time 1, 100_000_001, 500_000_001;
    /// A busy machine: a node reads its socket up to this late, and then handles larger batches.
    late_ns "late" Time 0, 500_000, 10_000_000;
    /// Average time between cuts: of one direction or both between two hosts, or of a host from all others; or all cuts are healed. 0: never.
    cut_interval_ns "cut-interval" Time 0, 1_000_000_000, 200_000_000;
    /// Maximum time of a sync of the log or of the engine.
    disk_max_ns "disk-max" Time 200_000, 1_200_000, 30_200_000;
    /// A node is slow: its network, its disk and its turns take `slow-factor` times as long.
    slow "slow" Probability 0, 0, 150_000;
    /// See `slow`.
    slow_factor "slow-factor" Factor 1, 10, 100;
    /// A node keeps everything in memory. It is killed only where another consistent replica is left.
    memory "memory" Probability 0, 0, 300_000;
    /// A node has a very small client table.
    forgetful "forgetful" Probability 0, 0, 0;
    /// A node's disk fills up, or has space again, at one of its events.
    disk_full "disk-full" Probability 0, 500, 5_000;
    /// Average time between changes by the operator, who adds, drains or removes a node. 0: never.
    change_interval_ns "change-interval" Time 0, 0, 400_000_000;
    /// A stored value of a node is damaged at one of its events. Another replica holds it.
    corruption "corruption" Probability 0, 500, 5_000;
    /// At the end of the run, this part of the entries is replaced in one replica by other valid entries.
    replacement "replacement" Probability 0, 50_000, 500_000;
    /// Maximum drift of boot-time clocks, too fast or too slow.
    drift "drift" Probability 0, 1_000, 50_000;
    /// Maximum error of wall clocks.
    wall_skew_max_ns "wall-skew-max" Time 0, 1_000_000_000, 86_400_000_000_000;
    /// A node's wall clock steps, at one of its events, to another wrong time, forward or backward.
    wall_step "wall-step" Probability 0, 0, 1_000;
    /// Average time between creations and drops of keyspaces. 0: never.
    keyspace_interval_ns "keyspace-interval" Time 0, 0, 300_000_000;
    /// Average time between splits and merges of partitions by the operator. 0: never.
    reshape_interval_ns "reshape-interval" Time 0, 0, 200_000_000;
    /// A busy machine: a node handles disk completions up to this late, and submits the remaining requests after a page of them.
    late_disk_ns "late-disk" Time 0, 500_000, 10_000_000;
    /// A chunk of a large value is damaged in transit.
    garbled "garbled" Probability 0, 2_000, 50_000;
    /// An op crashes the process of every node that evaluates it, if the node keeps its disk.
    deadly "deadly" Probability 0, 0, 0;
    /// A node that was killed restarts with an empty disk: a segment of its log was missing, and the operator replaced the disk. See `disk-older`.
    disk_lost "disk-lost" Probability 0, 0, 0;
    /// A node that was killed restarts with an older copy of its disk. One replica of each partition keeps its disk, and stays up meanwhile.
    disk_older "disk-older" Probability 0, 0, 0;
}

/// Faults between instances of the metadata service and their store; probabilities in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreFaults {
    /// A request, or its answer, is lost.
    pub lost: u64,
    /// A request is delayed.
    pub late: u64,
    /// Maximum delay.
    pub late_max_ns: u64,
    /// An instance cannot reach the store.
    pub outage: u64,
    /// Maximum duration of an outage.
    pub outage_max_ns: u64,
}

impl StoreFaults {
    /// A store that always answers.
    pub const NONE: Self = Self { lost: 0, late: 0, late_max_ns: 1, outage: 0, outage_max_ns: 1 };
}

impl Faults {
    /// Nodes restart, some with empty disks, and messages of earlier epochs arrive late.
    pub(crate) const LATE_MESSAGES: Self = Self {
        crash: 4_000,
        memory: 500_000,
        delay: 400_000,
        delay_max_ns: 100_000_000,
        downtime_max_ns: 20_000_000,
        ..Self::NONE
    };

    /// Sets one option, given as NAME=VALUE.
    ///
    /// # Errors
    /// There is no such option, or the value is not valid for it.
    pub fn set(&mut self, given: &str) -> Result<(), FaultError> {
        let (name, value) = given.split_once('=').ok_or(FaultError::NoValue { given: given.into() })?;
        let option = OPTIONS.iter().find(|option| option.name == name);
        let option = option.ok_or(FaultError::Unknown { name: name.into() })?;
        let (expected, parsed) = match option.unit {
            Unit::Probability => ("a probability from 0.000001 to 1, or 0", probability(value)),
            Unit::Time => ("a time such as 20ms", time(value)),
            Unit::Factor => ("a number from 1", value.parse().ok().filter(|factor| *factor > 0)),
        };
        *(option.field)(self) =
            parsed.ok_or(FaultError::Value { name: option.name, expected, given: value.into() })?;
        Ok(())
    }
}

fn probability(text: &str) -> Option<u64> {
    let value: f64 = text.parse().ok().filter(|value| (0.0..=1.0).contains(value))?;
    let millionths = (value * 1e6).round() as u64;
    (millionths > 0 || value == 0.0).then_some(millionths)
}

fn time(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let digits = text.find(|character: char| !character.is_ascii_digit())?;
    let unit_ns: u64 = match &text[digits..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit_ns)
}

impl fmt::Display for Faults {
    /// Prints the options that differ from [`Faults::NONE`], in the form that [`Faults::set`]
    /// accepts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut these, mut none) = (*self, Self::NONE);
        for option in OPTIONS {
            let value = *(option.field)(&mut these);
            if value == *(option.field)(&mut none) {
                continue;
            }
            write!(f, " {}=", option.name)?;
            match option.unit {
                Unit::Probability => write!(f, "{}", value as f64 / 1e6)?,
                Unit::Time if value >= 1_000_000 => write!(f, "{}ms", value / 1_000_000)?,
                Unit::Time => write!(f, "{value}ns")?,
                Unit::Factor => write!(f, "{value}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_set_by_name() {
        let mut faults = Faults::NONE;
        for given in ["loss=0.2", "cut-interval=20ms", "crash=0.000001", "slow-factor=7", "delay-max=0"] {
            faults.set(given).unwrap();
        }
        assert_eq!((faults.loss, faults.cut_interval_ns, faults.crash), (200_000, 20_000_000, 1));
        assert_eq!((faults.slow_factor, faults.delay_max_ns), (7, 0));
        for given in ["loss", "loss=", "loss=2", "crash=0.0000001", "pause-max=5", "pause-max=5h", "x=1"] {
            assert!(faults.set(given).is_err(), "{given}");
        }
    }

    #[test]
    fn printed_options_parse_again() {
        for seed in 0..50 {
            let drawn = Faults { memory: 0, ..Faults::draw(&mut Random::new(seed)) };
            let mut read = Faults::NONE;
            drawn.to_string().split_whitespace().for_each(|given| read.set(given).unwrap());
            assert_eq!((read.loss, read.pause, read.slow), (drawn.loss, drawn.pause, drawn.slow));
        }
    }
}
