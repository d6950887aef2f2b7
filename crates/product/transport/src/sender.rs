//! The sender of one transfer.
//!
//! ```text
//!   poll_transmit:  to the k best members: repairs ─▶ new chunks by unicast ─▶ new chunks by multicast
//!                   to the others: repairs and new chunks, in a share of the link (`spare_share`)
//!   window:         no new chunk at or beyond the limit of the k-th best member
//!   silence:        a probe after two round trips; after PROBES_MAX unanswered probes the transfer ends
//! ```
//!
//! Members are the receivers that the sender knows ([`Sender::set_members`]). Before that call, the
//! sender multicasts a first flight to all receivers.

use crate::member::{Delivery, Member};
use crate::pace::Pace;
use crate::report::Report;
use crate::round_trip::RoundTrip;
use crate::spare_share::SpareShare;
use crate::stragglers::STRAGGLER_NS;
use alloc::collections::VecDeque;

/// Most members of one transfer: the number of bits of a [`Mask`].
pub const MEMBERS_MAX: usize = 16;

/// A set of members: bit `i` is the member at place `i`.
pub type Mask = u16;

/// A sender probes a member that has been silent for this many round trips, …
const PROBE_ROUND_TRIPS: u64 = 2;
/// … but not sooner or later than these bounds: receivers delay their reports.
const PROBE_NS: core::ops::RangeInclusive<u64> = 2_000_000..=200_000_000;
/// The transfer ends after this many unanswered probes. The interval doubles after each probe.
const PROBES_MAX: u32 = 8;

/// Shorter transfers do not show which members are slow.
const SLOW_CHUNKS_MIN: u32 = 128;

/// A member that is more than this many chunks behind the k-th best member is served by unicast, …
const LAG_MAX: u32 = 512;
/// … and so is a member that has received fewer than half as many chunks as the k-th best member,
/// once the latter has received at least this many. It returns to multicast after a sample of at
/// least this many chunks of which at most half were lost.
const COMPARED_MIN: u32 = 64;

/// Initial parameters of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderConfig {
    /// Number of chunks of the value.
    pub chunks: u32,
    /// Number of new chunks that may be sent before the first report. 0: the sender first probes
    /// the members, which may have chunks from an earlier attempt.
    pub first_flight: u32,
    /// Initial pace, in chunks per second.
    pub chunks_per_second: u32,
}

/// A datagram to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// Sends the chunk with this number to all members of the mask.
    Multicast(u32, Mask),
    /// Sends the chunk with this number to the member at this place.
    Unicast(u32, u8),
    /// Asks all members of the mask for a report.
    Probe(Mask),
}

/// A change in the state of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The required number of members have all chunks. The mask has the members that do.
    RequiredComplete(Mask),
    /// This member is served by unicast from now on. The caller may call [`Sender::drop_member`]
    /// instead of serving it.
    FellBehind(u8),
    /// This member is served by multicast again.
    CaughtUp(u8),
    /// This member is no longer served.
    Dropped(u8),
    /// All members that are still served have all chunks.
    Finished,
    /// No member answers the probes.
    NoAnswer,
}

/// Counts of chunks, probes and reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub multicast: u64,
    pub repairs: u64,
    pub unicast: u64,
    pub probes: u64,
    pub reports: u64,
    pub invalid_reports: u64,
}

/// The sending end of a transfer; see the module documentation.
#[derive(Clone, Debug)]
pub struct Sender {
    config: SenderConfig,
    required: usize,
    members: [Option<Member>; MEMBERS_MAX],
    /// Whether [`Self::set_members`] was called.
    is_addressed: bool,
    /// Until then: when to probe all receivers, and the number of unanswered probes.
    probe_ns: u64,
    probes: u32,
    next: u32,
    pace: Pace,
    round_trip: RoundTrip,
    /// The k members with the most chunks.
    best: Mask,
    spare: SpareShare,
    is_held: bool,
    is_over: bool,
    events: VecDeque<Event>,
    pub counters: Counters,
}

impl Sender {
    /// Starts a transfer at `now_ns`.
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

    /// Sets the members, and how many of them are required to receive all chunks. A new member is
    /// sent the chunks that its reports name as missing.
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

    /// Serves a member by unicast from the first chunk on, at this pace, because it is known to be
    /// slow. Has no effect unless enough other members are served by multicast.
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

    /// Whether more members are served than are required.
    pub fn has_spare_member(&self) -> bool {
        self.served().count() > self.required
    }

    /// Members that were served by multicast and have fewer than half of the chunks, each with its
    /// receive rate in chunks per second.
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

    /// Processes a report of the member at `place`.
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
        // The member may have chunks from an earlier attempt.
        let passed = member.passed(next).max(report.end);
        member.on_report(now_ns, report, passed, round_trip_ns);
        member.on_contact(now_ns, probe_after_ns);
        self.round_trip.on_report(now_ns, report.end, report.held_ns);
        self.adapt_pace(now_ns);
        self.update(now_ns);
    }

    /// How long a member may be silent before it is probed, given the number of unanswered probes.
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

    /// Mask of the served members for which `is_one` holds.
    fn mask_of(&self, is_one: impl Fn(&Member) -> bool) -> Mask {
        let those = self.served().filter(|(_, member)| is_one(member));
        those.fold(0, |mask, (place, _)| mask | 1 << place)
    }

    /// Updates everything that depends on reports and members: the ranking, the pace, and whether
    /// the transfer is done.
    fn update(&mut self, now_ns: u64) {
        let held = self.mask_of(|member| member.prefix == self.config.chunks);
        if self.is_addressed && !self.is_held && held.count_ones() as usize >= self.required {
            self.is_held = true;
            self.events.push_back(Event::RequiredComplete(held));
        }
        // If all multicast members have a chunk from an earlier attempt, it is not sent again.
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

    /// New chunks below this number may be sent.
    fn limit(&self) -> u32 {
        match self.is_addressed {
            true => self.kth_highest(|member| member.limit),
            false => self.config.first_flight,
        }
        .min(self.config.chunks)
    }

    /// The next datagram to send now, if any.
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

    /// When the next datagram may be sent to members that are not required.
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

    /// Probes silent members: the last chunks, or the members' reports, may be lost. Before
    /// [`Self::set_members`], probes all receivers.
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

    /// Probes the members of `mask`. An empty mask ends the transfer.
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

    /// The next event, if any.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Latest time of the next call of [`Self::poll_transmit`].
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

/// Ranks members, adapts the pace, and decides which members are served by unicast.
impl Sender {
    /// Adapts the multicast pace to the member with the k-th lowest loss, and each member's pace of
    /// unicast and repairs to that member.
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

    /// The k members with the highest prefixes; among equals, those served by multicast.
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

    /// Switches a member to unicast if it is far behind `best` (the prefix of the k-th best member)
    /// or loses most chunks, and back to multicast once it has caught up.
    fn choose_delivery(&mut self, now_ns: u64, best: u32) {
        let (count, round_trip_ns) = (self.config.chunks, self.round_trip.ns());
        let is_last = !self.has_spare_member();
        let arrived = self.kth_highest(|member| member.traffic.arrived());
        for place in 0..MEMBERS_MAX {
            let Some(member) = &mut self.members[place] else { continue };
            let (sent, lost) = member.traffic.sample(now_ns, round_trip_ns);
            let lags = member.prefix.saturating_add(LAG_MAX) < best || self.is_held;
            // Only arrived chunks are compared. Chunks in flight are in flight to all members
            // alike.
            let loses = arrived >= COMPARED_MIN && member.traffic.arrived() < arrived / 2;
            match member.delivery {
                Delivery::Unicast { next, .. }
                    if next >= self.next && !lags && sent >= COMPARED_MIN.into() && 2 * lost <= sent =>
                {
                    member.delivery = Delivery::Multicast;
                    self.events.push_back(Event::CaughtUp(place as u8));
                }
                Delivery::Multicast if member.prefix < count && !is_last && (lags || loses) => {
                    // Chunks beyond the member's limit were sent, but the member has refused them.
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
