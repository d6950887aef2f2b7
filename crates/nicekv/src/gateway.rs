//! The RESP gateway of this process.

use crate::clients::known_to_clients;
use crate::failure::Failure;
use crate::roles::{Prepared, Role};
use crate::thread_count::ThreadCount;
use crate::value_limit::ValueLimit;
use nicekv_client::{Config, Keyspace};
use nicekv_gateway::{Gateway, GatewayConfig, KnownKeyspaces};
use nicekv_metadata::ClusterInfo;
use nicekv_metrics::Source;
use nicekv_runtime::control_plane::AdminRequest;
use nicekv_runtime::{Edges, UdpEndpoint, Uplink, admin, new_client_id};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::num::NonZero;
use std::time::Duration;

/// A keyspace that was created can be selected this much later at the latest.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
const WATCH_TIMEOUT: Duration = Duration::from_secs(2);

/// Binds the address for Redis clients.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| {
        Failure::Environment(format!("cannot listen for Redis clients on {address}: {error}"))
    })
}

/// What is said of a gateway on the command line, where it wins over the file.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct GatewayFlags {
    /// Threads that serve Redis clients, each with connections of its own, 1 to 64 [default: as the file says, if there is one, or half as many as there are processors, 1 to 8]
    #[arg(long, value_name = "N")]
    pub(crate) gateway_threads: Option<ThreadCount>,
    /// MiB of large arguments and values, of more than 4 KiB, that all Redis connections together may hold: who needs more waits; one command or reply may have half of it [default: as the file says, if there is one, or 256, or twice the longest value]
    #[arg(long, value_name = "MIB")]
    pub(crate) gateway_large_mib: Option<NonZero<usize>>,
    /// Longest value that Redis clients may set, get, or make by adding to another, 1 to 512 MiB [default: as the file says, if there is one, or 64; the last one nodes say, too]
    #[arg(long, value_name = "MIB")]
    pub(crate) gateway_value_mib: Option<ValueLimit>,
}

/// What the configuration says of a gateway; what it leaves open has a default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) threads: Option<ThreadCount>,
    pub(crate) memory_mib_max: Option<usize>,
    pub(crate) large_mib_max: Option<NonZero<usize>>,
    pub(crate) value_mib_max: Option<ValueLimit>,
}

impl Settings {
    fn apply(self, config: &mut GatewayConfig) {
        if let Some(limit) = self.value_mib_max {
            config.client.value_bytes_max = limit.bytes();
            // One command may have half of it.
            config.large_bytes_max = config.large_bytes_max.max(2 * limit.bytes());
        }
        if let Some(mib) = self.memory_mib_max {
            config.memory_bytes_max = mib.saturating_mul(1 << 20);
        }
        if let Some(mib) = self.large_mib_max {
            config.large_bytes_max = mib.get().saturating_mul(1 << 20);
        }
    }
}

/// The threads of the gateway on `listener`, whose clients are bound to `address`, and edges of this process's switch if there is one; SELECT
/// goes to the keyspaces by their numbers, and of others it hears from these instances of the metadata service.
pub(crate) fn prepare(
    name: &str,
    listener: TcpListener,
    address: Ipv4Addr,
    edges: Option<&Edges>,
    (keyspaces, instances): (Vec<Keyspace>, Vec<SocketAddrV4>),
    settings: Settings,
) -> Result<Prepared<Vec<Role>>, Failure> {
    raise_descriptor_limit();
    let threads = settings.threads.unwrap_or_else(ThreadCount::default_here).into();
    let uplink = || {
        let endpoint = UdpEndpoint::bind(SocketAddrV4::new(address, 0))?;
        match edges {
            Some(edges) => Uplink::on_edge(endpoint, edges),
            None => Ok(endpoint.into()),
        }
    };
    let uplinks = (0..threads).map(|_| Ok((new_client_id()?, uplink()?))).collect::<io::Result<Vec<_>>>();
    let uplinks = uplinks.map_err(Failure::environment)?;
    let first = *keyspaces.first().expect("every cluster has a default keyspace");
    let mut config = GatewayConfig::new(Config { keyspaces, ..Config::new(uplinks[0].0, first) });
    settings.apply(&mut config);
    let threads = Gateway::threads(listener, uplinks, &config).map_err(Failure::environment)?;
    let known = threads[0].keyspaces();
    let watch: Role = Box::new(move |stop| {
        let look = || watch_keyspaces(&known, &instances);
        stop.every(WATCH_INTERVAL, look).map_err(|error| error.to_string())
    });
    let role = |gateway: Gateway| -> Role {
        Box::new(move |stop| gateway.run(stop).map_err(|error| error.to_string()))
    };
    let source = Source::Gateway(name.to_owned(), threads[0].monitor());
    Ok(Prepared { role: threads.into_iter().map(role).chain([watch]).collect(), source })
}

/// Looks whether keyspaces have been created or dropped. While nobody answers, the gateway goes on with those that it knows.
fn watch_keyspaces(known: &KnownKeyspaces, instances: &[SocketAddrV4]) {
    let Ok(json) = admin::ask(instances, &AdminRequest::ClusterInfo, WATCH_TIMEOUT) else { return };
    let Ok(info) = serde_json::from_slice::<ClusterInfo>(&json) else { return };
    known.set(info.keyspaces.iter().map(|keyspace| known_to_clients(keyspace, info.port)).collect());
}

/// As many connections as the system allows without asking: each takes a descriptor. Where it cannot be raised, fewer fit.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
