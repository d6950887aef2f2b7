//! One sender of one transfer.
//!
//! ```text
//!   poll_transmit:  to the k best: repairs, by unicast to who has asked ─▶ what is new for those who go alone ─▶ what is new for the mask
//!                   to the others: repairs, and what is new, for a share of that (`spare`)
//!   window:         no new chunk at or beyond the limit of the k-th best member
//!   silence:        a probe after two round trips; after PROBES_MAX in vain it is over
//! ```
//!
//! Who receives is known when the caller has heard of it ([`Sender::set_members`]); before that a first flight goes to everybody.

mod ranks;

use crate::member::{Lane, Member};
use crate::pace::Pace;
use crate::report::Report;
use crate::round_trip::RoundTrip;
use crate::spare::Spare;
use crate::stragglers::STRAGGLER_NS;
use alloc::collections::VecDeque;

/// Receivers of one transfer, at most: as many bits has a mask.
pub const MEMBERS_MAX: usize = 16;

/// Receivers, by their places.
pub type Mask = u16;

/// A sender is silent for so many round trips before it asks …
const PROBE_ROUND_TRIPS: u64 = 2;
/// … but not for less than receivers wait with a report, and at most so long.
const PROBE_NS: core::ops::RangeInclusive<u64> = 2_000_000..=200_000_000;
/// So many questions in vain, each after twice the time of the one before, and nobody is there.
const PROBES_MAX: u32 = 8;

/// Fewer chunks say nothing of who is slow.
const FAR_MIN: u32 = 128;

/// How a transfer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderConfig {
    /// Of the value.
    pub chunks: u32,
    /// New chunks that may leave before anybody has said what it takes; 0: receivers are asked first, as they may have had some from an attempt before.
    pub first_flight: u32,
    /// Chunks per second in the beginning.
    pub chunks_per_second: u32,
}

/// What is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// A chunk, to all of a mask.
    Multicast(u32, Mask),
    /// A chunk, to the member at a place.
    Unicast(u32, u8),
    /// A question for a report, to all of a mask.
    Probe(Mask),
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// As many members as are required have everything: these.
    Held(Mask),
    /// One goes alone from now on: [`Sender::drop_member`] if it is not to be served.
    Lags(u8),
    /// It goes with the others again.
    CaughtUp(u8),
    /// One is not served any more.
    GivenUp(u8),
    /// Nobody is left to send to.
    Over,
    /// Nobody answers.
    Silent,
}

/// What was sent, and what was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Counters {
    pub multicast: u64,
    pub repairs: u64,
    pub alone: u64,
    pub probes: u64,
    pub reports: u64,
    pub impossible_reports: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Sender {
    config: SenderConfig,
    required: usize,
    members: [Option<Member>; MEMBERS_MAX],
    /// Whether it is known who receives.
    is_addressed: bool,
    /// Before that: when everybody is to be asked, and how often that was in vain.
    probe_ns: u64,
    probes: u32,
    next: u32,
    pace: Pace,
    round_trip: RoundTrip,
    /// The k best, who are needed.
    best: Mask,
    spare: Spare,
    is_held: bool,
    is_over: bool,
    events: VecDeque<Event>,
    /// For operators.
    pub counters: Counters,
}

impl Sender {
    /// Of a transfer that begins.
    pub fn new(now_ns: u64, config: SenderConfig) -> Self {
        let mut sender = Self {
            config,
            required: 0,
            members: [const { None }; MEMBERS_MAX],
            is_addressed: false,
            probe_ns: 0,
            probes: 0,
            next: 0,
            pace: Pace::new(config.chunks_per_second),
            round_trip: RoundTrip::new(),
            best: 0,
            spare: Spare::default(),
            is_held: false,
            is_over: false,
            events: VecDeque::new(),
            counters: Counters::default(),
        };
        sender.probe_ns = if config.first_flight == 0 { now_ns } else { now_ns + sender.patience_ns(0) };
        sender
    }

    /// Who receives from now on, and how many of them must have everything. Who is new is sent what it asks for.
    pub fn set_members(&mut self, now_ns: u64, mask: Mask, required: usize) {
        let patience_ns = self.patience_ns(0);
        for (place, member) in self.members.iter_mut().enumerate() {
            match (mask >> place & 1 == 1, member.as_ref().is_some_and(Member::is_there)) {
                (true, false) => {
                    let new =
                        member.insert(Member::new(Pace::new(self.pace.rate()), self.config.first_flight));
                    new.heard(now_ns, if self.config.first_flight == 0 { 0 } else { patience_ns });
                }
                (false, true) => *member = None,
                _ => {}
            }
        }
        (self.is_addressed, self.required) = (true, required);
        self.settle(now_ns);
    }

    /// A member takes so many chunks a second, much less than others: it goes alone from the beginning, if enough others are left.
    pub fn set_apart(&mut self, now_ns: u64, place: u8, chunks_per_second: u32) {
        let together = self.mask();
        let is_enough = together.count_ones() as usize > self.required;
        let member = self.members.get_mut(usize::from(place)).and_then(Option::as_mut);
        if let Some(member) = member.filter(|_| is_enough && together >> place & 1 == 1) {
            member.lane = Lane::Own { next: 0, since_ns: now_ns };
            member.pace.follow(chunks_per_second);
            member.is_tried = false;
            self.best = self.k_best();
        }
    }

    /// Who goes alone.
    pub fn alone(&self) -> Mask {
        self.mask_of(|member| matches!(member.lane, Lane::Own { .. }))
    }

    /// Whether as many as are required are left without one.
    pub fn can_do_without_one(&self) -> bool {
        self.there().count() > self.required
    }

    /// Members that went with the others and have got less than half, and how many chunks a second they have taken: as long as others are still served.
    pub fn far_behind(&self) -> impl Iterator<Item = (u8, u32)> {
        let half = self.config.chunks / 2;
        let is_far = move |member: &Member| {
            member.is_tried
                && member.prefix.max(member.traffic.arrived()) < half
                && self.config.chunks >= FAR_MIN
        };
        let far = self.there().filter(move |(_, member)| is_far(member));
        far.map(|(place, member)| (place, member.traffic.arrived_per_second()))
    }

    /// A member is not served any more.
    pub fn drop_member(&mut self, place: u8) {
        let member = self.members.get_mut(usize::from(place)).and_then(Option::as_mut);
        if let Some(member) = member.filter(|member| member.is_there()) {
            member.lane = Lane::Gone;
            self.events.push_back(Event::GivenUp(place));
        }
        self.end_if_over();
    }

    /// A member has told what it has.
    pub fn handle_report(&mut self, now_ns: u64, place: u8, report: &Report) {
        let (round_trip_ns, patience_ns) = (self.round_trip.ns(), self.patience_ns(0));
        let next = self.next;
        let member = self.members.get_mut(usize::from(place)).and_then(Option::as_mut);
        let member = member.filter(|member| member.is_there());
        let Some(member) = member.filter(|_| report.is_possible(self.config.chunks)) else {
            self.counters.impossible_reports += 1;
            return;
        };
        self.counters.reports += 1;
        // It may have had something from a transfer before.
        let passed = member.passed(next).max(report.end);
        member.take(now_ns, report, passed, round_trip_ns);
        member.heard(now_ns, patience_ns);
        self.round_trip.told(now_ns, report.end, report.held_ns);
        self.judge(now_ns);
        self.settle(now_ns);
    }

    /// How long silence is nothing to ask about.
    fn patience_ns(&self, probes: u32) -> u64 {
        let wait_ns = (PROBE_ROUND_TRIPS * self.round_trip.ns()) << probes;
        wait_ns.clamp(*PROBE_NS.start() << probes.min(3), *PROBE_NS.end())
    }

    /// Members that are there, with their places.
    fn there(&self) -> impl Iterator<Item = (u8, &Member)> {
        let places = self.members.iter().enumerate();
        places
            .filter_map(|(place, member)| Some((place as u8, member.as_ref()?)))
            .filter(|(_, it)| it.is_there())
    }

    /// Those of them of whom this is so.
    fn mask_of(&self, is_one: impl Fn(&Member) -> bool) -> Mask {
        let those = self.there().filter(|(_, member)| is_one(member));
        those.fold(0, |mask, (place, _)| mask | 1 << place)
    }

    /// Reports may have changed who goes with whom, how fast, and whether all is done.
    fn settle(&mut self, now_ns: u64) {
        let held = self.mask_of(|member| member.prefix == self.config.chunks);
        if self.is_addressed && !self.is_held && held.count_ones() as usize >= self.required {
            self.is_held = true;
            self.events.push_back(Event::Held(held));
        }
        // All of the mask may have had something from an attempt before.
        let together = self.there().filter(|(_, member)| matches!(member.lane, Lane::Mask));
        let all_have = together.map(|(_, member)| member.prefix).min().unwrap_or(0);
        self.next = self.next.max(all_have);
        let best = self.of_kth(|member| member.prefix);
        self.best = self.k_best();
        let slowest = self.of_kth(|member| match member.chunks_per_second {
            0 => u32::MAX,
            bound => bound,
        });
        self.pace.bound(if slowest == u32::MAX { 0 } else { slowest });
        self.choose_lanes(now_ns, best);
        self.end_if_over();
    }

    fn end_if_over(&mut self) {
        let is_done = self.there().all(|(_, member)| member.prefix == self.config.chunks);
        if self.is_addressed && is_done && !self.is_over {
            self.is_over = true;
            self.events.push_back(Event::Over);
        }
    }

    /// Who gets what is new together.
    fn mask(&self) -> Mask {
        if !self.is_addressed {
            return Mask::MAX;
        }
        self.mask_of(|member| matches!(member.lane, Lane::Mask))
    }

    /// New chunks may leave below this number.
    fn limit(&self) -> u32 {
        match self.is_addressed {
            true => self.of_kth(|member| member.limit),
            false => self.config.first_flight,
        }
        .min(self.config.chunks)
    }

    /// What is to be sent now.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Transmit> {
        if self.is_over {
            return None;
        }
        self.give_up(now_ns);
        let best = self.best;
        let needed = self
            .repair(now_ns, best)
            .or_else(|| self.send_alone(now_ns, best))
            .or_else(|| self.send_new(now_ns));
        if needed.is_some() {
            self.spare.earned(now_ns);
            return needed;
        }
        self.serve_others(now_ns).or_else(|| self.probe(now_ns))
    }

    /// Those who are not needed.
    fn serve_others(&mut self, now_ns: u64) -> Option<Transmit> {
        if self.others_ns() > now_ns {
            return None;
        }
        let others = !self.best;
        let sent = self.repair(now_ns, others).or_else(|| self.send_alone(now_ns, others))?;
        self.spare.spent();
        Some(sent)
    }

    /// When something may leave for those who are not needed.
    fn others_ns(&self) -> u64 {
        self.spare.next_ns(self.round_trip.ns(), self.next < self.config.chunks)
    }

    fn repair(&mut self, now_ns: u64, among: Mask) -> Option<Transmit> {
        for (place, member) in self.members.iter_mut().enumerate() {
            let is_asked_for =
                |member: &&mut Member| among >> place & 1 == 1 && member.is_there() && member.has_repairs();
            let Some(member) = member.as_mut().filter(is_asked_for) else { continue };
            if member.pace.next_ns() > now_ns {
                continue;
            }
            self.counters.repairs += 1;
            return member.repair(now_ns).map(|number| Transmit::Unicast(number, place as u8));
        }
        None
    }

    fn send_alone(&mut self, now_ns: u64, among: Mask) -> Option<Transmit> {
        let count = self.config.chunks;
        for (place, member) in self.members.iter_mut().enumerate() {
            let Some(member) = member.as_mut().filter(|_| among >> place & 1 == 1) else { continue };
            let limit = member.limit.min(count);
            let Lane::Own { next, .. } = &mut member.lane else { continue };
            if *next >= limit || member.pace.next_ns() > now_ns {
                continue;
            }
            let number = *next;
            *next += 1;
            member.pace.sent(now_ns);
            member.traffic.sent();
            self.counters.alone += 1;
            return Some(Transmit::Unicast(number, place as u8));
        }
        None
    }

    fn send_new(&mut self, now_ns: u64) -> Option<Transmit> {
        let mask = self.mask();
        if mask == 0 || self.next >= self.limit() || self.pace.next_ns() > now_ns {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.pace.sent(now_ns);
        self.round_trip.sent(now_ns, number);
        let together = self.members.iter_mut().flatten().filter(|member| matches!(member.lane, Lane::Mask));
        together.for_each(|member| member.traffic.sent());
        self.counters.multicast += 1;
        Some(Transmit::Multicast(number, mask))
    }

    /// Who has said nothing for long: the last chunks, or the reports of them, may have been lost. Before it is known who receives, everybody is asked.
    fn probe(&mut self, now_ns: u64) -> Option<Transmit> {
        if !self.is_addressed && now_ns >= self.probe_ns {
            self.probes += 1;
            self.probe_ns = now_ns + self.patience_ns(self.probes);
            return self.ask(if self.probes > PROBES_MAX { 0 } else { Mask::MAX });
        }
        let patience: [u64; PROBES_MAX as usize + 1] =
            core::array::from_fn(|probes| self.patience_ns(probes as u32));
        let (mut mask, mut is_heard) = (0, false);
        for (place, member) in self.members.iter_mut().enumerate() {
            let needs = |member: &&mut Member| member.is_there() && member.prefix < self.config.chunks;
            let Some(member) = member.as_mut().filter(needs) else { continue };
            if now_ns >= member.probe_ns {
                member.probes = (member.probes + 1).min(PROBES_MAX);
                member.probe_ns = now_ns + patience[member.probes as usize];
                member.ask(member.passed(self.next));
                mask |= 1 << place;
            }
            is_heard |= member.probes < PROBES_MAX;
        }
        if mask == 0 { None } else { self.ask(if is_heard { mask } else { 0 }) }
    }

    /// Asks these for a report; nobody: there is nobody.
    fn ask(&mut self, mask: Mask) -> Option<Transmit> {
        if mask == 0 {
            self.is_over = true;
            self.events.push_back(Event::Silent);
            return None;
        }
        self.counters.probes += 1;
        Some(Transmit::Probe(mask))
    }

    fn give_up(&mut self, now_ns: u64) {
        for place in 0..MEMBERS_MAX {
            let since = self.members[place].as_ref().map(|member| &member.lane);
            if let Some(Lane::Own { since_ns, .. }) = since
                && now_ns >= since_ns.saturating_add(STRAGGLER_NS)
            {
                self.drop_member(place as u8);
            }
        }
    }

    /// What has happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Self::poll_transmit`] is to be called at the latest.
    pub fn next_deadline(&self) -> u64 {
        if self.is_over {
            return u64::MAX;
        }
        let has_new = self.mask() != 0 && self.next < self.limit();
        let mut next_ns = if has_new { self.pace.next_ns() } else { u64::MAX };
        if !self.is_addressed {
            next_ns = next_ns.min(self.probe_ns);
        }
        let others_ns = self.others_ns();
        for (place, member) in self.there().filter(|(_, member)| member.prefix < self.config.chunks) {
            next_ns = next_ns.min(member.probe_ns);
            let mut sends = member.has_repairs();
            if let Lane::Own { next, since_ns } = member.lane {
                sends |= next < member.limit.min(self.config.chunks);
                next_ns = next_ns.min(since_ns.saturating_add(STRAGGLER_NS));
            }
            let from_ns = if self.best >> place & 1 == 1 { 0 } else { others_ns };
            next_ns = if sends { next_ns.min(member.pace.next_ns().max(from_ns)) } else { next_ns };
        }
        next_ns
    }
}
