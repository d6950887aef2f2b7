//! The sender's state for one receiver.

use crate::pace::{Pace, SAMPLE_MIN};
use crate::receiver::WINDOW_MAX;
use crate::report::Report;
use crate::traffic::Traffic;
use alloc::collections::{BTreeMap, VecDeque};

/// Most queued repairs of one member. The member reports missing chunks beyond these again.
const REPAIRS_MAX: usize = 1024;

/// A chunk is repaired again one round trip after its first repair. The interval then doubles with
/// each repair, at most this many times.
const DOUBLINGS_MAX: u32 = 4;

/// Chunks that may be queued on a slow member's link. A chunk behind them is late, but not lost.
const LINK_QUEUE: u64 = 32;
const SECOND_NS: u64 = 1_000_000_000;

/// How a member receives new chunks.
#[derive(Clone, Debug)]
pub(crate) enum Delivery {
    /// By multicast, with the other members.
    Multicast,
    /// By unicast since `since_ns`; `next` is the next new chunk.
    Unicast { next: u32, since_ns: u64 },
    /// Not at all any more.
    Dropped,
}

/// The sender's state for one receiver.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) delivery: Delivery,
    /// Whether the transfer began to serve the member by multicast.
    pub(crate) is_tried: bool,
    pub(crate) prefix: u32,
    pub(crate) end: u32,
    pub(crate) limit: u32,
    pub(crate) traffic: Traffic,
    /// The member's last sample, for the multicast pace: loss per mille, chunks sent, chunks lost.
    pub(crate) sample: Option<(u64, u64, u64)>,
    /// The pace of unicast chunks and repairs to the member.
    pub(crate) pace: Pace,
    /// The rate that the member can process, in chunks per second; 0: unbounded.
    pub(crate) chunks_per_second: u32,
    /// Chunks to repair.
    repairs: VecDeque<u32>,
    /// For each repaired chunk beyond the prefix: time of its last repair, and number of repairs.
    repaired: BTreeMap<u32, (u64, u32)>,
    /// Number of probes sent to the member, and of those that it has received.
    probes_sent: u32,
    probes_arrived: u32,
    /// (probes, chunk): once the member has received this many probes, every chunk below this
    /// number has arrived or is lost.
    flushed_by: Option<(u32, u32)>,
    /// When to probe the member, and the number of unanswered probes.
    pub(crate) probe_ns: u64,
    pub(crate) probes: u32,
}

impl Member {
    pub(crate) fn new(pace: Pace, limit: u32) -> Self {
        let delivery = Delivery::Multicast;
        let (repairs, repaired) = (VecDeque::new(), BTreeMap::new());
        Self {
            delivery,
            is_tried: true,
            prefix: 0,
            end: 0,
            limit,
            traffic: Traffic::default(),
            sample: None,
            pace,
            chunks_per_second: 0,
            repairs,
            repaired,
            probes_sent: 0,
            probes_arrived: 0,
            flushed_by: None,
            probe_ns: u64::MAX,
            probes: 0,
        }
    }

    /// Processes a report. A report that is older than the last one changes nothing. Every chunk
    /// below `passed` was sent to the member at least once.
    pub(crate) fn on_report(&mut self, now_ns: u64, report: &Report, passed: u32, round_trip_ns: u64) {
        let is_late = report.prefix < self.prefix || report.end < self.end;
        self.prefix = self.prefix.max(report.prefix);
        self.end = self.end.max(report.end);
        self.limit = self.limit.max(report.limit);
        if is_late {
            return;
        }
        self.chunks_per_second = report.chunks_per_second;
        self.traffic.on_report(now_ns, report.arrived);
        let round_trip_ns = match self.delivery {
            Delivery::Unicast { .. } => {
                round_trip_ns.max(LINK_QUEUE * SECOND_NS / u64::from(self.pace.rate()))
            }
            _ => round_trip_ns,
        };
        let prefix = self.prefix;
        self.repaired.retain(|number, _| *number >= prefix);
        let passed = passed.min(prefix.saturating_add(WINDOW_MAX));
        let is_due = |number: &u32| {
            *number < passed
                && self.repaired.get(number).is_none_or(|(sent_ns, times)| {
                    now_ns >= sent_ns + (round_trip_ns << (times - 1).min(DOUBLINGS_MAX))
                })
        };
        let missing = report.missing.iter().cloned().flatten();
        self.probes_arrived = report.asked;
        // Chunks sent before a probe that did not arrive before it are lost: queued chunks would be
        // ahead of the probe.
        let lost = self.flushed_by.take_if(|(asked, _)| *asked <= report.asked);
        let tail = report.end..lost.map_or(0, |(_, passed)| passed.min(self.limit));
        self.repairs = missing.chain(tail).filter(is_due).take(REPAIRS_MAX).collect();
    }

    /// Adapts the unicast pace: to the rate of arrivals if the member is served by unicast, else to
    /// its loss.
    pub(crate) fn adapt_pace(&mut self, now_ns: u64, round_trip_ns: u64) {
        if matches!(self.delivery, Delivery::Unicast { .. }) {
            return self.pace.follow(self.traffic.arrived_per_second());
        }
        let (sent, lost) = self.traffic.sample(now_ns, round_trip_ns);
        if sent >= SAMPLE_MIN && self.pace.is_due(now_ns, round_trip_ns) {
            self.pace.adapt(now_ns, sent, lost);
            self.traffic.end_sample(sent);
            self.sample = Some((lost * 1000 / sent, sent, lost));
        }
    }

    pub(crate) fn has_repairs(&self) -> bool {
        !self.repairs.is_empty()
    }

    /// Takes the next chunk to repair, which is sent now.
    pub(crate) fn repair(&mut self, now_ns: u64) -> Option<u32> {
        let number = self.repairs.pop_front()?;
        let (sent_ns, times) = self.repaired.entry(number).or_default();
        (*sent_ns, *times) = (now_ns, *times + 1);
        self.traffic.sent();
        self.pace.sent(now_ns);
        Some(number)
    }

    /// Every chunk below the returned number was sent to the member at least once. `next` is the
    /// next multicast chunk.
    pub(crate) fn passed(&self, next: u32) -> u32 {
        if let Delivery::Unicast { next, .. } = self.delivery { next } else { next }
    }

    /// The member is probed. Every chunk below `passed` was sent to it at least once.
    pub(crate) fn on_probe(&mut self, passed: u32) {
        self.probes_sent = self.probes_sent.wrapping_add(1).max(self.probes_arrived.wrapping_add(1));
        self.flushed_by.get_or_insert((self.probes_sent, passed));
    }

    /// The member is new, or has reported: it is probed after a silence of `wait_ns`.
    pub(crate) fn on_contact(&mut self, now_ns: u64, wait_ns: u64) {
        (self.probe_ns, self.probes) = (now_ns + wait_ns, 0);
    }

    pub(crate) fn is_served(&self) -> bool {
        !matches!(self.delivery, Delivery::Dropped)
    }
}
