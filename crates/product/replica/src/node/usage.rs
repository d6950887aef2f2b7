//! Counts how much is stored and how often it is requested. These numbers, which are for operators,
//! are reported to the metadata service at intervals.
//!
//! A put does not look at the old entry (every effect is a blind write), so it does not tell
//! whether the key is new. Therefore keys are counted by reading them, a page at a time at a
//! bounded rate: those of each partition that this node leads, and again when the partition was
//! written to since.
//!
//! ```text
//!   heartbeat ─▶ budget ─▶ a partition that was written to since it was counted ─▶ page ─▶ page … ─▶ its count
//!            └─▶ once a second: the counts, how old they may be, requests so far ─▶ metadata service
//! ```
//!
//! While a partition is written to, its count is approximate; when writes stop, it is exact after
//! one more pass. Expired values count until they are deleted.

use crate::modes::Partition;
use crate::modes::messages::Request;
use crate::node::host::Host;
use crate::node::membership::Membership;
use crate::node::partitions::Partitions;
use crate::node::samples;
use crate::node::storage::{Page, stored_entries};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use nicekv_proto::control::{KeyspaceUsage, USAGE_KEYSPACES_MAX, Usage};
use nicekv_proto::recovery::Entry;
use nicekv_proto::{KeyspaceId, NodeId, Now, PartitionId};

/// How many pages are read at one heartbeat at most, because partitions may be small.
const PAGES_MAX: usize = 16;
/// How many match values are sampled to find the middle key. When there are this many, every second
/// one is dropped.
const SAMPLE_MAX: usize = 256;

#[derive(Clone, Default)]
pub(crate) struct UsageWatch {
    report_at_ns: u64,
    /// Requests by keyspace, for at most [`USAGE_KEYSPACES_MAX`] keyspaces; searched from the
    /// start.
    requests: Vec<(KeyspaceId, Requests)>,
    counts: BTreeMap<PartitionId, Count>,
    /// The partition that is being counted, or was counted last.
    partition: Option<PartitionId>,
    counting: Option<Counting>,
    /// Token of the page that is being read for the count.
    pending: Option<u64>,
    /// Bytes and pages that may still be read before the next heartbeat.
    bytes_left: usize,
    pages_left: usize,
}

/// Requests for a keyspace since the process started.
#[derive(Clone, Copy, Default)]
struct Requests {
    gets: u64,
    updates: u64,
}

#[derive(Clone, Copy, Default)]
struct Count {
    keys: u64,
    bytes: u64,
    /// Number of keys that expire, and the sum of their expiry times.
    expiring: u64,
    expiry_sum_ms: u128,
    /// When the count began; later writes may be missing from it.
    begun_ns: u64,
    /// The match value above which half of the keys lie.
    middle: u128,
}

#[derive(Clone, Default)]
struct Counting {
    count: Count,
    /// The last key that was read.
    after: Option<Vec<u8>>,
    /// Match values of a sample of the keys: every `2^stride_bits`-th one.
    sample: Vec<u128>,
    /// Logarithm (base 2) of the distance between sampled keys.
    stride_bits: u32,
}

impl UsageWatch {
    /// Whether the page read under this token is for the count.
    pub(crate) fn is_reading(&self, token: u64) -> bool {
        self.pending == Some(token)
    }

    /// Whether a page of this partition is being read for the count.
    pub(crate) fn is_in(&self, id: PartitionId) -> bool {
        self.pending.is_some() && self.partition == Some(id)
    }

    /// The node no longer holds anything of this partition, and no page of it is being read.
    pub(crate) fn forget(&mut self, id: PartitionId) {
        self.counts.remove(&id);
        if self.partition == Some(id) {
            self.counting = None;
        }
    }

    /// Number of keys, their bytes, and the match value above which half of them lie. Zeros unless
    /// this node reports about the partition and has counted it.
    pub(crate) fn size_of(&self, host: &Host, membership: &Membership) -> (u64, u64, u128) {
        let count = self.counts.get(&membership.partition).filter(|_| tells(host.config.node, membership));
        count.map_or((0, 0, 0), |count| (count.keys, count.bytes, count.middle))
    }

    fn requests(&mut self, keyspace: KeyspaceId) -> Option<&mut Requests> {
        let known = self.requests.iter().position(|(known, _)| *known == keyspace);
        let place = known.unwrap_or_else(|| {
            self.requests.truncate(USAGE_KEYSPACES_MAX - 1);
            self.requests.push((keyspace, Requests::default()));
            self.requests.len() - 1
        });
        self.requests.get_mut(place).map(|(_, requests)| requests)
    }

    /// Counts clients' gets that were answered outside of the core.
    pub(crate) fn note_gets(&mut self, membership: &Membership, gets: u64) {
        self.note_held_gets(membership.keyspace, gets);
    }

    /// Counts clients' gets that were answered from copies of other nodes' keys (H6). This node
    /// need not have partitions of the keyspace.
    pub(crate) fn note_held_gets(&mut self, keyspace: KeyspaceId, gets: u64) {
        if let Some(requests) = self.requests(keyspace) {
            requests.gets += gets;
        }
    }

    /// Counts a client's request to a partition of this node.
    pub(crate) fn note_request(&mut self, me: NodeId, membership: &Membership, request: &Request<'_>) {
        let Some(requests) = self.requests(membership.keyspace) else { return };
        // A get reaches just one member, so that member counts it. All other requests reach every
        // member, so only the primary counts them.
        let leads = membership.primary == me;
        match request {
            Request::Get(get) => requests.gets += u64::from(get.forwarded.is_none()),
            Request::Scan(scan) => requests.gets += u64::from(scan.forwarded.is_none()),
            Request::Query(query) => requests.gets += u64::from(leads && query.wants_value),
            Request::Update(..) | Request::Store(..) => requests.updates += u64::from(leads),
        }
    }
}

/// Whether it is this node that reports about a partition.
fn tells(me: NodeId, membership: &Membership) -> bool {
    membership.primary == me && membership.standing.serves()
}

impl UsageWatch {
    /// Sends a report if one is due, and continues counting. Called at every heartbeat.
    pub(crate) fn tick(&mut self, host: &mut Host, partitions: &Partitions, now: Now) {
        let timing = &host.config.timing;
        if timing.usage_interval.is_zero() {
            return;
        }
        if now.boot_ns >= self.report_at_ns {
            self.report_at_ns = now.after(timing.usage_interval);
            self.report(host, partitions, now);
        }
        let timing = &host.config.timing;
        self.bytes_left = timing.per_heartbeat(timing.usage_bytes_per_second) as usize;
        self.pages_left = PAGES_MAX;
        self.count_next(host, partitions, now);
    }

    /// Requests the next page, if the rate allows it and there is something to count.
    fn count_next(&mut self, host: &mut Host, partitions: &Partitions, now: Now) {
        if self.pending.is_some() || self.bytes_left == 0 || self.pages_left == 0 {
            return;
        }
        if self.counting.is_none() {
            let (me, storage) = (host.config.node, &host.storage);
            let is_due = |partition: &Partition| {
                let membership = partition.membership();
                let is_current = self.counts.contains_key(&membership.partition)
                    && !storage.is_changed(membership.partition);
                tells(me, membership) && !is_current
            };
            // Partitions take turns, so that one with continuous writes does not keep others
            // waiting.
            let next = partitions.next(self.partition, is_due);
            let Some(id) = next.or_else(|| partitions.next(None, is_due)) else { return };
            host.storage.note_counted(id);
            self.partition = Some(id);
            let count = Count { begun_ns: now.boot_ns, ..Count::default() };
            self.counting = Some(Counting { count, ..Counting::default() });
        }
        let (id, counting) = (self.partition.expect("one is counted"), self.counting.as_ref());
        let after = counting.expect("just begun").after.as_deref();
        self.pages_left -= 1;
        self.pending = Some(host.storage.scan(id, after, self.bytes_left));
    }

    /// A page for the count was read.
    pub(crate) fn on_page(&mut self, host: &mut Host, partitions: &Partitions, now: Now, page: Page<'_>) {
        self.pending = None;
        let mut counting = self.counting.take().expect("a page of it was asked for");
        self.bytes_left = self.bytes_left.saturating_sub(page.entries.len());
        let (more, id) = (page.more, self.partition.expect("one is counted"));
        let membership = partitions.get(id).map(Partition::membership);
        counting.add(page, |key| membership.map_or(0, |it| it.digest(key).match_value()));
        if more {
            self.counting = Some(counting);
        } else {
            let middle = membership.map_or(0, |it| samples::middle(&counting.sample, it.range, it.order));
            self.counts.insert(id, Count { middle, ..counting.count });
        }
        self.count_next(host, partitions, now);
    }

    fn report(&mut self, host: &mut Host, partitions: &Partitions, now: Now) {
        let holder = &host.hot.holder;
        // Drop the numbers of keyspaces of which this node holds nothing any more.
        self.requests.retain(|(id, _)| {
            partitions.iter().any(|of| of.membership().keyspace == *id) || holder.has_copies_of(*id)
        });
        let asked = self.requests.iter().map(|(keyspace, requests)| (*keyspace, requests.of(*keyspace)));
        let mut told: BTreeMap<KeyspaceId, KeyspaceUsage> = asked.collect();
        let mut expiry_sums_ms: BTreeMap<KeyspaceId, u128> = BTreeMap::new();
        for membership in partitions.iter().map(Partition::membership) {
            let keyspace = membership.keyspace;
            if told.len() == USAGE_KEYSPACES_MAX && !told.contains_key(&keyspace) {
                continue;
            }
            let usage = told.entry(keyspace).or_insert_with(|| Requests::default().of(keyspace));
            let count = self.counts.get(&membership.partition);
            let Some(count) = count.filter(|_| tells(host.config.node, membership)) else { continue };
            usage.partitions += 1;
            usage.keys += count.keys;
            usage.bytes += count.bytes;
            usage.expiring += count.expiring;
            let expiry_sum_ms = expiry_sums_ms.entry(keyspace).or_default();
            *expiry_sum_ms += count.expiry_sum_ms;
            usage.expiry_ms = expiry_sum_ms.checked_div(usage.expiring.into()).unwrap_or(0) as u64;
            if host.storage.is_changed(membership.partition) {
                let age_ms = now.boot_ns.saturating_sub(count.begun_ns) / 1_000_000;
                usage.age_ms = usage.age_ms.max(age_ms.min(u32::MAX.into()) as u32);
            }
        }
        let (node, incarnation, sent_ns) = (host.config.node, host.config.incarnation, now.boot_ns);
        let usage = Usage { node, incarnation, sent_ns, keyspaces: told.into_values().collect() };
        host.tell_metadata(|out| usage.encode(out));
    }
}

impl Requests {
    /// A report with these requests, and nothing counted yet.
    fn of(self, keyspace: KeyspaceId) -> KeyspaceUsage {
        let Self { gets, updates } = self;
        let (partitions, keys, bytes, expiring, expiry_ms, age_ms) = (0, 0, 0, 0, 0, 0);
        KeyspaceUsage { keyspace, gets, updates, partitions, keys, bytes, expiring, expiry_ms, age_ms }
    }
}

impl Counting {
    fn add(&mut self, page: Page<'_>, value: impl Fn(&[u8]) -> u128) {
        let mut last = page.corrupt.last().map(Vec::as_slice);
        // A damaged key counts, because it has a value here or at another member.
        for key in page.corrupt {
            self.count.keys += 1;
            self.count.bytes += key.len() as u64;
        }
        for (key, entry) in stored_entries(page.entries) {
            if let Ok(entry @ Entry { value: Some(stored), .. }) = Entry::decode(entry) {
                self.count.keys += 1;
                let bytes = entry.large().map_or(stored.len(), |reference| reference.length as usize);
                self.count.bytes += (key.len() + bytes) as u64;
                self.count.expiring += u64::from(entry.expiry_ms > 0);
                self.count.expiry_sum_ms += u128::from(entry.expiry_ms);
                self.take_sample(|| value(key));
            }
            last = last.max(Some(key));
        }
        self.after = last.map(<[u8]>::to_vec);
    }

    /// Samples the match values of keys at equal distances. If the sample is full, doubles the
    /// distance.
    fn take_sample(&mut self, value: impl FnOnce() -> u128) {
        if !self.count.keys.is_multiple_of(1 << self.stride_bits) {
            return;
        }
        self.sample.push(value());
        if self.sample.len() == SAMPLE_MAX {
            let mut at = 0;
            self.sample.retain(|_| {
                at += 1;
                at % 2 == 0
            });
            self.stride_bits += 1;
        }
    }
}
