//! The operator adds, drains and removes nodes.

use super::Cluster;
use super::event::Event;
use crate::cluster::Fault;
use nicekv_metadata::{Change, Metadata, NodeConfig};
use std::fmt::Debug;

impl Cluster {
    /// The operator requests a random change of the set of nodes, sensible or not.
    pub(super) fn draw_change(&mut self) {
        if self.faults.change_interval_ns == 0 {
            return;
        }
        let node = self.random.below(self.nodes.len() as u64) as usize;
        match self.random.below(8) {
            _ if self.losses.is_some() => {}
            0..4 => self.inject(Fault::Add(node)),
            4..7 => self.inject(Fault::Drain(node)),
            _ => self.inject(Fault::Remove(node)),
        }
        let interval_ns = self.faults.change_interval_ns;
        let pause_ns = self.random.between(interval_ns / 4, interval_ns);
        self.queue.after(pause_ns, Event::Change);
    }

    pub(super) fn node_config(&self, node: usize) -> NodeConfig {
        let node = &self.nodes[node];
        NodeConfig {
            id: node.id,
            name: node.id.to_string(),
            address: node.address,
            mac: [2, 0, 0, 0, 0, node.id.0 as u8],
            switch_port: node.id.0,
            home: None,
        }
    }

    pub(super) fn add_node(&mut self, node: usize) {
        let NodeConfig { name, address, mac, switch_port, home, .. } = self.node_config(node);
        self.change(node, &Change::Add { name, address, mac, switch_port, home });
    }

    pub(super) fn drain_node(&mut self, node: usize) {
        self.change(node, &Change::Drain { name: self.node_config(node).name });
    }

    pub(super) fn remove_node(&mut self, node: usize) {
        self.change(node, &Change::Remove { name: self.node_config(node).name });
    }

    /// Requests a change that concerns this node from the newest metadata process.
    pub(super) fn change(&mut self, node: usize, change: &Change) {
        let id = self.nodes[node].id;
        self.places.are_asked |= self.ask_newest("changes of the set of nodes", change, |core| {
            // The metadata service numbers nodes in order, so a spare gets its own number only
            // after all spares before it were added.
            let plan = core.plan(change).ok().filter(|plan| plan.node == id.0);
            plan.is_some() && core.change(change).is_ok()
        });
    }

    /// Requests something from the newest metadata process. If it is not refused, counts it as
    /// `what` and returns true.
    pub(super) fn ask_newest(
        &mut self,
        what: &'static str,
        wanted: &impl Debug,
        ask: impl FnOnce(&mut Metadata) -> bool,
    ) -> bool {
        let now_ns = self.queue.now_ns();
        if let Some(process) = self.controllers.newest().map(|newest| newest.process) {
            self.tell_hold(process);
        }
        let newest = self.controllers.newest_mut().filter(|newest| newest.paused_until_ns <= now_ns);
        let Some(newest) = newest else { return false };
        if !ask(&mut newest.core) {
            return false;
        }
        let process = newest.process;
        self.tally.count(what);
        self.note(|_| Some(format!("asked of metadata: {wanted:?}")));
        self.drive_metadata(process);
        true
    }
}
