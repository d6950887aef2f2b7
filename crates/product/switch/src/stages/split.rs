//! Scans that go over several records are split at their borders (TurboKV §4.3, Algorithm 1; rule C11).
//!
//! ```text
//!   scan      [────────────────────────────]        a copy for each record, cut at its borders and marked as a piece;
//!   records   |──a──||────b────||───c───||──d──|    what is left goes round: it is matched as if it had just come
//!   copies    [─────][─────────][────────...        at most as many as the scan asks for: the last one goes over the rest
//! ```
//!
//! A loop here is what is a circle through a pipeline there, and is bounded: by the number of pieces that the scan asks for, and by [`PIECES_MAX`]. By that number
//! a node divides what an answer may have of bytes, so that whatever a scan asks for, it is answered with no more than before.

use nicekv_proto::scan::{PIECES_MAX, ScanLayout};

/// What is left of a scan behind a piece of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    first: u128,
    last: u128,
    /// Pieces that may be made of it.
    pieces: u8,
}

impl Rest {
    /// Writes it over the piece, and says how many pieces may be made of it.
    pub(crate) fn write(&self, payload: &mut [u8]) -> u8 {
        if let Some((header, scan)) = ScanLayout::of(payload) {
            header.digest = self.first.to_be_bytes();
            (scan.first, scan.last) = (header.digest, self.last.to_be_bytes());
        }
        self.pieces
    }
}

/// Into how many pieces a datagram may be split that has just come in. What is no sound scan stays one, and is left to the node. `came_by_switch`: another
/// switch has seen it; what others say of that is overwritten.
pub(crate) fn pieces_of(payload: &mut [u8], came_by_switch: bool) -> u8 {
    let Some((header, scan)) = ScanLayout::of(payload) else { return 1 };
    if !came_by_switch {
        scan.is_cut = 0;
    }
    let may_be_split = scan.is_cut == 0 && scan.pieces <= PIECES_MAX && scan.first == header.digest;
    if may_be_split { scan.pieces.max(1) } else { 1 }
}

/// Cuts a scan of which so many pieces may be made behind `border`, the last value of the record in which it begins; `None`: it ends there, or goes on as
/// it is.
pub(crate) fn cut(payload: &mut [u8], border: u128, pieces: u8) -> Option<Rest> {
    let (_, scan) = ScanLayout::of(payload).filter(|_| pieces > 1)?;
    let last = u128::from_be_bytes(scan.last);
    let first = border.checked_add(1).filter(|first| *first <= last)?;
    scan.last = border.to_be_bytes();
    scan.is_cut = 1;
    Some(Rest { first, last, pieces: pieces - 1 })
}
