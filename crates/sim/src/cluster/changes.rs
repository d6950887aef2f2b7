//! What an operator asks of the metadata service: nodes that are added, drained and removed.

use super::Cluster;
use super::event::Event;
use crate::cluster::Mishap;
use nicekv_metadata::{Change, NodeConfig};

impl Cluster {
    /// The operator asks for something, sensible or not.
    pub(super) fn draw_change(&mut self) {
        if self.faults.change_interval_ns == 0 {
            return;
        }
        let node = self.random.below(self.nodes.len() as u64) as usize;
        match self.random.below(8) {
            0..4 => self.inflict(Mishap::Add(node)),
            4..7 => self.inflict(Mishap::Drain(node)),
            _ => self.inflict(Mishap::Remove(node)),
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
}
