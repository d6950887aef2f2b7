//! The session with the metadata service: heartbeats, the serving lease (R12), terms (R13), and
//! probes.

use crate::node::config::NodeConfig;
use core::net::SocketAddrV4;
use nicekv_proto::control::{
    Assign, DiskSpace, Heartbeat, HeartbeatReply, Probe, ProbeReply, direct_lease_ns,
};
use nicekv_proto::{Now, Term};

#[derive(Clone, Default)]
pub(crate) struct Session {
    pub(crate) term: Term,
    /// The instance of the metadata service that has sent a message in this term.
    leader: Option<SocketAddrV4>,
    /// End of the serving lease: gets may be answered until then (R12).
    pub(crate) lease_until_ns: u64,
    /// End of the direct part of the lease, in which requests that may have bypassed the switches
    /// are answered, too (R12).
    pub(crate) direct_until_ns: u64,
    /// How many heartbeats were sent since the metadata service last answered one.
    unanswered: u16,
    /// Position up to which the log was synced when the process started.
    opened: u64,
    /// Position up to which the log is synced now.
    durable: u64,
}

impl Session {
    /// Whether gets may be answered (R12).
    pub(crate) fn has_lease(&self, now: Now) -> bool {
        now.boot_ns < self.lease_until_ns
    }

    /// Whether requests that may have bypassed the switches may be answered (R12).
    pub(crate) fn has_direct_lease(&self, now: Now) -> bool {
        now.boot_ns < self.direct_until_ns
    }

    /// The leader of the metadata service, if known. An instance that has left a heartbeat
    /// unanswered may no longer lead.
    pub(crate) fn leader(&self) -> Option<SocketAddrV4> {
        self.leader.filter(|_| self.unanswered == 0)
    }

    /// A message from this instance was accepted, so it leads.
    pub(crate) fn note_leader(&mut self, leader: SocketAddrV4) {
        self.leader = Some(leader);
    }

    pub(crate) fn heartbeat(&mut self, config: &NodeConfig, space: DiskSpace, now: Now) -> Heartbeat {
        let unanswered = self.unanswered;
        self.unanswered = unanswered.saturating_add(1);
        Heartbeat {
            node: config.node,
            incarnation: config.incarnation,
            storage: config.storage,
            sent_ns: now.boot_ns,
            unanswered,
            space,
            opened: self.opened,
            durable: self.durable,
        }
    }

    /// The process has found its log synced up to this position, counted over the life of the
    /// storage.
    pub(crate) fn begin_durable(&mut self, position: u64) {
        (self.opened, self.durable) = (position, position);
    }

    /// The log is synced up to this position, counted over the life of the storage.
    pub(crate) fn set_durable(&mut self, position: u64) {
        self.durable = position;
    }

    /// Takes in the answer to a heartbeat. Returns false if it is for another process, or of an
    /// older term (R13).
    pub(crate) fn accept_reply(&mut self, config: &NodeConfig, reply: &HeartbeatReply) -> bool {
        if reply.incarnation != config.incarnation || reply.term < self.term {
            return false;
        }
        self.term = reply.term;
        self.unanswered = 0;
        let until = |lease_ns| reply.sent_ns.saturating_add(lease_ns);
        self.lease_until_ns = self.lease_until_ns.max(until(reply.lease_ns));
        self.direct_until_ns = self.direct_until_ns.max(until(direct_lease_ns(reply.lease_ns)));
        true
    }

    /// Whether messages of a leader with this term are accepted (R13); remembers the term.
    pub(crate) fn accept_term(&mut self, term: Term) -> bool {
        self.term = self.term.max(term);
        term == self.term
    }

    /// The answer to a probe; `None` if the probe's term is older (R13).
    pub(crate) fn answer_probe(&mut self, config: &NodeConfig, probe: &Probe) -> Option<ProbeReply> {
        if probe.term < self.term {
            return None;
        }
        self.term = probe.term;
        Some(ProbeReply { node: config.node, incarnation: config.incarnation, nonce: probe.nonce })
    }

    /// Whether an assignment is valid, for this process, and not of an older term (R13). Remembers
    /// the term.
    pub(crate) fn accept_assign(&mut self, config: &NodeConfig, assign: &Assign) -> bool {
        let lists_primary = assign.members.iter().any(|member| member.node == assign.primary);
        // The last epoch of a dropped keyspace has no members.
        let lists_primary = lists_primary || assign.members.is_empty();
        if assign.incarnation != config.incarnation || assign.term < self.term || !lists_primary {
            return false;
        }
        self.term = assign.term;
        true
    }
}
