//! Coordination without a switch that knows keys (TurboKV §1, §8: server-driven and client-driven): the table of records is held by nodes, or by clients.
//!
//! ```text
//!   node ──DirectoryQuery──▶ metadata service ──DirectoryPage──▶ node          a client asks a node
//!
//!   client ──request──▶ any node ──Directed──▶ head, or tail ─┐                server-driven
//!   client ───────────Directed───────────────▶ head, or tail ─┼─▶ the answer leaves the tail
//!                     ◀──Misdirected── not of my epoch ───────┘                client-driven
//! ```
//!
//! A directory is advice: nodes answer by what they know of themselves, so one that is out of date costs time and nothing else (C5). Its records are numbered; all
//! pages of one version are of one list.

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
    /// Who is asked for the keys of a record.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DirectoryRecord {
        /// Of which keyspace.
        keyspace: KeyspaceId => 2 zeros,
        /// Its partition.
        partition: PartitionId,
        /// The partition's epoch.
        epoch: Epoch,
        /// Where puts go.
        head: SocketAddrV4,
        /// Where gets and scans go.
        tail: SocketAddrV4,
        /// Of these match values.
        range: MatchRange,
    }
}

message! {
    /// Asks for records from one of them on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DirectoryQuery: DirectoryQuery {
        header {
            /// Names the question, so that its answer is recognised.
            op: OpId,
        }
        body {
            /// The version that the asker has; of that it is told nothing but that there is no other.
            known: u64,
            /// The number of the first record that is wanted.
            first: u32,
            /// Bytes that are there so that the answer may be longer.
            padding: usize as Zeros,
        }
    }
}

message! {
    /// The answer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DirectoryPage<'a>: DirectoryPage {
        header {
            /// The question.
            op: OpId,
        }
        body {
            /// Rises with every change; 0: there is no directory here.
            version: u64,
            /// Records of that version.
            total: u32,
            /// The number of the first that is listed.
            first: u32,
            /// [`DirectoryRecord`]s, ordered by keyspace and range.
            listed: &'a [u8] as RestOf<DirectoryRecord>,
        }
    }
}

message! {
    /// A request to whom a directory names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Directed<'a>: Directed {
        header {
            /// Of the request.
            keyspace: KeyspaceId,
            /// Of the request.
            op: OpId,
        }
        body {
            /// The record's partition.
            partition: PartitionId,
            /// The record's epoch.
            epoch: Epoch,
            /// The client's datagram. If it says where the answer goes, a node passes it on.
            request: &'a [u8] as Rest<REQUEST_BYTES_MAX>,
        }
    }
}

message! {
    /// The answer to a [`Directed`] of another epoch than that of the node: the directory is out of date, or the node is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Misdirected: Misdirected {
        header {
            /// Of the request.
            keyspace: KeyspaceId,
            /// Of the request.
            op: OpId,
        }
        body {
            /// The record's partition.
            partition: PartitionId,
            /// The node's epoch of that partition; 0: it is no member.
            epoch: Epoch,
        }
    }
}

/// Most bytes of a request that is directed.
const REQUEST_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - Header::BYTES - 8;
/// Every request can be.
const _: () = {
    assert!(Directed::FIXED_BYTES + REQUEST_BYTES_MAX == DATAGRAM_BYTES_MAX);
    assert!(Update::FIXED_BYTES + PAIR_BYTES_MAX <= REQUEST_BYTES_MAX);
    assert!(Scan::FIXED_BYTES + KEY_BYTES_MAX <= REQUEST_BYTES_MAX);
    // Padding fills up to that and no further.
    assert!(DATAGRAM_BYTES_MAX.div_ceil(AMPLIFICATION_MAX) <= REQUEST_BYTES_MAX);
};

/// Bytes of a record in a page.
const RECORD_BYTES: usize = size_of::<<DirectoryRecord as Codec>::Layout>();
/// Most records of a page.
const PAGE_RECORDS_MAX: usize = 24;
/// Bytes of a query for a full page.
const QUERY_PADDING: usize = (DirectoryPage::FIXED_BYTES + PAGE_RECORDS_MAX * RECORD_BYTES)
    .div_ceil(AMPLIFICATION_MAX)
    .saturating_sub(DirectoryQuery::FIXED_BYTES);

const _: () = assert!(DirectoryPage::FIXED_BYTES + PAGE_RECORDS_MAX * RECORD_BYTES <= 1_472);

impl DirectoryQuery {
    /// One that a full page may answer.
    pub fn padded(op: OpId, known: u64, first: u32) -> Self {
        Self { op, known, first, padding: QUERY_PADDING }
    }

    /// Most records of an answer, which has no more than so many times the bytes of the question.
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
    /// What is listed.
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
    fn every_bit_of_a_record_counts() {
        check_part::<DirectoryRecord>();
    }

    #[test]
    fn a_padded_question_is_worth_a_full_page_and_a_bare_one_is_not() {
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
