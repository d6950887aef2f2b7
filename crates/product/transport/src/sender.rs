//! The sender of one transfer.
//!
//! ```text
//!   poll_transmit:  to the k best members: repairs ─▶ new chunks by unicast ─▶ new chunks by multicast
//!                   to the others: repairs and new chunks, in a share of the link (`spare_share`)
//!   window:         no new chunk at or beyond the limit of the k-th best member
//!   silence:        a probe after two round trips; after PROBES_MAX unanswered probes the transfer ends
//! ```
//!
//! Members are the receivers that are known to the sender ([`Sender::set_members`]). Before there are any, a first flight
//! goes to all receivers.

use crate::member::{Delivery, Member};
use crate::pace::Pace;
use crate::report::Report;
use crate::round_trip::RoundTrip;
use crate::spare_share::SpareShare;
use crate::stragglers::STRAGGLER_NS;
use alloc::collections::VecDeque;

/// Members of one transfer, at most: the bits of a [`Mask`].
pub const MEMBERS_MAX: usize = 16;

/// A set of members: bit `i` is the member at place `i`.
pub type Mask = u16;

/// A sender probes a member that was silent for this many round trips, …
const PROBE_ROUND_TRIPS: u64 = 2;
/// … within these bounds: receivers delay their reports.
const PROBE_NS: core::ops::RangeInclusive<u64> = 2_000_000..=200_000_000;
/// Unanswered probes, each after twice the time of the one before, until the transfer ends.
const PROBES_MAX: u32 = 8;

/// A transfer of fewer chunks does not show which members are slow.
const SLOW_CHUNKS_MIN: u32 = 128;

/// A member this many chunks behind the k-th best is served by unicast, …
const LAG_MAX: u32 = 512;
/// … and so is one with less than half of the k-th best's chunks, if these are at least so many. To return to multicast, it
/// must lose less than half of as many.
const COMPARED_MIN: u32 = 64;

/// How a transfer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderConfig {
    /// Chunks of the value.
    pub chunks: u32,
    /// New chunks that may leave before the first report; 0: members are probed first, because they may have chunks from an
    /// earlier attempt.
    pub first_flight: u32,
    /// Initial pace, in chunks per second.
    pub chunks_per_second: u32,
}

/// What to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// A chunk, by its number, to all members of a mask.
    Multicast(u32, Mask),
    /// A chunk, by its number, to the member at a place.
    Unicast(u32, u8),
    /// A request for a report, to all members of a mask.
    Probe(Mask),
}

/// A change in the state of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// As many members as are required have everything: these.
    RequiredComplete(Mask),
    /// A member is served by unicast from now on. Call [`Sender::drop_member`] if it is not worth it.
    FellBehind(u8),
    /// A member is served by multicast again.
    CaughtUp(u8),
    /// A member is no longer served.
    Dropped(u8),
    /// All members that are left have everything.
    Finished,
    /// No member answers.
    NoAnswer,
}

/// Counts of what was sent and received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub multicast: u64,
    pub repairs: u64,
    pub unicast: u64,
    pub probes: u64,
    pub reports: u64,
    pub invalid_reports: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Sender {
    config: SenderConfig,
    required: usize,
    members: [Option<Member>; MEMBERS_MAX],
    /// Whether the members are known.
    is_addressed: bool,
    /// Before that: when to probe all receivers, and the number of unanswered probes.
    probe_ns: u64,
    probes: u32,
    next: u32,
    pace: Pace,
    round_trip: RoundTrip,
    /// The k best members, which are required.
    best: Mask,
    spare: SpareShare,
    is_held: bool,
    is_over: bool,
    events: VecDeque<Event>,
    /// Counts for operators.
    pub counters: Counters,
}

impl Sender {
    /// A transfer that begins now.
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
            spare: SpareShare::default(),
            is_held: false,
            is_over: false,
            events: VecDeque::new(),
            counters: Counters::default(),
        };
        sender.probe_ns = if config.first_flight == 0 { now_ns } else { now_ns + sender.probe_after_ns(0) };
        sender
    }

    /// Sets the members, and how many of them must have everything. A new member gets what its reports miss.
    pub fn set_members(&mut self, now_ns: u64, mask: Mask, required: usize) {
        let probe_after_ns = self.probe_after_ns(0);
        for (place, member) in self.members.iter_mut().enumerate() {
            match (mask >> place & 1 == 1, member.as_ref().is_some_and(Member::is_served)) {
                (true, false) => {
                    let new =
                        member.insert(Member::new(Pace::new(self.pace.rate()), self.config.first_flight));
                    new.on_contact(now_ns, if self.config.first_flight == 0 { 0 } else { probe_after_ns });
                }
                (false, true) => *member = None,
                _ => {}
            }
        }
        (self.is_addressed, self.required) = (true, required);
        self.update(now_ns);
    }

    /// Serves a member by unicast from the first chunk on, at this pace: it is known to be slow. Ignored unless enough others
    /// are left.
    pub fn serve_by_unicast(&mut self, now_ns: u64, place: u8, chunks_per_second: u32) {
        let together = self.multicast_mask();
        let is_enough = together.count_ones() as usize > self.required;
        let member = self.members.get_mut(usize::from(place)).and_then(Option::as_mut);
        if let Some(member) = member.filter(|_| is_enough && together >> place & 1 == 1) {
            member.delivery = Delivery::Unicast { next: 0, since_ns: now_ns };
            member.pace.follow(chunks_per_second);
            member.is_tried = false;
            self.best = self.k_best();
        }
    }

    /// The members that are served by unicast.
    pub fn unicast_members(&self) -> Mask {
        self.mask_of(|member| matches!(member.delivery, Delivery::Unicast { .. }))
    }

    /// Whether there are more members than are required.
    pub fn has_spare_member(&self) -> bool {
        self.served().count() > self.required
    }

    /// Members that were served by multicast and have less than half of the chunks, with the chunks that they took per
    /// second.
    pub fn slow_members(&self) -> impl Iterator<Item = (u8, u32)> {
        let half = self.config.chunks / 2;
        let is_far = move |member: &Member| {
            member.is_tried
                && member.prefix.max(member.traffic.arrived()) < half
                && self.config.chunks >= SLOW_CHUNKS_MIN
        };
        let far = self.served().filter(move |(_, member)| is_far(member));
        far.map(|(place, member)| (place, member.traffic.arrived_per_second()))
    }

    /// Stops serving a member.
    pub fn drop_member(&mut self, place: u8) {
        let member = self.members.get_mut(usize::from(place)).and_then(Option::as_mut);
        if let Some(member) = member.filter(|member| member.is_served()) {
            member.delivery = Delivery::Dropped;
            self.events.push_back(Event::Dropped(place));
        }
        self.end_if_over();
    }

    /// A report of the member at a place.
    pub fn handle_report(&mut self, now_ns: u64, place: u8, report: &Report) {
        let (round_trip_ns, probe_after_ns) = (self.round_trip.ns(), self.probe_after_ns(0));
        let next = self.next;
        let member = self.members.get_mut(usize::from(place)).and_then(Option::as_mut);
        let member = member.filter(|member| member.is_served());
        let Some(member) = member.filter(|_| report.is_valid(self.config.chunks)) else {
            self.counters.invalid_reports += 1;
            return;
        };
        self.counters.reports += 1;
        // It may have chunks from an earlier attempt.
        let passed = member.passed(next).max(report.end);
        member.on_report(now_ns, report, passed, round_trip_ns);
        member.on_contact(now_ns, probe_after_ns);
        self.round_trip.on_report(now_ns, report.end, report.held_ns);
        self.adapt_pace(now_ns);
        self.update(now_ns);
    }

    /// How long a member may be silent before it is probed, after so many unanswered probes.
    fn probe_after_ns(&self, probes: u32) -> u64 {
        let wait_ns = (PROBE_ROUND_TRIPS * self.round_trip.ns()) << probes;
        wait_ns.clamp(*PROBE_NS.start() << probes.min(3), *PROBE_NS.end())
    }

    /// The members that are served, with their places.
    fn served(&self) -> impl Iterator<Item = (u8, &Member)> {
        let places = self.members.iter().enumerate();
        places
            .filter_map(|(place, member)| Some((place as u8, member.as_ref()?)))
            .filter(|(_, it)| it.is_served())
    }

    /// The served members with this property.
    fn mask_of(&self, is_one: impl Fn(&Member) -> bool) -> Mask {
        let those = self.served().filter(|(_, member)| is_one(member));
        those.fold(0, |mask, (place, _)| mask | 1 << place)
    }

    /// Updates what depends on reports and members: the ranking, the pace, and whether the transfer is done.
    fn update(&mut self, now_ns: u64) {
        let held = self.mask_of(|member| member.prefix == self.config.chunks);
        if self.is_addressed && !self.is_held && held.count_ones() as usize >= self.required {
            self.is_held = true;
            self.events.push_back(Event::RequiredComplete(held));
        }
        // All multicast members may have chunks from an earlier attempt.
        let together = self.served().filter(|(_, member)| matches!(member.delivery, Delivery::Multicast));
        let all_have = together.map(|(_, member)| member.prefix).min().unwrap_or(0);
        self.next = self.next.max(all_have);
        let best = self.kth_highest(|member| member.prefix);
        self.best = self.k_best();
        let slowest = self.kth_highest(|member| match member.chunks_per_second {
            0 => u32::MAX,
            bound => bound,
        });
        self.pace.bound(if slowest == u32::MAX { 0 } else { slowest });
        self.choose_delivery(now_ns, best);
        self.end_if_over();
    }

    fn end_if_over(&mut self) {
        let is_done = self.served().all(|(_, member)| member.prefix == self.config.chunks);
        if self.is_addressed && is_done && !self.is_over {
            self.is_over = true;
            self.events.push_back(Event::Finished);
        }
    }

    /// The members that are served by multicast.
    fn multicast_mask(&self) -> Mask {
        if !self.is_addressed {
            return Mask::MAX;
        }
        self.mask_of(|member| matches!(member.delivery, Delivery::Multicast))
    }

    /// New chunks below this number may leave.
    fn limit(&self) -> u32 {
        match self.is_addressed {
            true => self.kth_highest(|member| member.limit),
            false => self.config.first_flight,
        }
        .min(self.config.chunks)
    }

    /// What to send now, if anything.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Transmit> {
        if self.is_over {
            return None;
        }
        self.give_up(now_ns);
        let best = self.best;
        let needed = self
            .repair(now_ns, best)
            .or_else(|| self.send_unicast(now_ns, best))
            .or_else(|| self.send_multicast(now_ns));
        if needed.is_some() {
            self.spare.on_required(now_ns);
            return needed;
        }
        self.serve_others(now_ns).or_else(|| self.probe(now_ns))
    }

    /// Serves the members that are not required.
    fn serve_others(&mut self, now_ns: u64) -> Option<Transmit> {
        if self.others_ns() > now_ns {
            return None;
        }
        let others = !self.best;
        let sent = self.repair(now_ns, others).or_else(|| self.send_unicast(now_ns, others))?;
        self.spare.on_other();
        Some(sent)
    }

    /// When something may leave for members that are not required.
    fn others_ns(&self) -> u64 {
        self.spare.next_ns(self.round_trip.ns(), self.next < self.config.chunks)
    }

    fn repair(&mut self, now_ns: u64, among: Mask) -> Option<Transmit> {
        for (place, member) in self.members.iter_mut().enumerate() {
            let is_asked_for =
                |member: &&mut Member| among >> place & 1 == 1 && member.is_served() && member.has_repairs();
            let Some(member) = member.as_mut().filter(is_asked_for) else { continue };
            if member.pace.next_ns() > now_ns {
                continue;
            }
            self.counters.repairs += 1;
            return member.repair(now_ns).map(|number| Transmit::Unicast(number, place as u8));
        }
        None
    }

    fn send_unicast(&mut self, now_ns: u64, among: Mask) -> Option<Transmit> {
        let count = self.config.chunks;
        for (place, member) in self.members.iter_mut().enumerate() {
            let Some(member) = member.as_mut().filter(|_| among >> place & 1 == 1) else { continue };
            let limit = member.limit.min(count);
            let Delivery::Unicast { next, .. } = &mut member.delivery else { continue };
            if *next >= limit || member.pace.next_ns() > now_ns {
                continue;
            }
            let number = *next;
            *next += 1;
            member.pace.sent(now_ns);
            member.traffic.sent();
            self.counters.unicast += 1;
            return Some(Transmit::Unicast(number, place as u8));
        }
        None
    }

    fn send_multicast(&mut self, now_ns: u64) -> Option<Transmit> {
        let mask = self.multicast_mask();
        if mask == 0 || self.next >= self.limit() || self.pace.next_ns() > now_ns {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.pace.sent(now_ns);
        self.round_trip.sent(now_ns, number);
        let together =
            self.members.iter_mut().flatten().filter(|member| matches!(member.delivery, Delivery::Multicast));
        together.for_each(|member| member.traffic.sent());
        self.counters.multicast += 1;
        Some(Transmit::Multicast(number, mask))
    }

    /// Probes silent members: the last chunks, or their reports, may be lost. Without members, all receivers are probed.
    fn probe(&mut self, now_ns: u64) -> Option<Transmit> {
        if !self.is_addressed && now_ns >= self.probe_ns {
            self.probes += 1;
            self.probe_ns = now_ns + self.probe_after_ns(self.probes);
            return self.send_probe(if self.probes > PROBES_MAX { 0 } else { Mask::MAX });
        }
        let probe_after_ns: [u64; PROBES_MAX as usize + 1] =
            core::array::from_fn(|probes| self.probe_after_ns(probes as u32));
        let (mut mask, mut is_answered) = (0, false);
        for (place, member) in self.members.iter_mut().enumerate() {
            let needs = |member: &&mut Member| member.is_served() && member.prefix < self.config.chunks;
            let Some(member) = member.as_mut().filter(needs) else { continue };
            if now_ns >= member.probe_ns {
                member.probes = (member.probes + 1).min(PROBES_MAX);
                member.probe_ns = now_ns + probe_after_ns[member.probes as usize];
                member.on_probe(member.passed(self.next));
                mask |= 1 << place;
            }
            is_answered |= member.probes < PROBES_MAX;
        }
        if mask == 0 { None } else { self.send_probe(if is_answered { mask } else { 0 }) }
    }

    /// Probes a mask; an empty one ends the transfer.
    fn send_probe(&mut self, mask: Mask) -> Option<Transmit> {
        if mask == 0 {
            self.is_over = true;
            self.events.push_back(Event::NoAnswer);
            return None;
        }
        self.counters.probes += 1;
        Some(Transmit::Probe(mask))
    }

    fn give_up(&mut self, now_ns: u64) {
        for place in 0..MEMBERS_MAX {
            let since = self.members[place].as_ref().map(|member| &member.delivery);
            if let Some(Delivery::Unicast { since_ns, .. }) = since
                && now_ns >= since_ns.saturating_add(STRAGGLER_NS)
            {
                self.drop_member(place as u8);
            }
        }
    }

    /// The next change of state.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`Self::poll_transmit`] at the latest.
    pub fn next_deadline(&self) -> u64 {
        if self.is_over {
            return u64::MAX;
        }
        let has_new = self.multicast_mask() != 0 && self.next < self.limit();
        let mut next_ns = if has_new { self.pace.next_ns() } else { u64::MAX };
        if !self.is_addressed {
            next_ns = next_ns.min(self.probe_ns);
        }
        let others_ns = self.others_ns();
        for (place, member) in self.served().filter(|(_, member)| member.prefix < self.config.chunks) {
            next_ns = next_ns.min(member.probe_ns);
            let mut sends = member.has_repairs();
            if let Delivery::Unicast { next, since_ns } = member.delivery {
                sends |= next < member.limit.min(self.config.chunks);
                next_ns = next_ns.min(since_ns.saturating_add(STRAGGLER_NS));
            }
            let from_ns = if self.best >> place & 1 == 1 { 0 } else { others_ns };
            next_ns = if sends { next_ns.min(member.pace.next_ns().max(from_ns)) } else { next_ns };
        }
        next_ns
    }
}

/// Which members are ahead and which behind: the pace of all, and which are served by unicast.
impl Sender {
    /// Adapts the pace: multicast to the member with the k-th lowest loss, unicast and repairs to each member.
    fn adapt_pace(&mut self, now_ns: u64) {
        let round_trip_ns = self.round_trip.ns();
        let mut samples = [(0, 0, 0); MEMBERS_MAX];
        let mut count = 0;
        for member in self.members.iter_mut().flatten().filter(|member| member.is_served()) {
            member.adapt_pace(now_ns, round_trip_ns);
            if let Some(sample) = member.sample.filter(|_| matches!(member.delivery, Delivery::Multicast)) {
                samples[count] = sample;
                count += 1;
            }
        }
        let samples = &mut samples[..count];
        samples.sort_unstable();
        let Some((_, sent, lost)) = samples.get(self.required.wrapping_sub(1)) else { return };
        if self.pace.is_due(now_ns, round_trip_ns) {
            self.pace.adapt(now_ns, *sent, *lost);
            self.members.iter_mut().flatten().for_each(|member| member.sample = None);
        }
    }

    /// The k-th highest value of a property, over the served members; 0 if there are fewer than k.
    fn kth_highest(&self, what: impl Fn(&Member) -> u32) -> u32 {
        let mut all = [0; MEMBERS_MAX];
        let mut count = 0;
        for (_, member) in self.served() {
            all[count] = what(member);
            count += 1;
        }
        let all = &mut all[..count];
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.get(self.required.wrapping_sub(1)).copied().unwrap_or(0)
    }

    /// The k members that have the most; among equals, those served by multicast.
    fn k_best(&self) -> Mask {
        let mut all = [(0, false, 0); MEMBERS_MAX];
        let mut count = 0;
        for (place, member) in self.served() {
            all[count] = (u32::MAX - member.prefix, !matches!(member.delivery, Delivery::Multicast), place);
            count += 1;
        }
        let all = &mut all[..count];
        all.sort_unstable();
        all.iter().take(self.required).fold(0, |mask, (.., place)| mask | 1 << place)
    }

    /// Serves a member by unicast while it is far behind `best`, the prefix of the k-th best, or loses most chunks; by
    /// multicast again once it has caught up.
    fn choose_delivery(&mut self, now_ns: u64, best: u32) {
        let (count, round_trip_ns) = (self.config.chunks, self.round_trip.ns());
        let is_last = !self.has_spare_member();
        let arrived = self.kth_highest(|member| member.traffic.arrived());
        for place in 0..MEMBERS_MAX {
            let Some(member) = &mut self.members[place] else { continue };
            let (sent, lost) = member.traffic.sample(now_ns, round_trip_ns);
            let lags = member.prefix.saturating_add(LAG_MAX) < best || self.is_held;
            // Chunks on their way count for neither: they are on their way to all.
            let loses = arrived >= COMPARED_MIN && member.traffic.arrived() < arrived / 2;
            match member.delivery {
                Delivery::Unicast { next, .. }
                    if next >= self.next && !lags && sent >= COMPARED_MIN.into() && 2 * lost <= sent =>
                {
                    member.delivery = Delivery::Multicast;
                    self.events.push_back(Event::CaughtUp(place as u8));
                }
                Delivery::Multicast if member.prefix < count && !is_last && (lags || loses) => {
                    // Chunks beyond its limit were sent and not taken.
                    let next = self.next.min(member.limit).max(member.end);
                    member.delivery = Delivery::Unicast { next, since_ns: now_ns };
                    member.pace.follow(member.traffic.arrived_per_second());
                    member.pace.bound(member.chunks_per_second);
                    member.traffic.restart();
                    self.events.push_back(Event::FellBehind(place as u8));
                }
                _ => {}
            }
        }
    }
}
