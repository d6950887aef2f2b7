use super::*;
use crate::backup::verify::{Verified, verify};
use nicekv_chunks::chunk_id;
use nicekv_wire::Form;
use nicekv_wire::recovery::{Entry, put_keyed_entry};

fn header() -> Header {
    let keyspaces = vec![(0, "default".into())];
    Header { cluster: "c".into(), program: "0".into(), unix_ms: 1, keyspaces, objects: vec![7] }
}

fn written(path: &Path) -> Vec<Record> {
    let begin = Begin { keyspace: 0, partition: 3, epoch: 2, index: 9, node: "n".into() };
    let totals = Totals { entries: 2, bytes: 7, chunks: 1, chunk_bytes: 50 };
    let records = vec![
        Record::Begin(begin),
        Record::Entries(vec![1; 1000]),
        Record::Entries(vec![2; 10]),
        Record::Part(Part {
            name: OpId { client: ClientId(u64::MAX - 1), sequence: 3 },
            offset: 1 << 17,
            bytes: vec![3; 100],
        }),
        Record::Chunk(Chunk { id: chunk_id(&[4; 50]), bytes: vec![4; 50] }),
        Record::Close(totals),
        Record::End(totals),
    ];
    let mut writer = Writer::create(path, &header()).unwrap();
    let place = writer.place();
    writer.write(&Record::Entries(vec![9; 5000])).unwrap();
    writer.go_back(place).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    writer.finish().unwrap();
    records
}

fn read(path: &Path) -> Result<Vec<Record>, BackupError> {
    let mut reader = Reader::open(path)?;
    assert_eq!(reader.header, header());
    let mut records = Vec::new();
    while !matches!(records.last(), Some(Record::End(_))) {
        records.push(reader.next()?);
    }
    if reader.is_at_end()? { Ok(records) } else { Err(reader.damaged(Damage::Order)) }
}

#[test]
fn what_is_written_is_what_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b");
    assert_eq!(written(&path), read(&path).unwrap());
    assert!(Writer::create(&path, &header()).is_err(), "nothing is written over");
}

#[test]
fn every_byte_counts_and_none_may_be_missing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b");
    written(&path);
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        let error = read(&path).expect_err("it is damaged").to_string();
        assert!(!error.contains('\n'), "{error}");
        std::fs::write(&path, &whole[..at]).unwrap();
        let is_noticed = match read(&path) {
            Err(BackupError::Damaged { why: Damage::CutShort, .. }) => at >= b"nicekv-backup 3\n".len(),
            Err(BackupError::NotOurs) => at < b"nicekv-backup 3\n".len(),
            _ => false,
        };
        assert!(is_noticed, "cut short behind {at} bytes");
    }
    std::fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
    read(&path).expect_err("something follows");
}

#[test]
fn another_format_is_told_from_what_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b");
    std::fs::write(&path, "nicekv-backup 99\nwhatever").unwrap();
    let error = Reader::open(&path).err().unwrap();
    assert!(matches!(&error, BackupError::Format(format) if format == "99"));
    assert!(error.to_string().contains("format 99, this program reads formats 1 to 3"), "{error}");
    std::fs::write(&path, "PK\u{3}\u{4}").unwrap();
    let error = Reader::open(&path).err().unwrap();
    assert!(matches!(error, BackupError::NotOurs) && error.to_string() == "no backup of nicekv");
}

#[test]
fn the_longest_chunk_is_one_record_and_is_found_again_by_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b");
    let mut writer = Writer::create(&path, &header()).unwrap();
    let bytes: Vec<u8> = (0..CHUNK_LENGTH_MAX).map(|at| (at % 251) as u8).collect();
    let chunk = Record::Chunk(Chunk { id: chunk_id(&bytes), bytes: bytes.clone() });
    writer.write(&Record::Entries(vec![1; 100])).unwrap();
    writer.write(&chunk).unwrap();
    writer.finish().unwrap();
    let mut reader = Reader::open(&path).unwrap();
    reader.next().unwrap();
    assert_eq!(reader.next().unwrap(), chunk);
    let place = reader.place_of_last(bytes.len()) as usize;
    assert!(std::fs::read(&path).unwrap()[place..][..bytes.len()] == bytes);
}

/// As releases of before have written it.
fn older(version: &str, records: &[(u8, &[u8])]) -> Vec<u8> {
    let (mut file, mut checksum) = (format!("nicekv-backup {version}\n").into_bytes(), 0);
    for (kind, payload) in records {
        let record = [&[*kind], &(payload.len() as u32).to_be_bytes()[..], payload].concat();
        checksum = crc32c::crc32c_append(checksum, &record);
        file.extend_from_slice(&record);
        file.extend_from_slice(&checksum.to_be_bytes());
    }
    file
}

#[test]
fn backups_of_releases_before_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b");
    let (mut entry, mut entries, version) = (vec![], vec![], OpId { client: ClientId(1), sequence: 1 });
    Entry { index: 1, version, expiry_ms: 0, form: Form::Plain, value: Some(b"blue") }.append(&mut entry);
    put_keyed_entry(&mut entries, b"color", &entry);
    let totals = format!(r#"{{"entries":1,"bytes":{}}}"#, entries.len());
    let records: [(u8, &[u8]); 5] = [
        (b'H', br#"{"cluster":"c","program":"0.1","unix_ms":1,"keyspaces":[[0,"default"]]}"#),
        (b'P', br#"{"keyspace":0,"partition":1,"epoch":1,"index":2,"node":"node-1"}"#),
        (b'E', &entries),
        (b'Q', totals.as_bytes()),
        (b'Z', totals.as_bytes()),
    ];
    for version in ["1", "2"] {
        std::fs::write(&path, older(version, &records)).unwrap();
        let Verified { header, partitions, totals, .. } = verify(&path).unwrap();
        assert_eq!((header.objects.len(), partitions, totals.entries, totals.chunks), (0, 1, 1, 0));
    }
    std::fs::write(&path, older("3", &records)).unwrap();
    assert!(matches!(verify(&path), Err(BackupError::Damaged { why: Damage::Checksum, .. })));
}
