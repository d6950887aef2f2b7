//! Topologies of switches.

use nicekv_testkit::Random;

/// AGGs of a pod.
const AGGREGATIONS: usize = 2;

/// How switches hang together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trunks {
    /// Not at all: every server hangs at each.
    #[default]
    None,
    /// In a row.
    Chain,
    /// In three levels with redundant trunks (TurboKV §6): each AGG to all Cores, each ToR to both AGGs of its pod.
    Racks {
        /// The first switches.
        cores: usize,
        /// Each with two AGGs.
        pods: usize,
        /// ToRs of each.
        racks: usize,
    },
}

impl Trunks {
    /// TurboKV's eight switches.
    pub const TURBOKV: Self = Self::Racks { cores: 2, pods: 1, racks: 4 };

    /// Switches, where that is not said beside.
    pub(crate) fn switches(self) -> Option<usize> {
        match self {
            Self::None | Self::Chain => None,
            Self::Racks { cores, pods, racks } => Some(cores + pods * (AGGREGATIONS + racks)),
        }
    }

    /// The first ToR, and how many there are.
    pub(crate) fn racks(self) -> Option<(usize, usize)> {
        match self {
            Self::None | Self::Chain => None,
            Self::Racks { cores, pods, racks } => Some((cores + pods * AGGREGATIONS, pods * racks)),
        }
    }

    /// Of each of so many switches the neighbours, ascending.
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

/// Chooses the seeds in which switches form a chain, and those in which they are TurboKV's.
const CHAINS: u64 = 0x74_7275_6e6b;
const RACKS: u64 = 0x7261_636b;

/// How switches with ports hang together in a random run, and how many there are where that does not say it.
pub(crate) fn draw(seed: u64) -> (Trunks, usize) {
    let mut random = Random::new(seed ^ CHAINS);
    let trunks = if random.below(3) > 0 { Trunks::Chain } else { Trunks::None };
    let switches = random.pick(&[2, 2, 3]);
    let has_racks = Random::new(seed ^ RACKS).below(3) == 0;
    (if has_racks { Trunks::TURBOKV } else { trunks }, switches)
}
