//! Hot keys in the kernel: entries with registers that packets change, the HashPipe, and loads
//! (`bpf/hot.h`).
//!
//! Hot entries do not belong to a generation of tables. Rules:
//!
//! - *The cost of an update does not depend on the number of entries.* Entries that are removed or
//!   replaced are removed first, and a grace period passes before others are installed: the kernel
//!   reuses their memory, and a program that still uses an old entry must not see the registers of
//!   another.
//! - *The newest instance is raised last*, after all entries up to it are installed. A program
//!   reads it before it looks up an entry, so if the entry is missing although its instance is not
//!   newer, it was removed. After an error, instances that were never installed count as used.
//! - *The HashPipe is read in the bank in which no program counts*: the bank number is switched, a
//!   grace period passes, the bank is read and cleared. The HashPipe is per-CPU, and the values are
//!   added up. Its shape is changed only while it has no stages, so that no program counts with a
//!   wrong shape.
//! - *The slot of a value is freed when its entry is removed and no program uses the entry any
//!   more*. Its contents are labelled with their instance, so they are not taken for another
//!   entry's.
//! - *Loads are counted by port*, and reported by node: the counts of a port belong to the node
//!   that was attached to it.

use std::collections::BTreeMap;

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray};
use nicekv_hotkeys::{Config, HotKey, KEYS_MAX, Reading, STAGES_MAX, Slot, stage_seeds, sum_by_key};
use nicekv_proto::{KeyDigest, KeyspaceId};
use nicekv_switch::{
    BackendError, HOST_CAPACITY, HOT_HOLDERS_MAX, HOT_VALUES_MAX, Host, HostId, HostIndex, HostRole,
    HotChange, HotConfig, HotCount, HotEntry, HotReading, PORTS_MAX,
};

use crate::error::platform;
use crate::layout::{self, BANKS, HOST_IDS, HotPipe, HotSlot, KEYSPACE_WORDS, KEYSPACES_OF_WORD};
use crate::maps::{sum, take_data, take_map, write};
use crate::sys;

/// The maps of `bpf/hot_maps.h`; the fields have the same names.
struct HotMaps {
    entries: HashMap<MapData, layout::HotKey, layout::HotEntry>,
    newest: Array<MapData, u64>,
    life: Array<MapData, u64>,
    /// Written through `sys`.
    keyspaces: MapData,
    holders: MapData,
    pipe: Array<MapData, HotPipe>,
    bank: Array<MapData, u32>,
    slots: MapData,
    dropped: PerCpuArray<MapData, u64>,
    loads: PerCpuArray<MapData, u64>,
}

/// The maps, and the loader's own record of what they contain.
pub(crate) struct Hot {
    maps: HotMaps,
    config: HotConfig,
    /// The parameters of the HashPipe; `None` until it is configured.
    pipe: Option<(u32, u32, u64)>,
    bank: u32,
    entries: BTreeMap<(u16, [u8; 16]), HotEntry>,
    newest: u64,
    /// Slots of values that are free.
    free_places: Vec<u16>,
    places: BTreeMap<(u16, [u8; 16]), u16>,
    /// Whether no program uses a removed entry any more.
    is_quiet: bool,
    /// The counts of each port that have already been attributed to nodes.
    port_loads: Vec<u64>,
    /// Requests that have left for each node.
    loads: BTreeMap<HostId, u64>,
}

impl HotMaps {
    fn take(programs: &mut Ebpf) -> Result<Self, MapError> {
        Ok(Self {
            entries: take_map(programs, "hot_entries")?.try_into()?,
            newest: take_map(programs, "hot_newest")?.try_into()?,
            life: take_map(programs, "hot_life")?.try_into()?,
            keyspaces: take_data(programs, "hot_keyspaces")?,
            holders: take_data(programs, "hot_holders")?,
            pipe: take_map(programs, "hot_pipe")?.try_into()?,
            bank: take_map(programs, "hot_bank")?.try_into()?,
            slots: take_data(programs, "hot_slots")?,
            dropped: take_map(programs, "hot_dropped")?.try_into()?,
            loads: take_map(programs, "hot_loads")?.try_into()?,
        })
    }

    fn write_keyspaces(&self, keyspaces: &[u16]) -> Result<(), MapError> {
        let mut words = vec![0_u64; KEYSPACE_WORDS as usize];
        for keyspace in keyspaces.iter().copied().map(u32::from) {
            words[(keyspace / KEYSPACES_OF_WORD) as usize] |= 1 << (keyspace % KEYSPACES_OF_WORD);
        }
        let keys: Vec<u32> = (0..KEYSPACE_WORDS).collect();
        sys::update_elements(&self.keyspaces, &keys, &words).map_err(MapError::IoError)
    }

    /// Reads a bank in which no program counts.
    fn read_bank(&mut self, bank: u32, slots: u32) -> Result<Reading, MapError> {
        let first = bank * KEYS_MAX;
        let found: Vec<HotSlot> =
            sys::lookup_per_cpu(&self.slots, first, slots).map_err(MapError::IoError)?;
        let slot = |slot: &HotSlot| Slot {
            key: HotKey {
                keyspace: KeyspaceId(slot.keyspace as u16),
                digest: KeyDigest((u128::from(slot.high) << 64 | u128::from(slot.low)).to_be_bytes()),
            },
            count: slot.count,
        };
        Ok(Reading { counts: sum_by_key(found.iter().map(slot)), dropped: sum(&self.dropped, bank)? })
    }

    fn empty_bank(&mut self, bank: u32, slots: u32) -> Result<(), MapError> {
        let first = bank * KEYS_MAX;
        sys::empty_per_cpu::<HotSlot>(&self.slots, first, slots).map_err(MapError::IoError)?;
        write(&mut self.dropped, bank, 0)
    }
}

impl Hot {
    pub(crate) fn take(programs: &mut Ebpf) -> Result<Self, MapError> {
        Ok(Self {
            maps: HotMaps::take(programs)?,
            config: HotConfig::default(),
            pipe: None,
            bank: 0,
            entries: BTreeMap::new(),
            newest: 0,
            free_places: (1..=HOT_VALUES_MAX as u16).rev().collect(),
            places: BTreeMap::new(),
            is_quiet: true,
            port_loads: vec![0; PORTS_MAX],
            loads: BTreeMap::new(),
        })
    }

    /// Begins an incarnation of the switch, identified by this nonce (H9).
    pub(crate) fn begin_incarnation(&mut self, nonce: u64) -> Result<(), MapError> {
        self.maps.life.set(0, nonce, 0)
    }

    /// Writes the nodes attached to this switch into a slot that is not in force. `before`: the
    /// nodes that the slot contained, if known.
    pub(crate) fn write_holders(
        &self,
        slot: u32,
        before: Option<&[Host]>,
        hosts: &[Host],
        place: impl Fn(u16) -> u32,
    ) -> Result<(), MapError> {
        let mut ports: BTreeMap<u32, u32> = match before {
            Some(before) => before.iter().map(|host| (host.id.0.into(), 0)).collect(),
            None => (0..HOST_IDS).map(|id| (id, 0)).collect(),
        };
        ports.extend(nodes(hosts).map(|host| (host.id.0.into(), place(host.port) + 1)));
        let keys: Vec<u32> = ports.keys().map(|id| slot * HOST_IDS + id).collect();
        let ports: Vec<u32> = ports.into_values().collect();
        sys::update_elements(&self.maps.holders, &keys, &ports).map_err(MapError::IoError)
    }

    /// Sets the configuration. `wait`: returns when every program run that was in progress has
    /// ended.
    pub(crate) fn configure(
        &mut self,
        config: &HotConfig,
        wait: impl Fn() -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        config.check()?;
        if self.pipe != Some(config.pipe()) {
            self.shape_pipe(config, wait)?;
        }
        if self.config.keyspaces != config.keyspaces {
            self.maps
                .write_keyspaces(&config.keyspaces)
                .map_err(|error| platform("write the keyspaces that spread their hot keys", &error))?;
        }
        self.config = config.clone();
        Ok(())
    }

    /// Replaces the HashPipe by an empty one with another shape.
    fn shape_pipe(
        &mut self,
        config: &HotConfig,
        wait: impl Fn() -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let failed = |error: MapError| platform("shape the HashPipe", &error);
        self.maps.pipe.set(0, HotPipe::default(), 0).map_err(failed)?;
        wait()?;
        // After an error the contents of the maps are unknown.
        let slots = self.pipe.take().map_or(KEYS_MAX, |(slots, ..)| slots);
        (0..BANKS).try_for_each(|bank| self.maps.empty_bank(bank, slots)).map_err(failed)?;
        let shape = Config { keys_max: config.keys_max, stages: config.stages, ..Config::default() };
        let mut pipe =
            HotPipe { stages: config.stages, stage_slots: shape.stage_slots(), ..HotPipe::default() };
        let seeds = stage_seeds(config.stages.min(STAGES_MAX), config.seed);
        pipe.seeds.iter_mut().zip(seeds).for_each(|(place, seed)| *place = seed);
        self.maps.pipe.set(0, pipe, 0).map_err(failed)?;
        self.pipe = Some(config.pipe());
        Ok(())
    }

    /// Changes hot entries. `hosts`: the hosts of the tables in force; `wait`: see
    /// [`Self::configure`].
    pub(crate) fn change(
        &mut self,
        clear: bool,
        removed: &[u64],
        set: &[HotEntry],
        hosts: Option<&HostIndex>,
        wait: impl Fn() -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let is_there = |entry: &HotEntry| self.entries.get(&entry.key()) == Some(entry);
        let entries = &self.entries;
        let change = HotChange::new(self.newest, clear, removed, set, is_there);
        let mut going = change.removed_keys(entries.values());
        let values = entries.values().filter(|entry| entry.in_switch).count();
        let of = |key: &_| entries.get(key);
        let change = change.validated((entries.len(), values), &going, of, hosts)?;
        self.newest = change.newest;
        going.extend(
            change.added.iter().map(|entry| entry.key()).filter(|key| self.entries.contains_key(key)),
        );
        for key in &going {
            let removed = self.maps.entries.remove(&in_map(key));
            removed.map_err(|error| platform("remove a hot entry", &error))?;
            self.entries.remove(key);
            self.free_places.extend(self.places.remove(key));
            self.is_quiet = false;
        }
        if !self.is_quiet {
            wait()?;
            self.is_quiet = true;
        }
        // If the change adds two entries for one key, the later one stays.
        let added: BTreeMap<_, _> = change.added.iter().map(|entry| (entry.key(), *entry)).collect();
        for (key, entry) in added {
            let place = self.free_places.last().copied().filter(|_| entry.in_switch);
            let installed = self.maps.entries.insert(in_map(&key), fresh(entry, place.unwrap_or(0)), 0);
            installed.map_err(|error| platform("install a hot entry", &error))?;
            if let Some(place) = place {
                self.free_places.pop();
                self.places.insert(key, place);
            }
            self.entries.insert(key, entry.clone());
        }
        let raised = self.maps.newest.set(0, change.newest, 0);
        raised.map_err(|error| platform("write the newest instance", &error))
    }

    /// Reads all counts. `place`: returns the position of a port in the maps.
    pub(crate) fn read(
        &mut self,
        hosts: &[Host],
        place: impl Fn(u16) -> u32,
        wait: impl Fn() -> Result<(), BackendError>,
    ) -> Result<HotReading, BackendError> {
        let failed = |error: MapError| platform("read the counts of hot keys", &error);
        let mut reading = HotReading { newest: self.newest, ..HotReading::default() };
        for (key, entry) in &self.entries {
            let counted = self.maps.entries.get(&in_map(key), 0).map_err(failed)?;
            let (requests, answered) = (counted.requests, counted.answered);
            reading.entries.push(HotCount { instance: entry.instance, requests, answered });
        }
        reading.entries.sort_unstable_by_key(|count| count.instance);
        self.settle_loads(hosts, place)?;
        let load = |host: &Host| (host.id, self.loads.get(&host.id).copied().unwrap_or(0));
        reading.loads = nodes(hosts).map(load).collect();
        reading.loads.sort_unstable();
        let Some((slots, ..)) = self.pipe else { return Ok(reading) };
        let counted = self.bank;
        self.maps.bank.set(0, (counted + 1) % BANKS, 0).map_err(failed)?;
        self.bank = (counted + 1) % BANKS;
        wait()?;
        let pipe = self.maps.read_bank(counted, slots).map_err(failed)?;
        self.maps.empty_bank(counted, slots).map_err(failed)?;
        Ok(reading.with_candidates(&pipe, self.config.keys_max))
    }

    /// Adds the new counts of each port to the load of the node attached to it. Called before nodes
    /// change, and for each reading.
    pub(crate) fn settle_loads(
        &mut self,
        hosts: &[Host],
        place: impl Fn(u16) -> u32,
    ) -> Result<(), BackendError> {
        for host in nodes(hosts) {
            let place = place(host.port);
            let counted =
                sum(&self.maps.loads, place).map_err(|error| platform("read the loads of ports", &error))?;
            let before = std::mem::replace(&mut self.port_loads[place as usize], counted);
            *self.loads.entry(host.id).or_default() += counted - before;
        }
        Ok(())
    }
}

/// The storage nodes that are attached to this switch.
fn nodes(hosts: &[Host]) -> impl Iterator<Item = &Host> {
    debug_assert!(hosts.len() <= HOST_CAPACITY, "validated");
    hosts.iter().filter(|host| host.role == HostRole::Node && !host.is_remote)
}

fn in_map(&(keyspace, digest): &(u16, [u8; 16])) -> layout::HotKey {
    let (halves, _) = digest.as_chunks();
    layout::HotKey { digest: [halves[0], halves[1]], keyspace: keyspace.to_be_bytes(), reserved: [0; 6] }
}

/// A new entry. It starts closed: no holder has confirmed anything, and `seen` is above zero (H1).
fn fresh(entry: &HotEntry, value_place: u16) -> layout::HotEntry {
    let mut holders = [layout::HotHolder::default(); HOT_HOLDERS_MAX];
    holders.iter_mut().zip(&entry.holders).for_each(|(place, holder)| place.id = holder.0);
    layout::HotEntry {
        instance: entry.instance,
        seen: 1,
        requests: 0,
        turn: 0,
        holder_count: entry.holders.len() as u8,
        owner_turns: entry.owner_turns,
        value_place,
        holders,
        answered: 0,
    }
}
