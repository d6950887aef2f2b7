//! Maps interfaces to ports by a perfect hash: a lookup costs the programs a multiplication and an
//! array access.
//!
//! A port's *place* is its index in the loader's list of ports. The kernel gives the interface
//! index; the upper bits of its product with a multiplier are the cell of the port. The multiplier
//! is chosen so that no two ports share a cell.

use std::collections::{BTreeMap, BTreeSet};

use nicekv_switch::PORTS_MAX;

use crate::layout::PLACE_BITS;
use crate::{Hook, Port, XdpError};

/// Upper bound of the multipliers that are tried. Even with the maximum number of ports, about one
/// in three thousand is collision-free.
const MULTIPLIERS_MAX: u32 = 100_000;
/// An odd number with evenly spread bits: its multiples are tried as multipliers after the first
/// one.
const STEP: u32 = 0x9e37_79b9;

/// The ports of a switch: first those that receive frames, then those that only send.
#[derive(Debug)]
pub(crate) struct Places {
    ports: Vec<Port>,
    by_index: BTreeMap<u16, u32>,
    pub(crate) multiplier: u32,
}

impl Places {
    pub(crate) fn new(ports: &[Port]) -> Result<Self, XdpError> {
        if ports.len() > PORTS_MAX {
            return Err(XdpError::TooManyPorts { ports: ports.len() });
        }
        let (mut by_index, mut interfaces) = (BTreeMap::new(), BTreeSet::new());
        let (mut taking, sending): (Vec<Port>, Vec<Port>) =
            ports.iter().partition(|port| port.hook != Hook::None);
        for port in taking.iter_mut().filter(|_| !sending.is_empty()) {
            // The program at XDP identifies the port of a copy by the output interface, which
            // several ports share here.
            match port.hook {
                Hook::Xdp => return Err(XdpError::SharedAtXdp { index: port.index }),
                _ => port.hook = Hook::Tc,
            }
        }
        let ports = [taking, sending].concat();
        for (place, &Port { index, ifindex, hook, .. }) in (0..).zip(&ports) {
            let is_shared = hook != Hook::None && !interfaces.insert(ifindex);
            if by_index.insert(index, place).is_some() || is_shared {
                return Err(XdpError::DuplicatePort { index, ifindex });
            }
        }
        Ok(Self { ports, by_index, multiplier: multiplier(&interfaces) })
    }

    /// Number of ports that receive frames. A flooded frame is sent to these ports.
    pub(crate) fn taking(&self) -> u32 {
        self.ports.iter().filter(|port| port.hook != Hook::None).count() as u32
    }

    pub(crate) fn contains(&self, index: u16) -> bool {
        self.by_index.contains_key(&index)
    }

    /// The place of a port by its number in tables.
    pub(crate) fn place(&self, index: u16) -> u32 {
        self.by_index[&index]
    }

    pub(crate) fn ifindex(&self, place: u32) -> u32 {
        self.ports[place as usize].ifindex
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Port)> {
        (0..).zip(self.ports.iter().copied())
    }

    pub(crate) fn cell(&self, ifindex: u32) -> u32 {
        cell(self.multiplier, ifindex)
    }
}

fn cell(multiplier: u32, ifindex: u32) -> u32 {
    ifindex.wrapping_mul(multiplier) >> (32 - PLACE_BITS)
}

/// A multiplier without collisions. The first one tried uses the low bits of the interface indexes,
/// which the kernel assigns consecutively.
fn multiplier(interfaces: &BTreeSet<u32>) -> u32 {
    let lower_bits = 1 << (32 - PLACE_BITS);
    let others = (1..MULTIPLIERS_MAX).map(|number| number.wrapping_mul(STEP) | 1);
    let is_free_of_collisions = |multiplier: &u32| {
        let mut taken = BTreeSet::new();
        interfaces.iter().all(|&ifindex| taken.insert(cell(*multiplier, ifindex)))
    };
    let found = std::iter::once(lower_bits).chain(others).find(is_free_of_collisions);
    found.expect("far more numbers are tried than must be")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_hash_has_no_collisions() {
        let spread = |stride: u32| (1..=PORTS_MAX as u32).map(|number| number.wrapping_mul(stride)).collect();
        for interfaces in [spread(1), spread(4096), spread(1 << 23), spread(0x0100_0193), BTreeSet::new()] {
            let multiplier = multiplier(&interfaces);
            let cells: BTreeSet<u32> = interfaces.iter().map(|&ifindex| cell(multiplier, ifindex)).collect();
            assert_eq!(cells.len(), interfaces.len());
            assert!(cells.iter().all(|cell| cell >> PLACE_BITS == 0));
        }
    }
}
