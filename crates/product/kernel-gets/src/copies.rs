//! Entries of copies of hot keys. The holder's core reports its copies
//! ([`nicekv_replica::CopyShift`]), and their entries answer gets that a switch has stamped (H6),
//! within the lease of the copy's lessor (H7).

use crate::gates::GateOwner;
use crate::layout::Memory;
use crate::table::{Contents, Key, Of, Table, shown};
use nicekv_replica::{CopyOf, CopyShift};

impl Table {
    /// Applies a notification about a copy.
    pub fn apply_copy(&mut self, memory: &mut impl Memory, shift: CopyShift) {
        match shift {
            CopyShift::Kept { of, stamp, lessor, entry } => {
                let (name, key) = (of.name, key_of(of));
                match shown(Some(&entry)) {
                    Some(entry) => {
                        let gate_owner = GateOwner::Lessor(lessor);
                        self.write(memory, key, &Contents { name, gate_owner, stamp, entry });
                    }
                    None => self.remove(memory, &key),
                }
            }
            CopyShift::Dropped(of) => self.remove(memory, &key_of(of)),
            CopyShift::Leased { lessor, until_ns } => self.gates.lease(memory, lessor, until_ns),
        }
    }

    /// Gets that the program has answered from copies since the last call (G7).
    pub fn hits_of_copies(&mut self, memory: &impl Memory) -> u64 {
        self.gates.hits_of_copies(memory, self.size.gates)
    }
}

fn key_of(CopyOf { name, key }: CopyOf) -> Key {
    (Of::Copy(name.0, name.1), key)
}
