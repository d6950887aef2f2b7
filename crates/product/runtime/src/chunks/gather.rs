//! Coalesces consecutive frames into larger disk writes. A frame has little more than a kilobyte,
//! and each request would wake the disk's thread, for one write and one hash update.
//!
//! ```text
//!   core ──write, write, write──▶ one piece per transfer ──128 KiB, a hole, or the transfer's end──▶ disk
//! ```
//!
//! Memory is bounded: there is one piece for each chunk that is being received, and the target
//! accepts only as many chunks as it has reserved memory for.

use nicekv_objects::Storage;
use nicekv_proto::OpId;
use std::collections::HashMap;

/// Length at which a piece is written.
const PIECE_BYTES: usize = 128 << 10;

struct Piece {
    offset: u32,
    bytes: Vec<u8>,
}

/// The pieces of all transfers; see the module documentation.
#[derive(Default)]
pub(super) struct Gather {
    pieces: HashMap<OpId, Piece>,
}

impl Gather {
    /// Passes the core's disk requests on to `ask`, coalesced, and in order within each transfer.
    pub(super) fn take(&mut self, request: Storage, mut ask: impl FnMut(Storage)) {
        match request {
            Storage::Write { op, offset, bytes } => self.write(op, offset, bytes, ask),
            Storage::Finish { op } => {
                if let Some(Piece { offset, bytes }) = self.pieces.remove(&op) {
                    ask(Storage::Write { op, offset, bytes });
                }
                ask(Storage::Finish { op });
            }
            Storage::Abandon { op } => {
                self.pieces.remove(&op);
                ask(Storage::Abandon { op });
            }
            other => ask(other),
        }
    }

    fn write(&mut self, op: OpId, offset: u32, bytes: Vec<u8>, mut ask: impl FnMut(Storage)) {
        if let Some(piece) = self.pieces.get_mut(&op)
            && piece.offset as usize + piece.bytes.len() == offset as usize
        {
            piece.bytes.extend_from_slice(&bytes);
            if piece.bytes.len() < PIECE_BYTES {
                return;
            }
        } else {
            let mut room = Vec::with_capacity(PIECE_BYTES + bytes.len());
            room.extend_from_slice(&bytes);
            let before = self.pieces.insert(op, Piece { offset, bytes: room });
            return before
                .into_iter()
                .for_each(|Piece { offset, bytes }| ask(Storage::Write { op, offset, bytes }));
        }
        if let Some(Piece { offset, bytes }) = self.pieces.remove(&op) {
            ask(Storage::Write { op, offset, bytes });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::ClientId;
    use nicekv_proto::chunk::ChunkId;

    const FRAME: usize = 1_408;

    fn op(sequence: u64) -> OpId {
        OpId { client: ClientId(1), sequence }
    }

    fn frame(sequence: u64, number: usize) -> Storage {
        Storage::Write { op: op(sequence), offset: (number * FRAME) as u32, bytes: vec![number as u8; FRAME] }
    }

    /// The disk requests that result from these requests of the core.
    fn asked(requests: Vec<Storage>) -> Vec<Storage> {
        let (mut gather, mut asked) = (Gather::default(), Vec::new());
        requests.into_iter().for_each(|request| gather.take(request, |request| asked.push(request)));
        assert!(gather.pieces.is_empty(), "nothing is left of a transfer that has ended");
        asked
    }

    #[test]
    fn consecutive_frames_are_coalesced_and_written_once() {
        let frames = 200;
        let both = (0..frames).flat_map(|number| [frame(1, number), frame(2, number)]);
        let ends = [1, 2].map(|sequence| Storage::Finish { op: op(sequence) });
        let asked = asked(both.chain(ends).collect());
        for sequence in [1, 2] {
            let mut whole = Vec::new();
            let of_it = asked.iter().filter_map(|request| match request {
                Storage::Write { op: of, offset, bytes } if *of == op(sequence) => Some((*offset, bytes)),
                _ => None,
            });
            let mut pieces = 0;
            for (offset, bytes) in of_it {
                assert_eq!(offset as usize, whole.len());
                whole.extend_from_slice(bytes);
                pieces += 1;
            }
            assert_eq!(pieces, (frames * FRAME).div_ceil(PIECE_BYTES));
            assert!(whole.chunks(FRAME).zip(0..).all(|(frame, number)| frame == vec![number as u8; FRAME]));
        }
        let ended = asked.iter().position(|request| *request == Storage::Finish { op: op(1) });
        let last = asked
            .iter()
            .rposition(|request| matches!(request, Storage::Write { op: of, .. } if *of == op(1)));
        assert!(last < ended, "all is written before the end");
    }

    #[test]
    fn hole_starts_a_new_piece_and_aborted_data_is_not_written() {
        let end = Storage::Finish { op: op(1) };
        let pieces = asked(vec![frame(1, 0), frame(1, 2), frame(1, 3), frame(1, 1), end.clone()]);
        let [first, second, third, last] = &pieces[..] else { panic!("{pieces:?}") };
        let of = |request: &Storage| match request {
            Storage::Write { offset, bytes, .. } => (*offset as usize / FRAME, bytes.len() / FRAME),
            other => panic!("{other:?}"),
        };
        assert_eq!((of(first), of(second), of(third), last), ((0, 1), (2, 2), (1, 1), &end));
        let begin = Storage::Begin { op: op(1), id: ChunkId([1; 32]), bytes: 9, holders: Vec::new() };
        let abandon = Storage::Abandon { op: op(1) };
        assert_eq!(asked(vec![begin.clone(), frame(1, 0), abandon.clone()]), [begin, abandon]);
    }
}
