//! Large values of a node: in memory, or in segment files next to its log.

mod memory;

use memory::MemoryValues;
use nicekv_proto::OpId;
use nicekv_proto::large::Reference;
use nicekv_replica::{StorageRequest, ValueEnd};
use nicekv_store::values::{ValueOptions, ValueOwner, Values, Writing};
use nicekv_store::{Files, LogIdentity, StoreError, SyncFirst};
use nicekv_transport::Checksum;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes reclaimed in one step, so that other work has the disk most of the time.
const COMPACTED_BYTES: u64 = 1 << 20;
/// Size of the pieces in which bytes after a hole are read back, to be hashed.
const READ_BACK_BYTES: usize = 256 << 10;

/// Result of a request.
pub(super) enum Done {
    Written,
    /// The first large value was announced. Each log sync must sync this first, if `Some`.
    Marked(Option<Arc<dyn SyncFirst>>),
    Ended(OpId, ValueEnd),
    /// Result of the read with this token.
    Read(u64, Found),
    Removed,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Here,
    /// The value, or this part of it, does not exist.
    Nothing,
    Damaged,
}

/// A node's store of large values; see the module documentation.
pub(super) enum LargeValues {
    Memory(MemoryValues),
    Disk(Box<DiskValues>),
}

/// Values in a directory, which is created before the first large value.
pub(super) struct DiskValues {
    files: Arc<dyn Files>,
    directory: PathBuf,
    identity: LogIdentity,
    options: ValueOptions,
    values: Option<Values>,
    parts: HashMap<OpId, Part>,
}

/// A value that is being written.
struct Part {
    /// `None` if the disk had no room.
    writing: Option<Writing>,
    /// Hash of all bytes before `through`.
    checksum: Checksum,
    through: u32,
}

impl LargeValues {
    /// Volatile values.
    pub(super) fn in_memory() -> Self {
        Self::Memory(MemoryValues::default())
    }

    /// Durable values, including those of earlier processes.
    pub(super) fn on_disk(
        files: Arc<dyn Files>,
        directory: PathBuf,
        identity: LogIdentity,
        options: ValueOptions,
    ) -> Result<Self, StoreError> {
        let is_there = Values::are_in(&*files, &directory)?;
        let mut disk =
            DiskValues { files, directory, identity, options, values: None, parts: HashMap::new() };
        if is_there {
            disk.open()?;
        }
        Ok(Self::Disk(Box::new(disk)))
    }

    /// Names of complete values; `None` if there never was a large value.
    pub(super) fn found(&self) -> Option<Vec<OpId>> {
        match self {
            Self::Memory(_) => None,
            Self::Disk(disk) => {
                disk.values.as_ref().map(|values| values.iter().map(|(name, ..)| name).collect())
            }
        }
    }

    /// Files that each log sync must sync first; `None` if there never was a large value.
    pub(super) fn sync_first(&self) -> Option<Arc<dyn SyncFirst>> {
        match self {
            Self::Memory(_) => None,
            Self::Disk(disk) => disk.sync_first(),
        }
    }

    /// Executes a request. Bytes that were read are put into `out`.
    pub(super) fn carry_out(
        &mut self,
        request: &StorageRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Done, StoreError> {
        Ok(match *request {
            StorageRequest::MarkValues => Done::Marked(self.mark()?),
            StorageRequest::WriteValue { name, length, offset, bytes } => {
                self.write(name, length, offset, bytes)?;
                Done::Written
            }
            StorageRequest::EndValue { reference } => Done::Ended(reference.name, self.end(&reference)?),
            StorageRequest::ReadValue { token, name, offset, bytes } => {
                out.clear();
                out.resize(bytes, 0);
                Done::Read(token, self.read(name, offset, out)?)
            }
            StorageRequest::CondemnValue { name } => {
                self.condemn(name);
                Done::Removed
            }
            StorageRequest::RemoveValue { name } => {
                self.remove(name)?;
                Done::Removed
            }
            _ => unreachable!("not about a large value: {request:?}"),
        })
    }

    /// Creates the store if it does not exist. Returns what each log sync must sync first.
    fn mark(&mut self) -> Result<Option<Arc<dyn SyncFirst>>, StoreError> {
        match self {
            Self::Memory(_) => Ok(None),
            Self::Disk(disk) => disk.open(),
        }
    }

    fn write(&mut self, name: OpId, length: u32, offset: u32, bytes: &[u8]) -> Result<(), StoreError> {
        match self {
            Self::Memory(memory) => {
                memory.write(name, length, offset, bytes);
                Ok(())
            }
            Self::Disk(disk) => disk.write(name, length, offset, bytes),
        }
    }

    fn end(&mut self, reference: &Reference) -> Result<ValueEnd, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.end(reference)),
            Self::Disk(disk) => disk.end(reference),
        }
    }

    /// Reads `out.len()` bytes of a value from `offset` on.
    pub(super) fn read(&self, name: OpId, offset: u32, out: &mut [u8]) -> Result<Found, StoreError> {
        match self {
            Self::Memory(memory) if memory.read(name, offset, out) => Ok(Found::Here),
            Self::Memory(_) => Ok(Found::Nothing),
            Self::Disk(disk) => disk.read(name, offset, out),
        }
    }

    /// Marks a damaged value that will be written again.
    fn condemn(&mut self, name: OpId) {
        match self {
            Self::Memory(memory) => memory.condemn(name),
            Self::Disk(disk) => {
                disk.values.as_mut().map(|values| values.condemn(name));
            }
        }
    }

    pub(super) fn remove(&mut self, name: OpId) -> Result<(), StoreError> {
        match self {
            Self::Memory(memory) => {
                memory.remove(name);
                Ok(())
            }
            Self::Disk(disk) => disk.remove(name),
        }
    }

    /// Reclaims some dead space. Returns whether there may be more. For `room` see
    /// [`Values::compact_step`].
    pub(super) fn compact(&mut self, room: Option<u64>) -> Result<bool, StoreError> {
        let Self::Disk(disk) = self else { return Ok(false) };
        let Some(values) = &mut disk.values else { return Ok(false) };
        match values.compact_step(COMPACTED_BYTES, room) {
            // Other segments may have space to reclaim. The damaged value is reported when it is
            // read.
            Err(StoreError::Corrupt { .. }) => Ok(true),
            Err(error) if error.is_out_of_space() => Ok(false),
            other => other,
        }
    }

    /// Whether a compaction is running, which still holds the space that it will release.
    pub(super) fn is_copying(&self) -> bool {
        matches!(self, Self::Disk(disk) if disk.values.as_ref().is_some_and(Values::is_copying))
    }
}

/// Skips the bytes of a piece before `through`: they may be hashed already, so they must not
/// change. Returns the offset of the rest, and the rest.
fn beyond(through: usize, offset: u32, bytes: &[u8]) -> (usize, &[u8]) {
    let known = through.saturating_sub(offset as usize).min(bytes.len());
    (offset as usize + known, &bytes[known..])
}

impl DiskValues {
    fn open(&mut self) -> Result<Option<Arc<dyn SyncFirst>>, StoreError> {
        if self.values.is_some() {
            return Ok(None);
        }
        self.values = Some(Values::open(self.files.clone(), &self.directory, self.identity, self.options)?);
        Ok(self.sync_first())
    }

    fn sync_first(&self) -> Option<Arc<dyn SyncFirst>> {
        Some(Arc::new(self.values.as_ref()?.sync_handle()))
    }

    fn write(&mut self, name: OpId, length: u32, offset: u32, bytes: &[u8]) -> Result<(), StoreError> {
        let Some(values) = &mut self.values else { return Ok(()) };
        if values.contains(name) {
            return Ok(());
        }
        let part = match self.parts.entry(name) {
            std::collections::hash_map::Entry::Occupied(part) => part.into_mut(),
            std::collections::hash_map::Entry::Vacant(free) => {
                let owner = ValueOwner { partition: 0, key: Vec::new() };
                let writing = match values.begin(name, owner, length.into()) {
                    Ok(writing) => Some(writing),
                    Err(error) if is_no_room(&error) => None,
                    Err(error) => return Err(error),
                };
                free.insert(Part { writing, checksum: Checksum::new(), through: 0 })
            }
        };
        let Some(writing) = &mut part.writing else { return Ok(()) };
        let (offset, bytes) = beyond(part.through as usize, offset, bytes);
        let offset = offset as u32;
        match values.write(writing, offset.into(), bytes) {
            Err(error) if is_no_room(&error) => {
                if let Some(writing) = part.writing.take() {
                    values.abandon(writing)?;
                }
                return Ok(());
            }
            written => written?,
        }
        if part.through == offset {
            part.checksum.update(bytes);
            part.through += bytes.len() as u32;
        }
        Ok(())
    }

    fn end(&mut self, reference: &Reference) -> Result<ValueEnd, StoreError> {
        let Some(values) = &mut self.values else { return Ok(ValueEnd::Wrong) };
        if values.contains(reference.name) {
            return Ok(ValueEnd::Whole);
        }
        let Some(mut part) = self.parts.remove(&reference.name) else { return Ok(ValueEnd::Wrong) };
        let Some(writing) = part.writing.take() else { return Ok(ValueEnd::NoRoom) };
        let mut buffer = vec![0; READ_BACK_BYTES.min((reference.length - part.through) as usize)];
        while part.through < reference.length {
            let count = buffer.len().min((reference.length - part.through) as usize);
            writing.read(part.through.into(), &mut buffer[..count])?;
            part.checksum.update(&buffer[..count]);
            part.through += count as u32;
        }
        if part.checksum.finish() != reference.checksum {
            values.abandon(writing)?;
            return Ok(ValueEnd::Wrong);
        }
        match values.finish(writing) {
            Ok(()) => Ok(ValueEnd::Whole),
            Err(error) if is_no_room(&error) => Ok(ValueEnd::NoRoom),
            Err(error) => Err(error),
        }
    }

    fn read(&self, name: OpId, offset: u32, out: &mut [u8]) -> Result<Found, StoreError> {
        let values = self.values.as_ref().filter(|values| values.contains(name));
        match values.map(|values| values.read(name, offset.into(), out)) {
            Some(Ok(())) => Ok(Found::Here),
            None | Some(Err(StoreError::ValueRange { .. })) => Ok(Found::Nothing),
            Some(Err(StoreError::Corrupt { .. })) => Ok(Found::Damaged),
            Some(Err(error)) => Err(error),
        }
    }

    fn remove(&mut self, name: OpId) -> Result<(), StoreError> {
        let Some(values) = &mut self.values else { return Ok(()) };
        if let Some(Part { writing: Some(writing), .. }) = self.parts.remove(&name) {
            values.abandon(writing)?;
        }
        values.remove(name).map(drop)
    }
}

/// Whether the error affects only the value being written: the disk is full or busy, but has not
/// failed.
fn is_no_room(error: &StoreError) -> bool {
    error.is_out_of_space() || matches!(error, StoreError::ValuesBusy { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::ClientId;
    use nicekv_store::RealFiles;
    use std::os::unix::fs::FileExt;

    const LENGTH: u32 = 200_000;

    fn on_disk(directory: &std::path::Path, options: ValueOptions) -> LargeValues {
        let identity = LogIdentity { cluster_id: 1, storage_id: 2, node_id: 3 };
        LargeValues::on_disk(Arc::new(RealFiles), directory.into(), identity, options).unwrap()
    }

    /// Compaction may find a damaged value before a reader does.
    #[test]
    fn damaged_value_keeps_its_segment_and_others_are_compacted() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("values");
        let mut disk =
            on_disk(&directory, ValueOptions { segment_bytes: 1 << 20, ..ValueOptions::default() });
        disk.mark().unwrap();
        let name = |sequence| OpId { client: ClientId(7), sequence };
        let value = vec![7; LENGTH as usize];
        for sequence in 1..=20 {
            disk.write(name(sequence), LENGTH, 0, &value).unwrap();
            let checksum = nicekv_transport::checksum(&value);
            let reference = Reference { name: name(sequence), length: LENGTH, checksum };
            assert_eq!(disk.end(&reference).unwrap(), ValueEnd::Whole);
        }
        let segments = || std::fs::read_dir(&directory).unwrap().map(|it| it.unwrap().path());
        let first = segments().min().unwrap();
        let file = std::fs::File::options().write(true).open(&first).unwrap();
        file.write_all_at(&[0xff; 8], 2 * 4_096 + 500).unwrap();
        let before = segments().count();
        // One value is left in each segment; the one in the first segment is damaged.
        (2..=20)
            .filter(|sequence| sequence % 5 != 1)
            .for_each(|sequence| disk.remove(name(sequence)).unwrap());
        while disk.compact(None).unwrap() {}
        assert!(first.exists() && segments().count() < before, "{} of {before}", segments().count());
        let mut part = [0; 100];
        assert_eq!(disk.read(name(1), 0, &mut part).unwrap(), Found::Damaged);
        assert_eq!(disk.read(name(11), 0, &mut part).unwrap(), Found::Here);
    }

    #[test]
    fn only_checksum_mismatches_count_as_damage() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("values");
        let mut disk = on_disk(&directory, ValueOptions::default());
        assert!(disk.found().is_none() && disk.mark().unwrap().is_some());
        let value: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
        let name = OpId { client: ClientId(7), sequence: 1 };
        let reference = Reference { name, length: LENGTH, checksum: nicekv_transport::checksum(&value) };
        // The second half is written first.
        for (offset, part) in [(100_000, &value[100_000..]), (0, &value[..100_000])] {
            disk.write(name, LENGTH, offset, part).unwrap();
        }
        assert_eq!(disk.end(&reference).unwrap(), ValueEnd::Whole);
        let mut part = [0; 1_408];
        let last = LENGTH - part.len() as u32;
        assert_eq!(disk.read(name, last, &mut part).unwrap(), Found::Here);
        assert_eq!(part, value[last as usize..]);
        // A requester may ask for any length.
        assert_eq!(disk.read(name, last + 1, &mut part).unwrap(), Found::Nothing);
        let other = OpId { sequence: 2, ..name };
        assert_eq!(disk.read(other, 0, &mut part).unwrap(), Found::Nothing);
        let segment = std::fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
        let file = std::fs::File::options().write(true).open(segment).unwrap();
        // The value begins after the segment's header and its own, one page each.
        file.write_all_at(&[0xff; 8], 2 * 4_096 + 500).unwrap();
        assert_eq!(disk.read(name, 0, &mut part).unwrap(), Found::Damaged);
        assert_eq!(disk.read(name, last, &mut part).unwrap(), Found::Here, "the other block is intact");
    }

    #[test]
    fn hashed_bytes_are_not_overwritten() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("values");
        let mut disk = on_disk(&directory, ValueOptions::default());
        disk.mark().unwrap();
        let value: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
        let name = OpId { client: ClientId(7), sequence: 1 };
        let reference = Reference { name, length: LENGTH, checksum: nicekv_transport::checksum(&value) };
        let (wrong, mut found) = (vec![0xff; 150_000], vec![0; LENGTH as usize]);
        for mut values in [LargeValues::in_memory(), disk] {
            values.write(name, LENGTH, 0, &value[..100_000]).unwrap();
            values.write(name, LENGTH, 20_000, &wrong[..70_000]).unwrap();
            let mut overlapping = wrong.clone();
            overlapping[50_000..].copy_from_slice(&value[100_000..]);
            values.write(name, LENGTH, 50_000, &overlapping).unwrap();
            assert_eq!(values.end(&reference).unwrap(), ValueEnd::Whole);
            assert_eq!(values.read(name, 0, &mut found).unwrap(), Found::Here);
            assert!(found == value);
        }
    }
}
