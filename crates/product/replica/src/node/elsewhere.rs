//! What whoever answers gets without asking the core has to know, besides what may be shown (`visibility`).

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
    /// Keyspace and digest of a key of a partition that this node is a member of.
    pub fn named(&self, partition: PartitionId, key: &[u8]) -> Option<(KeyspaceId, KeyDigest)> {
        let membership = self.partitions.get(partition)?.membership();
        let is_member = membership.standing != Standing::Outside;
        is_member.then(|| (membership.keyspace, membership.digest(key)))
    }

    /// The partitions of which gets may be answered elsewhere while an entry is open, until when, and what switches write into them that have room for
    /// it. Whether a get came past the switches is not known there, so that where some do the shorter lease is for all.
    pub fn served_elsewhere(&self) -> impl Iterator<Item = (PartitionId, u64, ChainHeader)> {
        let Host { session, config, .. } = &self.host;
        let until_ns = if config.coordinates { session.direct_until_ns } else { session.lease_until_ns };
        let answers = |partition: &&Partition| {
            let Membership { partition: id, range, .. } = partition.membership();
            let slot = self.partitions.slot(*id);
            // What another one takes the place of has given its keys away, or is about to (R17).
            let reach = slot.and_then(|slot| self.partitions.reach(slot, range.first()));
            partition.answers_gets(&self.host) && reach == Some(range.last()) && !self.births.ends(*id)
        };
        self.partitions.iter().filter(answers).map(move |partition| {
            let membership = partition.membership();
            (membership.partition, until_ns, membership.chain_of_gets())
        })
    }

    /// So many gets of a partition were answered elsewhere (G7).
    pub fn count_gets_elsewhere(&mut self, partition: PartitionId, gets: u64) {
        let Some(slot) = self.partitions.slot(partition) else { return };
        self.host.counters.gets += gets;
        self.host.counters.gets_elsewhere += gets;
        self.usage.note_gets(self.partitions[slot].membership(), gets);
    }

    /// The next change of what may be shown of copies; to be made before a datagram is polled, and before what is told of it later. A key is a member's or a
    /// copy, and a node that is a member has its own way to show it.
    pub fn poll_copies(&mut self) -> Option<CopyShift> {
        let shift = self.host.hot.holder.poll()?;
        let is_member = |of: &CopyOf| self.partitions.find(of.name.0, of.name.1.match_value()).is_some();
        Some(match shift {
            CopyShift::Kept { of, .. } if is_member(&of) => CopyShift::Dropped(of),
            shift => shift,
        })
    }

    /// So many gets were answered from copies elsewhere (G7). There they are counted by owner: of several keyspaces with copies each is taken for asked as much.
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

    /// So many of them, at most, a client asked for.
    pub fn count_source_elsewhere(&mut self, partition: PartitionId, source: Ipv4Addr, gets: u64) {
        self.sources.note(partition, source, u32::try_from(gets).unwrap_or(u32::MAX));
    }

    /// Counts what [`Self::served_elsewhere`] may get shorter by: to be asked for, if this is another number, before a datagram is polled.
    pub fn epochs_told(&self) -> u64 {
        self.host.visibility.epochs
    }
}
