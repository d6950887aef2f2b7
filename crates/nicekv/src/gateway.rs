//! The RESP gateway of this process.

use crate::failure::Failure;
use nicekv_client::facade::Client;
use nicekv_runtime::Stop;
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;

/// Binds the address for Redis clients.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| {
        Failure::Environment(format!("cannot listen for Redis clients on {address}: {error}"))
    })
}

/// Serves Redis clients until `stop`.
pub(crate) fn start(listener: TcpListener, client: Client, stop: &Stop) -> JoinHandle<()> {
    let owned = stop.clone();
    crate::roles::spawn(stop, "gateway", move || {
        let _held = (listener, client);
        owned.wait().map_err(|error| error.to_string())
    })
}
