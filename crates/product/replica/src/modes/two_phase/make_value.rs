//! Large values that the primary builds (L8). An op that appends to a value carries only what it
//! adds. Its decision, which is one datagram, can only name the result.
//!
//! ```text
//! client   primary          secondary
//!   │─Append──▶│───────────────▶│      synced and acknowledged by all, as any op (R1)
//!   │          │ build on disk  │      from the value before, which cannot change: the op is its key's next
//!   │          │──Resend, hold─▶│      a *hold*: an op of the primary's own client on the same key, which
//!   │          │                │      stores the value under a condition that never holds
//!   │          │◀──ValueRequest─│      the value comes before the op (L1)
//!   │          │───ValuePart───▶│ sync
//!   │          │◀──Ack, hold────│      now all members have the value
//!   │◀──Reply──│──Decisions────▶│      the op, which stores the value; then the hold, which does nothing
//! ```
//!
//! So a decision never names a value that some member lacks. A hold is an op like any other: it
//! stays open while only it needs the value, survives crashes, and is completed by a new primary
//! (R3). A new primary evaluates the op anew, and builds a value under a new name: it may decide in
//! another order, and a name must have only one content. The value of the former hold is removed
//! when that hold is decided.

use super::TwoPhase;
use super::makings::{Making, Makings, Stage};
use super::prepare::Source;
use crate::modes::ordered::OrderedPartition;
use crate::modes::ordered::clients::Lookup;
use crate::modes::ordered::evaluate::{KeyValue, Verdict, evaluate, is_hold, parts};
use crate::modes::ordered::locks::Latest;
use crate::{DiskSpace, Host, Recipe, ValueEnd, ValuePart};
use alloc::boxed::Box;
use alloc::vec::Vec;
use nicekv_proto::large::Reference;
use nicekv_proto::{Condition, Datagram, Expiry, Now, OpId, Operation, Status, StoredUpdate, Update};

/// How long the primary waits before it builds a value again for which the disk had no room.
const RETRY_NS: u64 = 1_000_000_000;

impl OrderedPartition<TwoPhase> {
    /// Primary: determines the effect of an op on the known state of its key. A large result is
    /// built first. `None`: not all members hold the result yet; the op is judged again when they
    /// do.
    pub(crate) fn judge_or_make(
        &mut self,
        host: &mut Host,
        now: Now,
        key: &[u8],
        op: OpId,
    ) -> Option<Verdict> {
        let Latest::Known(value) = self.locks.key(key)?.latest() else { return None };
        let update = self.locks.op(op)?.stored.update();
        match parts(&update, value.as_ref()).filter(|parts| Self::can_make(host, parts)) {
            Some(parts) => {
                let value = value.clone();
                self.judge_made(host, now, key, (op, value), parts)
            }
            None => Some(evaluate(&update, value.as_ref())),
        }
    }

    /// Primary: determines the effect of an op whose result is built of these parts.
    fn judge_made(
        &mut self,
        host: &mut Host,
        now: Now,
        key: &[u8],
        (op, base): (OpId, Option<KeyValue>),
        parts: [ValuePart; 2],
    ) -> Option<Verdict> {
        let known = self.mode.makings.by_op.get(&op);
        match known.filter(|making| making.base == base).map(|making| (making.name, making.stage.clone())) {
            Some((_, Stage::UnderWay)) => None,
            Some((_, Stage::NoRoom { .. })) if !self.is_recovered(op) => {
                Some(Verdict::unchanged(Status::DiskFull, None))
            }
            Some((_, Stage::NoRoom { at_ns })) if now.boot_ns < at_ns + RETRY_NS => None,
            Some((hold, Stage::Held(reference))) => self.judge_held(hold, reference, (op, base)),
            _ => {
                self.begin_making(host, now, key, (op, base), parts);
                host.arm_sweep(now);
                None
            }
        }
    }

    /// Whether a value built of these parts is within the limit.
    fn can_make(host: &Host, parts: &[ValuePart; 2]) -> bool {
        let length: u64 = parts.iter().map(ValuePart::length).sum();
        length <= host.config.value_bytes_max.into()
    }

    /// Primary: determines the effect of an op whose result is built. `None` until all members hold
    /// it.
    fn judge_held(
        &self,
        hold: OpId,
        reference: Reference,
        (op, base): (OpId, Option<KeyValue>),
    ) -> Option<Verdict> {
        let votes = self.locks.op(hold)?.votes;
        let all_acks = (1u16 << self.membership.members.len()) - 1;
        if votes.any_refused {
            return Some(Verdict::unchanged(Status::DiskFull, None));
        }
        let is_held = votes.acks == all_acks;
        is_held.then(|| Verdict::made(op, reference, base.as_ref()))
    }

    fn begin_making(
        &mut self,
        host: &mut Host,
        now: Now,
        key: &[u8],
        (op, base): (OpId, Option<KeyValue>),
        parts: [ValuePart; 2],
    ) {
        let is_here = |part: &ValuePart| match part {
            ValuePart::Bytes(_) => true,
            ValuePart::Large(reference) => host.storage.holds_value(reference.name),
        };
        let can_begin = parts.iter().all(is_here);
        let mut making =
            Making { key: key.into(), base, name: OpId::NONE, watermark: 0, stage: Stage::Waiting };
        if can_begin {
            (making.name, making.watermark) = self.own_op(host, now);
            let (name, partition) = (making.name, self.id());
            if host.make_value(Recipe { name, partition, key: key.into(), parts: parts.into() }) {
                making.stage = Stage::UnderWay;
            } else {
                host.finish_internal(name);
            }
        }
        self.mode.makings.by_op.insert(op, making);
    }

    /// Primary: the value `name` is built, or could not be built.
    pub(crate) fn on_value_made(
        &mut self,
        host: &mut Host,
        now: Now,
        key: &[u8],
        name: OpId,
        made: Result<Reference, ValueEnd>,
    ) {
        let making = self.mode.makings.named(name);
        let Some(watermark) = making.as_ref().map(|making| making.watermark) else {
            return host.finish_internal(name);
        };
        let stage = match made {
            Ok(_) if host.disk_space != DiskSpace::Enough => Stage::NoRoom { at_ns: now.boot_ns },
            Ok(reference) => {
                if self.take_in_hold(host, now, key, reference, watermark) {
                    Stage::Held(reference)
                } else {
                    Stage::Waiting
                }
            }
            Err(ValueEnd::NoRoom) => Stage::NoRoom { at_ns: now.boot_ns },
            Err(_) => Stage::Waiting,
        };
        if !matches!(stage, Stage::Held(_)) {
            host.finish_internal(name);
        }
        if let Some(making) = self.mode.makings.named(name) {
            making.stage = stage;
        }
        host.arm_sweep(now);
        self.decide_key(host, now, key);
    }

    /// Primary: logs the hold of a value, and sends it to the members so that they fetch the value.
    /// Returns whether the hold is open now.
    fn take_in_hold(
        &mut self,
        host: &mut Host,
        now: Now,
        key: &[u8],
        reference: Reference,
        watermark: u64,
    ) -> bool {
        let op = reference.name;
        if self.clients.lookup(op) != Lookup::New {
            return false;
        }
        let hold = Update {
            keyspace: self.membership.keyspace,
            op,
            digest: self.membership.digest(key),
            reply_to: None,
            watermark,
            condition: Condition::IfVersion(op),
            return_old: false,
            operation: Operation::SetLarge { reference: &reference.bytes(), expiry: Expiry::Never },
            key,
        };
        let mut datagram = Vec::new();
        hold.encode(&mut datagram);
        let Ok((_, Datagram::Update(own))) = Datagram::decode(&datagram) else {
            unreachable!("just encoded")
        };
        debug_assert!(is_hold(&own));
        let spare = self.locks.take_spare();
        self.log_prepare(host, now, StoredUpdate::new(&own, &datagram, None, spare));
        for position in 0..self.membership.members.len() {
            let member = self.membership.members[position];
            if member.node != host.config.node {
                self.resend(host, &datagram, member.address);
            }
        }
        self.locks.holds(op)
    }

    /// Primary: an op was decided. If a value was built for it, its hold is decided next.
    pub(crate) fn end_making(&mut self, op: OpId) {
        let Some((key, hold)) = self.mode.makings.end(op) else { return };
        if self.locks.op(hold).is_some_and(|hold| !hold.is_decided) {
            self.locks.move_to_front(&key, hold);
        }
    }

    /// Primary: tries again to build values that could not be built before.
    pub(crate) fn retry_makings(&mut self, host: &mut Host, now: Now) {
        let Makings { by_op } = &mut self.mode.makings;
        by_op.retain(|op, _| self.locks.holds(*op));
        let waiting =
            by_op.values().filter(|making| matches!(making.stage, Stage::Waiting | Stage::NoRoom { .. }));
        let keys: Vec<Box<[u8]>> = waiting.map(|making| making.key.clone()).collect();
        for key in keys {
            self.decide_key(host, now, &key);
        }
    }

    /// Whether this is a hold that another member passes on. It is accepted even if too many ops
    /// are open, because some of those wait for it.
    pub(crate) fn is_hold_of_member(update: &Update<'_>, source: Source) -> bool {
        matches!(source, Source::Member { .. }) && is_hold(update)
    }
}
