//! What may happen next in a state, within bounds, and letting it happen.

use super::calls::Call;
use super::{NODES, NOW, World};
use crate::explore::message::{Message, decoded};
use nicekv_proto::Datagram;

/// How often the rarer things may happen on one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// A message is lost.
    pub losses: u8,
    /// A node dies.
    pub crashes: u8,
    /// A dead node starts again and is admitted.
    pub restarts: u8,
    /// A node is removed.
    pub removals: u8,
    /// Also one that is alive, and does not hear of it. Else only a dead one, and its epoch is activated at once: it answers nobody.
    pub removes_live: bool,
    /// A node looks for what is overdue.
    pub sweeps: u8,
    /// A disk may take its time. Else it is done before anything else happens, unless its node dies first: a late force is then
    /// only seen as a late ack.
    pub slow_disks: bool,
}

impl Bounds {
    /// Nothing but delays.
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

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A message arrives.
    Deliver(Message),
    /// A message does not.
    Lose(Message),
    /// The disk has finished what it began first.
    Disk(usize),
    /// A client calls; a get goes to this node.
    Call(usize, usize),
    /// A node dies; of its log the records up to this one stay.
    Crash(usize, u64),
    /// It starts again.
    Restart(usize),
    /// A node is removed by a new epoch.
    Remove(usize),
    /// The epoch is activated: the removed one is asked no more.
    Activate,
    /// A node looks for what is overdue.
    Sweep(usize),
}

impl World {
    /// All steps from here.
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

    /// What may befall a node, or it may do by itself.
    fn faults_of(&self, index: usize) -> Vec<Step> {
        let (bounds, machine) = (&self.bounds, &self.machines[index]);
        let is_member = self.roles.members.contains(&index);
        let mut steps = Vec::new();
        match &machine.core {
            None if bounds.restarts > 0 && is_member => steps.push(Step::Restart(index)),
            None => {}
            Some(core) => {
                if bounds.crashes > 0 {
                    let (forced, appended) = (machine.disk.forced(), machine.disk.appended());
                    steps.extend((forced..=appended).map(|kept| Step::Crash(index, kept)));
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

    /// The calls of those who have not called.
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

    /// Takes a step. False if it is one that changes nothing.
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

    /// Whether a message will be refused for ever: its epoch is past for its receiver, or nobody is there to receive it.
    fn is_stale(&self, message: &Message) -> bool {
        let Some(status) = &self.machines[message.to].status else { return true };
        message.epoch.is_some_and(|epoch| epoch < status.epoch)
    }

    /// Whether nothing is under way, and every client has called.
    pub(in crate::explore) fn is_at_end(&self, steps: &[Step]) -> bool {
        self.callers.len() == self.script.len()
            && steps.iter().all(|step| match step {
                Step::Deliver(_) => !self.clone().take(step),
                Step::Disk(_) | Step::Activate | Step::Call(..) => false,
                _ => true,
            })
    }
}
