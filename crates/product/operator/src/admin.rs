//! Requests to the metadata service, and the flags that commands which make them share.

use crate::discovery::EndpointArguments;
use crate::failure::Failure;
use nicekv_metadata::Refused;
use nicekv_runtime::admin::{self, NoLeader};
use nicekv_runtime::control_plane::AdminRequest;
use serde::de::DeserializeOwned;
use std::net::SocketAddrV4;
use std::time::Duration;

/// For an answer of the metadata service.
pub const ADMIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two tries to begin a change while another one is being written down.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// Tries to begin a change.
const BUSY_TRIES_MAX: usize = 50;

/// `nicekv node list`, `nicekv keyspace list`
#[derive(clap::Args)]
pub struct ListArguments {
    /// For programs
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub endpoint: EndpointArguments,
}

/// What commands that change keyspaces or partitions have in common.
#[derive(clap::Args)]
pub struct ChangeArguments {
    /// Show what would follow, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not wait until all of it is done
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub endpoint: EndpointArguments,
}

pub fn ask(endpoint: &[SocketAddrV4], request: &AdminRequest) -> Result<Vec<u8>, Failure> {
    admin::ask(endpoint, request, ADMIN_TIMEOUT).map_err(|none| no_leader(&none))
}

/// The same, as what it is.
pub fn answer<T: DeserializeOwned>(endpoint: &[SocketAddrV4], request: &AdminRequest) -> Result<T, Failure> {
    serde_json::from_slice(&ask(endpoint, request)?).map_err(Failure::environment)
}

/// What is refused changes nothing; while another change is being written down, it is asked again.
pub fn ask_for<P: DeserializeOwned>(endpoint: &[SocketAddrV4], request: &AdminRequest) -> Result<P, Failure> {
    let busy = Refused::Busy.to_string();
    let asked = || answer::<Result<P, String>>(endpoint, request);
    for _ in 1..BUSY_TRIES_MAX {
        match asked()? {
            Err(refused) if refused == busy => std::thread::sleep(BUSY_PAUSE),
            answer => return answer.map_err(Failure::Environment),
        }
    }
    asked()?.map_err(Failure::Environment)
}

pub fn no_leader(none: &NoLeader) -> Failure {
    Failure::Environment(format!(
        "{none}; is it running, and is that what it printed after endpoint=? Without one that leads, gets stop when the nodes' leases end"
    ))
}
