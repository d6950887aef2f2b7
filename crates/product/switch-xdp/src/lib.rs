//! The switch of NICEKV in the kernel: the pipeline of `nicekv-switch` as eBPF programs for XDP and
//! for tc, and their loader.
//!
//! [`KernelSwitch::load`] loads the compiled object (in the tree as `bpf/nicekv.bpf.o`, so clang is
//! not needed) and attaches it to each port at the chosen [`Hook`]. From then on the switch
//! forwards other traffic and drops vring traffic. [`Backend::install`] gives it tables. Dropping
//! the [`KernelSwitch`] detaches everything.
//!
//! Interfaces belong to the network namespace of the calling thread: load *and* install inside the
//! switch's namespace.
//!
//! Requirements of ports:
//! - *tc, GSO batches* (`UDP_SEGMENT`): the switch routes by the header of each datagram, so
//!   batches must be segmented. Either *the other end of a veth port* does this before the switch:
//!   `ethtool -K DEV tx-udp-segmentation off`. Or the switch does, if its namespace has a
//!   [segmenter](CUTTER). This costs less: chunks of a large value, which have the same receivers,
//!   then stay in one batch. Without either, a batch for a vring or a server is dropped and
//!   counted. Receivers merge segments again with `gro on`; the port itself needs `tso off`, which
//!   veth requires.
//! - *XDP: the other end of a veth port* must run NAPI, or redirected frames are lost silently:
//!   there, `ethtool -K DEV gro on`. Checksums must be complete on the wire: `ethtool -K DEV tx off
//!   rx off`. A VLAN tag must be in the frame, not in metadata, which a redirect loses: `ethtool -K
//!   DEV txvlan off`. The MTU may be at most 3506.
//! - A port leads to at most one storage host (the egress stage rewrites by port) and any number of
//!   clients. Or it is a trunk to another switch, with any number of hosts and clients behind it;
//!   frames leave by a trunk unchanged. A trunk is a direct link: there is no network between the
//!   switches. A trunk is closed in both directions unless the tables open it, so an empty switch
//!   floods no trunk, and redundant trunks form no loop. If a trunk connects two namespaces, both
//!   of its ends have the same requirements as the host's end of a link at XDP, and none at tc.
//! - Nothing answers ARP for vring addresses: hosts reach the vrings by a route through a permanent
//!   neighbour with the switch's MAC.
//!
//! An *edge switch* runs inside a host whose network has no NICEKV switch. It receives what the
//! host sends to the vrings at one end of a veth pair. The ports of all other servers, with
//! [`Hook::None`], are one interface: the host's own.
//!
//! ```text
//!   host:  sockets ── route of the vrings ──▶ vring0 ═ veth ═ vring1 ── tc: the pipeline ──▶ eth0 ──▶ any Ethernet ──▶ nodes
//!                  └─ everything else ────────────────────────────────────────────────────▶ eth0
//! ```
//!
//! The veth pair segments GSO batches. At the egress of `eth0` they would still be whole, and the
//! first header does not describe the others. The router's MAC is the host's, so that the network
//! learns no wrong address; `vring0` has that MAC, too.

mod attach;
mod contents;
mod error;
pub mod faults;
mod generation;
pub mod gets;
mod hook;
mod hot;
mod interface;
mod layout;
mod maps;
pub mod measure;
mod places;
mod receivers;
mod slots;
mod sys;
#[cfg(test)]
mod tests;
mod trunks;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::OwnedFd;
use std::time::Duration;

use aya::maps::{Array, DevMap, HashMap, MapData, MapError, PerCpuArray, PerCpuValues};
use aya::programs::ProgramFd;
use aya::{Ebpf, EbpfLoader};
use nicekv_switch::{
    Backend, BackendError, Counter, Counters, EntryRequests, HostIndex, HotConfig, HotEntry, HotReading,
    Match, Register, TABLE_COUNT, Table, TableError, TableSet, TableStatus, TableUpdate, VringSet,
};

pub use attach::CUTTER;
use contents::Contents;
pub use error::XdpError;
use error::{KERNEL_ADVICE, platform};
pub use hook::Hook;
use hot::Hot;
pub use layout::c_header;
use layout::{
    Cable, Config, EgressHost, GROUP_SLOTS, Group, GroupEntryKey, HITS_BLOCK, HITS_BLOCKS, Hits, Mac, Place,
    Records, Server, ServerKey, StationKey, Vnodes, VringPair,
};
use maps::{sum, take_data, take_map, write};
use places::Places;
use receivers::GroupKey;
use slots::Slots;

/// The compiled programs. `bpf/build.sh --check` verifies that they match their source.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/nicekv.bpf.o");

/// A port of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The port's number in tables.
    pub index: u16,
    /// The interface, in the network namespace of the caller.
    pub ifindex: u32,
    /// The hook at which the programs are attached.
    pub hook: Hook,
    /// Whether another switch is at the other end. Its programs receive the frames, whatever hook
    /// they are at.
    pub is_trunk: bool,
}

/// Statistics of program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Number of runs.
    pub count: u64,
    /// Total duration of all runs.
    pub time: Duration,
}

/// Makes the kernel count program runs and their duration until the result is dropped. Counting
/// costs each run two clock readings.
pub fn count_runs() -> Result<OwnedFd, XdpError> {
    aya::sys::enable_stats(aya::sys::Stats::RunTime)
        .map_err(|error| XdpError::new("count runs of programs", &error, KERNEL_ADVICE))
}

/// The back end in the kernel. Dropping it detaches all ports.
pub struct KernelSwitch {
    vrings: VringSet,
    ports: Places,
    maps: Maps,
    /// The hooks of the ports, by position of the port.
    hooks: Vec<Hook>,
    /// The egress program, which device maps refer to; `None` until a port uses XDP.
    egress: Option<ProgramFd>,
    group_slots: Slots<GroupKey>,
    /// The number assigned to each entry, by table.
    numbers: [Slots<Match>; TABLE_COUNT],
    /// For each cell, its count when its current entry was installed.
    hits_before: Vec<u64>,
    /// The contents of the two slots; `None`: unknown.
    slots: [Option<Contents>; 2],
    fenced: OwnedFd,
    /// Whether no packet is in progress with a generation other than the one in force.
    is_quiet: bool,
    installed: Option<TableSet>,
    hot: Hot,
    /// Owns the programs and their links.
    programs: Ebpf,
}

/// The maps of `bpf/maps.h`; the fields have the same names.
struct Maps {
    active: Array<MapData, u32>,
    vnodes: Array<MapData, Vnodes>,
    /// Written through `sys`.
    unicast_routes: MapData,
    multicast_routes: MapData,
    group_places: MapData,
    group_entries: HashMap<MapData, GroupEntryKey, u32>,
    record_routes: MapData,
    nodes: MapData,
    records: Array<MapData, Records>,
    groups: MapData,
    fence: MapData,
    hosts: Array<MapData, EgressHost>,
    servers: HashMap<MapData, ServerKey, Server>,
    stations: HashMap<MapData, StationKey, u32>,
    places: Array<MapData, Place>,
    cables: Array<MapData, Cable>,
    members: Array<MapData, Group>,
    registers: PerCpuArray<MapData, u64>,
    ports: DevMap<MapData>,
    macs: HashMap<MapData, Mac, u32>,
    counters: PerCpuArray<MapData, u64>,
    hits: PerCpuArray<MapData, Hits>,
}

impl KernelSwitch {
    /// Loads the programs and attaches them to `ports`. `router_mac` is the source address of
    /// rewritten frames, and of the neighbour to which hosts send vring traffic. The switch drops
    /// vring traffic until the first install.
    pub fn load<V: TryInto<VringSet>>(
        vrings: V,
        router_mac: [u8; 6],
        ports: &[Port],
    ) -> Result<Self, XdpError>
    where
        TableError: From<V::Error>,
    {
        let vrings = vrings.try_into().map_err(TableError::from)?;
        Self::load_object(OBJECT, vrings, router_mac, ports)
    }

    fn load_object(
        object: &[u8],
        vrings: VringSet,
        router_mac: [u8; 6],
        ports: &[Port],
    ) -> Result<Self, XdpError> {
        let ports = Places::new(ports)?;
        let (place_multiplier, port_count) = (ports.multiplier, ports.taking());
        let cutter = attach::cutter();
        let [cutter_near, cutter_far] = cutter.unwrap_or_default();
        let of_rings = config(&vrings, router_mac);
        let config = Config { place_multiplier, port_count, cutter_near, cutter_far, ..of_rings };
        let mut programs = EbpfLoader::new()
            .override_global("config", &config, true)
            .map_max_entries("vnodes", 4 * config.vring_count)
            .load(object)
            .map_err(|error| XdpError::new("load the object", &error, KERNEL_ADVICE))?;
        let maps = Maps::take(&mut programs)
            .map_err(|error| XdpError::new("open the maps of the object", &error, KERNEL_ADVICE))?;
        let mut hot = Hot::take(&mut programs)
            .map_err(|error| XdpError::new("open the maps of hot keys", &error, KERNEL_ADVICE))?;
        let nonce =
            getrandom::u64().map_err(|error| XdpError::new("name its life", &error, KERNEL_ADVICE))?;
        hot.begin_incarnation(nonce.max(1))
            .map_err(|error| XdpError::new("begin its life", &error, KERNEL_ADVICE))?;
        let fenced = generation::fenced();
        let fenced = fenced.map_err(|error| XdpError::new("make a fence", &error, KERNEL_ADVICE))?;
        let contents = Contents::empty(&vrings);
        let mut switch = Self {
            vrings,
            ports,
            maps,
            hooks: Vec::new(),
            egress: None,
            group_slots: Slots::new(0..GROUP_SLOTS),
            numbers: Table::ALL.map(|table| Slots::new(1..layout::numbers(table))),
            hits_before: vec![0; (HITS_BLOCKS * HITS_BLOCK) as usize],
            slots: [Some(contents.clone()), Some(contents)],
            fenced,
            is_quiet: true,
            installed: None,
            hot,
            programs,
        };
        switch.attach()?;
        if let Some([_, far]) = cutter {
            switch.attach_cutter(far)?;
        }
        Ok(switch)
    }

    /// Run statistics of the programs that receive frames, counted while the result of
    /// [`count_runs`] lives.
    pub fn runs(&self) -> Runs {
        let mut runs = Runs::default();
        for name in [attach::XDP, attach::TC] {
            // A program is loaded only for the ports that need it.
            let program = self.programs.program(name).and_then(|program| program.info().ok());
            let Some(info) = program else { continue };
            runs.count += info.run_count();
            runs.time += info.run_time();
        }
        runs
    }

    /// The counts of these cells of `hits` since the switch started, summed over all CPUs.
    fn counted(&self, cells: impl Iterator<Item = u32>) -> Result<Vec<u64>, MapError> {
        let mut blocks: BTreeMap<u32, PerCpuValues<Hits>> = BTreeMap::new();
        let mut counted = Vec::new();
        for cell in cells {
            let block = match blocks.entry(cell / HITS_BLOCK) {
                Entry::Occupied(block) => block.into_mut(),
                Entry::Vacant(place) => {
                    let block = self.maps.hits.get(place.key(), 0)?;
                    place.insert(block)
                }
            };
            counted.push(block.iter().map(|hits| hits[(cell % HITS_BLOCK) as usize]).sum());
        }
        Ok(counted)
    }

    /// The counts of these cells since their entries were installed.
    fn entries_counted(&self, cells: &[u32]) -> Result<Vec<u64>, BackendError> {
        let counted = self.counted(cells.iter().copied());
        let counted = counted.map_err(|error| platform("read the hits", &error))?;
        Ok(cells.iter().zip(counted).map(|(cell, hits)| hits - self.hits_before[*cell as usize]).collect())
    }

    /// The hook of each port, by port number. It is never [`Hook::Auto`].
    pub fn hooks(&self) -> impl Iterator<Item = (u16, Hook)> {
        self.ports.iter().zip(&self.hooks).map(|((_, port), hook)| (port.index, *hook))
    }
}

impl Backend for KernelSwitch {
    fn install(&mut self, tables: &TableSet) -> Result<(), BackendError> {
        tables.validate(&self.vrings)?;
        tables.validate_ports(|port| self.ports.contains(port))?;
        self.install_generation(tables)
    }

    fn update(&mut self, update: &TableUpdate) -> Result<(), BackendError> {
        let tables = update.applied_to(self.installed.as_ref())?;
        tables.validate(&self.vrings)?;
        self.install_generation(&tables)
    }

    fn ports(&self) -> Option<Vec<u16>> {
        let mut ports: Vec<u16> = self.ports.iter().map(|(_, port)| port.index).collect();
        ports.sort_unstable();
        Some(ports)
    }

    fn table_status(&self) -> Result<Vec<TableStatus>, BackendError> {
        Ok(TableStatus::list(self.installed.as_ref(), &self.counters()?))
    }

    fn entry_hits(&self, table: Table) -> Result<Vec<u64>, BackendError> {
        let Some(tables) = &self.installed else { return Ok(Vec::new()) };
        let number = |matches| self.numbers[table as usize].get(&matches).expect("every entry has a number");
        let cells = generation::matches(tables, table).map(number);
        let cells: Vec<u32> = cells.map(|number| layout::hits_at(table as usize) + number).collect();
        self.entries_counted(&cells)
    }

    fn entry_requests(&self, table: Table) -> Result<Vec<EntryRequests>, BackendError> {
        if !table.matches_updates() {
            let reads = self.entry_hits(table)?.into_iter();
            return Ok(reads.map(|reads| EntryRequests { reads, updates: 0 }).collect());
        }
        let Some(tables) = &self.installed else { return Ok(Vec::new()) };
        let number = |matches| self.numbers[table as usize].get(&matches).expect("every entry has a number");
        let reads_at = layout::hits_at(table as usize) + layout::REQUESTS;
        let cells: Vec<u32> =
            generation::matches(tables, table).map(|matches| reads_at + number(matches)).collect();
        let reads = self.entries_counted(&cells)?;
        let cells: Vec<u32> = cells.into_iter().map(|cell| cell + layout::REQUESTS).collect();
        let both = reads.into_iter().zip(self.entries_counted(&cells)?);
        Ok(both.map(|(reads, updates)| EntryRequests { reads, updates }).collect())
    }

    fn read_register(&self, register: Register) -> Result<Vec<u64>, BackendError> {
        let cell = |cell| sum(&self.maps.registers, cell as u32);
        let cells = register.range().map(cell).collect::<Result<_, _>>();
        cells.map_err(|error| platform("read a register", &error))
    }

    fn write_register(&mut self, register: Register, cell: u32, value: u64) -> Result<(), BackendError> {
        let place = register.range().nth(cell as usize).ok_or(BackendError::NoCell { register, cell })?;
        write(&mut self.maps.registers, place as u32, value)
            .map_err(|error| platform("write a register", &error))
    }

    fn reset_register(&mut self, register: Register) -> Result<(), BackendError> {
        register.range().try_for_each(|cell| {
            write(&mut self.maps.registers, cell as u32, 0)
                .map_err(|error| platform("reset a register", &error))
        })
    }

    fn set_hot(&mut self, config: &HotConfig) -> Result<(), BackendError> {
        self.hot.configure(config, || generation::wait(&self.maps.fence, &self.fenced))
    }

    fn change_hot(&mut self, clear: bool, removed: &[u64], set: &[HotEntry]) -> Result<(), BackendError> {
        let hosts = self.installed.as_ref().map(|tables| HostIndex::new(&tables.hosts, &tables.trunks));
        let wait = || generation::wait(&self.maps.fence, &self.fenced);
        self.hot.change(clear, removed, set, hosts.as_ref(), wait)
    }

    fn read_hot(&mut self) -> Result<HotReading, BackendError> {
        let hosts = self.installed.as_ref().map_or(&[][..], |tables| &tables.hosts);
        let wait = || generation::wait(&self.maps.fence, &self.fenced);
        self.hot.read(hosts, |port| self.ports.place(port), wait)
    }

    fn counters(&self) -> Result<Counters, BackendError> {
        let mut counters = Counters::default();
        for counter in Counter::ALL {
            let value = sum(&self.maps.counters, counter.index() as u32);
            counters.add(counter, value.map_err(|error| platform("read the counters", &error))?);
        }
        Ok(counters)
    }
}

impl Maps {
    fn take(programs: &mut Ebpf) -> Result<Self, MapError> {
        Ok(Self {
            active: take_map(programs, "active")?.try_into()?,
            vnodes: take_map(programs, "vnodes")?.try_into()?,
            unicast_routes: take_data(programs, "unicast_routes")?,
            multicast_routes: take_data(programs, "multicast_routes")?,
            group_places: take_data(programs, "group_places")?,
            group_entries: take_map(programs, "group_entries")?.try_into()?,
            record_routes: take_data(programs, "record_routes")?,
            nodes: take_data(programs, "nodes")?,
            records: take_map(programs, "records")?.try_into()?,
            groups: take_data(programs, "groups")?,
            fence: take_data(programs, "fence")?,
            hosts: take_map(programs, "hosts")?.try_into()?,
            servers: take_map(programs, "servers")?.try_into()?,
            stations: take_map(programs, "stations")?.try_into()?,
            places: take_map(programs, "places")?.try_into()?,
            cables: take_map(programs, "cables")?.try_into()?,
            members: take_map(programs, "members")?.try_into()?,
            registers: take_map(programs, "registers")?.try_into()?,
            ports: take_map(programs, "ports")?.try_into()?,
            macs: take_map(programs, "macs")?.try_into()?,
            counters: take_map(programs, "counters")?.try_into()?,
            hits: take_map(programs, "hits")?.try_into()?,
        })
    }
}

fn config(vrings: &VringSet, router_mac: [u8; 6]) -> Config {
    let mut config = Config { router_mac, ..Config::default() };
    for (place, pair) in config.vrings.iter_mut().zip(vrings.iter()) {
        *place = VringPair {
            unicast_network: pair.unicast.address,
            unicast_mask: pair.unicast.mask().to_be_bytes(),
            multicast_network: pair.multicast.address,
            multicast_mask: pair.multicast.mask().to_be_bytes(),
        };
        config.vring_count += 1;
    }
    for octet in (0..=u8::MAX).filter(|octet| vrings.has_octet(*octet)) {
        config.ring_octets[usize::from(octet / 32)] |= 1 << (octet % 32);
    }
    // Without a ring of groups the mask is empty and the network is all ones, which no masked
    // address equals.
    let group = vrings.group().zip(vrings.group_prefix());
    config.group_network = group.map_or([0xff; 4], |(_, prefix)| prefix.address);
    config.group_mask = group.map_or([0; 4], |(_, prefix)| prefix.mask().to_be_bytes());
    config.target_port = group.map_or(0, |(ring, _)| ring.target_port).to_be_bytes();
    config
}
