//! Thread of a storage node: runs its core, its socket, its disk and its copy streams.
//!
//! ```text
//!   recvmmsg… ─▶ poll ─▶ streams ─▶ finished syncs ─▶ deadline ─▶ batch end ─▶ storage… ─▶ sendmmsg ─▶ streams ─▶ sync
//! ```
//!
//! If nothing was received for a while, the thread sleeps in the poll. Under load it still polls at
//! intervals, for its streams.
//!
//! A sync is left to another thread if there is more to receive or the disk is slow. If a sync on
//! this thread takes long, another thread takes over the node: see `hand_off`.
//!
//! The clock is read *after* a batch was received. So a lease is checked at a time within the
//! client's call, however long the process was paused (R12). A disk failure ends the node, because
//! the content of the disk is unknown from then on (docs/FAULTS.md row 8).

mod backups;
#[cfg(test)]
mod disk_tests;
mod durable_log;
mod hand_off;
mod kernel;
mod op_marks;
mod open;
mod snapshot;
mod snapshot_values;
mod space;
mod spaces;
mod storage;
mod storage_options;
mod streams;
mod values;

use durable_log::LogSyncing;
use kernel::Kernel;

pub use durable_log::LogObservation;
pub use kernel::KernelObservation;
pub use open::{OpenError, open_durable, open_memory};
pub use space::{RESERVE_FILE, free_bytes_min};
pub use storage::NodeStorage;
pub use storage_options::{RESERVE_BYTES_MAX, RESERVE_BYTES_MIN, StorageOptions};
pub use streams::STREAMS_MAX;

use crate::inquiry::{Inquirer, Inquiries};
use crate::{BusyPoll, DatagramCounters, Left, Stop, Uplink, Waker, is_ready, now, readable, wait};
use nicekv_kernel_gets::{Program, Size};
use nicekv_proto::{Duration, HeaderLayout, Now, Opcode};
use nicekv_replica::Replica;
use nicekv_replica::{NodeStatus, Scripts};
use nicekv_store::StoreError;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use streams::Streams;
use thiserror::Error;

/// Number of received datagrams after which they are processed, even if more are waiting.
const RECEIVED_MIN: u64 = 512;
/// Interval between polls under load.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// Interval between checks of an engine that is syncing, or reclaiming space.
const BUSY_POLL: Duration = Duration::from_millis(5);

/// Why a node has failed.
#[derive(Debug, Error)]
pub enum NodeError {
    /// The node's sockets have failed.
    #[error("the node's sockets: {0}")]
    Io(#[from] io::Error),
    /// The node's disk has failed.
    #[error("the node's storage: {0}")]
    Storage(#[from] StoreError),
}

/// Statistics of a node and its drivers.
#[derive(Clone, Debug)]
pub struct NodeObservation {
    /// Statistics of the core.
    pub status: NodeStatus,
    /// Counters of the socket.
    pub datagrams: DatagramCounters,
    /// Statistics of the log; `None` if the node is volatile.
    pub log: Option<LogObservation>,
    /// Statistics of gets answered in the kernel; `None` if there is no kernel program.
    pub kernel: Option<KernelObservation>,
}

/// Queries the statistics of a node.
pub type NodeInquirer = Inquirer<(), NodeObservation>;

/// A node that is ready to run.
pub struct Node {
    core: Replica,
    storage: NodeStorage,
    uplink: Uplink,
    streams: Streams,
    waker: Waker,
    inquiries: Inquiries<(), NodeObservation>,
    look_at_ns: u64,
    busy_poll: BusyPoll,
    /// A sync was made on this thread; its completion must be processed at once.
    has_synced: bool,
    kernel: Option<Kernel>,
}

/// How much was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Received {
    Nothing,
    All,
    /// More datagrams may be waiting.
    More,
}

/// Datagrams that were received together: many datagrams, or a bundle, mean many callers.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    datagrams: usize,
    has_bundle: bool,
}

/// A single caller causes fewer datagrams than this at once.
const BATCH_MIN: usize = 4;

impl Batch {
    fn count(&mut self, datagram: &[u8]) {
        self.datagrams += 1;
        self.has_bundle |=
            HeaderLayout::peek(datagram).is_some_and(|header| header.opcode == Opcode::Bundle as u8);
    }

    fn begin(self, busy_poll: &mut BusyPoll, now: Now) {
        match self.has_bundle || self.datagrams >= BATCH_MIN {
            true => busy_poll.begin_after_batch(now),
            false => busy_poll.begin(now),
        }
    }
}

/// Readiness of the inputs that only a system call can check.
struct Ready {
    datagrams: bool,
    streams: bool,
}

impl Node {
    /// A node of `core` and `storage`, which were opened together. `listener` must be bound to the
    /// uplink's address, and `waker` must be the one that `storage` wakes.
    pub fn new(
        core: Replica,
        storage: NodeStorage,
        uplink: impl Into<Uplink>,
        listener: TcpListener,
        waker: Waker,
        busy_poll: Duration,
    ) -> Self {
        let (streams, mut uplink) = (Streams::new(listener), uplink.into());
        uplink.wake_with(&waker);
        Self {
            core,
            storage,
            uplink,
            streams,
            waker,
            inquiries: Inquiries::default(),
            look_at_ns: 0,
            busy_poll: BusyPoll::new(busy_poll),
            has_synced: false,
            kernel: None,
        }
    }

    /// Lets this kernel program answer gets. The core must be configured to
    /// [report](nicekv_replica::NodeConfig::tells_visibility) which values are visible.
    pub fn with_kernel(mut self, program: Box<dyn Program + Send>, size: Size) -> Self {
        self.kernel = Some(Kernel::new(program, size));
        self
    }

    /// Lets the node run scripts.
    pub fn with_scripts(mut self, scripts: Scripts) -> Self {
        self.core.run_scripts(scripts);
        self
    }

    /// Lets other threads query the node.
    pub fn inquirer(&self) -> NodeInquirer {
        self.inquiries.inquirer()
    }

    /// Answers the queries of this queue, which callers already have.
    pub fn answering(mut self, inquiries: Inquiries<(), NodeObservation>) -> Self {
        self.inquiries = inquiries;
        self
    }

    /// Runs the node until `stop` or a failure.
    pub fn run(self, stop: &Stop) -> Result<(), NodeError> {
        stop.register(&self.waker);
        self.inquiries.begin(&self.waker);
        hand_off::run(Leading { node: Box::new(self), stop })
    }

    /// Waits for work and does it. Returns a sync that this thread must make.
    fn turn(&mut self) -> Result<Option<Arc<LogSyncing>>, NodeError> {
        let (received, has_streams) = self.wait()?;
        let now = now();
        self.waker.clear();
        if has_streams {
            self.streams.receive(now, &mut self.core, &self.storage)?;
        }
        self.storage.finish_log_syncs(now, &mut self.core)?;
        let is_due = now.boot_ns >= self.core.next_deadline();
        if is_due {
            self.core.handle_deadline(now);
        }
        self.core.handle_batch_end(now);
        self.storage.run(now, &mut self.core)?;
        if is_due {
            self.storage.idle(now, &mut self.core)?;
        }
        self.streams.back_up(now, &mut self.core, &mut self.storage)?;
        let kernel = || self.kernel.as_ref().map(Kernel::observe);
        self.inquiries.answer(|()| observe(&self.core, &self.uplink, &self.storage, kernel()));
        let sync = self.storage.start_sync(received != Received::More && !has_streams);
        if let Some(kernel) = &mut self.kernel {
            kernel.catch_up(now, &mut self.core);
        }
        self.uplink.send_with(|out| self.core.poll_transmit(out))?;
        self.streams.send(&mut self.core);
        Ok(sync)
    }

    /// Waits until there is something to do. Returns what was received, and whether a stream is
    /// ready.
    fn wait(&mut self) -> io::Result<(Received, bool)> {
        let deadline_ns = self.deadline_ns();
        let (busy_poll, mut received) = (self.busy_poll, Received::Nothing);
        let mut there_is = busy_poll.look(Some(deadline_ns), || {
            received = self.receive(false)?;
            Ok(received != Received::Nothing || self.waker.is_raised())
        })?;
        let now = now();
        there_is |= deadline_ns <= now.boot_ns;
        if there_is && now.boot_ns < self.look_at_ns {
            return Ok((received, false));
        }
        let ready = self.sleep(if there_is { 0 } else { deadline_ns })?;
        if received == Received::Nothing {
            received = self.receive(ready.datagrams)?;
        }
        self.look_at_ns = crate::now().after(LOOK_INTERVAL);
        Ok((received, ready.streams))
    }

    /// Time of the next scheduled work.
    fn deadline_ns(&mut self) -> u64 {
        if std::mem::take(&mut self.has_synced) || self.storage.is_unfinished() {
            return 0;
        }
        let deadline_ns = self.core.next_deadline().min(self.streams.next_deadline());
        match self.storage.is_busy() {
            true => deadline_ns.min(now().after(BUSY_POLL)),
            false => deadline_ns,
        }
    }

    fn sleep(&self, deadline_ns: u64) -> io::Result<Ready> {
        let mut descriptors = vec![readable(&self.uplink), readable(&self.waker)];
        descriptors.extend(self.streams.interests());
        let is_left = self.uplink.is_left(deadline_ns > 0);
        wait(&mut descriptors, Some(if is_left { 0 } else { deadline_ns }))?;
        Ok(Ready { datagrams: is_ready(&descriptors[0]), streams: descriptors[2..].iter().any(is_ready) })
    }

    /// Receives datagrams. Inboxes are checked first, without a system call. The socket is checked
    /// if they are empty, or if it is known to be readable.
    fn receive(&mut self, is_readable: bool) -> io::Result<Received> {
        let (core, mut received_at, mut batch) = (&mut self.core, None, Batch::default());
        self.uplink.receive_local(|message| {
            let now = *received_at.get_or_insert_with(now);
            batch.count(message.bytes);
            core.handle_datagram(now, message.from, message.bytes);
        });
        let Some(at) = received_at else { return self.receive_from_socket() };
        batch.begin(&mut self.busy_poll, at);
        match is_readable.then(|| self.receive_from_socket()).transpose()? {
            None | Some(Received::Nothing) => Ok(Received::All),
            Some(received) => Ok(received),
        }
    }

    fn receive_from_socket(&mut self) -> io::Result<Received> {
        let enough = self.uplink.counters().received + RECEIVED_MIN;
        let (mut received_at, mut left, mut batch) = (None, Left::More, Batch::default());
        while left == Left::More && self.uplink.counters().received < enough {
            // The clock is read for each batch: if a batch arrived while the process was paused,
            // its requests must be checked against the lease as of now (R12).
            let (core, mut now) = (&mut self.core, None);
            left = self.uplink.receive(|message| {
                let now = *now.get_or_insert_with(crate::now);
                batch.count(message.bytes);
                core.handle_datagram(now, message.from, message.bytes);
            })?;
            received_at = now.or(received_at);
        }
        let Some(at) = received_at else { return Ok(Received::Nothing) };
        batch.begin(&mut self.busy_poll, at);
        Ok(if left == Left::More { Received::More } else { Received::All })
    }
}

fn observe(
    core: &Replica,
    uplink: &Uplink,
    storage: &NodeStorage,
    kernel: Option<KernelObservation>,
) -> NodeObservation {
    NodeObservation {
        status: core.status(),
        datagrams: uplink.counters(),
        log: storage.observe_log(),
        kernel,
    }
}

/// A running node on the thread that currently leads it.
struct Leading<'a> {
    node: Box<Node>,
    stop: &'a Stop,
}

impl hand_off::Led for Leading<'_> {
    type Error = NodeError;
    type Sync = Arc<LogSyncing>;

    fn lead(&mut self) -> Result<Option<Arc<LogSyncing>>, NodeError> {
        while !self.stop.is_stopped() {
            if let Some(sync) = self.node.turn()? {
                return Ok(Some(sync));
            }
        }
        self.node.storage.close()?;
        Ok(None)
    }

    fn sync(sync: &Arc<LogSyncing>) {
        sync.sync_here();
    }

    fn synced(&mut self) {
        self.node.has_synced = true;
    }

    fn synced_elsewhere(sync: &Arc<LogSyncing>) {
        sync.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::bundle::{Bundle, append_bundled};
    use nicekv_proto::{OpId, Reply, Status};

    #[test]
    fn bundle_counts_as_many_callers() {
        let (mut lone, mut bundle) = (Vec::new(), Vec::new());
        Reply::bare(OpId::NONE, Status::Ok).encode(&mut lone);
        Bundle::encode_with(&lone, &mut bundle, |out| append_bundled(&lone, out));
        let mut batch = Batch::default();
        batch.count(&lone);
        assert!(!batch.has_bundle);
        batch.count(&bundle);
        assert!(batch.has_bundle && batch.datagrams == 2);
    }
}
