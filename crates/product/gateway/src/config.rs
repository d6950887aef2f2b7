//! Settings of a gateway.

use crate::limits::{CONNECTIONS_MAX, LARGE_BYTES_MAX, MEMORY_BYTES_MAX};
use crate::tls::TlsFiles;
use crate::user_source::UserSource;
use nicekv_client::{Config, OPERATION_TIMEOUT};
use nicekv_proto::Duration;

/// Settings of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// Of its client: id, window, and the keyspaces. SELECT goes to them by their numbers. Several threads share the window.
    pub client: Config,
    /// Most connections at once. Each needs a file descriptor: the caller raises `RLIMIT_NOFILE`.
    pub connections_max: usize,
    /// Most bytes of commands and replies, less large values, that all connections together may hold.
    pub memory_bytes_max: usize,
    /// Most bytes of large values that they may hold; at least [`LARGE_BYTES_MIN`](crate::limits::LARGE_BYTES_MIN).
    pub large_bytes_max: usize,
    /// Who may log in.
    pub users: UserSource,
    /// Whether clients of other hosts are refused while nobody needs a password.
    pub protected_mode: bool,
    /// Of the listener for TLS, which is there if this is.
    pub tls: Option<TlsFiles>,
    /// How long a command may take.
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
