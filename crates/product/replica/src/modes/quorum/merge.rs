//! The merge of new storage: it takes over what R − k + 1 counted members hold before it is counted
//! itself (R14). It reads one member after the other, over the copying stream. A successor
//! (`succession`) merges what its predecessor holds.
//!
//! ```text
//!   newcomer ──Request(after)──▶ member      engine scan
//!   newcomer ◀──Chunk────────── member       newer versions are logged and synced; then the next part, then the next member
//! ```
//!
//! Storing a version twice changes nothing, and the newest version wins, so parts may be requested
//! again and arrive twice. A part is requested only when all parts before it are synced here. So
//! whichever answer arrives, nothing before it is missing.

use super::QuorumPartition;
use super::parts::{End, PartStage, PendingScan, Source};
use super::version::{Version, Waiter, read_floor};
use crate::modes::bounds::COPY_CHUNK_BYTES;
use crate::{CopyChunk, Host, Page, StreamPeer};
use alloc::vec::Vec;
use nicekv_proto::bytes::Reader;
use nicekv_proto::control::{Member, MemberRole, MemberState};
use nicekv_proto::recovery::{CopyFrame, CopySection, Entry, cursor_behind, key_of_cursor, read_keyed_entry};
use nicekv_proto::{DecodeError, Now};

/// After this many requests for a part, another member is asked.
const ASKS_MAX: u32 = 3;

impl QuorumPartition {
    /// Newcomer: requests the next part, unless an answer is still awaited.
    pub(super) fn resume_merge(&mut self, node: &mut Host, now: Now) {
        let merge = self.merge.get_or_insert_default();
        let Some(quorum) = self.quorum else { return };
        let is_enough = match self.newcomer {
            Some(Some(predecessor)) => merge.merged.contains(&predecessor),
            _ => merge.merged.len() >= quorum.read_set(),
        };
        if is_enough {
            return match self.newcomer {
                None => self.count(node),
                Some(_) => self.finish_merge(node),
            };
        }
        if let Some(source) = &mut merge.source
            && source.epoch != self.membership.epoch
        {
            // Parts that this newcomer has read in an earlier epoch still count, so it continues.
            let address = self.membership.address(source.member);
            (source.epoch, source.address) = (self.membership.epoch, address.unwrap_or(source.address));
            match &mut source.stage {
                _ if address.is_none() => merge.source = None,
                PartStage::Asked { asks, at_ns } => (*asks, *at_ns) = (1, 0),
                PartStage::Taking { .. } => {}
            }
        }
        let timeout_ns = node.config.timing.copy_retry.as_nanos() as u64;
        match &mut merge.source {
            Some(Source { stage: PartStage::Taking { .. }, .. }) => return,
            Some(Source { stage: PartStage::Asked { at_ns, .. }, .. })
                if now.boot_ns < *at_ns + timeout_ns =>
            {
                return;
            }
            Some(Source { stage: PartStage::Asked { asks, at_ns }, .. }) if *asks < ASKS_MAX => {
                (*asks, *at_ns) = (*asks + 1, now.boot_ns);
            }
            source => *source = None,
        }
        if merge.source.is_none() {
            self.choose_source(node, now);
        }
        self.ask(node);
    }

    /// Newcomer: whether everything that it has to merge is synced here.
    pub(super) fn has_merged(&self) -> bool {
        self.newcomer.is_some() && self.merge.as_ref().is_some_and(|merge| merge.end == End::Durable)
    }

    /// A new epoch begins: members that have left no longer count as merged, because another node
    /// may have taken their place.
    pub(super) fn keep_merged(&mut self) {
        let Self { merge, membership, .. } = self;
        if let Some(merge) = merge {
            merge.merged.retain(|node| membership.position(*node).is_some());
        }
    }

    /// A version of the current part could not be stored: the part is requested again.
    pub(super) fn restart_part(&mut self, now: Now) {
        let source = self.merge.as_mut().and_then(|merge| merge.source.as_mut());
        if let Some(stage) = source.map(|source| &mut source.stage)
            && matches!(stage, PartStage::Taking { .. })
        {
            *stage = PartStage::Asked { asks: 1, at_ns: now.boot_ns };
        }
    }

    fn choose_source(&mut self, node: &Host, now: Now) {
        let newcomer = self.newcomer;
        let Some(merge) = &mut self.merge else { return };
        let may_serve = |member: &Member| match newcomer {
            Some(Some(predecessor)) => member.node == predecessor,
            // A successor answers nobody.
            _ => member.state == MemberState::Consistent || member.role != MemberRole::Newcomer,
        };
        let candidates = self.membership.members.iter().enumerate().filter(|(_, member)| {
            member.node != node.config.node && !merge.merged.contains(&member.node) && may_serve(member)
        });
        let candidates: Vec<_> = candidates.collect();
        let chosen = candidates.iter().find(|(place, _)| *place >= merge.next).or(candidates.first());
        let Some((place, member)) = chosen else { return };
        merge.next = place + 1;
        merge.source = Some(Source {
            member: member.node,
            address: member.address,
            epoch: self.membership.epoch,
            after: None,
            stage: PartStage::Asked { asks: 1, at_ns: now.boot_ns },
        });
    }

    fn ask(&self, node: &mut Host) {
        let source = self.merge.as_ref().and_then(|merge| merge.source.as_ref());
        let Some(Source { address, after, .. }) = source else { return };
        let request = CopyFrame::Request {
            joiner: node.config.node,
            partition: self.id(),
            epoch: self.membership.epoch,
            section: CopySection::Entries,
            since: 0,
            after: &cursor_behind(after.as_deref()),
        };
        node.send_frame(StreamPeer::Dialed(*address), &request);
    }

    /// Counted member: a newcomer requests a part. If it cannot be sent, there is no reply, and the
    /// newcomer asks again, or asks another member.
    ///
    /// Nothing is sent before the epoch is activated, because a replaced process might still be
    /// answering queries (R12).
    pub(super) fn serve_merge(&mut self, node: &mut Host, peer: StreamPeer, after: &[u8]) {
        if !self.answers() || !self.membership.activated {
            node.counters.dropped += 1;
            return;
        }
        let token = node.scan(self.id(), key_of_cursor(after), COPY_CHUNK_BYTES);
        self.scans.push_back(PendingScan { token, epoch: self.membership.epoch, peer });
    }

    pub(super) fn send_page(&self, node: &mut Host, scan: &PendingScan, page: Page<'_>) {
        let (partition, epoch, section) = (self.id(), scan.epoch, CopySection::Entries);
        // The floor is of the same moment as the page, so a deletion that is forgotten meanwhile is
        // in one of the two.
        let payload = [&self.floor.to_be_bytes(), page.entries].concat();
        let chunk = CopyFrame::Chunk { partition, epoch, section, more: page.more, payload: &payload };
        node.send_frame(scan.peer, &chunk);
    }

    /// Newcomer: a part has arrived.
    pub(super) fn on_merge_chunk(&mut self, node: &mut Host, now: Now, chunk: CopyChunk<'_>) {
        let CopyChunk { peer, epoch, more, payload, .. } = chunk;
        let Some(merge) = &mut self.merge else { return };
        let round = merge.round + 1;
        let Some(source) = &mut merge.source else { return };
        let is_asked = matches!(source.stage, PartStage::Asked { .. });
        if !is_asked
            || epoch != self.membership.epoch
            || source.epoch != epoch
            || peer != StreamPeer::Dialed(source.address)
        {
            return;
        }
        let Ok((floor, versions)) = read_part(payload) else {
            node.counters.malformed += 1;
            return;
        };
        let last = versions.last().map(|(key, _)| key.to_vec());
        merge.round = round;
        // One more than there are, so that the count cannot reach 0 before all have been passed to
        // `take`.
        source.stage = PartStage::Taking { pending: versions.len() + 1, last, more };
        self.raise_floor(node, floor);
        for (key, entry) in versions {
            self.take(node, now, key, Version::of_entry(&entry), Waiter::Merge { round });
        }
        self.on_merged(node, now, round);
    }

    /// Newcomer: a version of the part of this round is synced.
    pub(super) fn on_merged(&mut self, node: &mut Host, now: Now, round: u64) {
        let Some(merge) = self.merge.as_mut().filter(|merge| merge.round == round) else { return };
        let Some(source) = &mut merge.source else { return };
        let PartStage::Taking { pending, last, more } = &mut source.stage else { return };
        *pending -= 1;
        if *pending > 0 {
            return;
        }
        if *more {
            source.after = last.take();
            source.stage = PartStage::Asked { asks: 1, at_ns: now.boot_ns };
            return self.ask(node);
        }
        merge.merged.push(source.member);
        merge.source = None;
        self.resume_merge(node, now);
    }
}

/// A key and the entry held for it.
type Held<'a> = (&'a [u8], Entry<'a>);

/// Decodes the floor and the versions of a part.
fn read_part(payload: &[u8]) -> Result<(u64, Vec<Held<'_>>), DecodeError> {
    let mut reader = Reader::new(payload);
    let floor = read_floor(&mut reader)?;
    let mut versions = Vec::new();
    while !reader.is_empty() {
        let (key, entry) = read_keyed_entry(&mut reader)?;
        versions.push((key, Entry::decode(entry)?));
    }
    Ok((floor, versions))
}
