//! A storage node: a process around the replica's core, which crashes and restarts, and a disk and
//! clocks, which outlive it.

use crate::chain_room;
use crate::disk::{Busy, Disk};
use crate::faults::Faults;
use crate::kernel::{Answer, Kernel};
use crate::op_marks::Marks;
use crate::script_engine::Programs;
use crate::visibility::Shown;
use nicekv_proto::{ClientId, Duration, NodeId, Now};
use nicekv_replica::Replica;
use nicekv_replica::{DiskSpace, NodeConfig, Scripts, Timing};
use nicekv_testkit::Random;
use std::collections::VecDeque;
use std::net::SocketAddrV4;
use std::sync::Arc;

/// Maximum datagrams that a loop takes at once, if each costs time.
const BATCH_MAX: usize = 64;
/// Interval of the scrub, which reads everything that is stored.
const SCRUB_INTERVAL: Duration = Duration::from_millis(500);
/// Client table of a forgetful node, in bytes: about four clients with one result each.
const FORGETFUL_BYTES: usize = 700;
/// Number of decisions whose results a forgetful node remembers.
const FORGETFUL_DECISIONS: usize = 20;
/// Separates the random sequence of kernel lookups from all others.
const KERNEL: u64 = 0x6b65_726e_656c;
/// The wall clock at the beginning of a simulation, in milliseconds of the Unix epoch.
pub const START_UNIX_MS: u64 = 1_800_000_000_000;

/// A machine's clocks, relative to the simulation's time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    boot_offset_ns: u64,
    drift_millionths: i64,
    wall_skew_ms: i64,
}

impl Clock {
    /// Draws clocks with errors that `faults` allow.
    pub fn draw(faults: &Faults, random: &mut Random) -> Self {
        let mut clock = Self {
            boot_offset_ns: random.below(1 << 40),
            drift_millionths: random.around(faults.drift),
            wall_skew_ms: 0,
        };
        clock.step_wall(faults, random);
        clock
    }

    /// Steps the wall clock to another wrong time that `faults` allow, maybe backwards.
    pub fn step_wall(&mut self, faults: &Faults, random: &mut Random) {
        self.wall_skew_ms = random.around(faults.wall_skew_max_ns / 1_000_000);
    }

    /// The time on this machine at simulation time `at_ns`.
    pub fn now(&self, at_ns: u64) -> Now {
        let drifted_ns = i128::from(at_ns) * i128::from(1_000_000 + self.drift_millionths) / 1_000_000;
        let unix_ms = START_UNIX_MS + at_ns / 1_000_000;
        Now {
            boot_ns: self.boot_offset_ns + drifted_ns as u64,
            unix_ms: unix_ms.saturating_add_signed(self.wall_skew_ms),
        }
    }

    /// The simulation time at which the boot-time clock shows `boot_ns`.
    pub fn when(&self, boot_ns: u64) -> u64 {
        let drifted_ns = i128::from(boot_ns.saturating_sub(self.boot_offset_ns));
        let at_ns = drifted_ns * 1_000_000 / i128::from(1_000_000 + self.drift_millionths);
        u64::try_from(at_ns).unwrap_or(u64::MAX).saturating_add(2)
    }
}

/// The state in which a crash leaves the unsynced part of the log, and the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kept {
    /// The log up to a random record.
    Any,
    /// Only what is synced.
    Forced,
    /// All of the log.
    All,
    /// Nothing: the disk is replaced by an empty one.
    NoDisk,
    /// The disk is replaced by its state at [`Node::take_snapshot`].
    Snapshot,
}

/// Settings that all nodes share.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// The instances of the metadata service.
    pub metadata: &'static [SocketAddrV4],
    /// The switch's address, if the switch replaces the senders' addresses.
    pub switch: Option<SocketAddrV4>,
    /// Whether nodes route requests to chains for others.
    pub coordinates: bool,
    /// Interval of reports on who sends gets; zero: none.
    pub sources: Duration,
    /// Interval of load reports; zero: none.
    pub heat: Duration,
    /// Interval of reports on what is stored; zero: none.
    pub usage: Duration,
    /// How fast nodes copy data from others.
    pub copy_bytes_per_second: u64,
    /// How fast nodes discard unneeded data.
    pub discard_bytes_per_second: u64,
    /// The seed of the simulation, if their kernels answer gets.
    pub kernel_gets: Option<u64>,
    /// Rate of ops that crash every node that evaluates them, per million.
    pub deadly: u64,
}

/// An earlier state of a disk.
#[derive(Clone)]
struct Snapshot {
    taken_ns: u64,
    disk: Disk,
    number: u64,
}

#[derive(Clone)]
pub struct Node {
    pub id: NodeId,
    pub address: SocketAddrV4,
    /// The running process, if there is one.
    pub core: Option<Replica>,
    /// The disk, which outlives the process, unless `in_memory`.
    pub disk: Disk,
    /// Whether everything stored is lost with the process.
    pub in_memory: bool,
    /// Whether everything takes longer, by the factor `slow_factor` of the faults.
    pub is_slow: bool,
    /// Whether its client table is very small.
    pub is_forgetful: bool,
    /// Space left on the disk.
    pub space: DiskSpace,
    pub clock: Clock,
    snapshot: Option<Snapshot>,
    /// The number of the current disk. Snapshots keep the number of theirs.
    disk_number: u64,
    /// Number of disks that the node has had.
    disks: u64,
    /// Whether a disk of this node was ever lost or replaced by an older copy.
    pub has_forgotten: bool,
    /// Number of the current process.
    pub process: u64,
    /// The client id of updates that the process issues itself.
    pub internal_client: ClientId,
    /// Datagrams in the socket.
    pub inbox: VecDeque<(SocketAddrV4, Vec<u8>)>,
    /// For a busy machine: draws after how many disk requests a turn ends. The next turn continues
    /// with the rest.
    pub slices: Option<Random>,
    /// Whether disk requests are left from the last turn.
    pub is_unfinished: bool,
    /// Completed disk operations that the loop has not handled yet.
    pub done: VecDeque<Busy>,
    /// The process does nothing before this time.
    pub paused_until_ns: u64,
    /// The process takes no datagram before this time, since it is still working on others.
    pub busy_until_ns: u64,
    /// When the disk will have completed all its operations.
    pub disk_free_ns: u64,
    /// When the loop runs next.
    pub turn_at_ns: Option<u64>,
    /// At this record the log begins a new segment, and the core writes a checkpoint.
    checkpoint_after: u64,
    /// The ops that have crashed this node's processes.
    marks: Marks,
    /// Model of a cache that answers gets for the node.
    pub shown: Shown,
    /// The kernel, if it answers gets.
    pub kernel: Option<Kernel>,
}

impl Node {
    /// A node whose process is not running.
    pub fn new(id: NodeId, address: SocketAddrV4, clock: Clock) -> Self {
        // A scenario may set these later.
        let (in_memory, is_slow, is_forgetful) = (false, false, false);
        Self {
            id,
            address,
            core: None,
            disk: Disk::new(),
            in_memory,
            is_slow,
            is_forgetful,
            space: DiskSpace::Enough,
            clock,
            snapshot: None,
            disk_number: 1,
            disks: 1,
            has_forgotten: false,
            process: 0,
            internal_client: ClientId(0),
            inbox: VecDeque::new(),
            slices: None,
            is_unfinished: false,
            done: VecDeque::new(),
            paused_until_ns: 0,
            busy_until_ns: 0,
            disk_free_ns: 0,
            turn_at_ns: None,
            checkpoint_after: 0,
            marks: Marks::default(),
            shown: Shown::default(),
            kernel: None,
        }
    }

    /// Starts a process, which replays the log.
    pub fn start(&mut self, at_ns: u64, surroundings: &Surroundings, random: &mut Random) {
        assert!(self.core.is_none());
        self.process += 1;
        // A memory engine is new in every process.
        let life = if self.in_memory { self.process } else { self.disk_number };
        let now = self.clock.now(at_ns);
        let unix_ms = START_UNIX_MS + at_ns / 1_000_000;
        let internal_client = ClientId::new(unix_ms, random.bits());
        self.internal_client = internal_client;
        let mut core = Replica::new(NodeConfig {
            node: self.id,
            metadata: surroundings.metadata.to_vec(),
            switch: surroundings.switch,
            coordinates: surroundings.coordinates,
            incarnation: random.bits(),
            storage: u128::from(self.id.0) << 64 | u128::from(life),
            internal_client,
            value_bytes_max: nicekv_proto::limits::LARGE_VALUE_BYTES_MAX,
            hash_seed: 7,
            tells_visibility: true,
            timing: Timing {
                scrub_interval: SCRUB_INTERVAL,
                usage_interval: surroundings.usage,
                sources_interval: surroundings.sources,
                heat_interval: surroundings.heat,
                copy_bytes_per_second: surroundings.copy_bytes_per_second,
                discard_bytes_per_second: surroundings.discard_bytes_per_second,
                ..Timing::default()
            },
        });
        core.run_scripts(Scripts::new(Arc::new(Programs)));
        if !self.in_memory && surroundings.deadly > 0 {
            core.mark_ops(self.marks.begin_process(surroundings.deadly));
        }
        if self.is_forgetful {
            core.bound_clients(FORGETFUL_BYTES);
            core.bound_recent(FORGETFUL_DECISIONS);
        }
        self.shown.begin();
        self.disk.replay(now, &mut core);
        self.kernel = surroundings
            .kernel_gets
            .map(|seed| Kernel::new(Random::new(seed ^ KERNEL ^ self.process << 16 ^ u64::from(self.id.0))));
        listen(&mut core, &mut self.shown, &mut self.kernel);
        core.set_disk_space(self.space);
        self.core = Some(core);
        self.checkpoint_after = self.disk.appended() + random.between(20, 400);
    }

    /// Sets the space left on the disk. If `lacks_room`, there is none for large values. The
    /// process notices at its next write.
    pub fn set_space(&mut self, space: DiskSpace, lacks_room: bool) {
        self.space = space;
        self.disk.values.is_full = lacks_room;
        if let Some(core) = &mut self.core {
            core.set_disk_space(space);
        }
    }

    /// Keeps the state of the disk that a process started now would find.
    pub fn take_snapshot(&mut self, at_ns: u64) {
        let mut disk = self.disk.clone();
        disk.crash_keeping(disk.synced());
        self.snapshot = Some(Snapshot { taken_ns: at_ns, disk, number: self.disk_number });
    }

    /// When the snapshot was taken, if there is one.
    pub fn snapshot_ns(&self) -> Option<u64> {
        self.snapshot.as_ref().map(|snapshot| snapshot.taken_ns)
    }

    /// Kills the process; `kept` says what is left on its disk.
    pub fn crash(&mut self, kept: Kept, random: &mut Random) {
        self.kernel = None;
        self.core = None;
        self.inbox.clear();
        self.done.clear();
        self.is_unfinished = false;
        self.has_forgotten |= matches!(kept, Kept::NoDisk | Kept::Snapshot);
        match kept {
            _ if self.in_memory => self.disk = Disk::new(),
            Kept::Any => self.disk.crash(random),
            Kept::Forced => self.disk.crash_keeping(self.disk.synced()),
            Kept::All => self.disk.crash_keeping(self.disk.appended()),
            Kept::NoDisk => {
                self.disks += 1;
                (self.disk, self.disk_number) = (Disk::new(), self.disks);
            }
            Kept::Snapshot => {
                let Snapshot { disk, number, .. } = self.snapshot.clone().expect("a snapshot was taken");
                (self.disk, self.disk_number) = (disk, number);
            }
        }
        (self.turn_at_ns, self.disk_free_ns, self.paused_until_ns, self.busy_until_ns) = (None, 0, 0, 0);
    }

    /// Whether an op has crashed the process during its turn. Then the turn has no effects, and
    /// [`Self::crash`] must follow.
    pub fn has_ended(&self) -> bool {
        self.core.is_some() && self.marks.has_ended()
    }

    /// A datagram arrives in the socket. False if there is no room for it.
    pub fn receive(&mut self, at_ns: u64, from: SocketAddrV4, bytes: Vec<u8>, inbox_max: usize) -> bool {
        let now_ns = self.clock.now(at_ns).boot_ns;
        let for_process = match &mut self.kernel {
            Some(kernel) => kernel.receive(now_ns, from, bytes),
            None => Some(bytes),
        };
        let Some(bytes) = for_process else { return true };
        let has_room = self.inbox.len() < inbox_max;
        if self.core.is_some() && has_room {
            self.inbox.push_back((from, bytes));
        }
        has_room
    }

    /// How many datagrams the loop takes now; each keeps it busy for `service_ns`.
    fn take_batch(&mut self, at_ns: u64, service_ns: u64) -> usize {
        if at_ns < self.busy_until_ns {
            return 0;
        }
        let count = if service_ns == 0 { self.inbox.len() } else { self.inbox.len().min(BATCH_MAX) };
        self.busy_until_ns = at_ns + count as u64 * service_ns;
        count
    }

    /// Runs the driver's loop once, up to and including the disk requests. Returns the operations
    /// that take time. Now and then the log begins a new segment.
    pub fn turn(&mut self, at_ns: u64, service_ns: u64, random: &mut Random) -> Vec<Busy> {
        let now = self.clock.now(at_ns);
        let batch = self.take_batch(at_ns, service_ns);
        let Some(core) = &mut self.core else { return Vec::new() };
        for (from, bytes) in self.inbox.drain(..batch) {
            listen(core, &mut self.shown, &mut self.kernel);
            match chain_room::is_stamped(&bytes) {
                true => self.shown.before_stamped(&chain_room::plain(&bytes)),
                false => self.shown.before(core, &self.disk, &chain_room::plain(&bytes)),
            }
            let before = chain_room::to_be_refused(core, &bytes);
            core.handle_datagram(now, from, &bytes);
            if before.is_some_and(|before| before.has_more(core, &bytes)) {
                let what = "a node accepts a request that was routed by another epoch of its chain (C5)";
                self.shown.violation.get_or_insert_with(|| what.into());
            }
        }
        // The order is that of the driver: a read for a datagram is executed before writes that
        // follow a sync, and answered after them.
        for busy in self.done.drain(..) {
            self.disk.finish(now, core, busy);
        }
        if core.next_deadline() <= now.boot_ns {
            core.handle_deadline(now);
        }
        core.handle_batch_end(now);
        let mut busy = Vec::new();
        if self.marks.has_ended() {
            return busy;
        }
        let slices = &mut self.slices;
        let is_over = || slices.as_mut().is_some_and(|random| random.below(2) == 0);
        self.is_unfinished = !self.disk.execute_until(now, core, &mut busy, is_over);
        if self.is_unfinished {
            return busy;
        }
        if self.disk.appended() >= self.checkpoint_after {
            core.checkpoint();
            busy.extend(self.disk.execute(now, core));
            self.checkpoint_after = self.disk.appended() + random.between(20, 400);
        }
        busy
    }

    /// Writes the next datagram to `out`; returns where it goes.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        let core = self.core.as_mut()?;
        listen(core, &mut self.shown, &mut self.kernel);
        if let Some(kernel) = &mut self.kernel {
            kernel.grant(core);
        }
        let to = core.poll_transmit(out)?;
        self.shown.after(out);
        Some(to)
    }

    /// Continues the kernel's lookups. Returns its answers.
    pub fn pass_kernel(&mut self, inbox_max: usize) -> Vec<Answer> {
        let Some(kernel) = &mut self.kernel else { return Vec::new() };
        let has_room = inbox_max.saturating_sub(self.inbox.len());
        self.inbox.extend(kernel.pass().take(has_room));
        kernel.answers()
    }
}

/// Passes changes that the core publishes to the cache model and to the kernel.
fn listen(core: &mut Replica, shown: &mut Shown, kernel: &mut Option<Kernel>) {
    while let Some(shift) = core.poll_visibility() {
        if let Some(kernel) = kernel {
            kernel.take(core, shift.clone());
        }
        shown.make(shift);
    }
    while let Some(shift) = core.poll_copies() {
        if let Some(kernel) = kernel {
            kernel.take_copy(core, shift);
        }
    }
}
