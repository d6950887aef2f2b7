//! Observations of a gateway for operators.

use crate::shared::{FAILURES, Failed, Handshake, ServerState, ThreadState};
use nicekv_proto::{Durations, OpId};
use nicekv_redis::acl::DenialReason;
use nicekv_redis::table::COMMANDS;
use std::net::SocketAddrV4;
use std::sync::{Arc, PoisonError};

/// Observes a gateway from any thread, without disturbing its threads.
#[derive(Clone, Debug)]
pub struct GatewayMonitor(pub(crate) Arc<ServerState>);

impl GatewayMonitor {
    /// The current state.
    pub fn observe(&self) -> GatewayObservation {
        let Self(server) = self;
        GatewayObservation {
            connections: server.connections(),
            connections_max: server.connections_max,
            connections_total: server.connections_total.get(),
            connections_refused: server.connections_refused.get(),
            connections_evicted: server.sum(|thread| &thread.connections_evicted),
            connections_stalled: server.sum(|thread| &thread.connections_stalled),
            connections_denied: server.connections_denied.get(),
            handshakes: self.handshakes(),
            handshakes_open: server.sum(|thread| &thread.handshakes_open) as usize,
            denied: DenialReason::ALL
                .map(DenialReason::name)
                .into_iter()
                .zip(server.users.denied())
                .collect(),
            large_bytes: server.memory.large_bytes(),
            large_bytes_max: server.memory.large_bytes_max(),
            large_waiting: server.memory.queued(),
            memory_bytes: server.memory.short_bytes(),
            memory_bytes_max: server.memory.short_bytes_max(),
            threads: server.threads.len(),
            commands: server.sum(|thread| &thread.commands),
            requests: server.sum(|thread| &thread.submitted),
            requests_in_flight: server.sum(|thread| &thread.in_flight),
            requests_failed: self.failures(),
            retries: server.sum(|thread| &thread.retries),
            busy: server.sum(|thread| &thread.busy),
            latencies: self.latencies(),
            recent_failures: self.recent_failures(),
            other_version: server.sum(|thread| &thread.other_version),
            other_release: server
                .threads
                .iter()
                .find_map(|thread| *thread.other_peer.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn handshakes(&self) -> Vec<(&'static str, u64)> {
        let of = |how: Handshake| self.0.sum(|thread| &thread.handshakes[how as usize]);
        Handshake::ALL.into_iter().map(|(how, name)| (name, of(how))).collect()
    }

    fn failures(&self) -> Vec<(&'static str, u64)> {
        let of = |reason: usize| self.0.sum(|thread| &thread.requests.failed[reason]);
        FAILURES.into_iter().enumerate().map(|(reason, name)| (name, of(reason))).collect()
    }

    fn recent_failures(&self) -> Vec<FailedRequest> {
        let of = |thread: &ThreadState| thread.requests.recent().iter().copied().collect::<Vec<_>>();
        let mut recent: Vec<_> = self.0.threads.iter().flat_map(of).collect();
        recent.sort_by_key(|failed| failed.number);
        let named = |Failed { number, op, called, reason }| FailedRequest {
            number,
            op,
            command: COMMANDS.get(called).map_or("", |command| command.name),
            reason: FAILURES[reason],
        };
        recent.into_iter().map(named).collect()
    }

    /// Latencies of each command that has made requests.
    fn latencies(&self) -> Vec<(&'static str, Durations)> {
        let of = |number| self.0.durations(number);
        let all = COMMANDS.iter().enumerate().map(|(number, command)| (command.name, of(number)));
        all.filter(|(_, took)| took.count() > 0).collect()
    }
}

/// A request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedRequest {
    /// Sequence number; increases with each failed request.
    pub number: u64,
    /// The op id under which it was last sent; [`OpId::NONE`] if it never was.
    pub op: OpId,
    /// The command that it was made for.
    pub command: &'static str,
    /// The reason for the failure (one of `FAILURES`).
    pub reason: &'static str,
}

/// The state of a gateway, with all its threads.
#[derive(Clone, Debug)]
pub struct GatewayObservation {
    /// Open connections.
    pub connections: usize,
    /// Maximum number of open connections.
    pub connections_max: usize,
    /// Connections ever accepted.
    pub connections_total: u64,
    /// Accepted connections that were refused because there were too many.
    pub connections_refused: u64,
    /// Accepted connections that were closed because all together exceeded the memory limit.
    pub connections_evicted: u64,
    /// Accepted connections that were closed because they neither sent nor read while others waited
    /// for memory.
    pub connections_stalled: u64,
    /// Connections from other hosts that were refused in protected mode.
    pub connections_denied: u64,
    /// Ended TLS handshakes, by outcome.
    pub handshakes: Vec<(&'static str, u64)>,
    /// TLS handshakes in progress.
    pub handshakes_open: usize,
    /// Refusals to users, by reason: auth (failed logins), command, key, channel.
    pub denied: Vec<(&'static str, u64)>,
    /// Bytes granted for large values.
    pub large_bytes: usize,
    /// Maximum of `large_bytes`.
    pub large_bytes_max: usize,
    /// Arguments and replies that wait for memory for large values.
    pub large_waiting: usize,
    /// Bytes of commands and replies that connections hold, not counting large values.
    pub memory_bytes: usize,
    /// Maximum of `memory_bytes`.
    pub memory_bytes_max: usize,
    /// Number of threads.
    pub threads: usize,
    /// Commands received.
    pub commands: u64,
    /// Requests submitted to the store.
    pub requests: u64,
    /// Requests that are not answered yet.
    pub requests_in_flight: u64,
    /// Failed requests, by reason.
    pub requests_failed: Vec<(&'static str, u64)>,
    /// Datagrams that were sent again because no answer arrived.
    pub retries: u64,
    /// Answers with status "busy".
    pub busy: u64,
    /// Durations of requests from issue to answer, by command.
    pub latencies: Vec<(&'static str, Durations)>,
    /// The newest failed requests, oldest first.
    pub recent_failures: Vec<FailedRequest>,
    /// Received datagrams of another wire version.
    pub other_version: u64,
    /// The sender of one of these datagrams, and its version.
    pub other_release: Option<(SocketAddrV4, u8)>,
}
