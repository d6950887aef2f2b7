//! Passes datagrams, timers and disk completions into the cores, and handles their output.

use super::disk::Doing;
use super::world::{Event, MS, Party, World};
use nicekv_objects::{Destination, Transmit};
use nicekv_proto::{HeaderLayout, Opcode};
use std::net::{Ipv4Addr, SocketAddrV4};

const TARGET_PORT: u16 = 7401;
/// Minimum latency of a datagram.
const DELAY_NS: u64 = 5_000;
/// Maximum jitter of a datagram.
const JITTER_NS: u64 = 60_000;
const LATE_NS: u64 = 2 * MS;

/// A restarted process has another port.
fn port_of(life: u64) -> u16 {
    20_000 + (life % 20_000) as u16
}

impl World {
    pub(super) fn address(&self, party: Party) -> SocketAddrV4 {
        match party {
            Party::Target(target) => {
                SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, target as u8 + 1), TARGET_PORT)
            }
            Party::Initiator(initiator) => {
                let ip = Ipv4Addr::new(10, 1, 0, initiator as u8 + 1);
                SocketAddrV4::new(ip, port_of(self.initiators[initiator].life))
            }
        }
    }

    fn party_at(&self, address: SocketAddrV4) -> Party {
        let [_, kind, _, number] = address.ip().octets();
        let number = usize::from(number) - 1;
        if kind == 0 { Party::Target(number) } else { Party::Initiator(number) }
    }

    /// Sends a datagram as the switch does: a multicast goes to the group members whose bits are
    /// set, by the switch's map.
    fn send(&mut self, from: Party, send: Transmit) {
        match send.to {
            Destination::Host(address) => {
                self.transmit(from, self.party_at(address), address.port(), &send.bytes);
            }
            Destination::Group { group, mask } => {
                let members: Vec<_> =
                    self.map.group(group).into_iter().flat_map(|group| group.members()).collect();
                for (place, node) in members {
                    if mask >> place & 1 == 1 {
                        self.transmit(from, Party::Target(usize::from(node.0)), TARGET_PORT, &send.bytes);
                    }
                }
            }
        }
    }

    fn transmit(&mut self, from: Party, to: Party, port: u16, bytes: &[u8]) {
        let (faults, now_ns) = (self.shape.faults, self.queue.now_ns());
        let from = self.address(from);
        let copies = if self.random.chance(faults.duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            if self.random.chance(faults.loss) {
                continue;
            }
            let mut bytes = bytes.to_vec();
            let is_frame = HeaderLayout::peek(&bytes).and_then(HeaderLayout::opcode) == Some(Opcode::Chunk);
            if is_frame && self.random.chance(faults.garble) {
                let at = bytes.len() - 1;
                bytes[at] ^= 1 << self.random.below(8);
            }
            let late_ns = if self.random.chance(faults.late) { self.random.below(LATE_NS) } else { 0 };
            let at_ns = now_ns + DELAY_NS + self.random.below(JITTER_NS) + late_ns;
            self.queue.at(at_ns, Event::Arrive { party: to, port, from, bytes });
        }
    }

    pub(super) fn arrive(&mut self, party: Party, port: u16, from: SocketAddrV4, bytes: &[u8]) {
        let now_ns = self.queue.now_ns();
        match party {
            Party::Target(target) => {
                let host = &mut self.targets[target];
                let hears = host.cut_until_ns <= now_ns;
                if let Some(core) = host.core.as_mut().filter(|_| hears) {
                    core.handle_datagram(now_ns, from, bytes);
                    self.drain_target(target);
                }
            }
            Party::Initiator(initiator) => {
                let host = &mut self.initiators[initiator];
                if port == port_of(host.life) {
                    host.core.handle_datagram(now_ns, bytes);
                    self.drain_initiator(initiator);
                }
            }
        }
    }

    pub(super) fn on_timer(&mut self, party: Party, life: u64) {
        let now_ns = self.queue.now_ns();
        match party {
            Party::Target(target) => {
                let host = &mut self.targets[target];
                // An earlier deadline was set since; this timer is obsolete.
                let is_due = host.life == life && host.armed_ns <= now_ns;
                if let Some(core) = host.core.as_mut().filter(|_| is_due) {
                    host.armed_ns = u64::MAX;
                    core.handle_deadline(now_ns);
                    self.drain_target(target);
                }
            }
            Party::Initiator(initiator) => {
                let host = &mut self.initiators[initiator];
                if host.life == life && host.armed_ns <= now_ns {
                    host.armed_ns = u64::MAX;
                    host.core.handle_deadline(now_ns);
                    self.drain_initiator(initiator);
                }
            }
        }
    }

    /// Handles the output of a target's core.
    pub(super) fn drain_target(&mut self, target: usize) {
        let now_ns = self.queue.now_ns();
        loop {
            let host = &mut self.targets[target];
            let Some(core) = &mut host.core else { return };
            if let Some(request) = core.poll_storage() {
                let life = host.life;
                if let Some((at_ns, doing)) = host.disk.request(now_ns, request) {
                    self.queue.at(at_ns, Event::Disk { target, life, doing });
                }
            } else if let Some(send) = core.poll_transmit(now_ns) {
                self.send(Party::Target(target), send);
            } else {
                break;
            }
        }
        self.judge_bounds(target);
        let host = &mut self.targets[target];
        let Some(core) = &mut host.core else { return };
        core.set_free(host.disk.free());
        let next_ns = core.next_deadline();
        if next_ns < host.armed_ns {
            host.armed_ns = next_ns;
            let (at_ns, life) = (next_ns.max(now_ns + 1_000), host.life);
            self.queue.at(at_ns, Event::Timer { party: Party::Target(target), life });
        }
    }

    /// Handles the output of an initiator's core, including results for its user.
    pub(super) fn drain_initiator(&mut self, initiator: usize) {
        let now_ns = self.queue.now_ns();
        while let Some(send) = self.initiators[initiator].core.poll_transmit(now_ns) {
            self.send(Party::Initiator(initiator), send);
        }
        while let Some(event) = self.initiators[initiator].core.poll_event() {
            self.on_event(initiator, event);
        }
        let host = &mut self.initiators[initiator];
        let next_ns = host.core.next_deadline();
        if next_ns < host.armed_ns {
            host.armed_ns = next_ns;
            let (at_ns, life) = (next_ns.max(now_ns + 1_000), host.life);
            self.queue.at(at_ns, Event::Timer { party: Party::Initiator(initiator), life });
        }
    }

    pub(super) fn on_disk(&mut self, target: usize, life: u64, doing: Doing) {
        let now_ns = self.queue.now_ns();
        let host = &mut self.targets[target];
        let is_alive = host.life == life;
        let done = match doing {
            Doing::Force(op) if is_alive => host.disk.sync(op),
            Doing::Read(done) => Some(done),
            Doing::Removed(id) => return self.judge_removal(target, &id),
            Doing::Force(_) => None,
        };
        if let (Some(core), Some(done)) = (host.core.as_mut().filter(|_| is_alive), done) {
            core.handle_storage(now_ns, done);
            self.drain_target(target);
        }
    }
}
