//! Virtual rings: the address ranges that a switch serves (NICE §3.2).

use alloc::vec::Vec;

use nicekv_proto::placement::GroupRing;
use serde::{Deserialize, Serialize};

use crate::{Prefix, TableError, VRINGS_MAX};

/// The two virtual rings of a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VringConfig {
    /// Vnode addresses whose datagrams go to one replica.
    pub unicast: Prefix,
    /// Vnode addresses whose datagrams go to every replica.
    pub multicast: Prefix,
}

impl VringConfig {
    /// The rings of the default keyspace: 10.10.0.0/16 and 10.11.0.0/16.
    pub const DEFAULT: Self =
        Self { unicast: Prefix::new([10, 10, 0, 0], 16), multicast: Prefix::new([10, 11, 0, 0], 16) };

    /// Whether `address` belongs to either ring.
    pub fn contains(&self, address: [u8; 4]) -> bool {
        self.unicast.contains(address) || self.multicast.contains(address)
    }

    /// Checks the pair by the rules of [`VringSet::new`].
    pub fn validate(&self) -> Result<(), TableError> {
        VringSet::new([*self]).map(|_| ())
    }
}

/// Vnodes of a ring.
pub const VNODES: usize = 1 << 16;
/// A vring has one address for each vnode, so this is the length of its prefix.
const RING_PREFIX_LENGTH: u8 = 32 - VNODES.ilog2() as u8;

/// The kind of ring that an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// A unicast ring; the address is a vnode.
    Unicast,
    /// A multicast ring; the address is a vnode.
    Multicast,
    /// The ring of groups; the address names members of a group of storage targets.
    Group,
}

/// The virtual rings of all keyspaces, and the ring of groups of storage targets, if there is one.
///
/// A switch knows its rings before its first tables arrive, so that a switch with empty tables
/// drops traffic for a vring instead of forwarding it by its MAC address (R12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VringSet {
    pairs: Vec<VringConfig>,
    group: Option<GroupRing>,
    /// One bit for each possible second byte of an address, set if addresses of a ring have this
    /// byte: a filter that rejects most other addresses.
    octets: [u64; 4],
}

impl VringSet {
    /// The rings of one or more keyspaces.
    ///
    /// # Errors
    /// No keyspace or more than [`VRINGS_MAX`], a prefix with host bits set or another length than
    /// /16, or rings that overlap.
    pub fn new(pairs: impl IntoIterator<Item = VringConfig>) -> Result<Self, TableError> {
        let pairs: Vec<VringConfig> = pairs.into_iter().collect();
        if pairs.is_empty() || pairs.len() > VRINGS_MAX {
            return Err(TableError::VringCount { pairs: pairs.len() });
        }
        let rings: Vec<Prefix> = pairs.iter().flat_map(|pair| [pair.unicast, pair.multicast]).collect();
        for (index, &one) in rings.iter().enumerate() {
            if !one.is_canonical() || one.length != RING_PREFIX_LENGTH {
                return Err(TableError::BadPrefix { prefix: one });
            }
            let overlaps = |other: &&Prefix| one.covers(other) || other.covers(&one);
            if let Some(&other) = rings[index + 1..].iter().find(overlaps) {
                return Err(TableError::VringsOverlap { one, other });
            }
        }
        let mut set = Self { pairs, group: None, octets: [0; 4] };
        rings.iter().for_each(|ring| set.add_octets(ring));
        Ok(set)
    }

    /// Adds the ring of groups of storage targets (Replicast §III).
    ///
    /// # Errors
    /// A prefix with host bits set, a length outside of [`GroupRing::LENGTH_MIN`] to
    /// [`GroupRing::LENGTH_MAX`], or an overlap with a vring.
    pub fn with_group(mut self, ring: GroupRing) -> Result<Self, TableError> {
        let prefix = prefix_of(&ring);
        if !prefix.is_canonical() {
            return Err(TableError::BadPrefix { prefix });
        }
        if !(GroupRing::LENGTH_MIN..=GroupRing::LENGTH_MAX).contains(&prefix.length) {
            return Err(TableError::GroupRingLength { prefix });
        }
        let mut rings = self.pairs.iter().flat_map(|pair| [pair.unicast, pair.multicast]);
        if let Some(one) = rings.find(|vring| prefix.covers(vring) || vring.covers(&prefix)) {
            return Err(TableError::VringsOverlap { one, other: prefix });
        }
        self.group = Some(ring);
        self.add_octets(&prefix);
        Ok(self)
    }

    fn add_octets(&mut self, ring: &Prefix) {
        let second = |address: u32| address.to_be_bytes()[1];
        for octet in second(ring.first())..=second(ring.last()) {
            self.octets[usize::from(octet / 64)] |= 1 << (octet % 64);
        }
    }

    /// The ring of groups.
    pub fn group(&self) -> Option<&GroupRing> {
        self.group.as_ref()
    }

    /// The addresses of the ring of groups.
    pub fn group_prefix(&self) -> Option<Prefix> {
        self.group.as_ref().map(prefix_of)
    }

    /// Whether some address of a ring has this second byte. A fast filter that rejects most other
    /// addresses.
    pub fn has_octet(&self, octet: u8) -> bool {
        self.octets[usize::from(octet / 64)] & 1 << (octet % 64) != 0
    }

    /// The pairs of vrings, in the order given.
    pub fn iter(&self) -> impl Iterator<Item = &VringConfig> {
        self.pairs.iter()
    }

    /// The ring to which `address` belongs.
    pub fn ring_of(&self, address: [u8; 4]) -> Option<Ring> {
        if !self.has_octet(address[1]) {
            return None;
        }
        let of_pair = self.pairs.iter().find_map(|pair| {
            let unicast = pair.unicast.contains(address).then_some(Ring::Unicast);
            unicast.or_else(|| pair.multicast.contains(address).then_some(Ring::Multicast))
        });
        of_pair.or_else(|| self.group_prefix()?.contains(address).then_some(Ring::Group))
    }

    /// The UDP port to which the switch rewrites datagrams for this address; `None`: the host's own
    /// port.
    pub fn target_port(&self, address: [u8; 4]) -> Option<u16> {
        let ring = self.group.as_ref().filter(|ring| prefix_of(ring).contains(address))?;
        Some(ring.target_port)
    }

    /// The unicast ring of the keyspace to whose vrings `address` belongs.
    pub(crate) fn pair_of(&self, address: [u8; 4]) -> Option<Prefix> {
        self.pairs.iter().find(|pair| pair.contains(address)).map(|pair| pair.unicast)
    }

    /// Whether `address` belongs to a ring.
    pub fn contains(&self, address: [u8; 4]) -> bool {
        self.ring_of(address).is_some()
    }
}

fn prefix_of(ring: &GroupRing) -> Prefix {
    Prefix::new(ring.base.octets(), ring.length)
}

impl TryFrom<VringConfig> for VringSet {
    type Error = TableError;

    fn try_from(pair: VringConfig) -> Result<Self, TableError> {
        Self::new([pair])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_rings_are_refused() {
        let vrings = VringSet::new([VringConfig::DEFAULT]).unwrap();
        assert_eq!(vrings.ring_of([10, 10, 3, 4]), Some(Ring::Unicast));
        assert_eq!(vrings.ring_of([10, 11, 3, 4]), Some(Ring::Multicast));
        assert_eq!(vrings.ring_of([10, 12, 3, 4]), None);
        let same = VringConfig { multicast: VringConfig::DEFAULT.unicast, ..VringConfig::DEFAULT };
        assert!(matches!(VringSet::new([same]), Err(TableError::VringsOverlap { .. })));
        for too_small in [Prefix::new([10, 13, 1, 0], 24), Prefix::new([10, 13, 0, 1], 16)] {
            let pair = VringConfig { multicast: too_small, ..VringConfig::DEFAULT };
            assert_eq!(VringSet::new([pair]), Err(TableError::BadPrefix { prefix: too_small }));
        }
        let twice = [VringConfig::DEFAULT, VringConfig::DEFAULT];
        assert!(matches!(VringSet::new(twice), Err(TableError::VringsOverlap { .. })));
        assert_eq!(VringSet::new([]), Err(TableError::VringCount { pairs: 0 }));
    }

    #[test]
    fn group_ring_overlaps_no_vring() {
        let with = |base: [u8; 4], length| {
            let ring = GroupRing { base: base.into(), length, ..GroupRing::on_network(7000) };
            VringSet::new([VringConfig::DEFAULT]).unwrap().with_group(ring)
        };
        let usual = with([10, 64, 0, 0], 12).unwrap();
        for (address, ring, port) in [
            ([10, 64, 0, 0], Some(Ring::Group), Some(7001)),
            ([10, 79, 255, 255], Some(Ring::Group), Some(7001)),
            ([10, 63, 255, 255], None, None),
            ([10, 80, 0, 0], None, None),
            ([11, 64, 0, 0], None, None),
            ([10, 10, 3, 4], Some(Ring::Unicast), None),
        ] {
            assert_eq!((usual.ring_of(address), usual.target_port(address)), (ring, port));
        }
        let wide = with([11, 0, 0, 0], 8).unwrap();
        assert_eq!(wide.ring_of([11, 255, 0, 1]), Some(Ring::Group), "a /8 covers every second byte");
        for (base, length) in [([10, 64, 0, 0], 17), ([8, 0, 0, 0], 7)] {
            let prefix = Prefix::new(base, length);
            assert_eq!(with(base, length), Err(TableError::GroupRingLength { prefix }));
        }
        let prefix = Prefix::new([10, 65, 0, 0], 12);
        assert_eq!(with(prefix.address, prefix.length), Err(TableError::BadPrefix { prefix }));
        for (base, length) in [([10, 0, 0, 0], 12), ([10, 11, 0, 0], 16)] {
            assert!(matches!(with(base, length), Err(TableError::VringsOverlap { .. })));
        }
    }
}
