//! The ring of groups of storage targets: keys of its entries, and the members that each port leads
//! to.

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
    /// An entry of the ring of groups: for each port of its group, in order, a mask of the members
    /// behind the port. All bits are set if the entry does not use masks.
    GroupPlaces, "nicekv_group_places", 32 {
        masks: [u16; GROUP_MEMBERS_MAX] = "__u16" [16],
    }
}

/// The part of `bpf/layout.h` for the ring of groups.
pub(super) fn write_c(text: &mut String) -> std::fmt::Result {
    writeln!(text, "#define NICEKV_GROUP_LENGTH {GROUP_LENGTH}")?;
    writeln!(text, "#define NICEKV_GROUP_MASK_ALL {:#x}U", u32::MAX >> GROUP_LENGTH)?;
    GroupEntryKey::write_c(text)?;
    GroupPlaces::write_c(text)
}
