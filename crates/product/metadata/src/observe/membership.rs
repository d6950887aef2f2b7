//! Membership: which nodes are live, and which may answer gets.
//!
//! ```text
//!   node                      metadata
//!    │ Heartbeat ────────────────▶│  an unknown process
//!    │◀──────────────── Probe{n}  │  does it receive? is it the running process, not a datagram from the past?
//!    │ ProbeReply{n} ────────────▶│  live, if its storage has what it confirmed (R18)
//!    │ Heartbeat{sent} ──────────▶│
//!    │◀── HeartbeatReply{sent, lease}  may answer gets until sent + lease on its own clock (R12)
//!    │         (lost)             │  overdue by half a period: is it live?
//!    │◀──────────────── Probe{n}  │  a reply counts as a heartbeat
//!    │                            │  three periods of silence: suspected
//!    │ Heartbeat{unanswered: 1} ─▶│  it may not receive
//!    │◀──────────────── Probe{n}  │
//!    │ Heartbeat{unanswered: 3} ─▶│  no reply to the probe either: suspected
//! ```
//!
//! Invariants: only an answered probe makes a process live, so the live process of a node is the
//! one that runs. A node that cannot receive and a node that cannot send are suspected after the
//! same number of heartbeats. Leases are granted only to live processes, and the time of the last
//! grant is kept for as long as the lease may be in use.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_proto::NodeId;
use nicekv_proto::control::{DiskSpace, Heartbeat, ProbeReply};

use crate::config::{Config, NodeConfig, Timing, nanoseconds};
use crate::state::Process;

#[derive(Clone, Copy, Debug)]
struct Probing {
    nonce: u64,
    begun_ns: u64,
    sent_ns: u64,
    tries: u32,
}

#[derive(Clone, Debug)]
struct Node {
    /// The process that answered the last probe.
    process: Option<Process>,
    live: bool,
    /// When the last message from the process arrived.
    heard_ns: u64,
    /// When the last probe that was answered was begun. The process was live at some time after
    /// that.
    proven_ns: u64,
    /// Since when the node is not live.
    silent_ns: u64,
    /// Free space of the node's disk, by its last report.
    space: DiskSpace,
    /// The newest heartbeat of a process that has not answered a probe yet.
    candidate: Option<Heartbeat>,
    probing: Option<Probing>,
    /// When a lease was last granted to the process, and to any earlier process of the node.
    granted_ns: u64,
    granted_before_ns: u64,
}

impl Node {
    /// A node that has sent nothing to this leader. A previous leader may have granted leases up to
    /// `start_ns`.
    fn unheard(start_ns: u64) -> Self {
        Self {
            process: None,
            live: false,
            heard_ns: 0,
            proven_ns: 0,
            silent_ns: start_ns,
            space: DiskSpace::Enough,
            candidate: None,
            probing: None,
            granted_ns: start_ns,
            granted_before_ns: start_ns,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Membership {
    timing: Timing,
    nodes: BTreeMap<NodeId, Node>,
    /// Source of nonces. It starts with the term, so that replies to probes of a previous leader do
    /// not match.
    probes_sent: u64,
    /// When a node was last suspected. All other nodes are then probed.
    suspected_ns: u64,
    /// Probes to send, at most one for each node.
    outbox: Vec<(NodeId, u64)>,
}

impl Membership {
    /// Membership at the start of a leader: no node is live. A previous leader may have granted
    /// leases up to `start_ns`.
    pub(crate) fn new(config: &Config, term: u64, start_ns: u64) -> Self {
        let node = |config: &NodeConfig| (config.id, Node::unheard(start_ns));
        Self {
            timing: config.timing,
            nodes: config.nodes.iter().map(node).collect(),
            probes_sent: term << 32,
            suspected_ns: 0,
            outbox: Vec::new(),
        }
    }

    /// Sets the cluster's nodes.
    pub(crate) fn set_nodes(&mut self, nodes: impl Iterator<Item = NodeId> + Clone, now_ns: u64) {
        self.nodes.retain(|node, _| nodes.clone().any(|known| known == *node));
        for node in nodes {
            self.nodes.entry(node).or_insert_with(|| Node::unheard(now_ns));
        }
    }

    /// The node's process, if it is live.
    pub(crate) fn live(&self, node: NodeId) -> Option<Process> {
        self.nodes.get(&node).filter(|node| node.live)?.process
    }

    /// Whether exactly this process is live.
    pub(crate) fn is_live(&self, node: NodeId, incarnation: u64) -> bool {
        self.live(node).is_some_and(|process| process.incarnation == incarnation)
    }

    /// Free space of the node's disk, by its last report.
    pub(crate) fn space(&self, node: NodeId) -> DiskSpace {
        self.nodes.get(&node).map_or(DiskSpace::Enough, |node| node.space)
    }

    /// Whether this leader has received anything from the node.
    pub(crate) fn is_known(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.process.is_some())
    }

    /// Whether the node has answered a probe that was begun at `since_ns` or later.
    pub(crate) fn is_proven_since(&self, node: NodeId, since_ns: u64) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.live && node.proven_ns >= since_ns)
    }

    /// Since when the node is not live.
    pub(crate) fn silent_since_ns(&self, node: NodeId) -> u64 {
        self.nodes.get(&node).map_or(0, |node| node.silent_ns)
    }

    /// Whether every lease of the process has ended (R12).
    pub(crate) fn lease_is_over(&self, node: NodeId, incarnation: u64, now_ns: u64) -> bool {
        self.is_over(node, incarnation, self.timing.lease_wait_ns(), now_ns)
    }

    /// Like [`Self::lease_is_over`], for the direct lease: the part in which a process answers gets
    /// that do not come through switches.
    pub(crate) fn direct_lease_is_over(&self, node: NodeId, incarnation: u64, now_ns: u64) -> bool {
        self.is_over(node, incarnation, self.timing.direct_lease_wait_ns(), now_ns)
    }

    fn is_over(&self, node: NodeId, incarnation: u64, wait_ns: u64, now_ns: u64) -> bool {
        let Some(node) = self.nodes.get(&node) else { return true };
        let is_current = node.process.is_some_and(|process| process.incarnation == incarnation);
        let granted_ns = if is_current { node.granted_ns } else { node.granted_before_ns };
        now_ns >= granted_ns + wait_ns
    }

    /// Records that a lease is being granted to the node's live process.
    pub(crate) fn grant(&mut self, node: NodeId, now_ns: u64) {
        let node = self.nodes.get_mut(&node).expect("only known nodes are live");
        assert!(node.live, "a lease is granted to a live process only");
        node.granted_ns = now_ns;
    }

    /// Handles a heartbeat. Heartbeats of unknown nodes are ignored.
    pub(crate) fn handle_heartbeat(&mut self, now_ns: u64, heartbeat: &Heartbeat) {
        let is_known = self.is_live(heartbeat.node, heartbeat.incarnation);
        let Some(node) = self.nodes.get_mut(&heartbeat.node) else { return };
        if !is_known {
            node.candidate = Some(*heartbeat);
        } else if node.is_deaf(now_ns, heartbeat.unanswered, &self.timing) {
            self.suspect(heartbeat.node, now_ns);
        } else {
            (node.heard_ns, node.space) = (now_ns, heartbeat.space);
        }
        if !is_known || heartbeat.unanswered > 0 {
            self.probe(heartbeat.node, now_ns);
        }
    }

    fn suspect(&mut self, id: NodeId, now_ns: u64) {
        let node = self.nodes.get_mut(&id).expect("only known nodes are suspected");
        (node.live, node.silent_ns, self.suspected_ns) = (false, now_ns, now_ns);
    }

    /// Probes the node, unless a probe is outstanding.
    pub(crate) fn probe(&mut self, id: NodeId, now_ns: u64) {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.probing.is_none()) else { return };
        self.probes_sent += 1;
        node.probing = Some(Probing { nonce: self.probes_sent, begun_ns: now_ns, sent_ns: now_ns, tries: 1 });
        self.outbox.push((id, self.probes_sent));
    }

    /// Handles a reply to a probe: the process that sent it is the one that runs. If the process is
    /// not live yet, returns its heartbeat. The caller then examines its storage, and calls
    /// [`Self::admit`] or [`Self::refuse`].
    pub(crate) fn handle_probe_reply(&mut self, now_ns: u64, reply: &ProbeReply) -> Option<Heartbeat> {
        let is_live = self.is_live(reply.node, reply.incarnation);
        let node = self.nodes.get_mut(&reply.node)?;
        let probing = node.probing.filter(|probing| probing.nonce == reply.nonce)?;
        let candidate = node.candidate.filter(|candidate| candidate.incarnation == reply.incarnation);
        if candidate.is_none() && !is_live {
            return None;
        }
        (node.probing, node.candidate) = (None, None);
        (node.proven_ns, node.heard_ns) = (probing.begun_ns, now_ns);
        candidate
    }

    /// Makes a process live that has answered a probe. `storage`: the identity of its storage.
    pub(crate) fn admit(&mut self, heartbeat: &Heartbeat, storage: u128) {
        let node = self.nodes.get_mut(&heartbeat.node).expect("only known nodes answer probes");
        let process = Process { incarnation: heartbeat.incarnation, storage };
        if node.process.map(|process| process.incarnation) != Some(process.incarnation) {
            node.granted_before_ns = node.granted_before_ns.max(node.granted_ns);
        }
        (node.process, node.space, node.live) = (Some(process), heartbeat.space, true);
    }

    /// Postpones making the new process live. The node's previous process counts as gone.
    pub(crate) fn refuse(&mut self, id: NodeId, now_ns: u64) {
        if self.nodes.get(&id).is_some_and(|node| node.live) {
            self.suspect(id, now_ns);
        }
    }

    /// The time when the next live node will be suspected if it stays silent.
    pub(crate) fn next_suspicion_ns(&self) -> Option<u64> {
        let live = self.nodes.values().filter(|node| node.live);
        live.map(|node| node.heard_ns + self.timing.suspicion_ns()).min()
    }

    /// Advances time: repeats probes and suspects nodes. Probes nodes whose heartbeat is overdue,
    /// and nodes that have not answered a probe for a long time or since another node fell silent.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        for (&id, node) in &mut self.nodes {
            let answers = node.repeat_probe(now_ns, &self.timing, |nonce| self.outbox.push((id, nonce)));
            if node.live && (!answers || now_ns >= node.heard_ns + self.timing.suspicion_ns()) {
                (node.live, node.silent_ns, self.suspected_ns) = (false, now_ns, now_ns);
            }
        }
        let due_ns = self.suspected_ns.max(now_ns.saturating_sub(nanoseconds(self.timing.probe_idle)));
        let is_due =
            |node: &Node| node.proven_ns < due_ns || now_ns >= node.heard_ns + self.timing.doubt_ns();
        let due = self.nodes.iter().filter(|(_, node)| node.live && is_due(node));
        let due: Vec<_> = due.map(|(id, _)| *id).collect();
        for id in due {
            self.probe(id, now_ns);
        }
    }

    /// Probes to send now, with their nonces.
    pub(crate) fn take_probes(&mut self) -> Vec<(NodeId, u64)> {
        core::mem::take(&mut self.outbox)
    }
}

impl Node {
    /// Whether the process seems unable to receive: it has missed as many answers as make it
    /// suspected, and did not answer a probe either.
    fn is_deaf(&self, now_ns: u64, unanswered: u16, timing: &Timing) -> bool {
        let has_time = |probing: Probing| now_ns >= probing.begun_ns + nanoseconds(timing.heartbeat);
        u32::from(unanswered) >= timing.heartbeats_missed && self.probing.is_some_and(has_time)
    }

    /// Repeats a probe that was not answered in time. Returns false if it has been repeated too
    /// often.
    fn repeat_probe(&mut self, now_ns: u64, timing: &Timing, send: impl FnOnce(u64)) -> bool {
        let Some(probing) = &mut self.probing else { return true };
        if now_ns < probing.sent_ns + nanoseconds(timing.probe) {
            return true;
        }
        if probing.tries == timing.probe_tries {
            (self.probing, self.candidate) = (None, None);
            return false;
        }
        probing.tries += 1;
        probing.sent_ns = now_ns;
        send(probing.nonce);
        true
    }
}
