//! Native clients of a keyspace, as commands use them.

use crate::admin::{ADMIN_TIMEOUT, answer};
use crate::discovery::{self, EndpointArguments, Purpose};
use crate::failure::Failure;
use crate::problems::problems;
use futures_executor::block_on;
use nicekv_client::facade::{Client, ClientError};
use nicekv_client::{Addressing, Keyspace, OperationError};
use nicekv_metadata::{ClusterInfo, KeyspaceInfo, Status};
use nicekv_proto::{ClientId, KeyOrder, KeyspaceId};
use nicekv_runtime::control_plane::AdminRequest;
use nicekv_runtime::{Stop, admin, new_client_id, start_client_as};
use std::net::{Ipv4Addr, SocketAddrV4};

/// The keyspace and the cluster that a command uses.
#[derive(clap::Args)]
pub struct TargetArguments {
    /// Keyspace, by name or number [default: 0]
    #[arg(long, value_name = "NAME", default_value = "0", hide_default_value = true)]
    pub keyspace: String,
    #[command(flatten)]
    pub endpoint: EndpointArguments,
}

/// The settings of a keyspace that native clients need.
pub fn known_to_clients(keyspace: &KeyspaceInfo, port: u16) -> Keyspace {
    Keyspace {
        id: KeyspaceId(keyspace.id),
        replication: keyspace.replication(),
        order: keyspace.order(),
        partition_bits: Some(keyspace.partition_bits),
        is_hot: keyspace.hot,
        holds_objects: keyspace.chunks.is_some(),
        addressing: if keyspace.by_vnode { Addressing::Vnode } else { Addressing::Ring },
        ..keyspace.vrings(port).into()
    }
}

/// A client of a keyspace.
pub fn client_for(known: &KeyspaceInfo, port: u16, id: ClientId) -> Result<Client, Failure> {
    client_at(Ipv4Addr::UNSPECIFIED, known, port, id)
}

/// A client that is bound to an address of this host.
pub fn client_at(
    address: Ipv4Addr,
    known: &KeyspaceInfo,
    port: u16,
    id: ClientId,
) -> Result<Client, Failure> {
    let keyspace = Keyspace { partition_bits: None, ..known_to_clients(known, port) };
    let (client, _) = start_client_as(id, &Stop::new(), address, keyspace).map_err(Failure::environment)?;
    Ok(client.with_keyspace(keyspace.id))
}

/// The failure of a command. Exit code 2 if the request was refused before it was sent, for example
/// because the key is too long; otherwise 1.
pub fn failed(error: ClientError) -> Failure {
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

pub fn with_client(
    arguments: &TargetArguments,
    purpose: Purpose,
    operate: impl AsyncFnOnce(Client) -> Result<(), Failure>,
) -> Result<(), Failure> {
    with_checked_client(arguments, purpose, |_| Ok(()), operate)
}

/// The same as `with_client`, after a check of the keyspace.
pub fn with_checked_client(
    arguments: &TargetArguments,
    purpose: Purpose,
    check: impl FnOnce(&KeyspaceInfo) -> Result<(), Failure>,
    operate: impl AsyncFnOnce(Client) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let id = new_client_id().map_err(Failure::environment)?;
    let Connected { client, known, endpoint } = connected(arguments, id, purpose)?;
    check(&known)?;
    block_on(operate(client)).map_err(|failure| match failure {
        Failure::NoAnswer(line) => Failure::Operation(format!("{line}; {}", why_no_answer(&endpoint))),
        failure => failure,
    })
}

/// Why a request was not answered, according to the metadata service.
fn why_no_answer(endpoint: &[SocketAddrV4]) -> String {
    let status = match admin::ask(endpoint, &AdminRequest::Status, ADMIN_TIMEOUT) {
        Ok(json) => serde_json::from_slice::<Status>(&json),
        Err(none) => return format!("{none}; without a leader the nodes' leases expire and gets stop"),
    };
    let wrong = status.map(|status| problems(&status)).unwrap_or_default();
    match wrong.split_first() {
        None => {
            "`nicekv status` shows no problem; check that this host has a route to the virtual rings".into()
        }
        Some((worst, [])) => format!("WRONG: {worst}"),
        Some((worst, others)) => {
            format!("WRONG: {worst} (`nicekv status` shows {} more)", others.len())
        }
    }
}

/// A client of a keyspace, with a new id.
pub fn client_of(arguments: &TargetArguments, id: ClientId, purpose: Purpose) -> Result<Client, Failure> {
    Ok(client_with_order(arguments, id, purpose)?.0)
}

/// The same, with the order in which the keyspace's keys are partitioned.
pub fn client_with_order(
    arguments: &TargetArguments,
    id: ClientId,
    purpose: Purpose,
) -> Result<(Client, KeyOrder), Failure> {
    let Connected { client, known, .. } = connected(arguments, id, purpose)?;
    Ok((client, known.order()))
}

/// A client of a keyspace, and the metadata service of its cluster.
struct Connected {
    client: Client,
    known: KeyspaceInfo,
    /// Addresses of the metadata service.
    endpoint: Vec<SocketAddrV4>,
}

fn connected(arguments: &TargetArguments, id: ClientId, purpose: Purpose) -> Result<Connected, Failure> {
    let endpoint = discovery::find(&arguments.endpoint, purpose)?;
    let info: ClusterInfo = answer(&endpoint, &AdminRequest::ClusterInfo)?;
    let known = keyspace(&info, &arguments.keyspace)?.clone();
    Ok(Connected { client: client_for(&known, info.port, id)?, known, endpoint })
}

pub fn keyspace<'a>(info: &'a ClusterInfo, name: &str) -> Result<&'a KeyspaceInfo, Failure> {
    let by_name = info.keyspaces.iter().find(|keyspace| keyspace.name == name);
    let found = by_name.or_else(|| name.parse().ok().and_then(|id| info.keyspace(id)));
    found.ok_or_else(|| {
        let names = info.keyspaces.iter().map(|keyspace| keyspace.name.as_str()).collect::<Vec<_>>();
        Failure::Environment(format!("there is no keyspace {name:?}; the keyspaces are {}", names.join(", ")))
    })
}
