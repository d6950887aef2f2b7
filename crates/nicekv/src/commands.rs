//! Client and admin commands.

use crate::discovery::{self, EndpointArguments};
use crate::failure::Failure;
use futures_executor::block_on;
use nicekv_client::facade::{Client, ClientError};
use nicekv_metadata::{ClusterInfo, Status};
use nicekv_runtime::control_plane::AdminRequest;
use nicekv_runtime::{Stop, admin, start_client};
use nicekv_wire::Expiry;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// For an answer of the metadata service.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(5);

/// `nicekv put`
#[derive(clap::Args)]
pub(crate) struct PutArguments {
    /// 1 to 256 bytes
    key: String,
    /// At most 1024 bytes
    value: String,
    #[command(flatten)]
    endpoint: EndpointArguments,
}

/// `nicekv get`, `nicekv delete`
#[derive(clap::Args)]
pub(crate) struct KeyArguments {
    /// 1 to 256 bytes
    key: String,
    #[command(flatten)]
    endpoint: EndpointArguments,
}

/// `nicekv status`
#[derive(clap::Args)]
pub(crate) struct StatusArguments {
    /// For programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    endpoint: EndpointArguments,
}

pub(crate) fn put(arguments: &PutArguments) -> Result<(), Failure> {
    with_client(&arguments.endpoint, async |client| {
        client
            .put(arguments.key.as_bytes(), arguments.value.as_bytes(), Expiry::Never)
            .await
            .map_err(failed)?;
        Ok(())
    })
}

pub(crate) fn get(arguments: &KeyArguments) -> Result<(), Failure> {
    with_client(&arguments.endpoint, async |client| {
        let value = client.get(arguments.key.as_bytes()).await.map_err(failed)?;
        let value = value.ok_or_else(|| Failure::Operation(format!("{:?} has no value", arguments.key)))?;
        print(&[&value.bytes, b"\n".as_slice()].concat())
    })
}

pub(crate) fn delete(arguments: &KeyArguments) -> Result<(), Failure> {
    with_client(&arguments.endpoint, async |client| {
        let existed = client.delete(arguments.key.as_bytes()).await.map_err(failed)?;
        print(if existed { b"deleted\n" } else { b"had no value\n" })
    })
}

pub(crate) fn status(arguments: &StatusArguments) -> Result<(), Failure> {
    let endpoint = discovery::find(&arguments.endpoint)?;
    let json = ask(endpoint, AdminRequest::Status)?;
    let mut text = if arguments.json {
        String::from_utf8_lossy(&json).into_owned()
    } else {
        describe(&serde_json::from_slice(&json).map_err(Failure::environment)?).join("\n")
    };
    text.push('\n');
    print(text.as_bytes())
}

fn describe(status: &Status) -> Vec<String> {
    let Status { cluster, term, why_not_ready, nodes, partitions, tables, .. } = status;
    let readiness = why_not_ready.as_ref().map_or("ready".into(), |reason| format!("not ready: {reason}"));
    let mut lines = vec![format!("cluster {cluster} term {term} {readiness}")];
    lines.extend(nodes.iter().map(|node| format!("node {} {} {:?}", node.name, node.address, node.state)));
    lines.extend(partitions.iter().map(|partition| {
        let members = partition.members.iter().map(|member| format!("{}={:?}", member.name, member.state));
        let members = members.collect::<Vec<_>>().join(" ");
        let (id, epoch, primary, state) = (partition.id, partition.epoch, partition.primary, partition.state);
        format!("partition {id} epoch {epoch} {state:?} primary {primary} {members}")
    }));
    lines.extend(tables.iter().map(|table| {
        format!("table {} {}/{} entries, {} hits", table.name, table.entries, table.capacity, table.hits)
    }));
    lines
}

/// A reader that has seen enough is no failure.
fn print(bytes: &[u8]) -> Result<(), Failure> {
    match std::io::stdout().write_all(bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::environment(error)),
        _ => Ok(()),
    }
}

fn ask(endpoint: SocketAddrV4, request: AdminRequest) -> Result<Vec<u8>, Failure> {
    admin::ask(endpoint, request, ADMIN_TIMEOUT).map_err(|error| {
        Failure::Environment(format!("no answer from the metadata service at {endpoint}: {error}"))
    })
}

fn with_client(
    arguments: &EndpointArguments,
    operate: impl AsyncFnOnce(Client) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let endpoint = discovery::find(arguments)?;
    let info = ask(endpoint, AdminRequest::ClusterInfo)?;
    let info: ClusterInfo = serde_json::from_slice(&info).map_err(Failure::environment)?;
    let (client, _) =
        start_client(&Stop::new(), Ipv4Addr::UNSPECIFIED, info.vrings()).map_err(Failure::environment)?;
    block_on(operate(client))
}

/// Too long a key is the caller's mistake, all else went wrong on the way.
pub(crate) fn failed(error: ClientError) -> Failure {
    match error {
        ClientError::Refused(_) => Failure::environment(error),
        ClientError::Failed(_) | ClientError::QueueFull { .. } | ClientError::Stopped => {
            Failure::operation(error)
        }
    }
}
