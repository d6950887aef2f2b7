//! Groups of targets, driven by the metadata service (P11, P13).
//!
//! ```text
//!   a target is lost ──▶ removed from the current and the former groups
//!                    ──▶ when all targets report that no chunk lacks copies, another one may be lost
//!   groups change    ──▶ map version v+1, which also has the former groups
//!                    ──▶ when all targets report that all chunks have moved: version v+2, without them
//! ```

use super::disk::Disk;
use super::world::{Event, MS, TargetHost, World};
use nicekv_objects::{Group, Layout, Map, Progress, SLOTS};
use nicekv_proto::NodeId;
use nicekv_proto::chunk::MapVersion;
use nicekv_proto::placement::GROUP_MEMBERS_MAX;
use std::sync::Arc;

/// Interval at which the metadata service reads the progress of all targets.
const HEARD_MS: u64 = 15;
/// Interval at which initiators poll the map.
const ASKED_MS: u64 = 200;
/// Maximum time until the metadata service notices that a target is lost.
const FOUND_OUT_MS: u64 = 60;
/// Maximum targets of a world, including lost ones.
const TARGETS_MAX: usize = 30;

/// A kind of change of the groups.
#[derive(Clone, Copy, Debug)]
enum Change {
    Places,
    Join,
    Member,
    Slots,
    Split,
    Merge,
}

impl World {
    /// Progress reports of all targets, if all are up and use the newest map.
    fn heard(&self) -> Option<Vec<Progress>> {
        let version = self.map.version();
        let there = self.targets.iter().filter(|host| !host.is_gone);
        let said = there.map(|host| host.core.as_ref().map(|core| core.progress()));
        said.map(|said| said.filter(|said| said.version == version)).collect()
    }

    pub(super) fn oversee(&mut self) {
        self.queue.after(HEARD_MS * MS, Event::Oversee);
        let Some(heard) = self.heard() else { return };
        if self.map.before().is_some() && heard.iter().all(|said| said.has_moved) {
            self.report.reshaped += 1;
            return self.set_groups(self.map.layout().clone(), None);
        }
        let is_damaged = self.targets.iter().any(|host| !host.disk.damaged.is_empty());
        // A lost target sends no reports until it is removed.
        let is_in_map = |host: &TargetHost| self.map.place_of(host.node).is_some();
        let is_missed = self.targets.iter().any(|host| host.is_gone && is_in_map(host));
        // A copy that was damaged may have been counted until now.
        if core::mem::replace(&mut self.has_damaged, is_damaged) || is_damaged || is_missed {
            let passes = heard.iter().map(|said| said.passes).collect();
            self.passed_before = Some((self.map.version(), passes));
        }
        let is_well = |(at, said): (usize, &Progress)| {
            let before = self.passed_before.as_ref().filter(|(version, _)| *version == said.version);
            let before = before.map(|(_, passes)| passes[at]..passes[at] + 2);
            // A maintenance pass that was under way at that time may have found a state that has
            // changed since: only a later pass counts. A restarted process counts passes from 0.
            let has_passed = said.passes > 0 && !before.is_some_and(|before| before.contains(&said.passes));
            has_passed && said.lacking + said.unsettled + said.undecided == 0
        };
        if !self.is_whole && !is_missed && !is_damaged && heard.iter().enumerate().all(is_well) {
            self.judge.excuse_no_more();
            self.is_whole = true;
            self.judge_whole();
        }
    }

    fn set_groups(&mut self, layout: Layout, before: Option<Layout>) {
        let version = MapVersion(self.map.version().0 + 1);
        self.map = Arc::new(Map::of(version, layout, before).expect("slots have members"));
        self.tell_all();
        // Initiators learn of the new map from targets, or when they poll.
        for initiator in 0..self.initiators.len() {
            let at_ns = self.queue.now_ns() + self.random.below(ASKED_MS * MS);
            self.queue.at(at_ns, Event::TellInitiator { initiator });
        }
    }

    /// Loses a target and its data. The next one is lost only after this data is restored.
    pub(super) fn lose_target(&mut self, target: usize) {
        let group = self.map.place_of(self.targets[target].node).map(|(group, _)| group);
        let has_others = group.is_some_and(|group| self.members(group).len() > self.members_min());
        if !self.is_whole || !has_others {
            return;
        }
        self.kill_target(target);
        let host = &mut self.targets[target];
        let lost = std::mem::replace(&mut host.disk, Disk::new(0, 4));
        host.is_gone = true;
        lost.chunks.keys().for_each(|id| self.judge.excuse(*id));
        self.is_whole = false;
        self.report.lost += 1;
        let at_ns = self.queue.now_ns() + self.random.below(FOUND_OUT_MS * MS);
        self.queue.at(at_ns, Event::Remove { target });
    }

    pub(super) fn remove(&mut self, target: usize) {
        let node = self.targets[target].node;
        let without = |layout: &Layout| {
            let groups = layout.groups().iter().map(|group| group.without(node)).collect();
            Layout::new(groups, *layout.slots()).expect("no group is new")
        };
        self.set_groups(without(self.map.layout()), self.map.before().map(without));
    }

    fn members(&self, group: u8) -> Vec<NodeId> {
        self.map.group(group).into_iter().flat_map(|group| group.members().map(|(_, node)| node)).collect()
    }

    /// With fewer members in a group, a single crash would block all puts.
    fn members_min(&self) -> usize {
        self.shape.copies + 1
    }

    /// Changes the groups at random, if the change is possible.
    pub(super) fn change_map(&mut self) {
        let is_reshaping = self.map.before().is_some();
        let all = [Change::Places, Change::Join, Change::Member, Change::Slots, Change::Split, Change::Merge];
        let change = if is_reshaping { Change::Places } else { self.random.pick(&all) };
        let groups = self.map.layout().groups();
        let mut members: Vec<Vec<NodeId>> = (0..groups.len()).map(|at| self.members(at as u8)).collect();
        let mut slots = *self.map.layout().slots();
        let moves = match change {
            Change::Places => Some(false),
            Change::Join => self.join(&mut members),
            Change::Member => self.move_member(&mut members),
            Change::Slots => self.move_slots(&members, &mut slots),
            Change::Split => self.split(&mut members, &mut slots),
            Change::Merge => self.merge(&mut members, &mut slots),
        };
        let Some(moves) = moves else { return };
        let groups = members.into_iter().map(|members| self.placed(members)).collect();
        let layout = Layout::new(groups, slots).expect("each is in one");
        let before = if moves { Some(self.map.layout()) } else { self.map.before() };
        self.set_groups(layout, before.cloned());
    }

    /// The members of a group, at any places.
    fn placed(&mut self, mut members: Vec<NodeId>) -> Group {
        let mut places = [None; GROUP_MEMBERS_MAX];
        let width = GROUP_MEMBERS_MAX.min(members.len() + self.random.below(3) as usize);
        for (at, place) in places.iter_mut().enumerate().take(width) {
            let left = width - at;
            // As many as are left have room in what is left.
            if left <= members.len() || self.random.below(left as u64) < members.len() as u64 {
                let at = self.random.below(members.len() as u64) as usize;
                *place = Some(members.swap_remove(at));
            }
        }
        Group::at_places(&places).unwrap_or_default()
    }

    fn any_group(&mut self, members: &[Vec<NodeId>], is_fit: impl Fn(usize) -> bool) -> Option<usize> {
        let fit: Vec<usize> = (0..members.len()).filter(|at| is_fit(members[*at].len())).collect();
        (!fit.is_empty()).then(|| self.random.pick(&fit))
    }

    fn join(&mut self, members: &mut [Vec<NodeId>]) -> Option<bool> {
        let target = self.targets.len();
        if target >= TARGETS_MAX {
            return None;
        }
        let group = self.any_group(members, |count| (1..GROUP_MEMBERS_MAX).contains(&count))?;
        let node = NodeId(target as u16);
        members[group].push(node);
        self.targets.push(TargetHost::new(node, Disk::new(self.shape.faults.disk_bytes, 4)));
        self.start_target(target);
        Some(false)
    }

    fn move_member(&mut self, members: &mut [Vec<NodeId>]) -> Option<bool> {
        let least = self.members_min();
        let from = self.any_group(members, |count| count > least)?;
        let to = self.any_group(members, |count| (1..GROUP_MEMBERS_MAX).contains(&count))?;
        let node = members[from][0];
        members[from].remove(0);
        members[to].push(node);
        (from != to).then_some(true)
    }

    fn move_slots(&mut self, members: &[Vec<NodeId>], slots: &mut [u8; SLOTS]) -> Option<bool> {
        let to = self.any_group(members, |count| count > 0)?;
        let from = self.any_group(members, |count| count > 0)?;
        let every = self.random.between(1, 3) as usize;
        let own = slots.iter_mut().filter(|group| **group == from as u8);
        own.step_by(every).for_each(|group| *group = to as u8);
        (from != to).then_some(true)
    }

    fn split(&mut self, members: &mut Vec<Vec<NodeId>>, slots: &mut [u8; SLOTS]) -> Option<bool> {
        let least = self.members_min();
        let from = self.any_group(members, |count| count >= 2 * least)?;
        let half = members[from].len() / 2;
        let others = members[from].split_off(half);
        let to = members.iter().position(Vec::is_empty).unwrap_or(members.len());
        members.resize(members.len().max(to + 1), Vec::new());
        members[to] = others;
        let own = slots.iter_mut().filter(|group| **group == from as u8);
        own.step_by(2).for_each(|group| *group = to as u8);
        Some(true)
    }

    fn merge(&mut self, members: &mut [Vec<NodeId>], slots: &mut [u8; SLOTS]) -> Option<bool> {
        let from = self.any_group(members, |count| count > 0)?;
        let room = GROUP_MEMBERS_MAX - members[from].len();
        let to = self.any_group(members, |count| (1..=room).contains(&count))?;
        if from == to {
            return None;
        }
        let all = std::mem::take(&mut members[from]);
        members[to].extend(all);
        slots.iter_mut().filter(|group| **group == from as u8).for_each(|group| *group = to as u8);
        Some(true)
    }
}
