//! Tests that stored keys and requests are counted and reported.

use crate::node::tests::dispatch::some_get;
use crate::node::tests::recorder::{
    CLIENT, INCARNATION, METADATA, Node, PARTITION, SWITCH, address, assign, quiet,
};
use crate::{StorageCompletion, StorageRequest, Timing};
use nicekv_proto::control::{Assign, KeyspaceUsage, Usage};
use nicekv_proto::hot::{HotCopy, HotDrop, HotPulse, Stamp};
use nicekv_proto::placement::key_digest;
use nicekv_proto::recovery::{Entry, put_keyed_entry};
use nicekv_proto::route::{leave_room_for_stamp, room_for_stamp};
use nicekv_proto::{ClientId, Datagram, Duration, Form, Get, KeyspaceId, MatchRange, NodeId, OpId};
use std::collections::BTreeMap;

const HEARTBEAT_NS: u64 = 40_000_000;
/// Bytes to count per second, that is, 400 at each heartbeat.
const BYTES: u64 = 10_000;

/// A node that leads [`PARTITION`], and a model of its disk.
struct Counted {
    node: Node,
    engine: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Keys whose entries are damaged.
    corrupt: Vec<Vec<u8>>,
    scans: usize,
    told: Vec<Usage>,
}

impl Counted {
    fn leading() -> Self {
        let timing =
            Timing { usage_interval: Duration::from_secs(1), usage_bytes_per_second: BYTES, ..quiet() };
        let mut node = Node::started(timing);
        let leader = Assign { primary: NodeId(1), ..assign(PARTITION, MatchRange::ALL) };
        node.receive(METADATA, |out| leader.encode(out));
        Self { node, engine: BTreeMap::new(), corrupt: Vec::new(), scans: 0, told: Vec::new() }
    }

    /// The partition writes a value, or a tombstone.
    fn write(&mut self, key: &str, value: Option<&'static [u8]>) {
        self.write_until(key, value, 0);
    }

    /// Like `write`, with an expiry time.
    fn write_until(&mut self, key: &str, value: Option<&'static [u8]>, expiry_ms: u64) {
        let key = key.as_bytes().to_vec();
        self.node.act(move |host, _| {
            let entry = Entry { form: Form::Plain, index: 1, version: OpId::NONE, expiry_ms, value };
            host.storage.write(PARTITION, &key, |out| entry.append(out));
        });
        self.serve();
    }

    fn remove(&mut self, key: &str) {
        let key = key.as_bytes().to_vec();
        self.node.act(move |host, _| host.storage.remove(PARTITION, &key));
        self.serve();
    }

    fn heartbeat(&mut self) {
        self.node.now.boot_ns += HEARTBEAT_NS;
        self.node.core.handle_deadline(self.node.now);
        self.serve();
        for (to, bytes) in self.node.sent() {
            if let Ok((_, Datagram::Usage(usage))) = Datagram::decode(&bytes) {
                assert_eq!(to, METADATA);
                assert_eq!((usage.node, usage.incarnation), (NodeId(1), INCARNATION));
                assert_eq!(usage.sent_ns, self.node.now.boot_ns);
                self.told.push(usage);
            }
        }
    }

    /// Runs the node until its next report; returns the usage of the keyspace.
    fn usage(&mut self) -> KeyspaceUsage {
        self.told.clear();
        while self.told.is_empty() {
            self.heartbeat();
        }
        let [usage] = self.told[0].keyspaces[..] else { panic!("{:?}", self.told) };
        usage
    }

    /// Runs the node until its next report; returns the usage of this keyspace, if reported.
    fn usage_of(&mut self, keyspace: KeyspaceId) -> Option<KeyspaceUsage> {
        self.told.clear();
        while self.told.is_empty() {
            self.heartbeat();
        }
        self.told[0].keyspaces.iter().find(|usage| usage.keyspace == keyspace).copied()
    }

    /// Completes all requests to the disk.
    fn serve(&mut self) {
        loop {
            let (token, after, bytes_max) = match self.node.core.poll_storage() {
                None => return,
                Some(StorageRequest::Write { key, entry, .. }) => {
                    self.engine.insert(key.to_vec(), entry.to_vec());
                    continue;
                }
                Some(StorageRequest::Remove { key, .. }) => {
                    self.engine.remove(key);
                    continue;
                }
                Some(StorageRequest::Scan { token, after, bytes_max, .. }) => {
                    (token, after.map(<[u8]>::to_vec), bytes_max)
                }
                Some(_) => continue,
            };
            self.scans += 1;
            let (mut entries, mut rest) =
                (Vec::new(), self.engine.iter().filter(|(key, _)| Some(*key) > after.as_ref()));
            while entries.len() < bytes_max {
                let Some((key, entry)) = rest.next() else { break };
                put_keyed_entry(&mut entries, key, entry);
            }
            let more = rest.next().is_some();
            let corrupt = if after.is_none() { &self.corrupt[..] } else { &[] };
            let completion = StorageCompletion::Scan { token, entries: &entries, corrupt, more };
            self.node.core.handle_storage(self.node.now, completion);
        }
    }
}

#[test]
fn written_partitions_are_counted_again() {
    let mut counted = Counted::leading();
    counted.heartbeat();
    let expected = KeyspaceUsage {
        keyspace: KeyspaceId::DEFAULT,
        partitions: 1,
        keys: 0,
        bytes: 0,
        expiring: 0,
        expiry_ms: 0,
        age_ms: 0,
        gets: 0,
        updates: 0,
    };
    assert_eq!(counted.usage(), expected);
    for number in 0..50 {
        counted.write(&format!("key-{number:02}"), Some(b"four"));
    }
    counted.write("key-00", None);
    counted.remove("key-01");
    let gets = counted.usage().gets;
    assert_eq!(gets, 52, "each write was triggered by a get");
    assert_eq!(counted.usage(), KeyspaceUsage { keys: 48, bytes: 48 * 10, gets, ..expected });
    let scans = counted.scans;
    assert!(scans > 5, "about 2,500 bytes, 400 at a time");
    counted.usage();
    assert_eq!(counted.scans, scans, "nothing is read if nothing was written");
    counted.remove("key-02");
    counted.corrupt = vec![b"damaged".to_vec()];
    counted.usage();
    let usage = counted.usage();
    assert_eq!(
        (usage.keys, usage.bytes),
        (48, 47 * 10 + 7),
        "damaged keys count, because they can be repaired"
    );
}

#[test]
fn expiring_keys_are_counted_with_their_time() {
    let mut counted = Counted::leading();
    counted.write("stays", Some(b"four"));
    counted.write_until("late", Some(b"four"), u64::MAX - 1);
    counted.write_until("later", Some(b"four"), u64::MAX);
    counted.write_until("deleted", None, 0);
    counted.usage();
    let usage = counted.usage();
    assert_eq!((usage.keys, usage.expiring, usage.expiry_ms), (3, 2, u64::MAX - 1));
    counted.remove("late");
    counted.remove("later");
    counted.usage();
    let usage = counted.usage();
    assert_eq!((usage.keys, usage.expiring, usage.expiry_ms), (1, 0, 0));
}

#[test]
fn stale_count_reports_its_age() {
    let mut counted = Counted::leading();
    for number in 0..1_500 {
        counted.write(&format!("key-{number:04}"), Some(b"four"));
    }
    // About 75,000 bytes are counted at 10,000 per second while writes continue.
    let mut ages = Vec::new();
    for _ in 0..40 {
        counted.write("key-0000", Some(b"five"));
        let usage = counted.usage();
        ages.push(usage.age_ms);
        assert!(usage.partitions == 0 || usage.keys == 1_500, "{usage:?}");
    }
    let oldest = *ages.iter().max().unwrap();
    assert!((8_000..25_000).contains(&oldest), "{ages:?}");
    for _ in 0..20 {
        counted.usage();
    }
    assert_eq!(counted.usage().age_ms, 0);
}

#[test]
fn secondary_reports_gets_only() {
    let mut counted = Counted::leading();
    counted.write("a", Some(b"b"));
    counted.usage();
    assert_eq!(counted.usage().keys, 1);
    let follower = Assign { epoch: nicekv_proto::Epoch(6), ..assign(PARTITION, MatchRange::ALL) };
    counted.node.receive(METADATA, |out| follower.encode(out));
    let before = counted.usage();
    assert_eq!((before.partitions, before.keys, before.bytes), (0, 0, 0));
    counted.node.receive(CLIENT, some_get);
    assert_eq!(counted.usage().gets, before.gets + 1);
}

/// A get that a switch sends to this node as a holder. The node has no partition of its keyspace.
fn held_get(stamp: Stamp, out: &mut Vec<u8>) {
    let (key, op) = (&b"k"[..], OpId { client: ClientId::new(2, 2), sequence: 9 });
    let (keyspace, digest) = (HELD, key_digest(key));
    Get { keyspace, op, digest, reply_to: None, forwarded: None, key, padding: 0 }.encode(out);
    leave_room_for_stamp(out);
    *room_for_stamp(out).unwrap() = stamp.to_bytes();
}

const HELD: KeyspaceId = KeyspaceId(7);

#[test]
fn usage_counts_gets_answered_from_copies() {
    let mut counted = Counted::leading();
    let gets = |counted: &mut Counted| {
        counted.usage_of(HELD).map(|usage| (usage.gets, usage.partitions, usage.keys))
    };
    assert_eq!(gets(&mut counted), None);
    let (owner, stamp, serial) = (address(9), Stamp { instance: 5, seen: 1 }, 3);
    let (key, mut entry) = (&b"k"[..], Vec::new());
    Entry { form: Form::Plain, index: 1, version: OpId::NONE, expiry_ms: 0, value: Some(b"blue") }
        .append(&mut entry);
    let (digest, vring) = (key_digest(key), SWITCH);
    let copy = HotCopy { keyspace: HELD, digest, stamp, serial, vring, key, entry: &entry };
    let (clock_ns, lease_ns) = (counted.node.now.boot_ns, 3_600_000_000_000);
    counted
        .node
        .receive(owner, |out| HotPulse { serial, nonce: INCARNATION, clock_ns, lease_ns }.encode(out));
    counted.node.receive(owner, |out| copy.encode(out));
    for _ in 0..3 {
        counted.node.receive(CLIENT, |out| held_get(stamp, out));
    }
    // There is no copy of this instance, and a get without an answer is not counted.
    counted.node.receive(CLIENT, |out| held_get(Stamp { instance: 6, seen: 1 }, out));
    assert_eq!(gets(&mut counted), Some((3, 0, 0)));
    counted.node.receive(owner, |out| HotDrop { keyspace: HELD, digest, instance: 5 }.encode(out));
    assert_eq!(gets(&mut counted), None, "without copies the keyspace is not reported");
}
