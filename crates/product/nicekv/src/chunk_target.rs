//! The storage target of a node (Replicast §II): a thread with its own socket and directory. It
//! starts once the cluster has groups of targets.

use crate::object_names;
use nicekv_config::{ClusterConfig, NodeSection};
use nicekv_objects::reservation::Delivery;
use nicekv_objects::{MaintenanceConfig, TargetConfig};
use nicekv_operator::groups::{ask_for_groups, report};
use nicekv_proto::{Duration, NodeId};
use nicekv_runtime::chunks::{ChunkStore, ChunkTarget, TargetParts, TargetWatch, View, ring_of, windows};
use nicekv_runtime::{Stop, UdpEndpoint, Waker, new_client_id, now, random, readable, wait};
use nicekv_store::{DataDirectory, LogIdentity, RealFiles};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;

/// Interval between checks whether the node is in a group.
const PAUSE: Duration = Duration::from_secs(2);
/// Disk speed assumed until the target has measured it.
const DISK_BYTES_PER_SECOND: u64 = 300 << 20;
/// Environment variable with disk speeds to assume in benchmarks: NODE=BYTES, comma-separated.
const DISKS_VARIABLE: &str = "NICEKV_BENCH_DISKS";
/// Subdirectory of the node's data directory.
const DIRECTORY: &str = "chunks";

/// Parameters for starting a target.
pub(crate) struct TargetSetup {
    name: String,
    node: u16,
    address: Ipv4Addr,
    /// TCP addresses of the metadata service.
    metadata: Vec<SocketAddrV4>,
    /// Directory of the chunks; `None`: they are kept in memory.
    storage: Option<(PathBuf, LogIdentity)>,
    /// The target's counters, for metrics.
    watch: TargetWatch,
}

impl TargetSetup {
    pub(crate) fn new(
        config: &ClusterConfig,
        section: &NodeSection,
        directory: Option<&DataDirectory>,
        watch: TargetWatch,
    ) -> Self {
        let storage = directory.map(|directory| {
            let identity = LogIdentity {
                cluster_id: directory.cluster_id(),
                storage_id: directory.storage_id(),
                node_id: section.id.into(),
            };
            (directory.path().join(DIRECTORY), identity)
        });
        let metadata = config.metadata_controls();
        Self {
            name: section.name.clone(),
            node: section.id,
            address: section.address,
            metadata,
            storage,
            watch,
        }
    }

    /// Waits until the node is in a group, then runs the target until the process stops.
    pub(crate) fn run(self, stop: &Stop) -> Result<(), String> {
        self.begin(stop).map_err(|error| format!("{}'s chunks: {error}", self.name))
    }

    fn begin(&self, stop: &Stop) -> Result<(), Box<dyn std::error::Error>> {
        let waker = Waker::new()?;
        stop.register(&waker);
        let chunks = loop {
            if stop.is_stopped() {
                return Ok(());
            }
            let groups = ask_for_groups(&self.metadata);
            let is_there =
                |groups: &Vec<Vec<Option<u16>>>| groups.iter().flatten().any(|node| *node == Some(self.node));
            if let Some(groups) = groups.filter(|groups| is_there(&groups.layout.groups)) {
                break groups;
            }
            waker.clear();
            wait(&mut [readable(&waker)], Some(now().after(PAUSE)))?;
        };
        let store = match &self.storage {
            Some((path, identity)) => ChunkStore::on_disk(Arc::new(RealFiles), path, *identity)?,
            None => ChunkStore::in_memory(),
        };
        let store = match std::env::var(DISKS_VARIABLE) {
            Ok(disks) => match disk_of(&disks, &self.name)? {
                Some(bytes_per_second) => store.limited(bytes_per_second),
                None => store,
            },
            Err(_) => store,
        };
        let ring = ring_of(&chunks);
        let endpoint = UdpEndpoint::bind(SocketAddrV4::new(self.address, ring.target_port))?;
        let mut secret = [0; 32];
        for part in secret.chunks_exact_mut(8) {
            part.copy_from_slice(&random()?.to_be_bytes());
        }
        let config = TargetConfig {
            node: NodeId(self.node),
            process: random()?,
            // Multicast needs longer reservation windows than unicast, so these fit both.
            reservation: windows(Delivery::Multicast, chunks.link_bits_per_second),
            disk_bytes_per_second: DISK_BYTES_PER_SECOND,
            secret,
            maintenance: Some(MaintenanceConfig::new(new_client_id()?, chunks.copies)),
        };
        let (metadata, node, watch) = (self.metadata.clone(), self.node, self.watch.clone());
        let seen = watch.clone();
        let view = View::begin(&self.name, waker.clone(), move || report(&metadata, node, &seen.progress()))?;
        let list = object_names::lister(self.name.clone(), self.metadata.clone(), self.address);
        let parts = TargetParts { store, endpoint, ring, view, waker, list, watch };
        Ok(ChunkTarget::new(&self.name, config, stop, parts)?.run(stop)?)
    }
}

/// The disk speed of a node, if the variable names one.
fn disk_of(disks: &str, node: &str) -> Result<Option<u64>, String> {
    let refused = || format!("{DISKS_VARIABLE}={disks}: must be NODE=BYTES,NODE=BYTES…");
    let mut found = None;
    for disk in disks.split(',') {
        let (name, bytes_per_second) = disk.split_once('=').ok_or_else(refused)?;
        let bytes_per_second = bytes_per_second.parse().map_err(|_| refused())?;
        found = found.or((name == node).then_some(bytes_per_second));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_speeds_are_parsed() {
        let disks = "node-0=2500000,node-1=25000000";
        let of = |node| disk_of(disks, node);
        assert_eq!(
            [of("node-0"), of("node-1"), of("node-2")],
            [Ok(Some(2_500_000)), Ok(Some(25_000_000)), Ok(None)]
        );
        for wrong in ["", "node-0", "node-0=", "node-0=fast", "node-0=1,"] {
            assert!(disk_of(wrong, "node-0").is_err(), "{wrong}");
        }
    }
}
