//! Registers: arrays of numbers that the data plane changes and the controller reads, writes and
//! resets. A new generation of tables does not change them; a restart of the switch loses them.
//!
//! All registers share one array, here and in the kernel programs. A new register is a variant of
//! [`Register`].

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use crate::PORTS_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Register {
    /// Frames that admission has refused, by ingress port. Shows at which port addresses are
    /// forged.
    RefusedByPort,
}

impl Register {
    /// Every register, in the order in which they are stored.
    pub const ALL: [Self; 1] = [Self::RefusedByPort];

    /// The register's name in status screens.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RefusedByPort => "refused_by_port",
        }
    }

    /// Number of cells.
    pub const fn cells(self) -> usize {
        match self {
            Self::RefusedByPort => PORTS_MAX,
        }
    }

    /// The register's range in the array of all cells.
    pub const fn range(self) -> Range<usize> {
        let (mut start, mut index) = (0, 0);
        while index < self as usize {
            start += Self::ALL[index].cells();
            index += 1;
        }
        start..start + self.cells()
    }
}

/// Cells of all registers.
pub const REGISTER_CELLS: usize = Register::ALL[Register::ALL.len() - 1].range().end;

/// The registers of the user-space switch.
#[derive(Clone, Debug)]
pub(crate) struct Registers(Vec<u64>);

impl Registers {
    pub(crate) fn new() -> Self {
        Self(vec![0; REGISTER_CELLS])
    }

    pub(crate) fn read(&self, register: Register) -> &[u64] {
        &self.0[register.range()]
    }

    /// Increments a cell. Does nothing if the register has no such cell.
    pub(crate) fn add(&mut self, register: Register, cell: usize) {
        if let Some(cell) = self.0[register.range()].get_mut(cell) {
            *cell = cell.wrapping_add(1);
        }
    }

    /// Sets a cell. Returns false if the register has no such cell.
    pub(crate) fn write(&mut self, register: Register, cell: usize, value: u64) -> bool {
        self.0[register.range()].get_mut(cell).map(|cell| *cell = value).is_some()
    }

    pub(crate) fn reset(&mut self, register: Register) {
        self.0[register.range()].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_adjacent_and_can_be_read_written_and_reset() {
        let mut end = 0;
        for register in Register::ALL {
            assert_eq!(register.range(), end..end + register.cells(), "{}", register.name());
            end += register.cells();
        }
        assert_eq!(end, REGISTER_CELLS);
        let (mut registers, register) = (Registers::new(), Register::RefusedByPort);
        assert!(registers.write(register, 255, 7) && !registers.write(register, 256, 7));
        registers.add(register, 255);
        registers.add(register, 256);
        assert_eq!(registers.read(register)[255], 8);
        assert_eq!(registers.read(register).iter().sum::<u64>(), 8);
        registers.reset(register);
        assert_eq!(registers.read(register), [0; 256]);
    }
}
