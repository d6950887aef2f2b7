//! Counts gets by partition and source address. From these counts the metadata service divides
//! sources among replicas (NICE §4.5).
//!
//! ```text
//!   get ─▶ cell of (partition, source)          heartbeat ─▶ once an interval: the cells, the most requested first
//!            none free near its place: uncounted          └─▶ at each: a datagram of them, until all are sent
//! ```
//!
//! Memory and the cost of a get are bounded: the counters are cells of a table of fixed size. A
//! hash gives a cell's place, or it is one of the next few. The table is emptied at each interval,
//! so a busy source finds a free cell; an idle one may go uncounted, which matters little.

use crate::node::host::Host;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use nicekv_proto::control::{SOURCES_MAX, SourceGets, Sources};
use nicekv_proto::{Now, PartitionId};

/// Number of cells, a power of two.
pub(crate) const CELLS: usize = 1 << CELL_BITS;
const CELL_BITS: u32 = 11;
/// Number of places at which the cell of a source may be.
const PLACES: usize = 8;
/// How many cells of an interval are sent; the least requested ones are left out.
const TOLD_MAX: usize = 10 * SOURCES_MAX;

const EMPTY: SourceGets = SourceGets { partition: PartitionId(0), source: 0, gets: 0 };

#[derive(Clone, Default)]
pub(crate) struct SourceCounts {
    /// The table; empty if nothing is counted.
    cells: Vec<SourceGets>,
    /// Cells of the last interval that are not sent yet, the least requested first.
    untold: Vec<SourceGets>,
    report_at_ns: u64,
}

impl SourceCounts {
    pub(crate) fn new(counts: bool) -> Self {
        let cells = if counts { vec![EMPTY; CELLS] } else { Vec::new() };
        Self { cells, ..Self::default() }
    }

    /// Counts `gets` gets from a client.
    pub(crate) fn note(&mut self, partition: PartitionId, source: Ipv4Addr, gets: u32) {
        if self.cells.is_empty() {
            return;
        }
        let source = source.to_bits();
        let first = place(partition, source);
        for step in 0..PLACES {
            let cell = &mut self.cells[(first + step) % CELLS];
            if cell.gets == 0 {
                *cell = SourceGets { partition, source, gets };
                return;
            }
            if (cell.partition, cell.source) == (partition, source) {
                cell.gets = cell.gets.saturating_add(gets);
                return;
            }
        }
    }

    /// Ends the interval. Cells that were not sent yet are dropped.
    fn turn(&mut self) {
        self.untold.clear();
        self.untold.extend(self.cells.iter().filter(|cell| cell.gets > 0));
        self.cells.fill(EMPTY);
        self.untold.sort_unstable_by_key(|cell| (cell.gets, cell.partition, cell.source));
        let surplus = self.untold.len().saturating_sub(TOLD_MAX);
        self.untold.drain(..surplus);
    }

    /// Takes the cells to send next, the most requested first; empty if all are sent.
    fn take(&mut self) -> Vec<SourceGets> {
        let rest = self.untold.len().saturating_sub(SOURCES_MAX);
        let mut told = self.untold.split_off(rest);
        told.reverse();
        told
    }
}

/// Fibonacci hashing: it spreads addresses and partition ids, which are often consecutive, over the
/// whole table.
fn place(partition: PartitionId, source: u32) -> usize {
    let both = u64::from(partition.0) << 32 | u64::from(source);
    (both.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - CELL_BITS)) as usize
}

impl SourceCounts {
    /// Sends the metadata service the next cells. Called at every heartbeat.
    pub(crate) fn tell(&mut self, host: &mut Host, now: Now) {
        let interval = host.config.timing.sources_interval;
        if interval.is_zero() {
            return;
        }
        if now.boot_ns >= self.report_at_ns {
            self.report_at_ns = now.after(interval);
            self.turn();
        }
        let gets = self.take();
        if gets.is_empty() {
            return;
        }
        let (node, incarnation, sent_ns) = (host.config.node, host.config.incarnation, now.boot_ns);
        let sources = Sources { node, gets, incarnation, sent_ns };
        host.tell_metadata(|out| sources.encode(out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_requested_cells_are_sent_first_and_all_once() {
        let mut counts = SourceCounts::new(true);
        for source in 1..=150u32 {
            (0..source).for_each(|_| counts.note(PartitionId(source % 3), Ipv4Addr::from(source), 1));
        }
        counts.turn();
        let (first, second, third) = (counts.take(), counts.take(), counts.take());
        assert_eq!((first.len(), second.len(), third.len()), (SOURCES_MAX, 150 - SOURCES_MAX, 0));
        let told: Vec<u32> = first.iter().chain(&second).map(|cell| cell.gets).collect();
        assert!(told.iter().copied().eq((1..=150).rev()), "{told:?}");
        assert!(first.iter().all(|cell| cell.partition.0 == cell.source % 3 && cell.gets == cell.source));
        counts.turn();
        assert_eq!(counts.take(), [], "an interval without gets");
    }

    #[test]
    fn memory_is_bounded_and_busy_sources_are_counted() {
        let mut counts = SourceCounts::new(true);
        for _ in 0..1_000 {
            counts.note(PartitionId(7), Ipv4Addr::new(10, 20, 2, 1), 1);
        }
        (0..100_000u32).for_each(|source| counts.note(PartitionId(1), Ipv4Addr::from(source), 1));
        assert_eq!(counts.cells.len(), CELLS);
        counts.turn();
        assert_eq!(counts.untold.len(), TOLD_MAX);
        assert_eq!(counts.take()[0].gets, 1_000);
        // Only the cells of the second interval are sent now.
        counts.note(PartitionId(1), Ipv4Addr::from(5), 1);
        counts.turn();
        assert_eq!(counts.take(), [SourceGets { partition: PartitionId(1), source: 5, gets: 1 }]);
    }

    #[test]
    fn adjacent_sources_spread_over_the_table() {
        let mut counts = SourceCounts::new(true);
        let cells = (0..64).flat_map(|partition| (1..=16).map(move |client| (partition, client)));
        cells.clone().for_each(|(partition, client)| {
            counts.note(PartitionId(partition), Ipv4Addr::new(10, 20, 2, client), 1);
        });
        let counted = counts.cells.iter().filter(|cell| cell.gets == 1).count();
        assert!(counted * 100 >= cells.count() * 95, "{counted}");
        let mut none = SourceCounts::new(false);
        none.note(PartitionId(1), Ipv4Addr::LOCALHOST, 1);
        none.turn();
        assert_eq!(none.take(), []);
    }
}
