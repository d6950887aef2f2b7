//! The RESP gateway of this process.

use crate::failure::Failure;
use crate::roles::Role;
use nicekv_client::{Config, Keyspace};
use nicekv_gateway::{Gateway, GatewayConfig};
use nicekv_runtime::{Edges, UdpEndpoint, Uplink, new_client_id};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};

/// Binds the address for Redis clients.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| {
        Failure::Environment(format!("cannot listen for Redis clients on {address}: {error}"))
    })
}

/// The gateway on `listener`, whose client is bound to `address`, and an edge of this process's switch if there is one; SELECT goes to the
/// keyspaces by their numbers.
pub(crate) fn prepare(
    listener: TcpListener,
    address: Ipv4Addr,
    edges: Option<&Edges>,
    keyspaces: Vec<Keyspace>,
    memory_mib_max: Option<usize>,
) -> Result<Role, Failure> {
    raise_descriptor_limit();
    let endpoint = UdpEndpoint::bind(SocketAddrV4::new(address, 0)).map_err(Failure::environment)?;
    let uplink = match edges {
        Some(edges) => Uplink::on_edge(endpoint, edges).map_err(Failure::environment)?,
        None => endpoint.into(),
    };
    let client = new_client_id().map_err(Failure::environment)?;
    let first = *keyspaces.first().expect("every cluster has a default keyspace");
    let mut config = GatewayConfig::new(Config { keyspaces, ..Config::new(client, first) });
    if let Some(mib) = memory_mib_max {
        config.memory_bytes_max = mib.saturating_mul(1 << 20);
    }
    let gateway = Gateway::new(listener, uplink, config).map_err(Failure::environment)?;
    Ok(Box::new(move |stop| gateway.run(stop).map_err(|error| error.to_string())))
}

/// As many connections as the system allows without asking: each takes a descriptor. Where it cannot be raised, fewer fit.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
