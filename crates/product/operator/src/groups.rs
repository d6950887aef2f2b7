//! Groups of storage targets, as the metadata service reports them.

use nicekv_metadata::{ChunkInfo, ClusterInfo, TargetReport};
use nicekv_objects::Progress;
use nicekv_runtime::admin;
use nicekv_runtime::chunks::Known;
use nicekv_runtime::control_plane::AdminRequest;
use std::net::SocketAddrV4;
use std::time::Duration;

const ASK_TIMEOUT: Duration = Duration::from_secs(2);

/// Asks the metadata service for the groups; `None` if it does not answer, or has no groups.
pub fn ask(endpoint: &[SocketAddrV4]) -> Option<Known> {
    Known::of(&ask_for_groups(endpoint)?)
}

/// Reports a target's progress to the metadata service; the answer has the groups.
pub fn report(endpoint: &[SocketAddrV4], node: u16, progress: &Progress) -> Option<Known> {
    // `undecided` chunks, which may be garbage, are not reported: the next round decides about
    // them.
    let Progress { version, has_moved, passes, lacking, unsettled, undecided: _, swept, chunks, bytes } =
        *progress;
    let report = TargetReport {
        node,
        version: version.0,
        has_moved,
        under_replicated: lacking as u64,
        unsettled: if passes == 0 { chunks.max(1) as u64 } else { unsettled as u64 },
        swept: swept.0,
        chunks: chunks as u64,
        bytes,
    };
    Known::of(&cluster(endpoint, &AdminRequest::Target(report))?.chunks?)
}

pub fn ask_for_groups(endpoint: &[SocketAddrV4]) -> Option<ChunkInfo> {
    cluster(endpoint, &AdminRequest::ClusterInfo)?.chunks
}

/// The answer to a request for the state of the cluster; `None` if the metadata service does not
/// answer.
pub fn cluster(endpoint: &[SocketAddrV4], request: &AdminRequest) -> Option<ClusterInfo> {
    let json = admin::ask(endpoint, request, ASK_TIMEOUT).ok()?;
    serde_json::from_slice(&json).ok()
}
