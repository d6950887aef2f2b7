//! Coordination without a key-aware switch (TurboKV §1, §8): nodes or clients hold the partition
//! table and route requests themselves.
//!
//! ```text
//!   node ──DirectoryQuery──▶ metadata service ──DirectoryPage──▶ node          a client asks a node
//!
//!   client ──request──▶ any node ──Directed──▶ head, or tail ─┐                server-driven
//!   client ───────────Directed───────────────▶ head, or tail ─┼─▶ the answer leaves the tail
//!                     ◀──Misdirected── not of my epoch ───────┘                client-driven
//! ```
//!
//! A partition table is advice: nodes check requests against their own state, so an outdated table
//! only costs time (C5). Its records are numbered; all pages of one version belong to the same
//! list.

use crate::codec::Zeros;
use crate::codec::{self, Codec, Rest, RestOf};
use crate::declare::{codec_of, layout, message, part};
use crate::limits::{DATAGRAM_BYTES_MAX, KEY_BYTES_MAX, PAIR_BYTES_MAX};
use crate::scan::{AMPLIFICATION_MAX, Scan};
use crate::{Epoch, Header, KeyspaceId, MatchRange, OpId, PartitionId, Update};
use alloc::vec::Vec;
use core::mem::size_of;
use core::net::SocketAddrV4;

/// Most records of a directory.
pub const DIRECTORY_RECORDS_MAX: usize = 65_536;

part! {
    /// Destination of requests for the keys of a record.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DirectoryRecord {
        /// Keyspace of the record.
        keyspace: KeyspaceId => 2 zeros,
        /// Its partition.
        partition: PartitionId,
        /// The partition's epoch.
        epoch: Epoch,
        /// Destination of updates.
        head: SocketAddrV4,
        /// Destination of gets and scans.
        tail: SocketAddrV4,
        /// Match values of the record.
        range: MatchRange,
    }
}

message! {
    /// Asks for records, from a given one on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DirectoryQuery: DirectoryQuery {
        header {
            /// Names the query and its answer.
            op: OpId,
        }
        body {
            /// Version that the sender has; if it is current, the answer lists no records.
            known: u64,
            /// Number of the first wanted record.
            first: u32,
            /// Padding, so that the answer may be longer.
            padding: usize as Zeros,
        }
    }
}

message! {
    /// The answer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DirectoryPage<'a>: DirectoryPage {
        header {
            /// Name of the query.
            op: OpId,
        }
        body {
            /// Version, raised with every change; 0: this node has no table.
            version: u64,
            /// Number of records in this version.
            total: u32,
            /// Number of the first listed record.
            first: u32,
            /// [`DirectoryRecord`]s, ordered by keyspace and range.
            listed: &'a [u8] as RestOf<DirectoryRecord>,
        }
    }
}

message! {
    /// A request, sent to the node that a partition table names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Directed<'a>: Directed {
        header {
            /// Keyspace of the request.
            keyspace: KeyspaceId,
            /// Op of the request.
            op: OpId,
        }
        body {
            /// The record's partition.
            partition: PartitionId,
            /// The record's epoch.
            epoch: Epoch,
            /// The client's datagram. If it contains a reply address, the node forwards it.
            request: &'a [u8] as Rest<REQUEST_BYTES_MAX>,
        }
    }
}

message! {
    /// The answer to a [`Directed`] with another epoch than the node's: the sender's table is
    /// outdated, or the node is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Misdirected: Misdirected {
        header {
            /// Keyspace of the request.
            keyspace: KeyspaceId,
            /// Op of the request.
            op: OpId,
        }
        body {
            /// The record's partition.
            partition: PartitionId,
            /// Epoch of the node for that partition; 0: it is not a member.
            epoch: Epoch,
        }
    }
}

/// Longest request that can be directed.
const REQUEST_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - Header::BYTES - 8;
/// Any request can be directed.
const _: () = {
    assert!(Directed::FIXED_BYTES + REQUEST_BYTES_MAX == DATAGRAM_BYTES_MAX);
    assert!(Update::FIXED_BYTES + PAIR_BYTES_MAX <= REQUEST_BYTES_MAX);
    assert!(Scan::FIXED_BYTES + KEY_BYTES_MAX <= REQUEST_BYTES_MAX);
    // Padding fills a request up to this length.
    assert!(DATAGRAM_BYTES_MAX.div_ceil(AMPLIFICATION_MAX) <= REQUEST_BYTES_MAX);
};

/// Length of a record in a page, in bytes.
const RECORD_BYTES: usize = size_of::<<DirectoryRecord as Codec>::Layout>();
/// Most records of a page.
const PAGE_RECORDS_MAX: usize = 24;
/// Length of a query for a full page, in bytes.
const QUERY_PADDING: usize = (DirectoryPage::FIXED_BYTES + PAGE_RECORDS_MAX * RECORD_BYTES)
    .div_ceil(AMPLIFICATION_MAX)
    .saturating_sub(DirectoryQuery::FIXED_BYTES);

const _: () = assert!(DirectoryPage::FIXED_BYTES + PAGE_RECORDS_MAX * RECORD_BYTES <= 1_472);

impl DirectoryQuery {
    /// A query that a full page may answer.
    pub fn padded(op: OpId, known: u64, first: u32) -> Self {
        Self { op, known, first, padding: QUERY_PADDING }
    }

    /// Most records of an answer, by the limit on amplification.
    pub fn records_max(&self) -> usize {
        let bytes = AMPLIFICATION_MAX * (Self::FIXED_BYTES + self.padding);
        (bytes.saturating_sub(DirectoryPage::FIXED_BYTES) / RECORD_BYTES).min(PAGE_RECORDS_MAX)
    }
}

impl DirectoryRecord {
    /// Appends it to [`DirectoryPage::listed`].
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<Self>(self, out);
    }
}

impl<'a> DirectoryPage<'a> {
    /// Iterates over the listed records.
    pub fn records(&self) -> impl Iterator<Item = DirectoryRecord> + use<'a> {
        codec::each::<DirectoryRecord>(self.listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Datagram;
    use crate::samples::check_part;

    #[test]
    fn record_codec_is_strict() {
        check_part::<DirectoryRecord>();
    }

    #[test]
    fn only_padded_queries_get_full_pages() {
        let query = DirectoryQuery::padded(OpId::NONE, 7, 0);
        assert_eq!(query.records_max(), PAGE_RECORDS_MAX);
        assert!(DirectoryQuery { padding: 0, ..query }.records_max() < PAGE_RECORDS_MAX);
        let (mut question, mut answer) = (Vec::new(), Vec::new());
        query.encode(&mut question);
        assert_eq!(Datagram::decode(&question).unwrap().1, Datagram::DirectoryQuery(query));
        let listed = vec![0; RECORD_BYTES * query.records_max()];
        DirectoryPage { op: OpId::NONE, version: 1, total: 1, first: 0, listed: &listed }.encode(&mut answer);
        assert!(answer.len() <= AMPLIFICATION_MAX * question.len());
    }
}
