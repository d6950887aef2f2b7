//! Publish and subscribe: every member of a channel's partition keeps the list of its listeners
//! (`pubsub`), and the primary sends messages.
//!
//! Delivery is at most once. A listener that is not registered in time, or loses a datagram, misses
//! the message; no message is sent twice. A primary remembers its latest messages to detect
//! repeats. No other node knows the messages of a dead primary, so listeners detect repeats, too
//! (M1).

use crate::node::Replica;
use crate::node::requests::written_in;
use crate::node::status::Standing;
use core::net::SocketAddrV4;
use nicekv_proto::publish::{Listen, ListenKind, Listening, Publish, Published};
use nicekv_proto::route::Room;
use nicekv_proto::{MatchRange, Now, Reply, Status};

impl Replica {
    /// A client registers or removes its listeners.
    pub(crate) fn on_listen(&mut self, now: Now, from: SocketAddrV4, listen: &Listen<'_>) {
        let slot = match listen.kind {
            ListenKind::Channel => self.route(listen.keyspace, listen.name, &listen.digest),
            ListenKind::Pattern => self.partitions.find(listen.keyspace, listen.digest.match_value()),
        };
        let Some(slot) = slot else { return };
        let to = listen.reply_to.unwrap_or(from);
        let noted = self.registry.listen(now, listen, to);
        self.host.counters.listeners_refused += u64::from(noted.is_err());
        if !self.publishes(now, slot) {
            return;
        }
        if noted.is_err() {
            return self.host.reply(Some(to), &Reply::bare(listen.op, Status::Busy));
        }
        let range = self.told_range(slot, listen);
        let answer = Listening { op: listen.op, range };
        self.host.outbox.send(to, |out| answer.encode(out));
    }

    /// The range of match values for which the answer holds: this partition's, from the requested
    /// match value on.
    fn told_range(&self, slot: usize, listen: &Listen<'_>) -> MatchRange {
        let (value, range) = (listen.digest.match_value(), self.partitions[slot].membership().range);
        let last = self.partitions.reach(slot, value).map_or(value, |reach| reach.min(range.last()));
        MatchRange::new(value, last.max(value)).expect("the last value is not below the first")
    }

    /// A client publishes a message.
    pub(crate) fn on_publish(
        &mut self,
        now: Now,
        from: SocketAddrV4,
        publish: &Publish<'_>,
        room: Option<&Room>,
    ) {
        let &Publish { keyspace, op, digest, reply_to, channel, message } = publish;
        let Some(slot) = self.route(keyspace, channel, &digest) else { return };
        if !self.came_by_its_chain(slot, true, written_in(room).0) || !self.publishes(now, slot) {
            return;
        }
        let told = match self.registry.repeated(op) {
            Some(count) => Some(count),
            None => self.tell(now, &Published { keyspace, op, channel, message }),
        };
        let reply = match told {
            Some(count) => Reply { integer: count.into(), ..Reply::bare(op, Status::Ok) },
            None => Reply::bare(op, Status::ValueTooLong),
        };
        self.host.reply(Some(reply_to.unwrap_or(from)), &reply);
    }

    /// Sends a message to its listeners. Returns their number; `None` if the message is too long
    /// for that many receivers.
    fn tell(&mut self, now: Now, published: &Published<'_>) -> Option<u32> {
        let (to, count) = self.registry.publish(now, published)?;
        self.host.counters.published += 1;
        self.host.counters.messages_sent += to.len() as u64;
        self.host.outbox.send_to_all(to, |out| published.encode(out));
        Some(count)
    }

    /// Whether this node leads the partition and may publish. It must wait until the epoch is
    /// activated: only then is the direct part of the predecessor's lease over (R12), so that the
    /// predecessor cannot send an older message after a newer one.
    fn publishes(&mut self, now: Now, slot: usize) -> bool {
        let membership = self.partitions[slot].membership();
        let is_primary = membership.primary == self.host.config.node;
        let leads = is_primary && membership.standing == Standing::Consistent && membership.activated;
        let may = leads && self.host.has_direct_lease(now);
        self.host.counters.dropped += u64::from(leads && !may);
        may
    }
}
