//! The file of a backup.
//!
//! ```text
//!   nicekv-backup 2\n
//!   kind (1 byte) │ length (4, big-endian) │ that many bytes │ CRC-32C (4) of everything since the first line up to here
//!   H: JSON, of what it is │ P: JSON, a partition begins │ E: keyed entries │ V: a part of a large value │ Q: JSON, it ends │ … │ Z: JSON, the end
//! ```
//!
//! Parts of large values come in the order of the entries that speak of them, each value from its beginning to its end; format 1 has none.
//!
//! Each checksum covers what is before it, too: nothing can be missing, doubled or in another order, and without the end it is not whole.

use nicekv_wire::{ClientId, OpId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

const MARK: &str = "nicekv-backup ";
/// Of what is written, …
const VERSION: &str = "2";
/// … and what is read, too.
const OLDER_VERSION: &str = "1";
/// Of the head of a part of a large value: client, sequence, offset.
const PART_HEAD_BYTES: usize = 20;
/// Longest record: pages of nodes are much shorter.
const RECORD_BYTES_MAX: usize = 1 << 20;
const LINE_BYTES_MAX: usize = 64;

/// Of what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// 32 hexadecimal digits.
    pub(super) cluster: String,
    /// Of the program that wrote it.
    pub(super) program: String,
    /// By the clock of the host where it was written, when it was begun.
    pub(super) unix_ms: u64,
    /// Their numbers and names.
    pub(super) keyspaces: Vec<(u16, String)>,
}

/// A partition begins: what follows is what it held when this decision was the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begin {
    pub(super) keyspace: u16,
    pub(super) partition: u32,
    pub(super) epoch: u32,
    pub(super) index: u64,
    /// Which node has told it.
    pub(super) node: String,
}

/// How much there was, of a partition or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Totals {
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

/// What a file has.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record {
    Begin(Begin),
    /// Keyed entries.
    Entries(Vec<u8>),
    Part(Part),
    Close(Totals),
    End(Totals),
}

/// Of a large value, from this offset on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: OpId,
    pub(super) offset: u32,
    pub(super) bytes: Vec<u8>,
}

impl Part {
    fn encode(&self) -> Vec<u8> {
        let Self { name, offset, bytes } = self;
        let mut payload = Vec::with_capacity(PART_HEAD_BYTES + bytes.len());
        payload.extend_from_slice(&name.client.0.to_be_bytes());
        payload.extend_from_slice(&name.sequence.to_be_bytes());
        payload.extend_from_slice(&offset.to_be_bytes());
        payload.extend_from_slice(bytes);
        payload
    }

    fn decode(payload: &[u8]) -> Option<Self> {
        let (client, rest) = payload.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (offset, bytes) = rest.split_first_chunk()?;
        let name =
            OpId { client: ClientId(u64::from_be_bytes(*client)), sequence: u64::from_be_bytes(*sequence) };
        Some(Self { name, offset: u32::from_be_bytes(*offset), bytes: bytes.to_vec() })
    }
}

/// A file that is being written, and where it can be gone back to.
pub(super) struct Writer {
    file: BufWriter<File>,
    place: Place,
}

/// After a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    offset: u64,
    checksum: u32,
}

impl Writer {
    pub(super) fn create(path: &Path, header: &Header) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        // What it holds is as private as the data.
        let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        let line = format!("{MARK}{VERSION}\n");
        let place = Place { offset: line.len() as u64, checksum: 0 };
        let mut writer = Self { file: BufWriter::new(file), place };
        writer.file.write_all(line.as_bytes())?;
        writer.json(b'H', header)?;
        Ok(writer)
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// Forgets what was written since.
    pub(super) fn go_back(&mut self, place: Place) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().set_len(place.offset)?;
        self.file.seek(SeekFrom::Start(place.offset))?;
        self.place = place;
        Ok(())
    }

    pub(super) fn write(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::Begin(begin) => self.json(b'P', begin),
            Record::Entries(entries) => self.record(b'E', entries),
            Record::Part(part) => self.record(b'V', &part.encode()),
            Record::Close(totals) => self.json(b'Q', totals),
            Record::End(totals) => self.json(b'Z', totals),
        }
    }

    fn json(&mut self, kind: u8, value: &impl Serialize) -> io::Result<()> {
        self.record(kind, &serde_json::to_vec(value)?)
    }

    fn record(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        assert!(payload.len() <= RECORD_BYTES_MAX, "pages are shorter");
        let length = (payload.len() as u32).to_be_bytes();
        for part in [&[kind], &length[..], payload] {
            self.place.checksum = crc32c::crc32c_append(self.place.checksum, part);
            self.file.write_all(part)?;
        }
        self.file.write_all(&self.place.checksum.to_be_bytes())?;
        self.place.offset += 9 + payload.len() as u64;
        Ok(())
    }

    /// It is whole, and on the disk.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }
}

/// A file that is being read; its errors are one line, without its name.
pub(super) struct Reader {
    file: BufReader<File>,
    checksum: u32,
    offset: u64,
    pub(super) header: Header,
}

impl Reader {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let mut file = BufReader::new(File::open(path).map_err(|error| error.to_string())?);
        let mut line = Vec::new();
        io::BufRead::read_until(&mut (&mut file).take(LINE_BYTES_MAX as u64), b'\n', &mut line)
            .map_err(|error| error.to_string())?;
        let text = std::str::from_utf8(&line).ok().and_then(|line| line.strip_suffix('\n'));
        match text.and_then(|line| line.strip_prefix(MARK)) {
            Some(VERSION | OLDER_VERSION) => {}
            Some(other) => {
                return Err(format!(
                    "a backup of format {other}, this program reads formats {OLDER_VERSION} and {VERSION}: take its release"
                ));
            }
            None => return Err("no backup of nicekv".into()),
        }
        let header = Header { cluster: String::new(), program: String::new(), unix_ms: 0, keyspaces: vec![] };
        let mut reader = Self { file, checksum: 0, offset: line.len() as u64, header };
        match reader.record()? {
            (b'H', payload) => reader.header = reader.parsed(&payload)?,
            _ => return Err(reader.damaged("it does not say what it is")),
        }
        Ok(reader)
    }

    /// The next record.
    pub(super) fn next(&mut self) -> Result<Record, String> {
        let (kind, payload) = self.record()?;
        Ok(match kind {
            b'P' => Record::Begin(self.parsed(&payload)?),
            b'E' => Record::Entries(payload),
            b'V' => Record::Part(Part::decode(&payload).ok_or_else(|| self.damaged("a part of no value"))?),
            b'Q' => Record::Close(self.parsed(&payload)?),
            b'Z' => Record::End(self.parsed(&payload)?),
            _ => return Err(self.damaged("a record of an unknown kind")),
        })
    }

    /// Whether something follows.
    pub(super) fn is_at_end(&mut self) -> Result<bool, String> {
        Ok(io::BufRead::fill_buf(&mut self.file).map_err(|error| error.to_string())?.is_empty())
    }

    fn record(&mut self) -> Result<(u8, Vec<u8>), String> {
        let mut head = [0; 5];
        self.read(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > RECORD_BYTES_MAX {
            return Err(self.damaged("a record that is too long"));
        }
        let (mut payload, mut checksum) = (vec![0; length], [0; 4]);
        self.read(&mut payload)?;
        self.read(&mut checksum)?;
        self.checksum = crc32c::crc32c_append(crc32c::crc32c_append(self.checksum, &head), &payload);
        if self.checksum != u32::from_be_bytes(checksum) {
            return Err(self.damaged("a checksum does not match"));
        }
        self.offset += 9 + length as u64;
        Ok((head[0], payload))
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), String> {
        self.file.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged("it ends too early: not the whole backup"),
            _ => error.to_string(),
        })
    }

    fn parsed<T: DeserializeOwned>(&self, payload: &[u8]) -> Result<T, String> {
        serde_json::from_slice(payload).map_err(|error| self.damaged(error))
    }

    pub(super) fn damaged(&self, why: impl Display) -> String {
        format!("damaged at byte {}: {why}; nothing was restored from here on", self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let keyspaces = vec![(0, "default".into())];
        Header { cluster: "c".into(), program: "0".into(), unix_ms: 1, keyspaces }
    }

    fn written(path: &Path) -> Vec<Record> {
        let begin = Begin { keyspace: 0, partition: 3, epoch: 2, index: 9, node: "n".into() };
        let totals = Totals { entries: 2, bytes: 7 };
        let records = vec![
            Record::Begin(begin),
            Record::Entries(vec![1; 1000]),
            Record::Entries(vec![2; 10]),
            Record::Part(Part {
                name: OpId { client: ClientId(u64::MAX - 1), sequence: 3 },
                offset: 1 << 17,
                bytes: vec![3; 100],
            }),
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

    fn read(path: &Path) -> Result<Vec<Record>, String> {
        let mut reader = Reader::open(path)?;
        assert_eq!(reader.header, header());
        let mut records = Vec::new();
        while !matches!(records.last(), Some(Record::End(_))) {
            records.push(reader.next()?);
        }
        if reader.is_at_end()? { Ok(records) } else { Err(reader.damaged("more")) }
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
            let error = read(&path).expect_err("it is damaged");
            assert!(!error.contains('\n'), "{error}");
            std::fs::write(&path, &whole[..at]).unwrap();
            read(&path).expect_err("it is cut short");
        }
        std::fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
        read(&path).expect_err("something follows");
    }

    #[test]
    fn another_format_is_told_from_what_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("b");
        std::fs::write(&path, "nicekv-backup 99\nwhatever").unwrap();
        assert!(Reader::open(&path).err().unwrap().contains("format 99, this program reads formats 1 and 2"));
        std::fs::write(&path, "PK\u{3}\u{4}").unwrap();
        assert_eq!(Reader::open(&path).err().unwrap(), "no backup of nicekv");
    }
}
