//! What a gateway says of itself, for operators.

use crate::shared::ServerState;
use nicekv_wire::Durations;
use std::sync::Arc;

/// Where a gateway may be asked how it is, by any thread and without its threads knowing; clones are the same.
#[derive(Clone, Debug)]
pub struct GatewayMonitor(pub(crate) Arc<ServerState>);

impl GatewayMonitor {
    /// As of now.
    pub fn observe(&self) -> GatewayObservation {
        self.0.observe()
    }
}

/// A gateway with all its threads.
#[derive(Clone, Debug)]
pub struct GatewayObservation {
    /// Open connections.
    pub connections: usize,
    /// Most of them.
    pub connections_max: usize,
    /// Connections ever accepted.
    pub connections_total: u64,
    /// Of these, refused because there were too many.
    pub connections_refused: u64,
    /// Of these, closed because all together held too much.
    pub connections_evicted: u64,
    /// Bytes that connections hold.
    pub memory_bytes: usize,
    /// Most of them.
    pub memory_bytes_max: usize,
    /// Threads.
    pub threads: usize,
    /// Commands taken.
    pub commands: u64,
    /// Requests made to the store.
    pub requests: u64,
    /// Of these, those that are not answered.
    pub requests_in_flight: u64,
    /// By reason, those that failed.
    pub requests_failed: Vec<(&'static str, u64)>,
    /// Datagrams sent again because no answer came.
    pub retries: u64,
    /// "Busy" answers.
    pub busy: u64,
    /// By command, how long its requests took from being issued to being answered.
    pub latencies: Vec<(&'static str, Durations)>,
}
