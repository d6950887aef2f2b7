//! Everything that may go wrong, as named options.

use crate::random::Random;

/// Rates are per million of what they befall; times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// A datagram is lost.
    pub loss_per_million: u32,
    /// A datagram arrives twice.
    pub duplication_per_million: u32,
    /// A datagram is held up by up to `delay_ns_max`, so that others overtake it.
    pub delay_per_million: u32,
    /// See `delay_per_million`.
    pub delay_ns_max: u64,
    /// A copying stream breaks at a frame.
    pub stream_break_per_million: u32,
    /// A node's process is killed at one of its events, and loses what was not forced. Per event of the node.
    pub crash_per_million: u32,
    /// All nodes are killed at once, at an event.
    pub power_loss_per_million: u32,
    /// The metadata service is killed at one of its events, and started again.
    pub metadata_crash_per_million: u32,
    /// The switch starts again with empty tables, at an event of its agent.
    pub switch_crash_per_million: u32,
    /// A killed process is started again after at most this.
    pub downtime_ns_max: u64,
    /// A node is paused at one of its events.
    pub pause_per_million: u32,
    /// For at most so long.
    pub pause_ns_max: u64,
    /// At a moment between two of these, about every half of it, some direction between two hosts is cut, or all are healed. 0: never.
    pub cut_interval_ns: u64,
    /// A force of the log, or a sync of the engine, takes up to this.
    pub disk_ns_max: u64,
    /// Boot-time clocks run up to this much too fast or too slow.
    pub drift_per_million: u32,
    /// Wall clocks are up to this much wrong.
    pub wall_skew_ms_max: u64,
}

impl Faults {
    /// A healthy cluster.
    pub const NONE: Self = Self {
        loss_per_million: 0,
        duplication_per_million: 0,
        delay_per_million: 0,
        delay_ns_max: 0,
        stream_break_per_million: 0,
        crash_per_million: 0,
        power_loss_per_million: 0,
        metadata_crash_per_million: 0,
        switch_crash_per_million: 0,
        downtime_ns_max: 1,
        pause_per_million: 0,
        pause_ns_max: 1,
        cut_interval_ns: 0,
        disk_ns_max: 200_000,
        drift_per_million: 0,
        wall_skew_ms_max: 0,
    };

    /// Each kind of fault is absent, rare or frequent.
    pub fn draw(random: &mut Random) -> Self {
        let mut rate = |rare: u32, frequent: u32| random.pick(&[0, rare, frequent]);
        Self {
            loss_per_million: rate(10_000, 150_000),
            duplication_per_million: rate(10_000, 300_000),
            delay_per_million: rate(10_000, 200_000),
            delay_ns_max: u64::from(rate(2, 100)) * 1_000_000 + 1,
            stream_break_per_million: rate(10_000, 200_000),
            crash_per_million: rate(200, 2_000),
            power_loss_per_million: rate(0, 200),
            metadata_crash_per_million: rate(0, 2_000),
            switch_crash_per_million: rate(0, 20_000),
            downtime_ns_max: u64::from(rate(20, 800)) * 1_000_000 + 1,
            pause_per_million: rate(100, 1_000),
            pause_ns_max: u64::from(rate(100, 500)) * 1_000_000 + 1,
            cut_interval_ns: u64::from(rate(1_000, 200)) * 1_000_000,
            disk_ns_max: u64::from(rate(1, 30)) * 1_000_000 + 200_000,
            drift_per_million: rate(1_000, 50_000),
            wall_skew_ms_max: u64::from(rate(1_000, 86_400_000)),
        }
    }
}
