//! A model of a storage node: what the metadata service can observe of one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;

use nicekv_proto::control::{
    Assign, AssignAck, Child, DiskSpace, Heartbeat, HeartbeatReply, Member, MemberState, Probe, ProbeReply,
    Report, ReportKind,
};
use nicekv_proto::{Datagram, Epoch, KeyDigest, NodeId, PartitionId, Term};

use crate::state::Process;

/// The state that a process loses when it ends.
pub(super) struct Running {
    pub(super) process: Process,
    pub(super) assigned: BTreeMap<PartitionId, Assign>,
    /// Partitions that the process has copied, and the epoch in which it did.
    pub(super) copied: BTreeMap<PartitionId, Epoch>,
    /// Partitions that the process leads and has drained, and the epoch in which it did.
    drained: BTreeMap<PartitionId, Epoch>,
    term: Term,
    /// The newest announcement about each hot key: instance, number of holders, and whether the
    /// switch may store a copy.
    pub(super) hot: BTreeMap<KeyDigest, (u64, usize, bool)>,
    /// The end of the lease, on the node's own clock.
    lease_until_ns: u64,
    unanswered: u16,
    heartbeat_at_ns: u64,
    report_at_ns: u64,
}

pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) running: Option<Running>,
    pub(super) storage: u128,
    pub(super) space: DiskSpace,
    /// By how many thousandths the clock is too fast; negative: too slow.
    pub(super) clock_permille: i64,
    /// The last put that the storage has, by partition.
    pub(super) values: BTreeMap<PartitionId, u64>,
    /// The epoch of the last put that the storage has, by partition.
    pub(super) logged: BTreeMap<PartitionId, Epoch>,
    /// Children that the node has formed durably, and the parents from which it did.
    formed: BTreeMap<PartitionId, BTreeSet<PartitionId>>,
    incarnations: u64,
}

impl Node {
    pub(super) fn new(id: u16, clock_permille: i64) -> Self {
        let storage = u128::from(id) << 64;
        Self {
            id: NodeId(id),
            running: None,
            storage,
            space: DiskSpace::Enough,
            clock_permille,
            values: BTreeMap::new(),
            logged: BTreeMap::new(),
            formed: BTreeMap::new(),
            incarnations: 0,
        }
    }

    pub(super) fn start(&mut self, now_ns: u64) {
        self.incarnations += 1;
        let process =
            Process { incarnation: u64::from(self.id.0) << 32 | self.incarnations, storage: self.storage };
        self.running = Some(Running {
            process,
            assigned: BTreeMap::new(),
            copied: BTreeMap::new(),
            drained: BTreeMap::new(),
            term: Term(0),
            hot: BTreeMap::new(),
            lease_until_ns: 0,
            unanswered: 0,
            heartbeat_at_ns: now_ns,
            report_at_ns: now_ns,
        });
    }

    pub(super) fn wipe(&mut self) {
        self.storage += 1;
        self.values.clear();
        self.logged.clear();
        self.formed.clear();
    }

    fn clock_ns(&self, now_ns: u64) -> u64 {
        (i128::from(now_ns) * i128::from(1000 + self.clock_permille) / 1000) as u64
    }

    pub(super) fn value(&self, partition: PartitionId) -> u64 {
        self.values.get(&partition).copied().unwrap_or(0)
    }

    /// The assignment and own role of the process in a partition, if it is a member.
    pub(super) fn epoch(&self, partition: PartitionId) -> Option<(&Assign, &Member)> {
        let assign = self.running.as_ref()?.assigned.get(&partition)?;
        Some((assign, assign.members.iter().find(|member| member.node == self.id)?))
    }

    /// Whether the node answers a get that it receives now.
    pub(super) fn answers(&self, partition: PartitionId, now_ns: u64) -> bool {
        let has_lease =
            self.running.as_ref().is_some_and(|running| self.clock_ns(now_ns) < running.lease_until_ns);
        has_lease && self.epoch(partition).is_some_and(|(_, member)| member.state == MemberState::Consistent)
    }

    /// Heartbeats and reports that are due. `unheard`: whether this node cannot communicate with
    /// another one.
    pub(super) fn tick(&mut self, now_ns: u64, unheard: impl Fn(NodeId) -> bool) -> Vec<Vec<u8>> {
        let (id, clock_ns) = (self.id, self.clock_ns(now_ns));
        let Some(running) = &mut self.running else { return Vec::new() };
        let (incarnation, storage) = (running.process.incarnation, running.process.storage);
        let mut sent = Vec::new();
        if now_ns >= running.heartbeat_at_ns {
            running.heartbeat_at_ns += 40_000_000;
            let (unanswered, space) = (running.unanswered, self.space);
            running.unanswered = unanswered.saturating_add(1);
            sent.push(encode(|out| {
                Heartbeat {
                    node: id,
                    incarnation,
                    storage,
                    sent_ns: clock_ns,
                    unanswered,
                    space,
                    opened: 0,
                    durable: 0,
                }
                .encode(out);
            }));
        }
        if now_ns < running.report_at_ns {
            return sent;
        }
        running.report_at_ns = now_ns + 100_000_000;
        for (&partition, assign) in &running.assigned {
            let epoch = assign.epoch;
            let mut report = |kind| {
                sent.push(encode(|out| Report { node: id, incarnation, partition, epoch, kind }.encode(out)));
            };
            let Some(me) = assign.members.iter().find(|member| member.node == id) else { continue };
            for member in assign.members.iter().filter(|member| member.node != id && unheard(member.node)) {
                if id == assign.primary || member.node == assign.primary {
                    report(ReportKind::Accuse(member.node));
                }
            }
            let has_formed = |child: &Child| {
                self.formed.get(&child.partition).is_some_and(|parents| parents.contains(&partition))
            };
            if !assign.children.is_empty() && assign.children.iter().all(has_formed) {
                report(ReportKind::Formed);
            }
            if running.drained.get(&partition) == Some(&epoch) {
                report(ReportKind::Drained(self.values.get(&partition).copied().unwrap_or(0)));
            }
            if me.state == MemberState::Joining && running.copied.get(&partition) == Some(&epoch) {
                report(ReportKind::CopyDone);
            }
        }
        sent
    }

    /// Forms the assigned children of a partition, beside the partition itself.
    pub(super) fn form(&mut self, partition: PartitionId) {
        let Some((assign, _)) = self.epoch(partition) else { return };
        let is_born = |child: &Child| self.values.contains_key(&child.partition);
        let children: Vec<_> = assign.children.iter().filter(|child| !is_born(child)).copied().collect();
        for child in children {
            self.formed.entry(child.partition).or_default().insert(partition);
        }
    }

    pub(super) fn drain(&mut self, partition: PartitionId, epoch: Epoch) {
        self.running.as_mut().unwrap().drained.insert(partition, epoch);
    }

    /// Takes the steps that an assignment requires. Returns false if the node cannot obey it: it
    /// must take over a child that it has neither formed nor taken over already. The node does
    /// nothing beyond its assignments: without a role in a child, it continues as a member of the
    /// parent.
    fn is_there(&mut self, assign: &Assign) -> bool {
        let Assign { partition, ref children, ref parents, .. } = *assign;
        let known = self.running.as_ref().and_then(|running| running.assigned.get(&partition));
        if known.is_none_or(|known| known.epoch < assign.epoch) {
            let is_kept = |child: &PartitionId| children.iter().any(|kept| kept.partition == *child);
            let void = self.formed.iter_mut().filter(|(child, _)| !is_kept(child));
            void.for_each(|(_, parents)| _ = parents.remove(&partition));
        }
        let me = assign.members.iter().find(|member| member.node == self.id);
        let is_to_be_born = me.is_some_and(|me| me.state == MemberState::Consistent) && !parents.is_empty();
        if !is_to_be_born || self.values.contains_key(&partition) {
            return true;
        }
        let formed = self.formed.get(&partition);
        let has_all = parents.iter().all(|parent| {
            let is_formed = formed.is_some_and(|parents| parents.contains(&parent.partition));
            is_formed && self.value(parent.partition) == parent.index
        });
        if !has_all {
            return false;
        }
        self.formed.remove(&partition);
        self.values.insert(partition, parents.iter().map(|parent| parent.index).max().unwrap_or(0));
        for parent in parents {
            // When all children have taken over, the parent's data are removed.
            if self.formed.values().all(|parents| !parents.contains(&parent.partition)) {
                self.values.remove(&parent.partition);
                // An older assignment that is still on its way must not revive the parent.
                let assigned = &mut self.running.as_mut().unwrap().assigned;
                if let Some(known) = assigned.get_mut(&parent.partition) {
                    known.epoch.0 += 1;
                    known.members.clear();
                }
            }
        }
        true
    }

    pub(super) fn handle(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (_, datagram) = Datagram::decode(bytes).expect("the core sends well-formed datagrams");
        let id = self.id;
        let running = self.running.as_mut()?;
        let incarnation = running.process.incarnation;
        match datagram {
            Datagram::HeartbeatReply(HeartbeatReply { term, incarnation: of, sent_ns, lease_ns }) => {
                if term >= running.term && of == incarnation {
                    running.term = term;
                    running.unanswered = 0;
                    running.lease_until_ns = running.lease_until_ns.max(sent_ns + lease_ns);
                }
                None
            }
            Datagram::Probe(Probe { term, nonce }) => (term >= running.term)
                .then(|| encode(|out| ProbeReply { node: id, incarnation, nonce }.encode(out))),
            Datagram::Assign(assign) => {
                if assign.term < running.term || assign.incarnation != incarnation {
                    return None;
                }
                running.term = assign.term;
                if !self.is_there(&assign) {
                    return None;
                }
                let running = self.running.as_mut()?;
                let logged = self.logged.get(&assign.partition).filter(|logged| assign.epoch <= **logged);
                if let (Some(logged), None) = (logged, running.assigned.get(&assign.partition)) {
                    // A former process of this node was in that epoch, which contradicts the
                    // assignment.
                    let (partition, epoch) = (assign.partition, Epoch(logged.0 + 1));
                    let (activated, discarded) = (false, false);
                    return Some(encode(|out| {
                        AssignAck { node: id, incarnation, partition, epoch, activated, discarded }
                            .encode(out);
                    }));
                }
                let (partition, discard, of) = (assign.partition, assign.discard, assign.epoch);
                let known = running.assigned.entry(partition).or_insert_with(|| assign.clone());
                if (assign.epoch, assign.activated) > (known.epoch, known.activated) {
                    *known = assign;
                }
                let (epoch, activated) = (known.epoch, known.activated);
                let discarded = discard && epoch == of;
                if discarded {
                    assert!(known.members.iter().all(|member| member.node != id), "a member is to discard");
                    self.values.remove(&partition);
                    self.logged.remove(&partition);
                }
                Some(encode(|out| {
                    AssignAck { node: id, incarnation, partition, epoch, activated, discarded }.encode(out);
                }))
            }
            Datagram::HotAssign(assign) => {
                let known = running.hot.entry(assign.digest).or_default();
                if assign.term >= running.term && assign.instance >= known.0 {
                    *known = (assign.instance, assign.holders.len(), assign.in_switch);
                }
                None
            }
            other => panic!("a node does not expect {other:?}"),
        }
    }
}

pub(super) fn encode(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

pub(super) fn address(node: NodeId) -> SocketAddrV4 {
    SocketAddrV4::new([10, 20, 1, node.0 as u8].into(), 7400)
}
