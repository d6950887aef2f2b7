//! One partition of a replica: its epoch, its open ops and its place in the decision sequence.
//!
//! ```text
//!          released            forced       logged
//!  ───────────┼───────────────────┼────────────┼──▶ decision index
//!   shown and │ held by all of    │ in the log │
//!   forgotten │ the epoch, or not │            │
//! ```
//!
//! Invariants:
//! * decisions are logged in the order of their indexes without gaps, so that the decisions which two members of an epoch hold are
//!   prefixes of one sequence;
//! * an open op locks its key; a secondary answers no get of a locked key;
//! * `released <= forced <= logged`, and a contended decision takes effect exactly when it is released.

use crate::clients::{Clients, StoredResult};
use crate::config::CLIENTS_BYTES_MAX;
use crate::entries::Tombstones;
use crate::epoch::Lead;
use crate::evaluate::KeyValue;
use crate::expiry::Agenda;
use crate::get::WaitingGet;
use crate::history::History;
use crate::join::{Former, Join};
use crate::record::Record;
use crate::repair::Repairs;
use crate::waits::{Unforced, UnforcedWhat, Waits};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_node::{Host, Map, Membership, Plant, Standing};
use nicekv_wire::replication::{Decision, Effect, Progress, Watermark};
use nicekv_wire::{Epoch, Now, OpId, PartitionId, Status, StoredUpdate};

/// An op that is prepared here and has not taken effect.
#[derive(Clone)]
pub(crate) struct Op {
    /// Number of its log record: the replica's own order.
    pub(crate) order: u64,
    /// The client's datagram.
    pub(crate) stored: StoredUpdate,
    pub(crate) forced: bool,
    /// As of when it was logged (R2).
    pub(crate) contended: bool,
    /// Set when it is decided but not released.
    pub(crate) decided: bool,
    /// Primary: which members, by position, have acknowledged it in this epoch.
    pub(crate) acks: u16,
    /// Primary: some member said that it is contended.
    pub(crate) any_contended: bool,
    /// Primary: some member could not store it.
    pub(crate) any_refused: bool,
    /// When it was last sent or acknowledged, and how often.
    pub(crate) sent_ns: u64,
    pub(crate) tries: u32,
}

/// What the primary knows of a key's newest decided state.
#[derive(Clone)]
pub(crate) enum Latest {
    Unknown,
    /// By the read with this token; one that was asked for before tells of an older state.
    Reading {
        token: u64,
    },
    Known(Option<KeyValue>),
}

/// A locked key.
#[derive(Clone)]
pub(crate) struct Key {
    /// Its undecided ops, in the replica's own log order.
    pub(crate) queue: VecDeque<OpId>,
    /// Its decided ops that are not released.
    pub(crate) unreleased: u32,
    pub(crate) latest: Latest,
    /// Gets that wait for the outcome.
    pub(crate) waiting: Vec<WaitingGet>,
}

impl Key {
    pub(crate) fn new() -> Self {
        Self { queue: VecDeque::new(), unreleased: 0, latest: Latest::Unknown, waiting: Vec::new() }
    }
}

/// A logged decision that some member may still lack.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    pub(crate) index: u64,
    pub(crate) origin: Epoch,
    pub(crate) op: OpId,
    pub(crate) contended: bool,
    pub(crate) effect: Effect,
    pub(crate) status: Status,
    pub(crate) version: OpId,
    pub(crate) expiry_ms: u64,
    pub(crate) integer: i64,
    pub(crate) value: Box<[u8]>,
    pub(crate) value_is_result: bool,
}

impl Decided {
    pub(crate) fn from_wire(decision: &Decision<'_>) -> Self {
        Self {
            index: decision.index,
            origin: decision.origin,
            op: decision.op,
            contended: decision.contended,
            effect: decision.effect,
            status: decision.status,
            version: decision.version,
            expiry_ms: decision.expiry_ms,
            integer: decision.integer,
            value: decision.value.into(),
            value_is_result: decision.value_is_result,
        }
    }

    pub(crate) fn wire(&self, partition: PartitionId, epoch: Epoch) -> Decision<'_> {
        Decision {
            partition,
            epoch,
            index: self.index,
            origin: self.origin,
            op: self.op,
            contended: self.contended,
            effect: self.effect,
            status: self.status,
            version: self.version,
            expiry_ms: self.expiry_ms,
            integer: self.integer,
            value: &self.value,
            value_is_result: self.value_is_result,
        }
    }
}

/// One partition at one node, by multicast two-phase commit. See the module.
#[derive(Clone)]
pub struct Partition {
    pub(crate) membership: Membership,
    pub(crate) waits: Waits,
    pub(crate) ops: Map<OpId, Op>,
    /// Undecided ops by log order.
    pub(crate) undecided: BTreeMap<u64, OpId>,
    pub(crate) keys: Map<Box<[u8]>, Key>,
    /// Decisions `released + 1 ..= logged`.
    pub(crate) decisions: VecDeque<Decided>,
    pub(crate) logged: u64,
    pub(crate) forced: u64,
    pub(crate) released: u64,
    /// The last decision from before this epoch, once known.
    pub(crate) base: Option<u64>,
    /// Where the decisions come from.
    pub(crate) history: History,
    /// What it held before it joined; none once it holds everything that it is to hold.
    pub(crate) former: Option<Former>,
    /// A handoff lacks what was decided up to here.
    pub(crate) floor: u64,
    /// Every original member holds the decisions up to this one, or was reset since.
    pub(crate) held_by_originals: u64,
    pub(crate) tombstones: Tombstones,
    pub(crate) agenda: Agenda,
    pub(crate) clients: Clients,
    pub(crate) resets: u64,
    pub(crate) lead: Option<Lead>,
    pub(crate) join: Option<Join>,
    /// When the primary is to be told of progress at the latest.
    pub(crate) progress_due_ns: Option<u64>,
    /// When the last gap was reported.
    pub(crate) gap_ns: u64,
    pub(crate) repairs: Repairs,
    /// Primary: where to answer the refusals that it decided without a prepare, by index.
    pub(crate) refused: BTreeMap<u64, SocketAddrV4>,
}

impl Partition {
    pub(crate) fn outside(id: PartitionId, host: &Host) -> Self {
        Self {
            membership: Membership::outside(id),
            waits: Waits::default(),
            ops: host.map(),
            undecided: BTreeMap::new(),
            keys: host.map(),
            decisions: VecDeque::new(),
            logged: 0,
            forced: 0,
            released: 0,
            base: None,
            history: History::default(),
            former: None,
            floor: 0,
            held_by_originals: 0,
            tombstones: Tombstones::new(host.map()),
            agenda: Agenda::new(host.map()),
            clients: Clients::new(host.clients_bytes_max(CLIENTS_BYTES_MAX)),
            resets: 0,
            lead: None,
            join: None,
            progress_due_ns: None,
            gap_ns: 0,
            repairs: Repairs::new(),
            refused: BTreeMap::new(),
        }
    }

    pub(crate) fn id(&self) -> PartitionId {
        self.membership.partition
    }

    pub(crate) fn is_primary(&self) -> bool {
        self.lead.is_some()
    }

    pub(crate) fn watermark(&self) -> Watermark {
        Watermark {
            partition: self.id(),
            epoch: self.membership.epoch,
            base: self.base.unwrap_or(0),
            released: self.released,
        }
    }

    /// Voids what is open, and all knowledge of decisions; entries stay.
    pub(crate) fn reset(&mut self) {
        self.ops.clear();
        self.undecided.clear();
        self.keys.clear();
        self.decisions.clear();
        (self.logged, self.forced, self.released) = (0, 0, 0);
        self.history = History::default();
        self.clients.clear();
        self.resets += 1;
    }

    /// Takes an op in: it is undecided from now on and locks its key.
    pub(crate) fn insert_op(&mut self, order: u64, contended: bool, stored: StoredUpdate, now: Now) {
        let (op, watermark) = (stored.head().op, stored.head().watermark);
        match self.keys.get_mut(stored.key()) {
            Some(key) => key.queue.push_back(op),
            None => {
                let mut key = Key::new();
                key.queue.push_back(op);
                self.keys.insert(stored.key().into(), key);
            }
        }
        self.clients.advance(op.client, watermark);
        self.undecided.insert(order, op);
        let state = Op {
            order,
            stored,
            forced: false,
            contended,
            decided: false,
            acks: 0,
            any_contended: false,
            any_refused: false,
            sent_ns: now.boot_ns,
            tries: 0,
        };
        let before = self.ops.insert(op, state);
        debug_assert!(before.is_none());
    }

    /// Logs the decision that follows `logged`. An uncontended one takes effect at once, a contended one when it is released (R2).
    pub(crate) fn log_decision(&mut self, host: &mut Host, now: Now, decided: Decided) {
        assert_eq!(decided.index, self.logged + 1, "decisions are logged without gaps");
        self.logged = decided.index;
        self.history.note(decided.index, decided.origin);
        let record = host.append_awaited(self.id(), |out| {
            Record::Decision(decided.wire(self.id(), self.membership.epoch)).append(out);
        });
        let what = UnforcedWhat::Decision(decided.index);
        self.waits.unforced.push_back(Unforced { record, resets: self.resets, what });
        if decided.contended && !host.has(Plant::ContendedNotForced) {
            host.storage.want_force();
        }
        let (index, contended) = (decided.index, decided.contended);
        self.settle(host, now, decided);
        if contended && host.has(Plant::ContendedNotForced) {
            self.on_decision_forced(host, now, index);
        }
    }

    /// The part of [`Self::log_decision`] that replaying the log shares.
    pub(crate) fn settle(&mut self, host: &mut Host, now: Now, decided: Decided) {
        match self.ops.get_mut(&decided.op) {
            Some(op) if !op.decided => {
                op.decided = true;
                self.undecided.remove(&op.order);
                let key = self.keys.get_mut(op.stored.key()).expect("an open op locks its key");
                key.queue.retain(|queued| *queued != decided.op);
                key.unreleased += 1;
            }
            // Decided once more, for a member that seemed to wait for it: the first decision stands.
            Some(_) => {}
            // It was refused without its prepare, or its effect is in the engine already. It may not be taken in any more.
            None => {
                let result = StoredResult::of(&decided.wire(self.id(), self.membership.epoch));
                self.clients.remember(decided.op, decided.index, result);
            }
        }
        if !decided.contended {
            self.release_predecessors(host, now, decided.op);
            self.take_effect(host, now, &decided);
        } else if self.is_primary() && host.has(Plant::ShowContendedEarly) {
            self.take_effect(host, now, &decided);
        }
        self.decisions.push_back(decided);
    }

    /// An op that was decided uncontended says that the decisions of its key before it were released (R2). Else only messages say that,
    /// and a restarted replica, which replays decisions, would let the older ones take effect after it.
    fn release_predecessors(&mut self, host: &mut Host, now: Now, op: OpId) {
        let Some(op) = self.ops.get(&op) else { return };
        let key = op.stored.key();
        // The op itself is one of the unreleased.
        if self.keys[key].unreleased > 1 {
            let is_of_key = |decided: &Decided| {
                self.ops.get(&decided.op).is_some_and(|earlier| earlier.stored.key() == key)
            };
            let newest = self.decisions.iter().rev().find(|decided| is_of_key(decided));
            let through = newest.expect("unreleased decisions are kept").index;
            self.release(host, now, through);
        }
    }

    /// Applies a decision to the engine, remembers its result, answers its client if this is the primary, and unlocks.
    fn take_effect(&mut self, host: &mut Host, now: Now, decided: &Decided) {
        let result = StoredResult::of(&decided.wire(self.id(), self.membership.epoch));
        let Some(op) = self.ops.remove(&decided.op) else {
            return self.answer_refused(host, decided, &result);
        };
        let update = op.stored.update();
        self.apply(host, decided, &update);
        if self.is_primary() {
            host.reply(update.reply_to, &result.reply(decided.op));
        }
        host.finish_internal(decided.op);
        self.clients.remember(decided.op, decided.index, result);
        self.clients.advance(decided.op.client, update.watermark);
        if decided.effect != Effect::None {
            self.finish_repair(host, now, update.key);
        }
        let key = self.keys.get_mut(update.key).expect("an open op locks its key");
        key.unreleased -= 1;
        if key.queue.is_empty() && key.unreleased == 0 {
            let waiting = core::mem::take(&mut key.waiting);
            self.keys.remove(update.key);
            self.serve_gets(host, now, waiting, update.key);
        } else if !key.waiting.is_empty() && !self.is_recovering(update.key) {
            let key = self.keys.get_mut(update.key).expect("as before");
            let waiting = core::mem::take(&mut key.waiting);
            self.serve_gets(host, now, waiting, update.key);
        }
    }

    /// Shows what every member has forced, up to `through`.
    pub(crate) fn release(&mut self, host: &mut Host, now: Now, through: u64) {
        let through = through.min(self.logged);
        while self.released < through {
            let decided = self.decisions.pop_front().expect("decisions after `released` are kept");
            debug_assert_eq!(decided.index, self.released + 1);
            self.released = decided.index;
            if decided.contended {
                self.take_effect(host, now, &decided);
            }
        }
        self.drop_tombstones(host);
    }

    pub(crate) fn on_decision_forced(&mut self, host: &mut Host, now: Now, index: u64) {
        self.forced = self.forced.max(index);
        if self.is_primary() {
            self.advance_release(host, now);
            return;
        }
        if index <= self.released {
            return;
        }
        let contended = self.decisions.get((index - self.released - 1) as usize).is_some_and(|d| d.contended);
        let delay = if contended { 0 } else { host.config.timing.progress_delay.as_nanos() as u64 };
        self.tell_progress_within(host, now, delay);
    }

    /// Tells the primary what is logged and forced, with the next acks or after `delay_ns`.
    pub(crate) fn tell_progress_within(&mut self, host: &mut Host, now: Now, delay_ns: u64) {
        if self.membership.standing == Standing::Outside || self.is_primary() {
            return;
        }
        if delay_ns == 0 {
            self.tell_progress(host, false);
        } else {
            self.progress_due_ns.get_or_insert(now.boot_ns + delay_ns);
            host.arm_sweep(now);
        }
    }

    pub(crate) fn tell_progress(&mut self, host: &mut Host, gap: bool) {
        self.progress_due_ns = None;
        let progress = Progress {
            partition: self.id(),
            epoch: self.membership.epoch,
            logged: self.logged,
            forced: self.forced,
            gap,
        };
        host.outbox.ack_progress(self.membership.primary_address(), progress);
    }
}
