//! Files and pipes that objects are read from and written to.

use crate::failure::Failure;
use nicekv_runtime::{NewFile, remove_unfinished_on_signals};
use std::fs::File;
use std::io::{BufWriter, Read, Stdout, Write, stdin, stdout};
use std::path::Path;

const STANDARD: &str = "-";

/// A byte range of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    first: Option<u64>,
    end: Option<u64>,
}

pub(super) fn parse_range(text: &str) -> Result<Range, String> {
    let number = |part: &str| if part.is_empty() { Ok(None) } else { part.parse().map(Some).map_err(drop) };
    let range = text
        .split_once("..")
        .and_then(|(first, end)| Some(Range { first: number(first).ok()?, end: number(end).ok()? }));
    range.ok_or_else(|| "must be A..B in bytes; either may be omitted".into())
}

impl Range {
    /// The offset of the first byte and the offset after the last, for an object of this length.
    pub(super) fn within(self, length: u64) -> Result<(u64, u64), Failure> {
        let (first, end) = (self.first.unwrap_or(0), self.end.unwrap_or(length));
        if first > end || end > length {
            let line = format!("bytes {first} to {end} are outside the object, which has {length} bytes");
            return Err(Failure::Operation(line));
        }
        Ok((first, end))
    }
}

pub(super) fn open_source(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if path == Path::new(STANDARD) {
        return Ok(Box::new(stdin().lock()));
    }
    let file =
        File::open(path).map_err(|error| Failure::Environment(format!("{}: {error}", path.display())))?;
    Ok(Box::new(file))
}

/// Where an object is written to. A file gets its name once it is complete.
pub(super) struct Sink {
    to: Destination,
    name: String,
}

enum Destination {
    Standard(BufWriter<Stdout>),
    File(NewFile),
}

impl Sink {
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let to = if path == Path::new(STANDARD) {
            Ok(Destination::Standard(BufWriter::new(stdout())))
        } else {
            remove_unfinished_on_signals().and_then(|()| NewFile::create(path)).map(Destination::File)
        };
        match to {
            Ok(to) => Ok(Self { to, name }),
            Err(error) => Err(Failure::Environment(format!("{name}: {error}"))),
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = match &mut self.to {
            Destination::Standard(to) => to.write_all(bytes),
            // Chunks are large, so writes need no buffer.
            Destination::File(new) => new.file().write_all(bytes),
        };
        written.map_err(|error| Failure::Environment(format!("{}: {error}", self.name)))
    }

    pub(super) fn finish(self) -> Result<(), Failure> {
        let finished = match self.to {
            Destination::Standard(mut to) => to.flush(),
            Destination::File(new) => new.finish(),
        };
        finished.map_err(|error| Failure::Environment(format!("{}: {error}", self.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_bounded_by_the_object() {
        let within = |text: &str| parse_range(text).unwrap().within(10).ok();
        assert_eq!(
            [within("2..5"), within("..5"), within("2.."), within("..")],
            [Some((2, 5)), Some((0, 5)), Some((2, 10)), Some((0, 10))]
        );
        assert_eq!((within("5..2"), within("2..11"), within("10..10")), (None, None, Some((10, 10))));
        assert!(["", "5", "a..b", "1..-1"].iter().all(|text| parse_range(text).is_err()));
    }
}
