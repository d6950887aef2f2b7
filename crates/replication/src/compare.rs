//! Replicas that differ are found and repaired: a message that somebody forged, or a bug of ours, must not make them differ for ever.
//!
//! ```text
//!  member, at its scrub                     other members
//!    │──ScrubPage(range, logged, digests)────▶│ only if it has logged and released as much
//!    │                                        │ scans the range in its own engine, compares
//!    │◀─RepairRequest(k)──────────────────────│ of every key that differs: asks all, itself included
//!    │──RepairReply(k, entry)────────────────▶│ the state that most have stands; of equally many, the primary's
//! ```
//!
//! Every consistent original lists what it scrubs to all others, so each is compared with each, the primary too, in every pass.
//!
//! Why decisions under way raise no alarm: the receiver's engine is not behind the sender's, so an entry of a decision that the sender
//! had not logged is newer, and no difference; a key that is locked, or was written since the page was read, is left out. What remains is
//! suspicion, and costs nothing but a vote. And the votes are about one state of the key: no decision of it can be made while this
//! member does not hold its prepare (R1), and then the key is locked here, or has been written; both end the vote.
//!
//! A vote is no proof against members that lie. It is what can be done where most are right.

use crate::config::{COMPARES_MAX, COPY_PAGES_MAX};
use crate::copy::{PendingScan, ScanPurpose};
use crate::partition::Partition;
use alloc::boxed::Box;
use alloc::vec::Vec;
use nicekv_node::{Host, Page, Plant, Standing};
use nicekv_wire::bytes::Reader;
use nicekv_wire::control::MemberState;
use nicekv_wire::recovery::{Entry, read_keyed_entry};
use nicekv_wire::scrub::{Listed, ListedEntry, ScrubPage};
use nicekv_wire::{NodeId, Now};

/// The receiver reads so much more than the sender had in the range.
const SLACK_BYTES: usize = 4 << 10;

/// A page of another member that is to be compared with what is here.
#[derive(Clone)]
pub(crate) struct Compare {
    logged: u64,
    is_last: bool,
    bytes: usize,
    listed: Vec<(Box<[u8]>, Option<ListedEntry>)>,
    /// Pages of the engine that may still be read for it.
    pages_left: usize,
}

/// What a page is to tell of an entry.
fn listed_entry(stored: &[u8]) -> ListedEntry {
    let entry = Entry::decode(stored).expect("the engine returns what was stored");
    let digest = nicekv_placement::key_digest(stored).0;
    let digest = u64::from_be_bytes(digest[..8].try_into().expect("16 bytes"));
    ListedEntry { index: entry.index, digest, is_tombstone: entry.value.is_none() }
}

/// Puts what a scrub sees into datagrams for the other members.
struct Listing {
    after: Vec<u8>,
    last: Vec<u8>,
    listed: Vec<u8>,
    bytes: usize,
}

impl Listing {
    /// Of the keys after this one.
    fn new(after: &[u8]) -> Self {
        Self { after: after.to_vec(), last: Vec::new(), listed: Vec::new(), bytes: 0 }
    }

    /// `None`: it is being changed, or cannot be read.
    fn push(&mut self, partition: &Partition, host: &mut Host, key: &[u8], stored: Option<&[u8]>) {
        let entry = stored.map(listed_entry);
        let listed = Listed { key, entry };
        if self.listed.len() + listed.bytes() > ScrubPage::LISTED_BYTES_MAX {
            self.send(partition, host, false);
        }
        listed.append(&mut self.listed);
        self.bytes += key.len() + stored.map_or(0, <[u8]>::len);
        self.last.clear();
        self.last.extend_from_slice(key);
    }

    /// Sends what was put in; `is_last`: and there is no more in the partition.
    fn send(&mut self, partition: &Partition, host: &mut Host, is_last: bool) {
        if self.listed.is_empty() && !is_last {
            return;
        }
        let page = ScrubPage {
            sender: host.config.node,
            partition: partition.id(),
            epoch: partition.membership.epoch,
            logged: partition.logged,
            released: partition.released,
            after: &self.after,
            is_last,
            bytes: self.bytes as u32,
            listed: &self.listed,
        };
        for (_, address) in partition.judges(host.config.node) {
            host.outbox.send(address, |out| page.encode(out));
        }
        core::mem::swap(&mut self.after, &mut self.last);
        self.listed.clear();
        self.bytes = 0;
    }
}

impl Partition {
    /// Tells the other members what the scrub has found after this key.
    pub(crate) fn list(&self, host: &mut Host, after: &[u8], page: &Page<'_>) {
        let mut listing = Listing::new(after);
        let mut corrupt = page.corrupt.iter().peekable();
        let mut reader = Reader::new(page.entries);
        while !reader.is_empty() {
            let (key, stored) = read_keyed_entry(&mut reader).expect("the engine returns what was stored");
            while let Some(damaged) = corrupt.next_if(|damaged| ***damaged < *key) {
                listing.push(self, host, damaged, None);
            }
            let is_changing = self.keys.contains_key(key) || host.storage.is_written_since_scan(key);
            listing.push(self, host, key, (!is_changing).then_some(stored));
        }
        corrupt.for_each(|damaged| listing.push(self, host, damaged, None));
        listing.send(self, host, !page.more);
    }

    /// The other members that hold everything: those that compare, and vote.
    pub(crate) fn judges(&self, me: NodeId) -> impl Iterator<Item = (NodeId, core::net::SocketAddrV4)> {
        let holds_all = |state: MemberState, handoff: bool| state == MemberState::Consistent && !handoff;
        (self.membership.members.iter())
            .filter(move |member| member.node != me && holds_all(member.state, member.handoff))
            .map(|member| (member.node, member.address))
    }

    /// Another member tells what it has of a range of keys.
    pub(crate) fn on_scrub_page(&mut self, host: &mut Host, now: Now, page: &ScrubPage<'_>) {
        if host.has(Plant::ScrubBlind) {
            return;
        }
        self.learn_released(host, now, page.released);
        let is_behind = self.logged < page.logged || self.released < page.released;
        if self.membership.standing != Standing::Consistent
            || is_behind
            || self.waits.scans.len() >= COMPARES_MAX
        {
            host.counters.dropped += 1;
            return;
        }
        let compare = Compare {
            logged: page.logged,
            is_last: page.is_last,
            bytes: page.bytes as usize + SLACK_BYTES,
            listed: page.entries().map(|listed| (listed.key.into(), listed.entry)).collect(),
            pages_left: COPY_PAGES_MAX,
        };
        self.scan_for_compare(host, compare, page.after);
    }

    fn scan_for_compare(&mut self, host: &mut Host, compare: Compare, after: &[u8]) {
        let epoch = self.membership.epoch;
        let token = host.scan(self.id(), after, compare.bytes);
        self.waits.scans.push_back(PendingScan { token, epoch, purpose: ScanPurpose::Compare(compare) });
    }

    /// A page of the engine has been read, to be compared with another member's.
    pub(crate) fn on_compare_scanned(
        &mut self,
        host: &mut Host,
        now: Now,
        mut compare: Compare,
        entries: &[u8],
        more: bool,
    ) {
        let mut mine = Vec::new();
        let mut reader = Reader::new(entries);
        while !reader.is_empty() {
            mine.push(read_keyed_entry(&mut reader).expect("the engine returns what was stored"));
        }
        let last = mine.last().map_or(&[][..], |(key, _)| *key);
        // Up to here both have told everything.
        let end = compare.listed.last().map(|(key, _)| key.clone());
        let reaches_end = !more || end.as_ref().is_some_and(|end| last >= &**end && !compare.is_last);
        let rest = match reaches_end {
            true => Vec::new(),
            false => {
                let told = compare.listed.iter().take_while(|(key, _)| &**key <= last).count();
                compare.listed.split_off(told)
            }
        };
        if !compare.is_last
            && let Some(end) = &end
        {
            mine.retain(|(key, _)| *key <= &**end);
        }
        for key in compare.suspects(&mine) {
            if !self.keys.contains_key(&key) {
                self.begin_vote(host, now, &key);
            }
        }
        if !reaches_end && compare.pages_left > 0 {
            let (listed, pages_left) = (rest, compare.pages_left - 1);
            self.scan_for_compare(host, Compare { listed, pages_left, ..compare }, last);
        }
    }
}

impl Compare {
    /// The keys of which the sender and this member have different entries, though this one is not behind.
    fn suspects(&self, mine: &[(&[u8], &[u8])]) -> Vec<Box<[u8]>> {
        let mut suspects = Vec::new();
        let mut mine = mine.iter().peekable();
        for (key, theirs) in &self.listed {
            while let Some((other, stored)) = mine.next_if(|(other, _)| *other < &**key) {
                if self.differs(None, Some(stored)) {
                    suspects.push((*other).into());
                }
            }
            let stored = mine.next_if(|(other, _)| *other == &**key).map(|(_, stored)| *stored);
            if let Some(theirs) = theirs
                && self.differs(Some(*theirs), stored)
            {
                suspects.push(key.clone());
            }
        }
        suspects.extend(
            mine.filter(|(_, stored)| self.differs(None, Some(stored))).map(|(key, _)| (*key).into()),
        );
        suspects
    }

    fn differs(&self, theirs: Option<ListedEntry>, mine: Option<&[u8]>) -> bool {
        let mine = mine.map(listed_entry);
        match (theirs, mine) {
            // It was written since.
            (_, Some(mine)) if mine.index > self.logged => false,
            (Some(theirs), Some(mine)) => theirs != mine,
            // A tombstone goes when every original member holds the deletion.
            (Some(alone), None) | (None, Some(alone)) => !alone.is_tombstone,
            (None, None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_wire::{ClientId, OpId};

    fn stored(index: u64, value: Option<&[u8]>) -> Vec<u8> {
        let version = OpId { client: ClientId(1), sequence: index };
        let mut bytes = Vec::new();
        Entry { index, version, expiry_ms: 0, value }.append(&mut bytes);
        bytes
    }

    fn listed(key: &str, index: u64, value: Option<&[u8]>) -> (Box<[u8]>, Option<ListedEntry>) {
        (key.as_bytes().into(), Some(listed_entry(&stored(index, value))))
    }

    #[track_caller]
    fn check(
        theirs: &[(Box<[u8]>, Option<ListedEntry>)],
        mine: &[(&str, u64, Option<&[u8]>)],
        suspects: &[&str],
    ) {
        let compare = Compare { logged: 10, is_last: true, bytes: 0, listed: theirs.to_vec(), pages_left: 1 };
        let mine: Vec<_> =
            mine.iter().map(|(key, index, value)| (key.as_bytes(), stored(*index, *value))).collect();
        let mine: Vec<_> = mine.iter().map(|(key, stored)| (*key, &stored[..])).collect();
        let found = compare.suspects(&mine);
        let found: Vec<_> = found.iter().map(|key| std::str::from_utf8(key).unwrap()).collect();
        assert_eq!(found, suspects);
    }

    #[test]
    fn a_difference_that_no_decision_under_way_explains_is_a_suspicion() {
        let (one, other) = (Some(b"1".as_slice()), Some(b"2".as_slice()));
        let theirs = [listed("b", 4, one), listed("d", 7, one), ("f".as_bytes().into(), None)];
        check(&theirs, &[("b", 4, one), ("d", 7, one), ("f", 5, one)], &[]);
        check(&theirs, &[("b", 4, other), ("d", 7, one)], &["b"]);
        check(&theirs, &[("b", 4, one), ("d", 6, one)], &["d"]);
        check(&theirs, &[("b", 4, one)], &["d"]);
        check(
            &theirs,
            &[("a", 3, one), ("b", 4, one), ("c", 9, one), ("d", 7, one), ("g", 1, one)],
            &["a", "c", "g"],
        );
        check(&[], &[("a", 3, one)], &["a"]);
    }

    #[test]
    fn what_was_written_since_and_tombstones_that_went_are_none() {
        let one = Some(b"1".as_slice());
        let theirs = [listed("b", 4, one), listed("d", 7, None)];
        check(&theirs, &[("a", 11, one), ("b", 12, one), ("c", 13, None)], &[]);
        check(&theirs, &[("b", 12, None), ("c", 3, None), ("d", 7, None)], &[]);
        check(&theirs, &[("b", 4, one), ("d", 7, one)], &["d"]);
        check(&theirs, &[("b", 10, one), ("d", 5, one)], &["b", "d"]);
    }
}
