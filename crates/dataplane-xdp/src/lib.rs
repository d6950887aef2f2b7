//! The switch of NICEKV in the kernel: the pipeline of `nicekv-dataplane` as XDP programs, and their loader.
//!
//! [`Xdp::load`] loads the compiled object (in the tree as `bpf/nicekv.bpf.o`, so no clang is needed), attaches
//! it in native mode to the ports, and from then on the switch forwards others' traffic and drops vring
//! traffic. [`Backend::install`] gives it tables. Dropping the [`Xdp`] detaches everything.
//!
//! Everything refers to interfaces of the network namespace that the calling thread is in: load *and* install
//! inside the switch's namespace.
//!
//! What the ports need:
//! - *The other end of a veth port* must run NAPI, or redirected frames are lost in silence: there,
//!   `ethtool -K DEV gro on`. Checksums must be complete on the wire: `ethtool -K DEV tx off rx off`. A VLAN tag
//!   must be in the frame, not beside it: `ethtool -K DEV txvlan off` (a tag kept in metadata is lost by a
//!   redirect). Its MTU may be at most 3506.
//! - A port carries at most one storage host (the egress stage rewrites by port); any number of clients.
//! - Nothing answers ARP for vring addresses: hosts reach the vrings by a route through a permanent neighbour
//!   with the switch's MAC.

mod error;
pub mod faults;
mod generation;
mod layout;
mod places;
mod slots;
mod sys;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use aya::maps::{Array, DevMap, HashMap, Map, MapData, MapError, PerCpuArray, PerCpuValues};
use aya::programs::{ProgramFd, XdpMode};
use aya::{Ebpf, EbpfLoader};
use nicekv_dataplane::{
    Backend, BackendError, Counter, Counters, Match, Register, Table, TableError, TableSet, TableStatus,
    TableUpdate, VringSet,
};

pub use error::XdpError;
use error::{KERNEL_ADVICE, PORT_ADVICE, platform};
pub use layout::c_header;
use layout::{
    Config, EgressHost, Fault, GROUP_SLOTS, HIT_SLOTS, PORT_TWINS, Place, Server, ServerKey, StationKey,
    VringPair,
};
use places::Places;
use slots::Slots;

/// The compiled programs. `bpf/build.sh --check` proves that they are what their source compiles to.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/nicekv.bpf.o");

const INGRESS: &str = "nicekv_ingress";
const EGRESS: &str = "nicekv_egress";

/// The ports of a member set, by their places. Not the host names: a host that moves to another port keeps
/// its name, and needs another group.
type GroupKey = BTreeSet<u32>;
/// What an entry is known by.
type EntryKey = (Table, Match);

/// A port of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The number that tables use.
    pub index: u16,
    /// The interface, in the network namespace of the caller.
    pub ifindex: u32,
}

/// The XDP back end. Detaches on drop.
pub struct Xdp {
    vrings: VringSet,
    ports: Places,
    maps: Maps,
    egress: ProgramFd,
    group_slots: Slots<GroupKey>,
    hit_slots: Slots<EntryKey>,
    /// Of the generation in force, in the order of the tables.
    tries: Vec<Arc<OwnedFd>>,
    installed: Option<TableSet>,
    /// Owns the programs and their links.
    programs: Ebpf,
}

/// The maps of `bpf/maps.h`, by the same names.
struct Maps {
    active: Array<MapData, u32>,
    /// Arrays of maps, set through `sys`.
    tables: MapData,
    groups: MapData,
    hosts: Array<MapData, EgressHost>,
    servers: HashMap<MapData, ServerKey, Server>,
    stations: HashMap<MapData, StationKey, u32>,
    places: Array<MapData, Place>,
    registers: PerCpuArray<MapData, u64>,
    ports: DevMap<MapData>,
    counters: PerCpuArray<MapData, u64>,
    hits: PerCpuArray<MapData, u64>,
}

impl Xdp {
    /// Loads the programs and attaches them to `ports` in native mode. `router_mac` is the source address of
    /// what the switch rewrites, and the neighbour that hosts send vring traffic to. Until the first install
    /// vring traffic is dropped.
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
        let config = Config { place_multiplier: ports.multiplier, ..config(&vrings, router_mac) };
        let mut programs = EbpfLoader::new()
            .override_global("config", &config, true)
            .load(object)
            .map_err(|error| XdpError::new("load the XDP object", &error, KERNEL_ADVICE))?;
        let maps = Maps::take(&mut programs)
            .map_err(|error| XdpError::new("open the maps of the XDP object", &error, KERNEL_ADVICE))?;
        let egress = load_program(&mut programs, EGRESS)?;
        load_program(&mut programs, INGRESS)?;
        let mut xdp = Self {
            vrings,
            ports,
            maps,
            egress,
            group_slots: Slots::new(GROUP_SLOTS),
            hit_slots: Slots::new(HIT_SLOTS),
            tries: Vec::new(),
            installed: None,
            programs,
        };
        xdp.double_ports()?;
        xdp.attach()?;
        Ok(xdp)
    }

    /// Makes a group of each port twice, for frames that are doubled on purpose.
    fn double_ports(&mut self) -> Result<(), XdpError> {
        let failed = |error: MapError| XdpError::new("prepare the faults", &error, KERNEL_ADVICE);
        let map = self.programs.map_mut(faults::FAULTS).expect("the object holds the map");
        let mut faults: HashMap<&mut MapData, u32, Fault> = map.try_into().map_err(failed)?;
        let mut twins = Vec::new();
        for (place, Port { index, ifindex }) in self.ports.iter() {
            let step = || format!("double port {index} (interface index {ifindex})");
            let group = generation::build_group(&[ifindex], 2, &self.egress);
            twins.push((
                PORT_TWINS + place,
                group.map_err(|error| XdpError::new(step(), &error, PORT_ADVICE))?,
            ));
            faults.insert(ifindex, Fault::default(), 0).map_err(failed)?;
        }
        let entries: Vec<_> = twins.iter().map(|(slot, group)| (*slot, group.as_fd())).collect();
        sys::update_batch(self.maps.groups.fd().as_fd(), &entries)
            .map_err(|error| XdpError::new("connect the doubled ports", &error, KERNEL_ADVICE))
    }

    /// Fills the map of ports before the first of them receives.
    fn attach(&mut self) -> Result<(), XdpError> {
        for (place, Port { index, ifindex }) in self.ports.iter() {
            let step = || format!("register port {index} (interface index {ifindex})");
            let result = self.maps.ports.set(place, ifindex, Some(&self.egress), 0);
            result.map_err(|error| XdpError::new(step(), &error, PORT_ADVICE))?;
            let known = Place { ifindex, port: place, number: index.into() };
            let result = self.maps.places.set(self.ports.cell(ifindex), known, 0);
            result.map_err(|error| XdpError::new(step(), &error, PORT_ADVICE))?;
        }
        let ingress = xdp_program(&mut self.programs, INGRESS)?;
        for (_, Port { index, ifindex }) in self.ports.iter() {
            let step = || format!("attach to port {index} (interface index {ifindex})");
            let result = ingress.attach_to_if_index(ifindex, XdpMode::Driver);
            result.map_err(|error| XdpError::new(step(), &error, PORT_ADVICE))?;
        }
        Ok(())
    }
}

impl Backend for Xdp {
    fn install(&mut self, tables: &TableSet) -> Result<(), BackendError> {
        tables.validate(&self.vrings)?;
        tables.validate_ports(|port| self.ports.contains(port))?;
        self.install_generation(tables, None)
    }

    fn update(&mut self, update: &TableUpdate) -> Result<(), BackendError> {
        let tables = update.applied_to(self.installed.as_ref())?;
        tables.validate(&self.vrings)?;
        self.install_generation(&tables, Some(update.change.table()))
    }

    fn table_status(&self) -> Result<Vec<TableStatus>, BackendError> {
        Ok(TableStatus::list(self.installed.as_ref(), &self.counters()?))
    }

    fn entry_hits(&self, table: Table) -> Result<Vec<u64>, BackendError> {
        let Some(tables) = &self.installed else { return Ok(Vec::new()) };
        let slot = |key| self.hit_slots.get(&key).expect("every installed entry has a slot");
        generation::entry_keys(tables, table)
            .map(|key| sum(&self.maps.hits, slot(key)).map_err(|error| platform("read the hits", &error)))
            .collect()
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
            tables: take_array_of_maps(programs, "tables")?,
            groups: take_array_of_maps(programs, "groups")?,
            hosts: take_map(programs, "hosts")?.try_into()?,
            servers: take_map(programs, "servers")?.try_into()?,
            stations: take_map(programs, "stations")?.try_into()?,
            places: take_map(programs, "places")?.try_into()?,
            registers: take_map(programs, "registers")?.try_into()?,
            ports: take_map(programs, "ports")?.try_into()?,
            counters: take_map(programs, "counters")?.try_into()?,
            hits: take_map(programs, "hits")?.try_into()?,
        })
    }
}

fn take_map(programs: &mut Ebpf, name: &str) -> Result<Map, MapError> {
    programs.take_map(name).ok_or_else(|| MapError::InvalidName { name: name.into() })
}

fn take_array_of_maps(programs: &mut Ebpf, name: &str) -> Result<MapData, MapError> {
    match take_map(programs, name)? {
        Map::ArrayOfMaps(data) => Ok(data),
        _ => Err(MapError::InvalidName { name: name.into() }),
    }
}

fn xdp_program<'a>(
    programs: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut aya::programs::Xdp, XdpError> {
    let program = programs.program_mut(name).expect("the object holds both programs");
    program.try_into().map_err(|error| XdpError::new(format!("load {name}"), &error, KERNEL_ADVICE))
}

fn load_program(programs: &mut Ebpf, name: &'static str) -> Result<ProgramFd, XdpError> {
    let program = xdp_program(programs, name)?;
    let fd = program.load().and_then(|()| Ok(program.fd()?.try_clone()?));
    fd.map_err(|error| XdpError::new(format!("load {name}"), &error, KERNEL_ADVICE))
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
    config
}

fn sum(map: &PerCpuArray<MapData, u64>, index: u32) -> Result<u64, MapError> {
    Ok(map.get(&index, 0)?.iter().sum())
}

/// Processors add to values of their own: the first one gets all of it.
fn write(map: &mut PerCpuArray<MapData, u64>, index: u32, value: u64) -> Result<(), MapError> {
    let processors = aya::util::nr_cpus().map_err(|(_, error)| MapError::IoError(error))?;
    let mut values = vec![0; processors];
    values[0] = value;
    map.set(index, PerCpuValues::try_from(values).expect("one value per processor"), 0)
}
