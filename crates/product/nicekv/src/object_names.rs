//! Lists the chunks that objects need, for a node's storage target, once the cluster has adopted a
//! round of garbage collection (P8).

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

/// Pieces of a keyspace scanned at a time.
const PIECES_MAX: usize = 4;

/// Creates the function with which a node's target lists needed chunks. It finds the keyspaces of
/// objects at the metadata service, and scans them from `address`.
pub(crate) fn lister(node: String, metadata: Vec<SocketAddrV4>, address: Ipv4Addr) -> ListNames {
    let mut logged = None;
    Box::new(move |round, needs| {
        let Some(info) = cluster(&metadata, &AdminRequest::ClusterInfo) else { return false };
        // Partitions created after the adoption begin with this round or a later one.
        let is_adopted = |info: &ClusterInfo| {
            info.chunks.as_ref().is_some_and(|chunks| Round(chunks.round) == round && chunks.is_adopted)
        };
        is_adopted(&info) && {
            let mut names = info.keyspaces.iter().filter(|keyspace| keyspace.chunks.is_some());
            names.all(|keyspace| match list(keyspace, info.port, address, needs) {
                Ok(is_whole) => is_whole,
                Err(reason) => {
                    // Logged once per round.
                    if logged.replace(round) != Some(round) {
                        let event = Event::new(Level::Warn, "names-not-listed").with("round", round.0);
                        emit("node", &node, event.with("reason", reason.as_str()));
                    }
                    false
                }
            })
        }
    })
}

/// Passes the chunks of every object to `needs`. Returns false if `needs` stops the listing.
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
            let pieces = client.scan(&mut scan, PIECES_MAX).await.map_err(in_words)?;
            for listed in pieces.listed {
                if !needs(chunks_of(&client, listed).await?) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    })
}

/// The chunks of an object. A manifest that is too long for a listing is read by a get. If the
/// object has changed since the listing, the get returns the current manifest, or one that is newer
/// than the round.
async fn chunks_of(client: &Client, Listed { key, value }: Listed) -> Result<Vec<ChunkId>, String> {
    let value = match value {
        Some(value) => Some(value),
        None => client.get(&key).await.map_err(in_words)?.map(|value| value.bytes),
    };
    match value.map(|value| Manifest::decode(&value)) {
        Some(Ok(manifest)) => Ok(manifest.chunks),
        None | Some(Err(ManifestError::NotOurs)) => Ok(Vec::new()),
        // An unreadable manifest may reference chunks, so this round must delete nothing.
        Some(Err(error)) => Err(format!("{:?}: {error}", key.escape_ascii().to_string())),
    }
}

fn in_words(error: ClientError) -> String {
    failed(error).to_string()
}
