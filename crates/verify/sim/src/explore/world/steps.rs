//! Which steps may happen next in a state, within bounds, and how each changes the state.

use super::calls::Call;
use super::{NODES, NOW, World};
use crate::explore::message::{Message, decoded};
use nicekv_proto::Datagram;

/// How often each of the rarer steps may happen on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Lost messages.
    pub losses: u8,
    /// Crashes of nodes.
    pub crashes: u8,
    /// Restarts of crashed nodes, which are then admitted.
    pub restarts: u8,
    /// Removals of nodes.
    pub removals: u8,
    /// Whether a live node may be removed, without learning it. Otherwise only a crashed node is
    /// removed, and the new epoch is activated at once, since the node cannot answer anyone.
    pub removes_live: bool,
    /// How often a node may handle its deadlines.
    pub sweeps: u8,
    /// Whether syncs may be slow. Otherwise a sync completes before anything else happens, unless
    /// its node crashes first: other nodes can see a late sync only as a late acknowledgement.
    pub slow_disks: bool,
}

impl Bounds {
    /// No faults.
    pub const NONE: Self = Self {
        losses: 0,
        crashes: 0,
        restarts: 0,
        removals: 0,
        removes_live: false,
        sweeps: 0,
        slow_disks: false,
    };
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A message arrives.
    Deliver(Message),
    /// A message is lost.
    Lose(Message),
    /// The oldest disk operation of a node completes.
    Disk(usize),
    /// A client calls. A get goes to this node.
    Call(usize, usize),
    /// A node crashes. Its log keeps the records up to this one.
    Crash(usize, u64),
    /// A node restarts.
    Restart(usize),
    /// A node is removed by a new epoch.
    Remove(usize),
    /// The epoch is activated: clients no longer send gets to the removed node.
    Activate,
    /// A node handles its deadlines.
    Sweep(usize),
}

impl World {
    /// All steps that are possible in this state.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = (0..NODES).flat_map(|index| self.faults_of(index)).collect();
        if self.may_activate() {
            steps.push(Step::Activate);
        }
        steps.extend(self.first_calls());
        let busy: Vec<usize> = (0..NODES).filter(|index| !self.machines[*index].busy.is_empty()).collect();
        if let Some(first) = busy.first().filter(|_| !self.bounds.slow_disks) {
            steps.retain(|step| matches!(step, Step::Crash(..)));
            steps.push(Step::Disk(*first));
            return steps;
        }
        for message in &self.messages {
            if self.bounds.losses > 0 && !matches!(decoded(&message.bytes), Datagram::Assign(_)) {
                steps.push(Step::Lose(message.clone()));
            }
            steps.push(Step::Deliver(message.clone()));
        }
        steps.extend(busy.into_iter().map(Step::Disk));
        steps
    }

    /// The faults and timeouts of a node that are possible in this state.
    fn faults_of(&self, index: usize) -> Vec<Step> {
        let (bounds, machine) = (&self.bounds, &self.machines[index]);
        let is_member = self.roles.members.contains(&index);
        let mut steps = Vec::new();
        match &machine.core {
            None if bounds.restarts > 0 && is_member => steps.push(Step::Restart(index)),
            None => {}
            Some(core) => {
                if bounds.crashes > 0 {
                    let (synced, appended) = (machine.disk.synced(), machine.disk.appended());
                    steps.extend((synced..=appended).map(|kept| Step::Crash(index, kept)));
                }
                if bounds.sweeps > 0 && core.next_deadline() <= NOW.boot_ns {
                    steps.push(Step::Sweep(index));
                }
            }
        }
        let is_removable = bounds.removes_live || machine.core.is_none();
        if bounds.removals > 0 && is_removable && is_member && self.roles.members.len() > 1 {
            steps.push(Step::Remove(index));
        }
        steps
    }

    /// First calls of clients that have not called yet.
    fn first_calls(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for client in (0..self.script.len()).filter(|client| !self.callers.contains(client)) {
            match self.script[client] {
                Call::Get => steps.extend(self.roles.unicast.iter().map(|node| Step::Call(client, *node))),
                Call::Update(_) | Call::Transaction(_) => steps.push(Step::Call(client, 0)),
            }
        }
        steps
    }

    /// Takes a step. False if it changes nothing.
    pub fn take(&mut self, step: &Step) -> bool {
        match step {
            Step::Deliver(message) => {
                self.messages.remove(message);
                let before = (self.machines[message.to].fingerprint, self.messages.len(), self.events);
                self.receive(message);
                let after = (self.machines[message.to].fingerprint, self.messages.len(), self.events);
                if before == after && !self.is_stale(message) {
                    return false;
                }
            }
            Step::Lose(message) => {
                self.bounds.losses -= 1;
                self.messages.remove(message);
            }
            Step::Disk(index) => self.finish_disk(*index),
            Step::Call(client, target) => self.call(*client, *target),
            Step::Crash(index, kept) => {
                self.bounds.crashes -= 1;
                self.crash(*index, *kept);
            }
            Step::Restart(index) => {
                self.bounds.restarts -= 1;
                self.restart(*index);
            }
            Step::Remove(index) => {
                self.bounds.removals -= 1;
                self.remove(*index);
            }
            Step::Activate => self.activate(),
            Step::Sweep(index) => {
                self.bounds.sweeps -= 1;
                self.act(*index, |core, _| core.handle_deadline(NOW));
            }
        }
        let stale: Vec<Message> =
            self.messages.iter().filter(|message| self.is_stale(message)).cloned().collect();
        stale.iter().for_each(|message| {
            self.messages.remove(message);
        });
        true
    }

    /// Whether a message can never be accepted: its receiver has gone past its epoch, or is down
    /// for good.
    fn is_stale(&self, message: &Message) -> bool {
        let Some(status) = &self.machines[message.to].status else { return true };
        message.epoch.is_some_and(|epoch| epoch < status.epoch)
    }

    /// Whether no work is in flight, and every client has called.
    pub(in crate::explore) fn is_at_end(&self, steps: &[Step]) -> bool {
        self.callers.len() == self.script.len()
            && steps.iter().all(|step| match step {
                Step::Deliver(_) => !self.clone().take(step),
                Step::Disk(_) | Step::Activate | Step::Call(..) => false,
                _ => true,
            })
    }
}
