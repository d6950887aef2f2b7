//! The messages that make a switch run another program.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::layout::GENERATION;
use super::{Buckets, Flow, FlowKey, Generation, Program};
use crate::wire::{
    FlowCommand, FlowMod, GROUP_ALL, GroupCommand, GroupKind, GroupMod, Instruction, Match, Message,
    MeterCommand, MeterMod, TABLE_ALL,
};

/// The mark of our flows in the switch's own lists: "NICE".
const COOKIE: u64 = 0x4e49_4345;

/// The messages that turn one program into another. Each list may be sent after all of the one
/// before it is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Additions that no packet reaches yet.
    pub prepare: Vec<Message>,
    /// With bundles: all of this is one atomic change. Without: a single message.
    pub flip: Vec<Message>,
    /// Removals of what no packet reaches any more.
    pub clean: Vec<Message>,
    /// Takes back what `prepare` does without bundles.
    pub undo: Vec<Message>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.prepare.is_empty() && self.flip.is_empty() && self.clean.is_empty()
    }

    /// Puts the deletion of everything that the switch has before all else.
    pub fn delete_all_before(&mut self, generation: Generation) {
        let none = FlowKey { table: TABLE_ALL, priority: 0, matches: Match::default() };
        let all = [flow_mod(FlowCommand::Delete, &none, Vec::new()), delete_group(GROUP_ALL)];
        let first = match generation {
            Generation::Bundled => &mut self.flip,
            Generation::Numbered(_) => &mut self.prepare,
        };
        first.splice(0..0, all);
    }

    /// The changes from `old`, which the switch runs, to `new`. `generation`: of the new program.
    pub fn between(old: &Program, new: &Program, generation: Generation) -> Self {
        let mut changes = Self::default();
        for (meter, rate) in &new.meters {
            let before = old.meters.get(meter);
            if before != Some(rate) {
                let command = if before.is_some() { MeterCommand::Modify } else { MeterCommand::Add };
                changes.prepare.push(meter_mod(command, *meter, *rate));
            }
        }
        let [old_groups, new_groups] = [old, new].map(numbers_of_groups);
        let groups_added = new.groups.iter().filter(|(_, number)| !old_groups.contains(number));
        let groups_added = groups_added.map(|(buckets, number)| add_group(*number, buckets));
        let groups_removed = old_groups.difference(&new_groups).map(|number| delete_group(*number));
        let flows_set = new.flows.iter().filter_map(|(key, flow)| set_flow(old, key, flow));
        let flows_removed = old.flows.keys().filter(|key| !new.flows.contains_key(*key)).map(delete_flow);
        match generation {
            Generation::Bundled => {
                changes.flip.extend(groups_added.chain(flows_set).chain(flows_removed).chain(groups_removed));
            }
            Generation::Numbered(_) => {
                let is_flip =
                    |message: &Message| matches!(message, Message::FlowMod(flow) if flow.table == GENERATION);
                let (flip, prepare): (Vec<_>, Vec<_>) = flows_set.partition(is_flip);
                let flows = prepare.iter().filter_map(|message| match message {
                    Message::FlowMod(flow) => {
                        Some(Message::FlowMod(FlowMod { command: FlowCommand::DeleteStrict, ..flow.clone() }))
                    }
                    _ => None,
                });
                let groups = new_groups.difference(&old_groups);
                changes.undo = flows.chain(groups.map(|number| delete_group(*number))).collect();
                changes.prepare.extend(groups_added.chain(prepare));
                changes.flip = flip;
                changes.clean.extend(flows_removed.chain(groups_removed));
            }
        }
        let meters_removed = old.meters.iter().filter(|(meter, _)| !new.meters.contains_key(meter));
        changes.clean.extend(meters_removed.map(|(meter, _)| meter_mod(MeterCommand::Delete, *meter, 0)));
        changes
    }
}

fn numbers_of_groups(program: &Program) -> BTreeSet<u32> {
    program.groups.values().copied().collect()
}

fn meter_mod(command: MeterCommand, meter: u32, rate: u32) -> Message {
    // A burst of a tenth of a second.
    Message::MeterMod(MeterMod { command, meter, rate, burst: (rate / 10).max(1) })
}

fn add_group(group: u32, buckets: &Buckets) -> Message {
    let buckets = buckets.clone();
    Message::GroupMod(GroupMod { command: GroupCommand::Add, kind: GroupKind::All, group, buckets })
}

fn delete_group(group: u32) -> Message {
    let buckets = Vec::new();
    Message::GroupMod(GroupMod { command: GroupCommand::Delete, kind: GroupKind::All, group, buckets })
}

/// A flow that is there already is modified, which keeps its count.
fn set_flow(old: &Program, key: &FlowKey, flow: &Flow) -> Option<Message> {
    let command = match old.flows.get(key) {
        Some(before) if before.instructions == flow.instructions => return None,
        Some(_) => FlowCommand::ModifyStrict,
        None => FlowCommand::Add,
    };
    Some(flow_mod(command, key, flow.instructions.clone()))
}

fn delete_flow(key: &FlowKey) -> Message {
    flow_mod(FlowCommand::DeleteStrict, key, Vec::new())
}

fn flow_mod(command: FlowCommand, key: &FlowKey, instructions: Vec<Instruction>) -> Message {
    Message::FlowMod(FlowMod {
        command,
        table: key.table,
        priority: key.priority,
        cookie: COOKIE,
        cookie_mask: 0,
        matches: key.matches.clone(),
        instructions,
    })
}
