//! RANDOMKEY: any key.
//!
//! ```text
//!   match values   0 ──────────── a random one ═══╪═════════════ all
//!                                  few of them ──▶│ or as many as there are ─▶│ or from the beginning
//! ```
//!
//! A piece of a partition lists keys in their order, so those that come first would be chosen all the time. Therefore only a few match values are asked for first: of a
//! large partition these are few keys out of many. Nothing is counted, so no two keys have exactly the same chance.

use crate::answered::Answered;
use crate::asking::Asking;
use crate::error::CommandError;
use crate::reply::ReplyWriter;
use nicekv_client::{Request, Scan};
use nicekv_proto::scan::ScanWants;
use nicekv_proto::{KeyspaceId, MatchRange};

/// So many of all match values are asked for first.
const FEW: u128 = u128::MAX / 256;
/// Pieces in which one of the few is looked for.
const PIECES_OF_FEW_MAX: u32 = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct Choosing {
    keyspace: KeyspaceId,
    point: u128,
    scan: Scan,
    /// How often something was asked of the few; none: it looks among all from the point on, or among all.
    of_few: Option<u32>,
    is_from_point: bool,
    /// A random number for the choice among those that are listed together.
    chance: usize,
    chosen: Option<Result<Box<[u8]>, CommandError>>,
}

fn scan(first: u128, last: u128) -> Scan {
    let range = MatchRange::new(first, last).unwrap_or(MatchRange::ALL);
    Scan::new(ScanWants::Keys, None).within(range).split_into(1)
}

impl Choosing {
    /// By a random number.
    pub(crate) fn new(keyspace: KeyspaceId, random: [u64; 2]) -> Self {
        let point = u128::from(random[0]) << 64 | u128::from(random[1]);
        Self {
            keyspace,
            point,
            scan: scan(point, point.saturating_add(FEW)),
            of_few: Some(0),
            is_from_point: true,
            chance: (random[0] >> 16) as usize,
            chosen: None,
        }
    }

    /// Looks elsewhere if there is nothing where it looks.
    fn go_on(&mut self) {
        let is_given_up = self.of_few.is_some_and(|pieces| pieces >= PIECES_OF_FEW_MAX);
        if self.chosen.is_some() || self.scan.asked() > 0 || (!self.scan.is_done() && !is_given_up) {
            return;
        }
        if self.of_few.take().is_some() {
            self.scan = scan(self.point, u128::MAX);
        } else if std::mem::replace(&mut self.is_from_point, false) {
            self.scan = scan(0, u128::MAX);
        }
    }
}

impl Asking for Choosing {
    fn next(&mut self) -> Option<(KeyspaceId, u32, Request<'_>)> {
        if self.chosen.is_some() || self.scan.asked() > 0 {
            return None;
        }
        let part = self.scan.unasked()?;
        self.of_few = self.of_few.map(|pieces| pieces + 1);
        Some((self.keyspace, part, self.scan.ask(part)))
    }

    fn take(&mut self, part: u32, answered: Answered<'_>) -> bool {
        match answered.result {
            Ok(answer) => {
                let mut listed: Vec<Box<[u8]>> = Vec::new();
                self.scan.take(part, answer.pieces(), |piece| {
                    listed.extend(piece.entries().map(|entry| entry.key.into()));
                });
                if !listed.is_empty() {
                    self.chosen = Some(Ok(listed.swap_remove(self.chance % listed.len())));
                }
            }
            Err(error) => self.fail(part, error.into()),
        }
        self.go_on();
        self.is_over()
    }

    fn fail(&mut self, part: u32, error: CommandError) {
        self.scan.give_up(part);
        self.chosen = Some(Err(error));
    }

    fn is_over(&self) -> bool {
        self.chosen.is_some() || self.scan.is_done()
    }

    fn write(self: Box<Self>, reply: &mut ReplyWriter<'_>) {
        match self.chosen {
            Some(Ok(key)) => reply.bulk(&key),
            Some(Err(error)) => reply.error(error.as_bytes()),
            None => reply.null(),
        }
    }

    fn memory(&self) -> usize {
        let chosen = self.chosen.as_ref().and_then(|chosen| chosen.as_ref().ok());
        self.scan.memory() + chosen.map_or(0, |key| key.len())
    }
}
