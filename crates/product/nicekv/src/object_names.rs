//! What names of objects need, as a target lists it when they have adopted a round of garbage collection (P8).

use crate::logs::{events::Event, watch::emit};
use futures_executor::block_on;
use log::Level;
use nicekv_client::Scan;
use nicekv_client::facade::{Client, ClientError, Listed};
use nicekv_metadata::{ClusterInfo, KeyspaceInfo};
use nicekv_objects::{Manifest, ManifestError};
use nicekv_operator::client::{client_at, failed};
use nicekv_operator::groups::cluster;
use nicekv_proto::chunk::{ChunkId, Round};
use nicekv_proto::scan::ScanWants;
use nicekv_runtime::chunks::ListNames;
use nicekv_runtime::control_plane::AdminRequest;
use nicekv_runtime::new_client_id;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Parts of a keyspace that are asked for at a time.
const PIECES_MAX: usize = 4;

/// Asks the metadata service where names are, and them from `address`, for the node of this name.
pub(crate) fn of_names(node: String, metadata: Vec<SocketAddrV4>, address: Ipv4Addr) -> ListNames {
    let mut said = None;
    Box::new(move |round, needs| {
        let Some(info) = cluster(&metadata, &AdminRequest::ClusterInfo) else { return false };
        // What comes into being later on has adopted a later round, or this one, from the beginning.
        let is_adopted = |info: &ClusterInfo| {
            info.chunks.as_ref().is_some_and(|chunks| Round(chunks.round) == round && chunks.is_adopted)
        };
        is_adopted(&info) && {
            let mut names = info.keyspaces.iter().filter(|keyspace| keyspace.chunks.is_some());
            names.all(|keyspace| match list(keyspace, info.port, address, needs) {
                Ok(is_whole) => is_whole,
                Err(reason) => {
                    // Again and again until it is mended: told once.
                    if said.replace(round) != Some(round) {
                        let event = Event::new(Level::Warn, "names-not-listed").with("round", round.0);
                        emit("node", &node, event.with("reason", reason.as_str()));
                    }
                    false
                }
            })
        }
    })
}

/// Hands over what a keyspace's names need. Whether somebody has wanted to know all of it.
fn list(
    keyspace: &KeyspaceInfo,
    port: u16,
    address: Ipv4Addr,
    needs: &mut dyn FnMut(Vec<ChunkId>) -> bool,
) -> Result<bool, String> {
    let id = new_client_id().map_err(|error| error.to_string())?;
    let client = client_at(address, keyspace, port, id).map_err(|failure| failure.to_string())?;
    block_on(async {
        let mut scan = Scan::new(ScanWants::Values, None);
        while !scan.is_done() {
            let pieces = client.scan(&mut scan, PIECES_MAX).await.map_err(told)?;
            for listed in pieces.listed {
                if !needs(chunks_of(&client, listed).await?) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    })
}

/// What an object is made of. A manifest that is too long to be listed is got: what has become of it since needs what it needs now, or is newer than the round.
async fn chunks_of(client: &Client, Listed { key, value }: Listed) -> Result<Vec<ChunkId>, String> {
    let value = match value {
        Some(value) => Some(value),
        None => client.get(&key).await.map_err(told)?.map(|value| value.bytes),
    };
    match value.map(|value| Manifest::decode(&value)) {
        Some(Ok(manifest)) => Ok(manifest.chunks),
        None | Some(Err(ManifestError::NotOurs)) => Ok(Vec::new()),
        // It may need something: nothing is deleted.
        Some(Err(error)) => Err(format!("{:?}: {error}", key.escape_ascii().to_string())),
    }
}

fn told(error: ClientError) -> String {
    failed(error).to_string()
}
