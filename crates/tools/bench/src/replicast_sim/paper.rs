//! The figures that the paper prints.

use super::setup::{Protocol, Setup};

/// A cell of Table 2 or 3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Printed {
    pub(crate) chunks_per_second: f64,
    pub(crate) disk_percent: f64,
    pub(crate) latency_us: f64,
}

/// Sizes of chunks and rates of disks in all tables and figures.
pub(crate) const CHUNKS_KIB: [u32; 3] = [16, 128, 1_024];
pub(crate) const DISKS_MIB: [u32; 2] = [400, 1_000];

/// Cells by disk, chunk and protocol: chunks per second, disks' time in percent, latency in
/// microseconds.
const CELLS: [[[(f64, f64, f64); 3]; 3]; 2] = [
    [
        [(536_950.0, 70.6, 164.7), (635_750.0, 83.6, 139.0), (525_100.0, 69.0, 168.4)],
        [(58_400.0, 66.4, 1_401.7), (80_700.0, 90.6, 1_039.8), (73_400.0, 83.6, 1_132.6)],
        [(6_733.0, 69.6, 10_260.2), (8_067.0, 85.6, 9_210.8), (8_000.0, 84.9, 8_945.9)],
    ],
    [
        [(918_500.0, 48.1, 96.0), (907_400.0, 47.4, 97.0), (632_200.0, 32.9, 139.3)],
        [(108_900.0, 47.0, 784.7), (176_000.0, 74.7, 489.5), (127_900.0, 55.0, 673.0)],
        [(13_475.0, 48.4, 6_042.9), (19_850.0, 68.6, 4_242.0), (16_075.0, 57.1, 5_163.8)],
    ],
];

/// The cell of a setup in Table 2 or 3, if it is one.
pub(crate) fn printed(setup: &Setup) -> Option<Printed> {
    let plain = Setup::new(setup.protocol, setup.chunk_kib, setup.disk_mib);
    let disk = DISKS_MIB.iter().position(|disk| *disk == setup.disk_mib)?;
    let chunk = CHUNKS_KIB.iter().position(|chunk| *chunk == setup.chunk_kib)?;
    let protocol = Protocol::ALL.iter().position(|protocol| *protocol == setup.protocol)?;
    let (chunks_per_second, disk_percent, latency_us) = CELLS[disk][chunk][protocol];
    let is_printed = plain.initiators == setup.initiators && plain.extensions == setup.extensions;
    is_printed.then_some(Printed { chunks_per_second, disk_percent, latency_us })
}

/// A row of Table 5.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tentative {
    pub(crate) chunk_kib: u32,
    /// λ: requests per microsecond.
    pub(crate) requests_per_us: f64,
    pub(crate) percent: f64,
}

/// How long a bid is tentative, by §IV-H.
pub(crate) const TENTATIVE_US: f64 = 7.0;
pub(crate) const TABLE_5: [Tentative; 3] = [
    Tentative { chunk_kib: 16, requests_per_us: 0.09, percent: 46.7 },
    Tentative { chunk_kib: 128, requests_per_us: 0.02, percent: 13.0 },
    Tentative { chunk_kib: 1_024, requests_per_us: 0.002, percent: 1.39 },
];
/// Replicast-M's throughput with fast disks ÷ slow disks, by §IV-F, by size of chunks.
pub(crate) const RISES: [(u32, f64); 2] = [(128, 2.18), (1_024, 2.4)];

/// The percentage of requests that arrive within `us` after another one, if requests are a Poisson
/// process. The formula that the paper prints differs, but its numbers agree with this one.
pub(crate) fn poisson_percent(requests_per_us: f64, us: f64) -> f64 {
    100.0 * (1.0 - (-requests_per_us * us).exp())
}

/// How much a single run may differ from the printed values: throughput and latency by a part,
/// disks' time by percentage points.
pub(crate) fn bounds(chunk_kib: u32) -> [f64; 3] {
    if chunk_kib < 1_024 { [0.04, 0.04, 3.0] } else { [0.07, 0.08, 3.0] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicast_sim::setup::REPLICAS;

    /// A chunk is written three times, on 90 disks, so that the printed disks' time follows from
    /// throughput, except for what is queued at the end.
    #[test]
    fn printed_disk_times_agree_with_throughput() {
        for disk in DISKS_MIB {
            for chunk in CHUNKS_KIB {
                for protocol in Protocol::ALL {
                    let setup = Setup::new(protocol, chunk, disk);
                    let cell = printed(&setup).unwrap();
                    let written =
                        cell.chunks_per_second * REPLICAS as f64 * setup.write_ns() as f64 / 1e9 / 90.0;
                    let more = cell.disk_percent - 100.0 * written;
                    assert!((-1.0..20.0).contains(&more), "{setup:?}: {more}");
                    let other = Setup { initiators: 30, ..setup };
                    assert_eq!(printed(&other), None);
                }
            }
        }
        assert_eq!(printed(&Setup::new(Protocol::M, 64, 400)), None);
    }

    #[test]
    fn percentages_of_table_5_follow_from_its_rates() {
        for Tentative { requests_per_us, percent, .. } in TABLE_5 {
            assert!((poisson_percent(requests_per_us, TENTATIVE_US) - percent).abs() < 0.1);
        }
    }
}
