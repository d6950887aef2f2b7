//! Chunks of objects in a backup: which ones an object needs, and where they are in the file.

use super::error::{BackupError, Damage};
use nicekv_objects::{Manifest, ManifestError, chunk_id};
use nicekv_proto::chunk::ChunkId;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The distinct chunks of an object with their lengths; empty if the value is not a manifest.
pub(super) fn needs(value: &[u8]) -> Result<Vec<(ChunkId, u32)>, ManifestError> {
    let manifest = match Manifest::decode(value) {
        Err(ManifestError::NotOurs) => return Ok(Vec::new()),
        decoded => decoded?,
    };
    let mut seen = HashSet::new();
    let all = (0..).zip(&manifest.chunks).map(|(number, id)| (*id, manifest.chunk_length(number)));
    Ok(all.filter(|chunk| seen.insert(*chunk)).collect())
}

/// Positions of chunks in a file.
#[derive(Default)]
pub(super) struct ChunkIndex(HashMap<ChunkId, (u64, u32)>);

impl ChunkIndex {
    /// Adds a chunk, which begins at `place` in the file.
    pub(super) fn insert(&mut self, id: ChunkId, bytes: &[u8], place: u64) -> Result<(), Damage> {
        if chunk_id(bytes) != id {
            return Err(Damage::WrongChunk(id));
        }
        match self.0.insert(id, (place, bytes.len() as u32)) {
            None => Ok(()),
            Some(_) => Err(Damage::ChunkTwice(id)),
        }
    }

    /// Checks that all chunks of an object precede it in the file.
    pub(super) fn check(&self, key: &[u8], value: &[u8]) -> Result<(), Damage> {
        let name = || key.escape_ascii().to_string();
        let needs =
            needs(value).map_err(|error| Damage::Content(format!("object \"{}\": {error}", name())))?;
        let is_there =
            |(id, length): &(ChunkId, u32)| self.0.get(id).is_some_and(|(_, found)| found == length);
        match needs.into_iter().find(|chunk| !is_there(chunk)) {
            None => Ok(()),
            Some((id, _)) => Err(Damage::ChunkMissing { name: name(), id }),
        }
    }
}

/// The chunks of a verified file.
pub(super) struct ChunkFile {
    file: File,
    index: ChunkIndex,
}

impl ChunkFile {
    pub(super) fn open(path: &Path, index: ChunkIndex) -> Result<Self, BackupError> {
        Ok(Self { file: File::open(path)?, index })
    }

    /// Reads a chunk and verifies it again, in case the file has changed since.
    pub(super) fn read(&self, id: ChunkId) -> Result<Arc<[u8]>, BackupError> {
        let (at, length) = *self.index.0.get(&id).expect("names were compared with the index");
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, at)?;
        if chunk_id(&bytes) != id {
            return Err(BackupError::Damaged { at, why: Damage::WrongChunk(id) });
        }
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(chunks: &[&[u8]], chunk_bytes: u32) -> Vec<u8> {
        let length = chunks.iter().map(|bytes| bytes.len() as u64).sum();
        let chunks = chunks.iter().map(|bytes| chunk_id(bytes)).collect();
        Manifest { length, chunk_bytes, chunks }.encode()
    }

    #[test]
    fn objects_need_each_chunk_once_and_other_values_none() {
        let zeros = [0; 10];
        let value = object(&[&zeros, b"0123456789", &zeros, b"end"], 10);
        let expected = [(chunk_id(&zeros), 10), (chunk_id(b"0123456789"), 10), (chunk_id(b"end"), 3)];
        assert_eq!(needs(&value).unwrap(), expected);
        assert_eq!(needs(b"a value").unwrap(), []);
        let mut newer = value;
        newer[4] = 99;
        assert!(needs(&newer).is_err());
    }

    #[test]
    fn chunks_match_their_ids_come_once_and_before_their_objects() {
        let mut index = ChunkIndex::default();
        let (one, other) = (chunk_id(b"one"), chunk_id(b"other"));
        assert_eq!(index.insert(one, b"onf", 0), Err(Damage::WrongChunk(one)));
        assert_eq!(index.insert(one, b"one", 0), Ok(()));
        assert_eq!(index.insert(one, b"one", 9), Err(Damage::ChunkTwice(one)));
        assert_eq!(index.check(b"key", &object(&[b"one"], 3)), Ok(()));
        let missing = Damage::ChunkMissing { name: "key".into(), id: other };
        assert_eq!(index.check(b"key", &object(&[b"other"], 5)), Err(missing));
        // The same id with two lengths is a contradiction.
        let contradiction = Manifest { length: 4, chunk_bytes: 4, chunks: vec![one] }.encode();
        let missing = Damage::ChunkMissing { name: "key".into(), id: one };
        assert_eq!(index.check(b"key", &contradiction), Err(missing));
    }

    #[test]
    fn changes_after_verification_are_detected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("b");
        std::fs::write(&path, b"..one").unwrap();
        let mut index = ChunkIndex::default();
        let one = chunk_id(b"one");
        index.insert(one, b"one", 2).unwrap();
        let file = ChunkFile::open(&path, index).unwrap();
        assert_eq!(*file.read(one).unwrap(), *b"one");
        std::fs::write(&path, b"..onf").unwrap();
        let error = file.read(one).unwrap_err();
        assert!(matches!(error, BackupError::Damaged { at: 2, why: Damage::WrongChunk(_) }), "{error}");
        std::fs::write(&path, b"..").unwrap();
        assert!(matches!(file.read(one).unwrap_err(), BackupError::Io(_)));
    }
}
