//! What a gateway reports to operators.

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

    /// Of every command that made requests.
    fn latencies(&self) -> Vec<(&'static str, Durations)> {
        let of = |number| self.0.durations(number);
        let all = COMMANDS.iter().enumerate().map(|(number, command)| (command.name, of(number)));
        all.filter(|(_, took)| took.count() > 0).collect()
    }
}

/// A request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedRequest {
    /// Grows with each that fails.
    pub number: u64,
    /// The op id that it was sent under last; [`OpId::NONE`] if it was not sent.
    pub op: OpId,
    /// The command that it was made for.
    pub command: &'static str,
    /// Why.
    pub reason: &'static str,
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
    /// Of these, closed because they neither sent nor read while others waited for room for large values.
    pub connections_stalled: u64,
    /// Connections of strangers that were refused in protected mode.
    pub connections_denied: u64,
    /// By how they ended, handshakes of TLS.
    pub handshakes: Vec<(&'static str, u64)>,
    /// Handshakes that are under way.
    pub handshakes_open: usize,
    /// By reason, what was refused to users: auth (logins that failed), command, key.
    pub denied: Vec<(&'static str, u64)>,
    /// Bytes of large values that are held, or granted.
    pub large_bytes: usize,
    /// Most of them.
    pub large_bytes_max: usize,
    /// Arguments and replies that wait for room for large values.
    pub large_waiting: usize,
    /// Bytes that connections hold, less large values.
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
    /// Of those that failed, some of the last, in their order.
    pub recent_failures: Vec<FailedRequest>,
    /// Datagrams of another wire version.
    pub other_version: u64,
    /// Where one came from, and its version.
    pub other_release: Option<(SocketAddrV4, u8)>,
}
