//! Who is ahead, who is behind, and what follows from it: the pace of all, and who goes alone.

use super::{Event, MEMBERS_MAX, Mask, Sender};
use crate::member::{Lane, Member};

/// Who is so many chunks behind the k-th best goes alone from then on, …
const LAG_MAX: u32 = 512;
/// … and who has got less than half of what the k-th best has got, if that is so much. Of as much it has to lose less to go with the others again.
const APART_MIN: u32 = 64;

impl Sender {
    /// The mask is as fast as the one of its members who loses the k-th least; each is sent repairs as it takes them.
    pub(super) fn judge(&mut self, now_ns: u64) {
        let round_trip_ns = self.round_trip.ns();
        let mut samples = [(0, 0, 0); MEMBERS_MAX];
        let mut count = 0;
        for member in self.members.iter_mut().flatten().filter(|member| member.is_there()) {
            member.judge(now_ns, round_trip_ns);
            if let Some(sample) = member.judged.filter(|_| matches!(member.lane, Lane::Mask)) {
                samples[count] = sample;
                count += 1;
            }
        }
        let samples = &mut samples[..count];
        samples.sort_unstable();
        let Some((_, sent, lost)) = samples.get(self.required.wrapping_sub(1)) else { return };
        if self.pace.is_to_be_judged(now_ns, round_trip_ns) {
            self.pace.judge(now_ns, *sent, *lost);
            self.members.iter_mut().flatten().for_each(|member| member.judged = None);
        }
    }

    /// What the member that is the k-th in an order has, of those that are there; 0 if there are not so many.
    pub(super) fn of_kth(&self, what: impl Fn(&Member) -> u32) -> u32 {
        let mut all = [0; MEMBERS_MAX];
        let mut count = 0;
        for (_, member) in self.there() {
            all[count] = what(member);
            count += 1;
        }
        let all = &mut all[..count];
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.get(self.required.wrapping_sub(1)).copied().unwrap_or(0)
    }

    /// As many as must have everything, of those who have the most; of as much, those who go together.
    pub(super) fn k_best(&self) -> Mask {
        let mut all = [(0, false, 0); MEMBERS_MAX];
        let mut count = 0;
        for (place, member) in self.there() {
            all[count] = (u32::MAX - member.prefix, !matches!(member.lane, Lane::Mask), place);
            count += 1;
        }
        let all = &mut all[..count];
        all.sort_unstable();
        all.iter().take(self.required).fold(0, |mask, (.., place)| mask | 1 << place)
    }

    /// Who is far behind the k-th best, who has this prefix, or loses most of what the others get, goes alone, until it is with them again.
    pub(super) fn choose_lanes(&mut self, now_ns: u64, best: u32) {
        let (count, round_trip_ns) = (self.config.chunks, self.round_trip.ns());
        let is_last = !self.can_do_without_one();
        let arrived = self.of_kth(|member| member.traffic.arrived());
        for place in 0..MEMBERS_MAX {
            let Some(member) = &mut self.members[place] else { continue };
            let (sent, lost) = member.traffic.sample(now_ns, round_trip_ns);
            let lags = member.prefix.saturating_add(LAG_MAX) < best || self.is_held;
            // Not what is still on the way: that is on the way to all.
            let loses = arrived >= APART_MIN && member.traffic.arrived() < arrived / 2;
            match member.lane {
                Lane::Own { next, .. }
                    if next >= self.next && !lags && sent >= APART_MIN.into() && 2 * lost <= sent =>
                {
                    member.lane = Lane::Mask;
                    self.events.push_back(Event::CaughtUp(place as u8));
                }
                Lane::Mask if member.prefix < count && !is_last && (lags || loses) => {
                    // What there was no room for was not taken, though it was sent.
                    let next = self.next.min(member.limit).max(member.end);
                    member.lane = Lane::Own { next, since_ns: now_ns };
                    member.pace.follow(member.traffic.arrived_per_second());
                    member.pace.bound(member.chunks_per_second);
                    member.traffic.restart();
                    self.events.push_back(Event::Lags(place as u8));
                }
                _ => {}
            }
        }
    }
}
