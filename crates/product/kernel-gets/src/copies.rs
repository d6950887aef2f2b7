//! Entries of copies of hot keys, by what the holder tells ([`nicekv_replica::CopyShift`]): for gets that a switch has stamped (H6), within the lease of the copy's
//! lessor (H7).

use crate::gates::Keeper;
use crate::layout::Memory;
use crate::table::{Key, Of, Table, Text, shown};
use nicekv_replica::{CopyOf, CopyShift};

impl Table {
    /// Takes what the core tells of copies.
    pub fn take_copy(&mut self, memory: &mut impl Memory, shift: CopyShift) {
        match shift {
            CopyShift::Kept { of, stamp, lessor, entry } => {
                let (name, key) = (of.name, key_of(of));
                match shown(Some(&entry)) {
                    Some(entry) => {
                        let text = Text { name, keeper: Keeper::Lessor(lessor), stamp, entry };
                        self.write(memory, key, &text);
                    }
                    None => self.forget(memory, &key),
                }
            }
            CopyShift::Dropped(of) => self.forget(memory, &key_of(of)),
            CopyShift::Leased { lessor, until_ns } => self.gates.lease(memory, lessor, until_ns),
        }
    }

    /// How many gets the program has answered from copies, since it was asked last (G7).
    pub fn hits_of_copies(&mut self, memory: &impl Memory) -> u64 {
        self.gates.hits_of_copies(memory, self.size.gates)
    }
}

fn key_of(CopyOf { name, key }: CopyOf) -> Key {
    (Of::Copy(name.0, name.1), key)
}
