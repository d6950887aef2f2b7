//! The RESP gateway of this process.

use crate::failure::Failure;
use crate::roles::Role;
use nicekv_client::{Config, Keyspace};
use nicekv_gateway::{Gateway, GatewayConfig};
use nicekv_runtime::{UdpEndpoint, new_client_id};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};

/// Binds the address for Redis clients.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| {
        Failure::Environment(format!("cannot listen for Redis clients on {address}: {error}"))
    })
}

/// The gateway on `listener`, whose client is bound to `address`.
pub(crate) fn prepare(listener: TcpListener, address: Ipv4Addr, keyspace: Keyspace) -> Result<Role, Failure> {
    raise_descriptor_limit();
    let endpoint = UdpEndpoint::bind(SocketAddrV4::new(address, 0)).map_err(Failure::environment)?;
    let client = Config::new(new_client_id().map_err(Failure::environment)?, keyspace);
    let gateway =
        Gateway::new(listener, endpoint, GatewayConfig::new(client)).map_err(Failure::environment)?;
    Ok(Box::new(move |stop| gateway.run(stop).map_err(|error| error.to_string())))
}

/// As many connections as the system allows without asking: each takes a descriptor. Where it cannot be raised, fewer fit.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
