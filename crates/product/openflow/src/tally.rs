//! Adds up what the flows of a switch have counted.
//!
//! A flow's count begins again when the flow or the switch does, and the flows of an entry change
//! with the program. The tally of an entry stays as long as its match does.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use nicekv_switch::{Counter, Counters, EntryRequests, Match, Table, TableSet};

use crate::program::{FlowKey, Meaning, Program};

#[derive(Clone, Copy, Debug, Default)]
struct EntryCount {
    from_clients: u64,
    from_nodes: u64,
}

/// The packets of each entry, and the global counters.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The last reading of each flow.
    last: BTreeMap<FlowKey, u64>,
    entries: BTreeMap<(Table, Match), EntryCount>,
    counters: Counters,
}

impl Tally {
    /// Adds a reading of the flows of `program`, which was compiled from `tables`.
    pub fn add(&mut self, program: &Program, tables: &TableSet, counts: BTreeMap<FlowKey, u64>) {
        let matches = Table::ALL
            .map(|table| tables.rules(table).into_iter().map(|(matches, _)| matches).collect::<Vec<Match>>());
        for (key, packets) in &counts {
            let last = self.last.get(key).copied().unwrap_or(0);
            let new = if *packets < last { *packets } else { *packets - last };
            match program.flows.get(key).map(|flow| flow.meaning) {
                Some(Meaning::Entry { table, position, is_from_node }) => {
                    self.counters.add(Counter::Hits(table), new);
                    let Some(matches) = matches[table as usize].get(position as usize) else { continue };
                    let entry = self.entries.entry((table, *matches)).or_default();
                    let count = if is_from_node { &mut entry.from_nodes } else { &mut entry.from_clients };
                    *count += new;
                }
                Some(Meaning::Counter(counter)) => self.counters.add(counter, new),
                Some(Meaning::Uncounted) | None => {}
            }
        }
        self.last = counts;
        let kept: BTreeSet<(Table, Match)> = Table::ALL
            .into_iter()
            .flat_map(|table| matches[table as usize].iter().map(move |matches| (table, *matches)))
            .collect();
        self.entries.retain(|entry, _| kept.contains(entry));
    }

    fn of_entries(&self, tables: &TableSet, table: Table) -> Vec<EntryCount> {
        let count = |(matches, _)| self.entries.get(&(table, matches)).copied().unwrap_or_default();
        tables.rules(table).into_iter().map(count).collect()
    }

    /// Hits of each entry, in the order of the tables.
    pub fn hits(&self, tables: &TableSet, table: Table) -> Vec<u64> {
        self.of_entries(tables, table).iter().map(|count| count.from_clients + count.from_nodes).collect()
    }

    /// Requests of clients among the hits. In a multicast ring all of them count as updates: a
    /// switch does not see the queries of quorums.
    pub fn requests(&self, tables: &TableSet, table: Table) -> Vec<EntryRequests> {
        let requests = |count: EntryCount| match table.matches_updates() {
            true => EntryRequests { reads: 0, updates: count.from_clients },
            false => EntryRequests { reads: count.from_clients, updates: 0 },
        };
        self.of_entries(tables, table).into_iter().map(requests).collect()
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nicekv_switch_fixtures::{PORTS, ROUTER_MAC, headers_only, tables, vrings};

    use super::*;
    use crate::program::{Fabric, Generation, compile};

    fn compiled(tables: &TableSet) -> Program {
        let fabric = Fabric {
            vrings: vrings(),
            router_mac: ROUTER_MAC,
            ports: PORTS.collect(),
            trunks: [].into(),
            requests_per_second: None,
            learns: false,
        };
        compile(&fabric, tables, &BTreeMap::new(), Generation::Bundled, &Program::default()).unwrap()
    }

    /// A reading in which flows with this meaning have this count.
    fn reading(program: &Program, counted: &[(Meaning, u64)]) -> BTreeMap<FlowKey, u64> {
        let count =
            |meaning| counted.iter().find(|(known, _)| *known == meaning).map_or(0, |(_, count)| *count);
        program.flows.iter().map(|(key, flow)| (key.clone(), count(flow.meaning))).collect()
    }

    fn entry(table: Table, position: u32, is_from_node: bool) -> Meaning {
        Meaning::Entry { table, position, is_from_node }
    }

    #[test]
    fn differences_are_added_over_restarts_and_changes() {
        let mut tables = headers_only::supported(&tables());
        let program = compiled(&tables);
        let get = entry(Table::Unicast, 0, false);
        let mut tally = Tally::default();
        for count in [3, 5] {
            tally.add(&program, &tables, reading(&program, &[(get, count)]));
        }
        assert_eq!(tally.hits(&tables, Table::Unicast)[..2], [5, 0]);
        // The switch has restarted.
        tally.add(&program, &tables, reading(&program, &[(get, 2)]));
        assert_eq!(tally.hits(&tables, Table::Unicast)[..2], [7, 0]);
        // The entry is at another position now, and another one is gone.
        tables.unicast.reverse();
        let last = tables.unicast.len() - 1;
        tables.unicast.remove(0);
        let program = compiled(&tables);
        let moved = entry(Table::Unicast, last as u32 - 1, false);
        tally.add(&program, &tables, reading(&program, &[(moved, 4)]));
        assert_eq!(tally.hits(&tables, Table::Unicast)[last - 1], 9);
        assert_eq!(tally.counters().get(Counter::Hits(Table::Unicast)), 9);
    }

    #[test]
    fn messages_of_nodes_are_hits_but_no_requests() {
        let tables = headers_only::supported(&tables());
        let program = compiled(&tables);
        let (put, message) = (entry(Table::Multicast, 1, false), entry(Table::Multicast, 1, true));
        let dropped = Meaning::Counter(Counter::SourceRefused);
        let mut tally = Tally::default();
        let counted = reading(&program, &[(put, 2), (message, 40), (dropped, 1)]);
        tally.add(&program, &tables, counted.clone());
        assert_eq!(tally.hits(&tables, Table::Multicast)[1], 42);
        let requests = tally.requests(&tables, Table::Multicast)[1];
        assert_eq!(requests, EntryRequests { reads: 0, updates: 2 });
        assert_eq!(tally.counters().get(Counter::Hits(Table::Multicast)), 42);
        let refusing = program.flows.values().filter(|flow| flow.meaning == dropped).count() as u64;
        assert_eq!(tally.counters().get(Counter::SourceRefused), refusing);
        tally.add(&program, &tables, counted);
        assert_eq!(tally.counters().get(Counter::SourceRefused), refusing, "nothing new");
    }
}
