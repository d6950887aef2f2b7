//! Structs and constants for hot keys, shared by the loader and the programs.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};

use nicekv_hotkeys::{KEYS_MAX, STAGES_MAX};
use nicekv_switch::{HOT_CAPACITY, HOT_GONE, HOT_HOLDERS_MAX, HOT_VALUES_MAX};

/// Number of possible host ids.
pub(crate) const HOST_IDS: u32 = 1 << 16;
/// Number of keyspaces per word of the bit set of keyspaces.
pub(crate) const KEYSPACES_OF_WORD: u32 = u64::BITS;
/// Number of words of this bit set.
pub(crate) const KEYSPACE_WORDS: u32 = (1 << 16) / KEYSPACES_OF_WORD;
/// Number of memory banks of the HashPipe's slots.
pub(crate) const BANKS: u32 = 2;

shared_struct! {
    /// Key of a hot entry.
    HotKey, "nicekv_hot_key", 24 {
        digest: [[u8; 8]; 2] = "__be64" [2],
        keyspace: [u8; 2] = "__be16",
        reserved: [u8; 6] = "__u8" [6],
    }
}

shared_struct! {
    /// A holder of a copy: its host id, and the number that it has confirmed. Both share a cache
    /// line.
    HotHolder, "nicekv_hot_holder", 16 {
        confirmed: u64 = "__u64",
        id: u16 = "__u16",
        reserved: [u8; 6] = "__u8" [6],
    }
}

shared_struct! {
    /// A hot entry with its registers; the first `holder_count` of `holders` are valid.
    /// `value_place`: index of its value plus one; 0 if it has no value.
    HotEntry, "nicekv_hot_entry", 536 {
        instance: u64 = "__u64",
        seen: u64 = "__u64",
        requests: u64 = "__u64",
        turn: u32 = "__u32",
        holder_count: u8 = "__u8",
        owner_turns: u8 = "__u8",
        value_place: u16 = "__u16",
        holders: [HotHolder; HOT_HOLDERS_MAX] = "struct nicekv_hot_holder" [31],
        answered: u64 = "__u64",
    }
}

shared_struct! {
    /// A slot of the HashPipe: a keyspace, the two halves of a digest, and a count. The slot is
    /// empty while the count is 0.
    HotSlot, "nicekv_hot_slot", 32 {
        high: u64 = "__u64",
        low: u64 = "__u64",
        count: u64 = "__u64",
        keyspace: u32 = "__u32",
        reserved: [u8; 4] = "__u8" [4],
    }
}

shared_struct! {
    /// The parameters of the HashPipe. While it has no stages, nothing is counted.
    HotPipe, "nicekv_hot_pipe", 72 {
        seeds: [u64; STAGES_MAX as usize] = "__u64" [8],
        stages: u32 = "__u32",
        stage_slots: u32 = "__u32",
    }
}

/// Writes the constants and structs in C.
pub(super) fn write_c(text: &mut String) -> std::fmt::Result {
    for (name, value) in [
        ("CAPACITY", HOT_CAPACITY as u32),
        ("HOLDERS_MAX", HOT_HOLDERS_MAX as u32),
        ("VALUES_MAX", HOT_VALUES_MAX as u32),
        ("SLOTS_MAX", KEYS_MAX),
        ("STAGES_MAX", STAGES_MAX),
        ("BANKS", BANKS),
        ("HOST_IDS", HOST_IDS),
        ("KEYSPACES_OF_WORD", KEYSPACES_OF_WORD),
        ("KEYSPACE_WORDS", KEYSPACE_WORDS),
    ] {
        writeln!(text, "#define NICEKV_HOT_{name} {value}")?;
    }
    writeln!(text, "#define NICEKV_HOT_GONE {HOT_GONE:#x}ULL")?;
    HotKey::write_c(text)
        .and_then(|()| HotHolder::write_c(text))
        .and_then(|()| HotEntry::write_c(text))
        .and_then(|()| HotSlot::write_c(text))
        .and_then(|()| HotPipe::write_c(text))
}
