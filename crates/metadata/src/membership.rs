//! Which nodes are live, and which may answer gets.
//!
//! ```text
//!   node                      metadata
//!    │ Heartbeat ────────────────▶│  a process not yet known
//!    │◀──────────────── Probe{n}  │  does it hear us? is it the one that runs now, not a datagram from the past?
//!    │ ProbeReply{n} ────────────▶│  live
//!    │ Heartbeat{sent} ──────────▶│
//!    │◀── HeartbeatReply{sent, lease}  may answer gets until sent + lease on its own clock (R12)
//! ```
//!
//! Invariants: only an answered probe makes a process live, so of a node's processes the one that is live is the one that
//! runs; a node that sends but does not hear is not live for longer than a round of probes; a lease is granted to a
//! live process only, and the time of the last grant is kept for as long as the lease may be in use.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_wire::NodeId;
use nicekv_wire::control::{Heartbeat, ProbeReply};

use crate::config::{Config, Timing, nanoseconds};
use crate::state::Process;

#[derive(Clone, Copy, Debug)]
struct Probing {
    nonce: u64,
    sent_ns: u64,
    tries: u32,
}

#[derive(Debug)]
struct Node {
    /// The process that answered last.
    process: Option<Process>,
    live: bool,
    /// When the process was last heard.
    heard_ns: u64,
    /// When the process last answered a probe.
    proven_ns: u64,
    /// A process that was heard and has to answer a probe yet.
    candidate: Option<Process>,
    probing: Option<Probing>,
    /// Last lease granted to the process, and to any before it.
    granted_ns: u64,
    granted_before_ns: u64,
}

#[derive(Debug)]
pub(crate) struct Membership {
    timing: Timing,
    nodes: BTreeMap<NodeId, Node>,
    /// Makes nonces; begins with the term, so that no probe of a leader before is taken for ours.
    probes_sent: u64,
    /// Probes to be sent, at most one per node.
    outbox: Vec<(NodeId, u64)>,
}

impl Membership {
    /// Nobody is live. Leases of a leader before may have been granted up to `start_ns`.
    pub(crate) fn new(config: &Config, term: u64, start_ns: u64) -> Self {
        let node = || Node {
            process: None,
            live: false,
            heard_ns: 0,
            proven_ns: 0,
            candidate: None,
            probing: None,
            granted_ns: start_ns,
            granted_before_ns: start_ns,
        };
        Self {
            timing: config.timing,
            nodes: config.nodes.iter().map(|config| (config.id, node())).collect(),
            probes_sent: term << 32,
            outbox: Vec::new(),
        }
    }

    /// The node's process, if it is live.
    pub(crate) fn live(&self, node: NodeId) -> Option<Process> {
        self.nodes.get(&node).filter(|node| node.live)?.process
    }

    /// Whether this very process is live.
    pub(crate) fn is_live(&self, node: NodeId, incarnation: u64) -> bool {
        self.live(node).is_some_and(|process| process.incarnation == incarnation)
    }

    /// Whether anything was ever heard of the node.
    pub(crate) fn is_known(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.process.is_some())
    }

    /// Whether the node was heard within two heartbeats.
    pub(crate) fn is_fresh(&self, node: NodeId, now_ns: u64) -> bool {
        let heard_ns = self.nodes.get(&node).map_or(0, |node| node.heard_ns);
        now_ns <= heard_ns + 2 * nanoseconds(self.timing.heartbeat)
    }

    /// Whether the node has answered a probe that was sent after `since_ns`.
    pub(crate) fn is_proven_since(&self, node: NodeId, since_ns: u64) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.live && node.proven_ns > since_ns)
    }

    /// Whether every lease of the process is over (R12).
    pub(crate) fn lease_is_over(&self, node: NodeId, incarnation: u64, now_ns: u64) -> bool {
        let Some(node) = self.nodes.get(&node) else { return true };
        let is_current = node.process.is_some_and(|process| process.incarnation == incarnation);
        let granted_ns = if is_current { node.granted_ns } else { node.granted_before_ns };
        now_ns >= granted_ns + self.timing.lease_wait_ns()
    }

    /// Takes note of a lease that is about to be granted to the node's live process.
    pub(crate) fn grant(&mut self, node: NodeId, now_ns: u64) {
        let node = self.nodes.get_mut(&node).expect("only known nodes are live");
        assert!(node.live, "a lease is granted to a live process only");
        node.granted_ns = now_ns;
    }

    /// A node says that it lives. Foreign nodes have been sorted out.
    pub(crate) fn handle_heartbeat(&mut self, now_ns: u64, heartbeat: &Heartbeat) {
        let process = Process { incarnation: heartbeat.incarnation, storage: heartbeat.storage };
        let Some(node) = self.nodes.get_mut(&heartbeat.node) else { return };
        if node.live && node.process == Some(process) {
            node.heard_ns = now_ns;
        } else {
            node.candidate = Some(process);
            self.probe(heartbeat.node, now_ns);
        }
    }

    /// Asks the node whether it is there, unless it has been asked already.
    pub(crate) fn probe(&mut self, id: NodeId, now_ns: u64) {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.probing.is_none()) else { return };
        self.probes_sent += 1;
        node.probing = Some(Probing { nonce: self.probes_sent, sent_ns: now_ns, tries: 1 });
        self.outbox.push((id, self.probes_sent));
    }

    /// Returns whether the answer made a process live.
    pub(crate) fn handle_probe_reply(&mut self, now_ns: u64, reply: &ProbeReply) -> bool {
        let Some(node) = self.nodes.get_mut(&reply.node) else { return false };
        let Some(probing) = node.probing.filter(|probing| probing.nonce == reply.nonce) else { return false };
        let is_reply_of = |process: &Process| process.incarnation == reply.incarnation;
        let candidate = node.candidate.filter(is_reply_of);
        if candidate.is_none() && !(node.live && node.process.as_ref().is_some_and(is_reply_of)) {
            return false;
        }
        node.probing = None;
        node.candidate = None;
        // It was heard after the probe left; by how much is not known.
        node.proven_ns = probing.sent_ns;
        let Some(candidate) = candidate else { return false };
        if node.process.map(|process| process.incarnation) != Some(candidate.incarnation) {
            node.granted_before_ns = node.granted_before_ns.max(node.granted_ns);
        }
        node.process = Some(candidate);
        node.live = true;
        node.heard_ns = now_ns;
        true
    }

    /// Looks at the time: repeats probes, begins idle ones, suspects. Returns whether somebody became suspected.
    pub(crate) fn tick(&mut self, now_ns: u64) -> bool {
        let timing = self.timing;
        let mut suspected = false;
        let mut idle = Vec::new();
        for (&id, node) in &mut self.nodes {
            let mut answers = true;
            if let Some(probing) = &mut node.probing
                && now_ns >= probing.sent_ns + nanoseconds(timing.probe)
            {
                if probing.tries < timing.probe_tries {
                    probing.tries += 1;
                    probing.sent_ns = now_ns;
                    self.outbox.push((id, probing.nonce));
                } else {
                    answers = false;
                    node.probing = None;
                    node.candidate = None;
                }
            }
            if !node.live {
                continue;
            }
            if !answers || now_ns >= node.heard_ns + timing.suspicion_ns() {
                node.live = false;
                suspected = true;
            } else if now_ns >= node.proven_ns + nanoseconds(timing.probe_idle) {
                idle.push(id);
            }
        }
        for id in idle {
            self.probe(id, now_ns);
        }
        suspected
    }

    /// Probes to be sent now, with their nonces.
    pub(crate) fn take_probes(&mut self) -> Vec<(NodeId, u64)> {
        core::mem::take(&mut self.outbox)
    }
}
