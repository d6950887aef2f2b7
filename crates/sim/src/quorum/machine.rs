//! A storage node of a quorum keyspace: a process that comes and goes, and a disk, which stays or is replaced.

use super::client::now;
use crate::disk::{Busy, Disk};
use crate::node::{START_UNIX_MS, turn_core};
use crate::random::Random;
use nicekv_node::{NodeConfig, Plant, Standing, Timing};
use nicekv_replication::Replica;
use nicekv_wire::{ClientId, NodeId};
use std::net::SocketAddrV4;

/// See the module.
pub struct Machine {
    /// Its name.
    pub id: NodeId,
    /// Where it is reached.
    pub address: SocketAddrV4,
    /// The running process.
    pub core: Option<Replica>,
    /// What outlives it.
    pub disk: Disk,
    /// Counts disks.
    disks: u64,
    /// Counts processes.
    pub process: u64,
    /// What the socket holds.
    pub inbox: Vec<(SocketAddrV4, Vec<u8>)>,
    /// So many times slower than others: links, processor and disk.
    pub slowness: u64,
    /// When its disk is done with everything that it was given.
    pub disk_free_ns: u64,
    /// When the loop turns next.
    pub turn_at_ns: Option<u64>,
    checkpoint_after: u64,
}

impl Machine {
    /// Without a process.
    pub fn new(id: NodeId, address: SocketAddrV4) -> Self {
        Self {
            id,
            address,
            core: None,
            disk: Disk::new(),
            disks: 1,
            process: 0,
            inbox: Vec::new(),
            slowness: 1,
            disk_free_ns: 0,
            turn_at_ns: None,
            checkpoint_after: 0,
        }
    }

    /// Whether it is up and what it says counts.
    pub fn is_counted(&self) -> bool {
        let counts = |core: &Replica| {
            core.status().partitions.first().is_some_and(|first| first.standing == Standing::Consistent)
        };
        self.core.as_ref().is_some_and(counts)
    }

    /// Starts a process, which replays the log.
    pub fn start(&mut self, at_ns: u64, metadata: SocketAddrV4, plant: Option<Plant>, random: &mut Random) {
        assert!(self.core.is_none());
        self.process += 1;
        let config = NodeConfig {
            node: self.id,
            metadata,
            switch: None,
            incarnation: random.bits(),
            storage: u128::from(self.id.0) << 64 | u128::from(self.disks),
            internal_client: ClientId::new(START_UNIX_MS, random.bits()),
            hash_seed: 7,
            timing: Timing::default(),
        };
        let mut core = Replica::new(config);
        if let Some(plant) = plant {
            core.plant(plant);
        }
        self.disk.replay(now(at_ns), &mut core);
        self.core = Some(core);
        self.checkpoint_after = self.disk.appended() + random.between(20, 400);
    }

    /// Kills the process; `loses_disk`: and gives it a new disk.
    pub fn kill(&mut self, loses_disk: bool, random: &mut Random) {
        self.core = None;
        self.inbox.clear();
        self.disk.crash(random);
        (self.turn_at_ns, self.disk_free_ns) = (None, 0);
        if loses_disk {
            self.disk = Disk::new();
            self.disks += 1;
        }
    }

    /// One turn of the driver's loop, up to and including the disk; returns what the disk is busy with.
    pub fn turn(&mut self, at_ns: u64, random: &mut Random) -> Vec<Busy> {
        let now = now(at_ns);
        let Some(core) = &mut self.core else { return Vec::new() };
        turn_core(now, core, self.inbox.drain(..), &mut self.disk, &mut self.checkpoint_after, random)
    }
}
