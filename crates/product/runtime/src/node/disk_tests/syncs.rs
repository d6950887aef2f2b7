//! Acknowledged writes are durable: each sync waits until the test lets it begin.

use super::*;
use nicekv_store::Forgetful;
use nicekv_store::files::{FileCall, Moment, Watched};
use std::sync::{Condvar, Mutex};

const MANY: usize = usize::MAX / 2;

/// Number of syncs that may begin.
#[derive(Clone)]
struct Gate(Arc<(Mutex<usize>, Condvar)>);

/// Opens the gate when dropped, because a dropped node waits for its running sync.
struct Closed<'a>(&'a Gate);

impl Gate {
    fn open() -> Self {
        Self(Arc::new((Mutex::new(MANY), Condvar::new())))
    }

    fn set(&self, permits: usize) {
        *self.0.0.lock().unwrap() = permits;
        self.0.1.notify_all();
    }

    fn close(&self) -> Closed<'_> {
        self.set(0);
        Closed(self)
    }

    /// A disk whose syncs wait at the gate.
    fn disk(&self) -> Arc<dyn Files> {
        let gate = self.clone();
        Arc::new(Watched::new(Arc::new(Forgetful::new(64)), move |moment, call, _| {
            if (moment, call) == (Moment::Begins, FileCall::Sync) {
                let (permits, changed) = &*gate.0;
                let mut permits =
                    changed.wait_while(permits.lock().unwrap(), |permits| *permits == 0).unwrap();
                *permits -= 1;
            }
            Ok(())
        }))
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.set(MANY);
    }
}

#[test]
fn put_waits_for_the_sync_of_every_member() {
    for held in 0..2 {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let gates = [Gate::open(), Gate::open()];
        let machines = (1..)
            .zip(directories.iter().zip(&gates))
            .map(|(id, (directory, gate))| Machine::new(gate.disk(), directory.path(), LOG_ONLY, id));
        let mut cluster = Cluster::of(machines.map(|machine| machine.start().unwrap()).collect(), 1);
        assert_eq!(cluster.put("before", b"1").unwrap(), Some(Status::Ok));
        let closed = gates[held].close();
        assert_eq!(cluster.put("held", b"2").unwrap(), None, "node {held} has not synced");
        assert_eq!(cluster.get(0, "held"), Some(None), "the put is not visible");
        drop(closed);
        assert_eq!(cluster.put("after", b"3").unwrap(), Some(Status::Ok));
        assert_eq!(cluster.get(0, "held"), Some(Some(b"2".to_vec())));
    }
}

#[test]
fn sync_covers_only_earlier_writes() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Gate::open();
    let mut cluster = Cluster::lone(&Machine::new(gate.disk(), directory.path(), LOG_ONLY, 1), 1);
    assert_eq!(cluster.put("before", b"1").unwrap(), Some(Status::Ok));
    while !cluster.nodes[0].storage.is_at_rest() {
        cluster.nodes[0].turn().unwrap();
    }
    let closed = gate.close();
    // The sync of the first put has begun when the second put is written.
    for name in ["first", "second"] {
        assert_eq!(cluster.put(name, b"2").unwrap(), None, "{name}");
    }
    gate.set(1);
    while cluster.get(0, "first") != Some(Some(b"2".to_vec())) {}
    assert_eq!(cluster.get(0, "second"), Some(None), "the second put needs another sync");
    drop(closed);
    while cluster.get(0, "second") != Some(Some(b"2".to_vec())) {}
}

#[test]
fn idle_node_has_nothing_to_sync() {
    let directory = tempfile::tempdir().unwrap();
    let options = StorageOptions { engine_sync_bytes: 2 << 10, reserve_bytes: 0, ..StorageOptions::DEFAULT };
    let machine = Machine::new(Arc::new(nicekv_store::RealFiles), directory.path(), options, 1);
    let mut cluster = Cluster::lone(&machine, 1);
    assert!(!cluster.nodes[0].storage.is_busy() && !cluster.nodes[0].storage.is_unfinished());
    let began = now().boot_ns;
    put_all(&mut cluster, 0..20);
    // While the engine is syncing, the node checks it at intervals.
    while cluster.nodes[0].storage.is_busy() {
        assert!(now().boot_ns < began + 30_000_000_000, "the sync does not end");
        cluster.nodes[0].turn().unwrap();
    }
    assert!(!cluster.nodes[0].storage.is_unfinished());
}

#[test]
fn few_records_are_synced_on_the_node_thread_many_by_group_commit() {
    const TRIES: u64 = 200;
    let directory = tempfile::tempdir().unwrap();
    let machine = Machine::new(Arc::new(Forgetful::new(64)), directory.path(), LOG_ONLY, 1);
    let mut cluster = Cluster::lone(&machine, 1);
    let mut is_synced_here = |puts: u64, has_time: bool| {
        assert!(cluster.put("before", b"1").unwrap().is_some(), "all writes are synced");
        let node = &mut cluster.nodes[0];
        for _ in 0..puts {
            cluster.sequence += 1;
            let operation = Operation::Set { value: b"value", expiry: Expiry::Never };
            let name = format!("key {}", cluster.sequence);
            let bytes = set_datagram(name.as_bytes(), operation, cluster.sequence, CLIENT);
            node.core.handle_datagram(now(), CLIENT, &bytes);
        }
        node.core.handle_batch_end(now());
        node.storage.run(now(), &mut node.core).unwrap();
        let sync = node.storage.start_sync(has_time);
        sync.iter().for_each(|sync| sync.sync_here());
        sync.is_some()
    };
    // After a slow sync, the next ones are left to the other thread.
    assert!((0..TRIES).any(|_| is_synced_here(1, true)), "no sync was made on the node's thread");
    for _ in 0..20 {
        assert!(!is_synced_here(8, true), "a batch must be left to group commit");
        assert!(!is_synced_here(1, false), "a busy node must leave the sync to group commit");
    }
    assert!(
        (0..TRIES).any(|_| is_synced_here(1, true)),
        "after a slow sync, none was made on the node's thread"
    );
}
