//! Parameters, and what they may be. Defaults are the paper's, and of its simulator where the paper is silent.

/// Most windows of a book.
pub const BIDS_MAX: usize = 4_096;

const SECOND_NS: u64 = 1_000_000_000;
/// Of a whole in parts.
const PERCENT: u64 = 100;

/// How a chunk goes to its targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Once, to all of them in one window that they have in common (Replicast-M).
    Multicast,
    /// To one after the other, each in a window of its own (Replicast-H).
    Unicast,
}

/// Parameters of targets and initiators, who must have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How chunks go.
    pub delivery: Delivery,
    /// What a link carries of data, within windows.
    pub data_bits_per_second: u64,
    /// What it carries of control messages beside that, at any time.
    pub control_bits_per_second: u64,
    /// A control message.
    pub control_bytes: u32,
    /// A frame of data.
    pub frame_bytes: u32,
    /// From one host to another, for what takes no time to send.
    pub trip_ns: u64,
    /// A bid, of the time that chunk and trip take. For multicast more, so that several have enough in common.
    pub window_percent: u32,
    /// What a bid is longer beside that, where initiators know the receipt only within a round trip, of which they can make no use. None where all have one clock, as in the
    /// paper's simulator.
    pub margin_ns: u64,
    /// Multicast: of a bid that is longer than chunk and frame by more than so many frames …
    pub slack_frames: u32,
    /// … one of so many of these frames is used beside the chunk; else one frame.
    pub slack_divisor: u32,
    /// A target that has nothing to do bids for longer, by so much of the time that the chunk takes …
    pub idle_percent: u32,
    /// … in one of so many cases.
    pub idle_one_in: u32,
    /// Multicast: windows that were cancelled are promised again while there are no more than so many in the book.
    pub reuse_windows_max: usize,
    /// A disk with so many bytes to write, …
    pub disk_queue_bytes: u64,
    /// … but no fewer than so many chunks, delays bids.
    pub disk_queue_chunks_min: u64,
    /// Windows of a book.
    pub bids_max: usize,
    /// Bytes of all chunks that are promised memory.
    pub bytes_max: u64,
    /// No window begins later than this after its request.
    pub horizon_ns: u64,
    /// A bid that is neither accepted nor cancelled lapses after this.
    pub tentative_ns: u64,
    /// One that is accepted, this long after its window.
    pub grace_ns: u64,
    /// Multicast: whether the latest of all bids may be chosen, which the paper's simulator does not try.
    pub is_last_tried: bool,
    /// Bids whose windows begin within about so long of each other are alike, so that targets with little to do share what there is, however far away they are. 1: none are, as in
    /// the paper's simulator.
    pub alike_ns: u64,
}

impl Config {
    /// Replicast-M: links of 10 Gbit/s, of which 1 % are headers and what is left is data to 90 %.
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
    /// Replicast-H, likewise.
    pub const UNICAST: Self =
        Self { delivery: Delivery::Unicast, window_percent: 110, idle_one_in: 2, ..Self::MULTICAST };
}

/// A parameter that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}, but must be from {least} to {most}")]
pub struct ConfigError {
    /// The field's name.
    pub field: &'static str,
    /// What it is.
    pub value: u64,
    /// The least that it may be.
    pub least: u64,
    /// The most.
    pub most: u64,
}

/// What the times of a chunk are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    /// All its frames, one behind the other.
    pub chunk_ns: u64,
    /// What a bid is, at least.
    pub window_ns: u64,
    /// What of it is used.
    pub used_ns: u64,
}

impl Config {
    /// The first parameter that cannot be.
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

    /// A control message on the link.
    pub fn control_ns(&self) -> u64 {
        time_ns(self.control_bytes, self.control_bits_per_second)
    }

    /// A full frame on the link.
    pub fn frame_ns(&self) -> u64 {
        self.data_ns(self.frame_bytes)
    }

    /// So many bytes on the link.
    pub fn data_ns(&self, bytes: u32) -> u64 {
        time_ns(bytes, self.data_bits_per_second)
    }

    /// From sending a control message until it is received.
    pub fn hop_ns(&self) -> u64 {
        self.control_ns() + self.trip_ns
    }

    /// From the receipt of a request until its initiator may have begun to send data: the bid has reached it, and the accept has left.
    pub fn earliest_ns(&self) -> u64 {
        self.hop_ns() + self.control_ns()
    }

    /// The times of a chunk of so many bytes.
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
    fn the_times_are_those_of_the_papers_simulator() {
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
    fn who_knows_no_receipt_has_as_much_in_a_wider_window() {
        let margin_ns = 2 * Config::UNICAST.hop_ns();
        let [here, apart] =
            [0, margin_ns].map(|margin_ns| Config { margin_ns, ..Config::UNICAST }.widths(16 << 10));
        assert_eq!(apart, Widths { window_ns: here.window_ns + margin_ns, ..here });
    }

    #[test]
    fn what_is_used_is_enough_and_within() {
        for config in [Config::MULTICAST, Config::UNICAST] {
            for bytes in (0..4_000_000).step_by(1_001) {
                let Widths { chunk_ns, window_ns, used_ns } = config.widths(bytes);
                assert!(chunk_ns <= used_ns && used_ns <= window_ns, "{bytes}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
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
