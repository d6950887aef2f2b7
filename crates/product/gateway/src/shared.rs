//! State that the threads of a gateway share.
//!
//! ```text
//!   listener ─▶ thread 0 ─┬─▶ thread 0: its connections, its client, its numbers ─┐
//!                         ├─▶ thread 1: the same                                  ├─▶ INFO, limits: sums
//!                         └─▶ …            (handed over, woken)                   ┘
//! ```
//!
//! A connection stays on its thread, so its commands keep their order, and no thread waits for another
//! one. Each thread writes its own counters, which the others read: limits hold for the sums. One thread
//! accepts connections and hands them to the thread with the fewest. (With a listener for each thread,
//! by `SO_REUSEPORT`, the kernel chooses by a hash: fifty connections on two threads are often 32 and
//! 18, and connections at the listener of a busy thread wait while other threads are idle.)

use crate::clients::Clients;
use crate::command_statistics::{CommandStatistics, Totals};
use crate::cursors::Cursors;
use crate::keyspaces::KnownKeyspaces;
use crate::memory::MemoryGovernor;
use crate::monitors::Monitors;
use crate::pause::Pause;
use crate::script_cache::ScriptCache;
use crate::settings::Settings;
use crate::shared_users::SharedUsers;
use crate::slow_log::SlowLog;
use crate::subscriber_counts::SubscriberCounts;
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

/// A counter that one thread writes and all threads may read.
#[derive(Debug, Default)]
pub(crate) struct Number(AtomicU64);

impl Number {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Called only by the thread that owns the counter.
    pub(crate) fn add(&self, more: u64) {
        self.set(self.get() + more);
    }
}

/// The state of the gateway as a whole.
#[derive(Debug, Default)]
pub(crate) struct ServerState {
    pub(crate) port: u16,
    pub(crate) keyspaces: KnownKeyspaces,
    pub(crate) users: SharedUsers,
    pub(crate) cursors: Arc<Cursors>,
    pub(crate) subscribers: SubscriberCounts,
    pub(crate) scripts: ScriptCache,
    pub(crate) clients: Clients,
    pub(crate) settings: Settings,
    pub(crate) slow_log: SlowLog,
    pub(crate) pause: Pause,
    /// The totals at the last CONFIG RESETSTAT.
    pub(crate) reset: Mutex<Totals>,
    pub(crate) started_unix_ms: u64,
    pub(crate) connections_max: usize,
    pub(crate) memory: Arc<MemoryGovernor>,
    /// Longest value in keyspaces that allow large values, in bytes.
    pub(crate) value_bytes_max: usize,
    /// Also the id of the newest connection. Written by the accepting thread.
    pub(crate) connections_total: Number,
    pub(crate) connections_refused: Number,
    /// Clients on other hosts that were refused in protected mode.
    pub(crate) connections_denied: Number,
    /// Protected mode: clients on other hosts are refused as long as the default user needs no
    /// password.
    pub(crate) is_protected: bool,
    /// Port and configuration of the TLS listener.
    pub(crate) tls: Option<(u16, Arc<ServerConfig>)>,
    pub(crate) threads: Vec<ThreadState>,
}

impl ServerState {
    /// Maximum bytes of a value in this keyspace.
    pub(crate) fn value_limit(&self, keyspace: KeyspaceId) -> usize {
        match self.keyspaces.has_large_values(keyspace) {
            true => self.value_bytes_max,
            false => LONG_VALUE_BYTES_MAX,
        }
    }

    /// Whether clients on other hosts are refused now: protected mode is on and no password is
    /// needed.
    pub(crate) fn refuses_other_hosts(&self) -> bool {
        self.is_protected && self.users.users().0.default_user().is_open()
    }

    pub(crate) fn connections(&self) -> usize {
        self.threads.iter().map(|thread| thread.connections.load(Ordering::Acquire)).sum()
    }

    /// The totals at the last CONFIG RESETSTAT.
    pub(crate) fn reset(&self) -> MutexGuard<'_, Totals> {
        self.reset.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sum of one counter over all threads.
    pub(crate) fn sum(&self, of: impl Fn(&ThreadState) -> &Number) -> u64 {
        self.threads.iter().map(|thread| of(thread).get()).sum()
    }

    /// Durations of the requests of a command, which is given by its number, over all threads.
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

/// The state of one thread that other threads use.
#[derive(Debug, Default)]
pub(crate) struct ThreadState {
    /// Open connections, including those that were handed to the thread and not added yet.
    connections: AtomicUsize,
    /// Connections that were handed to the thread and not added yet; bounded by the number of
    /// connections.
    handed_over: Mutex<Vec<NewConnection>>,
    /// Ids of connections that CLIENT KILL wants closed; bounded by the number of connections.
    to_close: Mutex<Vec<u64>>,
    pub(crate) monitors: Monitors,
    pub(crate) statistics: CommandStatistics,
    waker: Option<Waker>,
    pub(crate) connections_evicted: Number,
    /// Connections closed because they were too slow while others waited for memory.
    pub(crate) connections_stalled: Number,
    /// Connections closed because they did not read published messages or lines of MONITOR.
    pub(crate) subscribers_dropped: Number,
    pub(crate) handshakes: [Number; Handshake::ALL.len()],
    pub(crate) handshakes_open: Number,
    pub(crate) commands: Number,
    pub(crate) submitted: Number,
    pub(crate) in_flight: Number,
    pub(crate) retries: Number,
    pub(crate) busy: Number,
    pub(crate) other_version: Number,
    /// The address and version of the last peer that sent another wire version.
    pub(crate) other_peer: Mutex<Option<(SocketAddrV4, u8)>>,
    pub(crate) requests: RequestsDone,
}

/// Statistics of finished requests to the store.
#[derive(Debug, Default)]
pub(crate) struct RequestsDone {
    /// Durations, by the number of the command.
    took: Box<[SharedDurations]>,
    /// Failures, by index in [`FAILURES`].
    pub(crate) failed: [Number; FAILURES.len()],
    /// The newest failures, oldest first.
    recent: Mutex<VecDeque<Failed>>,
}

/// How many failures are remembered.
const RECENT_MAX: usize = 16;
/// Sequence number of the last failure, over all threads.
static FAILED: AtomicU64 = AtomicU64::new(0);

/// A request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) number: u64,
    pub(crate) op: OpId,
    /// Number of the command.
    pub(crate) called: usize,
    /// Index in [`FAILURES`].
    pub(crate) reason: usize,
}

/// Reasons for failed requests, as operators see them.
pub(crate) const FAILURES: [&str; 5] = ["outcome_unknown", "timed_out", "busy", "disk_full", "refused"];

/// Index in [`FAILURES`].
fn failure(error: OperationError) -> usize {
    match error {
        OperationError::OutcomeUnknown => 0,
        OperationError::TimedOut => 1,
        OperationError::Busy => 2,
        OperationError::DiskFull => 3,
        // The request is invalid for this key; the store itself works.
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
    /// Called only by the thread that owns the counters.
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

    /// The lock is held briefly, and only after failures.
    pub(crate) fn recent(&self) -> MutexGuard<'_, VecDeque<Failed>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a TLS handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    Done,
    Failed,
    TimedOut,
    /// Closed because a newer handshake needed its place.
    Displaced,
}

impl Handshake {
    /// All outcomes in order, with their names for operators.
    pub(crate) const ALL: [(Self, &str); 4] = [
        (Self::Done, "done"),
        (Self::Failed, "failed"),
        (Self::TimedOut, "timed_out"),
        (Self::Displaced, "displaced"),
    ];
}

/// An accepted connection.
#[derive(Debug)]
pub(crate) struct NewConnection {
    pub(crate) socket: TcpStream,
    pub(crate) id: u64,
    pub(crate) is_tls: bool,
    /// Protected mode refuses this connection: it gets an error once its handshake is done, and is
    /// closed.
    pub(crate) is_denied: bool,
}

impl ThreadState {
    /// `waker`: wakes the thread. `commands`: length of the command table.
    pub(crate) fn new(waker: Waker, commands: usize) -> Self {
        let took = (0..commands).map(|_| SharedDurations::default()).collect();
        let requests = RequestsDone { took, ..RequestsDone::default() };
        Self { waker: Some(waker), requests, statistics: CommandStatistics::new(commands), ..Self::default() }
    }

    /// Wakes the thread if it sleeps.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    pub(crate) fn hand_over(&self, new: NewConnection) {
        self.connections.fetch_add(1, Ordering::AcqRel);
        // No operation on the list panics halfway, so a poisoned lock is safe to use.
        self.handed_over.lock().unwrap_or_else(PoisonError::into_inner).push(new);
        self.wake();
    }

    pub(crate) fn take_handed_over(&self) -> Vec<NewConnection> {
        std::mem::take(&mut *self.handed_over.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks the thread to close one of its connections.
    pub(crate) fn close(&self, id: u64) {
        self.to_close.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        self.wake();
    }

    pub(crate) fn take_to_close(&self) -> Vec<u64> {
        std::mem::take(&mut *self.to_close.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends a line to the MONITOR connections of the thread.
    pub(crate) fn show(&self, line: &Arc<[u8]>) {
        self.monitors.show(line);
        self.wake();
    }

    /// The thread has closed a connection.
    pub(crate) fn closed(&self) {
        self.connections.fetch_sub(1, Ordering::AcqRel);
    }

    /// Publishes the counters of the thread's client.
    pub(crate) fn set_client(&self, counters: &Counters, in_flight: usize) {
        self.submitted.set(counters.submitted);
        self.retries.set(counters.retries);
        self.busy.set(counters.busy);
        if self.other_version.get() != counters.other_version {
            self.other_version.set(counters.other_version);
            *self.other_peer.lock().unwrap_or_else(PoisonError::into_inner) = counters.other_version_from;
        }
        self.in_flight.set(in_flight as u64);
    }
}

/// The gateway as seen by one of its threads.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) server: Arc<ServerState>,
    /// Index of the thread.
    pub(crate) index: usize,
}

impl Member {
    pub(crate) fn own(&self) -> &ThreadState {
        &self.server.threads[self.index]
    }

    /// A gateway of one thread, for tests.
    #[cfg(test)]
    pub(crate) fn alone(memory_bytes_max: usize) -> Self {
        Self::several(1, memory_bytes_max).remove(0)
    }

    #[cfg(test)]
    pub(crate) fn several(count: usize, memory_bytes_max: usize) -> Vec<Self> {
        let threads = (0..count).map(|_| ThreadState::default()).collect();
        let wakers = (0..count).map(|_| Waker::new().unwrap()).collect();
        let memory = Arc::new(MemoryGovernor::new(memory_bytes_max, 0, wakers));
        let server = Arc::new(ServerState { memory, threads, ..ServerState::default() });
        (0..count).map(|index| Self { server: server.clone(), index }).collect()
    }
}
