//! How new storage comes to count (R14): it merges what R − k + 1 counted members hold, one after the other, over the copying stream; who
//! succeeds a member (`succession`), what that one holds.
//!
//! ```text
//!   newcomer ──Request(after)──▶ member      engine scan
//!   newcomer ◀──Chunk────────── member       newer versions are logged and forced; then the next part, then the next member
//! ```
//!
//! Taking a version in twice changes nothing, and the newer one wins, so parts may be asked for again and come twice. A part is only
//! asked for when all before it is durable here: whichever answer arrives, nothing before it is missing.

use super::QuorumPartition;
use super::version::{Version, Waiter, read_floor};
use crate::modes::bounds::COPY_CHUNK_BYTES;
use crate::{CopyChunk, Host, Page, StreamPeer};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::bytes::Reader;
use nicekv_proto::control::{Member, MemberRole, MemberState};
use nicekv_proto::recovery::{CopyFrame, CopySection, Entry, cursor_behind, key_of_cursor, read_keyed_entry};
use nicekv_proto::{DecodeError, Epoch, NodeId, Now};

/// A part that a member does not send after so many requests is asked of the next member.
const ASKS_MAX: u32 = 3;

/// A scan of the engine for a newcomer.
#[derive(Clone)]
pub(super) struct PendingScan {
    pub(super) token: u64,
    epoch: Epoch,
    peer: StreamPeer,
}

/// The newcomer's side.
#[derive(Clone, Default)]
pub(super) struct Merge {
    /// Members all of whose versions are durable here.
    merged: Vec<NodeId>,
    source: Option<Source>,
    /// Place among the members where to look for the next source.
    next: usize,
    /// Tells the versions of one part from those of parts that were given up.
    round: u64,
    end: End,
}

/// Of a newcomer that has merged all: whether that is durable.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    Forcing,
    Durable,
}

impl Merge {
    /// All is merged; whether that is new.
    pub(super) fn begin_end(&mut self) -> bool {
        let is_new = self.end == End::Open;
        if is_new {
            self.end = End::Forcing;
        }
        is_new
    }

    /// All that is merged is durable.
    pub(super) fn end(&mut self) {
        self.end = End::Durable;
    }
}

#[derive(Clone)]
struct Source {
    member: NodeId,
    address: SocketAddrV4,
    epoch: Epoch,
    /// Everything up to this key is durable here.
    after: Option<Vec<u8>>,
    stage: Stage,
}

#[derive(Clone)]
enum Stage {
    Asked {
        asks: u32,
        at_ns: u64,
    },
    /// So many versions are not yet durable, and whether the part was the last.
    Taking {
        pending: usize,
        last: Option<Vec<u8>>,
        more: bool,
    },
}

impl QuorumPartition {
    /// Newcomer: asks for the next part, if it is not waiting for one.
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
            // What was read in another epoch of this newcomer's was read late enough: it goes on where it was.
            let address = self.membership.address(source.member);
            (source.epoch, source.address) = (self.membership.epoch, address.unwrap_or(source.address));
            match &mut source.stage {
                _ if address.is_none() => merge.source = None,
                Stage::Asked { asks, at_ns } => (*asks, *at_ns) = (1, 0),
                Stage::Taking { .. } => {}
            }
        }
        let patience_ns = node.config.timing.copy_retry.as_nanos() as u64;
        match &mut merge.source {
            Some(Source { stage: Stage::Taking { .. }, .. }) => return,
            Some(Source { stage: Stage::Asked { at_ns, .. }, .. }) if now.boot_ns < *at_ns + patience_ns => {
                return;
            }
            Some(Source { stage: Stage::Asked { asks, at_ns }, .. }) if *asks < ASKS_MAX => {
                (*asks, *at_ns) = (*asks + 1, now.boot_ns);
            }
            source => *source = None,
        }
        if merge.source.is_none() {
            self.choose_source(node, now);
        }
        self.ask(node);
    }

    /// Newcomer: whether all that it has to merge is durable here.
    pub(super) fn has_merged(&self) -> bool {
        self.newcomer.is_some() && self.merge.as_ref().is_some_and(|merge| merge.end == End::Durable)
    }

    /// Another epoch has begun: who has left does not count any more, as another one may have come in its place.
    pub(super) fn keep_merged(&mut self) {
        let Self { merge, membership, .. } = self;
        if let Some(merge) = merge {
            merge.merged.retain(|node| membership.position(*node).is_some());
        }
    }

    /// A version of the part that is being taken could not be: the part is asked for again.
    pub(super) fn restart_part(&mut self, now: Now) {
        let source = self.merge.as_mut().and_then(|merge| merge.source.as_mut());
        if let Some(stage) = source.map(|source| &mut source.stage)
            && matches!(stage, Stage::Taking { .. })
        {
            *stage = Stage::Asked { asks: 1, at_ns: now.boot_ns };
        }
    }

    fn choose_source(&mut self, node: &Host, now: Now) {
        let newcomer = self.newcomer;
        let Some(merge) = &mut self.merge else { return };
        let may_serve = |member: &Member| match newcomer {
            Some(Some(predecessor)) => member.node == predecessor,
            // Who comes in another's place is silent.
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
            stage: Stage::Asked { asks: 1, at_ns: now.boot_ns },
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

    /// Counted member: a newcomer asks for a part. Refused by silence; it asks again, or another one.
    ///
    /// Not before the epoch is activated: a replaced process might still be answering queries (R12).
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
        // The floor is of the same moment as the page: of each key one or the other shows what was deleted.
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
        let is_asked = matches!(source.stage, Stage::Asked { .. });
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
        // One more than there are, so that they cannot be done before all are counted.
        source.stage = Stage::Taking { pending: versions.len() + 1, last, more };
        self.raise_floor(node, floor);
        for (key, entry) in versions {
            self.take(node, now, key, Version::of_entry(&entry), Waiter::Merge { round });
        }
        self.on_merged(node, now, round);
    }

    /// Newcomer: a version of this round is durable.
    pub(super) fn on_merged(&mut self, node: &mut Host, now: Now, round: u64) {
        let Some(merge) = self.merge.as_mut().filter(|merge| merge.round == round) else { return };
        let Some(source) = &mut merge.source else { return };
        let Stage::Taking { pending, last, more } = &mut source.stage else { return };
        *pending -= 1;
        if *pending > 0 {
            return;
        }
        if *more {
            source.after = last.take();
            source.stage = Stage::Asked { asks: 1, at_ns: now.boot_ns };
            return self.ask(node);
        }
        merge.merged.push(source.member);
        merge.source = None;
        self.resume_merge(node, now);
    }
}

/// A key and what is held of it.
type Held<'a> = (&'a [u8], Entry<'a>);

/// The floor, and the versions, of a part.
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
