//! Large values that clients send for their puts.

use super::transfer::{LargePut, Transfer, settled_report};
use super::{PAUSE_NS, ROOM, STALLED_NS, TRANSFERS_MAX};
use crate::modes::Partition;
use crate::node::Replica;
use crate::node::host::Host;
use crate::node::membership::Membership;
use crate::node::storage::ValueEnd;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::large::{Chunk, Reference, receiver_bit};
use nicekv_proto::{Datagram, NodeId, Now, OpId, Status, Update};
use nicekv_transport::Received;

impl Host {
    /// A client puts a large value that is not on disk: allows it to send the value, or, if it has
    /// sent parts before, reports which have arrived.
    pub(crate) fn expect_value(&mut self, now: Now, membership: &Membership, put: &LargePut<'_>) {
        if let Some(transfer) = self.values.transfers.get_mut(&put.reference.name) {
            if transfer.reference == put.reference {
                transfer.ask_again(now, put);
            } else {
                // Two puts use one name for different contents: the first one counts.
                self.counters.malformed += 1;
            }
            return;
        }
        if self.values.transfers.len() >= TRANSFERS_MAX {
            self.values.counters.transfers_refused += 1;
            let to = (put.reply_to, put.has_primary);
            return self.report_value(membership, &put.reference, to, Status::Busy);
        }
        self.values.counters.transfers += 1;
        let name = put.reference.name;
        let seed = self.config.hash_seed ^ name.sequence.rotate_left(32) ^ u64::from(self.config.node.0);
        let transfer = Transfer::new(now, put, membership.partition, seed);
        self.values.transfers.insert(name, transfer);
    }

    /// Whether an update names a large value that a client has sent but for which the disk has no
    /// room. Such an update goes to its partition only to be refused.
    pub(crate) fn has_no_room_for(&self, update: &Update<'_>) -> bool {
        self.values.without_room == Some(update.op)
    }

    /// Whether a client is sending a large value: some of it arrived within the last [`PAUSE_NS`].
    pub(crate) fn is_receiving(&self, now: Now, name: OpId) -> bool {
        let transfer = self.values.transfers.get(&name);
        transfer.is_some_and(|transfer| {
            transfer.is_ending || transfer.receiver.has_input_since(now.boot_ns.saturating_sub(PAUSE_NS))
        })
    }

    /// Whether a value that arrives or is built here has just advanced, or waits for the rate limit
    /// of copies.
    pub(crate) fn values_advance(&self, now: Now) -> bool {
        now.boot_ns < self.values.advanced_ns + STALLED_NS || self.copies.pause(now).is_some()
    }

    /// Reports to a client that the large value it puts is complete here, or why this node does not
    /// accept it. `has_primary`: as in [`LargePut`].
    pub(crate) fn report_value(
        &mut self,
        membership: &Membership,
        reference: &Reference,
        (to, has_primary): (SocketAddrV4, bool),
        status: Status,
    ) {
        let of = (membership.partition, membership.epoch, self.config.node);
        let members = told_members(membership, self.config.node, has_primary);
        let report = settled_report(reference, of, members, status);
        self.outbox.send(to, |out| report.encode(out));
    }
}

/// The members that a report lists: all of them if this node is the primary or the mode has no
/// primary, otherwise none.
fn told_members(membership: &Membership, me: NodeId, has_primary: bool) -> Vec<NodeId> {
    if has_primary && membership.primary != me {
        return Vec::new();
    }
    membership.members.iter().map(|member| member.node).collect()
}

impl Replica {
    /// Handles a client's message about a large value.
    pub(crate) fn on_large(&mut self, now: Now, from: SocketAddrV4, datagram: &Datagram<'_>) {
        match datagram {
            Datagram::Chunk(chunk) => self.on_chunk(now, chunk),
            Datagram::ReadChunks(read) => self.on_read_chunks(now, from, read),
            _ => unreachable!("only messages about large values come here"),
        }
    }

    /// A chunk of a large value has arrived.
    fn on_chunk(&mut self, now: Now, chunk: &Chunk<'_>) {
        let Host { values, storage, counters, config, .. } = &mut self.host;
        let Some(transfer) = values.transfers.get_mut(&chunk.op).filter(|transfer| !transfer.is_ending)
        else {
            counters.dropped += 1;
            return;
        };
        let Some(slot) = self.partitions.slot(transfer.partition) else { return };
        let is_member = self.partitions[slot].membership().position(config.node).is_some();
        if !is_member || chunk.mask & receiver_bit(config.node) == 0 {
            // The chunk is for other members; a switch that knows no masks has sent it to all.
            return;
        }
        let Some((offset, length)) = transfer.reference.chunk(chunk.number) else {
            values.counters.chunks_refused += 1;
            return;
        };
        if length != chunk.bytes.len() {
            values.counters.chunks_refused += 1;
            return;
        }
        values.counters.chunks += 1;
        match transfer.receiver.handle_chunk(now.boot_ns, chunk.number) {
            Received::New => {
                storage.write_value(&transfer.reference, offset, chunk.bytes);
                transfer.is_written = true;
                values.advanced_ns = now.boot_ns;
                // A chunk has arrived, so the client may send further ones.
                transfer.receiver.set_room(ROOM);
            }
            Received::Duplicate => values.counters.chunks_known += 1,
            Received::Refused(_) => values.counters.chunks_refused += 1,
        }
        if transfer.receiver.is_complete() {
            transfer.is_ending = true;
            storage.end_value(transfer.reference);
        }
    }

    /// The disk has finished a large value: it is complete and checked, wrong, or has no room.
    pub(crate) fn on_value_ended(&mut self, now: Now, name: OpId, end: ValueEnd) {
        if end == ValueEnd::Whole {
            self.host.storage.values.add(name);
            self.host.values.advanced_ns = now.boot_ns;
        }
        self.host.values.counters.wrong += u64::from(end == ValueEnd::Wrong);
        self.on_fetch_ended(now, name, end);
        self.on_making_ended(now, name, end);
        // Makes room by removing values that nothing uses.
        self.remove_dead(now);
        let transfer = self.host.values.transfers.remove(&name);
        if end == ValueEnd::Whole {
            self.resume_waiting(now, name);
        }
        let Some(mut transfer) = transfer else { return };
        let Some(slot) = self.partitions.slot(transfer.partition) else { return };
        let status = match end {
            ValueEnd::Whole => Status::Ok,
            ValueEnd::NoRoom => Status::DiskFull,
            // The client sends its update again, and the transfer starts over.
            ValueEnd::Wrong => return,
        };
        let membership = self.partitions[slot].membership();
        self.host.report_value(membership, &transfer.reference, transfer.teller(), status);
        let (from, request) = (transfer.from, core::mem::take(&mut transfer.request));
        // The report refuses nothing, because other members may have the value. With a primary, the
        // partition refuses the op.
        if request.is_empty() || (end == ValueEnd::NoRoom && !transfer.has_primary) {
            return;
        }
        self.host.values.without_room = (end == ValueEnd::NoRoom).then_some(name);
        self.handle_plain(now, from, &request, None);
        self.host.values.without_room = None;
    }

    /// Sends transfer reports that are due, and drops transfers whose client has stopped sending.
    pub(crate) fn report_transfers(&mut self, now: Now) {
        let Host { values, storage, outbox, config, .. } = &mut self.host;
        if values.transfers.is_empty() {
            return;
        }
        let partitions = &self.partitions;
        let (mut due, mut abandoned): (Vec<OpId>, Vec<Transfer>) = Default::default();
        due.extend(
            values.transfers.iter().filter(|(_, of)| of.next_deadline() <= now.boot_ns).map(|(op, _)| *op),
        );
        due.sort_unstable();
        for op in due {
            let Some(transfer) = values.transfers.get_mut(&op) else { continue };
            let membership = partitions.get(transfer.partition).map(Partition::membership);
            let membership = membership.filter(|membership| membership.position(config.node).is_some());
            let Some(membership) = membership.filter(|_| !transfer.receiver.is_abandoned(now.boot_ns)) else {
                // Keep the parts of a condemned value: the fetch from a member continues from them.
                if transfer.is_written && !storage.values.is_condemned(op) {
                    storage.remove_value(op);
                }
                abandoned.extend(values.transfers.remove(&op));
                values.counters.transfers_abandoned += 1;
                continue;
            };
            let by =
                (membership.epoch, config.node, told_members(membership, config.node, transfer.has_primary));
            if let Some(report) = transfer.poll_report(now, by) {
                outbox.send(transfer.reply_to, |out| report.encode(out));
            }
        }
        let is_home = |transfer: &&Transfer| self.partitions.slot(transfer.partition).is_some();
        let is_asked_for = |transfer: &&Transfer| !transfer.has_primary && !transfer.request.is_empty();
        abandoned.iter().filter(is_asked_for).filter(is_home).for_each(|transfer| {
            // The put may have completed at other replicas (R14), so this replica fetches the value
            // from them.
            let request = (transfer.from, &transfer.request[..]);
            self.host.await_value(transfer.partition, transfer.reference, request);
        });
    }
}
