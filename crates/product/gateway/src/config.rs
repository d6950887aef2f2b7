//! Settings of a gateway.

use crate::limits::{CONNECTIONS_MAX, LARGE_BYTES_MAX, MEMORY_BYTES_MAX};
use crate::tls::TlsFiles;
use crate::user_source::UserSource;
use nicekv_client::{Config, OPERATION_TIMEOUT};
use nicekv_proto::Duration;

/// Settings of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// Settings of its client: id, window, and the keyspaces, which SELECT chooses by number. The
    /// threads share the window.
    pub client: Config,
    /// Maximum number of open connections. Each needs a file descriptor: the caller raises
    /// `RLIMIT_NOFILE`.
    pub connections_max: usize,
    /// Maximum bytes that commands and replies of all connections may occupy, not counting large
    /// values.
    pub memory_bytes_max: usize,
    /// Maximum bytes of large values of all connections; at least
    /// [`LARGE_BYTES_MIN`](crate::limits::LARGE_BYTES_MIN).
    pub large_bytes_max: usize,
    /// Users who may log in.
    pub users: UserSource,
    /// Whether clients on other hosts are refused as long as the default user needs no password.
    pub protected_mode: bool,
    /// Certificate and key of the TLS listener; required if there is one.
    pub tls: Option<TlsFiles>,
    /// Deadline of each request that a command makes to the store.
    pub timeout: Duration,
}

impl GatewayConfig {
    /// The default settings, with this client.
    pub fn new(client: Config) -> Self {
        Self {
            client,
            connections_max: CONNECTIONS_MAX,
            memory_bytes_max: MEMORY_BYTES_MAX,
            large_bytes_max: LARGE_BYTES_MAX,
            users: UserSource::Open,
            protected_mode: true,
            tls: None,
            timeout: OPERATION_TIMEOUT,
        }
    }
}
