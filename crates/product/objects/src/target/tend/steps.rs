//! What a chunk goes through that is looked after.

use super::agenda::Finding;
use super::verdict::{Holders, better, finding};
use super::{Job, Maintenance, Step, Target};
use crate::chunk_id;
use crate::initiator::{Counted, Event, Handle, Placed, PutError};
use crate::map::{Group, Map};
use alloc::sync::Arc;
use alloc::vec::Vec;
use nicekv_proto::NodeId;
use nicekv_proto::chunk::{ChunkId, Round};

/// Something is done when it was found so often in a row.
const LOOKS: u32 = 3;
/// What was in vain, or is another one's, is looked at again after so many times the usual pause.
const LATER: u64 = 4;

/// What is needed of the map for a chunk.
struct Place {
    group: Group,
    /// Of this target in it.
    own: Option<u8>,
    is_moving: bool,
}

impl Place {
    fn of(map: &Map, id: &ChunkId, own: NodeId) -> Self {
        let group = *map.group_of(id).1;
        Self { group, own: group.place_of(own), is_moving: map.former(id).next().is_some() }
    }
}

impl Maintenance {
    /// What has ended leads on, and what is next begins.
    pub(super) fn go_on(&mut self, now_ns: u64, target: &mut Target) {
        let Some(map) = target.map.clone().filter(|_| target.round.is_some()) else { return };
        if self.initiator.next_deadline() <= now_ns {
            self.initiator.handle_deadline(now_ns);
        }
        while let Some(event) = self.initiator.poll_event() {
            match event {
                Event::Put(handle, result) => self.on_put(now_ns, handle, result, target, &map),
                Event::Counted(handle, counted) => self.on_counted(now_ns, handle, &counted, target, &map),
                // It asks for none; and of a newer map it is told.
                Event::Got(..) | Event::NewerMap(_) => {}
            }
        }
        while self.jobs.len() < self.config.chunks_at_once && self.pace.next_ns() <= now_ns {
            let Some((id, is_of_pass)) = self.agenda.next(now_ns, &target.held) else { break };
            self.begin(now_ns, id, is_of_pass, target, &map);
        }
        if !self.jobs.iter().any(|job| job.is_of_pass) {
            self.agenda.end_pass();
        }
    }

    fn begin(&mut self, now_ns: u64, id: ChunkId, is_of_pass: bool, target: &mut Target, map: &Map) {
        let Some(held) = target.held.get(&id) else { return self.forget(&id) };
        if self.jobs.iter().any(|job| job.id == id) {
            // It takes longer than the pause. The pass goes on without it.
            if !is_of_pass {
                self.agenda.postpone(&id, now_ns.saturating_add(self.config.again_ns));
            }
            return;
        }
        let place = Place::of(map, &id, target.config.node);
        let is_read = is_of_pass && self.agenda.reads();
        let job = Job { id, is_of_pass, step: Step::Scrubbing };
        if place.own.is_some() && !is_read {
            self.pace.charge(now_ns, 0);
            return self.count(now_ns, job, &place);
        }
        self.pace.charge(now_ns, held.bytes.into());
        self.read(now_ns, job, held.bytes, target);
    }

    fn read(&mut self, now_ns: u64, job: Job, bytes: u32, target: &mut Target) {
        if !target.may_read() {
            return self.agenda.postpone(&job.id, now_ns.saturating_add(self.config.again_ns));
        }
        target.read_whole(job.id, bytes);
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

    /// What is under way by this handle.
    fn take(&mut self, handle: Handle) -> Option<Job> {
        let by = |job: &Job| match job.step {
            Step::Counting(of) | Step::Putting(of) | Step::Confirming(of) => of == handle,
            Step::Scrubbing | Step::Fetching => false,
        };
        let at = self.jobs.iter().position(by)?;
        Some(self.jobs.swap_remove(at))
    }

    /// What was read is what it is, or not held any more (P1, P12).
    pub(super) fn on_read(&mut self, now_ns: u64, id: ChunkId, bytes: Option<Vec<u8>>, target: &mut Target) {
        let is_reading = |job: &Job| job.id == id && matches!(job.step, Step::Scrubbing | Step::Fetching);
        let job = self.jobs.iter().position(is_reading).map(|at| self.jobs.swap_remove(at));
        let Some(bytes) = bytes.filter(|bytes| chunk_id(bytes) == id) else {
            target.lose(&id);
            return self.forget(&id);
        };
        target.counters.scrubbed += 1;
        let (Some(job), Some(map)) = (job, target.map.clone()) else { return };
        if !target.held.contains_key(&id) {
            return self.forget(&id);
        }
        let place = Place::of(&map, &id, target.config.node);
        match (job.step, place.own) {
            // It is undamaged. What becomes of it is decided when it is due.
            (Step::Scrubbing, _) if job.is_of_pass && self.agenda.finding(&id).is_some() => {}
            (Step::Scrubbing, Some(_)) => self.count(now_ns, job, &place),
            // It was put by this map, and is kept until the slot has moved.
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
        target: &mut Target,
        map: &Map,
    ) {
        let Some(Job { id, .. }) = self.take(handle) else { return };
        let Some(held) = target.held.get_mut(&id) else { return self.forget(&id) };
        let Ok(placed) = result else {
            let finding = self.agenda.finding(&id).unwrap_or(Finding::Unseen);
            return self.again(now_ns, &id, finding, LATER);
        };
        target.counters.put_again += 1;
        held.holders.clone_from(&placed.holders);
        self.away.remove(&id);
        let place = Place::of(map, &id, target.config.node);
        // A copy that is still relied on by a later stamp stays (P7).
        if place.own.is_some() || place.is_moving {
            self.agenda.settle(&id);
        } else if placed.stamp >= held.stamp {
            self.drop_copy(&id, target);
        } else {
            self.again(now_ns, &id, Finding::Away, LATER);
        }
    }

    fn on_counted(&mut self, now_ns: u64, handle: Handle, counted: &Counted, target: &mut Target, map: &Map) {
        let Some(job) = self.take(handle) else { return };
        let place = Place::of(map, &job.id, target.config.node);
        for (at, node) in place.group.members() {
            if (counted.held | counted.lacking | counted.silent) >> at & 1 == 1 {
                self.silence.note(now_ns, node, counted.silent >> at & 1 == 1);
            }
        }
        if !target.held.contains_key(&job.id) {
            return self.forget(&job.id);
        }
        match job.step {
            Step::Confirming(_) => self.on_confirmed(now_ns, &job.id, &counted.stamps, &place, target),
            _ => self.on_holders(now_ns, job, counted, &place, target),
        }
    }

    fn on_holders(&mut self, now_ns: u64, job: Job, counted: &Counted, place: &Place, target: &mut Target) {
        let (id, copies) = (job.id, self.config.copies);
        let (Some(own), Some(held)) = (place.own, target.held.get_mut(&id)) else { return };
        let gone = place.group.members().filter(|(_, node)| self.silence.is_gone(now_ns, *node));
        let gone = gone.fold(0, |mask, (at, _)| mask | 1_u16 << at);
        let of = Holders {
            held: counted.held | 1 << own,
            silent: counted.silent & !gone,
            better: better(&place.group, &id, target.config.node),
        };
        let undecided = held.is_undecided(target.round.unwrap_or_default());
        // It may get a name yet, and is decided about in the next round; put again in each, it would stay for ever.
        let waits_for_name = undecided && held.stamp.0 + 1 >= target.round.unwrap_or_default().0;
        let found = finding(copies, of);
        let Some(found) = found.filter(|found| *found != Finding::Surplus || !place.is_moving) else {
            let members = place.group.members().filter(|(at, _)| of.held >> at & 1 == 1);
            held.holders = members.map(|(_, node)| node).collect();
            return self.agenda.settle(&id);
        };
        let (bytes, pause_ns) = (held.bytes, self.config.again_ns);
        let looks = self.agenda.note(&id, found, now_ns.saturating_add(pause_ns));
        match found {
            _ if waits_for_name => self.again(now_ns, &id, Finding::Undecided, LATER),
            _ if looks < LOOKS => {}
            Finding::Lacking { is_first: true } if !undecided => {
                self.read(now_ns, Job { step: Step::Fetching, ..job }, bytes, target);
            }
            Finding::Surplus if !undecided => {
                let handle = self.initiator.confirm(now_ns, id, bytes, of.held & of.better);
                self.jobs.push(Job { step: Step::Confirming(handle), ..job });
            }
            _ => self.again(now_ns, &id, found, LATER),
        }
    }

    /// Enough that are before this target have it, with stamps that protect it for as long as its own does: it is dropped (P12).
    fn on_confirmed(
        &mut self,
        now_ns: u64,
        id: &ChunkId,
        stamps: &[(u8, Round)],
        place: &Place,
        target: &mut Target,
    ) {
        let own_stamp = target.held.get(id).map(|held| held.stamp).unwrap_or_default();
        let enough = stamps.iter().filter(|(_, stamp)| *stamp >= own_stamp).count() >= self.config.copies;
        if enough && !place.is_moving && place.own.is_some() {
            return self.drop_copy(id, target);
        }
        self.again(now_ns, id, Finding::Surplus, LATER);
    }

    fn drop_copy(&mut self, id: &ChunkId, target: &mut Target) {
        target.counters.surplus += 1;
        target.drop_copy(id);
        self.forget(id);
    }
}
