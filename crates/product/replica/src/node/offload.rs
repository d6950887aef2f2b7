//! Support for gets that are answered outside of the core, by the node's kernel: what the kernel
//! has to know besides `visibility`.

use crate::hot::{CopyOf, CopyShift, Hot};
use crate::modes::Partition;
use crate::node::Replica;
use crate::node::host::Host;
use crate::node::membership::Membership;
use crate::node::status::Standing;
use core::net::Ipv4Addr;
use nicekv_proto::route::ChainHeader;
use nicekv_proto::{KeyDigest, KeyspaceId, PartitionId};

impl Replica {
    /// Keyspace and digest of a key, if this node is a member of the partition.
    pub fn named(&self, partition: PartitionId, key: &[u8]) -> Option<(KeyspaceId, KeyDigest)> {
        let membership = self.partitions.get(partition)?.membership();
        let is_member = membership.standing != Standing::Outside;
        is_member.then(|| (membership.keyspace, membership.digest(key)))
    }

    /// The partitions whose shown entries may answer gets outside of the core; until when; and the
    /// chain header that switches write into such gets. The kernel cannot tell whether a get
    /// bypassed the switches. So at a node that coordinates, where some do, the shorter direct
    /// lease limits all of them.
    pub fn served_elsewhere(&self) -> impl Iterator<Item = (PartitionId, u64, ChainHeader)> {
        let Host { session, config, .. } = &self.host;
        let until_ns = if config.coordinates { session.direct_until_ns } else { session.lease_until_ns };
        let answers = |partition: &&Partition| {
            let Membership { partition: id, range, .. } = partition.membership();
            let slot = self.partitions.slot(*id);
            // Exclude a partition that is being taken over: its keys belong to the child, or soon
            // will (R17).
            let reach = slot.and_then(|slot| self.partitions.reach(slot, range.first()));
            partition.answers_gets(&self.host) && reach == Some(range.last()) && !self.takeovers.ends(*id)
        };
        self.partitions.iter().filter(answers).map(move |partition| {
            let membership = partition.membership();
            (membership.partition, until_ns, membership.chain_of_gets())
        })
    }

    /// Counts gets of a partition that were answered outside of the core (G7).
    pub fn count_gets_elsewhere(&mut self, partition: PartitionId, gets: u64) {
        let Some(slot) = self.partitions.slot(partition) else { return };
        self.host.counters.gets += gets;
        self.host.counters.gets_elsewhere += gets;
        self.usage.note_gets(self.partitions[slot].membership(), gets);
    }

    /// Takes the next change of copies that may be shown outside of the core. Apply it before
    /// polling a datagram. Outside, a key is shown either as a member's or as a copy; if this node
    /// is a member of the key's partition, it counts as a member's.
    pub fn poll_copies(&mut self) -> Option<CopyShift> {
        let shift = self.host.hot.holder.poll()?;
        let is_member = |of: &CopyOf| self.partitions.find(of.name.0, of.name.1.match_value()).is_some();
        Some(match shift {
            CopyShift::Kept { of, .. } if is_member(&of) => CopyShift::Dropped(of),
            shift => shift,
        })
    }

    /// Counts gets that were answered from copies outside of the core (G7). The kernel counts them
    /// by owner and not by keyspace, so they are divided evenly among the keyspaces that have
    /// copies.
    pub fn count_copies_elsewhere(&mut self, gets: u64) {
        if gets == 0 {
            return;
        }
        let Hot { holder, counters, .. } = &mut self.host.hot;
        counters.answered += gets;
        counters.answered_elsewhere += gets;
        let keyspaces = holder.keyspaces();
        let among = keyspaces.len() as u64;
        for (place, keyspace) in (0..among).zip(keyspaces) {
            self.usage.note_held_gets(keyspace, gets / among + u64::from(place < gets % among));
        }
    }

    /// Counts gets of one client that were answered outside of the core; `gets` is an upper bound.
    pub fn count_source_elsewhere(&mut self, partition: PartitionId, source: Ipv4Addr, gets: u64) {
        self.sources.note(partition, source, u32::try_from(gets).unwrap_or(u32::MAX));
    }

    /// A number that changes whenever [`Self::served_elsewhere`] may have become shorter. Compare
    /// it before polling a datagram.
    pub fn epochs_told(&self) -> u64 {
        self.host.visibility.epochs
    }
}
