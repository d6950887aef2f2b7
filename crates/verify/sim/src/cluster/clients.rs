//! Clients: turns of their loops, and calls in addition to their workload.

use super::Cluster;
use super::event::Event;
use crate::checker::Action;
use crate::network::Host;
use nicekv_metadata::ChunkInfo;

impl Cluster {
    /// A client reads a key, in addition to its workload.
    pub fn get(&mut self, client: usize, key: usize) {
        self.call(client, key, Action::Get);
    }

    /// A client makes a call, in addition to its workload.
    pub fn call(&mut self, client: usize, key: usize, action: Action) {
        let now_ns = self.queue.now_ns();
        self.clients[client].call(now_ns, key, action, &self.scenario.workload, &mut self.tick);
        self.wake_client(client, now_ns);
    }

    /// A client continues under another client id, as a restarted client does.
    pub fn rename_client(&mut self, client: usize) {
        self.clients[client].rename(self.queue.now_ns());
    }

    /// Gives every client this many more calls to make.
    pub fn add_calls(&mut self, calls: usize) {
        let now_ns = self.queue.now_ns();
        for client in 0..self.clients.len() {
            self.clients[client].add_calls(calls);
            self.wake_client(client, now_ns);
        }
    }

    /// Gives every client with pub/sub this many more actions.
    pub fn add_messages(&mut self, actions: usize) {
        let now_ns = self.queue.now_ns();
        for client in 0..self.clients.len() {
            if let Some(listening) = &mut self.clients[client].listening {
                listening.add_actions(actions);
                self.wake_client(client, now_ns);
            }
        }
    }

    /// The number of the last call or answer.
    pub fn tick(&self) -> u64 {
        self.tick
    }

    pub(super) fn wake_client(&mut self, client: usize, at_ns: u64) {
        if self.clients[client].turn_at_ns.is_none_or(|turn_ns| at_ns < turn_ns) {
            self.clients[client].turn_at_ns = Some(at_ns);
            self.queue.at(at_ns, Event::ClientTurn(client));
        }
    }

    pub(super) fn client_turn(&mut self, index: usize) {
        let now_ns = self.queue.now_ns();
        if self.clients[index].turn_at_ns != Some(now_ns) {
            return;
        }
        self.clients[index].turn_at_ns = None;
        let mut outgoing = Vec::new();
        let chunks = self.told_of_chunks();
        let client = &mut self.clients[index];
        chunks.iter().for_each(|chunks| client.stamps.learn(chunks));
        client.turn(now_ns, &self.scenario.workload, &mut self.random, &mut self.tick, |to, bytes| {
            outgoing.push((to, bytes.to_vec()));
        });
        let (from, next_ns) = (client.address, client.next_turn_ns(&self.scenario.workload));
        for (to, bytes) in outgoing {
            self.send(Host::Client(index), from, to, &bytes);
        }
        if let Some(at_ns) = next_ns {
            self.wake_client(index, at_ns.max(now_ns + 1));
        }
    }

    /// The current round of garbage collection by the metadata service, if keys are names of
    /// objects.
    fn told_of_chunks(&self) -> Option<ChunkInfo> {
        let has_names = self.scenario.keyspaces.iter().any(|shape| shape.has_names);
        let leader = self.controllers.newest().filter(|_| has_names)?;
        leader.core.cluster_info().chunks
    }
}
