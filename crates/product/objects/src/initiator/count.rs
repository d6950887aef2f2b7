//! A count: which members of its group hold a chunk.

use super::interface::{Counted, Handle};
use super::shared::Shared;
use alloc::vec::Vec;
use nicekv_proto::OpId;
use nicekv_proto::chunk::{Answer, ChunkAccept, ChunkAnswer, ChunkId, Wanted};
use nicekv_proto::placement::GROUP_MASK_ALL;

/// A running count. It ends when all members have answered, or after a timeout. A new map ends it
/// at once, since answers by the old map do not count.
#[derive(Clone, Debug)]
pub(super) struct Count {
    handle: Handle,
    id: ChunkId,
    op: OpId,
    counted: Counted,
    /// A target that was asked to confirm the chunk has bid instead. The bid must be cancelled.
    has_bids: bool,
    until_ns: u64,
}

impl Count {
    /// Asks the members `of` (a mask) of the chunk's group.
    pub(super) fn new(
        now_ns: u64,
        handle: Handle,
        id: ChunkId,
        wanted: Wanted,
        of: u16,
        shared: &mut Shared,
    ) -> Self {
        let members = shared.group_of(&id).map(|(_, group)| group.mask()).unwrap_or_default();
        let op = shared.request(handle, id, wanted);
        let counted = Counted { silent: of & members, ..Counted::default() };
        let until_ns = now_ns.saturating_add(shared.config.timing.answers_ns);
        Self { handle, id, op, counted, has_bids: false, until_ns }
    }

    pub(super) fn on_answer(&mut self, answer: &ChunkAnswer, shared: &mut Shared) {
        let (bit, counted) = (1 << answer.place, &mut self.counted);
        if answer.id != self.id || counted.silent & bit == 0 {
            return;
        }
        match answer.answer {
            Answer::Held { .. } => counted.held |= bit,
            Answer::Stored { stamp, .. } => {
                counted.held |= bit;
                counted.stamps.push((answer.place, stamp));
            }
            Answer::OtherMap => return,
            _ => {
                self.has_bids |= matches!(answer.answer, Answer::Bid { .. });
                counted.lacking |= bit;
            }
        }
        counted.silent &= !bit;
        if counted.silent == 0 {
            self.end(shared);
        }
    }

    /// The map has changed: ends the count without a result, because answers do not count and
    /// places differ.
    pub(super) fn end_unknown(&mut self, shared: &mut Shared) {
        let Counted { held, lacking, silent, .. } = self.counted;
        self.counted = Counted { silent: held | lacking | silent, ..Counted::default() };
        self.end(shared);
    }

    fn end(&mut self, shared: &mut Shared) {
        if self.has_bids {
            let (op, version, id) = (self.op, shared.version(), self.id);
            let accept = ChunkAccept { op, reply_to: None, version, id, chosen: Vec::new() };
            shared.send(&id, GROUP_MASK_ALL, |out| accept.encode(out));
        }
        shared.end_count(self.handle, core::mem::take(&mut self.counted));
    }

    pub(super) fn on_deadline(&mut self, now_ns: u64, shared: &mut Shared) {
        if now_ns >= self.until_ns {
            self.end(shared);
        }
    }

    pub(super) fn next_deadline(&self) -> u64 {
        self.until_ns
    }
}
