//! What the threads of a gateway have in common.
//!
//! ```text
//!   listener ─▶ thread 0 ─┬─▶ thread 0: its connections, its client, its numbers ─┐
//!                         ├─▶ thread 1: the same                                  ├─▶ INFO, limits: sums
//!                         └─▶ …            (handed over, woken)                   ┘
//! ```
//!
//! A connection stays on its thread, so its commands keep their order, and no thread waits for another one. Each writes its own numbers, which
//! the others read: limits hold for the sums. New connections are taken by one thread and go to whoever has the fewest. (With a listener for
//! each thread, by `SO_REUSEPORT`, the kernel chooses by a hash: fifty connections on two threads are 32 and 18 as often as not, and those that
//! wait at the listener of a busy thread wait while the others have nothing to do.)

use crate::clients::Clients;
use crate::hub::Listened;
use crate::keyspaces::KnownKeyspaces;
use crate::ledger::{Ledger, Totals};
use crate::monitors::Monitors;
use crate::pause::Pause;
use crate::permits::Permits;
use crate::scanning::Cursors;
use crate::scripting::KnownScripts;
use crate::security::Access;
use crate::settings::Settings;
use crate::slow_log::SlowLog;
use nicekv_client::{Completion, Counters, OperationError};
use nicekv_proto::durations::{Durations, SharedDurations};
use nicekv_proto::limits::LONG_VALUE_BYTES_MAX;
use nicekv_proto::{Duration, KeyspaceId, OpId};
use nicekv_runtime::Waker;
use rustls::ServerConfig;
use std::collections::VecDeque;
use std::net::{SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A number that one thread writes and all may read.
#[derive(Debug, Default)]
pub(crate) struct Number(AtomicU64);

impl Number {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// By the one thread that writes it.
    pub(crate) fn add(&self, more: u64) {
        self.set(self.get() + more);
    }
}

/// The gateway as a whole, as its clients may ask about it.
#[derive(Debug, Default)]
pub(crate) struct ServerState {
    pub(crate) port: u16,
    /// Those that can be selected.
    pub(crate) keyspaces: KnownKeyspaces,
    /// Users, and what they may do.
    pub(crate) access: Access,
    /// Of scans that go on.
    pub(crate) cursors: Cursors,
    /// To what connections listen.
    pub(crate) listened: Listened,
    /// Scripts that are known by their digests.
    pub(crate) scripts: KnownScripts,
    /// The connections.
    pub(crate) clients: Clients,
    /// What CONFIG SET can change.
    pub(crate) settings: Settings,
    pub(crate) slow_log: SlowLog,
    pub(crate) pause: Pause,
    /// What had been counted when CONFIG RESETSTAT came last.
    pub(crate) reset: Mutex<Totals>,
    pub(crate) started_unix_ms: u64,
    pub(crate) connections_max: usize,
    pub(crate) memory_bytes_max: usize,
    /// Of large values.
    pub(crate) permits: Arc<Permits>,
    /// Where values may be too long for a datagram.
    pub(crate) value_bytes_max: usize,
    /// Written by the thread that accepts; the newest connection's id.
    pub(crate) connections_total: Number,
    pub(crate) connections_refused: Number,
    /// Of strangers, in protected mode.
    pub(crate) connections_denied: Number,
    /// Whether strangers are refused while nobody needs a password.
    pub(crate) is_protected: bool,
    /// Of the listener for TLS, if there is one: its port, and what connections are made with.
    pub(crate) tls: Option<(u16, Arc<ServerConfig>)>,
    pub(crate) threads: Vec<ThreadState>,
}

impl ServerState {
    /// How long a value may be.
    pub(crate) fn value_limit(&self, keyspace: KeyspaceId) -> usize {
        match self.keyspaces.has_large_values(keyspace) {
            true => self.value_bytes_max,
            false => LONG_VALUE_BYTES_MAX,
        }
    }

    /// Whether strangers are refused now: nobody needs a password.
    pub(crate) fn is_open(&self) -> bool {
        self.is_protected && self.access.users().0.default_user().is_open()
    }

    pub(crate) fn connections(&self) -> usize {
        self.threads.iter().map(|thread| thread.connections.load(Ordering::Acquire)).sum()
    }

    /// What all connections occupy.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.threads.iter().map(ThreadState::memory_bytes).sum()
    }

    /// What had been counted when CONFIG RESETSTAT came last.
    pub(crate) fn reset(&self) -> MutexGuard<'_, Totals> {
        self.reset.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sum of a number of each thread.
    pub(crate) fn sum(&self, of: impl Fn(&ThreadState) -> &Number) -> u64 {
        self.threads.iter().map(|thread| of(thread).get()).sum()
    }

    /// How long the requests of the command with this number took.
    pub(crate) fn durations(&self, command: usize) -> Durations {
        let mut total = Durations::default();
        let took = self.threads.iter().filter_map(|thread| thread.requests.took.get(command));
        took.for_each(|took| total.add(&took.read()));
        total
    }

    /// The thread with the fewest connections.
    pub(crate) fn least_used(&self) -> &ThreadState {
        let threads = self.threads.iter();
        threads.min_by_key(|thread| thread.connections.load(Ordering::Acquire)).expect("there is one")
    }
}

/// One thread, as the others see it.
#[derive(Debug, Default)]
pub(crate) struct ThreadState {
    /// Given to it, whether it has taken them yet or not, and not closed.
    connections: AtomicUsize,
    /// Given to it and not taken yet: as many as are accepted in a turn, and no more than there may be connections.
    handed_over: Mutex<Vec<NewConnection>>,
    /// The ids of connections that others want closed: no more than there are.
    to_close: Mutex<Vec<u64>>,
    /// Connections that are shown all commands.
    pub(crate) monitors: Monitors,
    /// What commands have cost.
    pub(crate) ledger: Ledger,
    waker: Option<Waker>,
    memory_bytes: Number,
    pub(crate) connections_evicted: Number,
    /// Closed because they kept others from room for large values.
    pub(crate) connections_stalled: Number,
    /// Closed because they did not read what they listen to.
    pub(crate) listeners_dropped: Number,
    pub(crate) handshakes: [Number; Handshake::ALL.len()],
    pub(crate) handshakes_open: Number,
    pub(crate) commands: Number,
    pub(crate) submitted: Number,
    pub(crate) in_flight: Number,
    pub(crate) retries: Number,
    pub(crate) busy: Number,
    pub(crate) other_version: Number,
    /// Who was of another release last; set where one is heard.
    pub(crate) stranger: Mutex<Option<(SocketAddrV4, u8)>>,
    pub(crate) requests: RequestsDone,
}

/// Requests to the store that have ended.
#[derive(Debug, Default)]
pub(crate) struct RequestsDone {
    /// By the number of the command that they were made for.
    took: Box<[SharedDurations]>,
    /// By reason.
    pub(crate) failed: [Number; FAILURES.len()],
    /// Those that failed last, oldest first.
    recent: Mutex<VecDeque<Failed>>,
}

/// Of those that failed, so many are remembered.
const RECENT_MAX: usize = 16;
/// Numbers failures of all threads in their order.
static FAILED: AtomicU64 = AtomicU64::new(0);

/// A request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) number: u64,
    pub(crate) op: OpId,
    /// The number of the command that it was made for.
    pub(crate) called: usize,
    /// By its place in [`FAILURES`].
    pub(crate) reason: usize,
}

/// Why requests fail, as operators see it.
pub(crate) const FAILURES: [&str; 5] = ["outcome_unknown", "timed_out", "busy", "disk_full", "refused"];

/// The place in [`FAILURES`].
fn failure(error: OperationError) -> usize {
    match error {
        OperationError::OutcomeUnknown => 0,
        OperationError::TimedOut => 1,
        OperationError::Busy => 2,
        OperationError::DiskFull => 3,
        // What was asked for cannot be done: nothing is wrong with the store.
        OperationError::NotAnInteger
        | OperationError::NotAFloat
        | OperationError::Overflow
        | OperationError::ResultTooLong { .. }
        | OperationError::NoSuchKeyspace
        | OperationError::OldValueGone
        | OperationError::TooManyListeners
        | OperationError::StaleStamp
        | OperationError::EndedByStore
        | OperationError::CrossPartition
        | OperationError::WrongType => 4,
    }
}

impl RequestsDone {
    /// By the one thread that writes it.
    pub(crate) fn answered(&self, command: usize, took: Duration, completion: &Completion<'_>) {
        if let Some(durations) = self.took.get(command) {
            durations.count(took);
        }
        if let Err(error) = completion.result {
            self.failed[failure(error)].add(1);
            let (number, reason) = (FAILED.fetch_add(1, Ordering::Relaxed) + 1, failure(error));
            let mut recent = self.recent();
            if recent.len() == RECENT_MAX {
                recent.pop_front();
            }
            recent.push_back(Failed { number, op: completion.op, called: command, reason });
        }
    }

    /// Its lock is taken for a moment, and only where a request has failed.
    pub(crate) fn recent(&self) -> MutexGuard<'_, VecDeque<Failed>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a handshake has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    Done,
    Failed,
    TimedOut,
    /// There were too many.
    Displaced,
}

impl Handshake {
    /// With their names for operators, each in its own place.
    pub(crate) const ALL: [(Self, &str); 4] = [
        (Self::Done, "done"),
        (Self::Failed, "failed"),
        (Self::TimedOut, "timed_out"),
        (Self::Displaced, "displaced"),
    ];
}

/// A connection that was accepted.
#[derive(Debug)]
pub(crate) struct NewConnection {
    pub(crate) socket: TcpStream,
    pub(crate) id: u64,
    pub(crate) is_tls: bool,
    /// It is told so when it can hear, and closed.
    pub(crate) is_denied: bool,
}

impl ThreadState {
    /// Of the thread that `waker` wakes; there are so many `commands`.
    pub(crate) fn new(waker: Waker, commands: usize) -> Self {
        let took = (0..commands).map(|_| SharedDurations::default()).collect();
        let requests = RequestsDone { took, ..RequestsDone::default() };
        Self { waker: Some(waker), requests, ledger: Ledger::new(commands), ..Self::default() }
    }

    /// Ends its sleep.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    pub(crate) fn hand_over(&self, new: NewConnection) {
        self.connections.fetch_add(1, Ordering::AcqRel);
        // The list is whole whenever the lock is free.
        self.handed_over.lock().unwrap_or_else(PoisonError::into_inner).push(new);
        self.wake();
    }

    pub(crate) fn take_handed_over(&self) -> Vec<NewConnection> {
        std::mem::take(&mut *self.handed_over.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has a connection closed.
    pub(crate) fn close(&self, id: u64) {
        self.to_close.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        self.wake();
    }

    pub(crate) fn take_to_close(&self) -> Vec<u64> {
        std::mem::take(&mut *self.to_close.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shows a line to its monitors.
    pub(crate) fn show(&self, line: &Arc<[u8]>) {
        self.monitors.show(line);
        self.wake();
    }

    /// One that was handed over is no more.
    pub(crate) fn closed(&self) {
        self.connections.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes.get() as usize
    }

    /// By its own thread.
    pub(crate) fn set_memory_bytes(&self, bytes: usize) {
        self.memory_bytes.set(bytes as u64);
    }

    /// What its client has done.
    pub(crate) fn set_client(&self, counters: &Counters, in_flight: usize) {
        self.submitted.set(counters.submitted);
        self.retries.set(counters.retries);
        self.busy.set(counters.busy);
        if self.other_version.get() != counters.other_version {
            self.other_version.set(counters.other_version);
            *self.stranger.lock().unwrap_or_else(PoisonError::into_inner) = counters.other_version_from;
        }
        self.in_flight.set(in_flight as u64);
    }
}

/// A thread's view of its gateway.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) server: Arc<ServerState>,
    /// Its place among the threads.
    pub(crate) index: usize,
}

impl Member {
    pub(crate) fn own(&self) -> &ThreadState {
        &self.server.threads[self.index]
    }

    /// A gateway of threads that nobody can wake.
    #[cfg(test)]
    pub(crate) fn alone(memory_bytes_max: usize) -> Self {
        Self::several(1, memory_bytes_max).remove(0)
    }

    #[cfg(test)]
    pub(crate) fn several(count: usize, memory_bytes_max: usize) -> Vec<Self> {
        let threads = (0..count).map(|_| ThreadState::default()).collect();
        let server = Arc::new(ServerState { memory_bytes_max, threads, ..ServerState::default() });
        (0..count).map(|index| Self { server: server.clone(), index }).collect()
    }
}
