//! Adds a checksum to every value, so that a bit that flips in the library, the page cache or the
//! disk is never served (docs/FAULTS.md row 10). It includes partition and key, because a value
//! that is stored under another key is just as wrong.

use super::{Engine, EngineSync, ScanPage};
use crate::{Result, StoreError};

const CHECKSUM_BYTES: usize = 4;

/// Appends a CRC32C to every value that the inner engine stores and verifies it on reading.
pub struct Checksummed<E> {
    inner: E,
    /// Reused buffer for value and checksum of a put.
    stored: Vec<u8>,
}

impl<E: Engine> Checksummed<E> {
    /// Wraps an engine whose values were all stored through this type.
    pub fn new(inner: E) -> Self {
        Self { inner, stored: Vec::new() }
    }

    /// The wrapped engine, whose values end with their checksums.
    pub fn inner_mut(&mut self) -> &mut E {
        &mut self.inner
    }
}

fn checksum(partition: u32, key: &[u8], value: &[u8]) -> u32 {
    let key_bytes = key.len() as u64; // keeps (key, value) and (key + byte, value - byte) apart
    let of_partition =
        crc32c::crc32c_append(crc32c::crc32c(&partition.to_le_bytes()), &key_bytes.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(of_partition, key), value)
}

/// Verifies and removes the checksum.
fn verify(partition: u32, key: &[u8], stored: &mut Vec<u8>) -> Result<()> {
    if let Some((value, found)) = stored.split_last_chunk::<CHECKSUM_BYTES>()
        && u32::from_le_bytes(*found) == checksum(partition, key, value)
    {
        stored.truncate(stored.len() - CHECKSUM_BYTES);
        return Ok(());
    }
    stored.clear();
    Err(StoreError::Corrupt { partition, key: key.to_vec() })
}

impl<E: Engine> Engine for Checksummed<E> {
    fn get_into(&self, partition: u32, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.inner.get_into(partition, key, value)?;
        if found {
            verify(partition, key, value)?;
        }
        Ok(found)
    }

    fn put(&mut self, partition: u32, key: &[u8], value: &[u8]) -> Result<()> {
        self.stored.clear();
        self.stored.extend_from_slice(value);
        self.stored.extend_from_slice(&checksum(partition, key, value).to_le_bytes());
        self.inner.put(partition, key, &self.stored)
    }

    fn remove(&mut self, partition: u32, key: &[u8]) -> Result<()> {
        self.inner.remove(partition, key)
    }

    fn scan(&self, partition: u32, after: Option<&[u8]>, bytes_max: usize) -> Result<ScanPage> {
        let mut page = self.inner.scan(partition, after, bytes_max)?;
        page.entries.retain_mut(|(key, value)| {
            let is_intact = verify(partition, key, value).is_ok();
            if !is_intact {
                page.corrupt.push(std::mem::take(key));
            }
            is_intact
        });
        Ok(page)
    }

    fn clear(&mut self, partition: u32) -> Result<()> {
        self.inner.clear(partition)
    }

    fn sync_begin(&mut self) -> Result<EngineSync> {
        self.inner.sync_begin()
    }

    fn synced(&mut self) -> Result<EngineSync> {
        self.inner.synced()
    }

    fn sync(&mut self) -> Result<()> {
        self.inner.sync()
    }

    fn set_space_short(&self, is_short: bool) {
        self.inner.set_space_short(is_short);
    }

    fn merge_lacked_space(&self) -> bool {
        self.inner.merge_lacked_space()
    }

    fn disk_bytes(&self) -> u64 {
        self.inner.disk_bytes()
    }

    fn approximate_keys(&self) -> u64 {
        self.inner.approximate_keys()
    }
}
