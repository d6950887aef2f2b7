//! A rack whose switch is the real program: each request is a frame, and the results are read from
//! the program's maps.
//!
//! ```text
//!   request ─▶ frame ─▶ BPF_PROG_TEST_RUN ─▶ registers, HashPipe, loads        period's end:  read_hot ─▶ plan ─▶ change_hot
//!   a write's copies, some requests later ─▶ HotConfirm of each holder
//! ```
//!
//! Detection, round robin and loads are those of the program, the policy is the production core,
//! and servers are names only. The load that a write of a copied key causes at its holders, which
//! no switch sees, is added as in the model ([`super::rack`]).

use super::rack::{Balancer, Period, Policy, Request, Setup, System};
use super::testbed::{Ring, Sender, Testbed};
use crate::error::{BenchError, Result};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use nicekv_hotkeys::{Change, HotKey};
use nicekv_proto::hot::{HotConfirm, Stamp};
use nicekv_proto::route::leave_room_for_stamp;
use nicekv_proto::{ClientId, Condition, Get, HeaderLayout, KeyDigest, KeyspaceId, OpId, Operation, Update};
use nicekv_switch::{Backend as _, HostId, HotConfig, HotEntry, HotReading};
use nicekv_switch_xdp::Hook;
use std::collections::VecDeque;
use std::mem::offset_of;
use std::time::{Duration, Instant};

/// Key of every request (KVSwitch §5.1).
const KEY: &[u8; 16] = b"sixteen bytes, I";
const DIGEST_AT: usize = offset_of!(HeaderLayout, digest);

/// An entry of the table.
#[derive(Clone, Debug)]
struct Live {
    instance: u64,
    /// The owner first.
    holders: Vec<u16>,
    /// Value of the program's register.
    seen: u64,
    /// Its count at the end of the last period.
    counted: u64,
    /// When its copies have confirmed the last write, by the rack's clock.
    closed_until: u64,
}

/// Requests of each server, and of each key with an entry.
type Counted = (Vec<u64>, Vec<(HotKey, u64)>);

pub(crate) struct KernelRack {
    setup: Setup,
    testbed: Testbed,
    policy: Policy,
    live: HashMap<HotKey, Live, FixedState>,
    keys: HashMap<u64, HotKey, FixedState>,
    newest: u64,
    /// When the copies of each written key confirm, in ascending order.
    due: VecDeque<(u64, HotKey)>,
    /// Count of each server at the end of the last period.
    counted: Vec<u64>,
    /// Writes of copies at each server in this period.
    copies_written: Vec<u64>,
    began: u64,
    clock: u64,
    /// Payloads, into which each request's digest is written.
    get: Vec<u8>,
    update: Vec<u8>,
    feeding: Duration,
    since: Instant,
}

impl KernelRack {
    pub(crate) fn new(setup: Setup, hook: Hook, seed: u64) -> Result<Self> {
        assert_ne!(setup.system, System::NetCache, "values in the switch are not measured here");
        let setup = Setup { config: setup.system.config(setup.config), ..setup };
        let mut testbed = Testbed::new(hook, setup.servers)?;
        let (keyspaces, config) = (Vec::from([KeyspaceId::DEFAULT.0]), setup.config);
        let hot = HotConfig { keyspaces, keys_max: config.keys_max, stages: config.stages, seed };
        testbed.switch.set_hot(&hot)?;
        let servers = usize::from(setup.servers);
        let (get, update) = payloads();
        Ok(Self {
            testbed,
            policy: Policy::new(&setup),
            live: HashMap::default(),
            keys: HashMap::default(),
            newest: 0,
            due: VecDeque::new(),
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

    /// Frames per second, confirmations included, without the ends of periods.
    pub(crate) fn rate(&self) -> f64 {
        self.testbed.fed as f64 / self.feeding.as_secs_f64()
    }

    /// Sends the confirmations that are due.
    fn confirm(&mut self) -> Result<()> {
        while let Some((due, key)) = self.due.pop_front_if(|(due, _)| *due <= self.clock) {
            // Skipped if the key was written or installed again since.
            let Some(entry) = self.live.get(&key).filter(|entry| entry.closed_until == due) else { continue };
            let stamp = Stamp { instance: entry.instance, seen: entry.seen };
            let mut payload = Vec::new();
            HotConfirm { keyspace: key.keyspace, digest: key.digest, stamp }.encode(&mut payload);
            for holder in &entry.holders[1..] {
                self.testbed.feed(Sender::Server(*holder), Ring::Unicast, &key.digest, &payload)?;
            }
        }
        Ok(())
    }

    /// After a write: the switch has counted it, and every holder of a copy applies it.
    fn write(&mut self, key: HotKey) {
        let Some(entry) = self.live.get_mut(&key) else { return };
        entry.seen += 1;
        entry.holders[1..].iter().for_each(|holder| self.copies_written[usize::from(*holder)] += 1);
        entry.closed_until = self.clock + self.setup.confirm_requests;
        self.due.push_back((entry.closed_until, key));
    }

    /// The counts of the switch in this period: per server, and per key with an entry.
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
                    "the switch has an unknown entry {}",
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
        Ok(self.testbed.switch.change_hot(false, &removed, &set)?)
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
        self.testbed.feed(Sender::Client, ring, &key.digest, payload)?;
        if is_write {
            self.write(key);
        }
        Ok(())
    }

    fn end_period(&mut self, owner: impl Fn(&HotKey) -> u16) -> Result<Period> {
        self.feeding += self.since.elapsed();
        let reading = self.testbed.switch.read_hot()?;
        let (loads, hot) = self.counted(&reading)?;
        let copies = || self.live.values().map(|entry| entry.holders.len() - 1);
        let mut period = Period {
            requests: self.clock - self.began,
            absorbed: 0,
            copied_keys: copies().filter(|copies| *copies > 0).count(),
            copies: copies().sum(),
            threshold_ppm: self.policy.threshold_ppm(),
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
        let live = &self.live;
        let has_copies = |key: &HotKey| live.get(key).is_some_and(|entry| entry.holders.len() > 1);
        let changes = self.policy.plan(&mut period, (&hot, &candidates), owner, has_copies);
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
