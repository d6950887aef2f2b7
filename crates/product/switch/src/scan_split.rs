//! Splits scans that span several records at the records' borders (TurboKV §4.3, Algorithm 1; rule
//! C11).
//!
//! ```text
//!   scan      [────────────────────────────]        one copy for each record, cut at its borders and marked as a piece;
//!   records   |──a──||────b────||───c───||──d──|    the rest is recirculated: matched as if it had just come in.
//!   copies    [─────][─────────][────────...        At most as many pieces as the scan allows; the last one has the rest
//! ```
//!
//! The loop stands for recirculation through a hardware pipeline, and is bounded by the number of
//! pieces that the scan allows and by [`PIECES_MAX`]. A node divides the size limit of an answer by
//! that number, so a split scan's answers are together no larger than one answer.

use nicekv_proto::scan::{PIECES_MAX, ScanLayout};

/// The rest of a scan after a piece was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanRest {
    first: u128,
    last: u128,
    /// The number of pieces into which the rest may be split.
    pieces: u8,
}

impl ScanRest {
    /// Overwrites the piece in `payload` with the rest. Returns the number of pieces into which the
    /// rest may be split.
    pub(crate) fn write(&self, payload: &mut [u8]) -> u8 {
        if let Some((header, scan)) = ScanLayout::of(payload) {
            header.digest = self.first.to_be_bytes();
            (scan.first, scan.last) = (header.digest, self.last.to_be_bytes());
        }
        self.pieces
    }
}

/// The number of pieces into which a datagram that has just arrived may be split. It is 1 if the
/// datagram is not a valid scan; the node handles it then. `came_by_switch`: the datagram has
/// passed another switch. If it has not, its mark as a piece is cleared.
pub(crate) fn pieces_of(payload: &mut [u8], came_by_switch: bool) -> u8 {
    let Some((header, scan)) = ScanLayout::of(payload) else { return 1 };
    if !came_by_switch {
        scan.is_cut = 0;
    }
    let may_be_split = scan.is_cut == 0 && scan.pieces <= PIECES_MAX && scan.first == header.digest;
    if may_be_split { scan.pieces.max(1) } else { 1 }
}

/// Cuts a scan behind `border`, the last value of the record in which the scan begins, if it may be
/// split into `pieces`. `None`: the scan ends in this record, or may not be split.
pub(crate) fn cut(payload: &mut [u8], border: u128, pieces: u8) -> Option<ScanRest> {
    let (_, scan) = ScanLayout::of(payload).filter(|_| pieces > 1)?;
    let last = u128::from_be_bytes(scan.last);
    let first = border.checked_add(1).filter(|first| *first <= last)?;
    scan.last = border.to_be_bytes();
    scan.is_cut = 1;
    Some(ScanRest { first, last, pieces: pieces - 1 })
}
