//! Copying a partition to a joiner (R7, R8): the source's side.
//!
//! The primary starts every copy, because only it knows all decisions. It first waits until its
//! recovery is complete, that is, until every op that was open when its epoch began is decided:
//! such an op may have been answered already, and a joiner that became consistent without it could
//! lose it. The entries come from the primary, or from a ready handoff, which holds everything
//! decided after its `floor`.
//!
//! For recent decisions the written keys are known (`recent`), and only these are read. For older
//! ones the engine is read page by page, and entries that are new to the joiner are sent. Either
//! way only decisions from before this epoch have to be covered: the joiner logs later ones itself.

use super::copy_frames::{Begun, EntriesChunk};
use super::history::History;
use super::joiner::Former;
use super::partition::{Agreement, OrderedPartition};
use super::recent::RecentKey;
use super::waits::{CopyRecent, CopyScan, ScanPurpose};
use crate::modes::bounds::{COPY_CHUNK_BYTES, COPY_KEYS_MAX, COPY_PAGES_MAX};
use crate::modes::ordered::clients::ExportCursor;
use crate::{Host, Page, Standing, StreamPeer, stored_entries};
use alloc::vec::Vec;
use nicekv_proto::control::{MemberRole, MemberState};
use nicekv_proto::recovery::{CopyFrame, CopySection, Entry, cursor_behind, key_of_cursor, put_keyed_entry};
use nicekv_proto::{Epoch, NodeId, Now};

impl<A> OrderedPartition<A>
where
    Self: Agreement,
{
    /// Primary: whether every op that was open when its epoch began is decided and released at all
    /// members.
    pub(crate) fn is_recovered_wholly(&self) -> bool {
        let Some(lead) = self.lead.as_ref().filter(|lead| lead.is_ready()) else { return false };
        self.membership.activated
            && self.locks.oldest_undecided() > lead.recovered_through()
            && self.sequence.released() >= lead.recovery_end()
    }

    /// A joiner requests a part of the copy. If it cannot be sent now, there is no reply, and the
    /// joiner asks again.
    pub(crate) fn serve_copy(
        &mut self,
        host: &mut Host,
        peer: StreamPeer,
        joiner: NodeId,
        section: CopySection,
        since: u64,
        after: &[u8],
    ) {
        let base = self.sequence.base().filter(|base| self.sequence.released() >= *base);
        let Some(base) = base.filter(|_| self.may_serve_copy(section, since)) else {
            host.counters.dropped += 1;
            return;
        };
        match section {
            CopySection::Begin => {
                let Ok((logged, history)) = Former::read(after) else {
                    host.counters.malformed += 1;
                    return;
                };
                let mut payload = Vec::new();
                self.begun(host, joiner, base, logged, &history).append(&mut payload);
                self.send_chunk(host, peer, self.membership.epoch, section, false, &payload);
            }
            CopySection::Clients => {
                let (piece, _, more) = self.clients.export(ExportCursor::from_bytes(after), COPY_CHUNK_BYTES);
                self.send_chunk(host, peer, self.membership.epoch, section, more, &piece);
            }
            // If the joiner needs everything (`since` is 0), it gets it in key order, the order in
            // the engine.
            CopySection::Entries if since > 0 && self.contents.recent().reaches(since) => {
                self.gather_recent(host, peer, since, base);
            }
            CopySection::Entries => {
                let token = host.scan(self.id(), key_of_cursor(after), COPY_CHUNK_BYTES);
                let purpose = ScanPurpose::Copy(CopyScan { peer, since, found: Vec::new(), pages: 1 });
                self.waits.scan(token, self.membership.epoch, purpose);
            }
        }
    }

    fn may_serve_copy(&self, section: CopySection, since: u64) -> bool {
        match section {
            CopySection::Begin | CopySection::Clients => self.is_recovered_wholly(),
            CopySection::Entries if self.membership.standing == Standing::Handoff => {
                since >= self.contents.floor()
            }
            CopySection::Entries => self.is_recovered_wholly(),
        }
    }

    /// The answer to a joiner's first request: which of the decisions up to `base` it has, and
    /// which member sends the rest.
    fn begun(&self, host: &Host, joiner: NodeId, base: u64, logged: u64, theirs: &History) -> Begun {
        let joins_as_handoff = self.membership.role(joiner) == Some(MemberRole::Handoff);
        let mut history = self.sequence.history().clone();
        history.truncate(base);
        let since = match joins_as_handoff {
            true => 0,
            false => history.common(base, theirs, logged),
        };
        let entries_since = if joins_as_handoff { self.contents.held_by_originals() } else { since };
        let ready = |member: &&nicekv_proto::control::Member| {
            let is_ready = member.role == MemberRole::Handoff && member.state == MemberState::Consistent;
            is_ready && member.node != joiner
        };
        let source = (self.membership.members.iter().find(ready))
            .filter(|_| entries_since >= self.contents.held_by_originals())
            .map_or(host.config.node, |handoff| handoff.node);
        Begun { since, entries_since, covers: self.sequence.logged(), source, history }
    }

    /// The engine has read a page for this purpose.
    pub(crate) fn take_page(&mut self, host: &mut Host, now: Now, purpose: ScanPurpose, page: &Page<'_>) {
        let Page { entries, more, .. } = *page;
        match purpose {
            ScanPurpose::Copy(scan) => self.on_copy_scanned(host, scan, entries, more),
            ScanPurpose::Recent(recent) => self.on_recent_gathered(host, recent, entries, more),
            ScanPurpose::Compare(compare) => self.on_compare_scanned(host, now, compare, entries, more),
            ScanPurpose::Client(scan) => self.on_client_scanned(host, now, scan, page),
        }
    }

    /// A page was read for a joiner. Sends the entries that are newer than what the joiner holds,
    /// once there are enough for a frame.
    fn on_copy_scanned(&mut self, host: &mut Host, mut scan: CopyScan, entries: &[u8], more: bool) {
        let mut last = None;
        for (key, entry) in stored_entries(entries) {
            if Entry::decode(entry).is_ok_and(|entry| entry.index > scan.since) {
                put_keyed_entry(&mut scan.found, key, entry);
            }
            last = Some(key);
        }
        if more && scan.found.len() < COPY_CHUNK_BYTES && scan.pages < COPY_PAGES_MAX {
            let token = host.scan(self.id(), last, COPY_CHUNK_BYTES);
            scan.pages += 1;
            self.waits.scan(token, self.membership.epoch, ScanPurpose::Copy(scan));
            return;
        }
        let mut payload = Vec::new();
        EntriesChunk::append_head(self.sequence.logged(), scan.since, &cursor_behind(last), &mut payload);
        payload.extend_from_slice(&scan.found);
        self.send_chunk(host, scan.peer, self.membership.epoch, CopySection::Entries, more, &payload);
    }

    /// Looks up the keys written by the next decisions after `since`, up to the last decision
    /// before this epoch. The joiner logs later ones itself.
    fn gather_recent(&mut self, host: &mut Host, peer: StreamPeer, since: u64, base: u64) {
        let written = self.contents.recent().written(since, base);
        let keys: Vec<(u64, RecentKey)> =
            written.map(|(index, key)| (index, key.clone())).take(COPY_KEYS_MAX).collect();
        let through = match keys.last() {
            Some((last, _)) if keys.len() == COPY_KEYS_MAX => *last,
            _ => base.max(since),
        };
        let token = host.gather(self.id(), keys.iter().map(|(_, key)| &**key), COPY_CHUNK_BYTES);
        let purpose = ScanPurpose::Recent(CopyRecent { peer, since, keys, through });
        self.waits.scan(token, self.membership.epoch, purpose);
    }

    /// The entries of recently written keys were read. Sends the joiner those that are still
    /// current; an entry that a later decision has written again is sent when that decision is
    /// reached. `more`: the page was full before the last key.
    fn on_recent_gathered(&mut self, host: &mut Host, recent: CopyRecent, entries: &[u8], more: bool) {
        let Some(base) = self.sequence.base() else { return };
        let (mut found, mut through) = (Vec::new(), recent.since);
        let mut places = recent.keys.iter();
        for (key, stored) in stored_entries(entries) {
            let Some((index, _)) = places.find(|(_, noted)| **noted == *key) else { break };
            through = *index;
            let has_turn = |at| at > *index && at <= base && self.contents.recent().is_of(at, key);
            if Entry::decode(stored).is_ok_and(|entry| entry.index > recent.since && !has_turn(entry.index)) {
                put_keyed_entry(&mut found, key, stored);
            }
        }
        through = if more { through } else { recent.through };
        let mut payload = Vec::new();
        EntriesChunk::append_head(self.sequence.logged(), through, &[], &mut payload);
        payload.extend_from_slice(&found);
        let (epoch, section) = (self.membership.epoch, CopySection::Entries);
        self.send_chunk(host, recent.peer, epoch, section, through < base, &payload);
    }

    fn send_chunk(
        &self,
        host: &mut Host,
        peer: StreamPeer,
        epoch: Epoch,
        section: CopySection,
        more: bool,
        payload: &[u8],
    ) {
        host.send_frame(peer, &CopyFrame::Chunk { partition: self.id(), epoch, section, more, payload });
    }
}
