//! Copies of hot keys at nodes that are no members of their partition (KVSwitch §3.2, §4.2; rules H1 to H8).
//!
//! ```text
//!   client ──Update──▶ switch ──Update, (i, s+1)──▶ owner: note, prepare … may it decide? … decide, show ──HotCopy (i, s+1)──▶ holder ──HotConfirm──▶ switch
//!   client ──Get─────▶ switch ──Get, (i, s+1)──▶ holder: a copy of i, of s+1 or later, and a lease of its owner? ──Reply──▶ client
//!                                                                                                     no ──Get──▶ owner
//! ```
//!
//! The *owner* is the primary of the key's partition ([`Owner`]), a *holder* is any other node at its switch ([`Holder`]). Switch and metadata service say where
//! copies should be and which gets go there. Nothing here depends on what they say being sensible, but for one thing: the numbers that a switch writes for an instance
//! never go back, and no two switches have the same instance (H1, H8).
//!
//! A copy labelled (i, n) holds every update that the owner decided before it was made; it may be shown to gets that were stamped with i and at most n. So the owner must not
//! decide another op of the key while a get that leaves the switch may still be stamped so (H4). It decides when it has *evidence* that the switch counts above n: a
//! stamp, or `HotClosed`. If there is none to be had, as the switch is silent, it waits until the *lease* is over that it gave its holders (H7): a few tens
//! of milliseconds that it renews only within its own direct lease (R12), so that whoever waits for that (R6) need not know of copies.
//!
//! A lease is of all copies of one *serial*. To take some back the owner goes on under another serial: what was granted under the old one runs out. Of a partition that it
//! is to lead no more it acknowledges the epoch only then (H5): the next primary knows of no copy, and need not.

mod holder;
mod key;
mod leases;
mod owner;

use holder::{Answer, Holder};
use owner::Owner;

use crate::host::Host;
use crate::node_core::NodeCore;
use crate::plant::Plant;
use crate::protocol::Protocol;
use crate::visibility::{Shift, ShiftKind};
use core::net::SocketAddrV4;
use nicekv_wire::control::Assign;
use nicekv_wire::hot::Stamp;
use nicekv_wire::recovery::Entry;
use nicekv_wire::{Datagram, Get, KeyDigest, KeyspaceId, Now, Operation, PartitionId, Update};

/// What a hot entry is of.
pub(crate) type Name = (KeyspaceId, KeyDigest);

/// Most hot entries of which a node is told, and most keys of which it keeps copies.
pub(crate) const HOT_KEYS_MAX: usize = 16_384;

/// What was done, for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotCounters {
    /// Copies sent to holders.
    pub copies: u64,
    /// Ops that waited for evidence.
    pub waits: u64,
    /// Times that leases were let run out, as there was none.
    pub revocations: u64,
    /// Gets of others' keys that were answered here.
    pub answered: u64,
    /// Gets of others' keys that were passed on to their owners.
    pub passed: u64,
    /// Gets of others' keys of which nothing was known.
    pub unknown: u64,
}

/// What a node has to do with hot keys, its own and others'.
#[derive(Clone, Debug)]
pub struct Hot {
    owner: Owner,
    holder: Holder,
    /// For operators.
    pub counters: HotCounters,
}

impl Hot {
    pub(crate) fn new(incarnation: u64) -> Self {
        let (owner, holder) = (Owner::new(incarnation), Holder::new(incarnation));
        Self { owner, holder, counters: HotCounters::default() }
    }

    /// When [`NodeCore::handle_deadline`] has something to do about them.
    pub(crate) fn next_deadline(&self) -> u64 {
        self.owner.next_deadline()
    }

    /// Whether no copy of a key of the partition may be shown anywhere.
    pub fn is_quiet(&self, partition: PartitionId) -> bool {
        self.owner.is_quiet(partition)
    }
}

impl Host {
    /// Whether an op of a key may be decided: no get that a switch lets pass from here on may be answered without its effect (H4). Else the protocol is told
    /// when it may ([`Protocol::reconsider`]).
    pub fn may_decide(&mut self, now: Now, partition: PartitionId, key: &[u8]) -> bool {
        let plant = self.planted();
        let Hot { owner, counters, .. } = &mut self.hot;
        owner.may_decide(now, partition, key, counters, plant)
    }
}

impl<P: Protocol> NodeCore<P> {
    /// What owners, holders and switches say of hot keys.
    pub(crate) fn on_hot(&mut self, now: Now, from: SocketAddrV4, datagram: &Datagram<'_>) {
        let Host { hot: Hot { owner, holder, .. }, outbox, .. } = &mut self.host;
        match datagram {
            Datagram::HotClosed(closed) => owner.on_closed((closed.keyspace, closed.digest), closed.stamp),
            Datagram::HotCopy(copy) => holder.on_copy(from, copy, outbox),
            Datagram::HotDrop(drop) => holder.on_drop(from, drop),
            Datagram::HotPulse(pulse) => holder.on_pulse(now, from, pulse, outbox),
            Datagram::HotPulsed(pulsed) => owner.on_pulsed(now, from, pulsed),
            Datagram::HotAssign(assign) => {
                let Host { session, config, .. } = &mut self.host;
                let is_heard = config.metadata.contains(&from) && session.accept_term(assign.term);
                self.host.counters.refused += u64::from(!is_heard);
                let Host { hot, outbox, visibility, .. } = &mut self.host;
                if is_heard
                    && hot.owner.assign(assign, outbox)
                    && let Some(slot) = self.partitions.find(assign.keyspace, assign.digest.match_value())
                {
                    visibility.tell_of(self.partitions[slot].membership().partition);
                }
            }
            _ => self.host.counters.refused += 1,
        }
    }

    /// A request for a key has come, on which a switch has written this.
    pub(crate) fn note_stamp(&mut self, slot: usize, update: &Update<'_>, stamp: Stamp) {
        let partition = self.partitions[slot].membership().partition;
        let is_planted = self.host.has(Plant::HotCopyUndecided);
        self.host.hot.owner.note_stamp(partition, update.key, stamp);
        if let Operation::Set { value, .. } = update.operation
            && is_planted
        {
            let entry = Entry { index: 1, version: update.op, expiry_ms: 0, value: Some(value) };
            self.host.hot.owner.copy_undecided(partition, update.key, &entry);
        }
    }

    /// Whether a get that a switch has stamped, or that is for the primary to see, is none of this node's partitions' business.
    pub(crate) fn is_answered_hot(
        &mut self,
        now: Now,
        from: SocketAddrV4,
        get: &Get<'_>,
        stamp: Stamp,
    ) -> bool {
        if self.host.hot.owner.is_idle() && !stamp.is_some() {
            return false;
        }
        let slot = self.partitions.find(get.keyspace, get.digest.match_value());
        // A hot entry may lead here when no other table does, so that its gets are fenced as those that come past the switches (R6, R12).
        let is_fenced =
            !stamp.is_some() || self.host.has_direct_lease(now) || self.host.has(Plant::HotMemberUnfenced);
        let serves = |slot: &usize| is_fenced && self.partitions[*slot].membership().standing.serves();
        if let Some(slot) = slot.filter(serves) {
            return self.shows_primary(now, from, get, slot);
        }
        stamp.is_some() && {
            self.answer_as_holder(now, from, get, stamp);
            true
        }
    }

    fn answer_as_holder(&mut self, now: Now, from: SocketAddrV4, get: &Get<'_>, stamp: Stamp) {
        let plant = self.host.planted();
        let Host { hot: Hot { holder, counters, .. }, outbox, .. } = &mut self.host;
        let client = get.reply_to.unwrap_or(from);
        match holder.answer(now, get, stamp, plant) {
            Answer::Reply(reply) => {
                counters.answered += 1;
                outbox.send(client, |out| reply.encode(out));
            }
            Answer::Pass(owner) => {
                counters.passed += 1;
                let passed = Get { reply_to: Some(client), padding: 0, ..*get };
                outbox.send(owner, |out| passed.encode(out));
            }
            Answer::Unknown => counters.unknown += 1,
        }
    }

    /// The primary has to know a hot key. Another member, which may be the one that is asked, passes a get on to it now and then.
    fn shows_primary(&mut self, now: Now, from: SocketAddrV4, get: &Get<'_>, slot: usize) -> bool {
        let membership = self.partitions[slot].membership();
        let (id, epoch, me) = (membership.partition, membership.epoch, self.host.config.node);
        let name = (get.keyspace, get.digest);
        let Host { hot: Hot { owner, .. }, visibility, .. } = &mut self.host;
        if membership.primary == me {
            if owner.lacks(id, &name, get.key) {
                visibility.tell_again(id, get.key);
            }
            return false;
        }
        if get.forwarded.is_some() || !owner.is_to_be_shown(now, &name) {
            return false;
        }
        let primary = membership.primary_address();
        let (reply_to, forwarded) = (Some(get.reply_to.unwrap_or(from)), Some((id, epoch, me)));
        let shown = Get { reply_to, forwarded, padding: 0, ..*get };
        self.host.counters.gets_forwarded += 1;
        self.host.outbox.send(primary, |out| shown.encode(out));
        true
    }

    /// Whether an epoch cannot be acknowledged yet, as copies may be shown of what this node is to lead no more (H5). It is assigned again.
    pub(crate) fn holds_back(&mut self, now: Now, assign: &Assign) -> bool {
        let Some(slot) = self.partitions.slot(assign.partition) else { return false };
        let membership = self.partitions[slot].membership();
        let me = self.host.config.node;
        let leaves = membership.primary == me && assign.primary != me && assign.epoch > membership.epoch;
        let is_planted = self.host.has(Plant::HotLeftOpen);
        let Hot { owner, counters, .. } = &mut self.host.hot;
        leaves && !is_planted && owner.holds_back(now, assign.partition, counters)
    }

    /// This node is in an epoch of the partition.
    pub(crate) fn entered(&mut self, slot: usize) {
        let membership = self.partitions[slot].membership();
        let leads = membership.primary == self.host.config.node && membership.standing.serves();
        self.host.hot.owner.entered(membership.partition, leads);
    }

    /// Keyspace and digest of a key of which it is told that it was read.
    fn name_of_read(&self, shift: &Shift) -> Option<Name> {
        let ShiftKind::Read(key, _) = &shift.kind else { return None };
        self.named(shift.partition, key)
    }

    /// What is shown of hot keys is told, what there is to say is said, and ops that waited are decided. Nothing is to be done then, before its time.
    pub(crate) fn flush_hot(&mut self, now: Now) {
        loop {
            self.say_what_is_due(now);
            let mut is_done = true;
            while let Some((partition, key)) = self.host.hot.owner.poll_woken() {
                is_done = false;
                if let Some(slot) = self.partitions.slot(partition) {
                    self.partitions[slot].reconsider(&mut self.host, now, &key);
                }
            }
            if is_done {
                return;
            }
        }
    }

    fn say_what_is_due(&mut self, now: Now) {
        while let Some(shift) = self.host.visibility.poll_hot() {
            let name = self.name_of_read(&shift);
            self.host.hot.owner.take(shift, name);
        }
        let Self { host, partitions, .. } = self;
        let Host { hot: Hot { owner, holder, counters }, outbox, session, .. } = host;
        let leads = |id: PartitionId| {
            let partition = &partitions[partitions.slot(id)?];
            partition.leads().then(|| partition.membership().multicast)
        };
        owner.flush(now, &leads, session.direct_until_ns, outbox, counters);
        holder.forget_abandoned(now);
    }
}
