//! Specification of a keyspace: a set of keys with its own settings and its own pair of vrings.
//! Operators write it as text:
//!
//! ```text
//!   sessions=replication=quorum,write-set=2,replicas=3,partitions=64,unicast=10.12.0.0/16,multicast=10.13.0.0/16
//!   └ name   └ settings, in any order; omitted ones have the cluster's defaults
//!   orders=range,chain                 a value that no other setting has needs no name
//! ```
//!
//! A specification that has passed [`KeyspaceSpec::check`] is consistent in itself, a list that has
//! passed [`check_keyspaces`] as a whole. Its text is canonical: all settings, in a fixed order.
//!
//! Configured keyspaces have numbers below [`KEYSPACES_MAX`], keyspaces created by a command higher
//! ones ([`CREATED_FIRST`]), never reused. All ring pairs are known in advance ([`ring_pairs`]), so
//! that switches drop requests for keyspaces that they do not know yet.

mod settings;

pub use settings::KEYSPACE_SETTINGS;

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv4Addr;

use crate::limits::MEMBERS_MAX;
use crate::quorum::{Quorum, QuorumError};
use crate::{KeyOrder, KeyspaceId, MatchRange, Replication};
use thiserror::Error;

use settings::Settings;

use crate::placement::{CREATED_FIRST, KEYSPACES_MAX, PARTITION_BITS_MAX, Partitioning, RingsBase, Vrings};

/// Most partitions of one keyspace.
pub const KEYSPACE_PARTITIONS_MAX: u32 = 1 << PARTITION_BITS_MAX;
/// Most partitions of a cluster: each takes at least one entry in each table of a switch.
pub const PARTITIONS_MAX: u32 = 4096;
/// Longest name of a keyspace.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 64;

/// Replication mode, as far as an operator chooses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// A primary orders all puts (multicast two-phase commit).
    #[default]
    Multicast,
    /// Any `write_set` replicas hold a put; no replica orders them (R14).
    Quorum {
        /// Write quorum size (k).
        write_set: u8,
    },
    /// Chain replication: the head orders all puts, each replica forwards them, the tail answers
    /// (C1 to C10).
    Chain,
}

/// Load balancing across nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadBalancing {
    /// Partitions stay where the ring places them.
    #[default]
    None,
    /// Partitions are moved, split and merged according to their load (TurboKV §5.1).
    Migrate,
    /// Hot keys are copied to other nodes, which answer gets in turn with the members (KVSwitch
    /// §4).
    Hot,
}

impl LoadBalancing {
    /// As written in a specification.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Migrate => "migrate",
            Self::Hot => "hot",
        }
    }
}

/// How the chunks of objects reach their targets (Replicast §III-E, §III-F).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkDelivery {
    /// One multicast to all of them (Replicast-M).
    Multicast,
    /// One unicast after the other (Replicast-H).
    Unicast,
}

impl ChunkDelivery {
    /// As written in a specification.
    pub fn name(self) -> &'static str {
        match self {
            Self::Multicast => "multicast",
            Self::Unicast => "unicast",
        }
    }
}

/// Defaults of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyspaceDefaults {
    /// The next unused number.
    pub id: KeyspaceId,
    /// Replication factor (R).
    pub replicas: usize,
    /// Partition count.
    pub partitions: u32,
    /// Default location of rings.
    pub rings: RingsBase,
}

/// Default partition count in a cluster of this many nodes: about eight per node, so that load
/// spreads evenly.
pub fn partitions_for(nodes: usize) -> u32 {
    (8 * nodes).next_power_of_two() as u32
}

/// Parses the specifications of a cluster's keyspaces other than the default one. Each without an
/// id gets the next unused one.
///
/// # Errors
/// The first specification that is invalid.
pub fn parse_keyspaces<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    defaults: &KeyspaceDefaults,
) -> Result<Vec<KeyspaceSpec>, KeyspaceError> {
    let mut keyspaces: Vec<KeyspaceSpec> = Vec::new();
    for text in texts {
        let is_free = |id: &KeyspaceId| keyspaces.iter().all(|other| other.id != *id);
        let id = (defaults.id.0..).map(KeyspaceId).find(is_free).expect("ids outnumber the list");
        let spec = KeyspaceSpec::parse(text, &KeyspaceDefaults { id, ..*defaults })?;
        spec.check_configured()?;
        keyspaces.push(spec);
    }
    Ok(keyspaces)
}

/// A keyspace as specified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceSpec {
    /// Number in requests, never reused; 0 is the default keyspace.
    pub id: KeyspaceId,
    /// Name for people.
    pub name: String,
    /// Replication mode.
    pub protocol: Protocol,
    /// How keys map to match values.
    pub order: KeyOrder,
    /// Replication factor (R).
    pub replicas: usize,
    /// Initial partition count, a power of two.
    pub partitions: u32,
    /// Load balancing across nodes.
    pub balancing: LoadBalancing,
    /// Most keys of a partition before it is split; `None`: unlimited.
    pub partition_keys: Option<u64>,
    /// Most bytes of keys and values of a partition before it is split; `None`: unlimited.
    pub partition_bytes: Option<u64>,
    /// `Some` if the keyspace holds object names: how their chunks reach the targets.
    pub chunks: Option<ChunkDelivery>,
    /// Base of the unicast ring, a /16.
    pub unicast: Ipv4Addr,
    /// Base of the multicast ring, a /16.
    pub multicast: Ipv4Addr,
}

/// Why a list of keyspaces is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyspaceError {
    #[error("keyspace {name:?}: {reason}")]
    Refused { name: String, reason: Refusal },
    #[error("{keyspaces} keyspaces, allowed are 1 to {KEYSPACES_MAX}")]
    Count { keyspaces: usize },
    #[error("no keyspace has id 0, which serves requests that name no keyspace")]
    NoDefault,
    #[error("{partitions} partitions in all keyspaces together, the limit is {PARTITIONS_MAX}")]
    TooManyPartitions { partitions: u32 },
}

/// Why a specification is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("a name has 1 to {KEYSPACE_NAME_BYTES_MAX} characters, this one has {length}")]
    NameLength { length: usize },
    #[error("a name consists of letters, digits, '-', '_' and '.'")]
    NameCharacter,
    #[error("{setting:?} is no setting like replicas=3, nor range, hash, chain, multicast or quorum")]
    NoSetting { setting: String },
    #[error("there is no setting {setting:?}, only {}", settings::names())]
    UnknownSetting { setting: String },
    #[error("{setting} is given twice")]
    SaidTwice { setting: String },
    #[error("{setting} is {value:?}, but must be {expected}")]
    Value { setting: &'static str, value: String, expected: &'static str },
    #[error(
        "write-set belongs to quorum replication: with multicast or a chain every replica holds every put"
    )]
    WriteSetWithoutQuorum,
    #[error("quorum replication needs a write-set, 1 to the number of replicas")]
    QuorumWithoutWriteSet,
    #[error(transparent)]
    Quorum(#[from] QuorumError),
    #[error("{replicas} replicas, allowed are 1 to {MEMBERS_MAX}")]
    Replicas { replicas: usize },
    #[error("{replicas} replicas need at least as many nodes, there are {nodes}")]
    TooFewNodes { replicas: usize, nodes: usize },
    #[error("{partitions} partitions, allowed are powers of two up to {KEYSPACE_PARTITIONS_MAX}")]
    Partitions { partitions: u32 },
    #[error("balancing=migrate splits partitions, which quorum replication does not allow")]
    MigrateByQuorum,
    #[error("hot keys need multicast: {because}")]
    HotWithoutMulticast { because: &'static str },
    #[error("partition-keys and partition-bytes need balancing=migrate, which splits larger partitions")]
    LimitWithoutMigrate,
    #[error(
        "names of objects need multicast replication: their values are too long for chains, and a quorum does not order updates"
    )]
    ChunksWithoutMulticast,
    #[error("{ring} is not the base of a /16")]
    Ring { ring: Ipv4Addr },
    #[error("the ring {ring}/16 is used twice")]
    RingTwice { ring: Ipv4Addr },
    #[error("id {id} is above {}: `nicekv keyspace create` assigns higher ones", KEYSPACES_MAX - 1)]
    Id { id: KeyspaceId },
    #[error("id {id} belongs to another keyspace")]
    IdTwice { id: KeyspaceId },
    #[error("there is another keyspace of this name")]
    NameTwice,
}

impl KeyspaceSpec {
    /// The keyspace `default` without settings.
    pub fn of(defaults: &KeyspaceDefaults) -> Self {
        let KeyspaceDefaults { id, replicas, partitions, rings } = *defaults;
        let (unicast, multicast) = rings.rings(id);
        Self {
            id,
            name: "default".into(),
            protocol: Protocol::default(),
            order: KeyOrder::default(),
            replicas,
            partitions,
            balancing: LoadBalancing::None,
            partition_keys: None,
            partition_bytes: None,
            chunks: None,
            unicast,
            multicast,
        }
    }

    /// Parses `name` or `name=setting=value,…`, and checks it.
    ///
    /// # Errors
    /// Settings that are unknown or inconsistent, with the name of the keyspace.
    pub fn parse(text: &str, defaults: &KeyspaceDefaults) -> Result<Self, KeyspaceError> {
        let (name, settings) = text.split_once('=').unwrap_or((text, ""));
        let refused = |reason| KeyspaceError::Refused { name: name.into(), reason };
        let settings = Settings::parse(settings).map_err(refused)?;
        let spec = settings.complete(name, defaults).map_err(refused)?;
        spec.check()?;
        Ok(spec)
    }

    /// Checks the specification by itself.
    ///
    /// # Errors
    /// The first inconsistency.
    pub fn check(&self) -> Result<(), KeyspaceError> {
        self.refusal().map_err(|reason| self.refused(reason))
    }

    /// Checks that a configuration may use its number.
    ///
    /// # Errors
    /// The number is reserved for keyspaces created by a command.
    pub fn check_configured(&self) -> Result<(), KeyspaceError> {
        match self.id {
            id if id >= CREATED_FIRST => Err(self.refused(Refusal::Id { id })),
            _ => Ok(()),
        }
    }

    fn refused(&self, reason: Refusal) -> KeyspaceError {
        KeyspaceError::Refused { name: self.name.clone(), reason }
    }

    fn refusal(&self) -> Result<(), Refusal> {
        let Self { replicas, partitions, .. } = *self;
        let length = self.name.len();
        let is_named_by = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if length == 0 || length > KEYSPACE_NAME_BYTES_MAX {
            return Err(Refusal::NameLength { length });
        }
        if !self.name.bytes().all(is_named_by) {
            return Err(Refusal::NameCharacter);
        }
        if replicas == 0 || replicas > MEMBERS_MAX {
            return Err(Refusal::Replicas { replicas });
        }
        if let Protocol::Quorum { write_set } = self.protocol {
            Quorum::new(replicas as u8, write_set)?;
        }
        if !partitions.is_power_of_two() || partitions > KEYSPACE_PARTITIONS_MAX {
            return Err(Refusal::Partitions { partitions });
        }
        let migrates = self.balancing == LoadBalancing::Migrate;
        if migrates && matches!(self.protocol, Protocol::Quorum { .. }) {
            return Err(Refusal::MigrateByQuorum);
        }
        if self.balancing == LoadBalancing::Hot
            && let Some(because) = self.why_no_hot_keys()
        {
            return Err(Refusal::HotWithoutMulticast { because });
        }
        if !migrates && (self.partition_keys.is_some() || self.partition_bytes.is_some()) {
            return Err(Refusal::LimitWithoutMigrate);
        }
        if self.chunks.is_some() && self.protocol != Protocol::Multicast {
            return Err(Refusal::ChunksWithoutMulticast);
        }
        let is_inside = |ring: &Ipv4Addr| ring.octets()[2..] != [0, 0];
        if let Some(ring) = [self.unicast, self.multicast].into_iter().find(is_inside) {
            return Err(Refusal::Ring { ring });
        }
        if self.unicast == self.multicast {
            return Err(Refusal::RingTwice { ring: self.unicast });
        }
        Ok(())
    }

    /// Copies of a hot key need one replica that decides all ops of the key and answers for them:
    /// it pushes copies, and closes them before it decides an update (H3, H4).
    fn why_no_hot_keys(&self) -> Option<&'static str> {
        match self.protocol {
            Protocol::Multicast => None,
            Protocol::Quorum { .. } => {
                Some("with quorum replication no node orders a key's updates, so none could close its copies")
            }
            Protocol::Chain => Some("in a chain only the tail may answer gets, but the head decides updates"),
        }
    }

    /// Whether hot keys are copied, so that clients leave room for stamps.
    pub fn is_hot(&self) -> bool {
        self.balancing == LoadBalancing::Hot
    }

    /// The settings that nodes and clients need.
    ///
    /// # Panics
    /// If the specification was not checked.
    pub fn replication(&self) -> Replication {
        match self.protocol {
            Protocol::Multicast => Replication::Multicast,
            Protocol::Chain => Replication::Chain,
            Protocol::Quorum { write_set } => {
                Replication::Quorum(Quorum::new(self.replicas as u8, write_set).expect("checked"))
            }
        }
    }

    /// Its rings.
    pub fn vrings(&self, port: u16) -> Vrings {
        Vrings { unicast: self.unicast, multicast: self.multicast, port }
    }

    /// Ranges of the initial partitions.
    ///
    /// # Panics
    /// If the specification was not checked.
    pub fn ranges(&self) -> impl Iterator<Item = MatchRange> {
        let partitioning = Partitioning::new(self.partitions.ilog2() as u8).expect("checked");
        partitioning.all().map(move |partition| partitioning.range(partition))
    }
}

impl fmt::Display for KeyspaceSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, name, unicast, multicast, .. } = self;
        let settings = self.settings();
        write!(formatter, "{name}=id={id},{settings},unicast={unicast}/16,multicast={multicast}/16")
    }
}

impl KeyspaceSpec {
    /// The settings, separated by commas, as [`KeyspaceSpec::parse`] reads them after the name,
    /// without number and rings, which belong to the cluster.
    pub fn settings(&self) -> String {
        let Self { replicas, partitions, .. } = self;
        let replication = match self.protocol {
            Protocol::Multicast => "multicast".into(),
            Protocol::Chain => "chain".into(),
            Protocol::Quorum { write_set } => format!("quorum,write-set={write_set}"),
        };
        let partitioning = match self.order {
            KeyOrder::Hash => "hash",
            KeyOrder::Range => "range",
        };
        let mut settings = format!(
            "replication={replication},replicas={replicas},partitioning={partitioning},partitions={partitions}"
        );
        if self.balancing != LoadBalancing::None {
            settings += &format!(",balancing={}", self.balancing.name());
        }
        for (name, limit) in [("keys", self.partition_keys), ("bytes", self.partition_bytes)] {
            if let Some(limit) = limit {
                settings += &format!(",partition-{name}={limit}");
            }
        }
        if let Some(chunks) = self.chunks {
            settings += &format!(",chunks={}", chunks.name());
        }
        settings
    }
}

/// Checks a cluster's keyspaces, each by itself and against the others: names, numbers and rings
/// must be unique.
///
/// # Errors
/// The first inconsistency.
pub fn check_keyspaces(keyspaces: &[KeyspaceSpec], nodes: usize) -> Result<(), KeyspaceError> {
    if keyspaces.is_empty() || keyspaces.len() > KEYSPACES_MAX {
        return Err(KeyspaceError::Count { keyspaces: keyspaces.len() });
    }
    let (mut ids, mut names, mut rings) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for spec in keyspaces {
        spec.check()?;
        let replicas = spec.replicas;
        if replicas > nodes {
            return Err(spec.refused(Refusal::TooFewNodes { replicas, nodes }));
        }
        if !ids.insert(spec.id) {
            return Err(spec.refused(Refusal::IdTwice { id: spec.id }));
        }
        if !names.insert(&spec.name) {
            return Err(spec.refused(Refusal::NameTwice));
        }
        if let Some(ring) = [spec.unicast, spec.multicast].into_iter().find(|ring| !rings.insert(*ring)) {
            return Err(spec.refused(Refusal::RingTwice { ring }));
        }
    }
    if !ids.contains(&KeyspaceId::DEFAULT) {
        return Err(KeyspaceError::NoDefault);
    }
    let partitions = keyspaces.iter().map(|spec| spec.partitions).sum();
    if partitions > PARTITIONS_MAX {
        return Err(KeyspaceError::TooManyPartitions { partitions });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
