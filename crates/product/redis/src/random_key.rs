//! The command RANDOMKEY.
//!
//! ```text
//!   match values   0 ──────────── a random one ═══╪═════════════ all
//!                                  sample ───────▶│ or all behind it ────────▶│ or from the beginning
//! ```
//!
//! A partition lists its keys in order, so asking for any keys would always return the first ones.
//! Therefore a small range of match values is scanned first: in a large partition it contains few
//! of the keys. Keys are not counted, so their probabilities are not exactly equal.

use crate::answered::Answered;
use crate::call::Call;
use crate::continuation::{Continuation, Effect, Next};
use crate::error::CommandError;
use crate::resp::ReplyWriter;
use alloc::boxed::Box;
use alloc::vec::Vec;
use nicekv_client::Scan;
use nicekv_proto::scan::ScanWants;
use nicekv_proto::{KeyspaceId, MatchRange};

/// Length of the range that is scanned first.
const SAMPLE: u128 = u128::MAX / 256;
/// Maximum pieces of this range that are requested.
const SAMPLE_PIECES_MAX: u32 = 4;

/// A running RANDOMKEY.
#[derive(Debug)]
pub(crate) struct RandomKey {
    keyspace: KeyspaceId,
    point: u128,
    scan: Scan,
    /// Number of pieces of the sample requested so far; `None`: the search is beyond the sample.
    sampled: Option<u32>,
    /// The search has not wrapped around to the beginning yet.
    is_from_point: bool,
    /// A random number that chooses a key of a piece.
    random: usize,
    chosen: Option<Result<Box<[u8]>, CommandError>>,
}

fn scan(first: u128, last: u128) -> Scan {
    let range = MatchRange::new(first, last).unwrap_or(MatchRange::ALL);
    Scan::new(ScanWants::Keys, None).within(range).split_into(1)
}

impl RandomKey {
    /// `random`: numbers from the host's random source.
    pub(crate) fn new(keyspace: KeyspaceId, random: [u64; 2]) -> Self {
        let point = u128::from(random[0]) << 64 | u128::from(random[1]);
        Self {
            keyspace,
            point,
            scan: scan(point, point.saturating_add(SAMPLE)),
            sampled: Some(0),
            is_from_point: true,
            random: (random[0] >> 16) as usize,
            chosen: None,
        }
    }

    /// Widens the search, because no key was found.
    fn widen(&mut self) {
        let is_given_up = self.sampled.is_some_and(|pieces| pieces >= SAMPLE_PIECES_MAX);
        if self.chosen.is_some() || self.scan.asked() > 0 || (!self.scan.is_done() && !is_given_up) {
            return;
        }
        if self.sampled.take().is_some() {
            self.scan = scan(self.point, u128::MAX);
        } else if core::mem::replace(&mut self.is_from_point, false) {
            self.scan = scan(0, u128::MAX);
        }
    }
}

impl Continuation for RandomKey {
    fn next<'a>(&'a mut self, _: &Call<'a>) -> Next<'a> {
        if self.is_over() {
            return Next::Done;
        }
        if self.scan.asked() > 0 {
            return Next::Wait;
        }
        let Some(part) = self.scan.unasked() else { return Next::Done };
        self.sampled = self.sampled.map(|pieces| pieces + 1);
        Next::Request(self.keyspace, part, self.scan.ask(part))
    }

    fn take(&mut self, part: u32, answered: Answered<'_>) -> bool {
        match answered.result {
            Ok(answer) => {
                let mut listed: Vec<Box<[u8]>> = Vec::new();
                self.scan.take(part, answer.pieces(), |piece| {
                    listed.extend(piece.entries().map(|entry| entry.key.into()));
                });
                if !listed.is_empty() {
                    self.chosen = Some(Ok(listed.swap_remove(self.random % listed.len())));
                }
            }
            Err(error) => self.fail(part, CommandError::of_operation(error, answered.cause)),
        }
        self.widen();
        self.is_over()
    }

    fn fail(&mut self, part: u32, error: CommandError) {
        self.scan.give_up(part);
        self.chosen = Some(Err(error));
    }

    fn in_flight(&self) -> usize {
        self.scan.asked()
    }

    fn is_over(&self) -> bool {
        self.chosen.is_some() || self.scan.is_done()
    }

    fn write(self: Box<Self>, reply: &mut ReplyWriter<'_>) -> Effect {
        match self.chosen {
            Some(Ok(key)) => reply.bulk(&key),
            Some(Err(error)) => reply.error(error.as_bytes()),
            None => reply.null(),
        }
        Effect::None
    }

    fn memory(&self) -> usize {
        let chosen = self.chosen.as_ref().and_then(|chosen| chosen.as_ref().ok());
        self.scan.memory() + chosen.map_or(0, |key| key.len())
    }
}
