//! The RESP gateway of this process.

use crate::failure::Failure;
use crate::roles::{Prepared, Role};
use nicekv_client::{Config, Keyspace};
use nicekv_gateway::{Gateway, GatewayConfig, THREADS_MAX};
use nicekv_metrics::Source;
use nicekv_runtime::{Edges, UdpEndpoint, Uplink, new_client_id};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::num::NonZero;
use std::str::FromStr;
use std::thread::available_parallelism;

/// Binds the address for Redis clients.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| {
        Failure::Environment(format!("cannot listen for Redis clients on {address}: {error}"))
    })
}

/// What the configuration says of a gateway; what it leaves open has a default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) threads: Option<ThreadCount>,
    pub(crate) memory_mib_max: Option<usize>,
}

/// How many threads a gateway has: 1 to [`THREADS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "usize", into = "usize")]
pub(crate) struct ThreadCount(usize);

impl ThreadCount {
    /// A half of the processors, but not more than this: the other half is for replicas, clients and the kernel.
    const DEFAULT_MAX: usize = 8;

    /// Where nothing is said, on a machine with so many processors.
    fn default_of(processors: usize) -> Self {
        Self((processors / 2).clamp(1, Self::DEFAULT_MAX))
    }

    fn default_here() -> Self {
        Self::default_of(available_parallelism().map_or(1, NonZero::get))
    }

    /// One thread alone.
    pub(crate) const ONE: Self = Self(1);
}

impl TryFrom<usize> for ThreadCount {
    type Error = String;

    fn try_from(count: usize) -> Result<Self, String> {
        let is_possible = (1..=THREADS_MAX).contains(&count);
        is_possible
            .then_some(Self(count))
            .ok_or(format!("a gateway has 1 to {THREADS_MAX} threads, not {count}"))
    }
}

impl From<ThreadCount> for usize {
    fn from(count: ThreadCount) -> Self {
        count.0
    }
}

impl FromStr for ThreadCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<usize>().map_err(|error| error.to_string())?.try_into()
    }
}

/// The threads of the gateway on `listener`, whose clients are bound to `address`, and edges of this process's switch if there is one; SELECT
/// goes to the keyspaces by their numbers.
pub(crate) fn prepare(
    name: &str,
    listener: TcpListener,
    address: Ipv4Addr,
    edges: Option<&Edges>,
    keyspaces: Vec<Keyspace>,
    settings: Settings,
) -> Result<Prepared<Vec<Role>>, Failure> {
    raise_descriptor_limit();
    let ThreadCount(threads) = settings.threads.unwrap_or_else(ThreadCount::default_here);
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
    if let Some(mib) = settings.memory_mib_max {
        config.memory_bytes_max = mib.saturating_mul(1 << 20);
    }
    let threads = Gateway::threads(listener, uplinks, &config).map_err(Failure::environment)?;
    let role = |gateway: Gateway| -> Role {
        Box::new(move |stop| gateway.run(stop).map_err(|error| error.to_string()))
    };
    let source = Source::Gateway(name.to_owned(), threads[0].monitor());
    Ok(Prepared { role: threads.into_iter().map(role).collect(), source })
}

/// As many connections as the system allows without asking: each takes a descriptor. Where it cannot be raised, fewer fit.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_of_a_gateway_are_bounded_and_half_the_processors_unless_said() {
        let defaults = [1, 2, 3, 4, 8, 16, 128].map(|processors| ThreadCount::default_of(processors).0);
        assert_eq!(defaults, [1, 1, 1, 2, 4, 8, 8]);
        assert_eq!("64".parse(), Ok(ThreadCount(64)));
        for refused in ["0", "65"] {
            let error = refused.parse::<ThreadCount>().unwrap_err();
            assert_eq!(error, format!("a gateway has 1 to 64 threads, not {refused}"));
        }
        assert!("-1".parse::<ThreadCount>().is_err());
    }
}
