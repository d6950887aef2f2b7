//! A receiver, as the sender knows it.

use crate::pace::{Pace, SAMPLE_MIN};
use crate::receiver::WINDOW_MAX;
use crate::report::Report;
use crate::traffic::Traffic;
use alloc::collections::{BTreeMap, VecDeque};

/// Repairs that wait for one receiver, at most; the rest is asked for again.
const REPAIRS_MAX: usize = 1024;

/// Before a chunk is repaired once more, a round trip passes, then two, then so many doublings more.
const DOUBLINGS_MAX: u32 = 4;

/// Chunks that the queue of a slow receiver's link may hold, so that what is behind them is not repaired before it comes.
const QUEUE: u64 = 32;
const SECOND_NS: u64 = 1_000_000_000;

/// How it gets what it has not been sent yet.
#[derive(Clone, Debug)]
pub(crate) enum Lane {
    /// With all others of the mask.
    Mask,
    /// Alone: the next new chunk, and since when.
    Own { next: u32, since_ns: u64 },
    /// Not any more.
    Gone,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) lane: Lane,
    /// It has gone with the others.
    pub(crate) is_tried: bool,
    pub(crate) prefix: u32,
    pub(crate) end: u32,
    pub(crate) limit: u32,
    pub(crate) traffic: Traffic,
    /// What the mask's pace is to be judged by: per mille lost, sent, lost.
    pub(crate) judged: Option<(u64, u64, u64)>,
    /// Of what it is sent alone: repairs, too.
    pub(crate) pace: Pace,
    /// What it can take.
    pub(crate) chunks_per_second: u32,
    /// Repairs that are to be sent.
    repairs: VecDeque<u32>,
    /// When those beyond the prefix were sent last, and how often.
    repaired: BTreeMap<u32, (u64, u32)>,
    /// Questions that have left for it, and that have come there.
    questions: u32,
    asked: u32,
    /// When so many have come, what had left before the last of them, below this number, has come or is lost.
    awaited: Option<(u32, u32)>,
    /// When it is to be asked for a report, and how often it was asked in vain.
    pub(crate) probe_ns: u64,
    pub(crate) probes: u32,
}

impl Member {
    pub(crate) fn new(pace: Pace, limit: u32) -> Self {
        let lane = Lane::Mask;
        let (repairs, repaired) = (VecDeque::new(), BTreeMap::new());
        Self {
            lane,
            is_tried: true,
            prefix: 0,
            end: 0,
            limit,
            traffic: Traffic::default(),
            judged: None,
            pace,
            chunks_per_second: 0,
            repairs,
            repaired,
            questions: 0,
            asked: 0,
            awaited: None,
            probe_ns: u64::MAX,
            probes: 0,
        }
    }

    /// `passed`: below this number everything was sent to it at least once. What an older report says is known.
    pub(crate) fn take(&mut self, now_ns: u64, report: &Report, passed: u32, round_trip_ns: u64) {
        let is_late = report.prefix < self.prefix || report.end < self.end;
        self.prefix = self.prefix.max(report.prefix);
        self.end = self.end.max(report.end);
        self.limit = self.limit.max(report.limit);
        if is_late {
            return;
        }
        self.chunks_per_second = report.chunks_per_second;
        self.traffic.told(now_ns, report.arrived);
        let round_trip_ns = match self.lane {
            Lane::Own { .. } => round_trip_ns.max(QUEUE * SECOND_NS / u64::from(self.pace.rate())),
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
        self.asked = report.asked;
        // What was sent before a question, and had not come when that came, is lost. What waits in a queue still is before the question, too.
        let lost = self.awaited.take_if(|(asked, _)| *asked <= report.asked);
        let tail = report.end..lost.map_or(0, |(_, passed)| passed.min(self.limit));
        self.repairs = missing.chain(tail).filter(is_due).take(REPAIRS_MAX).collect();
    }

    /// Its own pace goes by what has come of all that it was sent; alone, by what comes.
    pub(crate) fn judge(&mut self, now_ns: u64, round_trip_ns: u64) {
        if matches!(self.lane, Lane::Own { .. }) {
            return self.pace.follow(self.traffic.arrived_per_second());
        }
        let (sent, lost) = self.traffic.sample(now_ns, round_trip_ns);
        if sent >= SAMPLE_MIN && self.pace.is_to_be_judged(now_ns, round_trip_ns) {
            self.pace.judge(now_ns, sent, lost);
            self.traffic.note_judged(sent);
            self.judged = Some((lost * 1000 / sent, sent, lost));
        }
    }

    pub(crate) fn has_repairs(&self) -> bool {
        !self.repairs.is_empty()
    }

    /// The next repair, which leaves now.
    pub(crate) fn repair(&mut self, now_ns: u64) -> Option<u32> {
        let number = self.repairs.pop_front()?;
        let (sent_ns, times) = self.repaired.entry(number).or_default();
        (*sent_ns, *times) = (now_ns, *times + 1);
        self.traffic.sent();
        self.pace.sent(now_ns);
        Some(number)
    }

    /// Below this number everything was sent to it at least once, if `next` is the next one for the mask.
    pub(crate) fn passed(&self, next: u32) -> u32 {
        if let Lane::Own { next, .. } = self.lane { next } else { next }
    }

    /// A question leaves for it; below this number everything was sent to it at least once.
    pub(crate) fn ask(&mut self, passed: u32) {
        self.questions = self.questions.wrapping_add(1).max(self.asked.wrapping_add(1));
        self.awaited.get_or_insert((self.questions, passed));
    }

    /// It has said something, or there is news for it: it is asked when it has been silent for so long from now on.
    pub(crate) fn heard(&mut self, now_ns: u64, wait_ns: u64) {
        (self.probe_ns, self.probes) = (now_ns + wait_ns, 0);
    }

    pub(crate) fn is_there(&self) -> bool {
        !matches!(self.lane, Lane::Gone)
    }
}
