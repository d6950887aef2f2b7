//! The simulated setups: the paper's hosts, links and disks, and extensions that its tool lacks.

use crate::splitmix::Random;
use clap::ValueEnum;
use nicekv_objects::reservation::{BIDS_MAX, Config};
use serde_json::{Value, json};

/// Number of storage targets.
pub(crate) const TARGETS: u16 = 90;
/// Targets of a negotiating group, which are neighbours.
pub(crate) const GROUP: u16 = 9;
pub(crate) const GROUPS: u16 = TARGETS / GROUP;
/// Copies of a chunk.
pub(crate) const REPLICAS: usize = 3;
/// 10 Gbit/s less 1 % for headers.
pub(crate) const LINK_BPS: u64 = 9_900_000_000;
pub(crate) const SECOND_NS: u64 = 1_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;
/// Requests of this many initiators, if sent in the same nanosecond, reach targets in different
/// orders. The paper's tool has a thread per host and ran on 24 cores, so that the order was
/// random; a single thread has one order. It is the only fitted number: with 12 to 16 all cells are
/// near the printed ones, with 8 all but one.
pub(crate) const CROSSING: u16 = 12;
/// The unit of `loss_ppm`.
const MILLION: u32 = 1_000_000;

/// How chunks get to their targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// Unicast to targets by hash, which divide their bandwidth among senders
    UchCcp,
    /// Replicast-M: multicast to targets chosen by their bids
    M,
    /// Replicast-H: unicast to targets chosen by their bids
    H,
}

impl Protocol {
    pub(crate) const ALL: [Self; 3] = [Self::UchCcp, Self::M, Self::H];

    /// As in the paper's tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::UchCcp => "uch-ccp",
            Self::M => "replicast-m",
            Self::H => "replicast-h",
        }
    }
}

/// Extensions that the paper's tool lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extensions {
    /// A chunk whose bids have no common window is requested again, and its latency includes the
    /// first attempt.
    pub(crate) is_retried: bool,
    /// Targets and groups follow from a chunk's hash, and may repeat.
    pub(crate) is_hashed: bool,
    /// Share of gets of all operations.
    pub(crate) gets_percent: u32,
    /// Loss of each copy of a datagram.
    pub(crate) loss_ppm: u32,
    /// Clocks are not synchronized: windows are offsets from the receipt of a request, which is
    /// known within a round trip.
    pub(crate) is_apart: bool,
}

impl Extensions {
    /// Whether the next operation is a get.
    pub(crate) fn is_get(&self, random: &mut Random) -> bool {
        self.gets_percent > 0 && random.below(100) < self.gets_percent
    }

    /// Whether this copy of a datagram is lost.
    pub(crate) fn is_lost(&self, random: &mut Random) -> bool {
        self.loss_ppm > 0 && random.fraction() < f64::from(self.loss_ppm) / f64::from(MILLION)
    }
}

/// A cell of the paper's tables, or a variation of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) protocol: Protocol,
    pub(crate) chunk_kib: u32,
    /// MiB per second, which the paper calls MB.
    pub(crate) disk_mib: u32,
    pub(crate) initiators: u16,
    /// See [`CROSSING`].
    pub(crate) crossing: u16,
    pub(crate) extensions: Extensions,
}

impl Setup {
    pub(crate) fn new(protocol: Protocol, chunk_kib: u32, disk_mib: u32) -> Self {
        Self {
            protocol,
            chunk_kib,
            disk_mib,
            initiators: 90,
            crossing: CROSSING,
            extensions: Extensions::default(),
        }
    }

    pub(crate) fn chunk_bytes(&self) -> u32 {
        self.chunk_kib << 10
    }

    /// Time to write a chunk.
    pub(crate) fn write_ns(&self) -> u64 {
        u64::from(self.chunk_bytes()) * SECOND_NS / (u64::from(self.disk_mib) << 20)
    }

    /// The length of the paper's run of this cell.
    pub(crate) fn run_ns(&self) -> u64 {
        let milliseconds = match (self.chunk_kib, self.disk_mib) {
            (..=64, ..=400) => 20,
            (..=512, _) => 10,
            (_, ..=400) => 30,
            _ => 40,
        };
        milliseconds * MILLISECOND_NS
    }

    /// The configuration of targets and initiators. Bounds that the paper's tool lacks are wide
    /// enough here, and counted if reached.
    pub(crate) fn config(&self) -> Config {
        let config = if self.protocol == Protocol::H { Config::UNICAST } else { Config::MULTICAST };
        let margin_ns = if self.extensions.is_apart { 2 * config.hop_ns() } else { 0 };
        let config = Config { bids_max: BIDS_MAX, bytes_max: u64::MAX / 2, margin_ns, ..config };
        if self.extensions.loss_ppm > 0 {
            // With the timeouts of a node, and trying even the last bid.
            return Config { is_last_tried: true, ..config };
        }
        // No message is late, so that nothing expires.
        Config { tentative_ns: SECOND_NS, grace_ns: SECOND_NS, ..config }
    }

    pub(crate) fn workload(&self) -> String {
        let Self { chunk_kib, disk_mib, initiators, extensions, .. } = self;
        let chunk = chunk_name(*chunk_kib);
        let mut text = format!("{chunk}, {disk_mib} MB/s, {initiators} initiators");
        let mut note = |is: bool, part: String| {
            if is {
                text = format!("{text}, {part}");
            }
        };
        note(extensions.is_retried, "retried".into());
        note(extensions.is_hashed, "hashed".into());
        note(extensions.gets_percent > 0, format!("{} % gets", extensions.gets_percent));
        note(extensions.is_apart, "clocks apart".into());
        note(extensions.loss_ppm > 0, format!("{} ppm lost", extensions.loss_ppm));
        text
    }

    pub(crate) fn parameters(&self) -> Value {
        json!({
            "simulated": true,
            "chunk_kib": self.chunk_kib,
            "disk_mib_per_second": self.disk_mib,
            "initiators": self.initiators,
            "crossing": self.crossing,
            "targets": TARGETS,
            "group": GROUP,
            "replicas": REPLICAS,
            "run_ms": self.run_ns() / MILLISECOND_NS,
            "retried": self.extensions.is_retried,
            "hashed": self.extensions.is_hashed,
            "gets_percent": self.extensions.gets_percent,
            "loss_ppm": self.extensions.loss_ppm,
            "clocks_apart": self.extensions.is_apart,
        })
    }
}

/// As in the paper's tables.
pub(crate) fn chunk_name(kib: u32) -> String {
    if kib.is_multiple_of(1_024) { format!("{}M", kib >> 10) } else { format!("{kib}K") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_and_runs_take_as_long_as_in_the_papers_tool() {
        let writes = |disk| [16, 128, 1_024].map(|chunk| Setup::new(Protocol::M, chunk, disk).write_ns());
        assert_eq!(
            (writes(400), writes(1_000)),
            ([39_062, 312_500, 2_500_000], [15_625, 125_000, 1_000_000])
        );
        let runs = |disk| {
            [16, 128, 1_024].map(|chunk| Setup::new(Protocol::M, chunk, disk).run_ns() / MILLISECOND_NS)
        };
        assert_eq!((runs(400), runs(1_000)), ([20, 10, 30], [10, 10, 40]));
    }
}
