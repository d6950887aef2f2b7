//! The record table as the programs search it: range boundaries in order, and guesses of a value's
//! position among them.

use nicekv_switch::Table;

use super::VRINGS_MAX;

/// Capacity of the array of records; a power of two.
pub(crate) const RECORD_PLACES: usize = Table::Record.capacity().next_power_of_two();
/// Number of steps of a binary search over the whole array.
pub(crate) const RECORD_STEPS: u32 = RECORD_PLACES.ilog2();

/// Number of guesses of all segments; a power of two.
pub(crate) const RECORD_GUESSES: usize = 2 * RECORD_PLACES;

/// The records of a pair of rings: `count` records from index `begin` on. They are divided into
/// `cells` cells. The cell of a value is its distance from `first`, shifted right by `shift` bits.
/// Each cell has a guess, from index `guesses` on, followed by one more for the end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) first: [u64; 2],
    pub(crate) begin: u32,
    pub(crate) count: u32,
    pub(crate) guesses: u32,
    pub(crate) cells: u32,
    pub(crate) shift: u32,
    pub(crate) reserved: u32,
}

/// All records of a generation, grouped by pair of rings, in ascending order: upper and lower half
/// of the first value, and the entry number. A guess is the index within the segment of the last
/// record that begins at or before the start of the cell.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Records {
    pub(crate) segments: [Segment; VRINGS_MAX],
    pub(crate) firsts: [[u64; 2]; RECORD_PLACES],
    pub(crate) numbers: [u16; RECORD_PLACES],
    pub(crate) guesses: [u16; RECORD_GUESSES],
}

const _: () = assert!(
    size_of::<Records>() == VRINGS_MAX * 40 + RECORD_PLACES * (16 + 2) + RECORD_GUESSES * 2,
    "no padding"
);
// A segment has as many cells as records, rounded up to a power of two, and one guess more than
// cells.
const _: () = assert!(2 * Table::Record.capacity() + VRINGS_MAX <= RECORD_GUESSES);

#[allow(unsafe_code, reason = "plain bytes: repr(C), integers only, no padding (asserted above)")]
unsafe impl aya::Pod for Records {}
