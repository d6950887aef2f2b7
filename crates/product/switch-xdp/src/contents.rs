//! Contents of one slot of the kernel's tables: for each vnode an entry number, and for each entry
//! number the entry's action.
//!
//! ```text
//!   ring, vnode ─▶ [numbers, 65,536 at most] ─▶ [by number: port; divisions of the partition, longest prefix first]     unicast
//!                                            ─▶ [by number: group]                                                      multicast
//! ```
//!
//! ```text
//!   ring, value of the header ─▶ [begins and numbers, ascending] ─▶ [by number: where it ends; port, divisions; group]         record
//! ```
//!
//! ```text
//!   ring of groups, prefix ─▶ [by number: group; for each of its ports, the members reached by it]
//! ```
//!
//! The first two are arrays: a packet costs two lookups, however many entries there are.
//! Longest-prefix match is resolved here, once per generation: each entry is written over the
//! vnodes of its prefix, after all shorter prefixes. An entry whose match survives keeps its number
//! ([`Slots`](crate::slots::Slots)) even if its action changes, so a new leader or a failure
//! changes entries, but no vnodes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use nicekv_switch::{
    CHAIN_NODES_MAX, Chain, DIVISIONS_MAX, HOST_CAPACITY, Host, HostId, Prefix, Ring, TABLE_COUNT, Table,
    TableSet, VNODES, VRINGS_MAX, VringSet,
};

use crate::layout::{
    ChainNodes, Division, GroupPlaces, IGNORED_BITS_MAX, MulticastRoute, RECORD_GUESSES, RECORD_PLACES,
    RecordRoute, Records, Segment, UnicastRoute, Vnodes, numbers,
};
use crate::receivers::{Receiver, places_by_port};

/// The entries of a ring: prefixes and entry numbers, shortest prefix first.
pub(crate) type RingEntries = Vec<(Prefix, u16)>;

/// The contents of a slot; see the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Routes of `unicast_vring`, by entry number.
    pub(crate) unicast: Vec<UnicastRoute>,
    /// Routes of `multicast_vring`, by entry number.
    pub(crate) multicast: Vec<MulticastRoute>,
    /// Routes of `record`, by entry number.
    pub(crate) record: Vec<RecordRoute>,
    /// Entries of the ring of groups, by entry number.
    pub(crate) places: Vec<GroupPlaces>,
    /// For each pair of rings in order: the entries of the unicast ring, then those of the
    /// multicast ring.
    pub(crate) rings: Vec<RingEntries>,
    /// Entry numbers of the ring of groups, by prefix.
    pub(crate) groups: BTreeMap<Prefix, u32>,
    /// Records in ascending order: index of the pair of rings, first value, entry number.
    pub(crate) begins: Vec<(usize, u128, u16)>,
    pub(crate) hosts: Vec<Host>,
    /// Open trunk ports.
    pub(crate) trunks: Vec<u16>,
    /// Addresses of nodes in chains. Chains refer to them by index.
    pub(crate) nodes: Vec<[u8; 4]>,
}

/// The numbers and slots that are assigned to the entries of a generation, in the order of the
/// entries.
pub(crate) struct Given<'a> {
    /// Entry numbers, by table.
    pub(crate) numbers: [&'a [u32]; TABLE_COUNT],
    /// Group slots, first of the entries of `multicast_vring`, then of those of `record`.
    pub(crate) groups: &'a [u32],
    pub(crate) ports: &'a BTreeMap<HostId, u32>,
    pub(crate) receivers: &'a BTreeMap<HostId, Receiver>,
}

impl Contents {
    /// The contents of the kernel's maps before the first install: zeros.
    pub(crate) fn empty(vrings: &VringSet) -> Self {
        Self {
            unicast: vec![UnicastRoute::default(); numbers(Table::Unicast) as usize],
            multicast: vec![MulticastRoute::default(); numbers(Table::Multicast) as usize],
            record: vec![RecordRoute::default(); numbers(Table::Record) as usize],
            places: vec![GroupPlaces::default(); numbers(Table::Multicast) as usize],
            rings: vec![Vec::new(); 2 * vrings.iter().count()],
            groups: BTreeMap::new(),
            begins: Vec::new(),
            hosts: Vec::new(),
            trunks: Vec::new(),
            nodes: vec![[0; 4]; HOST_CAPACITY],
        }
    }

    /// The contents for validated tables.
    pub(crate) fn new(tables: &TableSet, vrings: &VringSet, given: &Given<'_>) -> Self {
        let (hosts, trunks) = (tables.hosts.clone(), tables.trunks.clone());
        let mut contents = Self { hosts, trunks, ..Self::empty(vrings) };
        contents.nodes.iter_mut().zip(&tables.hosts).for_each(|(node, host)| *node = host.ip);
        let places = tables.hosts.iter().map(|host| host.id).zip(0..).collect();
        let chains = Chains { places, ports: given.ports };
        let divisions = divisions(tables, given);
        for (entry, &number) in tables.unicast.iter().zip(given.numbers[Table::Unicast as usize]) {
            let (divisions, division_count) = of_partition(&divisions, entry.partition);
            let (target, chain) = (given.ports[&entry.host], chains.nodes(entry.chain.as_ref()));
            contents.unicast[number as usize] =
                UnicastRoute { target, division_count, divisions, chain, ..UnicastRoute::default() };
            contents.cover(vrings, Ring::Unicast, entry.destination, number);
        }
        let numbers = given.numbers[Table::Multicast as usize];
        for ((entry, &number), &group) in tables.multicast.iter().zip(numbers).zip(given.groups) {
            let chain = chains.nodes(entry.chain.as_ref());
            contents.multicast[number as usize] =
                MulticastRoute { group, chain, ..MulticastRoute::default() };
            if vrings.group_prefix().is_some_and(|ring| ring.covers(&entry.destination)) {
                contents.places[number as usize] = places_by_port(entry, given.receivers);
                contents.groups.insert(entry.destination, number);
            } else {
                contents.cover(vrings, Ring::Multicast, entry.destination, number);
            }
        }
        contents.add_records(tables, vrings, given, (&divisions, &chains));
        contents.rings.iter_mut().for_each(|ring| ring.sort_by_key(|(prefix, _)| (prefix.length, *prefix)));
        contents
    }

    fn add_records(
        &mut self,
        tables: &TableSet,
        vrings: &VringSet,
        given: &Given<'_>,
        (divisions, chains): (&BTreeMap<u32, Vec<Division>>, &Chains<'_>),
    ) {
        let numbers = given.numbers[Table::Record as usize];
        let groups = &given.groups[tables.multicast.len()..];
        for ((entry, &number), &group) in tables.record.iter().zip(numbers).zip(groups) {
            let (divisions, division_count) = of_partition(divisions, entry.partition);
            self.record[number as usize] = RecordRoute {
                last: halves(entry.last),
                target: given.ports[&entry.host],
                group,
                division_count,
                keyspace: entry.keyspace.to_be_bytes(),
                divisions,
                chain: chains.nodes(entry.chain.as_ref()),
                ..RecordRoute::default()
            };
            let pair = vrings.iter().position(|pair| pair.unicast == entry.ring);
            self.begins.push((pair.expect("validated"), entry.first, number as u16));
        }
        self.begins.sort_unstable();
    }

    /// Whether the ring is matched by the record table.
    pub(crate) fn is_by_records(&self, ring: usize) -> bool {
        let at = self.begins.partition_point(|(pair, ..)| *pair < ring / 2);
        self.begins.get(at).is_some_and(|(pair, ..)| *pair == ring / 2)
    }

    fn cover(&mut self, vrings: &VringSet, ring: Ring, destination: Prefix, number: u32) {
        let is_its = |pair: &nicekv_switch::VringConfig| match ring {
            Ring::Unicast => pair.unicast.covers(&destination),
            Ring::Multicast | Ring::Group => pair.multicast.covers(&destination),
        };
        let pair = vrings.iter().position(is_its).expect("validated entries lie in a ring");
        let index = 2 * pair + usize::from(ring == Ring::Multicast);
        self.rings[index].push((destination, number as u16));
    }
}

/// Replaces the nodes of chains by indexes into [`Contents::nodes`].
struct Chains<'a> {
    places: BTreeMap<HostId, u8>,
    ports: &'a BTreeMap<HostId, u32>,
}

impl Chains<'_> {
    fn nodes(&self, chain: Option<&Chain>) -> ChainNodes {
        let Some((chain, head)) = chain.and_then(|chain| Some((chain, chain.nodes().first()?))) else {
            return ChainNodes::default();
        };
        let mut nodes = [0; CHAIN_NODES_MAX];
        nodes.iter_mut().zip(chain.nodes()).for_each(|(place, node)| *place = self.places[node]);
        ChainNodes {
            partition: chain.partition.to_be_bytes(),
            epoch: chain.epoch.to_be_bytes(),
            head: self.ports[head],
            length: chain.nodes().len() as u8,
            nodes,
            tail: nodes[chain.nodes().len() - 1],
            ..ChainNodes::default()
        }
    }
}

fn of_partition(
    divisions: &BTreeMap<u32, Vec<Division>>,
    partition: u32,
) -> ([Division; DIVISIONS_MAX], u32) {
    let mut places = [Division::default(); DIVISIONS_MAX];
    let list = divisions.get(&partition).map_or(&[][..], Vec::as_slice);
    places.iter_mut().zip(list).for_each(|(place, division)| *place = *division);
    (places, list.len() as u32)
}

/// The upper and the lower half of a match value.
fn halves(value: u128) -> [u64; 2] {
    [(value >> 64) as u64, value as u64]
}

/// The record table in the form that the programs search.
pub(crate) fn records(begins: &[(usize, u128, u16)]) -> Box<Records> {
    let mut records = Box::new(Records {
        segments: [Segment::default(); VRINGS_MAX],
        firsts: [[0; 2]; RECORD_PLACES],
        numbers: [0; RECORD_PLACES],
        guesses: [0; RECORD_GUESSES],
    });
    let (mut begin, mut guessed) = (0, 0);
    for of_pair in begins.chunk_by(|one, next| one.0 == next.0) {
        for (place, &(_, first, number)) in (begin..).zip(of_pair) {
            (records.firsts[place], records.numbers[place]) = (halves(first), number);
        }
        let firsts: Vec<u128> = of_pair.iter().map(|(_, first, _)| *first).collect();
        let (shift, guesses) = guesses(&firsts);
        records.segments[of_pair[0].0] = Segment {
            first: halves(firsts[0]),
            begin: begin as u32,
            count: firsts.len() as u32,
            guesses: guessed as u32,
            cells: guesses.len() as u32 - 1,
            shift,
            reserved: 0,
        };
        records.guesses[guessed..][..guesses.len()].copy_from_slice(&guesses);
        (begin, guessed) = (begin + of_pair.len(), guessed + guesses.len());
    }
    records
}

/// Divides the range from the first to the last of these values into cells of equal size, and
/// guesses for each cell border the index of the last value at or before it. If the values are
/// evenly distributed, a cell holds hardly more than one of them; otherwise the binary search takes
/// more steps.
fn guesses(firsts: &[u128]) -> (u32, Vec<u16>) {
    let (base, span) = (firsts[0], firsts[firsts.len() - 1] - firsts[0]);
    let cells = firsts.len().next_power_of_two();
    let shift = (u128::BITS - span.leading_zeros()).saturating_sub(cells.ilog2());
    let mut last = 0;
    let mut guess = |cell: usize| {
        let within = (cell as u128) << shift;
        while firsts.get(last + 1).is_some_and(|next| next - base <= within) {
            last += 1;
        }
        last as u16
    };
    let mut guesses: Vec<u16> = (0..cells).map(&mut guess).collect();
    guesses.push(firsts.len() as u16 - 1);
    (shift, guesses)
}

/// Divisions by partition, longest prefix first.
fn divisions(tables: &TableSet, given: &Given<'_>) -> BTreeMap<u32, Vec<Division>> {
    let mut divisions: BTreeMap<u32, Vec<Division>> = BTreeMap::new();
    let mut entries: Vec<_> = tables.division.iter().zip(given.numbers[Table::Division as usize]).collect();
    entries.sort_by_key(|(entry, _)| (entry.partition, Reverse(entry.source.length)));
    for (entry, &number) in entries {
        divisions.entry(entry.partition).or_default().push(Division {
            network: entry.source.first(),
            number: number as u16,
            target: given.ports[&entry.host] as u8,
            ignored_bits: 32 - entry.source.length,
        });
    }
    debug_assert!(
        divisions.values().all(|all| all.len() <= DIVISIONS_MAX),
        "validated tables have at most DIVISIONS_MAX"
    );
    divisions
}

/// For each vnode of a ring, the number of the entry with the longest matching prefix. Low bits of
/// the vnode that no prefix covers are dropped, so that the array stays small and cached.
pub(crate) fn vnodes(entries: &RingEntries, by_records: bool) -> Box<Vnodes> {
    let longest = entries.iter().map(|(prefix, _)| prefix.length).max().unwrap_or(0);
    let ignored_bits = (32 - u32::from(longest)).min(IGNORED_BITS_MAX);
    let (ignored, by_records) = (ignored_bits as u16, by_records.into());
    let mut vnodes = Box::new(Vnodes { entries: [0; VNODES], ignored_bits: ignored, by_records });
    for (prefix, number) in entries {
        let cell = |address: u32| (address as usize % VNODES) >> ignored_bits;
        vnodes.entries[cell(prefix.first())..=cell(prefix.last())].fill(*number);
    }
    vnodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vnode_belongs_to_its_longest_prefix_in_any_order() {
        let ring = |address, length| Prefix::new(address, length);
        let vnodes = vnodes(
            &vec![
                (ring([10, 10, 0, 0], 17), 7),
                (ring([10, 10, 255, 0], 24), 8),
                (ring([10, 10, 1, 0], 24), 1),
                (ring([10, 10, 255, 255], 32), 9),
            ],
            false,
        );
        assert_eq!(vnodes.ignored_bits, 0);
        let runs = vnodes.entries.chunk_by(|one, next| one == next).map(|run| (run.len(), run[0]));
        assert!(runs.eq([(256, 7), (256, 1), (32768 - 512, 7), (32768 - 256, 0), (255, 8), (1, 9)]));
    }

    #[test]
    fn unused_low_vnode_bits_are_ignored() {
        let ring = |address, length| Prefix::new(address, length);
        let found = vnodes(&vec![(ring([10, 10, 0, 0], 16), 1), (ring([10, 10, 48, 0], 20), 2)], false);
        assert_eq!((found.ignored_bits, &found.entries[..6]), (12, &[1, 1, 1, 2, 1, 1][..]));
        assert_eq!((found.entries[15], found.entries[16]), (1, 0));
        let whole = vnodes(&vec![(ring([10, 10, 0, 0], 16), 3)], false);
        assert_eq!((whole.ignored_bits, &whole.entries[..3]), (15, &[3, 3, 0][..]));
        assert!(vnodes(&Vec::new(), true).entries.iter().all(|number| *number == 0));
    }

    #[test]
    fn record_search_starts_between_two_guesses() {
        let spread: Vec<u128> = (0..1000).map(|number| number * (u128::MAX / 1000)).collect();
        let crowded: Vec<u128> = [0, 1, 2, 3, 1 << 100, u128::MAX].into();
        let beside: Vec<u128> = (7..=20).collect();
        for (firsts, halvings) in
            [(spread, 1), (crowded, 2), (beside, 1), (vec![5], 0), (vec![0, u128::MAX], 1)]
        {
            let (shift, guesses) = guesses(&firsts);
            assert_eq!(guesses.len(), firsts.len().next_power_of_two() + 1);
            let around =
                firsts.iter().flat_map(|first| [first.saturating_sub(1), *first, first.saturating_add(1)]);
            for value in around.filter(|value| *value >= firsts[0]) {
                let cell = ((value - firsts[0]) >> shift).min(guesses.len() as u128 - 2) as usize;
                let at = firsts.partition_point(|first| *first <= value) - 1;
                let (low, high) = (usize::from(guesses[cell]), usize::from(guesses[cell + 1]));
                assert!((low..=high).contains(&at), "{value:x}: {at} is not from {low} to {high}");
                assert!((high - low).next_power_of_two().ilog2() <= halvings, "{low} to {high}");
            }
        }
    }

    #[test]
    fn records_of_a_pair_are_adjacent_and_sorted() {
        let begins = [(1, 0, 7), (1, 5, 3), (1, u128::MAX, 9), (4, 1 << 64, 2)];
        let records = records(&begins);
        let places = |pair: usize| (records.segments[pair].begin, records.segments[pair].count);
        assert_eq!((places(0), places(1), places(4)), ((0, 0), (0, 3), (3, 1)));
        let guessed = |pair: usize| (records.segments[pair].guesses, records.segments[pair].cells);
        assert_eq!((guessed(1), guessed(4)), ((0, 4), (5, 1)));
        assert_eq!(records.numbers[..5], [7, 3, 9, 2, 0]);
        assert_eq!(records.firsts[..4], [[0, 0], [0, 5], [u64::MAX, u64::MAX], [1, 0]]);
    }
}
