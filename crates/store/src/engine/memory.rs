//! The engine that forgets.
//!
//! Reading and overwriting touch the hash map of the partition and allocate nothing; the order that scans need is a second structure
//! which only creation and removal of keys touch. A B-tree alone would make each read a walk of several cache misses,
//! a hash map alone would make each page of a scan sort the whole partition.

use super::{Engine, EngineSync, ScanPage};
use crate::Result;
use std::{
    collections::{BTreeSet, HashMap},
    ops::Bound,
    sync::Arc,
};

/// Keeps everything in memory. Its syncs are finished at once and mean nothing: after a restart it is empty.
#[derive(Default)]
pub struct MemoryEngine {
    partitions: HashMap<u32, Partition>,
}

#[derive(Default)]
struct Partition {
    values: HashMap<Arc<[u8]>, Vec<u8>>,
    order: BTreeSet<Arc<[u8]>>,
}

impl MemoryEngine {
    /// An empty engine.
    pub fn new() -> Self {
        Self::default()
    }

    fn partition(&self, partition: u32) -> Option<&Partition> {
        self.partitions.get(&partition)
    }
}

impl Engine for MemoryEngine {
    fn get_into(&self, partition: u32, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let stored = self.partition(partition).and_then(|partition| partition.values.get(key));
        value.extend_from_slice(stored.map_or(&[], Vec::as_slice));
        Ok(stored.is_some())
    }

    fn put(&mut self, partition: u32, key: &[u8], value: &[u8]) -> Result<()> {
        let partition = self.partitions.entry(partition).or_default();
        if let Some(stored) = partition.values.get_mut(key) {
            stored.clear();
            stored.extend_from_slice(value);
        } else {
            let key: Arc<[u8]> = key.into();
            partition.order.insert(key.clone());
            partition.values.insert(key, value.to_vec());
        }
        Ok(())
    }

    fn remove(&mut self, partition: u32, key: &[u8]) -> Result<()> {
        if let Some(partition) = self.partitions.get_mut(&partition) {
            partition.values.remove(key);
            partition.order.remove(key);
        }
        Ok(())
    }

    fn scan(&self, partition: u32, after: Option<&[u8]>, bytes_max: usize) -> Result<ScanPage> {
        let mut page = ScanPage::default();
        let Some(partition) = self.partition(partition) else { return Ok(page) };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut bytes = 0;
        for key in partition.order.range::<[u8], _>((from, Bound::Unbounded)) {
            if bytes >= bytes_max && !page.entries.is_empty() {
                page.more = true;
                break;
            }
            let value = &partition.values[key];
            bytes += key.len() + value.len();
            page.entries.push((key.to_vec(), value.clone()));
        }
        Ok(page)
    }

    fn clear(&mut self, partition: u32) -> Result<()> {
        self.partitions.remove(&partition);
        Ok(())
    }

    fn sync_begin(&mut self) -> Result<EngineSync> {
        self.synced()
    }

    fn synced(&mut self) -> Result<EngineSync> {
        Ok(EngineSync::default())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn approximate_keys(&self) -> u64 {
        self.partitions.values().map(|partition| partition.values.len() as u64).sum()
    }

    fn disk_bytes(&self) -> u64 {
        0
    }
}
