//! What a bench's clients know of a keyspace that its lab has been told of.

use crate::error::{BenchError, Result};
use crate::lab::Size;
use nicekv_client::Keyspace;
use nicekv_lab::topology::WIRE_PORT;
use nicekv_placement::{KeyspaceDefaults, RingsBase, parse_keyspaces};
use nicekv_wire::KeyspaceId;

/// The keyspace of this text, in a lab of this size whose partitions are so many.
pub(crate) fn known(text: &str, size: Size, partitions: u32) -> Result<Keyspace> {
    let (replicas, rings) = (size.replicas.into(), RingsBase::Network);
    let defaults = KeyspaceDefaults { id: KeyspaceId(1), replicas, partitions, rings };
    let specs = parse_keyspaces([text], &defaults);
    let specs = specs.map_err(|error| BenchError::Failed(error.to_string()))?;
    let spec = specs.first().ok_or_else(|| BenchError::Failed("no keyspace".into()))?;
    let (id, replication, order) = (spec.id, spec.replication(), spec.order);
    Ok(Keyspace { id, replication, order, ..spec.vrings(WIRE_PORT).into() })
}
