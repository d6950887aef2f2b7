//! Checks what a node lets others answer on its behalf.
//!
//! The core publishes which entries may be shown outside of it (`nicekv_replica::Visibility`), for
//! a cache that answers gets without asking the core. This is a model of such a cache: each of its
//! answers must be the one that the core itself gives. The judge checks that the core's answers are
//! linearizable.

use crate::disk::Disk;
use nicekv_proto::recovery::Entry;
use nicekv_proto::{Datagram, Get, KeyspaceId, OpId, Opcode, PartitionId, Reply, Status};
use nicekv_replica::Replica;
use nicekv_replica::{Shift, ShiftKind};
use std::collections::{BTreeMap, BTreeSet};

type Key = (PartitionId, Box<[u8]>);

/// The result of a get: version and value, or `None` if there is no value.
type Shows = Option<(OpId, Vec<u8>)>;

#[derive(Clone, Default)]
pub struct Shown {
    locked: BTreeSet<Key>,
    entries: BTreeMap<Key, Option<Vec<u8>>>,
    /// For each get that arrived while its key was unlocked: the results that the cache would have
    /// given, one for each time that it arrived. `None`: the answer is not checked, since the cache
    /// could not have given one at some time.
    expected: BTreeMap<OpId, Option<Vec<Shows>>>,
    /// Number of answers that were checked.
    pub compared: u64,
    /// The first violation.
    pub violation: Option<String>,
}

impl Shown {
    /// Starts with an empty cache, for a new process.
    pub fn begin(&mut self) {
        self.locked.clear();
        self.entries.clear();
        self.expected.clear();
    }

    /// Applies a change that the core publishes.
    pub fn make(&mut self, Shift { partition, kind }: Shift) {
        let is_in_turn = match kind {
            ShiftKind::Locked(key) => self.locked.insert((partition, key)),
            // The key may not have been cached when it was locked.
            ShiftKind::Unlocked(key) => {
                self.locked.remove(&(partition, key));
                true
            }
            ShiftKind::Changed(key, entry) => {
                if let Some(known) = self.entries.get_mut(&(partition, key)) {
                    *known = entry;
                }
                true
            }
            ShiftKind::Read(key, entry) => {
                self.entries.insert((partition, key), Some(entry));
                true
            }
            ShiftKind::Unknown => {
                self.entries.retain(|(of, _), _| *of != partition);
                true
            }
        };
        if !is_in_turn {
            self.complain(format!("a key of {partition:?} is locked twice in succession"));
        }
    }

    /// Removes an entry that was changed by something other than the core.
    pub fn forget(&mut self, partition: PartitionId, key: &[u8]) {
        self.entries.remove(&(partition, key.into()));
    }

    /// Records what the cache would answer to a get, just before the core handles it.
    pub fn before(&mut self, core: &Replica, disk: &Disk, bytes: &[u8]) {
        let opcode = bytes.get(3).copied();
        if opcode == Some(Opcode::Directed as u8)
            && let Ok((_, Datagram::Directed(directed))) = Datagram::decode(bytes)
        {
            return self.before(core, disk, directed.request);
        }
        if opcode == Some(Opcode::ReadChunks as u8)
            && let Ok((header, _)) = Datagram::decode(bytes)
        {
            // The answer to a read of chunks does not contain the key's entry.
            self.expected.insert(header.op, None);
            return;
        }
        if opcode == Some(Opcode::Bundle as u8)
            && let Ok((header, Datagram::Bundle(bundle))) = Datagram::decode(bytes)
        {
            // A get in the bundle may have come alone before, and may now be answered anew: do not
            // check the answer.
            bundle.datagrams(&header).for_each(|(header, _)| {
                self.expected.insert(header.op, None);
            });
            return;
        }
        if ![Opcode::Get, Opcode::ForwardedGet].iter().any(|get| opcode == Some(*get as u8)) {
            return;
        }
        let Ok((header, Datagram::Get(get))) = Datagram::decode(bytes) else { return };
        let shows = self.open(core, disk, header.keyspace, &get);
        let expected = self.expected.entry(get.op).or_insert_with(|| Some(Vec::new()));
        match (shows, &mut *expected) {
            (Some(shows), Some(expected)) => expected.push(shows),
            _ => *expected = None,
        }
    }

    /// The same for a get on which a switch has written a stamp. Its answer may come from a copy
    /// that another node has made, so it is not checked.
    pub fn before_stamped(&mut self, bytes: &[u8]) {
        if let Ok((header, Datagram::Get(_))) = Datagram::decode(bytes) {
            self.expected.insert(header.op, None);
        }
    }

    /// The cache's answer to a get; `None` if it would not answer.
    fn open(&self, core: &Replica, disk: &Disk, keyspace: KeyspaceId, get: &Get<'_>) -> Option<Shows> {
        let partition = core.partition_of(keyspace, &get.digest)?;
        let key: Key = (partition, get.key.into());
        if self.locked.contains(&key) || disk.is_damaged(&(partition, get.key.to_vec())) {
            return None;
        }
        let entry = self.entries.get(&key)?;
        let entry = entry.as_ref().map(|bytes| Entry::decode(bytes).expect("the core has told it"));
        // Only the primary decides whether a value has expired.
        let expires = entry.is_some_and(|entry| entry.expiry_ms != 0);
        (!expires).then(|| entry.and_then(|entry| Some((entry.version, entry.value?.to_vec()))))
    }

    /// Checks an answer that the node sends.
    pub fn after(&mut self, bytes: &[u8]) {
        if bytes.get(3) != Some(&(Opcode::Reply as u8)) || self.expected.is_empty() {
            return;
        }
        let Ok((_, Datagram::Reply(reply))) = Datagram::decode(bytes) else { return };
        let Some(Some(expected)) = self.expected.get(&reply.op) else { return };
        let answer = match &reply {
            Reply { status: Status::Ok, value: Some(value), version, .. } => Some((*version, value.to_vec())),
            Reply { status: Status::NotFound, .. } => None,
            _ => return,
        };
        self.compared += 1;
        if !expected.contains(&answer) {
            let what =
                format!("{:?} is answered {answer:?}, but what may be shown is {expected:?}", reply.op);
            self.complain(what);
        }
    }

    fn complain(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }
}
