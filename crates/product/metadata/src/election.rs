//! Leader election among several instances of the service that share a store (R12, R13): a leader
//! lease in the store.
//!
//! ```text
//!   A, leads                    store                      B, standby
//!    │ Renew(a) ─────────────────▶│ lease: a, renewal 8        │
//!    │◀─────────────────── Done   │◀────────────────── Observe │ (a, 8) is new: B starts its clock
//!    │ holds the lease, counted   │                            │
//!    │ from the sending           │◀────────────────── Observe │ still (a, 8) …
//!    x                            │                            │ … lease × (1 + 1/8) later:
//!                                 │◀──── Take(seen: a, 8; b) ──│
//!                                 │ lease: b ── state ────────▶│ leads: persists a new term before it sends anything
//!    │ Persist(a, …) ────────────▶│ refused                    │
//!    │ deposed: standby           │                            │
//! ```
//!
//! Durations are only compared on the same clock: the leader counts from before its renewal was
//! written, the standby from after it was read. So A has stopped sending when B may take the lease,
//! if the clocks' rates differ by no more than an eighth. An instance that was paused past its
//! lease sends nothing ([`crate::Metadata::handle_leadership`]), and the store refuses its
//! outstanding writes: each write names the holder of the lease, and no name is used twice.
//!
//! A request without an answer may have been carried out, or may be carried out later. It is
//! repeated unchanged: renewing and taking are idempotent, and a state that is already stored under
//! our own lease is the one that we have sent. While the store does not answer, no other instance
//! can take the lease: when the store is back, the leader has a whole lease's time to renew, and
//! then continues its term.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use nicekv_proto::Now;

use crate::config::nanoseconds;

/// Number of renewals within one lease; all but one of them may be lost.
const RENEWALS_PER_LEASE: u64 = 4;
/// Delay between retries while the store does not answer.
const RETRY_NS: u64 = 20_000_000;

/// The leader lease, as the store has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaderLease {
    /// The name under which the lease was taken; 0: the lease is free.
    pub holder: u128,
    /// Renewal counter: changes with each write under that name.
    pub renewal: u64,
}

/// A request to the store. At most one is outstanding. The store carries out each one atomically,
/// and the requests of all instances in one order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRequest {
    /// Read the lease. Answered by [`LeaseAnswer::Seen`].
    Observe,
    /// Take the lease if it has not changed since it was observed. Answered by
    /// [`LeaseAnswer::Taken`].
    Take {
        /// The lease as observed.
        seen: LeaderLease,
        /// The new name.
        holder: u128,
    },
    /// Renew the lease if this holder has it.
    Renew {
        /// The expected holder.
        holder: u128,
    },
    /// Replace the state and renew the lease, if this holder has it and the state has version
    /// `version - 1` (0: no state).
    Persist {
        /// The expected holder.
        holder: u128,
        /// The version of the new state.
        version: u64,
        /// The new state.
        bytes: Vec<u8>,
    },
    /// Free the lease if this holder has it.
    Release {
        /// The expected holder.
        holder: u128,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// The lease; the answer to [`LeaseRequest::Observe`].
    Seen(LeaderLease),
    /// The lease was taken; this is the state at that moment.
    Taken {
        /// The stored state; `None` if none was ever stored.
        state: Option<Vec<u8>>,
    },
    /// The request to renew, persist or release was carried out.
    Done,
    /// A condition of the request did not hold.
    Refused {
        /// The holder of the lease.
        holder: u128,
        /// The version of the stored state.
        version: u64,
    },
    /// The store did not answer: the request was carried out, was not, or will be.
    Silence,
}

/// An event that the service must handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionEvent {
    /// This instance leads, from this state: create a [`crate::Metadata`] with it.
    Elected {
        /// The stored state; `None` if none was ever stored.
        state: Option<Vec<u8>>,
    },
    /// The state is persisted; pass it to [`crate::Metadata::handle_storage`].
    Persisted {
        /// The version of the state.
        version: u64,
    },
    /// Another instance leads, or may lead: drop the [`crate::Metadata`].
    Deposed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// Duration of the lease from a renewal, on the holder's clock.
    pub lease: nicekv_proto::Duration,
    /// Other instances wait `lease × (1 + 1/drift_divisor)`. The rates of two clocks must not
    /// differ by more.
    pub drift_divisor: u32,
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Self { lease: nicekv_proto::Duration::from_secs(1), drift_divisor: 8 }
    }
}

impl LeaseTiming {
    fn lease_ns(&self) -> u64 {
        nanoseconds(self.lease)
    }

    fn wait_ns(&self) -> u64 {
        self.lease_ns() + self.lease_ns().div_ceil(self.drift_divisor.into())
    }

    fn renewal_ns(&self) -> u64 {
        self.lease_ns() / RENEWALS_PER_LEASE
    }
}

#[derive(Clone, Debug)]
enum Role {
    /// The last lease that was observed, and when it was first observed.
    Standby { seen: Option<(LeaderLease, u64)> },
    /// This instance leads. No other instance leads before `until_ns`.
    Leader { until_ns: u64, step: Option<(u64, Vec<u8>)> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Observe,
    Take,
    Renew,
    Persist { version: u64 },
}

/// The part of one instance in the election. Call [`Self::poll_request`] and [`Self::poll_event`]
/// after any `handle_*`.
#[derive(Clone, Debug)]
pub struct Election {
    timing: LeaseTiming,
    /// Random identity of this process.
    instance: u64,
    /// Number of names that this process has used. It is a part of the newest name.
    candidacies: u64,
    role: Role,
    /// The outstanding request, and when it was sent.
    asked: Option<(Asked, u64)>,
    /// When the next request is due.
    due_ns: u64,
    events: VecDeque<ElectionEvent>,
}

impl Election {
    /// Starts as a standby. `instance` must be random: no two processes share it.
    pub fn new(timing: LeaseTiming, instance: u64) -> Self {
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

    /// Before this time, on the boot-time clock, no other instance leads; 0 while this one does not
    /// lead. Pass it to [`crate::Metadata::handle_leadership`].
    pub fn exclusive_until_ns(&self) -> u64 {
        match self.role {
            Role::Leader { until_ns, .. } => until_ns,
            Role::Standby { .. } => 0,
        }
    }

    /// Whether this instance holds the lease, as far as it knows.
    pub fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader { .. })
    }

    /// Persists the leader's next state. If the leader has been deposed meanwhile, the request is
    /// dropped, and [`ElectionEvent::Deposed`] follows.
    pub fn persist(&mut self, version: u64, bytes: Vec<u8>) {
        if let Role::Leader { step, .. } = &mut self.role {
            assert!(step.is_none(), "steps are persisted one by one");
            *step = Some((version, bytes));
        }
    }

    /// The next request, if one is due and none is outstanding.
    pub fn poll_request(&mut self, now: Now) -> Option<LeaseRequest> {
        if self.asked.is_some() {
            return None;
        }
        let (asked, request) = match &self.role {
            Role::Leader { step: Some((version, bytes)), .. } => {
                let (version, bytes) = (*version, bytes.clone());
                (Asked::Persist { version }, LeaseRequest::Persist { holder: self.name(), version, bytes })
            }
            _ if now.boot_ns < self.due_ns => return None,
            Role::Leader { .. } => (Asked::Renew, LeaseRequest::Renew { holder: self.name() }),
            Role::Standby { seen: Some((seen, since_ns)) } if self.may_take(*seen, *since_ns, now) => {
                let seen = *seen;
                self.candidacies += 1;
                (Asked::Take, LeaseRequest::Take { seen, holder: self.name() })
            }
            Role::Standby { .. } => (Asked::Observe, LeaseRequest::Observe),
        };
        self.asked = Some((asked, now.boot_ns));
        Some(request)
    }

    /// Whether the lease may be taken: it is free, it has expired, or we have taken it and the
    /// answer was lost.
    fn may_take(&self, seen: LeaderLease, since_ns: u64, now: Now) -> bool {
        let is_ours = self.candidacies > 0 && seen.holder == self.name();
        seen.holder == 0 || is_ours || now.boot_ns >= since_ns + self.timing.wait_ns()
    }

    /// Handles the answer to the outstanding request, or its timeout.
    pub fn handle_answer(&mut self, now: Now, answer: LeaseAnswer) {
        let (asked, sent_ns) = self.asked.take().expect("there is an answer only to a request");
        self.due_ns = sent_ns.max(now.boot_ns.saturating_sub(RETRY_NS)) + self.timing.renewal_ns();
        match (asked, answer) {
            (_, LeaseAnswer::Silence) => self.handle_silence(now),
            (Asked::Observe, LeaseAnswer::Seen(leader_lease)) => self.handle_seen(now, leader_lease),
            (Asked::Take, LeaseAnswer::Taken { state }) => {
                self.role = Role::Leader { until_ns: sent_ns + self.timing.lease_ns(), step: None };
                self.events.push_back(ElectionEvent::Elected { state });
            }
            (Asked::Renew, LeaseAnswer::Done) => self.hold(sent_ns),
            (Asked::Persist { version }, LeaseAnswer::Done) => self.handle_persisted(sent_ns, version),
            // An earlier attempt was carried out, because only this instance writes under its name.
            (Asked::Persist { version }, LeaseAnswer::Refused { holder, version: found })
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

    fn handle_seen(&mut self, now: Now, leader_lease: LeaderLease) {
        let Role::Standby { seen } = &mut self.role else { return };
        if seen.is_none_or(|(before, _)| before != leader_lease) {
            *seen = Some((leader_lease, now.boot_ns));
        }
        let (leader_lease, since_ns) = seen.expect("just seen");
        if self.may_take(leader_lease, since_ns, now) {
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

    /// Becomes a standby: another instance has or had the lease, or the stored state is not the one
    /// that this instance has written.
    fn stand_by(&mut self, now: Now) {
        if self.is_leader() {
            self.candidacies += 1;
            self.events.push_back(ElectionEvent::Deposed);
        }
        self.role = Role::Standby { seen: None };
        self.due_ns = now.boot_ns + RETRY_NS;
    }

    /// Gives the lease up. The returned request must be sent instead of any other, and the service
    /// must not send anything any more.
    pub fn resign(&mut self) -> Option<LeaseRequest> {
        let holder = self.name();
        let role = core::mem::replace(&mut self.role, Role::Standby { seen: None });
        matches!(role, Role::Leader { .. }).then_some(LeaseRequest::Release { holder })
    }

    /// The next event for the service.
    pub fn poll_event(&mut self) -> Option<ElectionEvent> {
        self.events.pop_front()
    }

    /// When to call [`Self::poll_request`] again if no other event occurs.
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
