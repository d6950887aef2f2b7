//! The operator creates and drops keyspaces during the run (R16). A keyspace number is never used
//! twice, and no node answers for a dropped keyspace.

use super::Cluster;
use super::event::Event;
use crate::created_keyspaces::Life;
use crate::keyspace::{Key, Shape};
use nicekv_client::Keyspace;
use nicekv_metadata::{KeyspaceChange, KeyspaceInfo, Metadata, Status};
use nicekv_proto::KeyspaceId;
use nicekv_proto::limits::PORT_DEFAULT;
use nicekv_proto::placement::CREATED_FIRST;

/// Maximum keyspaces that are created in a run.
const CREATED_MAX: usize = 8;
/// Keys in each created keyspace.
const KEYS: usize = 4;
/// The name of every created keyspace: only one exists at a time.
const NAME: &str = "created";

impl Cluster {
    /// The keyspaces that were created.
    pub fn created(&self) -> &crate::created_keyspaces::Created {
        &self.created
    }

    /// The operator creates or drops a keyspace. Clients learn of the previous change.
    pub(super) fn draw_keyspace(&mut self) {
        let interval_ns = self.faults.keyspace_interval_ns;
        if interval_ns == 0 {
            return;
        }
        self.tell_clients();
        let is_there = self.created.there().next().is_some();
        if !is_there && self.created.by_number.len() < CREATED_MAX {
            let text = self.draw_text();
            self.change_keyspace(&KeyspaceChange::Create { text });
        } else if is_there && self.random.below(2) == 0 {
            self.change_keyspace(&KeyspaceChange::Drop { name: NAME.into() });
        }
        let pause_ns = self.random.between(interval_ns / 4, interval_ns);
        self.queue.after(pause_ns, Event::Keyspace);
    }

    /// Requests a change of the keyspaces from the newest metadata process.
    fn change_keyspace(&mut self, change: &KeyspaceChange) {
        self.ask_newest("changes of the keyspaces", change, |core| core.change_keyspace(change).is_ok());
    }

    fn draw_text(&mut self) -> String {
        let partitions = 1 << self.random.below(3);
        match self.random.below(3) {
            0 => format!("{NAME}=replication=quorum,write-set=2,replicas=3,partitions={partitions}"),
            order => {
                let (replicas, order) =
                    (self.random.pick(&[2, 3]), if order == 1 { "hash" } else { "range" });
                format!("{NAME}=replicas={replicas},partitioning={order},partitions={partitions}")
            }
        }
    }

    /// Updates the clients' keyspaces at the end of a run, whether or not a change is under way.
    pub fn tell_all_keyspaces(&mut self) {
        self.look_at_keyspaces();
        self.tell_clients();
    }

    /// Updates the keyspaces that clients know.
    fn tell_clients(&mut self) {
        let there = self.created.by_number.values().filter(|life| life.is_there);
        let there: Vec<Keyspace> = there.map(|life| life.known).collect();
        self.clients.iter_mut().for_each(|client| client.learn(&there));
    }

    /// Takes keyspaces from the newest metadata state: new ones are used at once, and no node may
    /// answer for dropped ones any more.
    pub(super) fn look_at_keyspaces(&mut self) {
        if self.scenario.faults.keyspace_interval_ns == 0 {
            return;
        }
        let newer = |core: &&Metadata| core.version() != self.created.version;
        let Some(core) = self.metadata().filter(newer) else { return };
        let (version, infos, status) = (core.version(), created(core), core.status());
        self.created.version = version;
        for info in &infos {
            self.note_created(info, &status);
        }
        let tick = self.tick;
        for (number, life) in &mut self.created.by_number {
            life.is_there = infos.iter().any(|info| info.id == *number);
            let is_dropping = status.dropped.iter().any(|dropped| dropped.id == *number && !dropped.quiet);
            if !life.is_there && !is_dropping {
                life.quiet_since.get_or_insert(tick);
            }
        }
        if self.faults.keyspace_interval_ns == 0 {
            // After all faults are healed no client may wait for a dropped keyspace.
            self.tell_clients();
        }
    }

    fn note_created(&mut self, info: &KeyspaceInfo, status: &Status) {
        if let Some(life) = self.created.by_number.get(&info.id) {
            if !life.is_there {
                self.watch.violate(format!("keyspace number {} is used a second time (R16)", info.id));
            }
            return;
        }
        let replicas = status.keyspaces.iter().find(|known| known.id == info.id);
        let replicas = replicas.expect("it is there").replicas;
        let (write_set, partition_bits) =
            (info.quorum.map(|(_, write_set)| write_set), info.partition_bits as u8);
        let known = Keyspace {
            id: KeyspaceId(info.id),
            replication: info.replication(),
            order: info.order(),
            partition_bits: Some(info.partition_bits),
            is_hot: false,
            ..info.vrings(PORT_DEFAULT).into()
        };
        let (is_chain, order) = (info.chain, info.order());
        let shape = Shape {
            replicas,
            write_set,
            is_chain,
            partition_bits,
            order,
            migrates: false,
            keys_max: None,
            is_hot: false,
            has_names: false,
        };
        let life = Life { shape, known, is_there: true, quiet_since: None };
        self.created.by_number.insert(info.id, life);
        self.tally.count("keyspaces created");
        self.scenario.workload.keys.extend(Key::of(info.id, info.order(), KEYS));
        self.tell_clients();
    }
}

/// The created keyspaces that exist now.
fn created(core: &Metadata) -> Vec<KeyspaceInfo> {
    let keyspaces = core.cluster_info().keyspaces.into_iter();
    keyspaces.filter(|known| known.id >= CREATED_FIRST.0).collect()
}
