use super::*;
use nicekv_objects::chunk_id;

fn header() -> Header {
    let settings = "replication=chain,replicas=3".into();
    let keyspaces = vec![StoredKeyspace { id: 0, name: "default".into(), settings }];
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
fn written_records_are_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b");
    assert_eq!(written(&path), read(&path).unwrap());
    assert!(Writer::create(&path, &header()).is_err(), "existing files are not overwritten");
}

#[test]
fn every_changed_or_missing_byte_is_detected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b");
    written(&path);
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        let error = read(&path).expect_err("the file is damaged").to_string();
        assert!(!error.contains('\n'), "{error}");
        std::fs::write(&path, &whole[..at]).unwrap();
        let is_noticed = match read(&path) {
            Err(BackupError::Damaged { why: Damage::CutShort, .. }) => at >= b"nicekv-backup 4\n".len(),
            Err(BackupError::NotOurs) => at < b"nicekv-backup 4\n".len(),
            _ => false,
        };
        assert!(is_noticed, "truncated after {at} bytes");
    }
    std::fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
    read(&path).expect_err("something follows");
}

#[test]
fn other_formats_and_other_files_are_distinguished() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b");
    std::fs::write(&path, "nicekv-backup 99\nwhatever").unwrap();
    let error = Reader::open(&path).err().unwrap();
    assert!(matches!(&error, BackupError::Format(format) if format == "99"));
    assert!(
        error.to_string().contains("backup format 99 is not supported (this release reads format 4)"),
        "{error}"
    );
    std::fs::write(&path, "PK\u{3}\u{4}").unwrap();
    let error = Reader::open(&path).err().unwrap();
    assert!(matches!(error, BackupError::NotOurs) && error.to_string() == "not a nicekv backup");
}

#[test]
fn longest_chunk_is_one_record_with_a_known_position() {
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

#[test]
fn older_formats_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b");
    for version in ["1", "2", "3"] {
        std::fs::write(&path, format!("nicekv-backup {version}\nH")).unwrap();
        let error = Reader::open(&path).err().unwrap();
        assert!(matches!(&error, BackupError::Format(format) if format == version), "{error}");
    }
}
