//! Where the words stand.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use nicekv_proto::limits::KERNEL_KEY_BYTES_MAX;
use nicekv_proto::route::ChainHeader;
use nicekv_proto::{KeyDigest, KeyspaceId, OpId};

/// The body of a reply to a get, at most.
pub const BODY_BYTES_MAX: usize = nicekv_proto::hot::REPLY_BODY_BYTES_MAX;
/// Entries whose keys have a hash in common; of these the one that was not used for the longest time makes room.
pub const WAYS: u32 = 4;

/// Spreads digests over the entries.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Of gets with room for a stamp, as their op ids say, one in 2 to the power of this is for the process, so that it sees what its kernel answers.
const SHOWN_BITS: u32 = 6;

/// Even: nothing of the entry means anything.
pub(crate) const VERSION: usize = 0;
/// The number of the gate.
pub(crate) const GATE: usize = 1;
/// Keyspace, length of the key, length of the body.
pub(crate) const SHAPE: usize = 2;
/// When the program has last answered from it.
pub(crate) const USED: usize = 3;
/// Of the copy that it is, and its number (H6); zeros: the node is a member, and it is none.
pub(crate) const INSTANCE: usize = 4;
pub(crate) const SEEN: usize = 5;
pub(crate) const DIGEST: usize = 6;
pub(crate) const KEY: usize = 8;
/// The reply, less its header.
pub(crate) const BODY: usize = KEY + KERNEL_KEY_BYTES_MAX.div_ceil(8);
/// Of an entry.
pub const ENTRY_WORDS: usize = BODY + BODY_BYTES_MAX.div_ceil(8);

/// Gets may be answered until then, on the boot-time clock (R12, H7).
pub(crate) const LEASE: usize = 0;
/// What a switch has written into a get, if it has room for that (C5).
pub(crate) const CHAIN: usize = 1;
/// How many gets the program has answered; it alone writes there (G7).
pub(crate) const HITS: usize = CHAIN + ChainHeader::BYTES / 8;
/// Of a gate.
pub const GATE_WORDS: usize = HITS + 1;

/// A word of what program and process share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Of a partition, or of an owner's copies.
    Gate(u32, usize),
    /// Of a key.
    Entry(u32, usize),
}

/// What program and process share.
pub trait Memory {
    /// What is there.
    fn load(&self, at: Word) -> u64;
    /// Changes it; whoever sees that sees all that was stored before.
    fn store(&mut self, at: Word, word: u64);
    /// Adds one.
    fn count(&mut self, at: Word) {
        self.store(at, self.load(at).wrapping_add(1));
    }
}

/// Cells in which the program counts who asks.
pub const SOURCES: u32 = 2048;
/// Places that a cell may have.
const SOURCE_PLACES: u32 = 4;

/// The memory of a program that runs.
pub trait Program: Memory {
    /// How gets have ended so far, by [`OUTCOMES`](crate::OUTCOMES); none if the kernel does not tell.
    fn outcomes(&self) -> Option<Outcomes>;

    /// Gate, client, and how many of its gets were answered since this was asked last, as far as there were cells (G7). What is answered meanwhile may go
    /// uncounted.
    fn take_sources(&mut self) -> Vec<(u32, Ipv4Addr, u64)>;
}

/// Counts by [`OUTCOMES`](crate::OUTCOMES).
pub type Outcomes = [u64; crate::OUTCOMES.len()];

impl<P: Program + ?Sized> Memory for alloc::boxed::Box<P> {
    fn load(&self, at: Word) -> u64 {
        (**self).load(at)
    }

    fn store(&mut self, at: Word, word: u64) {
        (**self).store(at, word);
    }
}

/// Bytes as words; the last one is filled up with zeros.
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

/// The first of the [`WAYS`] entries where a key may be, of `entries` that are a power of two.
pub(crate) fn first_way(keyspace: KeyspaceId, digest: &KeyDigest, entries: u32) -> u32 {
    let [low, high] = digest_words(digest);
    let mixed = (low ^ high.rotate_left(29) ^ u64::from(keyspace.0)).wrapping_mul(MULTIPLIER);
    ((mixed >> 32) as u32 & (entries - 1)) & !(WAYS - 1)
}

/// Whether the process is to see a get with room for a stamp. Owners learn of hot keys by the gets that they answer, and by those that other members show them.
pub(crate) fn is_shown(op: OpId) -> bool {
    // Mixed twice: a client's gets of one key may have sequences that are any number apart.
    let mixed = (op.client.0 ^ op.sequence).wrapping_mul(MULTIPLIER);
    (mixed ^ mixed >> 32).wrapping_mul(MULTIPLIER) >> (u64::BITS - SHOWN_BITS) == 0
}

pub(crate) fn digest_words(digest: &KeyDigest) -> [u64; 2] {
    let mut words = words(&digest.0);
    core::array::from_fn(|_| words.next().unwrap_or_default())
}

/// The text of the C header that the program includes.
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
    let outcomes = crate::OUTCOMES.iter().enumerate();
    words.iter().for_each(|(name, value)| text.push_str(&format!("#define NICEKV_GETS_{name} {value}\n")));
    text.push_str(&format!("#define NICEKV_GETS_MULTIPLIER {MULTIPLIER:#x}ULL\n\n/* How a get ends. */\n"));
    outcomes.for_each(|(at, name)| {
        text.push_str(&format!("#define NICEKV_GETS_OUTCOME_{} {at}\n", name.to_uppercase()));
    });
    text.push_str(&format!(
        "#define NICEKV_GETS_OUTCOMES {}\n\n/* Of a node. */\nstruct nicekv_gets_config {{\n\t__be32 address;\n\t__be16 port;\n\t\
         __u16 reserved;\n\t__u32 entries;\n}};\n",
        crate::OUTCOMES.len()
    ));
    text
}
