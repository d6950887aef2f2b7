//! The ring of groups of storage targets: what its entries match, and which ports lead to whom.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};

use nicekv_switch::{GROUP_LENGTH, GROUP_MEMBERS_MAX};

shared_struct! {
    /// Key of an entry of the ring of groups: its prefix.
    GroupEntryKey, "nicekv_group_entry_key", 12 {
        slot: u32 = "__u32",
        address: [u8; 4] = "__be32",
        length: u32 = "__u32",
    }
}

shared_struct! {
    /// Of an entry of the ring of groups: of each port of its group, in their order, the places of members that are reached by it; all bits where masks are not looked at.
    GroupPlaces, "nicekv_group_places", 32 {
        masks: [u16; GROUP_MEMBERS_MAX] = "__u16" [16],
    }
}

/// The part of `bpf/layout.h` that is about the ring of groups.
pub(super) fn write_c(text: &mut String) -> std::fmt::Result {
    writeln!(text, "#define NICEKV_GROUP_LENGTH {GROUP_LENGTH}")?;
    writeln!(text, "#define NICEKV_GROUP_MASK_ALL {:#x}U", u32::MAX >> GROUP_LENGTH)?;
    GroupEntryKey::write_c(text)?;
    GroupPlaces::write_c(text)
}
