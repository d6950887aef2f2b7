//! Maintenance: a target checks the chunks that it holds, one after the other, for ever (P11, P12, P13).
//!
//! ```text
//!   chunk of its group     (read)─▶ holders counted ─┬─ R hold it ─▶ nothing to do
//!                            │                       ├─ fewer, and this target is the first of them ─▶ read, put again
//!                            │                       └─ R targets before this one hold it ─▶ they confirm ─▶ dropped
//!                            ▼ damaged: dropped
//!   chunk of another group  read ─▶ put to that group, until R say "stored" ─▶ slot moves: kept, counts as moved    else: dropped
//! ```
//!
//! Counting holders is a reader's request and changes nothing. A put or a confirmation gives the chunk the present stamp.
//! Maintenance acts only on what it has found several times in a row: a chunk that is just being put has few holders for a
//! moment, and a reader that asked some targets before they had a chunk must not find that the others dropped it meanwhile.
//!
//! # Invariants
//! - A copy is dropped only when R targets *before* this one have confirmed theirs, with stamps not below its own: a
//!   manifest that relies on this copy by its stamp can rely on theirs from then on. It is not enough that R others hold it:
//!   two targets might each rely on the other. A target outside the chunk's group is behind all members.
//! - While a slot moves nothing of it is dropped: readers ask the former members last.
//! - Members do not put a chunk again before garbage collection has decided about it, or it would never be collected.
//!
//! Maintenance has an initiator of its own, whose datagrams use the target's socket. `agenda` says which chunk is next,
//! `finding` what is wrong with it, `silent_targets` which targets to stop waiting for, `pace` how fast to go.

mod agenda;
mod finding;
mod pace;
mod silent_targets;

use super::counters::TargetCounters;
use super::holdings::{Holdings, Reading};
use super::interface::{Held, MaintenanceConfig, Progress};
use crate::chunk_id;
use crate::initiator::{Counted, Event, Handle, Initiator, InitiatorConfig, Placed, PutError};
use crate::map::{Group, Map};
use crate::reservation::{Config, ConfigError};
use crate::transmit::Transmit;
use agenda::Agenda;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use finding::{Finding, Holders, better, finding};
use nicekv_proto::chunk::{ChunkId, Round};
use nicekv_proto::{Datagram, NodeId, OpId};
use pace::Pace;
use silent_targets::SilentTargets;

/// Maintenance acts on a finding only when it was made this many times in a row.
const FINDINGS_MIN: u32 = 3;
/// A chunk that could not be repaired, or that another target will repair, is checked again after
/// this many pauses.
const LATER: u64 = 4;

/// Where a chunk belongs, by the map.
struct Place {
    group: Group,
    /// Place of this target in the chunk's group, if it is a member.
    own: Option<u8>,
    /// The chunk's slot moves.
    is_moving: bool,
}

impl Place {
    fn of(map: &Map, id: &ChunkId, own: NodeId) -> Self {
        let group = *map.group_of(id).1;
        Self { group, own: group.place_of(own), is_moving: map.former(id).next().is_some() }
    }
}

/// Progress of maintenance on a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The chunk is read and verified.
    Scrubbing,
    /// Its holders are counted.
    Counting(Handle),
    /// The chunk is read, to be put again.
    Fetching,
    /// The chunk is put again.
    Putting(Handle),
    /// Targets that rank before this one are asked to confirm the chunk.
    Confirming(Handle),
}

#[derive(Clone, Copy, Debug)]
struct Job {
    id: ChunkId,
    is_of_pass: bool,
    step: Step,
}

/// The parts of the target that maintenance may use and change.
pub(super) struct Context<'a> {
    pub(super) node: NodeId,
    pub(super) map: &'a Map,
    pub(super) round: Round,
    pub(super) holdings: &'a mut Holdings,
    pub(super) counters: &'a mut TargetCounters,
}

/// The maintenance of a target.
#[derive(Clone, Debug)]
pub(super) struct Maintenance {
    config: MaintenanceConfig,
    initiator: Initiator,
    agenda: Agenda,
    pace: Pace,
    silent_targets: SilentTargets,
    jobs: Vec<Job>,
    /// Chunks of other groups that too few members of these have confirmed since the map changed.
    away: BTreeSet<ChunkId>,
}

impl Maintenance {
    pub(super) fn new(
        config: MaintenanceConfig,
        reservation: Config,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        let MaintenanceConfig { client, copies, timing, .. } = config;
        let initiator = Initiator::new(InitiatorConfig { client, copies, reservation, timing }, seed)?;
        Ok(Self {
            initiator,
            agenda: Agenda::new(config.pass_ns),
            pace: Pace::new(config.chunks_per_second, config.bytes_per_second),
            silent_targets: SilentTargets::new(config.silence_ns),
            jobs: Vec::new(),
            away: BTreeSet::new(),
            config,
        })
    }

    pub(super) fn poll_transmit(&mut self, now_ns: u64) -> Option<Transmit> {
        self.initiator.poll_transmit(now_ns)
    }

    pub(super) fn set_copies(&mut self, copies: usize) {
        self.config.copies = copies;
        self.initiator.set_copies(copies);
    }

    /// A chunk is no longer held.
    pub(super) fn forget(&mut self, id: &ChunkId) {
        self.agenda.settle(id);
        self.away.remove(id);
    }

    /// When to call [`Self::run`].
    pub(super) fn next_deadline(&self) -> u64 {
        let mut next_ns = self.initiator.next_deadline();
        if self.jobs.len() < self.config.chunks_at_once {
            next_ns = next_ns.min(self.agenda.next_ns().max(self.pace.next_ns()));
        }
        next_ns
    }

    /// The map has changed: everything under way is given up, and a new pass begins with chunks that lost a holder or belong
    /// to other groups now.
    pub(super) fn set_map(
        &mut self,
        now_ns: u64,
        map: Arc<Map>,
        node: NodeId,
        held: &BTreeMap<ChunkId, Held>,
    ) {
        let own_group = map.place_of(node).map(|(group, _)| group);
        let urgent = held.iter().filter_map(|(id, held)| {
            let is_away = own_group != Some(map.group_of(id).0);
            let has_lost = held.holders.iter().any(|node| map.place_of(*node).is_none());
            let finding = if is_away { Finding::Away } else { Finding::Unseen };
            (is_away || has_lost).then_some((*id, finding))
        });
        self.agenda.begin_anew(now_ns, urgent);
        let away = held.keys().filter(|id| own_group != Some(map.group_of(id).0));
        self.away = away.copied().collect();
        self.silent_targets.retain(|node| map.place_of(node).is_some());
        self.jobs.clear();
        self.initiator.give_up();
        self.initiator.set_map(now_ns, map);
    }

    /// Adds what maintenance knows to the target's progress.
    pub(super) fn add_to(&self, progress: &mut Progress) {
        progress.has_moved = self.away.is_empty();
        progress.passes = self.agenda.passes();
        for finding in self.agenda.findings() {
            match finding {
                Finding::Lacking { is_first: true } => progress.lacking += 1,
                Finding::Surplus => {}
                Finding::Undecided => progress.undecided += 1,
                _ => progress.unsettled += 1,
            }
        }
    }

    /// Handles an answer to a request of its initiator.
    pub(super) fn on_answer(&mut self, now_ns: u64, op: OpId, datagram: &Datagram<'_>) {
        self.initiator.handle(now_ns, op, datagram);
    }

    /// Continues with jobs whose step has ended, and begins new ones.
    pub(super) fn run(&mut self, now_ns: u64, context: &mut Context<'_>) {
        if self.initiator.next_deadline() <= now_ns {
            self.initiator.handle_deadline(now_ns);
        }
        while let Some(event) = self.initiator.poll_event() {
            match event {
                Event::Put(handle, result) => self.on_put(now_ns, handle, result, context),
                Event::Counted(handle, counted) => self.on_counted(now_ns, handle, &counted, context),
                // This initiator never gets chunks, and the target learns of new maps in another
                // way.
                Event::Got(..) | Event::NewerMap(_) => {}
            }
        }
        while self.jobs.len() < self.config.chunks_at_once && self.pace.next_ns() <= now_ns {
            let Some((id, is_of_pass)) = self.agenda.next(now_ns, &context.holdings.held) else { break };
            self.begin(now_ns, id, is_of_pass, context);
        }
        if !self.jobs.iter().any(|job| job.is_of_pass) {
            self.agenda.end_pass();
        }
    }

    fn begin(&mut self, now_ns: u64, id: ChunkId, is_of_pass: bool, context: &mut Context<'_>) {
        let Some(held) = context.holdings.held.get(&id) else { return self.forget(&id) };
        if self.jobs.iter().any(|job| job.id == id) {
            // If the last check takes longer than the pause between passes, the next pass begins
            // without it.
            if !is_of_pass {
                self.agenda.postpone(&id, now_ns.saturating_add(self.config.again_ns));
            }
            return;
        }
        let place = Place::of(context.map, &id, context.node);
        let is_read = is_of_pass && self.agenda.reads();
        let job = Job { id, is_of_pass, step: Step::Scrubbing };
        if place.own.is_some() && !is_read {
            self.pace.charge(now_ns, 0);
            return self.count(now_ns, job, &place);
        }
        self.pace.charge(now_ns, held.bytes.into());
        self.read(now_ns, job, held.bytes, context);
    }

    fn read(&mut self, now_ns: u64, job: Job, bytes: u32, context: &mut Context<'_>) {
        if !context.holdings.may_read() {
            return self.agenda.postpone(&job.id, now_ns.saturating_add(self.config.again_ns));
        }
        context.holdings.read(Reading::Whole { id: job.id }, job.id, 0, bytes);
        self.jobs.push(job);
    }

    fn count(&mut self, now_ns: u64, job: Job, place: &Place) {
        let own = place.own.map_or(0, |own| 1 << own);
        let handle = self.initiator.count(now_ns, job.id, place.group.mask() & !own);
        self.jobs.push(Job { step: Step::Counting(handle), ..job });
    }

    fn again(&mut self, now_ns: u64, id: &ChunkId, finding: Finding, times: u64) {
        self.agenda.note(id, finding, now_ns.saturating_add(self.config.again_ns.saturating_mul(times)));
    }

    /// Takes the job with this handle.
    fn take(&mut self, handle: Handle) -> Option<Job> {
        let by = |job: &Job| match job.step {
            Step::Counting(of) | Step::Putting(of) | Step::Confirming(of) => of == handle,
            Step::Scrubbing | Step::Fetching => false,
        };
        let at = self.jobs.iter().position(by)?;
        Some(self.jobs.swap_remove(at))
    }

    /// A whole chunk was read. A damaged one is not held (P1, P12).
    pub(super) fn on_read(
        &mut self,
        now_ns: u64,
        id: ChunkId,
        bytes: Option<Vec<u8>>,
        context: &mut Context<'_>,
    ) {
        let is_reading = |job: &Job| job.id == id && matches!(job.step, Step::Scrubbing | Step::Fetching);
        let job = self.jobs.iter().position(is_reading).map(|at| self.jobs.swap_remove(at));
        let Some(bytes) = bytes.filter(|bytes| chunk_id(bytes) == id) else {
            context.counters.damaged += u64::from(context.holdings.remove(&id));
            return self.forget(&id);
        };
        context.counters.scrubbed += 1;
        let Some(job) = job else { return };
        if !context.holdings.held.contains_key(&id) {
            return self.forget(&id);
        }
        let place = Place::of(context.map, &id, context.node);
        match (job.step, place.own) {
            // The chunk is undamaged, but has an open finding, which is acted on when it is due.
            (Step::Scrubbing, _) if job.is_of_pass && self.agenda.finding(&id).is_some() => {}
            (Step::Scrubbing, Some(_)) => self.count(now_ns, job, &place),
            // The chunk was put to its group by this map, and is kept until the slot has moved.
            (Step::Scrubbing, None) if place.is_moving && !self.away.contains(&id) => self.agenda.settle(&id),
            (_, own) => self.put(now_ns, job, bytes, own),
        }
    }

    fn put(&mut self, now_ns: u64, job: Job, bytes: Vec<u8>, own: Option<u8>) {
        self.pace.charge(now_ns, bytes.len() as u64);
        let handle = self.initiator.put_beside(now_ns, job.id, Arc::from(bytes), own);
        self.jobs.push(Job { step: Step::Putting(handle), ..job });
    }

    fn on_put(
        &mut self,
        now_ns: u64,
        handle: Handle,
        result: Result<Placed, PutError>,
        context: &mut Context<'_>,
    ) {
        let Some(Job { id, .. }) = self.take(handle) else { return };
        let Some(held) = context.holdings.held.get_mut(&id) else { return self.forget(&id) };
        let Ok(placed) = result else {
            let finding = self.agenda.finding(&id).unwrap_or(Finding::Unseen);
            return self.again(now_ns, &id, finding, LATER);
        };
        context.counters.put_again += 1;
        held.holders.clone_from(&placed.holders);
        self.away.remove(&id);
        let place = Place::of(context.map, &id, context.node);
        // A copy with a later stamp is kept, because a manifest may rely on it (P7).
        if place.own.is_some() || place.is_moving {
            self.agenda.settle(&id);
        } else if placed.stamp >= held.stamp {
            self.drop_copy(&id, context);
        } else {
            self.again(now_ns, &id, Finding::Away, LATER);
        }
    }

    fn on_counted(&mut self, now_ns: u64, handle: Handle, counted: &Counted, context: &mut Context<'_>) {
        let Some(job) = self.take(handle) else { return };
        let place = Place::of(context.map, &job.id, context.node);
        for (at, node) in place.group.members() {
            if (counted.held | counted.lacking | counted.silent) >> at & 1 == 1 {
                self.silent_targets.note(now_ns, node, counted.silent >> at & 1 == 1);
            }
        }
        if !context.holdings.held.contains_key(&job.id) {
            return self.forget(&job.id);
        }
        match job.step {
            Step::Confirming(_) => self.on_confirmed(now_ns, &job.id, &counted.stamps, &place, context),
            _ => self.on_holders(now_ns, job, counted, &place, context),
        }
    }

    fn on_holders(
        &mut self,
        now_ns: u64,
        job: Job,
        counted: &Counted,
        place: &Place,
        context: &mut Context<'_>,
    ) {
        let (id, copies) = (job.id, self.config.copies);
        let (Some(own), Some(held)) = (place.own, context.holdings.held.get_mut(&id)) else { return };
        let gone = place.group.members().filter(|(_, node)| self.silent_targets.is_gone(now_ns, *node));
        let gone = gone.fold(0, |mask, (at, _)| mask | 1_u16 << at);
        let of = Holders {
            held: counted.held | 1 << own,
            silent: counted.silent & !gone,
            better: better(&place.group, &id, context.node),
        };
        let undecided = held.is_undecided(context.round);
        // The chunk may still get a name; the next round decides. If it were put again in every
        // round, it would never be collected.
        let waits_for_name = undecided && held.stamp.0 + 1 >= context.round.0;
        let found = finding(copies, of);
        let Some(found) = found.filter(|found| *found != Finding::Surplus || !place.is_moving) else {
            let members = place.group.members().filter(|(at, _)| of.held >> at & 1 == 1);
            held.holders = members.map(|(_, node)| node).collect();
            return self.agenda.settle(&id);
        };
        let (bytes, pause_ns) = (held.bytes, self.config.again_ns);
        let times = self.agenda.note(&id, found, now_ns.saturating_add(pause_ns));
        match found {
            _ if waits_for_name => self.again(now_ns, &id, Finding::Undecided, LATER),
            _ if times < FINDINGS_MIN => {}
            Finding::Lacking { is_first: true } if !undecided => {
                self.read(now_ns, Job { step: Step::Fetching, ..job }, bytes, context);
            }
            Finding::Surplus if !undecided => {
                let handle = self.initiator.confirm(now_ns, id, bytes, of.held & of.better);
                self.jobs.push(Job { step: Step::Confirming(handle), ..job });
            }
            _ => self.again(now_ns, &id, found, LATER),
        }
    }

    /// Drops the copy if enough targets before this one hold the chunk, with stamps that protect it as long as its own does
    /// (P12).
    fn on_confirmed(
        &mut self,
        now_ns: u64,
        id: &ChunkId,
        stamps: &[(u8, Round)],
        place: &Place,
        context: &mut Context<'_>,
    ) {
        let own_stamp = context.holdings.held.get(id).map(|held| held.stamp).unwrap_or_default();
        let enough = stamps.iter().filter(|(_, stamp)| *stamp >= own_stamp).count() >= self.config.copies;
        if enough && !place.is_moving && place.own.is_some() {
            return self.drop_copy(id, context);
        }
        self.again(now_ns, id, Finding::Surplus, LATER);
    }

    fn drop_copy(&mut self, id: &ChunkId, context: &mut Context<'_>) {
        context.counters.surplus += 1;
        context.holdings.remove(id);
        self.forget(id);
    }
}

#[cfg(test)]
mod tests;
