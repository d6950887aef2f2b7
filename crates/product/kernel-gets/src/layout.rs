//! Memory layout: entries and gates as arrays of 64-bit words, shared by the process and the
//! program.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use nicekv_proto::limits::KERNEL_KEY_BYTES_MAX;
use nicekv_proto::route::ChainHeader;
use nicekv_proto::{KeyDigest, KeyspaceId, OpId};

/// Longest body of a reply to a get.
pub const BODY_BYTES_MAX: usize = nicekv_proto::hot::REPLY_BODY_BYTES_MAX;
/// Associativity: number of entries that keys with the same hash share. The least recently used one
/// is evicted.
pub const WAYS: u32 = 4;

/// Multiplier of the hash function.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// One in 2^SHOWN_BITS gets with room for a stamp, chosen by op id, is passed to the process, so
/// that the process still learns which of the keys that its kernel answers are hot.
const SHOWN_BITS: u32 = 6;

/// The words of an entry. First the version: odd while the entry is open, and never the same twice
/// (G2).
pub(crate) const VERSION: usize = 0;
/// The index of the entry's gate.
pub(crate) const GATE: usize = 1;
/// The keyspace, the length of the key, and the length of the body.
pub(crate) const SHAPE: usize = 2;
/// The time when the program last answered from the entry.
pub(crate) const USED: usize = 3;
/// The instance and number of the copy (H6); zeros in a member's entry.
pub(crate) const INSTANCE: usize = 4;
pub(crate) const SEEN: usize = 5;
pub(crate) const DIGEST: usize = 6;
pub(crate) const KEY: usize = 8;
/// The reply without its header.
pub(crate) const BODY: usize = KEY + KERNEL_KEY_BYTES_MAX.div_ceil(8);
/// Number of words of an entry.
pub const ENTRY_WORDS: usize = BODY + BODY_BYTES_MAX.div_ceil(8);

/// The words of a gate. First the lease: gets may be answered before this time, on the boot-time
/// clock (R12, H7).
pub(crate) const LEASE: usize = 0;
/// The chain header that a get with room for one must have (C5).
pub(crate) const CHAIN: usize = 1;
/// Number of gets answered; only the program writes this word (G7).
pub(crate) const HITS: usize = CHAIN + ChainHeader::BYTES / 8;
/// Number of words of a gate.
pub const GATE_WORDS: usize = HITS + 1;

/// The address of a word: the index of a gate or entry, and the word's index in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// A word of a gate.
    Gate(u32, usize),
    /// A word of an entry.
    Entry(u32, usize),
}

/// The memory that program and process share.
pub trait Memory {
    fn load(&self, at: Word) -> u64;
    /// Writes a word with release ordering: a reader that sees it also sees everything written
    /// before.
    fn store(&mut self, at: Word, word: u64);
    fn count(&mut self, at: Word) {
        self.store(at, self.load(at).wrapping_add(1));
    }
}

/// Cells in which the program counts gets by client.
pub const SOURCES: u32 = 2048;
/// Number of cells among which a client's hash chooses.
const SOURCE_PLACES: u32 = 4;

/// The memory of a loaded program.
pub trait Program: Memory {
    /// Number of gets by outcome, in the order of [`OUTCOMES`]; `None` if the kernel does not
    /// report it.
    fn outcomes(&self) -> Option<Outcomes>;

    /// (Gate, client, gets answered) since the last call. Gets of clients for which there was no
    /// free cell are missing (G7), and gets that are answered during the call may be lost.
    fn take_sources(&mut self) -> Vec<(u32, Ipv4Addr, u64)>;
}

/// How a get ends: a hit on a member's entry, each [`Miss`](crate::Miss), or a hit on a copy.
pub const OUTCOMES: [&str; 9] =
    ["hit", "absent", "closed", "lease", "chain", "changed", "room", "stamp", "copy"];

/// Number of gets by outcome, in the order of [`OUTCOMES`].
pub type Outcomes = [u64; OUTCOMES.len()];

/// Capacity of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Number of entries: a power of two, at least [`WAYS`].
    pub entries: u32,
    /// Number of gates for partitions. A partition without a gate has no entries.
    pub gates: u32,
    /// Number of gates for lessors. Copies of a lessor without a gate have no entries.
    pub lessors: u32,
}

impl Size {
    /// Number of gates of both kinds.
    pub fn gate_count(&self) -> u32 {
        self.gates + self.lessors
    }
}

impl<P: Program + ?Sized> Memory for alloc::boxed::Box<P> {
    fn load(&self, at: Word) -> u64 {
        (**self).load(at)
    }

    fn store(&mut self, at: Word, word: u64) {
        (**self).store(at, word);
    }
}

/// The bytes as words; the last word is padded with zeros.
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}

pub(crate) fn shape(keyspace: KeyspaceId, key_length: usize, body_length: usize) -> u64 {
    u64::from(keyspace.0) << 32 | (key_length as u64) << 16 | body_length as u64
}

pub(crate) fn body_length(shape: u64) -> usize {
    usize::from(shape as u16)
}

/// The first of the [`WAYS`] entries where a key may be. `entries` is a power of two.
pub(crate) fn first_way(keyspace: KeyspaceId, digest: &KeyDigest, entries: u32) -> u32 {
    let [low, high] = digest_words(digest);
    let mixed = (low ^ high.rotate_left(29) ^ u64::from(keyspace.0)).wrapping_mul(MULTIPLIER);
    ((mixed >> 32) as u32 & (entries - 1)) & !(WAYS - 1)
}

/// Whether a get with room for a stamp is in the sample that is passed to the process. Owners learn
/// which keys are hot from the gets that they and other members see.
pub(crate) fn is_shown(op: OpId) -> bool {
    // Mixed twice, because the sequence numbers of a client's gets of one key may have any stride.
    let mixed = (op.client.0 ^ op.sequence).wrapping_mul(MULTIPLIER);
    (mixed ^ mixed >> 32).wrapping_mul(MULTIPLIER) >> (u64::BITS - SHOWN_BITS) == 0
}

pub(crate) fn digest_words(digest: &KeyDigest) -> [u64; 2] {
    let mut words = words(&digest.0);
    core::array::from_fn(|_| words.next().unwrap_or_default())
}

/// The C header that the program includes.
pub fn c_header() -> String {
    let mut text = String::from(
        "/* Generated from crates/product/kernel-gets/src/layout.rs: do not edit. `NICEKV_BLESS=1 cargo test -p nicekv-switch-xdp layout`\n \
         * writes it anew. */\n#pragma once\n\n#include <linux/types.h>\n\n",
    );
    let words = [
        ("VERSION", VERSION),
        ("GATE", GATE),
        ("SHAPE", SHAPE),
        ("USED", USED),
        ("INSTANCE", INSTANCE),
        ("SEEN", SEEN),
        ("DIGEST", DIGEST),
        ("KEY", KEY),
        ("BODY", BODY),
        ("ENTRY_WORDS", ENTRY_WORDS),
        ("LEASE", LEASE),
        ("CHAIN", CHAIN),
        ("HITS", HITS),
        ("GATE_WORDS", GATE_WORDS),
        ("WAYS", WAYS as usize),
        ("SOURCES", SOURCES as usize),
        ("SOURCE_PLACES", SOURCE_PLACES as usize),
        ("SHOWN_BITS", SHOWN_BITS as usize),
    ];
    let outcomes = OUTCOMES.iter().enumerate();
    words.iter().for_each(|(name, value)| text.push_str(&format!("#define NICEKV_GETS_{name} {value}\n")));
    text.push_str(&format!("#define NICEKV_GETS_MULTIPLIER {MULTIPLIER:#x}ULL\n\n/* Outcomes of gets. */\n"));
    outcomes.for_each(|(at, name)| {
        text.push_str(&format!("#define NICEKV_GETS_OUTCOME_{} {at}\n", name.to_uppercase()));
    });
    text.push_str(&format!(
        "#define NICEKV_GETS_OUTCOMES {}\n\n/* Configuration of a node. */\nstruct nicekv_gets_config {{\n\t__be32 address;\n\t__be16 port;\n\t\
         __u16 reserved;\n\t__u32 entries;\n}};\n",
        OUTCOMES.len()
    ));
    text
}
