//! A model of a switch and its servers: which server each request goes to. It has no packets or
//! values.
//!
//! ```text
//!   request ─▶ entry? ─▶ a valid holder, in turn        period's end:  counts ─▶ plan ─▶ entries
//!                  └───▶ its owner; HashPipe
//! ```
//!
//! HashPipe, prediction, threshold, placement and choice are the production cores
//! (`nicekv_hotkeys`). A rack of racks is the same one level higher: its servers are racks.
//!
//! A write closes the copies of its key, or its value in the switch, until they have confirmed the
//! write: for [`Setup::confirm_requests`] requests of the rack, whose count of requests is its
//! clock. A write of a copied key is an op of every holder, a get an op of one server.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use nicekv_hotkeys::{
    Change, Config, HashPipe, HotKey, PeriodReport, Plan, Ring, State, choose_holder, plan,
};
use std::convert::Infallible;

/// How load is balanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    /// Not at all: owners answer all requests of their keys.
    Original,
    /// The switch answers hot keys (NetCache); there are no copies.
    NetCache,
    /// Hot keys are copied as the threshold T decides.
    KvSwitch,
    /// Hot keys are copied to all servers.
    Everywhere,
}

impl System {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Original => "original",
            Self::NetCache => "netcache",
            Self::KvSwitch => "kvswitch",
            Self::Everywhere => "everywhere",
        }
    }

    /// The configuration that makes the production policy behave as this system.
    pub(super) fn config(self, config: Config) -> Config {
        let fixed = |threshold_ppm| Config {
            threshold_start_ppm: threshold_ppm,
            threshold_min_ppm: threshold_ppm,
            ..config
        };
        // Only NetCache has values in the switch here, one for every entry.
        let config = Config { values_max: 0, ..config };
        match self {
            Self::Original | Self::KvSwitch => config,
            // No key has a hundred times the mean load of a server, …
            Self::NetCache => fixed(100 * nicekv_hotkeys::MILLION),
            // … and every key with an entry has more than a millionth of it.
            Self::Everywhere => fixed(1),
        }
    }
}

/// A rack: the model, or the one in the kernel.
pub(crate) trait Balancer {
    type Error;

    fn request(&mut self, request: Request) -> Result<(), Self::Error>;

    /// Ends a period; `owner` is the server that owns a key.
    fn end_period(&mut self, owner: impl Fn(&HotKey) -> u16) -> Result<Period, Self::Error>;

    /// Whether the key is predicted to be one of the hottest in the current period.
    fn expects(&self, key: &HotKey) -> bool;
}

impl Balancer for Rack {
    type Error = Infallible;

    fn request(&mut self, request: Request) -> Result<(), Infallible> {
        Self::request(self, request);
        Ok(())
    }

    fn end_period(&mut self, owner: impl Fn(&HotKey) -> u16) -> Result<Period, Infallible> {
        Ok(Self::end_period(self, owner))
    }

    fn expects(&self, key: &HotKey) -> bool {
        self.live.contains_key(key)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) system: System,
    pub(crate) config: Config,
    pub(crate) servers: u16,
    /// After a write, copies of its key are invalid for this number of requests.
    pub(crate) confirm_requests: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) key: HotKey,
    pub(crate) owner: u16,
    pub(crate) is_write: bool,
    /// Its value is too large for a switch.
    pub(crate) is_big: bool,
}

/// An entry of the switch.
#[derive(Clone, Debug, Default)]
struct Live {
    holders: Vec<u16>,
    turn: u32,
    count: u64,
    /// Copies are invalid before this time of the rack's clock.
    closed_until: u64,
}

/// The counts of a period.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Period {
    pub(crate) loads: Vec<u64>,
    pub(crate) requests: u64,
    /// Requests that the switch answered.
    pub(crate) absorbed: u64,
    /// Keys that had copies, and number of copies, without those of owners.
    pub(crate) copied_keys: usize,
    pub(crate) copies: usize,
    /// Threshold T in millionths of the mean load of a server.
    pub(crate) threshold_ppm: u32,
    /// Changes at its end: entries with other holders, and entries that only begin or cease to be
    /// counted.
    pub(crate) reinstalled: usize,
    pub(crate) rewatched: usize,
}

/// The production policy, and its state between two periods.
pub(super) struct Policy {
    config: Config,
    state: State,
    available: Vec<bool>,
}

/// Requests of keys in a period.
type Counts<'a> = &'a [(HotKey, u64)];

impl Policy {
    pub(super) fn new(setup: &Setup) -> Self {
        let available = vec![true; setup.servers.into()];
        Self { config: setup.config, state: State::new(&setup.config), available }
    }

    /// Threshold T of the current period.
    pub(super) fn threshold_ppm(&self) -> u32 {
        self.state.threshold.share_ppm
    }

    /// Plans the next period from the counts of this one: of keys with entries, and of candidates.
    /// Counts the changes in `period`.
    pub(super) fn plan(
        &mut self,
        period: &mut Period,
        (hot, candidates): (Counts<'_>, Counts<'_>),
        owner: impl Fn(&HotKey) -> u16,
        has_copies: impl Fn(&HotKey) -> bool,
    ) -> Vec<Change> {
        let report = PeriodReport { loads: &period.loads, hot, candidates };
        let ring = Ring { available: &self.available };
        let Plan { state, changes, .. } =
            plan(&self.config, &self.state, &report, &ring, |key| Some(owner(key)));
        let is_redirected = |change: &&Change| change.holders.len() > 1 || has_copies(&change.key);
        period.reinstalled = changes.iter().filter(is_redirected).count();
        period.rewatched = changes.len() - period.reinstalled;
        self.state = state;
        changes
    }
}

pub(crate) struct Rack {
    setup: Setup,
    pipe: HashPipe,
    policy: Policy,
    live: HashMap<HotKey, Live, FixedState>,
    loads: Vec<u64>,
    absorbed: u64,
    began: u64,
    clock: u64,
}

impl Rack {
    pub(crate) fn new(setup: Setup, seed: u64) -> Self {
        let setup = Setup { config: setup.system.config(setup.config), ..setup };
        Self {
            pipe: HashPipe::new(&setup.config, seed).expect("the bench's own parameters"),
            policy: Policy::new(&setup),
            live: HashMap::default(),
            loads: vec![0; setup.servers.into()],
            absorbed: 0,
            began: 0,
            clock: 0,
            setup,
        }
    }

    /// Routes a request; `None` if the switch answers it.
    pub(crate) fn request(&mut self, request: Request) -> Option<u16> {
        self.clock += 1;
        let server =
            if self.setup.system == System::Original { Some(request.owner) } else { self.route(request) };
        match server {
            Some(server) => self.loads[usize::from(server)] += 1,
            None => self.absorbed += 1,
        }
        server
    }

    fn route(&mut self, Request { key, owner, is_write, is_big }: Request) -> Option<u16> {
        let caches = self.setup.system == System::NetCache;
        // The switch has no entries for big values.
        if caches && is_big {
            return Some(owner);
        }
        let Some(entry) = self.live.get_mut(&key) else {
            self.pipe.count(key);
            return Some(owner);
        };
        entry.count += 1;
        if is_write {
            entry.closed_until = self.clock + self.setup.confirm_requests;
            entry.holders[1..].iter().for_each(|holder| self.loads[usize::from(*holder)] += 1);
            return Some(owner);
        }
        let is_open = self.clock >= entry.closed_until;
        if caches {
            return (!is_open).then_some(owner);
        }
        // The owner is always valid; copies are valid all together.
        let valid = if is_open { u64::MAX >> (64 - entry.holders.len()) } else { 1 };
        entry.turn = entry.turn.wrapping_add(1);
        choose_holder(entry.turn, valid).map(|holder| entry.holders[usize::from(holder)])
    }

    /// Ends a period; `owner` is the server that owns a key.
    pub(crate) fn end_period(&mut self, owner: impl Fn(&HotKey) -> u16) -> Period {
        let servers = self.loads.len();
        let mut period = Period {
            loads: std::mem::replace(&mut self.loads, vec![0; servers]),
            requests: self.clock - self.began,
            absorbed: std::mem::take(&mut self.absorbed),
            copied_keys: self.live.values().filter(|entry| entry.holders.len() > 1).count(),
            copies: self.live.values().map(|entry| entry.holders.len() - 1).sum(),
            threshold_ppm: self.policy.threshold_ppm(),
            reinstalled: 0,
            rewatched: 0,
        };
        self.began = self.clock;
        if self.setup.system == System::Original {
            return period;
        }
        let hot: Vec<(HotKey, u64)> =
            self.live.iter_mut().map(|(key, entry)| (*key, std::mem::take(&mut entry.count))).collect();
        let candidates = self.pipe.read().counts;
        let live = &self.live;
        let has_copies = |key: &HotKey| live.get(key).is_some_and(|entry| entry.holders.len() > 1);
        let changes = self.policy.plan(&mut period, (&hot, &candidates), owner, has_copies);
        changes.into_iter().for_each(|change| self.apply(change));
        period
    }

    fn apply(&mut self, Change { key, holders, .. }: Change) {
        if holders.is_empty() {
            self.live.remove(&key);
            return;
        }
        // A new instance begins closed (H1).
        let closed_until = self.clock + self.setup.confirm_requests;
        let entry = self.live.entry(key).or_default();
        // The register keeps its position; each key starts at another one.
        entry.turn ^= key.hash(0) as u32;
        (entry.holders, entry.closed_until) = (holders, closed_until);
    }
}

#[cfg(test)]
#[path = "rack_tests.rs"]
mod tests;
