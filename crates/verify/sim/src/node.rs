//! A storage node: a process around the replica's core, which crashes and restarts, and a disk and clocks, which outlive it.

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

/// Datagrams that a loop with something to do for each takes at once.
const BATCH_MAX: usize = 64;
/// Everything stored is read this often.
const SCRUB_INTERVAL: Duration = Duration::from_millis(500);
/// Of the clients a forgetful node remembers so much: about four with one result each.
const FORGETFUL_BYTES: usize = 700;
/// And of what decisions wrote, that of so many.
const FORGETFUL_DECISIONS: usize = 20;
/// What lookups do by chance is drawn apart.
const KERNEL: u64 = 0x6b65_726e_656c;
/// The wall clock at the beginning of a simulation, in milliseconds of the Unix epoch.
pub const START_UNIX_MS: u64 = 1_800_000_000_000;

/// The clocks of a machine, against the simulation's time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    boot_offset_ns: u64,
    drift_millionths: i64,
    wall_skew_ms: i64,
}

impl Clock {
    /// As wrong as `faults` allow.
    pub fn draw(faults: &Faults, random: &mut Random) -> Self {
        let mut clock = Self {
            boot_offset_ns: random.below(1 << 40),
            drift_millionths: random.around(faults.drift),
            wall_skew_ms: 0,
        };
        clock.step_wall(faults, random);
        clock
    }

    /// The wall clock is set, as wrongly as `faults` allow: maybe to a time before the one it had.
    pub fn step_wall(&mut self, faults: &Faults, random: &mut Random) {
        self.wall_skew_ms = random.around(faults.wall_skew_max_ns / 1_000_000);
    }

    /// What the clocks say at `at_ns`.
    pub fn now(&self, at_ns: u64) -> Now {
        let drifted_ns = i128::from(at_ns) * i128::from(1_000_000 + self.drift_millionths) / 1_000_000;
        let unix_ms = START_UNIX_MS + at_ns / 1_000_000;
        Now {
            boot_ns: self.boot_offset_ns + drifted_ns as u64,
            unix_ms: unix_ms.saturating_add_signed(self.wall_skew_ms),
        }
    }

    /// When the boot-time clock will have reached `boot_ns`.
    pub fn when(&self, boot_ns: u64) -> u64 {
        let drifted_ns = i128::from(boot_ns.saturating_sub(self.boot_offset_ns));
        let at_ns = drifted_ns * 1_000_000 / i128::from(1_000_000 + self.drift_millionths);
        u64::try_from(at_ns).unwrap_or(u64::MAX).saturating_add(2)
    }
}

/// What a crash leaves of the part of the log that is not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kept {
    /// Any part of it.
    Any,
    /// Nothing.
    Forced,
    /// All of it.
    All,
    /// The disk is lost: it starts again with an empty one.
    NoDisk,
    /// The disk is put back as it was when [`Node::take_snapshot`] was called.
    Snapshot,
}

/// What all nodes have in common.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// The instances of the metadata service.
    pub metadata: &'static [SocketAddrV4],
    /// The switch, if it hides the senders of what it passes on.
    pub switch: Option<SocketAddrV4>,
    /// Whether nodes pass on requests to chains that are for others.
    pub coordinates: bool,
    /// Between two reports of who asks for what; zero: there are none.
    pub sources: Duration,
    /// Between two reports of where load lies, likewise.
    pub heat: Duration,
    /// Between two reports of what is stored, likewise.
    pub usage: Duration,
    /// How fast they discard unneeded data.
    pub discard_bytes_per_second: u64,
    /// The seed of the simulation, if their kernels answer gets.
    pub kernel_gets: Option<u64>,
    /// Ops that crash every node which evaluates them, of a million.
    pub deadly: u64,
}

/// A disk as it was.
#[derive(Clone)]
struct Snapshot {
    taken_ns: u64,
    disk: Disk,
    number: u64,
}

/// See the module.
#[derive(Clone)]
pub struct Node {
    /// Its name.
    pub id: NodeId,
    /// Where it is reached.
    pub address: SocketAddrV4,
    /// The running process.
    pub core: Option<Replica>,
    /// What outlives it, unless `in_memory`.
    pub disk: Disk,
    /// What is stored ends with the process.
    pub in_memory: bool,
    /// Everything takes it longer, by the factor that the faults say.
    pub is_slow: bool,
    /// It remembers very few clients.
    pub is_forgetful: bool,
    /// What its disk has room for.
    pub space: DiskSpace,
    /// Its clocks.
    pub clock: Clock,
    /// What was on the disk at an earlier time, if that was kept.
    snapshot: Option<Snapshot>,
    /// The number of its disk, of all that it has had.
    disk_number: u64,
    /// How many it has had.
    disks: u64,
    /// Whether a disk of it was lost, or put back as it was.
    pub has_forgotten: bool,
    /// Counts processes.
    pub process: u64,
    /// The client id under which the process issues updates itself.
    pub internal_client: ClientId,
    /// What the socket holds.
    pub inbox: VecDeque<(SocketAddrV4, Vec<u8>)>,
    /// Of a busy machine: says when the time for the disk's requests is up. The next turn goes on with them.
    pub slices: Option<Random>,
    /// Requests are left.
    pub is_unfinished: bool,
    /// What the disk has done, and the loop has not yet looked at.
    pub done: VecDeque<Busy>,
    /// It does nothing before.
    pub paused_until_ns: u64,
    /// It takes no datagram before: it has others to work on.
    pub busy_until_ns: u64,
    /// When its disk is done with everything that it was given.
    pub disk_free_ns: u64,
    /// When the loop turns next.
    pub turn_at_ns: Option<u64>,
    /// The log begins a segment at this record, and the core writes a checkpoint.
    checkpoint_after: u64,
    /// Which ops have ended it.
    marks: Marks,
    /// What may be shown elsewhere.
    pub shown: Shown,
    /// Where it is shown, if it is.
    pub kernel: Option<Kernel>,
}

impl Node {
    /// Without a process.
    pub fn new(id: NodeId, address: SocketAddrV4, clock: Clock) -> Self {
        // Unless drawn otherwise.
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
        // A memory engine is a new one at every start.
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

    /// Its disk has this much room from now on, and none for large values if it `lacks_room`. The process hears of that when it writes one.
    pub fn set_space(&mut self, space: DiskSpace, lacks_room: bool) {
        self.space = space;
        self.disk.values.is_full = lacks_room;
        if let Some(core) = &mut self.core {
            core.set_disk_space(space);
        }
    }

    /// Keeps what a process that started now would find on the disk.
    pub fn take_snapshot(&mut self, at_ns: u64) {
        let mut disk = self.disk.clone();
        disk.crash_keeping(disk.forced());
        self.snapshot = Some(Snapshot { taken_ns: at_ns, disk, number: self.disk_number });
    }

    /// When that was, if it was.
    pub fn snapshot_ns(&self) -> Option<u64> {
        self.snapshot.as_ref().map(|snapshot| snapshot.taken_ns)
    }

    /// Kills the process; `kept`: the last record of the log that stays, if not left to chance.
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
            Kept::Forced => self.disk.crash_keeping(self.disk.forced()),
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

    /// Whether an op has ended its process in the middle of its turn: then nothing has come of that, and [`Self::crash`] is to follow.
    pub fn has_ended(&self) -> bool {
        self.core.is_some() && self.marks.has_ended()
    }

    /// A datagram reaches the socket; false if there is no room for it.
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

    /// One turn of the driver's loop, up to and including the disk; returns what the disk is busy with. The log begins a segment now and then.
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
                let what = "a node takes in a request that came by another epoch of a chain (C5)";
                self.shown.violation.get_or_insert_with(|| what.into());
            }
        }
        // In this order, as in the driver: a read for a datagram comes before writes that follow a sync, and its answer after them.
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

    /// The kernel goes on by itself; what it sends.
    pub fn pass_kernel(&mut self, inbox_max: usize) -> Vec<Answer> {
        let Some(kernel) = &mut self.kernel else { return Vec::new() };
        let has_room = inbox_max.saturating_sub(self.inbox.len());
        self.inbox.extend(kernel.pass().take(has_room));
        kernel.answers()
    }
}

/// What the core tells is known wherever it is to be.
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
