//! Observations about one partition, which are not persisted: a new leader learns them anew.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use nicekv_proto::NodeId;
use nicekv_proto::control::AssignAck;

use super::membership::Membership;
use crate::config::{Timing, nanoseconds};
use crate::state::Partition;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    pub(crate) incarnation: u64,
    pub(crate) epoch: u32,
    pub(crate) activated: bool,
}

/// A member's complaint that another member has timed out twice.
#[derive(Clone, Copy, Debug)]
struct Accusation {
    first_ns: u64,
    last_ns: u64,
}

/// The observations about one partition. All maps are keyed by nodes, whose number is bounded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    acknowledged: BTreeMap<NodeId, Acknowledged>,
    /// Nodes that have reported that they discarded the partition's data, and the epoch of the
    /// report.
    discarded: BTreeMap<NodeId, u32>,
    /// When each node was last asked to discard the data.
    discard_sent_ns: BTreeMap<NodeId, u64>,
    /// When the newest assignment was last sent to each node.
    sent_ns: BTreeMap<NodeId, u64>,
    /// Joiners that have copied everything, with their process and the epoch.
    copied: BTreeMap<NodeId, (u64, u32)>,
    /// Members that have formed the children, with their process and the epoch (R17).
    formed: BTreeMap<NodeId, (u64, u32)>,
    /// The primary's process that has drained in an epoch, the epoch, and its last decision.
    drained: Option<(u64, u32, u64)>,
    /// When forming children was last broken off.
    broken_off_ns: Option<u64>,
    /// Whether no consistent member was live at the last check, or members that are waited for were
    /// not live.
    is_dark: bool,
    /// Until when the first member that returned waits for the others.
    grace_until_ns: Option<u64>,
    /// Accusations in the current epoch, by accuser and accused.
    accusations: BTreeMap<(NodeId, NodeId), Accusation>,
    /// Nodes that are barred, and until when.
    barred_until_ns: BTreeMap<NodeId, u64>,
    /// When an original was last removed. It may return soon.
    departed_ns: u64,
    /// When the epoch began, as far as this leader knows.
    epoch_ns: u64,
    /// Whether a member has requested another epoch.
    is_fence_asked: bool,
    /// Since when the members are exactly the originals, and all of them serve.
    whole_since_ns: Option<u64>,
}

impl Watch {
    /// A partition whose members have not sent anything to this leader yet.
    pub(crate) fn dark(now_ns: u64) -> Self {
        Self { is_dark: true, departed_ns: now_ns, ..Self::default() }
    }

    /// Whether the partition's membership may be changed. After a restart of the whole cluster, it
    /// may be only when a consistent member is live, and all others are live or have timed out
    /// (R9).
    pub(crate) fn is_settled(&self) -> bool {
        !self.is_dark
    }

    /// Updates which members are live.
    pub(crate) fn settle(&mut self, has_live_consistent: bool, all_live: bool, now_ns: u64, timing: &Timing) {
        if !has_live_consistent {
            (self.is_dark, self.grace_until_ns) = (true, None);
        } else if self.is_dark {
            let until_ns = *self.grace_until_ns.get_or_insert(now_ns + timing.grace_ns());
            self.is_dark = !all_live && now_ns < until_ns;
        }
    }

    pub(crate) fn acknowledged(&self, node: NodeId, incarnation: u64) -> Option<Acknowledged> {
        self.acknowledged.get(&node).copied().filter(|known| known.incarnation == incarnation)
    }

    /// Whether a node that left in the epoch `since` has reported that it does not hold data any
    /// more.
    pub(crate) fn has_discarded(&self, node: NodeId, since: u32) -> bool {
        self.discarded.get(&node).is_some_and(|epoch| *epoch >= since)
    }

    /// Whether the node was asked to discard the data less than `interval_ns` ago, so that it may
    /// still be doing so.
    pub(crate) fn is_discarding(&self, node: NodeId, now_ns: u64, interval_ns: u64) -> bool {
        self.discard_sent_ns.get(&node).is_some_and(|sent_ns| now_ns < sent_ns + interval_ns)
    }

    pub(crate) fn handle_discard_sent(&mut self, node: NodeId, now_ns: u64) {
        self.discard_sent_ns.insert(node, now_ns);
    }

    /// Records an acknowledgement. Returns whether it is news.
    pub(crate) fn handle_ack(&mut self, ack: &AssignAck) -> bool {
        let is_news = ack.discarded && !self.has_discarded(ack.node, ack.epoch.0);
        if is_news {
            self.discarded.insert(ack.node, ack.epoch.0);
        }
        self.note_ack(ack) || is_news
    }

    fn note_ack(&mut self, ack: &AssignAck) -> bool {
        let known = self.acknowledged(ack.node, ack.incarnation);
        if known.is_some_and(|known| (known.epoch, known.activated) >= (ack.epoch.0, ack.activated)) {
            return false;
        }
        let new = Acknowledged { incarnation: ack.incarnation, epoch: ack.epoch.0, activated: ack.activated };
        self.acknowledged.insert(ack.node, new);
        self.sent_ns.remove(&ack.node);
        true
    }

    /// Records that a joiner has copied everything. Returns whether this is the first such report
    /// in the epoch.
    pub(crate) fn handle_copy_done(&mut self, node: NodeId, incarnation: u64, epoch: u32) -> bool {
        self.copied.insert(node, (incarnation, epoch)) != Some((incarnation, epoch))
    }

    pub(crate) fn copied(&self, node: NodeId, incarnation: u64, epoch: u32) -> bool {
        self.copied.get(&node) == Some(&(incarnation, epoch))
    }

    /// Records that a member has formed the children. Returns whether this is the first such report
    /// in the epoch.
    pub(crate) fn handle_formed(&mut self, node: NodeId, incarnation: u64, epoch: u32) -> bool {
        self.formed.insert(node, (incarnation, epoch)) != Some((incarnation, epoch))
    }

    /// Whether this process has formed the children in this epoch.
    pub(crate) fn has_formed(&self, node: NodeId, incarnation: u64, epoch: u32) -> bool {
        self.formed.get(&node) == Some(&(incarnation, epoch))
    }

    /// Records that the primary has drained. Returns whether this is the first such report in the
    /// epoch.
    pub(crate) fn handle_drained(&mut self, incarnation: u64, epoch: u32, index: u64) -> bool {
        self.drained.replace((incarnation, epoch, index)) != Some((incarnation, epoch, index))
    }

    /// The last decision, if the primary has reported in this epoch that it has drained.
    pub(crate) fn drained(&self, incarnation: u64, epoch: u32) -> Option<u64> {
        let (by, in_epoch, index) = self.drained?;
        ((by, in_epoch) == (incarnation, epoch)).then_some(index)
    }

    /// Whether forming was broken off so recently that the reason may still exist.
    pub(crate) fn was_broken_off(&self, now_ns: u64, timing: &Timing) -> bool {
        self.broken_off_ns.is_some_and(|since_ns| now_ns < since_ns + nanoseconds(timing.rejoin_delay))
    }

    /// Whether the epoch has lasted for at least `duration`, as far as this leader knows.
    pub(crate) fn has_lasted(&self, now_ns: u64, duration: Duration) -> bool {
        now_ns >= self.epoch_ns + nanoseconds(duration)
    }

    /// Records that a member has requested another epoch. Returns whether this is the first request
    /// in this epoch.
    pub(crate) fn handle_fence(&mut self) -> bool {
        !core::mem::replace(&mut self.is_fence_asked, true)
    }

    /// Whether a member has requested another epoch, and the current one has lasted long enough.
    pub(crate) fn wants_fence(&self, now_ns: u64, timing: &Timing) -> bool {
        self.is_fence_asked && self.has_lasted(now_ns, timing.fence_interval)
    }

    /// Whether an assignment was sent to the node less than `interval_ns` ago, so that an
    /// acknowledgement may be on its way.
    pub(crate) fn is_outstanding(&self, node: NodeId, now_ns: u64, interval_ns: u64) -> bool {
        self.sent_ns.get(&node).is_some_and(|sent_ns| now_ns < sent_ns + interval_ns)
    }

    pub(crate) fn handle_sent(&mut self, node: NodeId, now_ns: u64) {
        self.sent_ns.insert(node, now_ns);
    }

    /// Handles a new epoch of the partition: assignments are sent at once, and accusations are
    /// dropped.
    pub(crate) fn handle_change(&mut self, old: &Partition, new: &Partition, now_ns: u64) {
        if (old.epoch, old.activated) != (new.epoch, new.activated) {
            self.sent_ns.clear();
        }
        if old.epoch != new.epoch {
            self.accusations.clear();
            self.copied.clear();
            (self.formed, self.drained) = Default::default();
            if old.forming.is_some() && new.forming.is_none() {
                self.broken_off_ns = Some(now_ns);
            }
            (self.epoch_ns, self.is_fence_asked) = (now_ns, false);
        }
        let departs = |node: &NodeId| old.member(*node).is_some_and(|_| new.member(*node).is_none());
        if new.originals.iter().any(departs) {
            self.departed_ns = now_ns;
        }
    }

    /// Handles the end of the partition: assignments are sent at once.
    pub(crate) fn handle_gone(&mut self) {
        self.sent_ns.clear();
        self.discard_sent_ns.clear();
    }

    /// When an original was last removed.
    pub(crate) fn departed_ns(&self) -> u64 {
        self.departed_ns
    }

    pub(crate) fn note_whole(&mut self, is_whole: bool, now_ns: u64) {
        self.whole_since_ns = is_whole.then(|| self.whole_since_ns.unwrap_or(now_ns));
    }

    /// Since when the partition is whole; `None` if it is not.
    pub(crate) fn whole_since_ns(&self) -> Option<u64> {
        self.whole_since_ns
    }

    /// Records an accusation. Returns the time of the accuser's first accusation in the present
    /// series.
    pub(crate) fn accuse(&mut self, accuser: NodeId, accused: NodeId, now_ns: u64, timing: &Timing) -> u64 {
        let new = Accusation { first_ns: now_ns, last_ns: now_ns };
        let accusation = self.accusations.entry((accuser, accused)).or_insert(new);
        // After an accusation has expired, the next one begins a new series.
        if now_ns >= accusation.last_ns + nanoseconds(timing.accusation_timeout) {
            *accusation = new;
        }
        accusation.last_ns = now_ns;
        accusation.first_ns
    }

    /// Which of two nodes that can communicate with this service but not with each other must be
    /// removed (R15): the one that several nodes accuse, otherwise the one that is not the primary.
    pub(crate) fn expelled(
        &self,
        primary: NodeId,
        membership: &Membership,
        timing: &Timing,
    ) -> Option<NodeId> {
        let timeout_ns = nanoseconds(timing.accusation_timeout);
        let stands = |(pair, accusation): (&(NodeId, NodeId), &Accusation)| {
            let proven = |node| membership.is_proven_since(node, accusation.first_ns);
            let lasting = accusation.last_ns >= accusation.first_ns + timeout_ns;
            (lasting && proven(pair.0) && proven(pair.1)).then_some(*pair)
        };
        let standing: Vec<_> = self.accusations.iter().filter_map(stands).collect();
        let accusers = |accused| standing.iter().filter(|pair| pair.1 == accused).count();
        let &(accuser, accused) = standing.iter().max_by_key(|pair| accusers(pair.1))?;
        Some(if accused == primary && accusers(accused) == 1 { accuser } else { accused })
    }

    pub(crate) fn bar(&mut self, node: NodeId, until_ns: u64) {
        self.barred_until_ns.insert(node, until_ns);
    }

    pub(crate) fn is_barred(&self, node: NodeId, now_ns: u64) -> bool {
        self.barred_until_ns.get(&node).is_some_and(|until_ns| now_ns < *until_ns)
    }
}
