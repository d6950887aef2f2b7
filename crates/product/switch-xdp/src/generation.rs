//! Installing a generation of tables, make-before-break.
//!
//! ```text
//!   slot 0 (in force)          slot 1 (free)                    visible to packets
//!   ─────────────────────────────────────────────────────────────────────────────────
//!   g: entries, vnodes, hosts  g-1 or nothing                   g
//!   g                          g+1: groups made and connected,  g      1. one batch update, if there are new ones
//!                                   differences written         g      2. batches
//!   g                          g+1                              g+1    3. active = g+1
//!   (no packet uses g)         g+1                              g+1    4. grace period: then Ok
//! ```
//!
//! `active` holds g, whose lowest bit is the slot. The number only grows, so what the programs
//! cache for a generation ([`Sender`](crate::layout::Sender)) is never taken for another one's.
//!
//! - Entries, vnodes and hosts belong to one slot, and are written only while that slot is not in
//!   force *and no program reads it*: the grace period at the end of the last install has waited
//!   for programs that still used the slot. So they may be written in place, a part at a time.
//!   Groups and hit counters are shared: a surviving one keeps its number, a new one gets a number
//!   that the generation in force does not use ([`Slots`](crate::slots::Slots)).
//! - A packet reads `active` once and takes the number along to the egress stage: it is matched and
//!   rewritten by one generation, never by a mixture.
//! - A packet that read `active` just before step 3 may still be under way. So nothing that the old
//!   generation used may be touched, and the controller gets no reply, before step 4. Setting an
//!   array of maps makes the kernel wait until every running program has ended, including copies in
//!   the queues of device maps. It also gives `Ok` the meaning that R6 needs: no packet reaches a
//!   host by the old tables any more.
//! - The contents of a slot are recorded ([`Contents`]), so that only differences are written. The
//!   record is dropped before the first write: after an error in steps 1 and 2 the free slot has
//!   garbage, and the next install writes all of it. An error in step 4 flips back, with the next
//!   number of the old slot: the old generation is still complete. Packets of the new one may then
//!   be under way, so the next install begins with a grace period.
//! - A loader that dies takes links and programs with it, at any step. Until the kernel has
//!   detached them they use `active`, whose slot is complete at each step.
//!
//! An incremental update takes the same steps.
//!
//! Cost: a grace period of about 8 ms, two if there are new groups; 50 us for each ring whose
//! partitions have changed borders, as much for all records if any border has changed; microseconds
//! for each entry that differs.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use aya::Pod;
use aya::maps::xdp::XdpMapError;
use aya::maps::{DevMap, HashMap, Map, MapData, MapError};
use aya::programs::ProgramFd;
use nicekv_switch::{BackendError, HOST_CAPACITY, Host, HostId, Match, PORTS_MAX, Prefix, Table, TableSet};

use crate::contents::{Contents, Given, records, vnodes};
use crate::error::platform;
use crate::layout::{
    EgressHost, GROUP_TWINS, Group, GroupEntryKey, PORT_HOST, PORT_TRUNK, Server, ServerKey, StationKey,
    numbers,
};
use crate::receivers::{GroupKey, Receiver, group_key};
use crate::slots::Plan;
use crate::{KernelSwitch, Maps, sys};

/// `BPF_MAP_TYPE_ARRAY`.
const MAP_TYPE_ARRAY: u32 = 2;
/// `BPF_MAP_TYPE_DEVMAP`.
const MAP_TYPE_DEVMAP: u32 = 14;
/// Sizes in bytes of the key (a position) and the value (an interface and a program) of a device
/// map.
const DEVMAP_BYTES: (usize, usize) = (4, 8);
/// Sizes in bytes of the key and the value of the map behind the fence, which no program reads.
const FENCED_BYTES: (usize, usize) = (4, 4);

/// A filled map. It is put into the array of maps of its kind, which then keeps it alive.
pub(crate) type InnerMap = OwnedFd;

/// The matches of the entries of `table`, in the order of the set.
pub(crate) fn matches(tables: &TableSet, table: Table) -> impl Iterator<Item = Match> {
    tables.rules(table).into_iter().map(|(matches, _)| matches)
}

impl KernelSwitch {
    /// Installs tables that are valid for this switch.
    pub(crate) fn install_generation(&mut self, tables: &TableSet) -> Result<(), BackendError> {
        if !self.is_quiet {
            self.wait()?;
        }
        let in_force =
            self.maps.active.get(&0, 0).map_err(|error| platform("read the slot in force", &error))?;
        let next = in_force + 1;
        let receivers = self.receivers(tables);
        let of_records = tables.record.iter().map(|entry| &entry.members);
        let sets = tables.multicast.iter().map(|entry| &entry.members).chain(of_records);
        let sets = sets.map(|members| group_key(&receivers, members));
        let groups = self.group_slots.plan(sets);
        let numbers = Table::ALL.map(|table| self.numbers[table as usize].plan(matches(tables, table)));
        self.begin_hits(&numbers).map_err(|error| platform("read the hits of new entries", &error))?;
        self.make_groups(&groups)?;
        let given = Given {
            numbers: numbers.each_ref().map(|numbers| &numbers.slots[..]),
            groups: &groups.slots,
            ports: &receivers.iter().map(|(id, receiver)| (*id, receiver.place)).collect(),
            receivers: &receivers,
        };
        let contents = Contents::new(tables, &self.vrings, &given);
        self.write_slot(next & 1, contents).map_err(|error| platform("write the tables", &error))?;
        let hosts = self.installed.as_ref().map_or(&[][..], |tables| &tables.hosts);
        if hosts != tables.hosts {
            self.hot.settle_loads(hosts, |port| self.ports.place(port))?;
        }
        self.close_trunks(tables)?;
        self.put_in_force(next)?;
        self.open_trunks(tables)?;
        self.group_slots.commit(groups);
        self.numbers.iter_mut().zip(numbers).for_each(|(of_table, plan)| of_table.commit(plan));
        self.installed = Some(tables.clone());
        Ok(())
    }

    /// Steps 3 and 4 of an install.
    fn put_in_force(&mut self, next: u32) -> Result<(), BackendError> {
        // A program that reads the new number sees everything that was written before it.
        fence(Ordering::SeqCst);
        self.is_quiet = false;
        self.activate(next)?;
        self.wait().or_else(|error| {
            self.activate(next + 1)?;
            Err(error)
        })
    }

    /// Returns when no packet is in progress with a generation older than the one in force.
    fn wait(&mut self) -> Result<(), BackendError> {
        wait(&self.maps.fence, &self.fenced)?;
        self.is_quiet = true;
        Ok(())
    }

    fn receivers(&self, tables: &TableSet) -> BTreeMap<HostId, Receiver> {
        let receiver =
            |host: &Host| Receiver { is_host: !host.is_remote, place: self.ports.place(host.port) };
        tables.hosts.iter().map(|host| (host.id, receiver(host))).collect()
    }

    /// Records the current values of new entries' cells, from which their hits are counted.
    fn begin_hits(&mut self, plans: &[Plan<Match>]) -> Result<(), MapError> {
        for (table, plan) in plans.iter().enumerate() {
            let kinds = if Table::ALL[table].matches_updates() { 3 } else { 1 };
            let begin = |kind| crate::layout::hits_at(table) + kind * crate::layout::REQUESTS;
            let of_kind = |kind| plan.fresh.iter().map(move |(_, number)| begin(kind) + number);
            let cells: Vec<u32> = (0..kinds).flat_map(of_kind).collect();
            let counted = self.counted(cells.iter().copied())?;
            cells.iter().zip(counted).for_each(|(cell, count)| self.hits_before[*cell as usize] = count);
        }
        Ok(())
    }

    /// Creates the new groups. No program reads them yet.
    fn make_groups(&mut self, groups: &Plan<GroupKey>) -> Result<(), BackendError> {
        let devices = self.build_groups(groups)?;
        self.write_members(groups).map_err(|error| platform("write the multicast groups", &error))?;
        let entries: Vec<_> = devices.iter().map(|(slot, group)| (*slot, group.as_fd())).collect();
        sys::update_batch(self.maps.groups.fd().as_fd(), &entries)
            .map_err(|error| platform("connect the multicast groups", &error))
    }

    /// Writes the differences between the old and the new contents of a slot.
    fn write_slot(&mut self, slot: u32, contents: Contents) -> Result<(), MapError> {
        let before = self.slots[slot as usize].take();
        let before = before.as_ref();
        let base = |table| slot * numbers(table);
        let (unicast, multicast) = (before.map(|it| &it.unicast[..]), before.map(|it| &it.multicast[..]));
        write_changed(&self.maps.unicast_routes, base(Table::Unicast), unicast, &contents.unicast)?;
        write_changed(&self.maps.multicast_routes, base(Table::Multicast), multicast, &contents.multicast)?;
        let places = before.map(|it| &it.places[..]);
        write_changed(&self.maps.group_places, base(Table::Multicast), places, &contents.places)?;
        self.write_group_entries(slot, before.map(|it| &it.groups), &contents.groups)?;
        let record = before.map(|it| &it.record[..]);
        write_changed(&self.maps.record_routes, base(Table::Record), record, &contents.record)?;
        let nodes = before.map(|it| &it.nodes[..]);
        write_changed(&self.maps.nodes, slot * HOST_CAPACITY as u32, nodes, &contents.nodes)?;
        if before.is_none_or(|before| before.begins != contents.begins) {
            self.maps.records.set(slot, *records(&contents.begins), 0)?;
        }
        for (index, ring) in contents.rings.iter().enumerate() {
            let by_records = contents.is_by_records(index);
            let is_same =
                |before: &Contents| before.rings[index] == *ring && before.is_by_records(index) == by_records;
            if !before.is_some_and(is_same) {
                self.maps.vnodes.set(slot + 2 * index as u32, *vnodes(ring, by_records), 0)?;
            }
        }
        let is_same = |before: &Contents| before.hosts == contents.hosts && before.trunks == contents.trunks;
        if !before.is_some_and(is_same) {
            self.write_hosts(slot, &contents.hosts, &contents.trunks)?;
            let (hosts, place) = (before.map(|before| &before.hosts[..]), |port| self.ports.place(port));
            self.hot.write_holders(slot, hosts, &contents.hosts, place)?;
        }
        self.slots[slot as usize] = Some(contents);
        Ok(())
    }

    /// Writes the entries of the ring of groups.
    fn write_group_entries(
        &mut self,
        slot: u32,
        before: Option<&BTreeMap<Prefix, u32>>,
        entries: &BTreeMap<Prefix, u32>,
    ) -> Result<(), MapError> {
        let map = &mut self.maps.group_entries;
        let key =
            |prefix: &Prefix| GroupEntryKey { slot, address: prefix.address, length: prefix.length.into() };
        match before {
            None => forget(map, |key| key.slot == slot)?,
            Some(before) => {
                let gone = before.keys().filter(|prefix| !entries.contains_key(prefix));
                gone.into_iter().try_for_each(|prefix| map.remove(&key(prefix)))?;
            }
        }
        let is_there =
            |prefix: &Prefix, number: &u32| before.is_some_and(|before| before.get(prefix) == Some(number));
        let fresh = entries.iter().filter(|(prefix, number)| !is_there(prefix, number));
        fresh.into_iter().try_for_each(|(prefix, number)| map.insert(key(prefix), number, 0))
    }

    /// Creates the new groups for tc. No program reads them yet.
    fn write_members(&mut self, groups: &Plan<GroupKey>) -> Result<(), MapError> {
        groups.fresh.iter().try_for_each(|(receivers, slot)| {
            let mut group = Group { count: receivers.len() as u32, ..Group::default() };
            group.ports.iter_mut().zip(receivers).for_each(|(port, receiver)| *port = receiver.place);
            self.maps.members.set(*slot, group, 0)
        })
    }

    /// Creates the new groups for XDP, each also with every port listed twice, for duplicated
    /// frames.
    fn build_groups(&self, groups: &Plan<GroupKey>) -> Result<Vec<(u32, InnerMap)>, BackendError> {
        let Some(egress) = &self.egress else { return Ok(Vec::new()) };
        let build = |slot: u32, receivers: &GroupKey, copies: usize| {
            let receivers: Vec<u32> =
                receivers.iter().map(|receiver| self.ports.ifindex(receiver.place)).collect();
            let group = build_group(&receivers, copies, egress);
            group.map(|group| (slot, group)).map_err(|error| platform("build a multicast group", &error))
        };
        let both = |(receivers, slot): &(GroupKey, u32)| {
            [build(*slot, receivers, 1), build(*slot + GROUP_TWINS, receivers, 2)]
        };
        groups.fresh.iter().flat_map(both).collect()
    }

    fn write_hosts(&mut self, slot: u32, all: &[Host], trunks: &[u16]) -> Result<(), MapError> {
        let Maps { hosts, servers, stations, .. } = &mut self.maps;
        let cell = |place: u32| slot * PORTS_MAX as u32 + place;
        let trunk = EgressHost { kind: PORT_TRUNK, ..EgressHost::default() };
        for (place, port) in self.ports.iter() {
            // A trunk may have no servers behind it, only clients.
            let value = if trunks.contains(&port.index) { trunk } else { EgressHost::default() };
            hosts.set(cell(place), value, 0)?;
        }
        forget(servers, |key| key.slot == slot)?;
        forget(stations, |key| key.slot == slot)?;
        for host in all {
            let port = self.ports.place(host.port);
            let udp_port = host.udp_port.to_be_bytes();
            let (mac, role) = (host.mac, host.role as u8);
            let value = match host.is_remote {
                true => trunk,
                false => EgressHost { address: host.ip, mac, udp_port, role, kind: PORT_HOST, id: host.id.0 },
            };
            hosts.set(cell(port), value, 0)?;
            let server = Server { port, mac, udp_port, role, ..Server::default() };
            servers.insert(ServerKey { slot, address: host.ip }, server, 0)?;
            stations.insert(StationKey { slot, mac: host.mac, ..StationKey::default() }, port, 0)?;
        }
        Ok(())
    }

    fn activate(&mut self, generation: u32) -> Result<(), BackendError> {
        self.maps.active.set(0, generation, 0).map_err(|error| platform("flip the generation", &error))
    }
}

/// Returns when every program run that was in progress has ended.
pub(crate) fn wait(fence: &MapData, fenced: &OwnedFd) -> Result<(), BackendError> {
    sys::update_batch(fence.fd().as_fd(), &[(0, fenced.as_fd())])
        .map_err(|error| platform("wait until running programs have ended", &error))
}

/// Removes the keys of a slot that is not in force.
fn forget<K: Pod, V: Pod>(
    map: &mut HashMap<MapData, K, V>,
    is_stale: impl Fn(&K) -> bool,
) -> Result<(), MapError> {
    let keys: Vec<K> = map.keys().collect::<Result<_, _>>()?;
    keys.iter().filter(|key| is_stale(key)).try_for_each(|key| map.remove(key))
}

/// Writes the elements of a slot that differ. `base`: index of the slot's first element. `before`:
/// the contents of the slot, if known.
fn write_changed<V: Pod + PartialEq>(
    map: &MapData,
    base: u32,
    before: Option<&[V]>,
    values: &[V],
) -> Result<(), MapError> {
    let differs = |index: usize| before.is_none_or(|before| before[index] != values[index]);
    let changed: Vec<usize> = (0..values.len()).filter(|index| differs(*index)).collect();
    let keys: Vec<u32> = changed.iter().map(|index| base + *index as u32).collect();
    let values: Vec<V> = changed.iter().map(|index| values[*index]).collect();
    sys::update_elements(map, &keys, &values).map_err(MapError::IoError)
}

/// The map behind the fence.
pub(crate) fn fenced() -> Result<InnerMap, MapError> {
    create_inner(MAP_TYPE_ARRAY, FENCED_BYTES, 1).map(|(_, fd)| fd)
}

/// Creates an empty map. The kernel demands at least one element.
fn create_inner(
    kind: u32,
    (key_bytes, value_bytes): (usize, usize),
    elements: usize,
) -> Result<(Map, InnerMap), MapError> {
    let elements = elements.max(1) as u32;
    let definition = aya_obj::Map::new_from_params(kind, key_bytes as u32, value_bytes as u32, elements, 0);
    let data = MapData::create(definition, "nicekv_inner", None)?;
    let fd = data.fd().as_fd().try_clone_to_owned().map_err(MapError::IoError)?;
    Ok((Map::from_map_data(data)?, fd))
}

/// A device map of interfaces, each listed `copies` times.
pub(crate) fn build_group(
    members: &[u32],
    copies: usize,
    egress: &ProgramFd,
) -> Result<InnerMap, XdpMapError> {
    let (map, fd) = create_inner(MAP_TYPE_DEVMAP, DEVMAP_BYTES, copies * members.len())?;
    let mut group: DevMap<MapData> = map.try_into()?;
    for (index, &ifindex) in (0..).zip(std::iter::repeat_n(members, copies).flatten()) {
        group.set(index, ifindex, Some(egress), 0)?;
    }
    Ok(fd)
}
