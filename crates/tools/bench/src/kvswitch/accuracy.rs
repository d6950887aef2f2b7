//! What the switch expects of a period, beside what comes (KVSwitch §5.3), and beside what whoever counts everything exactly would have expected.

use super::popularity::key;
use super::rack::Balancer;
use nicekv_hotkeys::{Config, HotKey, predict, recall};
use std::cmp::Reverse;

/// Ranks whose requests are counted exactly. What is beyond is asked less than twice in a period at Zipf 0.99, and ten times less than the hottest 10,000 in all that is measured: it is
/// never among them.
const COUNTED: usize = 1 << 18;

/// Of a period, as parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accuracy {
    /// Of the K hottest keys, those that were expected.
    pub(crate) found: f64,
    /// The same if all keys of the two periods before had been counted.
    pub(crate) found_exactly: f64,
    /// Of all requests, those for expected keys …
    pub(crate) expected_share: f64,
    /// … and those for the K hottest.
    pub(crate) hottest_share: f64,
}

/// Counts, and what was expected.
pub(crate) struct Accuracies {
    config: Config,
    keys: Vec<HotKey>,
    /// Of this period and of the two before.
    counts: [Vec<u64>; 3],
    expected: Vec<bool>,
}

impl Accuracies {
    pub(crate) fn new(config: &Config) -> Self {
        let keys = (0..COUNTED as u32).map(key).collect();
        let counts = std::array::from_fn(|_| vec![0; COUNTED]);
        Self { config: *config, keys, counts, expected: vec![false; COUNTED] }
    }

    /// Before a period.
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

    /// After a period of so many requests.
    pub(crate) fn judge(&mut self, requests: u64) -> Accuracy {
        let top = self.config.keys_max as usize;
        let [now, before, earlier] = &self.counts;
        // Ranks stand for their keys here: there are as many of either.
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
