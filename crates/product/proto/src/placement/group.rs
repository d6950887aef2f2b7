//! The group ring: multicast addresses of groups of storage targets, and of subsets of a group
//! (Replicast §II, §III).
//!
//! ```text
//!   address     prefix │ group │ mask: 12 bits, of which the i-th is the i-th member of the group
//!   all ones    the whole group, which negotiates about a chunk       (negotiating group)
//!   a few bits  the chosen targets, which get the data                (rendezvous group)
//!   one bit     one target
//!   none        no target
//! ```
//!
//! A switch that understands masks needs one entry for each group; any other switch needs one entry
//! for each address in use. Unlike vring addresses, group addresses do not depend on the key.

use core::net::{Ipv4Addr, SocketAddrV4};

/// Bits of an address that form the member mask.
pub const GROUP_MASK_BITS: u32 = 12;
/// Most members of a group.
pub const GROUP_MEMBERS_MAX: usize = GROUP_MASK_BITS as usize;
/// Mask of the whole group, however many members it has.
pub const GROUP_MASK_ALL: u16 = (1 << GROUP_MASK_BITS) - 1;
/// Most groups of a ring: those of a /12; a longer prefix has fewer.
pub const GROUPS_MAX: usize = 256;

/// Slots of chunk ids; a slot moves between groups as a whole. The first byte of a chunk id is its
/// slot (P2).
pub const CHUNK_SLOTS: usize = 256;

/// Prefix length of the default rings.
const USUAL_LENGTH: u8 = 12;

/// A ring of groups of storage targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRing {
    /// The lowest address.
    pub base: Ipv4Addr,
    /// Prefix length, from [`Self::LENGTH_MIN`] to [`Self::LENGTH_MAX`].
    pub length: u8,
    /// Destination UDP port of requests: the port of the vrings, so that one socket can serve both.
    pub port: u16,
    /// UDP port of the targets, which switches write into what they forward: the process that
    /// stores chunks needs another port than the node on the same host.
    pub target_port: u16,
}

impl GroupRing {
    /// Shortest prefix.
    pub const LENGTH_MIN: u8 = 8;
    /// Longest prefix: 16 groups.
    pub const LENGTH_MAX: u8 = 16;

    /// Default ring of a cluster with separate hosts: `10.64.0.0/12`, above all vrings. `port` is
    /// that of the vrings; targets use the next one.
    pub fn on_network(port: u16) -> Self {
        Self::usual(Ipv4Addr::new(10, 64, 0, 0), port)
    }

    /// Default ring of a cluster on the loopback interface: `127.64.0.0/12`.
    pub fn on_loopback(port: u16) -> Self {
        Self::usual(Ipv4Addr::new(127, 64, 0, 0), port)
    }

    fn usual(base: Ipv4Addr, port: u16) -> Self {
        Self { base, length: USUAL_LENGTH, port, target_port: Self::usual_target_port(port) }
    }

    /// The port after that of the vrings; the one before it if there is none.
    pub fn usual_target_port(port: u16) -> u16 {
        port.checked_add(1).unwrap_or(port - 1)
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        let bits = 32 - GROUP_MASK_BITS - u32::from(self.length.clamp(Self::LENGTH_MIN, Self::LENGTH_MAX));
        GROUPS_MAX.min(1 << bits)
    }

    /// Whether an address is in the ring.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.length.min(32))).unwrap_or(0);
        (address.to_bits() ^ self.base.to_bits()) & mask == 0
    }

    /// Address of the members of a group whose bits are set in `mask`.
    ///
    /// # Panics
    /// If there is no such group, or the mask has more than [`GROUP_MASK_BITS`] bits.
    pub fn address(&self, group: u8, mask: u16) -> SocketAddrV4 {
        assert!(usize::from(group) < self.groups(), "the ring has no group {group}");
        assert!(mask <= GROUP_MASK_ALL, "a group has no more than {GROUP_MEMBERS_MAX} members");
        let within = u32::from(group) << GROUP_MASK_BITS | u32::from(mask);
        SocketAddrV4::new((self.base.to_bits() | within).into(), self.port)
    }

    /// Group and mask of an address of the ring.
    pub fn group_of(&self, address: Ipv4Addr) -> Option<(u8, u16)> {
        let within = address.to_bits() ^ self.base.to_bits();
        let group = within >> GROUP_MASK_BITS;
        let is_group = (group as usize) < self.groups();
        is_group.then_some((group as u8, mask_of(address)))
    }
}

/// The member mask of a group address.
pub fn mask_of(address: Ipv4Addr) -> u16 {
    address.to_bits() as u16 & GROUP_MASK_ALL
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyspaceId;
    use crate::placement::RingsBase;

    #[test]
    fn group_address_round_trips() {
        let ring = GroupRing::on_network(7400);
        assert_eq!(ring.groups(), GROUPS_MAX);
        for (group, mask, address) in [
            (0, 0, [10, 64, 0, 0]),
            (0, 1, [10, 64, 0, 1]),
            (1, 0b1010, [10, 64, 0x10, 0b1010]),
            (2, GROUP_MASK_ALL, [10, 64, 0x2f, 0xff]),
            (16, 0x801, [10, 65, 8, 1]),
            (255, GROUP_MASK_ALL, [10, 79, 255, 255]),
        ] {
            assert_eq!(ring.address(group, mask), SocketAddrV4::new(address.into(), 7400));
            assert_eq!(ring.group_of(address.into()), Some((group, mask)));
        }
        assert_eq!(ring.group_of(Ipv4Addr::new(10, 63, 255, 255)), None);
        assert_eq!(ring.group_of(Ipv4Addr::new(10, 80, 0, 0)), None);
        assert_eq!(ring.group_of(Ipv4Addr::new(127, 64, 0, 1)), None);
        assert_eq!(GroupRing::on_loopback(7400).address(0, 1).ip(), &Ipv4Addr::new(127, 64, 0, 1));
    }

    #[test]
    fn prefix_length_bounds_groups() {
        let ring =
            |length| GroupRing { base: Ipv4Addr::new(10, 64, 0, 0), length, ..GroupRing::on_network(1) };
        assert_eq!([16, 13, 12].map(|length| ring(length).groups()), [16, 128, 256]);
        let wide = GroupRing { base: Ipv4Addr::new(11, 0, 0, 0), ..ring(8) };
        assert_eq!(wide.groups(), GROUPS_MAX);
        assert_eq!(wide.group_of(wide.address(255, 7).ip().to_owned()), Some((255, 7)));
        assert_eq!(wide.group_of(Ipv4Addr::new(11, 16, 0, 0)), None, "the ring has no such group");
        assert!(wide.contains(Ipv4Addr::new(11, 16, 0, 0)) && !wide.contains(Ipv4Addr::new(12, 0, 0, 0)));
        assert_eq!(ring(16).group_of(Ipv4Addr::new(10, 65, 0, 0)), None);
    }

    #[test]
    #[should_panic(expected = "no group 16")]
    fn missing_group_has_no_address() {
        GroupRing { length: 16, ..GroupRing::on_network(1) }.address(16, 1);
    }

    #[test]
    fn targets_have_a_separate_port() {
        for port in [1, 7400, u16::MAX] {
            assert_ne!(GroupRing::on_network(port).target_port, port);
        }
        assert_eq!(GroupRing::on_network(7400).target_port, 7401);
    }

    #[test]
    fn default_vrings_are_outside_default_group_rings() {
        for (base, ring) in [
            (RingsBase::Network, GroupRing::on_network(7400)),
            (RingsBase::Loopback, GroupRing::on_loopback(7400)),
        ] {
            let rings = (0..64).map(|id| base.rings(KeyspaceId(id)));
            let all: alloc::vec::Vec<_> =
                rings.flat_map(|(unicast, multicast)| [unicast, multicast]).collect();
            assert!(!all.iter().any(|vring| ring.contains(*vring)));
        }
    }
}
