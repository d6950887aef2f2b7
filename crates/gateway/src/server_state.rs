//! The gateway as a whole, as its clients may ask about it.

use nicekv_wire::KeyspaceId;

/// What INFO tells; brought up to date by the event loop.
#[derive(Debug, Default)]
pub(crate) struct ServerState {
    pub(crate) port: u16,
    /// Those that can be selected.
    pub(crate) keyspaces: Vec<KeyspaceId>,
    pub(crate) started_unix_ms: u64,
    pub(crate) connections: usize,
    pub(crate) connections_max: usize,
    pub(crate) connections_total: u64,
    pub(crate) connections_refused: u64,
    pub(crate) connections_evicted: u64,
    pub(crate) memory_bytes: usize,
    pub(crate) memory_bytes_max: usize,
    pub(crate) commands_total: u64,
    pub(crate) client: nicekv_client::Counters,
    pub(crate) in_flight: usize,
}
