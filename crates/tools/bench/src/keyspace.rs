//! Keyspaces of a lab, as the bench's clients are configured for them.

use crate::error::{BenchError, Result};
use crate::lab::Size;
use nicekv_client::Keyspace;
use nicekv_lab::topology::WIRE_PORT;
use nicekv_proto::KeyspaceId;
use nicekv_proto::placement::{KeyspaceDefaults, RingsBase, Vrings, parse_keyspaces};

/// Partitions of the keyspace that is replicated by chains.
const CHAINS: u32 = 64;

/// How puts reach all replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Replicated {
    /// By a primary
    #[default]
    Multicast,
    /// From one to the next
    Chain,
}

impl Replicated {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Multicast => "multicast",
            Self::Chain => "chain",
        }
    }

    /// The lab's `--keyspace` option; `None` for the default keyspace.
    pub(crate) fn keyspace(self) -> Option<String> {
        match self {
            Self::Multicast => None,
            Self::Chain => Some(format!("chains=id=1,replication=chain,partitions={CHAINS}")),
        }
    }

    /// The keyspace as clients of a lab of this size know it.
    pub(crate) fn known(self, size: Size) -> Result<Keyspace> {
        match self.keyspace() {
            None => Ok(Vrings::on_network(WIRE_PORT).into()),
            Some(text) => known(&text, size, CHAINS),
        }
    }
}

/// The keyspace of a `--keyspace` option, in a lab of this size, with this number of partitions.
pub(crate) fn known(text: &str, size: Size, partitions: u32) -> Result<Keyspace> {
    let (replicas, rings) = (size.replicas.into(), RingsBase::Network);
    let defaults = KeyspaceDefaults { id: KeyspaceId(1), replicas, partitions, rings };
    let specs = parse_keyspaces([text], &defaults);
    let specs = specs.map_err(|error| BenchError::Failed(error.to_string()))?;
    let spec = specs.first().ok_or_else(|| BenchError::Failed("no keyspace".into()))?;
    let (id, replication, order, is_hot) = (spec.id, spec.replication(), spec.order, spec.is_hot());
    Ok(Keyspace { id, replication, order, is_hot, ..spec.vrings(WIRE_PORT).into() })
}
