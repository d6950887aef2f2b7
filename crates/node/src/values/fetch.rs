//! Large values that entries or ops speak of and that are not here: they are fetched from other members, in parts, a few at once.
//!
//! Who lacks one asks a member that holds everything, and after some silence, or if that has it not, the next one. What nobody has any more nobody speaks of any more:
//! an op or a copy that comes later says so.

use super::{FETCHES_MAX, Fetching};
use crate::kinds::StreamPeer;
use crate::node_core::NodeCore;
use crate::protocol::Protocol;
use crate::storage::ValueEnd;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_wire::control::DiskSpace;
use nicekv_wire::recovery::{CopyFrame, VALUE_PART_BYTES};
use nicekv_wire::{Now, OpId, PartitionId};

impl<P: Protocol> NodeCore<P> {
    /// Asks for what is lacking, as far as it is not being asked for. To be called at every heartbeat, and when something has changed.
    pub(crate) fn fetch_values(&mut self, now: Now) {
        if self.host.storage.values.lacking_after(None).is_none() {
            self.host.values.fetches.clear();
            return;
        }
        let storage = &self.host.storage;
        self.host.values.fetches.retain(|name, of| of.is_ending || storage.values.lack(*name).is_some());
        let retry_ns = self.host.config.timing.copy_retry.as_nanos() as u64;
        let overdue = |of: &&Fetching| !of.is_ending && of.asked_ns + retry_ns <= now.boot_ns;
        let silent: Vec<OpId> =
            self.host.values.fetches.values().filter(overdue).map(|of| of.reference.name).collect();
        silent.into_iter().for_each(|name| self.ask_another(now, name));
        while self.host.values.fetches.len() < FETCHES_MAX {
            let Some(name) = self.next_lack() else { return };
            if !self.begin_fetch(now, name) {
                return;
            }
        }
    }

    /// What is lacking and not being fetched: each in its turn.
    fn next_lack(&self) -> Option<OpId> {
        let index = &self.host.storage.values;
        let mut after = self.host.values.last_fetch;
        // No more can be under way, and the order may begin once more.
        for _ in 0..FETCHES_MAX + 2 {
            let Some(lack) = index.lacking_after(after) else {
                after = after.map(|_| None)?;
                continue;
            };
            let name = lack.reference.name;
            if !self.host.values.fetches.contains_key(&name) {
                return Some(name);
            }
            after = Some(name);
        }
        None
    }

    /// Whether there is somebody to be asked, and the disk has room.
    fn begin_fetch(&mut self, now: Now, name: OpId) -> bool {
        let Some(lack) = self.host.storage.values.lack(name) else { return false };
        let (reference, partition) = (lack.reference, lack.partition);
        self.host.values.last_fetch = Some(name);
        // One that a client is sending comes from there.
        let is_sent = self.host.values.transfers.contains_key(&name);
        if is_sent || self.host.disk_space != DiskSpace::Enough || self.host.copies.pause(now).is_some() {
            return false;
        }
        let Some(from) = self.holder(partition) else { return false };
        let fetching = Fetching { reference, partition, from, offset: 0, asked_ns: 0, is_ending: false };
        self.host.values.fetches.insert(name, fetching);
        self.ask_for_value(now, name);
        true
    }

    /// Another member than the last time.
    fn holder(&mut self, partition: PartitionId) -> Option<SocketAddrV4> {
        let membership = self.partitions[self.partitions.slot(partition)?].membership();
        let me = self.host.config.node;
        let holders: Vec<_> =
            membership.members.iter().filter(|member| member.node != me && member.holds_all()).collect();
        self.host.values.tries += 1;
        let place = self.host.values.tries.checked_rem(holders.len())?;
        Some(holders[place].address)
    }

    fn ask_another(&mut self, now: Now, name: OpId) {
        let Some(partition) = self.host.values.fetches.get(&name).map(|of| of.partition) else { return };
        let from = self.holder(partition);
        match self.host.values.fetches.get_mut(&name).zip(from) {
            Some((fetching, from)) => fetching.from = from,
            None => {
                self.host.values.fetches.remove(&name);
                return;
            }
        }
        self.ask_for_value(now, name);
    }

    fn ask_for_value(&mut self, now: Now, name: OpId) {
        let Some(fetching) = self.host.values.fetches.get_mut(&name) else { return };
        let Some(slot) = self.partitions.slot(fetching.partition) else { return };
        fetching.asked_ns = now.boot_ns;
        let Fetching { reference, partition, from, offset, .. } = *fetching;
        let (asker, epoch) = (self.host.config.node, self.partitions[slot].membership().epoch);
        let request = CopyFrame::ValueRequest { asker, partition, epoch, reference, offset };
        self.host.send_frame(StreamPeer::Dialed(from), &request);
    }

    /// A member has sent a part, or has nothing.
    pub(crate) fn on_value_part(
        &mut self,
        now: Now,
        peer: StreamPeer,
        name: OpId,
        offset: u32,
        bytes: &[u8],
    ) {
        let Some(fetching) = self.host.values.fetches.get_mut(&name) else { return };
        if peer != StreamPeer::Dialed(fetching.from) || offset != fetching.offset || fetching.is_ending {
            return;
        }
        let left = fetching.reference.length - offset;
        if bytes.is_empty() {
            self.host.values.fetches.remove(&name);
            self.host.storage.values.give_up(name);
            return;
        }
        if bytes.len() != left.min(VALUE_PART_BYTES) as usize {
            self.host.counters.malformed += 1;
            return;
        }
        self.host.storage.write_value(&fetching.reference, offset, bytes);
        fetching.offset += bytes.len() as u32;
        let rate = self.host.config.timing.copy_bytes_per_second;
        self.host.copies.take(now, bytes.len(), rate);
        if fetching.offset == fetching.reference.length {
            fetching.is_ending = true;
            self.host.storage.end_value(fetching.reference);
        } else {
            self.ask_for_value(now, name);
        }
    }

    /// What was fetched is here, or not right.
    pub(super) fn on_fetch_ended(&mut self, now: Now, name: OpId, end: ValueEnd) {
        if self.host.values.fetches.remove(&name).is_some() {
            self.host.values.counters.fetched += u64::from(end == ValueEnd::Whole);
            self.fetch_values(now);
        }
    }
}
