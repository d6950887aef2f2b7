use super::*;
use crate::backup::error::{BackupError, Damage};
use crate::backup::format::{Begin, StoredKeyspace};
use crate::backup::verify::verify;
use nicekv_objects::{GetError, Manifest, chunk_id};
use nicekv_proto::ClientId;
use nicekv_runtime::chunks::ChunkClientError;
use std::cell::RefCell;
use std::collections::BTreeMap;

const KEYSPACE: u16 = 3;

fn version(sequence: u64) -> OpId {
    OpId { client: ClientId(9), sequence }
}

/// The manifest of an object with chunks of 10 bytes.
fn object(content: &[u8]) -> Vec<u8> {
    let chunks = content.chunks(10).map(chunk_id).collect();
    Manifest { length: content.len() as u64, chunk_bytes: 10, chunks }.encode()
}

/// A fake cluster: its names and chunks, and a record of fetched chunks.
#[derive(Default)]
struct Fake {
    names: BTreeMap<Vec<u8>, Versioned>,
    chunks: BTreeMap<ChunkId, Vec<u8>>,
    got: RefCell<Vec<ChunkId>>,
    /// The name has a new version each time it is read.
    is_restless: bool,
}

impl Fake {
    fn with(contents: &[(&str, &[u8])]) -> Self {
        let mut fake = Self::default();
        for (number, (key, content)) in (1..).zip(contents) {
            fake.put(key, number, content);
        }
        fake
    }

    fn put(&mut self, key: &str, number: u64, content: &[u8]) {
        self.chunks.extend(content.chunks(10).map(|bytes| (chunk_id(bytes), bytes.to_vec())));
        self.names.insert(key.into(), (version(number), object(content)));
    }

    fn collect(&mut self, chunk: &[u8]) {
        self.chunks.remove(&chunk_id(chunk));
    }
}

impl Source for Fake {
    fn now(&self, key: &[u8]) -> Result<Option<Versioned>, Failure> {
        let at = self.got.borrow().len() as u64 + 1_000;
        let now = self.names.get(key).cloned();
        Ok(now.map(|(known, value)| if self.is_restless { (version(at), value) } else { (known, value) }))
    }

    fn fetch(&self, ids: &[ChunkId], take: &mut Take<'_>) -> Result<(), NotGot> {
        for id in ids {
            self.got.borrow_mut().push(*id);
            let found = self.chunks.get(id);
            let bytes = found.ok_or(NotGot::Chunk(*id, ChunkClientError::Get(GetError::NotFound)))?;
            take(*id, bytes).map_err(NotGot::Consumer)?;
        }
        Ok(())
    }
}

fn header() -> Header {
    let (cluster, program) = ("c".into(), "0".into());
    let keyspaces = vec![StoredKeyspace { id: KEYSPACE, name: "o".into(), ..StoredKeyspace::default() }];
    Header { cluster, program, unix_ms: 1, keyspaces, objects: vec![KEYSPACE] }
}

/// Writes a backup: the names are those of `moment`, the snapshot; chunks and current values are
/// those of `source`.
fn written(path: &Path, moment: &Fake, source: &Fake) -> Result<Totals, Failure> {
    let mut beside = Names::create(path, &header()).unwrap();
    let begin = Begin { keyspace: KEYSPACE, partition: 1, epoch: 1, index: 9, node: "n".into() };
    beside.write(&Record::Begin(begin)).unwrap();
    for (key, found) in &moment.names {
        write_name(&mut beside, key, found).unwrap();
    }
    beside.write(&Record::Close(Totals::default())).unwrap();
    let names = Names::of(beside).unwrap();
    let mut writer = Writer::create(path, &header()).unwrap();
    let totals = ObjectWriter::default().write(&mut writer, &names, source)?;
    writer.write(&Record::End(totals)).unwrap();
    writer.finish().unwrap();
    Ok(totals)
}

/// The contents of a valid file: each name with the whole content of its object.
fn read(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let chunks = crate::backup::chunks::ChunkFile::open(path, verify(path).unwrap().chunks).unwrap();
    let (mut reader, mut large, mut found) =
        (Reader::open(path).unwrap(), LargeEntries::default(), BTreeMap::new());
    loop {
        let record = reader.next().unwrap();
        if matches!(record, Record::End(_)) {
            return found;
        }
        for Whole { key, value, .. } in large.whole(&record).unwrap() {
            let manifest = Manifest::decode(&value).unwrap();
            let content = manifest.chunks.iter().flat_map(|id| chunks.read(*id).unwrap().to_vec());
            found.insert(key, content.collect());
        }
    }
}

fn of(pairs: &[(&str, &[u8])]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    pairs.iter().map(|(key, content)| (key.as_bytes().to_vec(), content.to_vec())).collect()
}

#[test]
fn objects_are_complete_and_each_chunk_is_written_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b");
    let long: Vec<u8> = (0..20_000_u32).flat_map(u32::to_be_bytes).collect();
    let contents: [(&str, &[u8]); 4] =
        [("a", b"0123456789abcdefghij!"), ("b", b"abcdefghij0123456789"), ("c", b""), ("d", &long)];
    let fake = Fake::with(&contents);
    let totals = written(&path, &fake, &fake).unwrap();
    assert_eq!(read(&path), of(&contents));
    assert_eq!((totals.entries, totals.chunks), (4, 3 + 8_000));
    assert_eq!(totals.chunk_bytes, 21 + long.len() as u64);
    assert_eq!(fake.got.borrow().len(), 3 + 8_000, "no chunk is fetched twice");
    let verified = verify(&path).unwrap();
    assert_eq!((verified.totals, verified.partitions), (totals, 1));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "the temporary file is gone");
}

#[test]
fn deleted_objects_are_skipped_and_replaced_ones_are_current() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b");
    let moment =
        Fake::with(&[("deleted", b"0123456789gone"), ("kept", b"kept"), ("replaced", b"0123456789old")]);
    let mut now = Fake::with(&[("deleted", b"0123456789gone"), ("kept", b"kept")]);
    now.names.remove(&b"deleted"[..]);
    now.put("replaced", 7, b"0123456789new");
    now.collect(b"gone");
    written(&path, &moment, &now).unwrap();
    assert_eq!(read(&path), of(&[("kept", b"kept"), ("replaced", b"0123456789new")]));
    // Chunks written before the missing one was noticed were discarded, and written again for the
    // object that needs them.
    assert_eq!(verify(&path).unwrap().totals.chunks, 3);
}

#[test]
fn lost_chunks_and_ever_changing_objects_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    let mut fake = Fake::with(&[("broken", b"0123456789lost")]);
    fake.collect(b"lost");
    let Err(Failure::Operation(why)) = written(&directory.path().join("a"), &fake, &fake) else {
        panic!("an incomplete backup succeeded")
    };
    let id = chunk_id(b"lost").to_string();
    assert!(
        why.contains("object \"broken\": chunk ") && why.contains(&id) && why.contains("no target"),
        "{why}"
    );
    fake.is_restless = true;
    let Err(Failure::Operation(why)) = written(&directory.path().join("b"), &fake, &fake) else {
        panic!("an incomplete backup succeeded")
    };
    assert!(why.contains("replaced repeatedly"), "{why}");
    let id = chunk_id(b"0123456789");
    fake.is_restless = false;
    fake.put("broken", 1, b"0123456789lost");
    fake.chunks.insert(id, b"short".to_vec());
    let Err(Failure::Operation(why)) = written(&directory.path().join("c"), &fake, &fake) else {
        panic!("an incomplete backup succeeded")
    };
    assert!(why.contains("differs in length"), "{why}");
}

#[test]
fn every_changed_or_missing_bit_of_objects_is_detected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b");
    let fake = Fake::with(&[("a", b"0123456789abc"), ("b", b"0123456789def")]);
    written(&path, &fake, &fake).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&path, damaged).unwrap();
        assert!(verify(&path).is_err(), "byte {at} has changed");
        std::fs::write(&path, &whole[..at]).unwrap();
        assert!(verify(&path).is_err(), "truncated after byte {at}");
    }
}

/// The damage found in a file whose one partition has these records and whose checksums are all
/// valid.
fn judged(path: &Path, records: &[Record]) -> Option<Damage> {
    _ = std::fs::remove_file(path);
    let mut writer = Writer::create(path, &header()).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    writer.finish().unwrap();
    match verify(path) {
        Ok(_) => None,
        Err(BackupError::Damaged { why, .. }) => Some(why),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn impossible_records_are_refused_despite_valid_checksums() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b");
    let fake = Fake::with(&[("a", b"0123456789")]);
    written(&path, &fake, &fake).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let [begin, chunk, name, close, end] = [(); 5].map(|()| reader.next().unwrap());
    let id = chunk_id(b"0123456789");
    let judge = |records: &[&Record]| {
        let records: Vec<Record> = records.iter().map(|record| (*record).clone()).collect();
        judged(&path, &records)
    };
    assert_eq!(judge(&[&begin, &chunk, &name, &close, &end]), None);
    let missing = Damage::ChunkMissing { name: "a".into(), id };
    assert_eq!(judge(&[&begin, &name, &chunk, &close, &end]), Some(missing));
    assert_eq!(judge(&[&begin, &chunk, &chunk, &name, &close, &end]), Some(Damage::ChunkTwice(id)));
    let wrong = Record::Chunk(Chunk { id, bytes: b"012345678x".to_vec() });
    assert_eq!(judge(&[&begin, &wrong, &name, &close, &end]), Some(Damage::WrongChunk(id)));
    assert_eq!(judge(&[&begin, &name]), Some(Damage::ChunkMissing { name: "a".into(), id }));
    assert_eq!(judge(&[&begin, &chunk, &close, &end]), Some(Damage::Order), "the totals do not match");
    assert_eq!(judge(&[&chunk, &begin, &name, &close, &end]), Some(Damage::Order));
    assert_eq!(judge(&[&begin, &chunk, &name, &close]), Some(Damage::CutShort));
    let foreign = Begin { keyspace: 99, partition: 1, epoch: 1, index: 9, node: "n".into() };
    assert_eq!(judge(&[&Record::Begin(foreign)]), Some(Damage::ForeignKeyspace));
}
