//! Topologies of switches.

use nicekv_testkit::Random;

/// AGGs per pod.
const AGGREGATIONS: usize = 2;

/// A topology of switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trunks {
    /// No trunks: every server is attached to every switch.
    #[default]
    None,
    /// Switches in a row.
    Chain,
    /// Three levels with redundant trunks (TurboKV §6): each AGG to all Cores, each ToR to both
    /// AGGs of its pod.
    Racks {
        /// Number of Cores. These are the first switches.
        cores: usize,
        /// Number of pods. Each has two AGGs.
        pods: usize,
        /// Number of ToRs per pod.
        racks: usize,
    },
}

impl Trunks {
    /// TurboKV's topology of eight switches.
    pub const TURBOKV: Self = Self::Racks { cores: 2, pods: 1, racks: 4 };

    /// Number of switches, if the topology determines it.
    pub(crate) fn switches(self) -> Option<usize> {
        match self {
            Self::None | Self::Chain => None,
            Self::Racks { cores, pods, racks } => Some(cores + pods * (AGGREGATIONS + racks)),
        }
    }

    /// Index of the first ToR, and the number of ToRs.
    pub(crate) fn racks(self) -> Option<(usize, usize)> {
        match self {
            Self::None | Self::Chain => None,
            Self::Racks { cores, pods, racks } => Some((cores + pods * AGGREGATIONS, pods * racks)),
        }
    }

    /// The neighbours of each switch, ascending, in a topology of this number of switches.
    pub(crate) fn neighbours(self, switches: usize) -> Vec<Vec<usize>> {
        let mut neighbours = vec![Vec::new(); switches];
        let mut join = |one: usize, other: usize| {
            neighbours[one].push(other);
            neighbours[other].push(one);
        };
        match self {
            Self::None => {}
            Self::Chain => (1..switches).for_each(|switch| join(switch - 1, switch)),
            Self::Racks { cores, pods, racks } => {
                for pod in 0..pods {
                    for above in (0..AGGREGATIONS).map(|number| cores + pod * AGGREGATIONS + number) {
                        (0..cores).for_each(|core| join(core, above));
                        let first = cores + pods * AGGREGATIONS + pod * racks;
                        (first..first + racks).for_each(|rack| join(above, rack));
                    }
                }
            }
        }
        neighbours.iter_mut().for_each(|of| of.sort_unstable());
        neighbours
    }
}

/// Chooses the seeds in which switches form a chain, and those with TurboKV's topology.
const CHAINS: u64 = 0x74_7275_6e6b;
const RACKS: u64 = 0x7261_636b;

/// Draws the topology of switches that have ports, and the number of switches where the topology
/// does not determine it.
pub(crate) fn draw(seed: u64) -> (Trunks, usize) {
    let mut random = Random::new(seed ^ CHAINS);
    let trunks = if random.below(3) > 0 { Trunks::Chain } else { Trunks::None };
    let switches = random.pick(&[2, 2, 3]);
    let has_racks = Random::new(seed ^ RACKS).below(3) == 0;
    (if has_racks { Trunks::TURBOKV } else { trunks }, switches)
}
