//! Faults: processes crash and restart, disks are damaged or replaced by older copies, targets are
//! lost.

use super::shape::Shape;
use super::world::{Event, Fault, MS, World};
use nicekv_objects::{Initiator, InitiatorConfig, MaintenanceConfig, Target, TargetConfig, Timing};
use nicekv_proto::ClientId;

/// Maximum downtime of a process.
const DOWN_MS: u64 = 60;
const CUT_MS: u64 = 40;

impl World {
    pub(super) fn schedule_faults(&mut self) {
        use Fault::{Crash, Cut, Damage, Initiator, Loss, Map, Older, Power};
        for fault in [Crash, Power, Initiator, Cut, Damage, Map, Loss, Older] {
            self.schedule(fault);
        }
        let round_ms = self.shape.faults.round_ms;
        if round_ms > 0 {
            self.queue.at(self.random.below(round_ms * MS), Event::NextRound);
        }
    }

    fn every_ms(&self, fault: Fault) -> u64 {
        let faults = &self.shape.faults;
        match fault {
            Fault::Crash => faults.crash_ms,
            Fault::Power => faults.power_ms,
            Fault::Initiator => faults.initiator_ms,
            Fault::Cut => faults.cut_ms,
            Fault::Damage => faults.damage_ms,
            Fault::Map => faults.map_ms,
            Fault::Loss => faults.loss_ms,
            Fault::Older => faults.older_ms,
        }
    }

    fn schedule(&mut self, fault: Fault) {
        let every_ms = self.every_ms(fault);
        if every_ms > 0 && !self.is_healed {
            let at_ns = self.queue.now_ns() + self.random.below(2 * every_ms * MS);
            self.queue.at(at_ns, Event::Fault(fault));
        }
    }

    pub(super) fn fail(&mut self, fault: Fault) {
        if self.is_healed {
            return;
        }
        self.schedule(fault);
        let target = self.random.below(self.targets.len() as u64) as usize;
        match fault {
            Fault::Crash | Fault::Power => self.kill_target(target),
            Fault::Initiator => self.kill_initiator(),
            Fault::Cut => {
                let until_ns = self.queue.now_ns() + self.random.below(CUT_MS * MS);
                self.targets[target].cut_until_ns = until_ns;
            }
            Fault::Damage => self.damage(target),
            Fault::Map => self.change_map(),
            Fault::Loss => self.lose_target(target),
            Fault::Older => self.keep_or_put_back(),
        }
    }

    pub(super) fn kill_target(&mut self, target: usize) {
        let now_ns = self.queue.now_ns();
        let host = &mut self.targets[target];
        if host.core.take().is_none() {
            return;
        }
        self.report.crashes += 1;
        host.life += 1;
        host.disk.forget(now_ns);
        let at_ns = now_ns + self.random.below(DOWN_MS * MS);
        self.queue.at(at_ns, Event::Start { target });
    }

    pub(super) fn start_target(&mut self, target: usize) {
        let host = &mut self.targets[target];
        if host.core.is_some() || host.is_gone {
            return;
        }
        let mut secret = [target as u8 + 1; 32];
        secret[..8].copy_from_slice(&(host.life * 64 + target as u64 + 1).to_be_bytes());
        let config = TargetConfig {
            node: host.node,
            process: host.life + 1,
            reservation: self.shape.reservation,
            disk_bytes_per_second: 250 << 20,
            secret,
            maintenance: Some(tending_of(&self.shape, target, host.life)),
        };
        let on_disk = host.disk.chunks.iter();
        let on_disk = on_disk.map(|(id, (bytes, holders))| (*id, bytes.len() as u32, holders.clone()));
        host.core = Some(Target::new(config, on_disk).expect("the parameters can be"));
        host.armed_ns = u64::MAX;
        let (at_ns, life) = (self.queue.now_ns() + self.random.below(3 * MS), host.life);
        self.queue.at(at_ns, Event::Tell { target, life });
    }

    pub(super) fn new_initiator(&mut self, initiator: usize, life: u64) -> Initiator {
        let config = InitiatorConfig {
            client: ClientId((life + 1) << 8 | initiator as u64),
            copies: self.shape.copies + initiator % 2 * self.shape.more_copies,
            reservation: self.shape.reservation,
            timing: self.shape.timing,
        };
        Initiator::new(config, self.random.bits()).expect("the parameters can be")
    }

    fn kill_initiator(&mut self) {
        let initiator = self.random.below(self.initiators.len() as u64) as usize;
        self.report.crashes += 1;
        let life = self.initiators[initiator].life + 1;
        let core = self.new_initiator(initiator, life);
        let host = &mut self.initiators[initiator];
        (host.core, host.life, host.armed_ns) = (core, life, u64::MAX);
        if host.task.take().is_some() {
            self.report.unknown += 1;
        }
        let at_ns = self.queue.now_ns() + MS;
        self.queue.at(at_ns, Event::TellInitiator { initiator });
        self.queue.at(at_ns + MS, Event::User { initiator });
    }

    /// Damages a copy on a disk. The copy no longer counts.
    fn damage(&mut self, target: usize) {
        if !self.is_whole {
            // Not while another copy of the chunk may be missing.
            return;
        }
        let disk = &mut self.targets[target].disk;
        let count = disk.chunks.len() as u64;
        let Some(id) = disk.chunks.keys().nth(self.random.below(count) as usize).copied() else { return };
        if disk.damaged.insert(id) {
            self.judge.excuse(id);
            (self.is_whole, self.has_damaged) = (false, true);
        }
    }

    /// Takes a snapshot of a disk, or replaces the disk by its snapshot. Chunks that the snapshot
    /// lacks no longer count as copies there.
    fn keep_or_put_back(&mut self) {
        let Some((target, older)) = self.older.take() else {
            let target = self.random.below(self.targets.len() as u64) as usize;
            self.older = Some((target, self.targets[target].disk.chunks.clone()));
            return;
        };
        let host = &self.targets[target];
        if !self.is_whole || host.is_gone || host.core.is_none() {
            // Not while another copy may be missing.
            return;
        }
        self.kill_target(target);
        let disk = &mut self.targets[target].disk;
        let newer = std::mem::replace(&mut disk.chunks, older);
        let lacking: Vec<_> = newer.into_keys().filter(|id| !disk.chunks.contains_key(id)).collect();
        lacking.into_iter().for_each(|id| self.judge.excuse(id));
        (self.is_whole, self.has_damaged) = (false, true);
        self.report.older += 1;
    }

    pub(super) fn heal(&mut self) {
        self.is_healed = true;
        let faults = &mut self.shape.faults;
        (faults.loss, faults.duplicate, faults.garble, faults.late) = (0, 0, 0, 0);
        for target in 0..self.targets.len() {
            let disk = &mut self.targets[target].disk;
            disk.set_capacity(u64::MAX / 4);
            disk.ns_per_byte = 4;
            self.targets[target].cut_until_ns = 0;
            self.start_target(target);
        }
    }
}

/// Maintenance settings of a process of a target.
fn tending_of(shape: &Shape, target: usize, life: u64) -> MaintenanceConfig {
    MaintenanceConfig {
        // No initiator has a client id in this range.
        client: ClientId(1 << 40 | life << 8 | target as u64),
        copies: shape.copies,
        timing: Timing { deadline_ns: 300 * MS, ..shape.timing },
        ..shape.maintenance
    }
}
