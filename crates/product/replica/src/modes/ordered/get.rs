//! Reads a key for a get (R2, R4, R11, R12).
//!
//! The value is read as of the arrival of the datagram. That moment lies within the client's call
//! however late the reply leaves.

use super::locks::WaitingGet;
use super::partition::{Agreement, OrderedPartition};
use super::waits::PendingRead;
use crate::modes::entry::is_overdue;
use crate::{Changes, Host, Standing, Step};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::recovery::Entry;
use nicekv_proto::{Get, Now, OpId, Reply, Status};

impl<A> OrderedPartition<A>
where
    Self: Agreement,
{
    /// Primary: whether a locked key may have an op from before this epoch whose effect the old
    /// primary may have shown: an undecided op, or a decided one that is not released (R4).
    pub(crate) fn is_recovering(&self, key: &[u8]) -> bool {
        let Some(lead) = &self.lead else { return false };
        let Some(key) = self.locks.key(key) else { return false };
        let is_open_since =
            |op: OpId| self.locks.op(op).is_some_and(|op| op.order <= lead.recovered_through());
        !lead.is_ready()
            || key.undecided().any(is_open_since)
            || (key.unreleased() > 0 && self.sequence.released() < lead.recovery_end())
    }

    /// Primary: makes a get wait for the outcome of the ops that lock its key.
    pub(crate) fn wait_for_outcome(&mut self, host: &mut Host, get: WaitingGet, key: &[u8]) {
        if !self.locks.wait(get, key) {
            host.counters.dropped += 1;
        }
    }

    pub(crate) fn serve_gets(&mut self, host: &mut Host, now: Now, gets: Vec<WaitingGet>, key: &[u8]) {
        for get in gets {
            self.serve_get(host, now, get, key);
        }
    }

    pub(crate) fn forward_get(&mut self, host: &mut Host, now: Now, get: WaitingGet, key: &[u8]) {
        self.pass_get(host, now, get, key, self.membership.primary_address());
    }

    /// Passes a get on to another member.
    pub(crate) fn pass_get(
        &mut self,
        host: &mut Host,
        now: Now,
        get: WaitingGet,
        key: &[u8],
        to: SocketAddrV4,
    ) {
        host.trace.note(now, get.op, Step::PassedOn);
        host.counters.gets_forwarded += 1;
        let forwarded = Get {
            keyspace: self.membership.keyspace,
            op: get.op,
            digest: self.membership.digest(key),
            reply_to: Some(get.reply_to),
            forwarded: Some((self.id(), self.membership.epoch, host.config.node)),
            key,
            padding: 0,
        };
        host.outbox.send(to, |out| forwarded.encode(out));
    }

    /// Reads the value of a key that may be shown, for a get.
    pub(crate) fn serve_get(&mut self, host: &mut Host, now: Now, get: WaitingGet, key: &[u8]) {
        if !host.has_lease(now) {
            host.counters.dropped += 1;
            return;
        }
        let token = host.read(self.id(), key);
        let changes = host.visibility.changes(self.id(), key);
        self.waits.read(token, PendingRead::Get { get, key: key.into(), changes });
    }

    /// The engine has read the value for a get: answers it.
    pub(crate) fn on_get_read(
        &mut self,
        host: &mut Host,
        now: Now,
        get: WaitingGet,
        (key, changes): (&[u8], Changes),
        entry: Option<Entry<'_>>,
    ) {
        if !self.membership.standing.serves() {
            // This member has left the epoch since the get arrived. It must not answer: a handoff
            // no longer knows what it lacks (R8), and a joiner may lack anything.
            host.counters.dropped += 1;
            return;
        }
        self.answer_get_from(host, now, get, (key, changes), entry);
    }

    /// Answers a get with the entry that was read. If the value has to expire first, it is deleted
    /// first; a member that cannot answer passes the get on to the primary.
    pub(crate) fn answer_get(
        &mut self,
        host: &mut Host,
        now: Now,
        get: WaitingGet,
        (key, changes): (&[u8], Changes),
        entry: Option<Entry<'_>>,
    ) {
        let entry_to_expire = entry.filter(|_| !get.is_judged);
        let overdue = entry_to_expire.filter(|entry| is_overdue(entry.expiry_ms, now));
        if let Some(entry) = overdue {
            // Only a delete that the primary decides makes the value expire (R11).
            match self.membership.standing {
                Standing::Consistent if self.is_primary() => {
                    self.expire_for(host, now, key, entry.version, get);
                }
                _ => self.forward_get(host, now, get, key),
            }
            return;
        }
        if entry.is_none() && self.membership.standing == Standing::Handoff {
            // A handoff lacks entries from before it joined (R8), so the key may exist.
            self.forward_get(host, now, get, key);
            return;
        }
        host.counters.gets += 1;
        if let Some(entry) = &entry
            && !self.locks.is_locked(key)
        {
            host.visibility.read(self.id(), key, entry, changes);
        }
        let reply = match entry {
            Some(Entry { value: Some(value), version, expiry_ms, form, .. }) => {
                Reply { version, expiry_ms, value: Some(value), form, ..Reply::bare(get.op, Status::Ok) }
            }
            _ => Reply::bare(get.op, Status::NotFound),
        };
        let keyspace = self.membership.keyspace;
        let digest = || self.membership.digest(key);
        let reply = Reply { integer: host.useful_length(keyspace, key, digest, &reply), ..reply };
        host.trace.note(now, get.op, Step::Answered(reply.status));
        host.reply(Some(get.reply_to), &reply);
    }
}
