//! Records as the programs search them: borders in their order, and guesses where among them a value is.

use nicekv_switch::Table;

use super::VRINGS_MAX;

/// Places of records, a power of two.
pub(crate) const RECORD_PLACES: usize = Table::Record.capacity().next_power_of_two();
/// A search halves so many places, to one.
pub(crate) const RECORD_STEPS: u32 = RECORD_PLACES.ilog2();

/// Guesses for all segments, a power of two.
pub(crate) const RECORD_GUESSES: usize = 2 * RECORD_PLACES;

/// The records of a pair of rings: `count` places from `begin` on. What is asked for, less the `first` value with which one begins, without its last
/// `shift` bits, says which of the segment's `cells` it is in; each has a guess, from `guesses` on, and there is one more.
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

/// All records of a generation, those of a pair of rings beside each other, ascending: with which value each begins, upper and lower half, and its number.
/// A guess: how manieth of its segment the last record is that begins where the cell does, or before.
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
// A segment has as many cells as records, rounded up to a power of two, and one guess more.
const _: () = assert!(2 * Table::Record.capacity() + VRINGS_MAX <= RECORD_GUESSES);

#[allow(unsafe_code, reason = "plain bytes: repr(C), integers only, no padding (asserted above)")]
unsafe impl aya::Pod for Records {}
