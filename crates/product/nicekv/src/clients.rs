//! Native clients of a keyspace, for whoever has asked where keyspaces are.

use crate::failure::Failure;
use nicekv_client::facade::{Client, ClientError};
use nicekv_client::{Keyspace, OperationError};
use nicekv_metadata::KeyspaceInfo;
use nicekv_proto::{ClientId, KeyspaceId};
use nicekv_runtime::{Stop, start_client_as};
use std::net::Ipv4Addr;

/// What a client needs of a keyspace.
pub(crate) fn known_to_clients(keyspace: &KeyspaceInfo, port: u16) -> Keyspace {
    Keyspace {
        id: KeyspaceId(keyspace.id),
        replication: keyspace.replication(),
        order: keyspace.order(),
        partition_bits: Some(keyspace.partition_bits),
        is_hot: keyspace.hot,
        holds_objects: keyspace.chunks.is_some(),
        ..keyspace.vrings(port).into()
    }
}

/// A client of this keyspace.
pub(crate) fn client_for(known: &KeyspaceInfo, port: u16, id: ClientId) -> Result<Client, Failure> {
    client_at(Ipv4Addr::UNSPECIFIED, known, port, id)
}

/// The same, at an address of this host.
pub(crate) fn client_at(
    address: Ipv4Addr,
    known: &KeyspaceInfo,
    port: u16,
    id: ClientId,
) -> Result<Client, Failure> {
    let keyspace = Keyspace { partition_bits: None, ..known_to_clients(known, port) };
    let (client, _) = start_client_as(id, &Stop::new(), address, keyspace).map_err(Failure::environment)?;
    Ok(client.with_keyspace(keyspace.id))
}

/// Too long a key is the caller's mistake, all else went wrong on the way.
pub(crate) fn failed(error: ClientError) -> Failure {
    match error {
        ClientError::Refused(_) => Failure::environment(error),
        ClientError::Failed(OperationError::TimedOut | OperationError::OutcomeUnknown) => {
            Failure::NoAnswer(error.to_string())
        }
        ClientError::Failed(_) | ClientError::QueueFull { .. } | ClientError::Stopped => {
            Failure::operation(error)
        }
    }
}
