//! A switch and the servers below it, as loads: which server each request goes to, and nothing of what it says.
//!
//! ```text
//!   request ─▶ entry? ─▶ a valid holder, in turn        period's end:  counts ─▶ plan ─▶ entries
//!                  └───▶ its owner; HashPipe
//! ```
//!
//! HashPipe, prediction, threshold, placement and choice are the production cores (`nicekv_hotkeys`). A rack of racks is the same one level higher: its servers are racks.
//!
//! A write closes the copies of its key, or the value in the switch, until they have confirmed it: for [`Setup::confirm_requests`] requests of the rack, whose number is its
//! clock. A write of a copied key costs each holder one op, a get one op of one server.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use nicekv_hotkeys::{
    Change, Config, HashPipe, HotKey, PeriodReport, Plan, Ring, State, choose_holder, plan,
};
use std::convert::Infallible;

/// Who balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    /// Nobody: each key is asked of its owner.
    Original,
    /// Hot keys are answered by the switch (NetCache), none is copied.
    NetCache,
    /// Hot keys are copied as far as T says.
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

    /// The configuration with which the production policy does what this system does.
    pub(super) fn config(self, config: Config) -> Config {
        let fixed = |threshold_ppm| Config {
            threshold_start_ppm: threshold_ppm,
            threshold_min_ppm: threshold_ppm,
            ..config
        };
        // What is in the switch is NetCache's alone here, and is as much as there are entries.
        let config = Config { values_max: 0, ..config };
        match self {
            Self::Original | Self::KvSwitch => config,
            // No key is asked a hundred times as much as a server has to do, …
            Self::NetCache => fixed(100 * nicekv_hotkeys::MILLION),
            // … and every key with an entry is above a millionth of it for each server.
            Self::Everywhere => fixed(1),
        }
    }
}

/// A rack that requests are put to, in the model or in the kernel.
pub(crate) trait Balancer {
    type Error;

    fn request(&mut self, request: Request) -> Result<(), Self::Error>;

    /// Ends a period; `owner` says where a key is at home.
    fn end_period(&mut self, owner: impl Fn(&HotKey) -> u16) -> Result<Period, Self::Error>;

    /// Whether a key is expected to be among the hottest in the period that has begun.
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

/// What a rack is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) system: System,
    pub(crate) config: Config,
    pub(crate) servers: u16,
    /// For so many requests after a write copies of its key are not valid.
    pub(crate) confirm_requests: u64,
}

/// What is asked.
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
    /// Copies are not valid before the rack's clock is there.
    closed_until: u64,
}

/// What a period was like.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Period {
    pub(crate) loads: Vec<u64>,
    pub(crate) requests: u64,
    /// Answered by the switch.
    pub(crate) absorbed: u64,
    /// Keys with copies while it lasted, and copies beyond their owners'.
    pub(crate) copied_keys: usize,
    pub(crate) copies: usize,
    /// T of the mean load of a server, in millionths.
    pub(crate) threshold_ppm: u32,
    /// What its end has changed: entries whose holders are others, and those that only begin or end to count.
    pub(crate) reinstalled: usize,
    pub(crate) rewatched: usize,
}

/// See the module.
pub(crate) struct Rack {
    setup: Setup,
    pipe: HashPipe,
    state: State,
    live: HashMap<HotKey, Live, FixedState>,
    available: Vec<bool>,
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
            state: State::new(&setup.config),
            live: HashMap::default(),
            available: vec![true; setup.servers.into()],
            loads: vec![0; setup.servers.into()],
            absorbed: 0,
            began: 0,
            clock: 0,
            setup,
        }
    }

    /// Where a request goes, if the switch does not answer it.
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
        // What cannot be stored in a switch is not looked for there.
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
        // The owner is always valid, the others together.
        let valid = if is_open { u64::MAX >> (64 - entry.holders.len()) } else { 1 };
        entry.turn = entry.turn.wrapping_add(1);
        choose_holder(entry.turn, valid).map(|holder| entry.holders[usize::from(holder)])
    }

    /// Ends a period; `owner` says where a key is at home.
    pub(crate) fn end_period(&mut self, owner: impl Fn(&HotKey) -> u16) -> Period {
        let servers = self.loads.len();
        let mut period = Period {
            loads: std::mem::replace(&mut self.loads, vec![0; servers]),
            requests: self.clock - self.began,
            absorbed: std::mem::take(&mut self.absorbed),
            copied_keys: self.live.values().filter(|entry| entry.holders.len() > 1).count(),
            copies: self.live.values().map(|entry| entry.holders.len() - 1).sum(),
            threshold_ppm: self.state.threshold.share_ppm,
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
        let report = PeriodReport { loads: &period.loads, hot: &hot, candidates: &candidates };
        let ring = Ring { available: &self.available };
        let Plan { state, changes, .. } =
            plan(&self.setup.config, &self.state, &report, &ring, |key| Some(owner(key)));
        let had_copies =
            |change: &Change| self.live.get(&change.key).is_some_and(|entry| entry.holders.len() > 1);
        period.reinstalled =
            changes.iter().filter(|change| change.holders.len() > 1 || had_copies(change)).count();
        period.rewatched = changes.len() - period.reinstalled;
        self.state = state;
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
        // The register keeps its turn, and keys start at different places of it.
        entry.turn ^= key.hash(0) as u32;
        (entry.holders, entry.closed_until) = (holders, closed_until);
    }
}

#[cfg(test)]
#[path = "rack_tests.rs"]
mod tests;
