//! Which keys could be hot, and where requests go: what the controller reads of a switch (KVSwitch §4.2.5, §4.2.6).
//!
//! ```text
//!   get, update, of a keyspace that spreads its hot keys ─┬─ its key has an entry ─▶ counted there
//!     that leaves for a host of this switch               ├─ it has none ──────────▶ HashPipe
//!                                                         └─ each host that it leaves for: loads
//! ```
//!
//! What leaves by a trunk is counted where it ends. Requests of entries and loads are never reset and read as differences, so that it costs nothing to lose a reading;
//! candidates are since the last one.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_hotkeys::{Config, ConfigError, HashPipe, HotKey, Reading};
use serde::{Deserialize, Serialize};

use crate::HostId;

/// What a switch counts, and how. Until it is told, nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotConfig {
    /// Keyspaces that spread their hot keys; none: nothing is counted.
    pub keyspaces: Vec<u16>,
    /// K: slots of the HashPipe, and candidates that are told.
    pub keys_max: u32,
    /// d: stages of the HashPipe.
    pub stages: u32,
    /// Makes its hash functions; nobody's to guess.
    pub seed: u64,
}

impl Default for HotConfig {
    fn default() -> Self {
        let Config { keys_max, stages, .. } = Config::default();
        Self { keyspaces: Vec::new(), keys_max, stages, seed: 0 }
    }
}

impl HotConfig {
    /// The first parameter that cannot be.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.parameters().check()
    }

    fn parameters(&self) -> Config {
        Config { keys_max: self.keys_max, stages: self.stages, ..Config::default() }
    }

    /// What the HashPipe depends on: while that stays, it goes on counting.
    pub fn pipe(&self) -> (u32, u32, u64) {
        (self.keys_max, self.stages, self.seed)
    }
}

/// Requests of an entry since it was installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotCount {
    /// Which.
    pub instance: u64,
    /// Gets and updates.
    pub requests: u64,
    /// Of these, gets that the switch has answered itself (H9).
    pub answered: u64,
}

/// Requests of a key that has no entry since the last reading, as far as the HashPipe knows of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotCandidate {
    /// Its keyspace.
    pub keyspace: u16,
    /// Its digest.
    pub digest: [u8; 16],
    /// Gets and updates.
    pub count: u64,
}

/// What a switch says of hot keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotReading {
    /// The newest instance that was ever installed.
    pub newest: u64,
    /// Of each entry, ascending by instances. While an entry is there its count never falls.
    pub entries: Vec<HotCount>,
    /// At most K, the most asked first.
    pub candidates: Vec<HotCandidate>,
    /// Requests since the last reading of keys that are not among the candidates.
    pub dropped: u64,
    /// Requests that have left for each node at this switch, ascending by nodes. They never fall while the switch runs.
    pub loads: Vec<(HostId, u64)>,
}

impl HotReading {
    /// Adds what a HashPipe had; beyond K keys, which processors may have together, the least asked are dropped.
    #[must_use]
    pub fn with_candidates(mut self, reading: &Reading, keys_max: u32) -> Self {
        let candidate = |&(key, count): &(HotKey, u64)| HotCandidate {
            keyspace: key.keyspace.0,
            digest: key.digest.0,
            count,
        };
        let told = reading.counts.len().min(keys_max as usize);
        let (told, others) = reading.counts.split_at(told);
        self.candidates = told.iter().map(candidate).collect();
        self.dropped = reading.dropped + others.iter().map(|(_, count)| count).sum::<u64>();
        self
    }
}

/// The counts of the model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detection {
    config: HotConfig,
    /// Of the configuration: ascending.
    keyspaces: Vec<u16>,
    /// Once it is configured.
    pipe: Option<HashPipe>,
    /// At most as many as there are names of hosts.
    loads: BTreeMap<HostId, u64>,
}

impl Detection {
    /// Changes nothing if it is the same.
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

    /// Whether requests of some keyspace are counted.
    pub(crate) fn is_on(&self) -> bool {
        !self.keyspaces.is_empty()
    }

    /// Whether requests of the keyspace are counted.
    pub(crate) fn has(&self, keyspace: u16) -> bool {
        self.is_on() && self.keyspaces.binary_search(&keyspace).is_ok()
    }

    /// A request of a key without an entry.
    pub(crate) fn count(&mut self, key: HotKey) {
        if let Some(pipe) = &mut self.pipe {
            pipe.count(key);
        }
    }

    /// A request leaves for a host.
    pub(crate) fn load(&mut self, host: HostId) {
        *self.loads.entry(host).or_default() += 1;
    }

    /// `nodes`: those at this switch, ascending.
    pub(crate) fn read(&mut self, reading: HotReading, nodes: &[HostId]) -> HotReading {
        let of_node = |node: &HostId| (*node, self.loads.get(node).copied().unwrap_or(0));
        let loads = nodes.iter().map(of_node).collect();
        let pipe = self.pipe.as_mut().map(HashPipe::read).unwrap_or_default();
        HotReading { loads, ..reading }.with_candidates(&pipe, self.config.keys_max)
    }
}
