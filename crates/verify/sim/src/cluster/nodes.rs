//! Nodes: turns of their loops, disks, crashes, restarts.

use super::Cluster;
use super::event::Event;
use crate::disk::Busy;
use crate::kernel::Answer;
use crate::network::Host;
use crate::node::Kept;

impl Cluster {
    pub(super) fn start_node(&mut self, node: usize) {
        if self.nodes[node].core.is_some() {
            return;
        }
        let now_ns = self.queue.now_ns();
        self.nodes[node].start(now_ns, &self.surroundings, &mut self.random);
        self.names.add(self.nodes[node].internal_client, format!("n{}", node + 1));
        self.note(|names| Some(format!("{} starts", names.host(Host::Node(node)))));
        self.wake_node(node, now_ns);
    }

    pub(super) fn wake_node(&mut self, node: usize, at_ns: u64) {
        let at_ns = at_ns.max(self.nodes[node].paused_until_ns);
        if self.nodes[node].core.is_some()
            && self.nodes[node].turn_at_ns.is_none_or(|turn_ns| at_ns < turn_ns)
        {
            self.nodes[node].turn_at_ns = Some(at_ns);
            self.queue.at(at_ns, Event::NodeTurn(node));
        }
    }

    pub(super) fn node_turn(&mut self, index: usize) {
        let now_ns = self.queue.now_ns();
        if self.nodes[index].turn_at_ns != Some(now_ns) || self.nodes[index].core.is_none() {
            return;
        }
        self.nodes[index].turn_at_ns = None;
        self.draw_node_fault(index);
        if now_ns < self.nodes[index].paused_until_ns {
            return self.wake_node(index, now_ns);
        }
        let busy = self.nodes[index].turn(now_ns, self.scenario.pace.service_ns, &mut self.random);
        self.end_turn(index, busy);
    }

    /// Continues after a turn with its disk operations, unless an op crashed the process during the
    /// turn.
    fn end_turn(&mut self, index: usize, busy: Vec<Busy>) {
        if self.nodes[index].has_ended() {
            self.tally.count("processes ended by an op");
            let downtime_ns = self.random.below(self.faults.downtime_max_ns);
            return self.crash_node(index, Kept::Any, Some(downtime_ns));
        }
        self.start_disk(index, busy);
        self.flush_node(index);
    }

    pub(super) fn crash_node(&mut self, index: usize, kept: Kept, downtime_ns: Option<u64>) {
        if self.nodes[index].core.is_none() {
            return;
        }
        self.note(|names| Some(format!("{} is killed", names.host(Host::Node(index)))));
        let core = self.nodes[index].core.as_ref().expect("checked");
        self.tally.add_counters(&core.status());
        self.nodes[index].crash(kept, &mut self.random);
        if self.scenario.edges && self.random.below(2) == 0 {
            // The whole host fails: its own switch restarts with it.
            self.crash_switch(index);
            self.part_agent(index, downtime_ns.unwrap_or(u64::MAX / 2));
        }
        let process = (index, self.nodes[index].process);
        self.connections
            .retain(|_, connection| connection.dialer != process && connection.acceptor != process);
        if let Some(downtime_ns) = downtime_ns {
            self.queue.after(downtime_ns, Event::NodeStart(index));
        }
    }

    pub(super) fn start_disk(&mut self, index: usize, busy: Vec<Busy>) {
        let now_ns = self.queue.now_ns();
        let slowness = self.slowness(Host::Node(index));
        for busy in busy {
            let takes_ns = self.scenario.pace.disk_ns + self.random.below(self.faults.disk_max_ns);
            let node = &mut self.nodes[index];
            node.disk_free_ns = node.disk_free_ns.max(now_ns + takes_ns * slowness);
            let (at_ns, process) = (node.disk_free_ns, node.process);
            self.queue.at(at_ns, Event::DiskDone { node: index, process, busy: Box::new(busy) });
        }
    }

    pub(super) fn disk_done(&mut self, index: usize, process: u64, busy: Box<Busy>) {
        let now_ns = self.queue.now_ns();
        let is_there = |cluster: &Self| {
            let node = &cluster.nodes[index];
            node.process == process && node.core.is_some()
        };
        if !is_there(self) {
            return;
        }
        self.draw_node_fault(index);
        if !is_there(self) {
            return;
        }
        if now_ns < self.nodes[index].paused_until_ns {
            let at_ns = self.nodes[index].paused_until_ns;
            return self.queue.at(at_ns, Event::DiskDone { node: index, process, busy });
        }
        if matches!(*busy, Busy::Force { .. }) {
            self.note(|names| Some(format!("{} has synced its log", names.host(Host::Node(index)))));
        }
        self.nodes[index].done.push_back(*busy);
        if self.faults.late_disk_ns > 0 && self.turns.below(2) == 0 {
            // A busy machine handles the completion later, and new datagrams with it.
            let late_ns = self.turns.below(self.faults.late_disk_ns);
            return self.wake_node(index, now_ns + late_ns);
        }
        let more = self.nodes[index].turn(now_ns, self.scenario.pace.service_ns, &mut self.random);
        self.end_turn(index, more);
    }

    /// Sends the core's datagrams, and schedules the node's next turn.
    pub(super) fn flush_node(&mut self, index: usize) {
        let from = self.nodes[index].address;
        let mut bytes = Vec::new();
        while let Some(to) = self.nodes[index].poll_transmit(&mut bytes) {
            self.send(Host::Node(index), from, to, &bytes);
        }
        self.pass_kernel(index);
        while let Some((peer, frame)) = self.nodes[index].core.as_mut().and_then(|core| core.poll_stream()) {
            self.send_frame(index, peer, frame);
        }
        if let Some(core) = &self.nodes[index].core {
            let at_ns = self.nodes[index].clock.when(core.next_deadline());
            self.wake_node(index, at_ns);
        }
        if self.nodes[index].is_unfinished {
            let late_ns = self.turns.below(self.faults.late_disk_ns.max(1));
            self.wake_node(index, self.queue.now_ns() + late_ns);
        }
        if !self.nodes[index].inbox.is_empty() {
            self.wake_node(index, self.nodes[index].busy_until_ns);
        }
    }

    /// Sends the answers of a node's kernel, whatever state the process is in.
    pub(super) fn pass_kernel(&mut self, index: usize) {
        let from = self.nodes[index].address;
        for Answer { to, bytes, is_copy } in self.nodes[index].pass_kernel(self.scenario.pace.inbox_max) {
            self.tally.count("gets answered by a kernel");
            if is_copy {
                self.tally.count("gets answered by a kernel from copies");
            }
            self.send(Host::Node(index), from, to, &bytes);
        }
    }
}
