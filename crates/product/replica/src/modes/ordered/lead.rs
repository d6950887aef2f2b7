//! State that only the primary of an epoch has: the stage of its recovery, the progress of the
//! other members, and the ops that it has to fetch.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::recovery::RecoverReply;
use nicekv_proto::replication::Progress;
use nicekv_proto::{NodeId, Now, OpId};

/// How many times a timeout doubles at most.
const DOUBLINGS_MAX: u32 = 3;

/// Stage of the primary's recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Asks every member what it holds.
    Collecting,
    /// Fetches decisions up to `target` from the member at position `from`.
    Adopting { from: usize, target: u64 },
    /// Fetches the open ops that only other members hold (R18).
    Fetching,
    /// Ready to decide.
    Ready,
}

/// The primary's record of another member of the epoch.
#[derive(Clone, Copy, Default)]
pub(crate) struct Peer {
    /// The member has reported everything that it held when the epoch began.
    is_heard: bool,
    /// The member's report continues after this record of its log.
    cursor: u64,
    logged: u64,
    synced: u64,
    /// The last decision that the member knew to be synced by all when the epoch began.
    released: u64,
    /// When the member last made progress, or was last sent what it lacks.
    heard_ns: u64,
    /// How often the member was sent what it lacks without making progress.
    tries: u32,
}

/// An op that other members hold and this node has to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wanted {
    /// The member that reported it last.
    pub(crate) holder: NodeId,
    /// Bit set of the positions of members that have acknowledged the op in this epoch. These acks
    /// count as soon as the op arrives.
    pub(crate) acks: u16,
    /// Whether some member holds it as contended.
    pub(crate) is_contended: bool,
}

#[derive(Clone)]
pub(crate) struct Lead {
    phase: Phase,
    /// This node's position among the members.
    me: usize,
    /// The members by position; this node's own element is unused.
    peers: Vec<Peer>,
    /// Ops logged up to this record were undecided when the epoch began; their decisions are
    /// contended.
    recovered_through: u64,
    /// The last decision that is of an earlier epoch, or of an op that was undecided when this
    /// epoch began. An earlier primary may have shown the effects of decisions up to this one.
    recovery_end: u64,
    /// Ops that other members hold and this node has to fetch.
    wanted: BTreeMap<OpId, Wanted>,
    /// When the last decision was sent.
    decided_ns: u64,
    /// Recovery is complete: every op that was open when the epoch began is decided, and synced by
    /// all.
    is_complete: bool,
    /// The partition is drained: nothing more is decided (R17).
    is_drained: bool,
    /// For refusals that were decided without a prepare, by index: where the reply goes.
    refused: BTreeMap<u64, SocketAddrV4>,
}

impl Lead {
    /// State at the start of an epoch with `members` members.
    pub(crate) fn new(me: usize, members: usize, now: Now) -> Self {
        let mut peers = vec![Peer { heard_ns: now.boot_ns, ..Peer::default() }; members];
        peers[me].is_heard = true;
        Self {
            phase: Phase::Collecting,
            me,
            peers,
            recovered_through: 0,
            recovery_end: 0,
            wanted: BTreeMap::new(),
            decided_ns: now.boot_ns,
            is_complete: false,
            is_drained: false,
            refused: BTreeMap::new(),
        }
    }

    /// This node's position among the members.
    pub(crate) fn me(&self) -> usize {
        self.me
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Whether [`Self::complete`] was called.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Recovery is complete. Returns whether this is the first call.
    pub(crate) fn complete(&mut self) -> bool {
        !core::mem::replace(&mut self.is_complete, true)
    }

    /// Whether [`Self::end`] was called.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// The partition is drained: from now on nothing is decided (R17).
    pub(crate) fn end(&mut self) {
        self.is_drained = true;
    }

    /// Positions of the members whose reports are not complete, each with the log record after
    /// which the report continues.
    pub(crate) fn unheard(&self) -> impl Iterator<Item = (usize, u64)> {
        self.peers.iter().enumerate().filter(|(_, peer)| !peer.is_heard).map(|(at, peer)| (at, peer.cursor))
    }

    /// A member's report, or a part of it. Returns whether it is the part that was requested.
    pub(crate) fn hear(&mut self, position: usize, reply: &RecoverReply) -> bool {
        let peer = &mut self.peers[position];
        let is_asked = self.phase == Phase::Collecting && !peer.is_heard && peer.cursor == reply.cursor;
        if is_asked {
            (peer.logged, peer.synced, peer.cursor) = (reply.logged, reply.synced, reply.next);
            peer.released = reply.released;
            peer.is_heard = reply.next == 0;
        }
        is_asked
    }

    /// Position and last decision of the member with the longest log, once all members have
    /// reported.
    pub(crate) fn farthest(&self) -> Option<(usize, u64)> {
        let all_heard = self.peers.iter().all(|peer| peer.is_heard);
        let by_logged = self.peers.iter().enumerate().map(|(position, peer)| (position, peer.logged));
        by_logged.max_by_key(|(_, logged)| *logged).filter(|_| all_heard)
    }

    /// What a member reported at the start of the epoch: the last decision that it had logged, and
    /// the last one that it knew to be synced by all.
    pub(crate) fn told_by(&self, position: usize) -> (u64, u64) {
        (self.peers[position].logged, self.peers[position].released)
    }

    /// Starts fetching the decisions up to `target` from a member.
    pub(crate) fn adopt(&mut self, from: usize, target: u64) {
        self.phase = Phase::Adopting { from, target };
    }

    /// All decisions are here; open ops still have to be fetched.
    pub(crate) fn begin_fetching(&mut self) {
        self.phase = Phase::Fetching;
    }

    /// All decisions up to `logged` are here, so the primary may decide. Ops logged up to record
    /// `recovered_through` are from before the epoch.
    pub(crate) fn become_ready(&mut self, now: Now, recovered_through: u64, logged: u64) {
        self.phase = Phase::Ready;
        (self.recovered_through, self.recovery_end) = (recovered_through, logged);
        self.decided_ns = now.boot_ns;
    }

    /// Ops logged up to this record were open when the epoch began.
    pub(crate) fn recovered_through(&self) -> u64 {
        self.recovered_through
    }

    /// The last decision whose effect an earlier primary may have shown.
    pub(crate) fn recovery_end(&self) -> u64 {
        self.recovery_end
    }

    /// Decision `index` decides an op that was open when the epoch began.
    pub(crate) fn extend_recovery(&mut self, index: u64) {
        self.recovery_end = index;
    }

    /// A decision is being sent.
    pub(crate) fn note_decided(&mut self, now: Now) {
        self.decided_ns = now.boot_ns;
    }

    /// Member `holder` reports an op that this node lacks. Returns whether the op was unknown.
    pub(crate) fn want(&mut self, op: OpId, holder: NodeId) -> bool {
        let is_new = !self.wanted.contains_key(&op);
        let wanted = self.wanted.entry(op).or_insert(Wanted { holder, acks: 0, is_contended: false });
        wanted.holder = holder;
        is_new
    }

    /// The ops to fetch now, with their holders. Uncontended ops come first: they may have been
    /// answered, so contended ops of the same keys must be ordered after them.
    pub(crate) fn fetched_first(&self) -> impl Iterator<Item = (OpId, NodeId)> {
        let only_contended = self.wanted.values().all(|wanted| wanted.is_contended);
        let first = self.wanted.iter().filter(move |(_, wanted)| only_contended || !wanted.is_contended);
        first.map(|(op, wanted)| (*op, wanted.holder))
    }

    /// A member holds an op, which has to be fetched, as contended.
    pub(crate) fn note_contended(&mut self, op: OpId) {
        if let Some(wanted) = self.wanted.get_mut(&op) {
            wanted.is_contended = true;
        }
    }

    /// The member at this position has acknowledged an op that has to be fetched. Returns whether
    /// the ack is new.
    pub(crate) fn keep_ack(&mut self, op: OpId, position: usize, is_contended: bool) -> bool {
        let Some(wanted) = self.wanted.get_mut(&op) else { return false };
        let is_new = wanted.acks >> position & 1 == 0;
        wanted.acks |= 1 << position;
        wanted.is_contended |= is_contended;
        is_new
    }

    /// An op has arrived. Returns what was known of it if it had to be fetched.
    pub(crate) fn have(&mut self, op: OpId) -> Option<Wanted> {
        self.wanted.remove(&op)
    }

    /// Keeps only those ops to fetch that `is_wanted` accepts.
    pub(crate) fn keep_wanting(&mut self, mut is_wanted: impl FnMut(OpId) -> bool) {
        self.wanted.retain(|op, _| is_wanted(*op));
    }

    /// Ops that other members hold and this node has to fetch.
    pub(crate) fn wanted(&self) -> &BTreeMap<OpId, Wanted> {
        &self.wanted
    }

    /// A member reports its progress. Returns the last decision that it has logged; `None` if it
    /// has not answered the recovery request yet.
    pub(crate) fn take_progress(&mut self, now: Now, position: usize, progress: &Progress) -> Option<u64> {
        let peer = &mut self.peers[position];
        if !peer.is_heard {
            return None;
        }
        if progress.logged > peer.logged || progress.synced > peer.synced {
            (peer.heard_ns, peer.tries) = (now.boot_ns, 0);
        }
        (peer.logged, peer.synced) = (peer.logged.max(progress.logged), peer.synced.max(progress.synced));
        Some(peer.logged)
    }

    /// The last decision that all other members have synced; `u64::MAX` if there are no others.
    pub(crate) fn synced_by_peers(&self) -> u64 {
        let peers = self.peers.iter().enumerate().filter(|(position, _)| *position != self.me);
        peers.map(|(_, peer)| peer.synced).min().unwrap_or(u64::MAX)
    }

    /// A member is being sent what it lacks: restarts its timeout.
    pub(crate) fn note_served(&mut self, now: Now, position: usize) {
        self.peers[position].heard_ns = now.boot_ns;
    }

    pub(crate) fn logged_by(&self, position: usize) -> u64 {
        self.peers[position].logged
    }

    pub(crate) fn synced_by(&self, position: usize) -> u64 {
        self.peers[position].synced
    }

    /// If a member has made no progress within the timeout: how many timeouts have passed in a row.
    /// The caller then sends it what it lacks.
    pub(crate) fn take_silent(&mut self, now: Now, position: usize, timeout_ns: u64) -> Option<u32> {
        let peer = &mut self.peers[position];
        let since_ns = peer.heard_ns.max(self.decided_ns);
        if now.boot_ns < since_ns + (timeout_ns << peer.tries.min(DOUBLINGS_MAX)) {
            return None;
        }
        peer.tries += 1;
        Some(peer.tries)
    }

    /// Decision `index` will refuse an op that was never prepared; the reply goes to `reply_to`.
    pub(crate) fn refuse(&mut self, index: u64, reply_to: SocketAddrV4) {
        self.refused.insert(index, reply_to);
    }

    /// Takes the reply address of the refusal that is decision `index`.
    pub(crate) fn take_refused(&mut self, index: u64) -> Option<SocketAddrV4> {
        self.refused.remove(&index)
    }
}

mod fingerprint {
    use super::{Lead, Phase};
    use core::hash::{Hash, Hasher};

    impl Lead {
        pub(crate) fn fingerprint(&self, state: &mut impl Hasher) {
            match self.phase {
                Phase::Collecting => 0.hash(state),
                Phase::Adopting { from, target } => (from, target).hash(state),
                Phase::Ready => 2.hash(state),
                Phase::Fetching => 3.hash(state),
            }
            for peer in &self.peers {
                (peer.is_heard, peer.logged, peer.synced, peer.released).hash(state);
            }
            (self.recovery_end, self.is_complete, &self.wanted).hash(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::control::DiskSpace;
    use nicekv_proto::{ClientId, Epoch, PartitionId};

    fn at(boot_ns: u64) -> Now {
        Now { boot_ns, unix_ms: 0 }
    }

    fn op(sequence: u64) -> OpId {
        OpId { client: ClientId(1), sequence }
    }

    fn reply(cursor: u64, next: u64, logged: u64, synced: u64) -> RecoverReply {
        let (sender, partition, epoch) = (NodeId(2), PartitionId(0), Epoch(1));
        RecoverReply {
            sender,
            partition,
            epoch,
            cursor,
            next,
            logged,
            synced,
            released: 0,
            undecided: Vec::new(),
        }
    }

    fn progress(logged: u64, synced: u64) -> Progress {
        let (partition, epoch, space) = (PartitionId(0), Epoch(1), DiskSpace::Enough);
        Progress { partition, epoch, logged, synced, gap: false, space }
    }

    /// State of the second of three members after both others have reported.
    fn heard() -> Lead {
        let mut lead = Lead::new(1, 3, at(100));
        assert!(lead.hear(0, &reply(0, 0, 5, 4)) && lead.hear(2, &reply(0, 0, 7, 6)));
        lead
    }

    #[test]
    fn recovery_asks_until_all_members_have_answered() {
        let mut lead = Lead::new(1, 3, at(100));
        assert_eq!((lead.me(), lead.phase(), lead.is_ready()), (1, Phase::Collecting, false));
        assert_eq!(lead.unheard().collect::<Vec<_>>(), [(0, 0), (2, 0)]);
        assert!(lead.hear(0, &reply(0, 9, 5, 4)), "the first part of a longer report");
        assert!(!lead.hear(0, &reply(0, 9, 5, 4)), "a repeated part is not accepted");
        assert!(lead.hear(2, &reply(0, 0, 7, 6)) && !lead.hear(2, &reply(0, 0, 7, 6)));
        assert_eq!((lead.unheard().collect::<Vec<_>>(), lead.farthest()), (vec![(0, 9)], None));
        assert!(lead.hear(0, &reply(9, 0, 5, 4)));
        assert_eq!(lead.farthest(), Some((2, 7)));
        lead.adopt(2, 7);
        assert_eq!(lead.phase(), Phase::Adopting { from: 2, target: 7 });
        assert!(!lead.hear(2, &reply(0, 0, 8, 8)), "a late report is not accepted");
    }

    #[test]
    fn recovery_bounds_are_known() {
        let mut lead = heard();
        lead.become_ready(at(200), 40, 7);
        assert!(lead.is_ready());
        assert_eq!((lead.recovered_through(), lead.recovery_end()), (40, 7));
        lead.extend_recovery(9);
        assert_eq!((lead.recovered_through(), lead.recovery_end()), (40, 9));
    }

    #[test]
    fn progress_only_advances_and_counts_from_known_members() {
        let mut lead = Lead::new(1, 3, at(100));
        assert_eq!(lead.take_progress(at(101), 0, &progress(9, 9)), None);
        let mut lead = heard();
        assert_eq!(lead.synced_by_peers(), 4);
        assert_eq!(lead.take_progress(at(110), 0, &progress(9, 9)), Some(9));
        assert_eq!(lead.take_progress(at(120), 0, &progress(8, 8)), Some(9));
        assert_eq!((lead.logged_by(0), lead.synced_by(0), lead.synced_by_peers()), (9, 9, 6));
        assert_eq!(Lead::new(0, 1, at(0)).synced_by_peers(), u64::MAX);
    }

    #[test]
    fn silent_members_are_served_with_backoff() {
        let mut lead = heard();
        lead.become_ready(at(200), 0, 0);
        let silent = |lead: &mut Lead, boot_ns| lead.take_silent(at(boot_ns), 0, 10);
        assert_eq!(silent(&mut lead, 209), None);
        assert_eq!(silent(&mut lead, 210), Some(1));
        lead.note_served(at(210), 0);
        assert_eq!((silent(&mut lead, 229), silent(&mut lead, 230)), (None, Some(2)));
        lead.take_progress(at(240), 0, &progress(5, 4));
        assert_eq!(silent(&mut lead, 250), Some(3), "an unchanged report is no progress");
        lead.take_progress(at(250), 0, &progress(5, 5));
        assert_eq!((silent(&mut lead, 259), silent(&mut lead, 260)), (None, Some(1)));
        lead.note_decided(at(300));
        assert_eq!((silent(&mut lead, 319), silent(&mut lead, 320)), (None, Some(2)));
        for _ in 0..9 {
            silent(&mut lead, 1_000);
        }
        lead.note_served(at(1_000), 0);
        assert_eq!(
            (silent(&mut lead, 1_079), silent(&mut lead, 1_080)),
            (None, Some(12)),
            "the timeout grows to eight times at most"
        );
    }

    #[test]
    fn wanted_ops_and_refusals_are_kept_until_taken() {
        let mut lead = heard();
        assert!(lead.want(op(1), NodeId(2)) && !lead.want(op(1), NodeId(3)) && lead.want(op(2), NodeId(2)));
        assert!(
            lead.keep_ack(op(1), 2, false)
                && !lead.keep_ack(op(1), 2, true)
                && lead.keep_ack(op(1), 0, false)
        );
        assert!(!lead.keep_ack(op(9), 0, false), "not an op to fetch");
        let wanted = Wanted { holder: NodeId(3), acks: 0b101, is_contended: true };
        assert_eq!(lead.have(op(1)), Some(wanted));
        assert_eq!(lead.wanted().len(), 1);
        lead.keep_wanting(|wanted| wanted != op(2));
        assert_eq!(lead.wanted().len(), 0);
        let client = "10.0.0.9:900".parse().unwrap();
        lead.refuse(8, client);
        assert_eq!((lead.take_refused(7), lead.take_refused(8)), (None, Some(client)));
        assert_eq!(lead.take_refused(8), None);
    }
}
