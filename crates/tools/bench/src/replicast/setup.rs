//! What is simulated: the paper's hosts, links and disks, and what its tool leaves out.

use crate::workload::Random;
use clap::ValueEnum;
use nicekv_objects::reservation::{BIDS_MAX, Config};
use serde_json::{Value, json};

/// Storage targets.
pub(crate) const TARGETS: u16 = 90;
/// Of a negotiating group, which are neighbours.
pub(crate) const GROUP: u16 = 9;
pub(crate) const GROUPS: u16 = TARGETS / GROUP;
/// Targets that hold a chunk.
pub(crate) const REPLICAS: usize = 3;
/// 10 Gbit/s, of which 1 % are headers.
pub(crate) const LINK_BPS: u64 = 9_900_000_000;
pub(crate) const SECOND_NS: u64 = 1_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;
/// Requests of so many initiators that leave in one nanosecond reach targets in orders that differ. The paper's tool has a thread for each host, and ran on 24 cores, so that this
/// was chance; in a single thread there is one order. The one number that is fitted: from 12 to 16 all cells are near those that are printed, with 8 all but one.
pub(crate) const CROSSING: u16 = 12;
/// Of a whole in parts of `loss_ppm`.
const MILLION: u32 = 1_000_000;

/// How chunks get to their targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// Unicast to targets that are chosen by hash, which divide their bandwidth among those who send
    UchCcp,
    /// Replicast-M: multicast to targets that are chosen by their bids
    M,
    /// Replicast-H: unicast to targets that are chosen by their bids
    H,
}

impl Protocol {
    pub(crate) const ALL: [Self; 3] = [Self::UchCcp, Self::M, Self::H];

    /// As the paper's tables have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::UchCcp => "uch-ccp",
            Self::M => "replicast-m",
            Self::H => "replicast-h",
        }
    }
}

/// What the paper's tool leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beyond {
    /// A chunk whose bids have no window in common is asked for again, and keeps the time that it has waited.
    pub(crate) is_retried: bool,
    /// Targets and groups follow from a chunk's hash, whatever the chunk before was.
    pub(crate) is_hashed: bool,
    /// Of all operations.
    pub(crate) gets_percent: u32,
    /// Of all datagrams, each copy by itself.
    pub(crate) loss_ppm: u32,
    /// Nobody has another one's clock: windows are offsets from a receipt that is known within a round trip.
    pub(crate) is_apart: bool,
}

impl Beyond {
    /// Whether the next operation is a get.
    pub(crate) fn is_get(&self, random: &mut Random) -> bool {
        self.gets_percent > 0 && random.below(100) < self.gets_percent
    }

    /// Whether this copy of a datagram is lost.
    pub(crate) fn is_lost(&self, random: &mut Random) -> bool {
        self.loss_ppm > 0 && random.fraction() < f64::from(self.loss_ppm) / f64::from(MILLION)
    }
}

/// One cell of the paper's tables, or what differs from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) protocol: Protocol,
    pub(crate) chunk_kib: u32,
    /// MiB a second, which the paper calls MB.
    pub(crate) disk_mib: u32,
    pub(crate) initiators: u16,
    /// As [`CROSSING`].
    pub(crate) crossing: u16,
    pub(crate) beyond: Beyond,
}

impl Setup {
    pub(crate) fn new(protocol: Protocol, chunk_kib: u32, disk_mib: u32) -> Self {
        Self { protocol, chunk_kib, disk_mib, initiators: 90, crossing: CROSSING, beyond: Beyond::default() }
    }

    pub(crate) fn chunk_bytes(&self) -> u32 {
        self.chunk_kib << 10
    }

    /// A chunk on a disk.
    pub(crate) fn write_ns(&self) -> u64 {
        u64::from(self.chunk_bytes()) * SECOND_NS / (u64::from(self.disk_mib) << 20)
    }

    /// As long as the paper's run of the cell.
    pub(crate) fn run_ns(&self) -> u64 {
        let milliseconds = match (self.chunk_kib, self.disk_mib) {
            (..=64, ..=400) => 20,
            (..=512, _) => 10,
            (_, ..=400) => 30,
            _ => 40,
        };
        milliseconds * MILLISECOND_NS
    }

    /// Of targets and initiators that negotiate. What the paper's tool does not bound is wide enough here, and counted where it is not.
    pub(crate) fn config(&self) -> Config {
        let config = if self.protocol == Protocol::H { Config::UNICAST } else { Config::MULTICAST };
        let margin_ns = if self.beyond.is_apart { 2 * config.hop_ns() } else { 0 };
        let config = Config { bids_max: BIDS_MAX, bytes_max: u64::MAX / 2, margin_ns, ..config };
        if self.beyond.loss_ppm > 0 {
            // With the lapses that a node has, and no bid left out.
            return Config { is_last_tried: true, ..config };
        }
        // Nobody is ever late, so that nothing lapses.
        Config { tentative_ns: SECOND_NS, grace_ns: SECOND_NS, ..config }
    }

    pub(crate) fn workload(&self) -> String {
        let Self { chunk_kib, disk_mib, initiators, beyond, .. } = self;
        let chunk = chunk_name(*chunk_kib);
        let mut text = format!("{chunk}, {disk_mib} MB/s, {initiators} initiators");
        let mut note = |is: bool, part: String| {
            if is {
                text = format!("{text}, {part}");
            }
        };
        note(beyond.is_retried, "retried".into());
        note(beyond.is_hashed, "hashed".into());
        note(beyond.gets_percent > 0, format!("{} % gets", beyond.gets_percent));
        note(beyond.is_apart, "clocks apart".into());
        note(beyond.loss_ppm > 0, format!("{} ppm lost", beyond.loss_ppm));
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
            "retried": self.beyond.is_retried,
            "hashed": self.beyond.is_hashed,
            "gets_percent": self.beyond.gets_percent,
            "loss_ppm": self.beyond.loss_ppm,
            "clocks_apart": self.beyond.is_apart,
        })
    }
}

/// As the paper's tables have it.
pub(crate) fn chunk_name(kib: u32) -> String {
    if kib.is_multiple_of(1_024) { format!("{}M", kib >> 10) } else { format!("{kib}K") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_take_what_the_papers_tool_has() {
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
