//! The parameters of a world, drawn from its seed.

use nicekv_objects::reservation::{Config, Delivery};
use nicekv_objects::{MaintenanceConfig, Timing};
use nicekv_proto::ClientId;
use nicekv_testkit::Random;

/// Rates of faults, per million unless their names say otherwise. A field in milliseconds is an
/// average interval; 0: never.
#[derive(Clone, Copy, Debug, Default)]
pub struct ObjectFaults {
    /// Lost datagrams.
    pub loss: u64,
    /// Duplicated datagrams.
    pub duplicate: u64,
    /// Frames with a damaged byte.
    pub garble: u64,
    /// Datagrams that are delayed by up to two milliseconds.
    pub late: u64,
    /// A target's process is killed.
    pub crash_ms: u64,
    /// A target's process is killed, and its disk loses what was not synced.
    pub power_ms: u64,
    /// An initiator is killed.
    pub initiator_ms: u64,
    /// A target is cut off for a while.
    pub cut_ms: u64,
    /// A chunk on a disk is damaged.
    pub damage_ms: u64,
    /// The groups of targets change.
    pub map_ms: u64,
    /// A target is lost for good, with its disk.
    pub loss_ms: u64,
    /// A snapshot of a target's disk is taken, and every other time the disk is replaced by it:
    /// then it lacks newer chunks, and has some that were deleted.
    pub older_ms: u64,
    /// A round of garbage collection begins.
    pub round_ms: u64,
    /// Whether one disk is ten times slower than the others.
    pub has_slow_disk: bool,
    /// Capacity of each disk.
    pub disk_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Number of targets, in all groups.
    pub targets: usize,
    pub groups: usize,
    /// Initiators, each with a user.
    pub initiators: usize,
    /// R, the number of copies of a chunk.
    pub copies: usize,
    /// Additional copies that every other initiator puts, as if R had been lowered and the
    /// initiator did not know it yet.
    pub more_copies: usize,
    /// Parameters of reservations at targets.
    pub reservation: Config,
    /// Timeouts of initiators.
    pub timing: Timing,
    /// Parameters of the targets' maintenance.
    pub maintenance: MaintenanceConfig,
    /// Maximum number of objects.
    pub names: u64,
    /// Distinct contents of chunks: so few that the same chunks are put again.
    pub contents: u64,
    /// How long users work.
    pub busy_ms: u64,
    pub faults: ObjectFaults,
    /// Maximum delay until a target lists names after they have adopted a round.
    pub listing_ms: u64,
}

const MILLION: u64 = 1_000_000;

/// Draws the world of a seed.
pub fn draw(seed: u64) -> Shape {
    let mut random = Random::new(seed ^ 0x0b1e_c75e);
    let groups = random.between(1, 2) as usize;
    let targets = groups * random.between(4, 6) as usize;
    let delivery = random.pick(&[Delivery::Multicast, Delivery::Unicast]);
    let base = if delivery == Delivery::Multicast { Config::MULTICAST } else { Config::UNICAST };
    let reservation = Config {
        data_bits_per_second: 900_000_000,
        control_bits_per_second: 100_000_000,
        frame_bytes: 1_472,
        // Usually more than a round trip of the simulated network.
        margin_ns: 400_000,
        bids_max: random.pick(&[4, 16, 64]),
        bytes_max: random.pick(&[64 << 10, 1 << 20]),
        horizon_ns: 200_000_000,
        grace_ns: 10_000_000,
        is_last_tried: true,
        alike_ns: random.pick(&[1, 300_000]),
        ..base
    };
    let timing = Timing {
        acks_ns: 10_000_000,
        frames_ns: 5_000_000,
        deadline_ns: random.pick(&[300_000_000, 2_000_000_000]),
        ..Timing::DEFAULT
    };
    let faults = faults(&mut random);
    let (initiators, copies) = (random.between(2, 4) as usize, random.between(2, 3) as usize);
    Shape {
        targets,
        groups,
        initiators,
        copies,
        more_copies: if targets / groups > copies + 1 { random.pick(&[0, 0, 1]) } else { 0 },
        reservation,
        timing,
        maintenance: maintenance(&mut random, copies),
        names: 6,
        contents: 10,
        busy_ms: 1_500,
        faults,
        listing_ms: 2,
    }
}

/// Maintenance much faster than in production, since runs are short and have little data.
fn maintenance(random: &mut Random, copies: usize) -> MaintenanceConfig {
    MaintenanceConfig {
        chunks_at_once: random.between(1, 4) as usize,
        chunks_per_second: 1_000,
        bytes_per_second: 64 << 20,
        pass_ns: 600_000_000,
        again_ns: 10_000_000,
        // Usually longer than the downtime of a killed process.
        silence_ns: 50_000_000,
        ..MaintenanceConfig::new(ClientId(0), copies)
    }
}

fn faults(random: &mut Random) -> ObjectFaults {
    let mut often = |least_ms: u64, in_of: u64| match random.below(in_of) {
        0 => random.between(least_ms, 4 * least_ms),
        _ => 0,
    };
    let (crash_ms, power_ms, initiator_ms) = (often(100, 2), often(200, 3), often(200, 3));
    let (cut_ms, damage_ms, map_ms, round_ms) = (often(100, 3), often(200, 4), often(200, 3), often(60, 1));
    let loss_ms = often(300, 3);
    let mut faults = ObjectFaults {
        loss: random.pick(&[0, 1_000, 20_000, 100_000]),
        duplicate: random.pick(&[0, 20_000]),
        garble: random.pick(&[0, 0, 2_000]),
        late: random.pick(&[0, 20_000]),
        crash_ms,
        power_ms,
        initiator_ms,
        cut_ms,
        damage_ms,
        map_ms,
        loss_ms,
        older_ms: 0,
        round_ms,
        has_slow_disk: random.chance(MILLION / 4),
        disk_bytes: random.pick(&[u64::MAX / 4, u64::MAX / 4, 1 << 20]),
    };
    faults.older_ms = random.pick(&[0, 0, 100, 300]);
    faults
}
