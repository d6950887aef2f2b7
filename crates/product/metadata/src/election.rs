//! Who leads where several instances of the service share a store (R12, R13): a seat, held by lease.
//!
//! ```text
//!   A, leads                    store                      B, stands by
//!    │ Renew(a) ─────────────────▶│ seat: a, beat 8            │
//!    │◀─────────────────── Done   │◀────────────────── Observe │ (a, 8) is new: B's clock begins
//!    │ holds it for a lease       │                            │
//!    │ from the sending           │◀────────────────── Observe │ (a, 8) still …
//!    x                            │                            │ … lease × (1 + 1/8) later:
//!                                 │◀──── Take(seen: a, 8; b) ──│
//!                                 │ seat: b ── state ─────────▶│ leads: a new term is persisted before anything leaves
//!    │ Persist(a, …) ────────────▶│ refused                    │
//!    │ deposed: stands by         │                            │
//! ```
//!
//! Time is only compared with the same clock's: the leader counts from before its beat was written, the other one from after it was
//! read, so that A has fallen silent when B may take the seat, if the clocks' rates differ by no more than an eighth. Whoever is
//! paused past its lease finds itself silent ([`crate::Metadata::handle_leadership`]), and what it still had under way is refused by the store: each write
//! names the holder of the seat, and no name is used twice.
//!
//! A request without an answer may have been carried out, or be carried out later. So it is made again, as it was: renewing and taking do no harm,
//! and a state that is there already, under our own seat, is the one that we have sent. While the store is silent nobody's time runs but the
//! leader's: when it is back, that one has as long as ever to renew. Then it goes on with its term.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use nicekv_proto::Now;

use crate::config::nanoseconds;

/// Beats of a lease: so many renewals may be lost but one.
const BEATS_PER_LEASE: u64 = 4;
/// Between two tries while the store is silent.
const RETRY_NS: u64 = 20_000_000;

/// Who holds the seat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seat {
    /// The name under which it was taken; 0: it is free.
    pub holder: u128,
    /// Different after each write under that name.
    pub beat: u64,
}

/// What the store is asked, one request at a time. Each is carried out as a whole or not at all, and in one order for everybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeatRequest {
    /// Answered by [`SeatAnswer::Seen`].
    Observe,
    /// If the seat is as it was seen, it is this holder's. Answered by [`SeatAnswer::Taken`].
    Take {
        /// As observed.
        seen: Seat,
        /// The new name.
        holder: u128,
    },
    /// If the seat is this holder's: a beat.
    Renew {
        /// Who must hold it.
        holder: u128,
    },
    /// If the seat is this holder's and the state has version `version - 1` (0: there is none): the state, and a beat.
    Persist {
        /// Who must hold it.
        holder: u128,
        /// Of the state.
        version: u64,
        /// The state.
        bytes: Vec<u8>,
    },
    /// If the seat is this holder's, it is free.
    Release {
        /// Who must hold it.
        holder: u128,
    },
}

/// What it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeatAnswer {
    /// To [`SeatRequest::Observe`].
    Seen(Seat),
    /// The seat is taken, and this is the state at that moment.
    Taken {
        /// `None` if nothing was ever stored.
        state: Option<Vec<u8>>,
    },
    /// Renewed, persisted, or released.
    Done,
    /// A condition did not hold.
    Refused {
        /// Who holds the seat.
        holder: u128,
        /// Of the state that is there.
        version: u64,
    },
    /// No answer: it was carried out, or not, or will be.
    Silence,
}

/// What follows for the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionEvent {
    /// This instance leads, from this state: make a [`crate::Metadata`] of it.
    Elected {
        /// `None` if nothing was ever stored.
        state: Option<Vec<u8>>,
    },
    /// For [`crate::Metadata::handle_storage`].
    Persisted {
        /// Of the request.
        version: u64,
    },
    /// Somebody else leads, or may: drop the [`crate::Metadata`].
    Deposed,
}

/// How long a seat is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatTiming {
    /// After a beat, on the holder's clock.
    pub lease: nicekv_proto::Duration,
    /// Others wait `lease × (1 + 1/drift_divisor)`: clocks run apart by no more.
    pub drift_divisor: u32,
}

impl Default for SeatTiming {
    fn default() -> Self {
        Self { lease: nicekv_proto::Duration::from_secs(1), drift_divisor: 8 }
    }
}

impl SeatTiming {
    fn lease_ns(&self) -> u64 {
        nanoseconds(self.lease)
    }

    fn wait_ns(&self) -> u64 {
        self.lease_ns() + self.lease_ns().div_ceil(self.drift_divisor.into())
    }

    fn beat_ns(&self) -> u64 {
        self.lease_ns() / BEATS_PER_LEASE
    }
}

#[derive(Clone, Debug)]
enum Role {
    /// What was seen, and since when nothing else.
    Standby { seen: Option<(Seat, u64)> },
    /// Nobody else leads before `until_ns`.
    Leader { until_ns: u64, step: Option<(u64, Vec<u8>)> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Observe,
    Take,
    Renew,
    Persist { version: u64 },
}

/// One instance's part. After any `handle_*`, ask [`Self::poll_request`] and [`Self::poll_event`].
#[derive(Clone, Debug)]
pub struct Election {
    timing: SeatTiming,
    /// Of this process: random.
    instance: u64,
    /// Names that this process has used; with it, the last of them.
    candidacies: u64,
    role: Role,
    /// The request that is not answered, and when it was sent.
    asked: Option<(Asked, u64)>,
    /// When the next one is due.
    due_ns: u64,
    events: VecDeque<ElectionEvent>,
}

impl Election {
    /// Stands by. `instance` is random: no two processes share it.
    pub fn new(timing: SeatTiming, instance: u64) -> Self {
        Self {
            timing,
            instance,
            candidacies: 0,
            role: Role::Standby { seen: None },
            asked: None,
            due_ns: 0,
            events: VecDeque::new(),
        }
    }

    fn name(&self) -> u128 {
        u128::from(self.instance) << 64 | u128::from(self.candidacies)
    }

    /// Nobody else leads before then, by the boot-time clock; 0 while this one does not lead. For [`crate::Metadata::handle_leadership`].
    pub fn exclusive_until_ns(&self) -> u64 {
        match self.role {
            Role::Leader { until_ns, .. } => until_ns,
            Role::Standby { .. } => 0,
        }
    }

    /// Whether it holds the seat, as far as it knows.
    pub fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader { .. })
    }

    /// The leader's next step. One that has been deposed meanwhile has it refused by silence: [`ElectionEvent::Deposed`] is on its way.
    pub fn persist(&mut self, version: u64, bytes: Vec<u8>) {
        if let Role::Leader { step, .. } = &mut self.role {
            assert!(step.is_none(), "steps are persisted one by one");
            *step = Some((version, bytes));
        }
    }

    /// The next request, if one is due and none is under way.
    pub fn poll_request(&mut self, now: Now) -> Option<SeatRequest> {
        if self.asked.is_some() {
            return None;
        }
        let (asked, request) = match &self.role {
            Role::Leader { step: Some((version, bytes)), .. } => {
                let (version, bytes) = (*version, bytes.clone());
                (Asked::Persist { version }, SeatRequest::Persist { holder: self.name(), version, bytes })
            }
            _ if now.boot_ns < self.due_ns => return None,
            Role::Leader { .. } => (Asked::Renew, SeatRequest::Renew { holder: self.name() }),
            Role::Standby { seen: Some((seen, since_ns)) } if self.may_take(*seen, *since_ns, now) => {
                let seen = *seen;
                self.candidacies += 1;
                (Asked::Take, SeatRequest::Take { seen, holder: self.name() })
            }
            Role::Standby { .. } => (Asked::Observe, SeatRequest::Observe),
        };
        self.asked = Some((asked, now.boot_ns));
        Some(request)
    }

    /// The seat is free, or its holder's lease is over, or it is ours without our knowledge: then nobody leads.
    fn may_take(&self, seen: Seat, since_ns: u64, now: Now) -> bool {
        let is_ours = self.candidacies > 0 && seen.holder == self.name();
        seen.holder == 0 || is_ours || now.boot_ns >= since_ns + self.timing.wait_ns()
    }

    /// The answer to the request that is under way, or that it has none.
    pub fn handle_answer(&mut self, now: Now, answer: SeatAnswer) {
        let (asked, sent_ns) = self.asked.take().expect("there is an answer only to a request");
        self.due_ns = sent_ns.max(now.boot_ns.saturating_sub(RETRY_NS)) + self.timing.beat_ns();
        match (asked, answer) {
            (_, SeatAnswer::Silence) => self.handle_silence(now),
            (Asked::Observe, SeatAnswer::Seen(seat)) => self.handle_seen(now, seat),
            (Asked::Take, SeatAnswer::Taken { state }) => {
                self.role = Role::Leader { until_ns: sent_ns + self.timing.lease_ns(), step: None };
                self.events.push_back(ElectionEvent::Elected { state });
            }
            (Asked::Renew, SeatAnswer::Done) => self.hold(sent_ns),
            (Asked::Persist { version }, SeatAnswer::Done) => self.handle_persisted(sent_ns, version),
            // An earlier try was carried out: nobody else writes under our name.
            (Asked::Persist { version }, SeatAnswer::Refused { holder, version: found })
                if (holder, found) == (self.name(), version) =>
            {
                self.handle_persisted(sent_ns, version);
            }
            _ => self.stand_by(now),
        }
    }

    fn handle_silence(&mut self, now: Now) {
        self.due_ns = now.boot_ns + RETRY_NS;
        if let Role::Standby { seen } = &mut self.role {
            *seen = None;
        }
    }

    fn handle_seen(&mut self, now: Now, seat: Seat) {
        let Role::Standby { seen } = &mut self.role else { return };
        if seen.is_none_or(|(before, _)| before != seat) {
            *seen = Some((seat, now.boot_ns));
        }
        let (seat, since_ns) = seen.expect("just seen");
        if self.may_take(seat, since_ns, now) {
            self.due_ns = now.boot_ns;
        }
    }

    fn hold(&mut self, sent_ns: u64) {
        if let Role::Leader { until_ns, .. } = &mut self.role {
            *until_ns = (*until_ns).max(sent_ns + self.timing.lease_ns());
        }
    }

    fn handle_persisted(&mut self, sent_ns: u64, version: u64) {
        self.hold(sent_ns);
        if let Role::Leader { step, .. } = &mut self.role {
            *step = None;
        }
        self.events.push_back(ElectionEvent::Persisted { version });
    }

    /// Somebody else has the seat, or had it, or the state is not the one that we have left.
    fn stand_by(&mut self, now: Now) {
        if self.is_leader() {
            self.candidacies += 1;
            self.events.push_back(ElectionEvent::Deposed);
        }
        self.role = Role::Standby { seen: None };
        self.due_ns = now.boot_ns + RETRY_NS;
    }

    /// Gives the seat up, to be sent instead of anything else: the service must have fallen silent.
    pub fn resign(&mut self) -> Option<SeatRequest> {
        let holder = self.name();
        let role = core::mem::replace(&mut self.role, Role::Standby { seen: None });
        matches!(role, Role::Leader { .. }).then_some(SeatRequest::Release { holder })
    }

    /// The next thing that follows for the service.
    pub fn poll_event(&mut self) -> Option<ElectionEvent> {
        self.events.pop_front()
    }

    /// When [`Self::poll_request`] has something to say though nothing has happened.
    pub fn next_deadline(&self) -> Option<u64> {
        self.asked.is_none().then_some(match &self.role {
            Role::Leader { step: Some(_), .. } => 0,
            _ => self.due_ns,
        })
    }
}

#[cfg(test)]
#[path = "election_tests.rs"]
mod tests;
