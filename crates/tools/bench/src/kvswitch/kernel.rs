//! A rack whose switch is the real program: each request is a frame, and what comes of it is read from the program's maps.
//!
//! ```text
//!   request ─▶ frame ─▶ BPF_PROG_TEST_RUN ─▶ registers, HashPipe, loads        period's end:  read_hot ─▶ plan ─▶ change_hot
//!   a write's copies, some requests later ─▶ HotConfirm of each holder
//! ```
//!
//! Detection, round robin and loads are the program's, the policy is the production core, servers are names. What a copy costs its holder when its key is written, which no
//! switch sees, is added as in the model ([`super::rack`]).

use super::bed::{Bed, Ring, Sender, refused};
use super::rack::{Balancer, Period, Request, Setup, System};
use crate::error::{BenchError, Result};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use nicekv_hotkeys::{Change, HotKey, PeriodReport, Plan, Ring as Servers, State, plan};
use nicekv_proto::hot::{HotConfirm, Stamp};
use nicekv_proto::route::leave_room_for_stamp;
use nicekv_proto::{ClientId, Condition, Get, HeaderLayout, KeyDigest, KeyspaceId, OpId, Operation, Update};
use nicekv_switch::{Backend as _, HostId, HotConfig, HotEntry, HotReading};
use nicekv_switch_xdp::Hook;
use std::collections::VecDeque;
use std::mem::offset_of;
use std::time::{Duration, Instant};

/// Of every request (KVSwitch §5.1).
const KEY: &[u8; 16] = b"sixteen bytes, I";
const DIGEST_AT: usize = offset_of!(HeaderLayout, digest);

/// An entry of the table.
#[derive(Clone, Debug)]
struct Live {
    instance: u64,
    /// The owner first.
    holders: Vec<u16>,
    /// What the program's register is.
    seen: u64,
    /// What it had counted at the end of the period before.
    counted: u64,
    /// Its copies have confirmed what was seen when the rack's clock is there.
    closed_until: u64,
}

/// Requests of each server, and of each key with an entry.
type Counted = (Vec<u64>, Vec<(HotKey, u64)>);

/// See the module.
pub(crate) struct KernelRack {
    setup: Setup,
    bed: Bed,
    state: State,
    live: HashMap<HotKey, Live, FixedState>,
    keys: HashMap<u64, HotKey, FixedState>,
    newest: u64,
    /// When the copies of which key confirm, ascending.
    due: VecDeque<(u64, HotKey)>,
    available: Vec<bool>,
    /// Of each server, at the end of the period before.
    counted: Vec<u64>,
    /// Of each server in this period.
    copies_written: Vec<u64>,
    began: u64,
    clock: u64,
    /// Without their digests.
    get: Vec<u8>,
    update: Vec<u8>,
    feeding: Duration,
    since: Instant,
}

impl KernelRack {
    /// The rack of a cell of the figures, which are told of no values in the switch.
    pub(crate) fn new(setup: Setup, hook: Hook, seed: u64) -> Result<Self> {
        assert_ne!(setup.system, System::NetCache, "values are for another bench");
        let setup = Setup { config: setup.system.config(setup.config), ..setup };
        let mut bed = Bed::new(hook, setup.servers)?;
        let (keyspaces, config) = (Vec::from([KeyspaceId::DEFAULT.0]), setup.config);
        let hot = HotConfig { keyspaces, keys_max: config.keys_max, stages: config.stages, seed };
        bed.switch.set_hot(&hot).map_err(refused)?;
        let servers = usize::from(setup.servers);
        let (get, update) = payloads();
        Ok(Self {
            bed,
            state: State::new(&config),
            live: HashMap::default(),
            keys: HashMap::default(),
            newest: 0,
            due: VecDeque::new(),
            available: vec![true; servers],
            counted: vec![0; servers],
            copies_written: vec![0; servers],
            began: 0,
            clock: 0,
            get,
            update,
            feeding: Duration::ZERO,
            since: Instant::now(),
            setup,
        })
    }

    /// Frames a second, while there were some to put through: confirmations are frames, too.
    pub(crate) fn rate(&self) -> f64 {
        self.bed.fed as f64 / self.feeding.as_secs_f64()
    }

    /// Those of whom it is time confirm.
    fn confirm(&mut self) -> Result<()> {
        while let Some((due, key)) = self.due.pop_front_if(|(due, _)| *due <= self.clock) {
            // Written, or installed, again since.
            let Some(entry) = self.live.get(&key).filter(|entry| entry.closed_until == due) else { continue };
            let stamp = Stamp { instance: entry.instance, seen: entry.seen };
            let mut payload = Vec::new();
            HotConfirm { keyspace: key.keyspace, digest: key.digest, stamp }.encode(&mut payload);
            for holder in &entry.holders[1..] {
                self.bed.feed(Sender::Server(*holder), Ring::Unicast, &key.digest, &payload)?;
            }
        }
        Ok(())
    }

    /// A write has passed: the switch has counted it, and all who have copies take it.
    fn write(&mut self, key: HotKey) {
        let Some(entry) = self.live.get_mut(&key) else { return };
        entry.seen += 1;
        entry.holders[1..].iter().for_each(|holder| self.copies_written[usize::from(*holder)] += 1);
        entry.closed_until = self.clock + self.setup.confirm_requests;
        self.due.push_back((entry.closed_until, key));
    }

    /// What the switch has counted in this period: of each server, and of each key with an entry.
    fn counted(&mut self, reading: &HotReading) -> Result<Counted> {
        let mut loads = std::mem::replace(&mut self.copies_written, vec![0; self.counted.len()]);
        for (HostId(id), load) in &reading.loads {
            let server = usize::from(*id) - 1;
            loads[server] += load - std::mem::replace(&mut self.counted[server], *load);
        }
        let mut hot = Vec::new();
        for count in &reading.entries {
            let key = self.keys.get(&count.instance).copied();
            let Some((key, entry)) = key.and_then(|key| Some((key, self.live.get_mut(&key)?))) else {
                return Err(BenchError::Failed(format!(
                    "the switch has an entry {} of nobody",
                    count.instance
                )));
            };
            hot.push((key, count.requests - std::mem::replace(&mut entry.counted, count.requests)));
        }
        Ok((loads, hot))
    }

    fn apply(&mut self, changes: Vec<Change>) -> Result<()> {
        let (mut removed, mut set) = (Vec::new(), Vec::new());
        for Change { key, holders, .. } in changes {
            let old = self.live.remove(&key).map(|entry| entry.instance);
            if let Some(instance) = old {
                self.keys.remove(&instance);
            }
            if holders.is_empty() {
                removed.extend(old);
                continue;
            }
            self.newest += 1;
            set.push(HotEntry {
                keyspace: key.keyspace.0,
                digest: key.digest.0,
                instance: self.newest,
                owner_turns: 1,
                holders: holders[1..].iter().map(|server| HostId(server + 1)).collect(),
                in_switch: false,
            });
            // A new instance begins closed (H1).
            let closed_until = self.clock + self.setup.confirm_requests;
            self.due.push_back((closed_until, key));
            let instance = self.newest;
            self.keys.insert(instance, key);
            self.live.insert(key, Live { instance, holders, seen: 1, counted: 0, closed_until });
        }
        self.bed.switch.change_hot(false, &removed, &set).map_err(refused)
    }
}

impl Balancer for KernelRack {
    type Error = BenchError;

    fn request(&mut self, Request { key, is_write, .. }: Request) -> Result<()> {
        if self.clock == self.began {
            self.since = Instant::now();
        }
        self.clock += 1;
        self.confirm()?;
        let (ring, payload) =
            if is_write { (Ring::Multicast, &mut self.update) } else { (Ring::Unicast, &mut self.get) };
        payload[DIGEST_AT..][..key.digest.0.len()].copy_from_slice(&key.digest.0);
        self.bed.feed(Sender::Client, ring, &key.digest, payload)?;
        if is_write {
            self.write(key);
        }
        Ok(())
    }

    fn end_period(&mut self, owner: impl Fn(&HotKey) -> u16) -> Result<Period> {
        self.feeding += self.since.elapsed();
        let reading = self.bed.switch.read_hot().map_err(refused)?;
        let (loads, hot) = self.counted(&reading)?;
        let copies = || self.live.values().map(|entry| entry.holders.len() - 1);
        let mut period = Period {
            requests: self.clock - self.began,
            absorbed: 0,
            copied_keys: copies().filter(|copies| *copies > 0).count(),
            copies: copies().sum(),
            threshold_ppm: self.state.threshold.share_ppm,
            reinstalled: 0,
            rewatched: 0,
            loads,
        };
        self.began = self.clock;
        if self.setup.system == System::Original {
            return Ok(period);
        }
        let candidate = |of: &nicekv_switch::HotCandidate| {
            (HotKey { keyspace: KeyspaceId(of.keyspace), digest: KeyDigest(of.digest) }, of.count)
        };
        let candidates: Vec<(HotKey, u64)> = reading.candidates.iter().map(candidate).collect();
        let report = PeriodReport { loads: &period.loads, hot: &hot, candidates: &candidates };
        let servers = Servers { available: &self.available };
        let Plan { state, changes, .. } =
            plan(&self.setup.config, &self.state, &report, &servers, |key| Some(owner(key)));
        let had_copies =
            |change: &Change| self.live.get(&change.key).is_some_and(|entry| entry.holders.len() > 1);
        let is_redirected = |change: &&Change| change.holders.len() > 1 || had_copies(change);
        period.reinstalled = changes.iter().filter(is_redirected).count();
        period.rewatched = changes.len() - period.reinstalled;
        self.state = state;
        self.apply(changes)?;
        Ok(period)
    }

    fn expects(&self, key: &HotKey) -> bool {
        self.live.contains_key(key)
    }
}

/// A get and an update of a key, with room for a stamp.
fn payloads() -> (Vec<u8>, Vec<u8>) {
    let (keyspace, digest) = (KeyspaceId::DEFAULT, KeyDigest::of_match_value(0));
    let (op, reply_to) = (OpId { client: ClientId(1), sequence: 1 }, None);
    let (mut get, mut update) = (Vec::new(), Vec::new());
    Get { keyspace, op, digest, reply_to, forwarded: None, key: KEY, padding: 0 }.encode(&mut get);
    let (watermark, condition, return_old, operation) = (0, Condition::Always, false, Operation::Delete);
    Update { keyspace, op, digest, reply_to, watermark, condition, return_old, operation, key: KEY }
        .encode(&mut update);
    leave_room_for_stamp(&mut get);
    leave_room_for_stamp(&mut update);
    (get, update)
}
