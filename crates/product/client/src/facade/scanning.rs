//! Scans through the handle.

use super::{Client, ClientError, Kind, OwnedAnswer};
use crate::request::pieces_of;
use crate::{Request, Scan};
use alloc::vec::Vec;
use nicekv_proto::MatchRange;
use nicekv_proto::scan::{ScanWants, Scanned};

/// A key that a scan found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The key.
    pub key: Vec<u8>,
    /// Its value, if the scan lists values.
    pub value: Option<Vec<u8>>,
}

/// The result of a part of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    /// Number of keys in the pieces.
    pub count: u64,
    /// The keys, in order within each piece; empty if the scan only counts.
    pub listed: Vec<Listed>,
}

/// The request for a part of a scan, without the key after which it continues.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    wants: ScanWants,
    range: MatchRange,
    /// There is no such key: the part starts at the beginning.
    begins: bool,
    bytes_max: usize,
    pieces: u8,
}

impl Asked {
    pub(super) fn after(self, key: &[u8]) -> Request<'_> {
        let Self { wants, range, begins, bytes_max, pieces } = self;
        Request::Scan { wants, range, after: (!begins).then_some(key), bytes_max, pieces }
    }
}

impl Client {
    /// Requests the next parts of a scan, at most `parts_max` at once, and returns what they list. Call it until
    /// [`Scan::is_done`].
    ///
    /// # Errors
    /// The first error of a part. That part is left of the scan; what the others list is lost to the caller.
    pub async fn scan(&self, scan: &mut Scan, parts_max: usize) -> Result<Pieces, ClientError> {
        let mut asked = Vec::new();
        while let Some(part) = scan.unasked().filter(|_| asked.len() < parts_max) {
            let Request::Scan { wants, range, after, bytes_max, pieces } = scan.ask(part) else {
                unreachable!("scans ask for pieces")
            };
            let kind = Kind::Scan(Asked { wants, range, begins: after.is_none(), bytes_max, pieces });
            asked.push((part, self.begin(after.unwrap_or_default(), &[], kind)));
        }
        let (mut pieces, mut failed) = (Pieces::default(), None);
        for (part, answer) in asked {
            let answer = match answer {
                Ok(answer) => answer.await.unwrap_or(Err(ClientError::Stopped)),
                Err(error) => Err(error),
            };
            match answer {
                Ok(answer) => answer.add_to(&mut pieces, scan, part),
                Err(error) => {
                    scan.give_up(part);
                    failed = failed.or(Some(error));
                }
            }
        }
        failed.map_or(Ok(pieces), Err)
    }
}

impl OwnedAnswer {
    /// Adds the answer for a part.
    fn add_to(&self, pieces: &mut Pieces, scan: &mut Scan, part: u32) {
        scan.take(part, pieces_of(self.value.as_deref()), |piece| {
            pieces.count += u64::from(piece.count);
            let listed =
                |one: Scanned<'_>| Listed { key: one.key.to_vec(), value: one.value.map(<[u8]>::to_vec) };
            pieces.listed.extend(piece.entries().map(listed));
        });
    }
}
