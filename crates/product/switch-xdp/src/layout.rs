//! The structs and constants that the loader and the eBPF programs share. This file is their
//! source: `bpf/layout.h` is generated from it ([`c_header`]), which a test checks, and asserts the
//! same sizes and offsets in C.

mod records;

pub(crate) use records::{RECORD_GUESSES, RECORD_PLACES, RECORD_STEPS, Records, Segment};

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};

use nicekv_proto::large::RECEIVERS_ALL;
use nicekv_switch::{
    CHAIN_NODES_MAX, COUNTER_COUNT, Counter, DIVISIONS_MAX, GROUP_CAPACITY, GROUP_MEMBERS_MAX, HOST_CAPACITY,
    HostRole, MAC_CAPACITY, OPCODES_GROUP, OPCODES_MULTICAST, OPCODES_MULTICAST_NODE, OPCODES_NODE,
    OPCODES_READ, OPCODES_REQUEST, OPCODES_SWITCH, OPCODES_UNICAST, OPCODES_UNICAST_NODE, OPCODES_UPDATE,
    PORTS_MAX, REGISTER_CELLS, Register, TABLE_COUNT, Table, VLAN_TAGS_MAX, VNODES, VRINGS_MAX,
};

/// Number of group slots: twice the groups of one generation, because the next generation is built
/// while the current one is in use.
pub(crate) const GROUP_SLOTS: u32 = 2 * GROUP_CAPACITY as u32;
/// Offset from the slot of a group to the slot of the same group with every port listed twice.
pub(crate) const GROUP_TWINS: u32 = GROUP_SLOTS;
/// First slot of the groups that list one port twice.
pub(crate) const PORT_TWINS: u32 = 2 * GROUP_SLOTS;
/// Number of bits of an index into the array that maps interfaces to ports, which has 4,096 cells.
pub(crate) const PLACE_BITS: u32 = 12;
/// A probability of one, in millionths.
pub(crate) const PPM: u32 = 1_000_000;
/// Number of hit counters per map value; the kernel keeps one copy of each value per CPU.
pub(crate) const HITS_BLOCK: u32 = 512;
/// Number of hit counter blocks for all tables.
pub(crate) const HITS_BLOCKS: u32 = (hits_at(TABLE_COUNT) + 2 * REQUESTS).div_ceil(HITS_BLOCK);
/// Offset from an entry's counter of all hits to its counter of reads, and from there to its
/// counter of updates. Only the last tables count reads and updates separately.
pub(crate) const REQUESTS: u32 = hits_at(TABLE_COUNT) - hits_at(Table::Multicast as usize);
const _: () =
    assert!(Table::Multicast as usize + 2 == TABLE_COUNT && Table::Record as usize + 1 == TABLE_COUNT);
/// Kind of port: no server is attached.
pub(crate) const PORT_OPEN: u8 = 0;
/// Kind of port: one server is attached.
pub(crate) const PORT_HOST: u8 = 1;
/// Kind of port: a trunk to another switch.
pub(crate) const PORT_TRUNK: u8 = 2;

/// Upper bound of the entry numbers of a table: twice the entries of one generation, plus number 0,
/// which is unused.
pub(crate) const fn numbers(table: Table) -> u32 {
    2 * table.capacity() as u32 + 1
}

/// Index of the first hit counter of a table, by the table's number.
pub(crate) const fn hits_at(table: usize) -> u32 {
    let (mut sum, mut before) = (0, 0);
    while before < table {
        sum += numbers(Table::ALL[before]);
        before += 1;
    }
    sum
}

/// Defines a struct in Rust and the function that writes the same struct in C.
macro_rules! shared_struct {
    ($(#[$doc:meta])* $name:ident, $c_name:literal, $bytes:literal {
        $($field:ident: $type:ty = $c_type:literal $([$count:literal])?,)*
    }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }

        const _: () = assert!(size_of::<$name>() == $bytes);
        // The struct has no padding: it would be uninitialised, which is not allowed in a map key.
        const _: () = assert!(0 $(+ size_of::<$type>())* == $bytes);

        #[allow(unsafe_code, reason = "plain bytes: repr(C), integers only, no padding (asserted above)")]
        unsafe impl aya::Pod for $name {}

        impl $name {
            pub(in crate::layout) fn write_c(text: &mut String) -> std::fmt::Result {
                writeln!(text, "\nstruct {} {{", $c_name)?;
                $(writeln!(text, "\t{} {}{};", $c_type, stringify!($field), concat!($("[", $count, "]")?))?;)*
                writeln!(text, "}};")?;
                writeln!(text, "_Static_assert(sizeof(struct {}) == {}, \"size\");", $c_name, $bytes)?;
                $(writeln!(
                    text,
                    "_Static_assert(offsetof(struct {}, {}) == {}, \"offset\");",
                    $c_name, stringify!($field), offset_of!($name, $field),
                )?;)*
                Ok(())
            }
        }
    };
}

mod groups;
mod hot;

pub(crate) use groups::{GroupEntryKey, GroupPlaces};
pub(crate) use hot::{
    BANKS, HOST_IDS, HotEntry, HotHolder, HotKey, HotPipe, HotSlot, KEYSPACE_WORDS, KEYSPACES_OF_WORD,
};

shared_struct! {
    /// The two rings of a keyspace.
    VringPair, "nicekv_vring_pair", 16 {
        unicast_network: [u8; 4] = "__be32",
        unicast_mask: [u8; 4] = "__be32",
        multicast_network: [u8; 4] = "__be32",
        multicast_mask: [u8; 4] = "__be32",
    }
}

shared_struct! {
    /// Configuration that does not change between generations. The first `vring_count` pairs are
    /// valid; `ring_octets` has one bit for each possible second byte of an address, set if
    /// addresses of a ring have this byte.
    ///
    /// `cutter_near`, `cutter_far`: interface indexes of the two ends of the segmenter, or 0.
    /// `group_network`, `group_mask`: the ring of groups; without one, they match no address.
    /// `target_port`: the UDP port of the storage targets that addresses of this ring denote.
    Config, "nicekv_config", 324 {
        vrings: [VringPair; VRINGS_MAX] = "struct nicekv_vring_pair" [16],
        vring_count: u32 = "__u32",
        ring_octets: [u32; 8] = "__u32" [8],
        router_mac: [u8; 6] = "__u8" [6],
        target_port: [u8; 2] = "__be16",
        place_multiplier: u32 = "__u32",
        port_count: u32 = "__u32",
        cutter_near: u32 = "__u32",
        cutter_far: u32 = "__u32",
        group_network: [u8; 4] = "__be32",
        group_mask: [u8; 4] = "__be32",
    }
}

/// For each vnode of a ring, shifted right by `ignored_bits`, the number of its entry, or 0.
/// `by_records`: not zero if the ring is matched by the record table instead.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vnodes {
    pub(crate) entries: [u16; VNODES],
    pub(crate) ignored_bits: u16,
    pub(crate) by_records: u16,
}

#[allow(unsafe_code, reason = "plain bytes: repr(C), integers of one size only, hence no padding")]
unsafe impl aya::Pod for Vnodes {}

/// At least one of the 16 bits of a vnode is used as index.
pub(crate) const IGNORED_BITS_MAX: u32 = VNODES.ilog2() - 1;

/// One CPU's copy of a block of hit counters.
pub(crate) type Hits = [u64; HITS_BLOCK as usize];

const _: () = assert!(numbers(Table::Unicast) <= 1 << 16 && numbers(Table::Multicast) <= 1 << 16);
const _: () = assert!(numbers(Table::Division) <= 1 << 16 && PORTS_MAX <= 1 << 8);
const _: () = assert!(numbers(Table::Record) <= 1 << 16);

shared_struct! {
    /// An entry of `division`: gets from addresses in `network`, compared without the last
    /// `ignored_bits` bits, go to the port `target`.
    Division, "nicekv_division", 8 {
        network: u32 = "__u32",
        number: u16 = "__u16",
        target: u8 = "__u8",
        ignored_bits: u8 = "__u8",
    }
}

shared_struct! {
    /// The chain of an entry, which is written into its requests. `head`: the port of the head.
    /// `length`: 0 if there is no chain. `nodes`: indexes of the nodes' addresses, head first;
    /// `tail`: index of the tail's address.
    ChainNodes, "nicekv_chain", 24 {
        partition: [u8; 4] = "__be32",
        epoch: [u8; 4] = "__be32",
        head: u32 = "__u32",
        length: u8 = "__u8",
        nodes: [u8; CHAIN_NODES_MAX] = "__u8" [9],
        tail: u8 = "__u8",
        reserved: u8 = "__u8",
    }
}

const _: () = assert!(HOST_CAPACITY <= 1 << 8);
const _: () = assert!(GROUP_SLOTS < 1 << 16, "the metadata has 16 bits for the slot of a group");

shared_struct! {
    /// An entry of `multicast_vring`: the slot of its group.
    MulticastRoute, "nicekv_multicast_route", 32 {
        group: u32 = "__u32",
        chain: ChainNodes = "struct nicekv_chain",
        reserved: [u8; 4] = "__u8" [4],
    }
}

shared_struct! {
    /// An entry of `unicast_vring` with the divisions of its partition, longest prefix first.
    /// `target`: the default port. Seven divisions, more than most partitions have, fit into the
    /// first cache line.
    UnicastRoute, "nicekv_unicast_route", 128 {
        target: u32 = "__u32",
        division_count: u32 = "__u32",
        divisions: [Division; DIVISIONS_MAX] = "struct nicekv_division" [8],
        chain: ChainNodes = "struct nicekv_chain",
        reserved: [Division; 4] = "struct nicekv_division" [4],
    }
}

shared_struct! {
    /// An entry of `record`: its last value, the port and divisions for gets, and the group for all
    /// other requests.
    RecordRoute, "nicekv_record_route", 128 {
        last: [u64; 2] = "__u64" [2],
        target: u32 = "__u32",
        group: u32 = "__u32",
        division_count: u32 = "__u32",
        keyspace: [u8; 2] = "__be16",
        unused: [u8; 2] = "__u8" [2],
        divisions: [Division; DIVISIONS_MAX] = "struct nicekv_division" [8],
        chain: ChainNodes = "struct nicekv_chain",
        reserved: [u8; 8] = "__u8" [8],
    }
}

shared_struct! {
    /// The port of an interface. `port`: its position in the loader's list of ports. `number`: its
    /// number in tables and registers.
    Place, "nicekv_place", 12 {
        ifindex: u32 = "__u32",
        port: u32 = "__u32",
        number: u32 = "__u32",
    }
}

shared_struct! {
    /// The interface of a port. `has_peer`: not zero if frames can be redirected to its veth peer.
    Cable, "nicekv_cable", 8 {
        ifindex: u32 = "__u32",
        has_peer: u32 = "__u32",
    }
}

shared_struct! {
    /// The ports of a member set; the first `count` are valid.
    Group, "nicekv_group", 68 {
        count: u32 = "__u32",
        ports: [u32; GROUP_MEMBERS_MAX] = "__u32" [16],
    }
}

shared_struct! {
    /// The sender that was last admitted at a port, and the generation that admitted it.
    Sender, "nicekv_sender", 16 {
        generation: u32 = "__u32",
        address: [u8; 4] = "__be32",
        mac: [u8; 6] = "__u8" [6],
        reserved: [u8; 2] = "__u8" [2],
    }
}

shared_struct! {
    /// What is attached to a port. `kind`: [`PORT_HOST`] and so on. For a server: its addresses,
    /// which are written into frames to it and from which it may send, its role and its id;
    /// otherwise zeros.
    EgressHost, "nicekv_host", 16 {
        address: [u8; 4] = "__be32",
        mac: [u8; 6] = "__u8" [6],
        udp_port: [u8; 2] = "__be16",
        role: u8 = "__u8",
        kind: u8 = "__u8",
        id: u16 = "__u16",
    }
}

shared_struct! {
    /// Key of a server by its IP address.
    ServerKey, "nicekv_server_key", 8 {
        slot: u32 = "__u32",
        address: [u8; 4] = "__be32",
    }
}

shared_struct! {
    /// The port that leads to a server. The other fields say what it may send from there if the
    /// port is a trunk.
    Server, "nicekv_server", 16 {
        port: u32 = "__u32",
        mac: [u8; 6] = "__u8" [6],
        udp_port: [u8; 2] = "__be16",
        role: u8 = "__u8",
        reserved: [u8; 3] = "__u8" [3],
    }
}

shared_struct! {
    /// Key of a server by its MAC address.
    StationKey, "nicekv_station_key", 12 {
        slot: u32 = "__u32",
        mac: [u8; 6] = "__u8" [6],
        reserved: [u8; 2] = "__u8" [2],
    }
}

shared_struct! {
    /// Key of a learned MAC address.
    Mac, "nicekv_mac", 8 {
        bytes: [u8; 6] = "__u8" [6],
        reserved: [u8; 2] = "__u8" [2],
    }
}

shared_struct! {
    /// Metadata that accompanies a multicast frame from ingress to egress. `receivers`: mask of the
    /// members that get a copy; if `by_port` is not zero, mask of the ports of group `by_port - 1`
    /// by which copies leave. `has_stamp`: not zero if `stamp` must be written into the copies for
    /// servers.
    Metadata, "nicekv_metadata", 24 {
        slot: u16 = "__u16",
        by_port: u16 = "__u16",
        receivers: u16 = "__u16",
        has_stamp: u16 = "__u16",
        stamp: [[u8; 8]; 2] = "__be64" [2],
    }
}

shared_struct! {
    /// Fault injection at a port. Probabilities are in millionths, for frames from and to the
    /// station at the port. `lost`, `doubled`: injected faults.
    Fault, "nicekv_fault", 32 {
        lost_from_ppm: u32 = "__u32",
        lost_to_ppm: u32 = "__u32",
        doubled_ppm: u32 = "__u32",
        reserved: [u8; 4] = "__u8" [4],
        lost: u64 = "__u64",
        doubled: u64 = "__u64",
    }
}

/// The contents of `bpf/layout.h`.
pub fn c_header() -> String {
    let mut text = String::from(
        "/* Generated from src/layout.rs: do not edit. `NICEKV_BLESS=1 cargo test -p nicekv-switch-xdp layout`\n \
         * writes it anew. Addresses are in the order of the wire. */\n\
         #pragma once\n\n#include <stddef.h>\n\n#include <linux/types.h>\n\n",
    );
    write_constants(&mut text)
        .and_then(|()| VringPair::write_c(&mut text))
        .and_then(|()| Config::write_c(&mut text))
        .and_then(|()| Division::write_c(&mut text))
        .and_then(|()| ChainNodes::write_c(&mut text))
        .and_then(|()| MulticastRoute::write_c(&mut text))
        .and_then(|()| groups::write_c(&mut text))
        .and_then(|()| UnicastRoute::write_c(&mut text))
        .and_then(|()| RecordRoute::write_c(&mut text))
        .and_then(|()| Place::write_c(&mut text))
        .and_then(|()| Cable::write_c(&mut text))
        .and_then(|()| Group::write_c(&mut text))
        .and_then(|()| Sender::write_c(&mut text))
        .and_then(|()| EgressHost::write_c(&mut text))
        .and_then(|()| ServerKey::write_c(&mut text))
        .and_then(|()| Server::write_c(&mut text))
        .and_then(|()| StationKey::write_c(&mut text))
        .and_then(|()| Mac::write_c(&mut text))
        .and_then(|()| Metadata::write_c(&mut text))
        .and_then(|()| Fault::write_c(&mut text))
        .and_then(|()| hot::write_c(&mut text))
        .expect("writing to a string does not fail");
    text
}

fn write_constants(text: &mut String) -> std::fmt::Result {
    for (name, value) in [
        ("PORTS_MAX", PORTS_MAX as u32),
        ("HOST_CAPACITY", HOST_CAPACITY as u32),
        ("MAC_CAPACITY", MAC_CAPACITY as u32),
        ("VLAN_TAGS_MAX", VLAN_TAGS_MAX as u32),
        ("GROUP_MEMBERS_MAX", GROUP_MEMBERS_MAX as u32),
        ("GROUP_SLOTS", GROUP_SLOTS),
        ("GROUP_TWINS", GROUP_TWINS),
        ("PORT_TWINS", PORT_TWINS),
        ("PLACE_BITS", PLACE_BITS),
        ("PPM", PPM),
        ("RECEIVERS_ALL", RECEIVERS_ALL.into()),
        ("VNODES", VNODES as u32),
        ("DIVISIONS_MAX", DIVISIONS_MAX as u32),
        ("UNICAST_ROUTES", numbers(Table::Unicast)),
        ("MULTICAST_ROUTES", numbers(Table::Multicast)),
        ("RECORD_ROUTES", numbers(Table::Record)),
        ("RECORD_PLACES", RECORD_PLACES as u32),
        ("RECORD_GUESSES", RECORD_GUESSES as u32),
        ("RECORD_STEPS", RECORD_STEPS),
        ("HITS_BLOCK", HITS_BLOCK),
        ("HITS_BLOCKS", HITS_BLOCKS),
        ("PORT_OPEN", PORT_OPEN.into()),
        ("PORT_HOST", PORT_HOST.into()),
        ("PORT_TRUNK", PORT_TRUNK.into()),
        ("VRINGS_MAX", VRINGS_MAX as u32),
        ("REGISTER_CELLS", REGISTER_CELLS as u32),
        ("COUNTER_COUNT", COUNTER_COUNT as u32),
        ("COUNTER_HITS", Counter::Hits(Table::ALL[0]).index() as u32),
    ] {
        writeln!(text, "#define NICEKV_{name} {value}")?;
    }
    for (name, role) in [("NODE", HostRole::Node), ("METADATA", HostRole::Metadata)] {
        writeln!(text, "#define NICEKV_ROLE_{name} {}", role as u8)?;
    }
    write_opcodes(text)?;
    writeln!(text, "#define NICEKV_REQUESTS {REQUESTS}")?;
    for register in Register::ALL {
        let name = register.name().to_uppercase();
        writeln!(text, "#define NICEKV_REGISTER_{name} {}", register.range().start)?;
    }
    for table in Table::ALL {
        let name = table.name().to_uppercase();
        writeln!(text, "#define NICEKV_TABLE_{name} {}", table as u32)?;
        writeln!(text, "#define NICEKV_HITS_{name} {}", hits_at(table as usize))?;
    }
    for counter in Counter::ALL {
        writeln!(text, "#define NICEKV_COUNTER_{} {}", counter.name().to_uppercase(), counter.index())?;
    }
    Ok(())
}

fn write_opcodes(text: &mut String) -> std::fmt::Result {
    for (name, opcodes) in [
        ("UNICAST", OPCODES_UNICAST),
        ("UNICAST_NODE", OPCODES_UNICAST_NODE),
        ("MULTICAST", OPCODES_MULTICAST),
        ("MULTICAST_NODE", OPCODES_MULTICAST_NODE),
        ("GROUP", OPCODES_GROUP),
        ("REQUEST", OPCODES_REQUEST),
        ("NODE", OPCODES_NODE),
        ("SWITCH", OPCODES_SWITCH),
        ("UPDATE", OPCODES_UPDATE),
        ("READ", OPCODES_READ),
    ] {
        writeln!(text, "#define NICEKV_OPCODES_{name} {opcodes:#x}ULL")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_header_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/layout.h");
        if std::env::var_os("NICEKV_BLESS").is_some() {
            std::fs::write(path, c_header()).unwrap();
        }
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(found == c_header(), "bpf/layout.h is stale: set NICEKV_BLESS=1 and run this test again");
    }

    #[test]
    fn hit_counters_have_table_numbers() {
        for table in Table::ALL {
            assert_eq!(Counter::Hits(table).index(), Counter::Hits(Table::ALL[0]).index() + table as usize);
        }
    }
}
