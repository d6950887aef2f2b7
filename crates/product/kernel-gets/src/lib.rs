//! Gets that a storage node's kernel answers without the node's process (rules G1 to G8,
//! docs/PROTOCOL.md): the words of memory that both share, what the process writes there
//! ([`Table`]), and what the eBPF program does for one get ([`Lookup`]), one word at a time.
//!
//! ```text
//!   core ──Shift, CopyShift──▶ Table ──store──▶ ┌ gates: lease, chain header  │ of a partition, or a lessor ┐
//!                                               └ entries: version, key, reply │ of a key                    ┘ ◀──load── Lookup ◀── get
//! ```
//!
//! An entry is *open* while its version is odd. The process makes the version even before it writes
//! anything else in the entry. The program reads the version before and after everything else, so
//! it never answers from a half-written entry (G2). This relies on loads and stores being seen in
//! their order, which holds on x86-64; other architectures do not use this crate.
//!
//! Why an answer is linearizable: during the call the program reads the clock, then finds that the
//! lease ends later and that the entry is open. If a newer value was shown before that time, other
//! members showed it: either with the consent of this node, which closed the entry before it sent
//! that consent (G1), or without it, after the lease had ended (R6, R12, G3).
//!
//! Entries of copies answer only gets that a switch has stamped; entries of members, which have no
//! instance, answer only gets without a stamp. Answers from copies are right for the same reasons
//! as in the process (H4, H6, H7): copy, instance, number and lease are read while the version is
//! the same, after the clock. A copy's gate belongs to one owner and serial, so the lease of
//! another serial does not count.

#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod copies;
mod gates;
mod layout;
mod lookup;
mod table;

pub use gates::Grant;
pub use layout::{
    BODY_BYTES_MAX, ENTRY_WORDS, GATE_WORDS, Memory, OUTCOMES, Outcomes, Program, SOURCES, Size, WAYS, Word,
    c_header,
};
pub use lookup::{GetRequest, Lookup, Miss, Outcome};
pub use table::Table;
