//! Observations: what nodes ([`membership`], [`usage`], [`loads`]) and switches ([`switches`]) have
//! reported, also about partitions ([`watch`]), and when. This module decides nothing, and nothing
//! is persisted: a new leader starts without observations.
//!
//! Invariant: a report of a process that is not live, or about a past epoch, changes nothing.

mod balance;
mod chunks;
mod fabric;
mod heats;
mod loads;
mod membership;
mod order;
pub(crate) mod requests;
mod switches;
mod usage;
mod watch;

use alloc::collections::{BTreeMap, BTreeSet};

use nicekv_proto::control::{AssignAck, Heartbeat, ProbeReply, Report, ReportKind, Sources, Usage};
use nicekv_proto::heat::Heat;
use nicekv_proto::{NodeId, PartitionId, Replication};

use crate::config::{Config, Timing, nanoseconds};
use crate::policy::Policy;
use crate::state::storages::{self, Judgement};
use crate::state::{Contradiction, Partition, State, Storages};
pub(crate) use balance::{Balance, Begun, REST_PERIODS};
pub(crate) use chunks::ChunkReports;
pub use chunks::TargetReport;
pub(crate) use heats::Heats;
pub(crate) use loads::{Load, SourceLoads};
pub(crate) use membership::Membership;
pub(crate) use switches::Switches;
pub(crate) use usage::Usages;
pub(crate) use watch::Watch;

/// The error for a report that is outdated or impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stale;

/// A partition that a process has found on its disk and has no assignment for.
#[derive(Clone, Copy)]
pub(crate) struct Stray {
    pub(crate) partition: PartitionId,
    pub(crate) incarnation: u64,
    pub(crate) replication: Replication,
}

/// All observations.
#[derive(Clone)]
pub(crate) struct Observations {
    timing: Timing,
    pub(crate) membership: Membership,
    watches: BTreeMap<PartitionId, Watch>,
    pub(crate) switches: Switches,
    pub(crate) usages: Usages,
    pub(crate) loads: SourceLoads,
    pub(crate) heats: Heats,
    pub(crate) balance: Balance,
    pub(crate) chunks: ChunkReports,
    /// Durable log positions of nodes: the persisted ones, updated by newer reports.
    pub(crate) storages: Storages,
    /// Storages that have lost data, until the loss is persisted.
    pub(crate) forgetful: Storages,
    /// The last reported stray partition of each node that has not been answered.
    pub(crate) strays: BTreeMap<NodeId, Stray>,
    /// Evidence that the state is an older copy, until the evidence is persisted.
    pub(crate) contradiction: Option<Contradiction>,
    /// Until when leases of a previous leader may run.
    quiet_until_ns: u64,
    /// Processes that do not know yet that they were removed from a partition. They get no lease
    /// (R12).
    unaware: BTreeSet<(NodeId, u64)>,
}

impl Observations {
    /// The observations of a new leader of `term`, which begins at `now_ns` with `state`: none.
    pub(crate) fn new(config: &Config, state: &State, term: u64, now_ns: u64) -> Self {
        let quiet_ns = if state.is_bootstrapped() { config.timing.lease_wait_ns() } else { 0 };
        Self {
            timing: config.timing,
            membership: Membership::new(config, term, now_ns),
            watches: {
                let gone = state.gone().map(|(id, _, _)| (id, Watch::default()));
                state.partitions().map(|(id, _)| (id, Watch::dark(now_ns))).chain(gone).collect()
            },
            switches: Switches::new(&config.switches, config.topology.clone(), &config.timing),
            usages: Usages::default(),
            loads: SourceLoads::default(),
            heats: Heats::default(),
            balance: Balance::new(now_ns),
            chunks: ChunkReports::new(now_ns),
            storages: state.storages.clone(),
            forgetful: Storages::new(),
            strays: BTreeMap::new(),
            contradiction: state.contradiction,
            quiet_until_ns: now_ns + quiet_ns,
            unaware: BTreeSet::new(),
        }
    }

    pub(crate) fn watch(&self, id: PartitionId) -> &Watch {
        self.watches.get(&id).expect("every partition is watched")
    }

    pub(crate) fn watch_mut(&mut self, id: PartitionId) -> &mut Watch {
        self.watches.get_mut(&id).expect("every partition is watched")
    }

    /// Handles a change of the state from `before` to `after`.
    pub(crate) fn handle_change(&mut self, before: &State, after: &State, now_ns: u64) {
        self.forgetful.retain(|node, storage| {
            let is_persisted = after.storages.get(node).is_some_and(|known| {
                known.losses >= storage.losses && known.identity() == storage.identity()
            });
            if is_persisted {
                self.storages.insert(*node, *storage);
            }
            !is_persisted && after.node(NodeId(*node)).is_some()
        });
        self.storages.retain(|node, _| after.node(NodeId(*node)).is_some());
        if before.nodes != after.nodes {
            self.membership.set_nodes(after.nodes.iter().map(|node| node.config.id), now_ns);
        }
        self.watches.retain(|id, _| after.newest_epoch(*id).is_some());
        for (id, new) in after.partitions() {
            let watch = self.watches.entry(id).or_default();
            if let Some(old) = before.partition(id) {
                watch.handle_change(old, new, now_ns);
            }
        }
        let is_node = |id| after.node(id).is_some();
        self.loads.retain(|id| after.partition(id).is_some(), is_node);
        self.switches.requests.retain(|id| after.partition(id).is_some());
        self.heats
            .retain(|id, node| after.partition(id).is_some_and(|it| it.member(node).is_some()), is_node);
        self.balance.handle_change(before, after, now_ns);
        self.chunks.handle_change(before, after, now_ns);
        for (id, _, _) in after.gone() {
            let watch = self.watches.entry(id).or_default();
            if before.partition(id).is_some() {
                watch.handle_gone();
            }
        }
        self.unaware = after.removed().map(|removed| (removed.node, removed.incarnation)).collect();
    }

    /// Handles a heartbeat. Returns the node's lease, in nanoseconds from when it sent the
    /// heartbeat (R12).
    pub(crate) fn handle_heartbeat(&mut self, now_ns: u64, heartbeat: &Heartbeat) -> u64 {
        let Heartbeat { node, incarnation, .. } = *heartbeat;
        if self.forgetful.contains_key(&node.0) {
            // The process is admitted once the loss is persisted, so that the next leader knows of
            // the loss.
            return 0;
        }
        self.membership.handle_heartbeat(now_ns, heartbeat);
        if self.membership.is_live(node, incarnation)
            && let Some(storage) = self.storages.get_mut(&node.0)
        {
            storage.confirm(heartbeat.durable);
        }
        let is_entitled =
            self.membership.is_live(node, incarnation) && !self.unaware.contains(&(node, incarnation));
        let may_serve = is_entitled && now_ns >= self.quiet_until_ns && self.contradiction.is_none();
        if !may_serve {
            return 0;
        }
        self.membership.grant(node, now_ns);
        nanoseconds(self.timing.lease)
    }

    /// Examines the storage of a process that has just answered its first probe (R18). A heartbeat
    /// without a probe proves nothing: the heartbeat of a former process may arrive late, and what
    /// that process found in its storage says nothing about the running one.
    pub(crate) fn handle_probe_reply(&mut self, now_ns: u64, reply: &ProbeReply) {
        let Some(heartbeat) = self.membership.handle_probe_reply(now_ns, reply) else { return };
        match storages::judge(&self.storages, &heartbeat) {
            Judgement::Void(storage) => {
                self.forgetful.insert(reply.node.0, storage);
                self.membership.refuse(reply.node, now_ns);
            }
            Judgement::Sound(storage) => {
                self.storages.insert(reply.node.0, storage);
                self.membership.admit(&heartbeat, storage.identity());
            }
        }
    }

    pub(crate) fn handle_usage(&mut self, now_ns: u64, usage: &Usage) -> Result<(), Stale> {
        if !self.membership.is_live(usage.node, usage.incarnation) {
            return Err(Stale);
        }
        self.usages.handle(now_ns, usage);
        Ok(())
    }

    pub(crate) fn handle_sources(&mut self, state: &State, sources: &Sources) -> Result<(), Stale> {
        if !self.membership.is_live(sources.node, sources.incarnation) {
            return Err(Stale);
        }
        self.loads.handle(sources, |id| state.partition(id).is_some());
        Ok(())
    }

    pub(crate) fn handle_heat(&mut self, state: &State, heat: &Heat) -> Result<(), Stale> {
        if !self.membership.is_live(heat.node, heat.incarnation) {
            return Err(Stale);
        }
        self.heats.handle(heat, |id, node| state.partition(id).is_some_and(|it| it.member(node).is_some()));
        Ok(())
    }

    /// Handles an acknowledgement. Returns whether it is news. An acknowledgement of an unknown
    /// epoch shows that the state is an older copy, because epochs are persisted before they are
    /// sent.
    pub(crate) fn handle_ack(&mut self, state: &State, ack: &AssignAck) -> Result<bool, Stale> {
        let newest = state.newest_epoch(ack.partition).ok_or(Stale)?;
        if !self.membership.is_live(ack.node, ack.incarnation) {
            return Err(Stale);
        }
        if ack.epoch.0 > newest {
            let is_news = self.contradiction.is_none();
            let shown = Contradiction::new(ack.node, ack.partition, ack.epoch.0, newest);
            self.contradiction.get_or_insert(shown);
            return Ok(is_news);
        }
        Ok(self.watch_mut(ack.partition).handle_ack(ack))
    }

    /// Handles a report. Returns whether it is news on which a decision may depend.
    pub(crate) fn handle_report(
        &mut self,
        state: &State,
        now_ns: u64,
        report: &Report,
    ) -> Result<bool, Stale> {
        let Report { node, incarnation, partition: id, epoch, kind } = *report;
        if let ReportKind::Stray(replication) = kind {
            if !self.membership.is_live(node, incarnation) {
                return Err(Stale);
            }
            self.strays.insert(node, Stray { partition: id, incarnation, replication });
            return Ok(true);
        }
        let partition = state.partition(id).filter(|partition| partition.epoch() == epoch).ok_or(Stale)?;
        let is_member = |node| partition.member(node).is_some();
        let is_possible = match kind {
            ReportKind::CopyDone => true,
            ReportKind::Accuse(accused) => accused != node && is_member(accused),
            ReportKind::Forgot(member) => is_member(member) && (member == node || partition.primary == node),
            ReportKind::Stray(_) => false,
            ReportKind::Fence => Policy::of(state.keyspace(partition)).has_fences,
            ReportKind::Formed => partition.forming.is_some(),
            ReportKind::Drained(_) => {
                partition.primary == node && partition.forming.as_ref().is_some_and(|forming| forming.sealed)
            }
        };
        if !is_possible || !is_member(node) || !self.membership.is_live(node, incarnation) {
            return Err(Stale);
        }
        match kind {
            ReportKind::CopyDone => Ok(self.watch_mut(id).handle_copy_done(node, incarnation, epoch.0)),
            ReportKind::Accuse(accused) => {
                self.handle_accusation(now_ns, id, node, accused);
                Ok(false)
            }
            ReportKind::Forgot(member) => Ok(self.handle_forgetful(now_ns, partition, member)),
            ReportKind::Stray(_) => unreachable!("noted above"),
            ReportKind::Fence => Ok(self.watch_mut(id).handle_fence()),
            ReportKind::Formed => Ok(self.watch_mut(id).handle_formed(node, incarnation, epoch.0)),
            ReportKind::Drained(index) => Ok(self.watch_mut(id).handle_drained(incarnation, epoch.0, index)),
        }
    }

    /// Records that the primary has found that a member lacks data which the member had confirmed.
    /// It counts if the member is still the same process. Returns whether it is news.
    fn handle_forgetful(&mut self, now_ns: u64, partition: &Partition, node: NodeId) -> bool {
        let process = partition.member(node).map(|member| member.process);
        let is_meant = process.is_some() && self.membership.live(node) == process;
        let Some(storage) = self.storages.get(&node.0).filter(|_| is_meant) else { return false };
        self.forgetful.insert(node.0, storage.with_a_loss());
        self.membership.refuse(node, now_ns);
        true
    }

    fn handle_accusation(&mut self, now_ns: u64, id: PartitionId, accuser: NodeId, accused: NodeId) {
        let timing = self.timing;
        let since_ns = self.watch_mut(id).accuse(accuser, accused, now_ns, &timing);
        // The accuser is a suspect as well, because a node that receives nothing accuses all
        // others.
        for suspect in [accused, accuser] {
            if !self.membership.is_proven_since(suspect, since_ns) {
                self.membership.probe(suspect, now_ns);
            }
        }
    }
}
