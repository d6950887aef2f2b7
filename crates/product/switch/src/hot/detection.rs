//! Detection of hot keys: the counts that the controller reads from a switch (KVSwitch §4.2.5,
//! §4.2.6).
//!
//! ```text
//!   get or update, in a keyspace that spreads its hot keys ─┬─ its key has an entry ─▶ counted by the entry
//!     and that leaves for a host of this switch             ├─ it has none ──────────▶ HashPipe
//!                                                           └─ each host that it leaves for: loads
//! ```
//!
//! A request that leaves by a trunk is counted by the switch at its end. The counts of entries and
//! loads are never reset; the controller takes differences, so a lost reading costs nothing.
//! Candidates are counted since the last reading.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_hotkeys::{Config, ConfigError, HashPipe, HotKey, Reading};
use serde::{Deserialize, Serialize};

use crate::HostId;

/// Configuration of the detection. The default counts nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotConfig {
    /// Keyspaces that spread their hot keys. If it is empty, nothing is counted.
    pub keyspaces: Vec<u16>,
    /// The number K: slots of the HashPipe, and upper bound of the candidates in a reading.
    pub keys_max: u32,
    /// The number d: stages of the HashPipe.
    pub stages: u32,
    /// The seed of the HashPipe's hash functions; a secret.
    pub seed: u64,
}

impl Default for HotConfig {
    fn default() -> Self {
        let Config { keys_max, stages, .. } = Config::default();
        Self { keyspaces: Vec::new(), keys_max, stages, seed: 0 }
    }
}

impl HotConfig {
    /// Checks the parameters; the error names the first one out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.parameters().check()
    }

    fn parameters(&self) -> Config {
        Config { keys_max: self.keys_max, stages: self.stages, ..Config::default() }
    }

    /// The parameters of the HashPipe: K, d and the seed. A HashPipe keeps its counts while they
    /// stay the same.
    pub fn pipe(&self) -> (u32, u32, u64) {
        (self.keys_max, self.stages, self.seed)
    }
}

/// Requests of an entry since it was installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotCount {
    /// The entry's instance.
    pub instance: u64,
    /// Gets and updates.
    pub requests: u64,
    /// The gets among them that the switch has answered itself (H9).
    pub answered: u64,
}

/// Requests of a key without an entry since the last reading, as counted by the HashPipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotCandidate {
    /// Its keyspace.
    pub keyspace: u16,
    /// Its digest.
    pub digest: [u8; 16],
    /// Gets and updates.
    pub count: u64,
}

/// A switch's counts of hot keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotReading {
    /// The newest instance that was ever installed.
    pub newest: u64,
    /// A count for each entry, ascending by instance. The count of an installed entry never falls.
    pub entries: Vec<HotCount>,
    /// At most K candidates, most requested first.
    pub candidates: Vec<HotCandidate>,
    /// Number of requests since the last reading for keys that are not among the candidates.
    pub dropped: u64,
    /// For each node attached to this switch, ascending, the number of requests that have left for
    /// it. It never falls while the switch runs.
    pub loads: Vec<(HostId, u64)>,
}

impl HotReading {
    /// Adds the counts of a HashPipe. The HashPipes of all CPUs together may have more than K keys;
    /// the least requested ones are dropped.
    #[must_use]
    pub fn with_candidates(mut self, reading: &Reading, keys_max: u32) -> Self {
        let candidate = |&(key, count): &(HotKey, u64)| HotCandidate {
            keyspace: key.keyspace.0,
            digest: key.digest.0,
            count,
        };
        let kept = reading.counts.len().min(keys_max as usize);
        let (kept, others) = reading.counts.split_at(kept);
        self.candidates = kept.iter().map(candidate).collect();
        self.dropped = reading.dropped + others.iter().map(|(_, count)| count).sum::<u64>();
        self
    }
}

/// The counters of the user-space switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detection {
    config: HotConfig,
    /// The keyspaces of the configuration, ascending.
    keyspaces: Vec<u16>,
    /// The HashPipe; `None` until it is configured.
    pipe: Option<HashPipe>,
    /// Requests that have left for each host.
    loads: BTreeMap<HostId, u64>,
}

impl Detection {
    /// Sets the configuration. Setting an equal configuration changes nothing.
    pub(crate) fn set(&mut self, config: &HotConfig) -> Result<(), ConfigError> {
        config.check()?;
        if self.pipe.is_none() || self.config.pipe() != config.pipe() {
            self.pipe = Some(HashPipe::new(&config.parameters(), config.seed)?);
        }
        self.keyspaces = config.keyspaces.clone();
        self.keyspaces.sort_unstable();
        self.config = config.clone();
        Ok(())
    }

    /// Whether any keyspace is counted.
    pub(crate) fn is_on(&self) -> bool {
        !self.keyspaces.is_empty()
    }

    /// Whether requests of the keyspace are counted.
    pub(crate) fn has(&self, keyspace: u16) -> bool {
        self.is_on() && self.keyspaces.binary_search(&keyspace).is_ok()
    }

    /// Counts a request of a key without an entry.
    pub(crate) fn count(&mut self, key: HotKey) {
        if let Some(pipe) = &mut self.pipe {
            pipe.count(key);
        }
    }

    /// Counts a request that leaves for a host.
    pub(crate) fn load(&mut self, host: HostId) {
        *self.loads.entry(host).or_default() += 1;
    }

    /// Completes a reading. `nodes`: the nodes attached to this switch, ascending.
    pub(crate) fn read(&mut self, reading: HotReading, nodes: &[HostId]) -> HotReading {
        let of_node = |node: &HostId| (*node, self.loads.get(node).copied().unwrap_or(0));
        let loads = nodes.iter().map(of_node).collect();
        let pipe = self.pipe.as_mut().map(HashPipe::read).unwrap_or_default();
        HotReading { loads, ..reading }.with_candidates(&pipe, self.config.keys_max)
    }
}
