//! What a slot of the kernel's tables holds: of each entry, by its number, what is to be done, and of each vnode which entry's it is.
//!
//! ```text
//!   ring, vnode ─▶ [numbers, 65,536 at most] ─▶ [by number: port; divisions of the partition, longest prefix first]     unicast
//!                                            ─▶ [by number: group]                                                      multicast
//! ```
//!
//! Both are arrays, so a packet costs a look at two places, however many entries there are. The longest prefix is found here, once: each
//! entry is written over the vnodes of its prefix, after all shorter ones. An entry that stays keeps its number
//! ([`Slots`](crate::slots::Slots)), whatever it leads to, so who leads or has failed changes entries, and no vnode.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use nicekv_dataplane::{DIVISIONS_MAX, Host, HostId, Prefix, Ring, Table, TableSet, VNODES, VringSet};

use crate::layout::{Division, IGNORED_BITS_MAX, UnicastRoute, Vnodes, numbers};

/// The entries of a ring: prefixes with their numbers, the shortest first.
pub(crate) type RingEntries = Vec<(Prefix, u16)>;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    /// By number.
    pub(crate) unicast: Vec<UnicastRoute>,
    /// By number: slots of groups.
    pub(crate) multicast: Vec<u32>,
    /// Of each pair, in their order: the unicast ring, then the other.
    pub(crate) rings: Vec<RingEntries>,
    pub(crate) hosts: Vec<Host>,
}

/// What the entries of a generation have been given, each list in the order of the entries.
pub(crate) struct Given<'a> {
    /// By table.
    pub(crate) numbers: [&'a [u32]; 3],
    pub(crate) groups: &'a [u32],
    pub(crate) ports: &'a BTreeMap<HostId, u32>,
}

impl Contents {
    /// As the kernel makes it: zeros.
    pub(crate) fn empty(vrings: &VringSet) -> Self {
        Self {
            unicast: vec![UnicastRoute::default(); numbers(Table::Unicast) as usize],
            multicast: vec![0; numbers(Table::Multicast) as usize],
            rings: vec![Vec::new(); 2 * vrings.iter().count()],
            hosts: Vec::new(),
        }
    }

    /// Of validated tables.
    pub(crate) fn new(tables: &TableSet, vrings: &VringSet, given: &Given<'_>) -> Self {
        let mut contents = Self { hosts: tables.hosts.clone(), ..Self::empty(vrings) };
        let divisions = divisions(tables, given);
        for (entry, &number) in tables.unicast.iter().zip(given.numbers[Table::Unicast as usize]) {
            let mut route = UnicastRoute { target: given.ports[&entry.host], ..UnicastRoute::default() };
            for (place, division) in
                route.divisions.iter_mut().zip(divisions.get(&entry.partition).into_iter().flatten())
            {
                *place = *division;
                route.division_count += 1;
            }
            contents.unicast[number as usize] = route;
            contents.cover(vrings, Ring::Unicast, entry.destination, number);
        }
        let numbers = given.numbers[Table::Multicast as usize];
        for ((entry, &number), &group) in tables.multicast.iter().zip(numbers).zip(given.groups) {
            contents.multicast[number as usize] = group;
            contents.cover(vrings, Ring::Multicast, entry.destination, number);
        }
        contents.rings.iter_mut().for_each(|ring| ring.sort_by_key(|(prefix, _)| (prefix.length, *prefix)));
        contents
    }

    fn cover(&mut self, vrings: &VringSet, ring: Ring, destination: Prefix, number: u32) {
        let is_its = |pair: &nicekv_dataplane::VringConfig| match ring {
            Ring::Unicast => pair.unicast.covers(&destination),
            Ring::Multicast => pair.multicast.covers(&destination),
        };
        let pair = vrings.iter().position(is_its).expect("validated entries lie in a ring");
        let index = 2 * pair + usize::from(ring == Ring::Multicast);
        self.rings[index].push((destination, number as u16));
    }
}

/// By partition, longest prefixes first.
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
    debug_assert!(divisions.values().all(|all| all.len() <= DIVISIONS_MAX), "validated tables have no more");
    divisions
}

/// For each vnode of a ring the number of the entry with the longest prefix. Bits that no prefix looks at are left out: what is looked up stays
/// small, and in the processor's cache.
pub(crate) fn vnodes(entries: &RingEntries) -> Box<Vnodes> {
    let longest = entries.iter().map(|(prefix, _)| prefix.length).max().unwrap_or(0);
    let ignored_bits = (32 - u32::from(longest)).min(IGNORED_BITS_MAX);
    let mut vnodes = Box::new(Vnodes { entries: [0; VNODES], ignored_bits: ignored_bits as u16 });
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
    fn the_longest_prefix_has_a_vnode_whatever_the_order_and_up_to_the_edges() {
        let ring = |address, length| Prefix::new(address, length);
        let vnodes = vnodes(&vec![
            (ring([10, 10, 0, 0], 17), 7),
            (ring([10, 10, 255, 0], 24), 8),
            (ring([10, 10, 1, 0], 24), 1),
            (ring([10, 10, 255, 255], 32), 9),
        ]);
        assert_eq!(vnodes.ignored_bits, 0);
        let runs = vnodes.entries.chunk_by(|one, next| one == next).map(|run| (run.len(), run[0]));
        assert!(runs.eq([(256, 7), (256, 1), (32768 - 512, 7), (32768 - 256, 0), (255, 8), (1, 9)]));
    }

    #[test]
    fn bits_that_no_prefix_looks_at_are_left_out() {
        let ring = |address, length| Prefix::new(address, length);
        let found = vnodes(&vec![(ring([10, 10, 0, 0], 16), 1), (ring([10, 10, 48, 0], 20), 2)]);
        assert_eq!((found.ignored_bits, &found.entries[..6]), (12, &[1, 1, 1, 2, 1, 1][..]));
        assert_eq!((found.entries[15], found.entries[16]), (1, 0));
        let whole = vnodes(&vec![(ring([10, 10, 0, 0], 16), 3)]);
        assert_eq!((whole.ignored_bits, &whole.entries[..3]), (15, &[3, 3, 0][..]));
        assert!(vnodes(&Vec::new()).entries.iter().all(|number| *number == 0));
    }
}
