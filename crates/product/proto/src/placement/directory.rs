//! The partition table of nodes and clients that coordinate requests without a switch (TurboKV §1),
//! and how they fetch it.
//!
//! ```text
//!   due ──query──▶ 24 records ──query──▶ 24 more … ──▶ a whole version takes the place of the one before
//!                      └─ another version: from the beginning
//! ```

use crate::directory::{DIRECTORY_RECORDS_MAX, DirectoryPage, DirectoryQuery, DirectoryRecord};
use crate::{KeyspaceId, OpId};
use alloc::vec::Vec;
use core::net::SocketAddrV4;

/// One version of the partition table, ordered by keyspace and range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    version: u64,
    records: Vec<DirectoryRecord>,
}

impl Directory {
    /// A table of these records, in any order; an empty table if they are too many to be fetched.
    pub fn new(version: u64, mut records: Vec<DirectoryRecord>) -> Self {
        if records.len() > DIRECTORY_RECORDS_MAX {
            records.clear();
        }
        records.sort_unstable_by_key(|record| (record.keyspace.0, record.range.first()));
        Self { version, records }
    }

    /// 0: no version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The record that holds a match value.
    pub fn find(&self, keyspace: KeyspaceId, value: u128) -> Option<&DirectoryRecord> {
        let begins =
            |record: &DirectoryRecord| (record.keyspace.0, record.range.first()) <= (keyspace.0, value);
        let found = self.records[..self.records.partition_point(begins)].last()?;
        (found.keyspace == keyspace && found.range.contains(value)).then_some(found)
    }

    /// Whether a record names this address.
    pub fn names(&self, address: SocketAddrV4) -> bool {
        self.records.iter().any(|record| record.head == address || record.tail == address)
    }

    /// Answers a query.
    pub fn answer(&self, query: &DirectoryQuery, out: &mut Vec<u8>) {
        let mut listed = Vec::new();
        let first = query.first as usize;
        if query.known != self.version {
            let wanted = self.records.iter().skip(first).take(query.records_max());
            wanted.for_each(|record| record.append(&mut listed));
        }
        let total = self.records.len() as u32;
        DirectoryPage { op: query.op, version: self.version, total, first: query.first, listed: &listed }
            .encode(out);
    }
}

/// A table, and the received part of the next version. One query is open at a time; the caller
/// decides when to repeat it.
#[derive(Clone, Debug, Default)]
pub struct DirectoryFetch {
    directory: Directory,
    coming: Directory,
    /// Identifies the open query.
    sequence: u64,
    is_open: bool,
}

impl DirectoryFetch {
    /// The last complete version.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The next query; an answer to an earlier one is ignored from now on.
    pub fn query(&mut self) -> DirectoryQuery {
        self.sequence += 1;
        self.is_open = true;
        let op = OpId { sequence: self.sequence, ..OpId::NONE };
        DirectoryQuery::padded(op, self.directory.version, self.coming.records.len() as u32)
    }

    /// Whether a query is open.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Takes an answer; returns whether there is more to query at once.
    pub fn on_page(&mut self, page: &DirectoryPage<'_>) -> bool {
        if !self.is_open || page.op != (OpId { sequence: self.sequence, ..OpId::NONE }) {
            return false;
        }
        self.is_open = false;
        // An older version: the sender lags behind.
        if page.version <= self.directory.version || page.total as usize > DIRECTORY_RECORDS_MAX {
            self.coming = Directory::default();
            return false;
        }
        if page.version != self.coming.version || page.first as usize != self.coming.records.len() {
            let begins_anew = page.first == 0;
            self.coming = Directory { version: page.version, records: Vec::new() };
            if !begins_anew {
                return true;
            }
        }
        self.coming.records.extend(page.records());
        if self.coming.records.len() < page.total as usize {
            // An empty page of an incomplete table would be queried for ever.
            return !page.listed.is_empty();
        }
        let Directory { version, records } = core::mem::take(&mut self.coming);
        // The sender is not trusted to order the records, but lookups need the order.
        self.directory = Directory::new(version, records);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Datagram, Epoch, MatchRange, PartitionId};
    use core::net::Ipv4Addr;

    fn record(keyspace: u16, first: u128, last: u128) -> DirectoryRecord {
        let address = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        DirectoryRecord {
            keyspace: KeyspaceId(keyspace),
            partition: PartitionId(first as u32),
            epoch: Epoch(1),
            head: address(1),
            tail: address(2),
            range: MatchRange::new(first, last).unwrap(),
        }
    }

    fn records(count: u128) -> Vec<DirectoryRecord> {
        (0..count).rev().map(|number| record(1, 10 * number, 10 * number + 9)).collect()
    }

    /// Queries until the table is complete; returns the number of queries.
    fn fetch(fetch: &mut DirectoryFetch, from: &Directory) -> usize {
        let mut bytes = Vec::new();
        for asked in 1.. {
            from.answer(&fetch.query(), &mut bytes);
            let Ok((_, Datagram::DirectoryPage(page))) = Datagram::decode(&bytes) else { panic!("a page") };
            if !fetch.on_page(&page) {
                return asked;
            }
        }
        unreachable!("the loop ends")
    }

    #[test]
    fn record_lookup_includes_both_ends() {
        let directory = Directory::new(1, vec![record(2, 0, 9), record(1, 5, 9), record(1, 20, u128::MAX)]);
        let found = |keyspace, value| directory.find(KeyspaceId(keyspace), value).map(|r| r.range.first());
        for (keyspace, value, first) in [
            (1, 4, None),
            (1, 5, Some(5)),
            (1, 9, Some(5)),
            (1, 10, None),
            (1, u128::MAX, Some(20)),
            (2, 9, Some(0)),
            (2, 10, None),
            (0, 5, None),
            (3, 5, None),
        ] {
            assert_eq!(found(keyspace, value), first, "{keyspace} {value}");
        }
        assert!(
            directory.names(record(1, 0, 0).tail)
                && !directory.names(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3))
        );
    }

    #[test]
    fn table_is_fetched_in_pages_and_again_only_after_changes() {
        let (one, two) = (Directory::new(1, records(60)), Directory::new(2, records(61)));
        let mut asker = DirectoryFetch::default();
        assert_eq!(fetch(&mut asker, &one), 3);
        assert_eq!(asker.directory(), &one);
        assert_eq!(fetch(&mut asker, &one), 1, "there is no newer version");
        assert_eq!(fetch(&mut asker, &two), 3);
        assert_eq!(fetch(&mut asker, &one), 1, "an older version is ignored");
        assert_eq!(asker.directory(), &two);
    }

    #[test]
    fn versions_are_never_mixed() {
        let (one, two) = (Directory::new(1, records(60)), Directory::new(2, records(70)));
        let (mut asker, mut bytes) = (DirectoryFetch::default(), Vec::new());
        one.answer(&asker.query(), &mut bytes);
        let Ok((_, Datagram::DirectoryPage(page))) = Datagram::decode(&bytes) else { panic!("a page") };
        assert!(asker.on_page(&page));
        assert!(!asker.on_page(&page), "an answer counts once");
        assert_eq!(fetch(&mut asker, &two), 4, "three pages, and one query that found the new version");
        assert_eq!(asker.directory(), &two);
    }

    #[test]
    fn empty_or_excessive_pages_end_the_fetch() {
        let mut asker = DirectoryFetch::default();
        for (version, total) in [(1, 5), (1, u32::MAX), (0, 0)] {
            let op = asker.query().op;
            assert!(!asker.on_page(&DirectoryPage { op, version, total, first: 0, listed: &[] }));
            assert_eq!(asker.directory(), &Directory::default());
        }
        assert_eq!(Directory::new(1, vec![record(1, 0, 0); DIRECTORY_RECORDS_MAX + 1]).records.len(), 0);
    }
}
