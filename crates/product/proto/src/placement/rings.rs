//! Rings of all keyspaces: pairs of /16, which a cluster's switches know in advance, so that they
//! drop requests for keyspaces that they do not know, instead of forwarding them as foreign
//! traffic.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use crate::KeyspaceId;

use crate::placement::{CREATED_FIRST, GroupRing, KeyspaceSpec, RingsBase};

/// Default group ring of a cluster with these keyspaces, whose vrings use `port`. `None`: a
/// configured keyspace overlaps it.
pub fn usual_group_ring(configured: &[KeyspaceSpec], port: u16) -> Option<GroupRing> {
    let ring = match configured.first().map_or(RingsBase::Network, |spec| RingsBase::of(spec.unicast)) {
        RingsBase::Network => GroupRing::on_network(port),
        RingsBase::Loopback => GroupRing::on_loopback(port),
    };
    let mut vrings = configured.iter().flat_map(|spec| [spec.unicast, spec.multicast]);
    (!vrings.any(|vring| ring.contains(vring))).then_some(ring)
}

/// Ring pairs of a cluster configured with these keyspaces, by number: the configured ones, and for
/// all other numbers up to [`KEYSPACES_MAX`] the default pair, unless it is taken.
pub fn ring_pairs(configured: &[KeyspaceSpec]) -> Vec<(Ipv4Addr, Ipv4Addr)> {
    let base = configured.first().map_or(RingsBase::Network, |spec| RingsBase::of(spec.unicast));
    let taken: BTreeSet<_> = configured.iter().flat_map(|spec| [spec.unicast, spec.multicast]).collect();
    let pair = |id: KeyspaceId| {
        let own = configured.iter().find(|spec| spec.id == id).map(|spec| (spec.unicast, spec.multicast));
        let (unicast, multicast) = base.rings(id);
        let usual =
            Some((unicast, multicast)).filter(|_| !taken.contains(&unicast) && !taken.contains(&multicast));
        own.or(usual)
    };
    (0..CREATED_FIRST.0).map(KeyspaceId).filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::KEYSPACES_MAX;
    use crate::placement::KeyspaceDefaults;

    fn keyspace(id: u16, rings: RingsBase) -> KeyspaceSpec {
        KeyspaceSpec::of(&KeyspaceDefaults { id: KeyspaceId(id), replicas: 3, partitions: 8, rings })
    }

    #[test]
    fn ring_pairs_are_complete_and_disjoint() {
        for base in [RingsBase::Network, RingsBase::Loopback] {
            let configured = [keyspace(0, base)];
            let pairs = ring_pairs(&configured);
            assert_eq!(pairs.len(), KEYSPACES_MAX);
            assert!(pairs.iter().zip(0..).all(|(pair, id)| *pair == base.rings(KeyspaceId(id))));
            let rings: BTreeSet<_> =
                pairs.iter().flat_map(|(unicast, multicast)| [unicast, multicast]).collect();
            assert_eq!(rings.len(), 2 * KEYSPACES_MAX);
        }
    }

    #[test]
    fn configured_rings_replace_defaults() {
        // The fourth keyspace uses a ring of the seventh, whose default pair is therefore unused.
        let seventh = RingsBase::Network.rings(KeyspaceId(7)).0;
        let configured = [
            keyspace(0, RingsBase::Network),
            KeyspaceSpec { multicast: seventh, ..keyspace(4, RingsBase::Network) },
        ];
        let pairs = ring_pairs(&configured);
        assert_eq!(pairs.len(), KEYSPACES_MAX - 1);
        assert_eq!(pairs[4], (configured[1].unicast, seventh));
        assert!(pairs.iter().all(|pair| *pair != RingsBase::Network.rings(KeyspaceId(7))));
    }

    #[test]
    fn group_ring_is_disjoint_from_configured_vrings() {
        let of = |rings| usual_group_ring(&[keyspace(0, rings)], 7400);
        assert_eq!(of(RingsBase::Network), Some(GroupRing::on_network(7400)));
        assert_eq!(of(RingsBase::Loopback), Some(GroupRing::on_loopback(7400)));
        let within = KeyspaceSpec { multicast: [10, 70, 0, 0].into(), ..keyspace(1, RingsBase::Network) };
        assert_eq!(usual_group_ring(&[keyspace(0, RingsBase::Network), within], 7400), None);
    }
}
