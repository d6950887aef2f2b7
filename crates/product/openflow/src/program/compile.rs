//! Compiles the tables of a switch to flows and groups.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use nicekv_switch::{Counter, Host, HostIndex, HostRole, MulticastEntry, Prefix, Table, TableSet, VringSet};

use super::layout::{
    DESTINATION, DIVISION, GENERATION, Generation, HOST, METER, Metadata, PREFIX_PRIORITY, SOURCE_IP,
    SOURCE_MAC, STATION, VRING,
};
use super::{Buckets, Flow, FlowKey, Meaning, Program, Unsupported};
use crate::wire::{Action, Field, Instruction, Match, port};

const TYPE_IPV4: u16 = 0x0800;
const TYPE_ARP: u16 = 0x0806;
/// Types of a frame that still has a VLAN tag behind the one that the switch has parsed.
const TYPES_VLAN: [u16; 2] = [0x8100, 0x88a8];
const PROTOCOL_UDP: u8 = 17;
/// The bit of `vlan_vid` that tells that there is a tag.
const VLAN_PRESENT: u64 = 0x1000;

/// The properties of a switch that do not change with its tables.
#[derive(Clone, Debug)]
pub struct Fabric {
    pub vrings: VringSet,
    /// Ethernet source address of rewritten frames.
    pub router_mac: [u8; 6],
    /// Numbers of all ports.
    pub ports: BTreeSet<u16>,
    /// Ports that lead to other switches. Those that the tables do not open carry nothing.
    pub trunks: BTreeSet<u16>,
    /// Most packets per second that a port without a server may send to vrings.
    pub requests_per_second: Option<u32>,
    /// Whether frames from unknown stations go to the controller, too, so that it can learn where they are.
    pub learns: bool,
}

/// The program of a switch with these tables. `stations`: where clients are, as learned.
/// `previous`: the program in force; groups that stay keep their numbers.
pub fn compile(
    fabric: &Fabric,
    tables: &TableSet,
    stations: &BTreeMap<[u8; 6], u16>,
    generation: Generation,
    previous: &Program,
) -> Result<Program, Unsupported> {
    let mut compiler = Compiler {
        fabric,
        tables,
        generation,
        program: Program::default(),
        previous,
        taken: previous.groups.values().copied().collect(),
        last_group: 0,
        hosts: HostIndex::new(&tables.hosts, &tables.trunks),
    };
    compiler.add_generation();
    compiler.add_source_mac(stations);
    compiler.add_source_ip();
    compiler.add_destination();
    compiler.add_meters();
    compiler.add_unicast()?;
    compiler.add_multicast()?;
    compiler.add_division();
    compiler.add_hosts();
    compiler.add_stations(stations);
    match tables.record.is_empty() {
        true => Ok(compiler.program),
        false => Err(Unsupported::Records),
    }
}

struct Compiler<'a> {
    fabric: &'a Fabric,
    tables: &'a TableSet,
    generation: Generation,
    program: Program,
    previous: &'a Program,
    /// Numbers of the previous groups.
    taken: BTreeSet<u32>,
    /// The last number that was given to a new group.
    last_group: u32,
    hosts: HostIndex,
}

/// The next step for a packet that a flow matches.
const fn goto(table: u8) -> Instruction {
    Instruction::GotoTable(table)
}

fn mac(address: [u8; 6]) -> u64 {
    address.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn ip(address: [u8; 4]) -> u32 {
    u32::from_be_bytes(address)
}

fn ipv4() -> Match {
    Match::default().with(Field::EthType, TYPE_IPV4)
}

fn arp() -> Match {
    Match::default().with(Field::EthType, TYPE_ARP)
}

fn udp() -> Match {
    ipv4().with(Field::IpProto, PROTOCOL_UDP)
}

trait InPrefix {
    /// Adds the condition that an address lies in a prefix.
    fn within(self, field: Field, prefix: Prefix) -> Self;
}

impl InPrefix for Match {
    fn within(self, field: Field, prefix: Prefix) -> Self {
        self.masked(field, prefix.first(), prefix.mask().into())
    }
}

impl Compiler<'_> {
    fn add(&mut self, table: u8, priority: u16, matches: Match, instructions: Vec<Instruction>) {
        self.add_flow(table, priority, (matches, Metadata::default()), instructions, Meaning::Uncounted);
    }

    fn drop(&mut self, table: u8, priority: u16, matches: Match, counter: Counter) {
        let matches = (matches, Metadata::default());
        self.add_flow(table, priority, matches, Vec::new(), Meaning::Counter(counter));
    }

    /// Drops what comes from a server's port with other addresses, if it has this destination.
    fn drop_strangers(&mut self, matches: Match) {
        let refused = Meaning::Counter(Counter::SourceRefused);
        self.add_flow(DESTINATION, 60, (matches, Metadata::STRANGER), Vec::new(), refused);
    }

    fn add_flow(
        &mut self,
        table: u8,
        priority: u16,
        (matches, metadata): (Match, Metadata),
        instructions: Vec<Instruction>,
        meaning: Meaning,
    ) {
        let matches = match table {
            GENERATION => matches,
            _ => self.generation.matching(matches, metadata),
        };
        let key = FlowKey { table, priority, matches };
        self.program.flows.insert(key, Flow { instructions, meaning });
    }

    /// The number of the group with these buckets.
    fn group(&mut self, buckets: Buckets) -> u32 {
        if let Some(number) = self.program.groups.get(&buckets) {
            return *number;
        }
        let number = self.previous.groups.get(&buckets).copied().unwrap_or_else(|| {
            let free = (self.last_group + 1..).find(|number| !self.taken.contains(number));
            self.last_group = free.expect("there are more numbers than groups");
            self.last_group
        });
        self.program.groups.insert(buckets, number);
        number
    }

    fn add_generation(&mut self) {
        let mut instructions = vec![goto(SOURCE_MAC)];
        if let Generation::Numbered(_) = self.generation {
            instructions.insert(0, self.generation.metadata().write());
        }
        self.add(GENERATION, 0, Match::default(), instructions);
    }

    /// A frame with a server's Ethernet address comes only from its port. Closed trunks send nothing.
    fn add_source_mac(&mut self, stations: &BTreeMap<[u8; 6], u16>) {
        let (fabric, tables) = (self.fabric, self.tables);
        for trunk in fabric.trunks.iter().filter(|port| !tables.trunks.contains(port)) {
            self.add(SOURCE_MAC, 100, Match::default().with(Field::InPort, *trunk), Vec::new());
        }
        for host in &tables.hosts {
            let source = Match::default().with(Field::EthSrc, mac(host.mac));
            self.add(SOURCE_MAC, 40, source.clone().with(Field::InPort, host.port), vec![goto(SOURCE_IP)]);
            self.drop(SOURCE_MAC, 30, source, Counter::SourceRefused);
        }
        let mut unknown = vec![goto(SOURCE_IP)];
        if fabric.learns {
            for (station, port) in stations {
                let source = Match::default().with(Field::EthSrc, mac(*station)).with(Field::InPort, *port);
                self.add(SOURCE_MAC, 20, source, vec![goto(SOURCE_IP)]);
            }
            let output = Action::Output { port: port::CONTROLLER, length_max: LEARNED_BYTES };
            unknown.insert(0, Instruction::Apply(vec![output]));
        }
        self.add(SOURCE_MAC, 0, Match::default(), unknown);
    }

    /// A packet with a server's IP address comes only from its port. A node's datagrams are marked,
    /// and so is what comes from a server's port with other addresses.
    fn add_source_ip(&mut self) {
        let next = || goto(DESTINATION);
        for host in &self.tables.hosts {
            let at_port = |matches: Match| matches.with(Field::InPort, host.port);
            let (ip, mac) = (ip(host.ip), mac(host.mac));
            let from = |matches: Match| matches.with(Field::Ipv4Src, ip);
            let own = |matches: Match| at_port(from(matches)).with(Field::EthSrc, mac);
            let is_node = Metadata::node(host.role == HostRole::Node);
            let stranger = || vec![Metadata::STRANGER.write(), next()];
            self.add(
                SOURCE_IP,
                50,
                own(udp()).with(Field::UdpSrc, host.udp_port),
                vec![is_node.write(), next()],
            );
            self.add(SOURCE_IP, 45, own(ipv4()), vec![next()]);
            self.add(SOURCE_IP, 40, at_port(from(ipv4())), stranger());
            self.add(SOURCE_IP, 40, at_port(arp().with(Field::ArpSpa, ip)), vec![next()]);
            self.drop(SOURCE_IP, 30, from(ipv4()), Counter::SourceRefused);
            self.drop(SOURCE_IP, 30, arp().with(Field::ArpSpa, ip), Counter::SourceRefused);
            // Behind a trunk there may be clients, too.
            let others = if host.is_remote { ipv4().with(Field::EthSrc, mac) } else { ipv4() };
            self.add(SOURCE_IP, 20, at_port(others), stranger());
        }
        self.add(SOURCE_IP, 0, Match::default(), vec![next()]);
    }

    /// Tells what is for a vring from other traffic.
    fn add_destination(&mut self) {
        for ring in rings(&self.fabric.vrings) {
            let to = |matches: Match| matches.within(Field::Ipv4Dst, ring);
            self.drop_strangers(to(ipv4()));
            let tagged = to(ipv4()).masked(Field::VlanVid, VLAN_PRESENT, VLAN_PRESENT);
            self.drop(DESTINATION, 55, tagged, Counter::VringRefused);
            // Switches show fragments with ports of zero.
            self.drop(DESTINATION, 50, to(udp()).with(Field::UdpDst, 0u16), Counter::VringRefused);
            self.add(DESTINATION, 45, to(udp()), vec![goto(METER)]);
            self.drop(DESTINATION, 40, to(ipv4()), Counter::VringMiss);
            self.drop(DESTINATION, 45, arp().within(Field::ArpSpa, ring), Counter::VringMiss);
            self.drop(DESTINATION, 45, arp().within(Field::ArpTpa, ring), Counter::VringMiss);
        }
        for host in &self.tables.hosts {
            let to = udp().with(Field::Ipv4Dst, ip(host.ip)).with(Field::UdpDst, host.udp_port);
            self.drop_strangers(to);
        }
        // Switches show the fields of a header that is not sound as zeros.
        for unsound in [ipv4().with(Field::Ipv4Dst, 0u32), arp().with(Field::ArpOp, 0u16)] {
            self.drop(DESTINATION, 45, unsound, Counter::Malformed);
        }
        for tag in TYPES_VLAN {
            let tagged = Match::default().with(Field::EthType, tag);
            self.drop(DESTINATION, 45, tagged, Counter::VringRefused);
        }
        self.add(DESTINATION, 0, Match::default(), vec![goto(STATION)]);
    }

    /// Bounds what a port without a server may send to vrings.
    fn add_meters(&mut self) {
        let (fabric, tables) = (self.fabric, self.tables);
        if let Some(rate) = fabric.requests_per_second {
            let with_servers: BTreeSet<u16> = tables.hosts.iter().map(|host| host.port).collect();
            let metered = fabric.ports.difference(&with_servers).filter(|port| !fabric.trunks.contains(port));
            for port in metered {
                let meter = u32::from(*port) + 1;
                self.program.meters.insert(meter, rate);
                let matches = Match::default().with(Field::InPort, *port);
                self.add(METER, 10, matches, vec![Instruction::Meter(meter), goto(VRING)]);
            }
        }
        self.add(METER, 0, Match::default(), vec![goto(VRING)]);
        self.drop(VRING, 0, Match::default(), Counter::VringMiss);
    }

    fn add_unicast(&mut self) -> Result<(), Unsupported> {
        for (entry, position) in self.tables.unicast.iter().zip(0..) {
            if entry.chain.is_some() {
                return Err(Unsupported::Chain);
            }
            let write = Metadata::partition(entry.partition).and(Metadata::host(entry.host.0)).write();
            let meaning = Meaning::Entry { table: Table::Unicast, position, is_from_node: false };
            let matches = (udp().within(Field::Ipv4Dst, entry.destination), Metadata::default());
            let priority = PREFIX_PRIORITY + u16::from(entry.destination.length);
            self.add_flow(VRING, priority, matches, vec![write, goto(DIVISION)], meaning);
        }
        Ok(())
    }

    fn add_multicast(&mut self) -> Result<(), Unsupported> {
        for (entry, position) in self.tables.multicast.iter().zip(0..) {
            if entry.chain.is_some() {
                return Err(Unsupported::Chain);
            }
            if entry.places.is_some() {
                return Err(Unsupported::Masks);
            }
            let group = self.group(self.buckets(entry));
            for is_from_node in [false, true] {
                let meaning = Meaning::Entry { table: Table::Multicast, position, is_from_node };
                let matches = udp().within(Field::Ipv4Dst, entry.destination);
                let priority = PREFIX_PRIORITY + u16::from(entry.destination.length);
                let copy = vec![Instruction::Apply(vec![Action::Group(group)])];
                self.add_flow(VRING, priority, (matches, Metadata::node(is_from_node)), copy, meaning);
            }
        }
        Ok(())
    }

    /// A bucket for each port that leads to members. A switch does not send a copy back by the port
    /// by which the datagram came.
    fn buckets(&self, entry: &MulticastEntry) -> Buckets {
        let target_port = self.fabric.vrings.target_port(entry.destination.address);
        let members: Vec<&Host> =
            entry.members.as_slice().iter().filter_map(|id| self.hosts.get(*id)).collect();
        let trunks: BTreeSet<u16> =
            members.iter().filter(|host| host.is_remote).map(|host| host.port).collect();
        let attached = members.iter().filter(|host| !host.is_remote);
        let rewritten = attached.map(|host| self.rewritten(host, target_port, host.port.into()));
        rewritten.chain(trunks.iter().map(|port| vec![Action::output((*port).into())])).collect()
    }

    /// The actions that send a datagram to a host of this switch.
    fn rewritten(&self, host: &Host, target_port: Option<u16>, output: u32) -> Vec<Action> {
        let mut actions = vec![
            Action::Set(Field::EthDst, mac(host.mac)),
            Action::Set(Field::EthSrc, mac(self.fabric.router_mac)),
            Action::Set(Field::Ipv4Dst, ip(host.ip).into()),
        ];
        actions.extend(target_port.map(|port| Action::Set(Field::UdpDst, port.into())));
        actions.push(Action::output(output));
        actions
    }

    fn add_division(&mut self) {
        for (entry, position) in self.tables.division.iter().zip(0..) {
            let meaning = Meaning::Entry { table: Table::Division, position, is_from_node: false };
            let matches = ipv4().within(Field::Ipv4Src, entry.source);
            let matches = (matches, Metadata::partition(entry.partition));
            let priority = PREFIX_PRIORITY + u16::from(entry.source.length);
            let instructions = vec![Metadata::host(entry.host.0).write(), goto(HOST)];
            self.add_flow(DIVISION, priority, matches, instructions, meaning);
        }
        self.add(DIVISION, 0, Match::default(), vec![goto(HOST)]);
    }

    fn add_hosts(&mut self) {
        let tables = self.tables;
        for host in tables.hosts.iter().filter(|host| host.role == HostRole::Node) {
            let chosen = Metadata::host(host.id.0);
            let uncounted = Meaning::Uncounted;
            let port = u32::from(host.port);
            let actions = match host.is_remote {
                true => vec![Action::output(port)],
                false => self.rewritten(host, None, port),
            };
            self.add_flow(HOST, 10, (udp(), chosen), vec![Instruction::Apply(actions)], uncounted);
            // A plain output never leaves by the port by which the packet came.
            if !host.is_remote {
                let back = self.rewritten(host, None, port::IN_PORT);
                let matches = udp().with(Field::InPort, host.port);
                self.add_flow(HOST, 20, (matches, chosen), vec![Instruction::Apply(back)], uncounted);
            }
        }
    }

    /// Other traffic goes by Ethernet address.
    fn add_stations(&mut self, stations: &BTreeMap<[u8; 6], u16>) {
        let (fabric, tables) = (self.fabric, self.tables);
        let is_open = |port: &u16| !fabric.trunks.contains(port) || tables.trunks.contains(port);
        let hosts = tables.hosts.iter().map(|host| (host.mac, host.port));
        let learned = stations.iter().map(|(station, port)| (*station, *port));
        let learned = learned.filter(|(station, _)| *station != fabric.router_mac);
        let known: BTreeMap<[u8; 6], u16> = learned.chain(hosts).collect();
        for (station, port) in known.into_iter().filter(|(_, port)| is_open(port)) {
            let matches = (Match::default().with(Field::EthDst, mac(station)), Metadata::default());
            let output = vec![Instruction::Apply(vec![Action::output(port.into())])];
            let meaning = Meaning::Counter(Counter::LearnedForwarded);
            self.add_flow(STATION, 20, matches, output, meaning);
        }
        let all = fabric.ports.iter().filter(|port| is_open(port));
        let flood = self.group(all.map(|port| vec![Action::output((*port).into())]).collect());
        let flood = vec![Instruction::Apply(vec![Action::Group(flood)])];
        let meaning = Meaning::Counter(Counter::Flooded);
        self.add_flow(STATION, 0, (Match::default(), Metadata::default()), flood, meaning);
    }
}

/// How much of a frame from an unknown station the controller gets: its headers, ARP included.
const LEARNED_BYTES: u16 = 128;

fn rings(vrings: &VringSet) -> Vec<Prefix> {
    let pairs = vrings.iter().flat_map(|pair| [pair.unicast, pair.multicast]);
    pairs.chain(vrings.group_prefix()).collect()
}
