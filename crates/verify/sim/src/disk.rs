//! A node's disk: an authoritative log whose unsynced tail may be lost, and an engine that falls
//! back to its last sync.
//!
//! Requests are executed strictly in order. The engine on disk is never ahead of the log on disk,
//! as in the real driver: a sync of the engine syncs the log first.
//!
//! A damaged entry is one whose first byte is not zero (entries begin with the index of a decision,
//! which is never that large). The disk notices, as the real engine does by its checksums.

use crate::value_store::LargeValues;
use nicekv_proto::large::Reference;
use nicekv_proto::recovery::{Entry, put_keyed_entry};
use nicekv_proto::{Now, OpId, PartitionId};
use nicekv_replica::Replica;
use nicekv_replica::{StorageCompletion, StorageRequest, gathered_keys};
use nicekv_testkit::Random;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Applied state, by partition and key.
pub type Entries = BTreeMap<(PartitionId, Vec<u8>), Vec<u8>>;

/// A disk operation that takes time. Operations finish in the order in which they begin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Busy {
    /// A sync of the log and of large values.
    Force {
        /// Records up to this number.
        through: u64,
        /// Large values up to this number.
        values: u64,
    },
    /// A sync of the engine, with its state when the sync began.
    Sync {
        entries: Entries,
        /// The log was synced up to this record first.
        log_through: u64,
        /// Large values were synced up to this number first.
        values: u64,
        /// Afterwards the log before this record is dropped.
        trims_before: u64,
    },
}

/// The bits that damage flips in a byte.
const DAMAGE: u8 = 0xff;

fn is_damaged(entry: &[u8]) -> bool {
    entry[0] != 0
}

#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// Log records, from number `first` on.
    log: Vec<Vec<u8>>,
    first: u64,
    synced: u64,
    /// Records written before those that this process counts.
    before: u64,
    /// Entries as the process sees them.
    entries: Entries,
    durable: Entries,
    pub(crate) values: LargeValues,
}

impl Disk {
    pub fn new() -> Self {
        Self { first: 1, ..Self::default() }
    }

    /// Number of the last record.
    pub fn appended(&self) -> u64 {
        self.first + self.log.len() as u64 - 1
    }

    /// Number of the last synced record.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Number of the last synced record, counted over the life of the disk.
    pub fn durable(&self) -> u64 {
        self.before + self.synced
    }

    /// The entries that the process sees.
    pub fn entries(&self) -> &Entries {
        &self.entries
    }

    /// The keys of a partition for which the process sees a value, with their entries. Tombstones
    /// are not values.
    pub fn values(&self, partition: PartitionId) -> impl Iterator<Item = (&[u8], &[u8])> {
        let has_value = |entry: &[u8]| Entry::decode(entry).expect("the core wrote it").value.is_some();
        let entries =
            self.entries.iter().filter(move |((of, _), entry)| *of == partition && has_value(entry));
        entries.map(|((_, key), entry)| (key.as_slice(), entry.as_slice()))
    }

    pub fn log(&self) -> &[Vec<u8>] {
        &self.log
    }

    /// Executes all requests of `core` and all that follow from them. Returns the operations that
    /// take time.
    pub fn execute(&mut self, now: Now, core: &mut Replica) -> Vec<Busy> {
        let mut busy = Vec::new();
        self.execute_until(now, core, &mut busy, || false);
        busy
    }

    /// As [`Self::execute`], but stops when `is_over`, which is checked after each page. The second
    /// result: whether all requests were executed.
    pub fn execute_until(
        &mut self,
        now: Now,
        core: &mut Replica,
        busy: &mut Vec<Busy>,
        mut is_over: impl FnMut() -> bool,
    ) -> bool {
        while let Some(request) = core.poll_storage() {
            match request {
                StorageRequest::Append { payload } => self.log.push(payload.to_vec()),
                StorageRequest::Sync => {
                    busy.push(Busy::Force { through: self.appended(), values: self.values.ended });
                }
                StorageRequest::Read { token, partition, key } => {
                    let entry = self.entries.get(&(partition, key.to_vec())).cloned();
                    let completion = match &entry {
                        Some(entry) if is_damaged(entry) => StorageCompletion::ReadCorrupt { token },
                        entry => StorageCompletion::Read { token, entry: entry.as_deref() },
                    };
                    core.handle_storage(now, completion);
                }
                StorageRequest::Write { partition, key, entry } => {
                    self.entries.insert((partition, key.to_vec()), entry.to_vec());
                }
                StorageRequest::Remove { partition, key } => {
                    self.entries.remove(&(partition, key.to_vec()));
                }
                StorageRequest::Clear { partition } => self.entries.retain(|(of, _), _| *of != partition),
                StorageRequest::Scan { token, partition, after, bytes_max } => {
                    let (entries, corrupt, more) = self.scan(partition, after, bytes_max);
                    let (entries, corrupt) = (&entries[..], &corrupt[..]);
                    core.handle_storage(now, StorageCompletion::Scan { token, entries, corrupt, more });
                    if is_over() {
                        return false;
                    }
                }
                StorageRequest::Gather { token, partition, keys, bytes_max } => {
                    let (entries, corrupt, more) = self.gather(partition, keys, bytes_max);
                    let (entries, corrupt) = (&entries[..], &corrupt[..]);
                    core.handle_storage(now, StorageCompletion::Scan { token, entries, corrupt, more });
                    if is_over() {
                        return false;
                    }
                }
                StorageRequest::Trim { before } => busy.push(Busy::Sync {
                    entries: self.entries.clone(),
                    log_through: self.appended(),
                    values: self.values.ended,
                    trims_before: before,
                }),
                StorageRequest::MarkValues => self.values.is_marked = true,
                StorageRequest::WriteValue { name, length, offset, bytes } => {
                    self.values.write(name, length, offset, bytes);
                }
                StorageRequest::EndValue { reference } => {
                    let end = self.values.end(&reference);
                    core.handle_storage(now, StorageCompletion::ValueEnded { name: reference.name, end });
                }
                StorageRequest::ReadValue { token, name, offset, bytes } => {
                    let (bytes, is_damaged) = self.values.read(name, offset, bytes);
                    core.handle_storage(now, StorageCompletion::ValueRead { token, bytes, is_damaged });
                }
                StorageRequest::CondemnValue { name } => self.values.condemn(name),
                StorageRequest::RemoveValue { name } => self.values.remove(name),
            }
        }
        true
    }

    /// Damages the stored value of a key.
    pub fn damage(&mut self, key: &(PartitionId, Vec<u8>)) {
        for entries in [&mut self.entries, &mut self.durable] {
            if let Some(entry) = entries.get_mut(key).filter(|entry| !is_damaged(entry)) {
                entry[0] = DAMAGE;
            }
        }
    }

    /// Replaces an entry, or removes it.
    pub fn replace(&mut self, key: &(PartitionId, Vec<u8>), entry: Option<&[u8]>) {
        for entries in [&mut self.entries, &mut self.durable] {
            match entry {
                Some(entry) => drop(entries.insert(key.clone(), entry.to_vec())),
                None => drop(entries.remove(key)),
            }
        }
    }

    /// Undoes all damage.
    pub fn mend(&mut self) {
        for entries in [&mut self.entries, &mut self.durable] {
            entries.values_mut().for_each(|entry| entry[0] = 0);
        }
        self.values.mend();
    }

    /// The large value that the entry of a key refers to.
    pub fn large_value(&self, key: &(PartitionId, Vec<u8>)) -> Option<Reference> {
        self.entries.get(key).filter(|entry| !is_damaged(entry)).and_then(|entry| Entry::reference_of(entry))
    }

    /// Whether a large value is present and intact.
    pub fn has_large(&self, reference: &Reference) -> bool {
        self.values.is_intact(reference)
    }

    /// Whether an entry refers to a large value that is missing or damaged.
    pub fn lacks_large(&self) -> bool {
        self.entries.keys().filter_map(|key| self.large_value(key)).any(|of| !self.has_large(&of))
    }

    /// Damages a large value. If `is_known`, the disk detects it when it reads the value.
    pub fn damage_large(&mut self, name: OpId, is_known: bool) {
        self.values.damage(name, is_known);
    }

    /// Whether an entry of this key exists and is intact.
    pub fn is_intact(&self, key: &(PartitionId, Vec<u8>)) -> bool {
        self.entries.get(key).is_some_and(|entry| !is_damaged(entry))
    }

    /// Whether an entry of this key exists and is damaged.
    pub fn is_damaged(&self, key: &(PartitionId, Vec<u8>)) -> bool {
        self.entries.get(key).is_some_and(|entry| is_damaged(entry))
    }

    fn scan(
        &self,
        partition: PartitionId,
        after: Option<&[u8]>,
        bytes_max: usize,
    ) -> (Vec<u8>, Vec<Vec<u8>>, bool) {
        let from = match after {
            Some(after) => Bound::Excluded((partition, after.to_vec())),
            None => Bound::Included((partition, Vec::new())),
        };
        let mut rest =
            self.entries.range((from, Bound::Unbounded)).take_while(|((of, _), _)| *of == partition);
        let (mut page, mut corrupt) = (Vec::new(), Vec::new());
        for ((_, key), entry) in rest.by_ref() {
            match is_damaged(entry) {
                true => corrupt.push(key.clone()),
                false => put_keyed_entry(&mut page, key, entry),
            }
            if page.len() >= bytes_max {
                break;
            }
        }
        (page, corrupt, rest.next().is_some())
    }

    /// Reads the entries of these keys, in the format of [`Self::scan`].
    fn gather(&self, partition: PartitionId, keys: &[u8], bytes_max: usize) -> (Vec<u8>, Vec<Vec<u8>>, bool) {
        let (mut page, mut corrupt) = (Vec::new(), Vec::new());
        let mut keys = gathered_keys(keys);
        while page.len() < bytes_max
            && let Some(key) = keys.next()
        {
            match self.entries.get(&(partition, key.to_vec())) {
                Some(entry) if is_damaged(entry) => corrupt.push(key.to_vec()),
                Some(entry) => put_keyed_entry(&mut page, key, entry),
                None => {}
            }
        }
        (page, corrupt, keys.next().is_some())
    }

    /// Completes an operation. Syncs complete in the order in which they began.
    pub fn finish(&mut self, now: Now, core: &mut Replica, busy: Busy) {
        match busy {
            Busy::Force { through, values } => {
                self.synced = self.synced.max(through);
                self.values.synced = self.values.synced.max(values);
                core.set_durable(self.durable());
                core.handle_storage(now, StorageCompletion::Synced { through });
            }
            Busy::Sync { entries, log_through, values, trims_before } => {
                self.synced = self.synced.max(log_through);
                self.values.synced = self.values.synced.max(values);
                self.durable = entries;
                let dropped = trims_before.saturating_sub(self.first) as usize;
                self.log.drain(..dropped);
                self.first += dropped as u64;
            }
        }
    }

    /// The process ends; the unsynced tail of the log is lost from a random record on.
    pub fn crash(&mut self, random: &mut Random) {
        let kept = random.between(self.synced, self.appended());
        self.values.crash(|| random.chance(500));
        self.crash_keeping(kept);
    }

    /// The process ends, and the log loses all records after `kept`, which is not before the last
    /// synced one.
    pub fn crash_keeping(&mut self, kept: u64) {
        assert!(self.synced <= kept && kept <= self.appended());
        self.log.truncate((kept + 1 - self.first) as usize);
        self.values.crash(|| false);
        self.entries.clone_from(&self.durable);
        // The new process numbers records from 1. All records that survived are durable.
        self.before += self.first - 1;
        self.first = 1;
        self.synced = self.appended();
    }

    /// Replays the log into a new process.
    pub fn replay(&mut self, now: Now, core: &mut Replica) {
        if self.values.is_marked {
            core.begin_values(self.values.names());
        }
        for record in &self.log {
            core.replay(now, record).expect("the log holds what the core wrote");
        }
        let busy = self.execute(now, core);
        assert!(busy.is_empty(), "replaying a log syncs nothing");
        core.begin_durable(self.durable());
    }
}
