//! Installing a generation of tables: make-before-break.
//!
//! ```text
//!   slot 0 (in force)          slot 1 (free)                    visible to packets
//!   ─────────────────────────────────────────────────────────────────────────────────
//!   g: tries, egress hosts     g-1 or nothing                   g
//!   g                          g+1: hit slots, tries built,     g      1. build, unconnected
//!                                   device maps of new groups
//!   g                          g+1: tries, groups connected     g      2. two batch updates
//!                                   hosts written
//!   g                          g+1                              g+1    3. active = g+1
//!   (no packet by g is left)   g+1                              g+1    4. grace period: then Ok
//! ```
//!
//! `active` holds g, of which the lowest bit is the slot. The number only grows, so what the programs remember of a
//! generation ([`Sender`](crate::layout::Sender)) is never taken for another one's.
//!
//! - Tries and hosts belong to one slot and are only written while that slot is not in force. Groups and
//!   hit counters are shared: a survivor keeps its number, a new one gets a number that the generation in force
//!   does not use ([`Slots`](crate::slots::Slots)).
//! - A packet reads `active` once and takes the number along to the egress stage: it is matched and rewritten
//!   by one generation, never by a mixture.
//! - A packet that read `active` just before step 3 may still be on its way; so nothing that the old generation
//!   used may be touched, and no controller told, before step 4. Connecting an inner map anew makes the kernel
//!   wait until every program that runs has ended, copies in the queues of the device maps included. It also
//!   makes `Ok` mean what R6 needs: nobody is reached by the old tables any more.
//! - An error in steps 1 and 2 leaves garbage in the free slot only, which the next install overwrites. An error
//!   in step 4 flips back, under the next number of the old slot: the old generation is still whole.
//!
//! An incremental update takes the same steps; the tries of tables that do not change are connected in both slots.
//!
//! Cost: one or two grace periods of about 8 ms per batch, whatever its size, and microseconds per entry. Seen: a
//! small change is visible after 6 to 8 ms (16 more if it has new groups) and returns after 24.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use aya::Pod;
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::xdp::XdpMapError;
use aya::maps::{DevMap, HashMap, Map, MapData, MapError};
use aya::programs::ProgramFd;
use nicekv_dataplane::{Action, BackendError, Host, HostId, Match, MemberSet, PORTS_MAX, Table, TableSet};

use crate::error::platform;
use crate::layout::{
    EgressHost, GROUP_TWINS, Group, PORT_HOST, PORT_TRUNK, Route, Server, ServerKey, StationKey, TABLES,
    TrieKey, TrieKeyData,
};
use crate::slots::Plan;
use crate::{EntryKey, GroupKey, KernelSwitch, Maps, Receiver, sys};

/// Bits of a trie key before the address.
const SCOPE_BITS: u32 = 32;
/// `BPF_MAP_TYPE_LPM_TRIE`.
const MAP_TYPE_TRIE: u32 = 11;
/// `BPF_MAP_TYPE_DEVMAP`.
const MAP_TYPE_DEVMAP: u32 = 14;
/// Of a device map: a position, and an interface with a program.
const DEVMAP_BYTES: (usize, usize) = (4, 8);
/// `BPF_F_NO_PREALLOC`, which a trie must have.
const NO_PREALLOCATION: u32 = 1;

/// A filled map, ready to be connected to the array of its kind, which then keeps it alive.
type InnerMap = OwnedFd;

/// The keys of the entries of `table`, in the order of the set.
pub(crate) fn entry_keys(tables: &TableSet, table: Table) -> impl Iterator<Item = EntryKey> {
    tables.rules(table).into_iter().map(move |(matches, _)| (table, matches))
}

impl KernelSwitch {
    /// Installs tables that are valid for this switch. `changed`: the one table that differs from those in force, if no other
    /// does, nor a host: its trie alone is built.
    pub(crate) fn install_generation(
        &mut self,
        tables: &TableSet,
        changed: Option<Table>,
    ) -> Result<(), BackendError> {
        let in_force =
            self.maps.active.get(&0, 0).map_err(|error| platform("read the slot in force", &error))?;
        let next = in_force + 1;
        let slot = next & 1;
        let groups =
            self.group_slots.plan(tables.groups().into_iter().map(|set| self.group_key(tables, set)));
        let hits = self.hit_slots.plan(Table::ALL.into_iter().flat_map(|table| entry_keys(tables, table)));
        self.clear_hits(&hits).map_err(|error| platform("clear the hits of new entries", &error))?;
        let tries = self
            .build_tries(tables, &groups, &hits, changed)
            .map_err(|error| platform("build the match tables", &error))?;
        let devices = self.build_groups(&groups)?;
        self.write_members(&groups).map_err(|error| platform("write the multicast groups", &error))?;

        self.connect_tries(slot, &tries)?;
        self.connect_groups(&devices)?;
        self.write_hosts(slot, tables).map_err(|error| platform("write the hosts", &error))?;

        self.activate(next)?;
        // The same map in the same place changes nothing, but waits for every packet of the old generation.
        if let Err(error) = self.connect_tries(slot, &tries[..1]) {
            self.activate(next + 1)?;
            return Err(error);
        }
        self.group_slots.commit(groups);
        self.hit_slots.commit(hits);
        self.tries = tries;
        self.installed = Some(tables.clone());
        Ok(())
    }

    fn group_key(&self, tables: &TableSet, members: &MemberSet) -> GroupKey {
        let receiver = |&member: &HostId| {
            let host = host(tables, member);
            Receiver { is_host: !host.is_remote, place: self.place(host) }
        };
        members.as_slice().iter().map(receiver).collect()
    }

    fn place(&self, host: &Host) -> u32 {
        self.ports.place(host.port)
    }

    fn clear_hits(&mut self, hits: &Plan<EntryKey>) -> Result<(), MapError> {
        hits.fresh.iter().try_for_each(|&(_, slot)| crate::write(&mut self.maps.hits, slot, 0))
    }

    /// One trie per table, in the order of [`Table::ALL`]; of tables that have not changed the one in force.
    fn build_tries(
        &self,
        tables: &TableSet,
        groups: &Plan<GroupKey>,
        hits: &Plan<EntryKey>,
        changed: Option<Table>,
    ) -> Result<Vec<Arc<InnerMap>>, MapError> {
        let trie = |table: Table| match self.tries.get(table as usize) {
            Some(trie) if changed.is_some_and(|changed| changed != table) => Ok(trie.clone()),
            _ => {
                let rules = tables.rules(table).into_iter();
                let entry = |(matches, action)| ((table, matches), self.route(tables, groups, action));
                build_trie(rules.map(entry).collect(), hits).map(Arc::new)
            }
        };
        Table::ALL.into_iter().map(trie).collect()
    }

    fn route(&self, tables: &TableSet, groups: &Plan<GroupKey>, action: Action<'_>) -> Route {
        match action {
            Action::Host { host: id, scope } => {
                let host = host(tables, id);
                Route {
                    target: self.place(host),
                    partition: scope.to_be_bytes(),
                    address: host.ip,
                    mac: host.mac,
                    is_trunk: host.is_remote.into(),
                    ..Route::default()
                }
            }
            Action::Group(members) => {
                Route { target: groups.slot(&self.group_key(tables, members)), ..Route::default() }
            }
        }
    }

    /// The new groups for tc: nobody reads them yet.
    fn write_members(&mut self, groups: &Plan<GroupKey>) -> Result<(), MapError> {
        groups.fresh.iter().try_for_each(|(receivers, slot)| {
            let mut group = Group { count: receivers.len() as u32, ..Group::default() };
            group.ports.iter_mut().zip(receivers).for_each(|(port, receiver)| *port = receiver.place);
            self.maps.members.set(*slot, group, 0)
        })
    }

    /// The new groups for XDP, and their twins.
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

    fn connect_tries(&self, slot: u32, tries: &[Arc<InnerMap>]) -> Result<(), BackendError> {
        let entries: Vec<_> = (slot * TABLES..).zip(tries.iter().map(|trie| trie.as_fd())).collect();
        sys::update_batch(self.maps.tables.fd().as_fd(), &entries)
            .map_err(|error| platform("connect the match tables", &error))
    }

    fn connect_groups(&self, groups: &[(u32, InnerMap)]) -> Result<(), BackendError> {
        let entries: Vec<_> = groups.iter().map(|(slot, group)| (*slot, group.as_fd())).collect();
        sys::update_batch(self.maps.groups.fd().as_fd(), &entries)
            .map_err(|error| platform("connect the multicast groups", &error))
    }

    fn write_hosts(&mut self, slot: u32, tables: &TableSet) -> Result<(), MapError> {
        let Maps { hosts, servers, stations, .. } = &mut self.maps;
        let cell = |place: u32| slot * PORTS_MAX as u32 + place;
        self.ports.iter().try_for_each(|(place, _)| hosts.set(cell(place), EgressHost::default(), 0))?;
        forget(servers, |key| key.slot == slot)?;
        forget(stations, |key| key.slot == slot)?;
        for host in &tables.hosts {
            let port = self.ports.place(host.port);
            let udp_port = host.udp_port.to_be_bytes();
            let (mac, role) = (host.mac, host.role as u8);
            let value = match host.is_remote {
                true => EgressHost { kind: PORT_TRUNK, ..EgressHost::default() },
                false => EgressHost {
                    address: host.ip,
                    mac,
                    udp_port,
                    role,
                    kind: PORT_HOST,
                    ..EgressHost::default()
                },
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

/// Removes the keys of a slot that is not in force.
fn forget<K: Pod, V: Pod>(
    map: &mut HashMap<MapData, K, V>,
    is_stale: impl Fn(&K) -> bool,
) -> Result<(), MapError> {
    let keys: Vec<K> = map.keys().collect::<Result<_, _>>()?;
    keys.iter().filter(|key| is_stale(key)).try_for_each(|key| map.remove(key))
}

fn host(tables: &TableSet, id: HostId) -> &Host {
    tables.host(id).expect("validated tables know every host they name")
}

/// Creates an empty map, of at least one element, as the kernel demands.
fn create_inner(
    kind: u32,
    (key_bytes, value_bytes): (usize, usize),
    elements: usize,
    flags: u32,
) -> Result<(Map, InnerMap), MapError> {
    let elements = elements.max(1) as u32;
    let definition =
        aya_obj::Map::new_from_params(kind, key_bytes as u32, value_bytes as u32, elements, flags);
    let data = MapData::create(definition, "nicekv_inner", None)?;
    let fd = data.fd().as_fd().try_clone_to_owned().map_err(MapError::IoError)?;
    Ok((Map::from_map_data(data)?, fd))
}

fn build_trie(entries: Vec<(EntryKey, Route)>, hits: &Plan<EntryKey>) -> Result<InnerMap, MapError> {
    let bytes = (size_of::<TrieKey>(), size_of::<Route>());
    let (map, fd) = create_inner(MAP_TYPE_TRIE, bytes, entries.len(), NO_PREALLOCATION)?;
    let mut trie: LpmTrie<MapData, TrieKeyData, Route> = map.try_into()?;
    for (entry, route) in entries {
        trie.insert(&trie_key(entry.1), Route { hit_slot: hits.slot(&entry), ..route }, 0)?;
    }
    Ok(fd)
}

fn trie_key(Match { scope, prefix }: Match) -> Key<TrieKeyData> {
    let mut data = [0; 8];
    data[..4].copy_from_slice(&scope.unwrap_or(0).to_be_bytes());
    data[4..].copy_from_slice(&prefix.address);
    Key::new(SCOPE_BITS + u32::from(prefix.length), data)
}

/// A device map of interfaces, each as often as `copies` says.
pub(crate) fn build_group(
    members: &[u32],
    copies: usize,
    egress: &ProgramFd,
) -> Result<InnerMap, XdpMapError> {
    let (map, fd) = create_inner(MAP_TYPE_DEVMAP, DEVMAP_BYTES, copies * members.len(), 0)?;
    let mut group: DevMap<MapData> = map.try_into()?;
    for (index, &ifindex) in (0..).zip(std::iter::repeat_n(members, copies).flatten()) {
        group.set(index, ifindex, Some(egress), 0)?;
    }
    Ok(fd)
}
