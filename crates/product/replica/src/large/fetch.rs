//! Fetches large values that entries or ops name but that are not on this node's disk: from other
//! members, in parts, a few values at once.
//!
//! Full members (those that hold everything) are asked first; the next one is asked if a member is
//! silent, does not have the value, or has sent wrong content. Then the other members are asked: if
//! the only full member's disk has damaged a value, a member that was away and is joining again may
//! have the last good copy, and its join waits until the full member has fetched the value. If no
//! member has a value, no entry will name it for long: a later op or copy replaces the entry.

use super::{FETCHES_MAX, Fetching, WAITING_MAX};
use crate::node::Replica;
use crate::node::host::Host;
use crate::node::storage::ValueEnd;
use crate::types::StreamPeer;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::control::{DiskSpace, Member};
use nicekv_proto::large::Reference;
use nicekv_proto::recovery::{CopyFrame, VALUE_PART_BYTES};
use nicekv_proto::{Now, OpId, PartitionId};

/// How many missing values one pass examines at most.
const LOOKS_MAX: usize = 2 * FETCHES_MAX;

impl Host {
    /// Keeps a request until the value that it needs has been fetched from a member of its
    /// partition; then the request is handled again.
    pub(crate) fn await_value(
        &mut self,
        partition: PartitionId,
        reference: Reference,
        (from, datagram): (SocketAddrV4, &[u8]),
    ) {
        self.storage.want_value(reference, partition);
        self.values.is_wanting = true;
        let waiting = &mut self.values.waiting;
        if waiting.values().map(Vec::len).sum::<usize>() >= WAITING_MAX {
            self.counters.dropped += 1;
            return;
        }
        let requests = waiting.entry(reference.name).or_default();
        if !requests.iter().any(|(_, known)| known == datagram) {
            requests.push((from, datagram.to_vec()));
        }
    }
}

impl Replica {
    /// Starts fetching missing values, as far as they are not being fetched yet. Called at every
    /// heartbeat, and after changes.
    pub(crate) fn fetch_values(&mut self, now: Now) {
        if self.host.storage.values.lacking_after(None).is_none() {
            self.host.values.fetches.clear();
            self.host.values.waiting.clear();
            return;
        }
        let storage = &self.host.storage;
        self.host.values.waiting.retain(|name, _| storage.values.lack(*name).is_some());
        self.host.values.fetches.retain(|name, of| of.is_ending || storage.values.lack(*name).is_some());
        let retry_ns = self.host.config.timing.copy_retry.as_nanos() as u64;
        let overdue = |of: &&Fetching| !of.is_ending && of.asked_ns + retry_ns <= now.boot_ns;
        let silent: Vec<OpId> =
            self.host.values.fetches.values().filter(overdue).map(|of| of.reference.name).collect();
        silent.into_iter().for_each(|name| self.ask_another(now, name));
        for _ in 0..LOOKS_MAX {
            if self.host.values.fetches.len() >= FETCHES_MAX {
                return;
            }
            let Some(name) = self.next_lack() else { return };
            self.begin_fetch(now, name);
        }
    }

    /// At the end of a batch of datagrams: starts fetching values that the batch has found missing.
    pub(crate) fn fetch_wanted_values(&mut self, now: Now) {
        if core::mem::take(&mut self.host.values.is_wanting) {
            self.fetch_values(now);
        }
    }

    /// The next value, in the order of names, that is missing and not being fetched.
    fn next_lack(&self) -> Option<OpId> {
        let index = &self.host.storage.values;
        let mut after = self.host.values.last_fetch;
        // This many steps suffice: at most `FETCHES_MAX` values are being fetched, and the search
        // may wrap around once.
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

    /// Starts fetching a value if there is a member to ask and the disk has room.
    fn begin_fetch(&mut self, now: Now, name: OpId) {
        let Some(lack) = self.host.storage.values.lack(name) else { return };
        let (reference, partition) = (lack.reference, lack.partition);
        self.host.values.last_fetch = Some(name);
        // A client is just sending this value.
        let is_sent = self.host.values.transfers.contains_key(&name);
        if is_sent || self.host.disk_space != DiskSpace::Enough || self.host.copies.pause(now).is_some() {
            return;
        }
        let known = self.known_holder(partition, name);
        let asked = usize::from(known.is_none());
        let Some(from) = known.or_else(|| self.holder(partition, 0)) else {
            return self.host.storage.values.give_up(name);
        };
        let fetching = Fetching {
            reference,
            partition,
            from,
            offset: 0,
            asked_ns: 0,
            asked,
            refusals: 0,
            is_ending: false,
        };
        self.host.values.fetches.insert(name, fetching);
        self.ask_for_value(now, name);
    }

    /// The member that passed on a request which waits for this value: it has the value, even if it
    /// lacks others.
    fn known_holder(&self, partition: PartitionId, name: OpId) -> Option<SocketAddrV4> {
        let membership = self.partitions.get(partition)?.membership();
        let is_member = |from: &SocketAddrV4| membership.members.iter().any(|member| member.address == *from);
        let requests = self.host.values.waiting.get(&name).into_iter().flatten();
        requests.map(|(from, _)| *from).find(is_member)
    }

    /// The member to ask for a value when `asked` members were asked before. Full members come
    /// first; each fetch starts with another one.
    fn holder(&mut self, partition: PartitionId, asked: usize) -> Option<SocketAddrV4> {
        self.host.values.tries += usize::from(asked == 0);
        let (whole, all) = (self.others(partition, true).count(), self.others(partition, false).count());
        let place = asked.checked_rem(all)?;
        if place < whole {
            let place = (self.host.values.tries + place) % whole;
            return self.others(partition, true).nth(place).map(|member| member.address);
        }
        let mut rest = self.others(partition, false).filter(|member| !member.holds_all());
        rest.nth(place - whole).map(|member| member.address)
    }

    /// The other members of a partition; with `holds_all`, only full ones.
    fn others(&self, partition: PartitionId, holds_all: bool) -> impl Iterator<Item = &Member> {
        let members = self.partitions.get(partition).into_iter().flat_map(|of| &of.membership().members);
        let me = self.host.config.node;
        members.filter(move |member| member.node != me && (!holds_all || member.holds_all()))
    }

    fn ask_another(&mut self, now: Now, name: OpId) {
        let Some(Fetching { partition, asked, .. }) = self.host.values.fetches.get(&name).copied() else {
            return;
        };
        let from = self.holder(partition, asked);
        match self.host.values.fetches.get_mut(&name).zip(from) {
            Some((fetching, from)) => (fetching.from, fetching.asked) = (from, asked + 1),
            None => {
                self.host.values.fetches.remove(&name);
                return;
            }
        }
        self.ask_for_value(now, name);
    }

    /// A member does not have the value, or has sent wrong content: asks another one. When all have
    /// refused, they are asked again at the next heartbeat, unless nothing names the value any
    /// more.
    fn on_refused(&mut self, now: Now, name: OpId) {
        let Some(fetching) = self.host.values.fetches.get_mut(&name) else { return };
        fetching.refusals += 1;
        let Fetching { partition, refusals, .. } = *fetching;
        if refusals < self.others(partition, false).count() {
            return self.ask_another(now, name);
        }
        self.host.values.fetches.remove(&name);
        self.host.storage.values.give_up(name);
    }

    fn ask_for_value(&mut self, now: Now, name: OpId) {
        let Some(fetching) = self.host.values.fetches.get_mut(&name) else { return };
        let Some(asking) = self.partitions.get(fetching.partition) else { return };
        fetching.asked_ns = now.boot_ns;
        let Fetching { reference, partition, from, offset, .. } = *fetching;
        let (asker, epoch) = (self.host.config.node, asking.membership().epoch);
        let request = CopyFrame::ValueRequest { asker, partition, epoch, reference, offset };
        self.host.send_frame(StreamPeer::Dialed(from), &request);
    }

    /// A member has sent a part of a value, or reports that it does not have the value.
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
            return self.on_refused(now, name);
        }
        if bytes.len() != left.min(VALUE_PART_BYTES) as usize {
            self.host.counters.malformed += 1;
            return;
        }
        self.host.storage.write_value(&fetching.reference, offset, bytes);
        fetching.offset += bytes.len() as u32;
        self.host.values.advanced_ns = now.boot_ns;
        let rate = self.host.config.timing.copy_bytes_per_second;
        self.host.copies.take(now, bytes.len(), rate);
        if fetching.offset == fetching.reference.length {
            fetching.is_ending = true;
            self.host.storage.end_value(fetching.reference);
        } else {
            self.ask_for_value(now, name);
        }
    }

    /// Handles again the requests that have waited for this value.
    pub(super) fn resume_waiting(&mut self, now: Now, name: OpId) {
        for (from, datagram) in self.host.values.waiting.remove(&name).into_iter().flatten() {
            self.handle_plain(now, from, &datagram, None);
        }
    }

    /// The disk has finished a fetched value: it is complete, or its content was wrong.
    pub(super) fn on_fetch_ended(&mut self, now: Now, name: OpId, end: ValueEnd) {
        let Some(fetching) = self.host.values.fetches.get_mut(&name) else { return };
        if end == ValueEnd::Wrong {
            // That member's disk has damaged the value without noticing; the member's scrub will
            // find it (`scrub`).
            (fetching.offset, fetching.is_ending) = (0, false);
            return self.on_refused(now, name);
        }
        self.host.values.fetches.remove(&name);
        self.host.values.counters.fetched += u64::from(end == ValueEnd::Whole);
        self.fetch_values(now);
    }
}
