//! Finds and repairs members whose entries differ, so that a forged message or a bug cannot make
//! them differ for ever.
//!
//! ```text
//!  member, at its scrub                     other members
//!    │──ScrubPage(range, logged, digests)────▶│ only if it has logged and released as much
//!    │                                        │ scans the range in its own engine, compares
//!    │◀─RepairRequest(k)──────────────────────│ for every key that differs: asks all, itself included
//!    │──RepairReply(k, entry)────────────────▶│ the majority's entry wins; in a tie, the primary's
//! ```
//!
//! Every consistent original sends all others a list of what it scrubs. So in every pass each
//! member is compared with each other one, the primary included.
//!
//! Why decisions under way cause no false alarm: the receiver's engine is not behind the sender's,
//! so an entry that the sender had not logged is newer, and does not count as a difference. A key
//! that is locked, or was written since the page was read, is left out. If a false suspicion
//! remains, it costs only a vote. All votes are about one state of the key: a decision on it needs
//! this member's prepare (R1), and then the key is locked here, or has been written; both end the
//! vote.
//!
//! A vote does not protect against members that lie. It works while a majority has the correct
//! entry.

use super::compare::{Compare, listed_entry};
use super::partition::{Agreement, OrderedPartition};
use super::sequence::Sequence;
use super::waits::ScanPurpose;
use crate::modes::bounds::{COMPARES_MAX, COPY_PAGES_MAX};
use crate::{Host, Membership, Page, Standing, stored_entries};
use alloc::vec::Vec;
use nicekv_proto::Now;
use nicekv_proto::scrub::{Cut, Listed, ScrubPage};

/// The receiver reads up to this many bytes more than the sender had in the range.
const SLACK_BYTES: usize = 4 << 10;

/// Packs the entries that a scrub reads into datagrams for the other members.
struct Listing<'a> {
    membership: &'a Membership,
    logged: u64,
    released: u64,
    after: Option<Vec<u8>>,
    /// A page that begins where a cut has ended the one before: length of the prefix of the first
    /// listed key that takes the place of `after`.
    begins_with: u16,
    last: Option<Vec<u8>>,
    listed: Vec<u8>,
    bytes: usize,
}

impl<'a> Listing<'a> {
    /// Starts a list of the keys after `after`.
    fn new(membership: &'a Membership, sequence: &Sequence, after: Option<&[u8]>) -> Self {
        let (logged, released, after) = (sequence.logged(), sequence.released(), after.map(<[u8]>::to_vec));
        let (last, listed) = (None, Vec::new());
        Self { membership, logged, released, after, begins_with: 0, last, listed, bytes: 0 }
    }

    /// Adds a key to the list. `None`: the entry is being changed, or cannot be read.
    fn push(&mut self, host: &mut Host, key: &[u8], stored: Option<&[u8]>) {
        let entry = stored.map(listed_entry);
        let listed = Listed { key, entry };
        if !self.has_room_for(&listed) {
            self.send(host, false);
        }
        if !self.has_room_for(&listed) {
            self.cut_before(host, key);
        }
        listed.append(&mut self.listed);
        self.bytes += key.len() + stored.map_or(0, <[u8]>::len);
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
    }

    fn has_room_for(&self, listed: &Listed<'_>) -> bool {
        let after_bytes = self.after.as_ref().map_or(0, Vec::len).max(ScrubPage::AFTER_BYTES_MIN);
        after_bytes + self.listed.len() + listed.bytes() <= ScrubPage::VARYING_BYTES_MAX
    }

    /// Two long keys do not fit into one page. So the range between them gets a page of its own,
    /// and the next page begins where that ends.
    fn cut_before(&mut self, host: &mut Host, key: &[u8]) {
        let cut = Cut::between(self.after.as_deref().unwrap_or_default(), key);
        self.tell(host, false, Some(cut));
        self.after = None;
        self.begins_with = cut.bytes();
    }

    /// Sends the list. `is_last`: the partition has no later keys.
    fn send(&mut self, host: &mut Host, is_last: bool) {
        if self.listed.is_empty() && !is_last {
            return;
        }
        self.tell(host, is_last, None);
        core::mem::swap(&mut self.after, &mut self.last);
        self.listed.clear();
        (self.bytes, self.begins_with) = (0, 0);
    }

    fn tell(&self, host: &mut Host, is_last: bool, ends_before: Option<Cut>) {
        let page = ScrubPage {
            sender: host.config.node,
            partition: self.membership.partition,
            epoch: self.membership.epoch,
            logged: self.logged,
            released: self.released,
            after: self.after.as_deref(),
            is_last,
            bytes: self.bytes as u32,
            begins_with: self.begins_with,
            ends_before,
            listed: &self.listed,
        };
        for (_, address) in self.membership.judges(host.config.node) {
            host.outbox.send(address, |out| page.encode(out));
        }
    }
}

impl<A> OrderedPartition<A>
where
    Self: Agreement,
{
    /// Sends the other members a list of the entries that the scrub has read after this key.
    pub(crate) fn list(&self, host: &mut Host, after: Option<&[u8]>, page: &Page<'_>) {
        let mut listing = Listing::new(&self.membership, &self.sequence, after);
        let mut corrupt = page.corrupt.iter().peekable();
        for (key, stored) in stored_entries(page.entries) {
            while let Some(damaged) = corrupt.next_if(|damaged| ***damaged < *key) {
                listing.push(host, damaged, None);
            }
            let is_changing = self.locks.is_locked(key) || host.storage.is_written_since_scan(key);
            listing.push(host, key, (!is_changing).then_some(stored));
        }
        corrupt.for_each(|damaged| listing.push(host, damaged, None));
        listing.send(host, !page.more);
    }

    /// Another member has sent a list of its entries in a key range.
    pub(crate) fn on_scrub_page(&mut self, host: &mut Host, page: &ScrubPage<'_>) {
        let is_behind = self.is_behind(page.logged, page.released);
        if self.membership.standing != Standing::Consistent || is_behind || self.waits.scans() >= COMPARES_MAX
        {
            host.counters.dropped += 1;
            return;
        }
        let listed = page.entries().map(|listed| (listed.key.into(), listed.entry));
        // The range ends before this key, which belongs to the next page.
        let end = page.ends_before().map(|end| (end.into(), None));
        let compare = Compare {
            logged: page.logged,
            is_last: page.is_last,
            bytes: page.bytes as usize + SLACK_BYTES,
            listed: listed.chain(end).collect(),
            pages_left: COPY_PAGES_MAX,
        };
        self.scan_for_compare(host, compare, page.begins_after().as_deref());
    }

    fn scan_for_compare(&mut self, host: &mut Host, compare: Compare, after: Option<&[u8]>) {
        let token = host.scan(self.id(), after, compare.bytes);
        self.waits.scan(token, self.membership.epoch, ScanPurpose::Compare(compare));
    }

    /// The engine has read a page, to be compared with another member's list.
    pub(crate) fn on_compare_scanned(
        &mut self,
        host: &mut Host,
        now: Now,
        mut compare: Compare,
        entries: &[u8],
        more: bool,
    ) {
        let mut mine: Vec<(&[u8], &[u8])> = stored_entries(entries).collect();
        let last = mine.last().map(|(key, _)| *key);
        // Both lists are complete up to this key.
        let end = compare.listed.last().map(|(key, _)| key.clone());
        let reaches_end = !more || end.as_ref().is_some_and(|end| last >= Some(&**end) && !compare.is_last);
        let rest = match reaches_end {
            true => Vec::new(),
            false => {
                let told = compare.listed.iter().take_while(|(key, _)| Some(&**key) <= last).count();
                compare.listed.split_off(told)
            }
        };
        if !compare.is_last
            && let Some(end) = &end
        {
            mine.retain(|(key, _)| *key <= &**end);
        }
        for key in compare.suspects(&mine) {
            if !self.locks.is_locked(&key) {
                self.begin_vote(host, now, &key);
            }
        }
        if !reaches_end && compare.pages_left > 0 {
            let (listed, pages_left) = (rest, compare.pages_left - 1);
            self.scan_for_compare(host, Compare { listed, pages_left, ..compare }, last);
        }
    }
}
