//! The keys that the switch predicts to be hot in a period, beside those that are (KVSwitch §5.3),
//! and beside a prediction from exact counts.

use super::popularity::key;
use super::rack::Balancer;
use nicekv_hotkeys::{Config, HotKey, predict, recall};
use std::cmp::Reverse;

/// Ranks whose requests are counted exactly. At Zipf 0.99 a rank beyond them has less than two
/// requests in a period, and in all experiments ten times less than the 10,000 hottest ranks: it is
/// never one of those.
const COUNTED: usize = 1 << 18;

/// Shares of a period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accuracy {
    /// Share of the K hottest keys that were predicted.
    pub(crate) found: f64,
    /// The same with exact counts of the last two periods.
    pub(crate) found_exactly: f64,
    /// Share of requests for predicted keys …
    pub(crate) expected_share: f64,
    /// … and for the K hottest keys.
    pub(crate) hottest_share: f64,
}

/// Exact counts and predictions, period by period.
pub(crate) struct Accuracies {
    config: Config,
    keys: Vec<HotKey>,
    /// Counts of this period and of the last two.
    counts: [Vec<u64>; 3],
    expected: Vec<bool>,
}

impl Accuracies {
    pub(crate) fn new(config: &Config) -> Self {
        let keys = (0..COUNTED as u32).map(key).collect();
        let counts = std::array::from_fn(|_| vec![0; COUNTED]);
        Self { config: *config, keys, counts, expected: vec![false; COUNTED] }
    }

    /// Call it before a period.
    pub(crate) fn expect(&mut self, rack: &impl Balancer) {
        self.expected = self.keys.iter().map(|key| rack.expects(key)).collect();
        self.counts.rotate_right(1);
        self.counts[0].fill(0);
    }

    pub(crate) fn count(&mut self, rank: u32) {
        if let Some(count) = self.counts[0].get_mut(rank as usize) {
            *count += 1;
        }
    }

    /// Call it after a period, with its number of requests.
    pub(crate) fn judge(&mut self, requests: u64) -> Accuracy {
        let top = self.config.keys_max as usize;
        let [now, before, earlier] = &self.counts;
        // Ranks stand for keys.
        let name = |rank: usize| HotKey {
            digest: nicekv_proto::KeyDigest((rank as u128).to_be_bytes()),
            ..HotKey::default()
        };
        let exact: Vec<(HotKey, u64)> =
            now.iter().enumerate().map(|(rank, count)| (name(rank), *count)).collect();
        let predicted =
            |rank: &usize| Reverse(predict(self.config.history_ppm, earlier[*rank], before[*rank]));
        let mut ranks: Vec<usize> = (0..COUNTED).collect();
        ranks.sort_by_key(predicted);
        let mut exactly = vec![false; COUNTED];
        ranks[..top].iter().for_each(|rank| exactly[*rank] = true);
        let part = |expected: &[bool]| {
            let is_expected = |key: &HotKey| expected[key.digest.match_value() as usize];
            recall(&exact, top, is_expected) as f64 / top as f64
        };
        let mut counts = now.clone();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let expected = now.iter().zip(&self.expected).filter(|(_, is_expected)| **is_expected);
        let share = |count: u64| count as f64 / requests as f64;
        Accuracy {
            found: part(&self.expected),
            found_exactly: part(&exactly),
            expected_share: share(expected.map(|(count, _)| count).sum()),
            hottest_share: share(counts[..top].iter().sum()),
        }
    }
}
