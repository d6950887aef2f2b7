//! Gets that the kernel answers at a storage node, without its process (rules G1 to G8, docs/PROTOCOL.md): the words of memory that both share, what the
//! process writes there ([`Table`]), and what the program does for one get ([`Lookup`]), one word at a time.
//!
//! ```text
//!   core ──Shift, CopyShift──▶ Table ──store──▶ ┌ gates: lease, chain header │ of a partition, or a lessor ┐
//!                                               └ entries: version, key, stamp, reply, … of a key          ┘ ◀──load── Lookup ◀── get
//! ```
//!
//! An entry is *open* while its version is odd. The process makes it even before it writes anything else there, so the program, which reads the version
//! before and after everything else, never answers a mixture (G2). Loads and stores are seen in their order: that is so on x86-64, and elsewhere nothing
//! of this is used.
//!
//! Why an answer is right: the program takes the time, within the call, then finds the lease to be longer than that, and the entry open. If a newer value
//! was shown before that time, then by other members: with the consent of this node, and the entry was closed before that left (G1); or without it,
//! when its lease was over (R6, R12, G3).
//!
//! Entries of copies answer gets that a switch has stamped, and no others; members' entries, which have no instance, those without a stamp. Why such an answer is
//! right is the same as where the process gives it (H4, H6, H7): copy, instance, number and lease are looked at while the version is the same, and the time was taken
//! before. The gate is that of the owner and the serial of the copy, so that no lease of another serial counts.

#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod copies;
mod gates;
mod layout;
mod lookup;
mod table;

pub use layout::{
    BODY_BYTES_MAX, ENTRY_WORDS, GATE_WORDS, Memory, Outcomes, Program, SOURCES, WAYS, Word, c_header,
};
pub use lookup::{Asked, Lookup, Miss, OUTCOMES, Outcome};
pub use table::{Grant, Size, Table};
