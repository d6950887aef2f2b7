//! Requests to the metadata service, and flags that several commands share.

use crate::discovery::EndpointArguments;
use crate::failure::Failure;
use nicekv_metadata::Refused;
use nicekv_runtime::admin::{self, NoLeader};
use nicekv_runtime::control_plane::AdminRequest;
use serde::de::DeserializeOwned;
use std::net::SocketAddrV4;
use std::time::Duration;

/// Timeout of a request to the metadata service.
pub const ADMIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between attempts to start a change while another one is being persisted.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// Attempts to start a change.
const BUSY_TRIES_MAX: usize = 50;

/// Flags of commands that list something.
#[derive(clap::Args)]
pub struct ListArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub endpoint: EndpointArguments,
}

/// Flags of commands that change keyspaces or partitions.
#[derive(clap::Args)]
pub struct ChangeArguments {
    /// Show what would happen without changing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Return without waiting until the change is done
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub endpoint: EndpointArguments,
}

pub fn ask(endpoint: &[SocketAddrV4], request: &AdminRequest) -> Result<Vec<u8>, Failure> {
    admin::ask(endpoint, request, ADMIN_TIMEOUT).map_err(|none| no_leader(&none))
}

/// Sends a request, and decodes the answer.
pub fn answer<T: DeserializeOwned>(endpoint: &[SocketAddrV4], request: &AdminRequest) -> Result<T, Failure> {
    serde_json::from_slice(&ask(endpoint, request)?).map_err(Failure::environment)
}

/// Requests a change. While another change is being persisted, repeats the request.
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
        "{none}; check that it is running and that the endpoint is the one it printed after endpoint=. Without a leader, gets stop when the nodes' leases expire"
    ))
}
