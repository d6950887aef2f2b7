//! Parameters and their bounds. Defaults are the paper's, or those of its simulator.

/// Upper bound of `bids_max`.
pub const BIDS_MAX: usize = 4_096;

const SECOND_NS: u64 = 1_000_000_000;
const PERCENT: u64 = 100;

/// How a chunk goes to its targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Once, to all of them in their common window (Replicast-M).
    Multicast,
    /// To one after the other, each in its own window (Replicast-H).
    Unicast,
}

/// Parameters of targets and initiators, which must have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How chunks are sent.
    pub delivery: Delivery,
    /// Rate of a link for data, within windows.
    pub data_bits_per_second: u64,
    /// Rate of a link for control messages, at any time, in addition to data.
    pub control_bits_per_second: u64,
    /// Length of a control message.
    pub control_bytes: u32,
    /// Length of a data frame.
    pub frame_bytes: u32,
    /// One-way delay between two hosts, without the time to send.
    pub trip_ns: u64,
    /// Length of a bid, as a percentage of the time for chunk and trip. More for multicast, so that several targets have
    /// enough in common.
    pub window_percent: u32,
    /// Addition to a bid: the round trip by which an initiator's knowledge of the receipt is uncertain. 0 if all have one clock,
    /// as in the paper's simulator.
    pub margin_ns: u64,
    /// Multicast: if a bid is longer than the chunk and one frame by more than this many frames …
    pub slack_frames: u32,
    /// … one part in this many of these frames is used in addition to the chunk; else one frame.
    pub slack_divisor: u32,
    /// An idle target bids a longer window, by this percentage of the time for the chunk …
    pub idle_percent: u32,
    /// … in one of this many cases.
    pub idle_one_in: u32,
    /// Multicast: cancelled windows are promised again while the book has at most this many windows.
    pub reuse_windows_max: usize,
    /// A disk with this many bytes to write, …
    pub disk_queue_bytes: u64,
    /// … and at least this many chunks, delays bids.
    pub disk_queue_chunks_min: u64,
    /// Windows of a book, at most.
    pub bids_max: usize,
    /// Bytes of memory that are promised, at most.
    pub bytes_max: u64,
    /// Latest start of a window, from its request.
    pub horizon_ns: u64,
    /// An open bid expires after this time.
    pub tentative_ns: u64,
    /// An accepted bid expires this long after its window.
    pub grace_ns: u64,
    /// Multicast: whether the latest bid may be chosen; the paper's simulator does not try it.
    pub is_last_tried: bool,
    /// Bids that start within about this time of each other are equivalent, so that idle targets share the load whatever their
    /// distance. 1: none are, as in the paper's simulator.
    pub alike_ns: u64,
}

impl Config {
    /// Replicast-M: links of 10 Gbit/s; 1 % is headers, and 90 % of the rest is for data.
    pub const MULTICAST: Self = Self {
        delivery: Delivery::Multicast,
        data_bits_per_second: 8_910_000_000,
        control_bits_per_second: 990_000_000,
        control_bytes: 300,
        frame_bytes: 9_000,
        trip_ns: 1_000,
        window_percent: 140,
        margin_ns: 0,
        slack_frames: 4,
        slack_divisor: 3,
        idle_percent: 200,
        idle_one_in: 1,
        reuse_windows_max: 3,
        disk_queue_bytes: 256 << 10,
        disk_queue_chunks_min: 2,
        bids_max: 64,
        bytes_max: 64 << 20,
        horizon_ns: 1_000_000_000,
        tentative_ns: 5_000_000,
        grace_ns: 5_000_000,
        is_last_tried: false,
        alike_ns: 1,
    };
    /// Replicast-H on the same links.
    pub const UNICAST: Self =
        Self { delivery: Delivery::Unicast, window_percent: 110, idle_one_in: 2, ..Self::MULTICAST };
}

/// A parameter out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}, but must be from {least} to {most}")]
pub struct ConfigError {
    /// The field's name.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// Its lower bound.
    pub least: u64,
    /// Its upper bound.
    pub most: u64,
}

/// The times of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    /// Time to send all its frames.
    pub chunk_ns: u64,
    /// Length of a bid, at least.
    pub window_ns: u64,
    /// The part of it that is used.
    pub used_ns: u64,
}

impl Config {
    /// Checks all parameters.
    ///
    /// # Errors
    /// The first one that is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        let rate_max = 10_000 * SECOND_NS;
        let bounds = [
            ("data_bits_per_second", self.data_bits_per_second, 1_000_000, rate_max),
            ("control_bits_per_second", self.control_bits_per_second, 1_000_000, rate_max),
            ("control_bytes", self.control_bytes.into(), 1, 65_535),
            ("frame_bytes", self.frame_bytes.into(), 1, 65_535),
            ("trip_ns", self.trip_ns, 0, SECOND_NS),
            ("window_percent", self.window_percent.into(), PERCENT, 10_000),
            ("margin_ns", self.margin_ns, 0, SECOND_NS),
            ("slack_divisor", self.slack_divisor.into(), 1, 1_000),
            ("idle_percent", self.idle_percent.into(), 0, 10_000),
            ("idle_one_in", self.idle_one_in.into(), 1, 1_000_000),
            ("disk_queue_chunks_min", self.disk_queue_chunks_min, 1, 1 << 20),
            ("bids_max", self.bids_max as u64, 1, BIDS_MAX as u64),
            ("horizon_ns", self.horizon_ns, 1, 3_600 * SECOND_NS),
            ("tentative_ns", self.tentative_ns, 1, 60 * SECOND_NS),
            ("grace_ns", self.grace_ns, 0, 60 * SECOND_NS),
            ("alike_ns", self.alike_ns, 1, SECOND_NS),
        ];
        let wrong = bounds.into_iter().find(|(_, value, least, most)| !(least..=most).contains(&value));
        wrong.map_or(Ok(()), |(field, value, least, most)| Err(ConfigError { field, value, least, most }))
    }

    /// Time to send a control message.
    pub fn control_ns(&self) -> u64 {
        time_ns(self.control_bytes, self.control_bits_per_second)
    }

    /// Time to send a full frame.
    pub fn frame_ns(&self) -> u64 {
        self.data_ns(self.frame_bytes)
    }

    /// Time to send `bytes` of data.
    pub fn data_ns(&self, bytes: u32) -> u64 {
        time_ns(bytes, self.data_bits_per_second)
    }

    /// Time from sending a control message until it is received.
    pub fn hop_ns(&self) -> u64 {
        self.control_ns() + self.trip_ns
    }

    /// Least time from the receipt of a request to the first data: the bid arrives and the accept leaves.
    pub fn earliest_ns(&self) -> u64 {
        self.hop_ns() + self.control_ns()
    }

    /// The times of a chunk of `bytes`.
    pub fn widths(&self, bytes: u32) -> Widths {
        let (chunk_ns, frame_ns) = (self.data_ns(bytes), self.frame_ns());
        let least_ns = chunk_ns + frame_ns;
        let wanted_ns = (chunk_ns + self.trip_ns) * u64::from(self.window_percent) / PERCENT;
        let window_ns = if wanted_ns < least_ns { least_ns + frame_ns } else { wanted_ns };
        let used_ns = match self.delivery {
            Delivery::Unicast => window_ns.saturating_sub(self.trip_ns).max(chunk_ns),
            Delivery::Multicast => {
                let slack_frames = (window_ns - least_ns) / frame_ns.max(1);
                let is_wide = slack_frames > self.slack_frames.into();
                let frames = if is_wide { slack_frames / u64::from(self.slack_divisor) } else { 1 };
                (chunk_ns + frames * frame_ns).min(window_ns)
            }
        };
        Widths { chunk_ns, window_ns: window_ns + self.margin_ns, used_ns }
    }
}

fn time_ns(bytes: u32, bits_per_second: u64) -> u64 {
    (u128::from(bytes) * 8 * u128::from(SECOND_NS) / u128::from(bits_per_second)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn times_equal_those_of_the_papers_simulator() {
        let config = Config::MULTICAST;
        assert_eq!((config.control_ns(), config.frame_ns(), config.earliest_ns()), (2_424, 8_080, 5_848));
        let of = |config: Config, kib: u32| {
            let Widths { window_ns, used_ns, .. } = config.widths(kib << 10);
            (window_ns, used_ns)
        };
        let multicast = [16, 128, 1_024].map(|kib| of(Config::MULTICAST, kib));
        assert_eq!(multicast, [(30_870, 22_790), (166_159, 125_765), (1_319_474, 1_062_682)]);
        let unicast = [16, 128, 1_024].map(|kib| of(Config::UNICAST, kib));
        assert_eq!(unicast, [(30_870, 29_870), (130_553, 129_553), (1_036_730, 1_035_730)]);
    }

    #[test]
    fn margin_widens_the_bid_and_not_the_used_part() {
        let margin_ns = 2 * Config::UNICAST.hop_ns();
        let [here, apart] =
            [0, margin_ns].map(|margin_ns| Config { margin_ns, ..Config::UNICAST }.widths(16 << 10));
        assert_eq!(apart, Widths { window_ns: here.window_ns + margin_ns, ..here });
    }

    #[test]
    fn used_part_is_long_enough_and_within_the_bid() {
        for config in [Config::MULTICAST, Config::UNICAST] {
            for bytes in (0..4_000_000).step_by(1_001) {
                let Widths { chunk_ns, window_ns, used_ns } = config.widths(bytes);
                assert!(chunk_ns <= used_ns && used_ns <= window_ns, "{bytes}");
            }
        }
    }

    #[test]
    fn parameter_out_of_bounds_is_named() {
        type Edit = fn(&mut Config);
        let edits: [(&str, Edit); 8] = [
            ("data_bits_per_second", |config| config.data_bits_per_second = 0),
            ("control_bits_per_second", |config| config.control_bits_per_second = 0),
            ("frame_bytes", |config| config.frame_bytes = 0),
            ("window_percent", |config| config.window_percent = 99),
            ("slack_divisor", |config| config.slack_divisor = 0),
            ("idle_one_in", |config| config.idle_one_in = 0),
            ("bids_max", |config| config.bids_max = 0),
            ("bids_max", |config| config.bids_max = BIDS_MAX + 1),
        ];
        for (field, edit) in edits {
            let mut config = Config::MULTICAST;
            edit(&mut config);
            let error = config.check().unwrap_err();
            assert_eq!(error.field, field);
            assert!(error.to_string().starts_with(field), "{error}");
        }
        assert_eq!((Config::MULTICAST.check(), Config::UNICAST.check()), (Ok(()), Ok(())));
    }
}
