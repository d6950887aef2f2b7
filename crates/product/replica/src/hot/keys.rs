//! Connects a node's dispatch with hot keys ([`crate::hot`]): finds the requests that copies may
//! answer, and forwards messages and changes of keys to owners and holders.

use crate::hot::{Answer, Hot, Name};
use crate::node::Replica;
use crate::node::host::Host;
use crate::node::status::Standing;
use crate::node::visibility::{Shift, ShiftKind};
use core::net::SocketAddrV4;
use nicekv_proto::control::Assign;
use nicekv_proto::hot::Stamp;
use nicekv_proto::limits::KERNEL_KEY_BYTES_MAX;
use nicekv_proto::{Datagram, Form, Get, KeyDigest, KeyspaceId, Now, PartitionId, Reply, Update};

impl Host {
    /// Whether an op of a key may be decided: only if no get that leaves a switch from now on can
    /// be answered from a copy without the op's effect (H4). If not, `Partition::reconsider` is
    /// called when the op may be decided.
    pub(crate) fn may_decide(&mut self, now: Now, partition: PartitionId, key: &[u8]) -> bool {
        let Hot { owner, counters, .. } = &mut self.hot;
        owner.may_decide(now, partition, key, counters)
    }

    /// The length that a get must have so that the kernel or a switch can answer it with this reply
    /// (G8, H9). 0: neither ever answers this key.
    pub(crate) fn useful_length(
        &self,
        keyspace: KeyspaceId,
        key: &[u8],
        digest: impl FnOnce() -> KeyDigest,
        reply: &Reply<'_>,
    ) -> i64 {
        let is_short = (1..=KERNEL_KEY_BYTES_MAX).contains(&key.len());
        let is_kept = is_short && reply.expiry_ms == 0 && reply.form == Form::Plain;
        let owner = &self.hot.owner;
        let is_in_switch = || !owner.is_idle() && owner.is_in_switch(&(keyspace, digest()));
        let is_useful = is_kept && (self.visibility.is_heard() || is_in_switch());
        if is_useful { reply.length() as i64 } else { 0 }
    }
}

impl Replica {
    /// Messages of owners, holders and switches about hot keys.
    pub(crate) fn on_hot(&mut self, now: Now, from: SocketAddrV4, datagram: &Datagram<'_>) {
        let Host { hot: Hot { owner, holder, .. }, outbox, .. } = &mut self.host;
        match datagram {
            Datagram::HotClosed(closed) => owner.on_closed((closed.keyspace, closed.digest), closed.stamp),
            Datagram::HotCopy(copy) => holder.on_copy(from, copy, outbox),
            Datagram::HotDrop(drop) => holder.on_drop(from, drop),
            Datagram::HotPulse(pulse) => holder.on_pulse(now, from, pulse, outbox),
            Datagram::HotPulsed(pulsed) => owner.on_pulsed(now, from, pulsed),
            Datagram::HotLeased(leased) => owner.on_leased(now, leased),
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

    /// A request for a key has arrived with a switch's stamp: passes the stamp to the owner.
    pub(crate) fn note_stamp(&mut self, slot: usize, update: &Update<'_>, stamp: Stamp) {
        let partition = self.partitions[slot].membership().partition;
        self.host.hot.owner.note_stamp(partition, update.key, stamp);
    }

    /// Handles a get that a switch has stamped, or that the primary should see, if this is not the
    /// partition's task. Returns whether it did.
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
        // A hot entry may lead a get to this node when no other table does. So such gets need the
        // direct lease, like those that bypass the switches (R6, R12).
        let is_fenced = !stamp.is_some() || self.host.has_direct_lease(now);
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
        let Self { host, usage, .. } = self;
        let Host { hot: Hot { holder, counters, .. }, outbox, .. } = host;
        let client = get.reply_to.unwrap_or(from);
        match holder.answer(now, get, stamp) {
            Answer::Reply(reply) => {
                counters.answered += 1;
                usage.note_held_gets(get.keyspace, 1);
                // If the switch may hold a copy, too, the reply says how long a get must be for the
                // switch to answer it (H9).
                let reply = Reply { integer: reply.length() as i64, ..reply };
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

    /// The primary has to see some gets of a hot key to know the key. Another member therefore
    /// passes a get on to it from time to time. Returns whether it did.
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

    /// Whether this node cannot acknowledge an epoch yet: it leads the partition no more in that
    /// epoch, but copies of its keys may still be shown (H5). The metadata service sends the
    /// assignment again.
    pub(crate) fn holds_back(&mut self, now: Now, assign: &Assign) -> bool {
        let Some(slot) = self.partitions.slot(assign.partition) else { return false };
        let membership = self.partitions[slot].membership();
        let me = self.host.config.node;
        let leaves = membership.primary == me && assign.primary != me && assign.epoch > membership.epoch;
        let Hot { owner, counters, .. } = &mut self.host.hot;
        leaves && owner.holds_back(now, assign.partition, counters)
    }

    /// Called when this node has entered an epoch of the partition.
    pub(crate) fn entered(&mut self, slot: usize) {
        let membership = self.partitions[slot].membership();
        let leads = membership.primary == self.host.config.node && membership.standing.serves();
        let Hot { owner, holder, .. } = &mut self.host.hot;
        owner.entered(membership.partition, leads);
        if membership.standing != Standing::Outside {
            // Members report what they show through `Visibility`, so copies of these keys are
            // withdrawn.
            let is_meant = |(keyspace, digest): &Name| {
                *keyspace == membership.keyspace && membership.range.contains(digest.match_value())
            };
            holder.withdraw(is_meant);
        }
    }

    /// The name of the key whose read was reported; `None` for other changes.
    fn name_of_read(&self, shift: &Shift) -> Option<Name> {
        let ShiftKind::Read(key, _) = &shift.kind else { return None };
        self.named(shift.partition, key)
    }

    /// Forwards changes of hot keys to the owner, sends messages that are due, and lets ops that
    /// have waited be decided. Cheap if nothing is due.
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
